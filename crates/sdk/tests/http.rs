//! The client over HTTP, and servers that do what a gateway should not.
#![allow(clippy::unwrap_used, missing_docs)] // A test that cannot go on has failed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use futures::future::join_all;
use parking_lot::Mutex;
use serde::Serialize;
use tenure_core::command::Why;
use tenure_core::id::{CommandId, SessionId, TaskId};
use tenure_core::view::GetInput;
use tenure_core::view::board::template;
use tenure_core::{Code, Command, Context, Rejection};
use tenure_ports::ClientPort as _;
use tenure_sdk::http::{HttpClient, HttpConnectError, HttpSettings};
use tenure_wire::bus::call::{CallAnswer, MEDIA_TYPE};
use tenure_wire::bus::request::RequestHead;
use tenure_wire::bus::{decode, encode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const MS: Duration = Duration::from_millis(1);

/// A request as the server gets it.
#[derive(Debug, Clone)]
struct Heard {
    head: String,
    body: Vec<u8>,
}

impl Heard {
    fn operation(&self) -> RequestHead {
        decode(&self.body).unwrap()
    }
}

/// What the server does with a request.
enum Does {
    /// It sends these bytes and waits for the next request.
    Says(Vec<u8>),
    /// It sends these bytes and closes the connection.
    SaysAndCloses(Vec<u8>),
    /// It says nothing and keeps the connection.
    Waits,
}

/// A server of the test's own.
struct Server {
    at: SocketAddr,
    heard: Arc<Mutex<Vec<Heard>>>,
    connections: Arc<AtomicUsize>,
    open_max: Arc<AtomicUsize>,
}

impl Server {
    /// A server that does this with the request of this number.
    async fn start(does: impl Fn(usize, &Heard) -> Does + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let (heard, connections, open_max) = (Arc::default(), Arc::default(), Arc::default());
        let server = Self { at, heard, connections, open_max };
        let (heard, connections, open_max) =
            (server.heard.clone(), server.connections.clone(), server.open_max.clone());
        let (does, open) = (Arc::new(does), Arc::new(AtomicUsize::new(0)));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::SeqCst);
                let now = open.fetch_add(1, Ordering::SeqCst) + 1;
                open_max.fetch_max(now, Ordering::SeqCst);
                let (does, heard, open) = (does.clone(), heard.clone(), open.clone());
                tokio::spawn(async move {
                    serve(stream, &heard, &*does).await;
                    open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        server
    }

    /// A server that lets every caller in, and then does this with the request of this number.
    async fn gateway(does: impl Fn(usize, &Heard) -> Does + Send + Sync + 'static) -> Self {
        let count = AtomicUsize::new(0);
        let is_template = |heard: &Heard| {
            heard.head.starts_with("POST") && heard.operation().operation == "task_template"
        };
        Self::start(move |_, heard| match is_template(heard) {
            true => Does::Says(answer(&CallAnswer::of(Ok(template())))),
            false => does(count.fetch_add(1, Ordering::SeqCst), heard),
        })
        .await
    }

    fn settings(&self) -> HttpSettings {
        HttpSettings {
            first_wait: 400 * MS,
            request_timeout: 150 * MS,
            patience: 2_000 * MS,
            ..HttpSettings::new(format!("http://{}", self.at))
        }
    }

    async fn client(&self) -> HttpClient {
        HttpClient::connect(&self.settings(), session()).await.unwrap()
    }

    /// The refusal of a caller that comes.
    async fn refusal(&self) -> Rejection {
        refusal(&self.settings()).await
    }

    fn count(&self) -> usize {
        self.heard.lock().len()
    }
}

async fn serve(
    mut stream: TcpStream,
    heard: &Mutex<Vec<Heard>>,
    does: &(impl Fn(usize, &Heard) -> Does + Sync),
) {
    let mut read = Vec::new();
    while let Some(request) = request(&mut stream, &mut read).await {
        let number = heard.lock().len();
        heard.lock().push(request.clone());
        match does(number, &request) {
            Does::Says(bytes) => stream.write_all(&bytes).await.unwrap(),
            Does::SaysAndCloses(bytes) => return stream.write_all(&bytes).await.unwrap(),
            Does::Waits => std::future::pending().await,
        }
    }
}

/// The next request of a connection.
async fn request(stream: &mut TcpStream, read: &mut Vec<u8>) -> Option<Heard> {
    let end = loop {
        if let Some(at) = read.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            break at + 4;
        }
        more(stream, read).await?;
    };
    let head = String::from_utf8_lossy(&read[..end]).to_ascii_lowercase();
    let length = head.split_once("content-length: ").map_or("0", |(_, rest)| rest);
    let length: usize = length.split("\r\n").next().unwrap().trim().parse().unwrap();
    while read.len() < end + length {
        more(stream, read).await?;
    }
    let head = String::from_utf8_lossy(&read[..end]).into_owned();
    let body = read[end..end + length].to_vec();
    read.drain(..end + length);
    Some(Heard { head, body })
}

async fn more(stream: &mut TcpStream, read: &mut Vec<u8>) -> Option<()> {
    let count = stream.read_buf(read).await.ok()?;
    (count > 0).then_some(())
}

/// A whole response.
fn response(status: &str, media_type: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {media_type}\r\nContent-Length: {length}\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}

fn answer<T: Serialize>(answer: &CallAnswer<T>) -> Vec<u8> {
    response("200 OK", MEDIA_TYPE, &encode(answer).unwrap())
}

/// A final answer to any request.
fn refused() -> Vec<u8> {
    let refused = Rejection::new(Code::TaskNotFound, "there is no such task");
    answer(&CallAnswer::<()>::of(Err(refused)))
}

fn problem(status: &str, code: &str) -> Vec<u8> {
    let body = format!(
        r#"{{"type":"/docs#{code}","status":401,"detail":"so it is","code":"{code}","details":{{"a":1}}}}"#
    );
    response(status, "application/problem+json", body.as_bytes())
}

fn session() -> SessionId {
    "main".parse().unwrap()
}

fn task() -> TaskId {
    "t".parse().unwrap()
}

async fn refusal(settings: &HttpSettings) -> Rejection {
    match HttpClient::connect(settings, session()).await {
        Err(HttpConnectError::Refused(refused)) => refused,
        other => panic!("{other:?}"),
    }
}

async fn pause(client: &HttpClient) -> Rejection {
    let context = Context::new(CommandId::new("c1").unwrap());
    client.write(&task(), context, Command::PauseTask(Why::default())).await.unwrap_err()
}

/// A program that knows several gateways goes on at the next one when one is away, and stays there.
#[tokio::test]
async fn a_client_asks_the_next_gateway() {
    let away = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap(); // Closed by now.
    let server = Server::gateway(|_, _| Does::Says(refused())).await;
    let url = format!("http://{away},http://{}", server.at);
    let settings = HttpSettings { url, ..server.settings() };
    let client = HttpClient::connect(&settings, session()).await.unwrap();
    for _ in 0..2 {
        let task = TaskId::new("t").unwrap();
        let refused = client.ask(&task, GetInput {}).await.unwrap_err();
        assert_eq!(refused.code, Code::TaskNotFound);
    }
    assert_eq!((server.count(), server.connections.load(Ordering::SeqCst)), (3, 1));
    let nowhere = HttpSettings { url: format!("http://{away},http://{away}"), ..settings };
    assert_eq!(refusal(&nowhere).await.code, Code::Unavailable);
}

#[tokio::test]
async fn a_gateway_that_is_not_there_is_named_with_the_cause() {
    let dir = tempfile::tempdir().unwrap();
    let socket = format!("unix:{}", dir.path().join("socket").display());
    for (url, why) in
        [("http://127.0.0.1:9".to_owned(), "Connection refused"), (socket, "No such file")]
    {
        let settings = HttpSettings { first_wait: 200 * MS, ..HttpSettings::new(&url) };
        let (begun, refused) = (Instant::now(), refusal(&settings).await);
        assert_eq!(refused.code, Code::Unavailable);
        assert!(!refused.is_ambiguous(), "nothing was sent");
        let expected = format!("cannot reach {url}: {why}");
        assert!(refused.message.starts_with(&expected), "{}", refused.message);
        assert!(begun.elapsed() < 5_000 * MS);
    }
}

#[tokio::test]
async fn a_wrong_token_is_refused_at_once_and_shown_nowhere() {
    let server =
        Server::start(|_, _| Does::Says(problem("401 Unauthorized", "unauthenticated"))).await;
    let settings = HttpSettings { token: Some("s3cret".into()), ..server.settings() };
    let refused = refusal(&settings).await;
    let message = format!("http://{} does not let this caller in: so it is", server.at);
    assert_eq!((refused.code, refused.message), (Code::Unauthenticated, message));
    assert_eq!(refused.details["a"], 1);
    assert_eq!(server.count(), 1, "another try would get the same");
    assert!(server.heard.lock()[0].head.contains("authorization: Bearer s3cret\r\n"));
    assert!(!format!("{settings:?}").contains("s3cret"));
}

/// What is no gateway is told as such, and not asked again.
#[tokio::test]
async fn another_server_is_told_from_a_gateway() {
    for (status, what) in [("200 OK", "200 OK"), ("404 Not Found", "404"), ("302 Found", "302")] {
        let server =
            Server::start(move |_, _| Does::Says(response(status, "text/html", b"<html>"))).await;
        let refused = server.refusal().await;
        assert_eq!(refused.details["field"], "url");
        let at = format!("http://{} answers {what}", server.at);
        assert!(refused.message.starts_with(&at), "{}", refused.message);
        assert_eq!(server.count(), 1);
    }
}

#[tokio::test]
async fn a_server_that_speaks_no_http_is_told_with_the_cause() {
    let server =
        Server::start(|_, _| Does::SaysAndCloses(b"SSH-2.0-OpenSSH_9.6\r\n".to_vec())).await;
    let refused = server.refusal().await;
    let at = format!("the answer of http://{} is lost: ", server.at);
    assert!(refused.message.starts_with(&at), "{}", refused.message);
    assert!(server.count() > 1, "it may pass");
}

/// WAL-09: an answer that cannot be read leaves open what happened.
#[tokio::test]
async fn an_answer_that_cannot_be_read_leaves_all_in_doubt() {
    let server = Server::gateway(|_, _| Does::Says(response("200 OK", MEDIA_TYPE, b"\xc1"))).await;
    let settings = HttpSettings { patience: 300 * MS, ..server.settings() };
    let client = HttpClient::connect(&settings, session()).await.unwrap();
    let refused = pause(&client).await;
    assert!(refused.is_ambiguous(), "{refused}");
    assert!(server.count() > 2);
}

#[tokio::test]
async fn a_server_that_says_nothing_is_left_in_time() {
    let server = Server::start(|_, _| Does::Waits).await;
    let (begun, refused) = (Instant::now(), server.refusal().await);
    assert!(refused.message.ends_with("it comes too late") && refused.is_ambiguous(), "{refused}");
    assert!((300 * MS..2_000 * MS).contains(&begun.elapsed()), "{:?}", begun.elapsed());
}

/// IDEM-01: a request whose answer was lost is repeated as it was.
#[tokio::test]
async fn a_gateway_that_dies_in_a_request_gets_the_same_again() {
    let half = refused()[..30].to_vec();
    let server = Server::gateway(move |number, _| match number {
        0 => Does::SaysAndCloses(Vec::new()),
        1 => Does::SaysAndCloses(half.clone()),
        2 => Does::Waits,
        3 => Does::Says(problem("503 Service Unavailable", "unavailable")),
        _ => Does::Says(refused()),
    })
    .await;
    let client = server.client().await;
    assert_eq!(pause(&client).await.code, Code::TaskNotFound);
    let heard = server.heard.lock().clone();
    let bodies: Vec<_> = heard[1..].iter().map(|it| &it.body).collect();
    assert_eq!(bodies.len(), 5);
    assert!(bodies.windows(2).all(|two| two[0] == two[1]), "byte for byte");
    let head = heard[1].operation();
    assert_eq!(head.command_id.unwrap().as_str(), "c1");
    assert!(heard[1].head.starts_with("POST /v1/sessions/main/call HTTP/1.1\r\n"));
}

#[tokio::test]
async fn a_connection_is_used_again_until_it_is_closed() {
    let server = Server::gateway(|number, _| match number {
        2 => Does::SaysAndCloses(refused()), // It does not say that it will.
        _ => Does::Says(refused()),
    })
    .await;
    let client = server.client().await;
    let connections = || server.connections.load(Ordering::SeqCst);
    for _ in 0..3 {
        assert_eq!(pause(&client).await.code, Code::TaskNotFound);
    }
    assert_eq!(connections(), 1);
    for _ in 0..3 {
        assert_eq!(pause(&client).await.code, Code::TaskNotFound);
    }
    assert_eq!(connections(), 2);
}

#[tokio::test]
async fn no_more_connections_are_open_than_allowed() {
    let server = Server::gateway(|_, _| Does::Says(refused())).await;
    let settings = HttpSettings { connections_max: 3, ..server.settings() };
    let client = HttpClient::connect(&settings, session()).await.unwrap();
    join_all((0..50).map(|_| pause(&client))).await;
    assert_eq!(server.count(), 51);
    assert!((1..=3).contains(&server.open_max.load(Ordering::SeqCst)));
}

/// CTRL-06: the wish for a short answer goes with each request.
#[tokio::test]
async fn a_limit_for_answers_is_sent_along() {
    let server = Server::gateway(|_, _| Does::Says(refused())).await;
    let client = server.client().await;
    client.within(700).ask(&task(), GetInput {}).await.unwrap_err();
    client.ask(&task(), GetInput {}).await.unwrap_err();
    let heard = server.heard.lock();
    let limits: Vec<_> = heard.iter().map(|it| it.operation().max_bytes).collect();
    assert_eq!(limits, [None, Some(700), None]);
}

/// Listeners share one connection, which is made anew when it breaks, and closed after the last one.
#[tokio::test]
async fn hints_come_over_one_connection_that_is_made_anew() {
    let stream = |version: u64| {
        let hint = format!(
            "retry: 1\n\nevent: task\ndata: {{\"task_id\":\"t\",\"version\":{version}}}\n\n"
        );
        let other =
            "event: task\ndata: {\"task_id\":\"u\",\"version\":9}\n\nevent: new\ndata: 1\n\n";
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
        [head, other, &hint].concat().into_bytes()
    };
    let server = Server::gateway(move |number, _| match number {
        0 => Does::SaysAndCloses(stream(1)),
        1 => Does::SaysAndCloses(problem("503 Service Unavailable", "unavailable")),
        _ => Does::SaysAndCloses(stream(2)),
    })
    .await;
    let client = server.client().await;
    let mut all = client.changes(None).await.unwrap();
    let mut one = client.changes(Some(&task())).await.unwrap();
    let (mut seen, mut others) = (0, 0);
    while seen < 2 {
        let hint = all.next().await.unwrap();
        if hint.task_id == task() { seen = hint.version } else { others += 1 }
    }
    assert!(others > 0);
    assert!(one.next().await.unwrap().task_id == task());
    let path = "GET /v1/sessions/main/events HTTP/1.1\r\n";
    assert!(server.heard.lock()[1..].iter().all(|it| it.head.starts_with(path)));
    drop((all, one));
    let before = server.count();
    tokio::time::sleep(600 * MS).await; // The next one would be made after 200 ms at most.
    assert_eq!(server.count(), before, "nobody listens any more");
}

/// A gateway that refuses a listener for good is not asked for ever.
#[tokio::test]
async fn a_listener_that_is_refused_learns_it() {
    let server =
        Server::gateway(|_, _| Does::Says(problem("403 Forbidden", "permission_denied"))).await;
    let client = server.client().await;
    let refused = client.runtime(None).await.err().unwrap();
    assert_eq!(refused.code, Code::PermissionDenied);
    assert!(server.heard.lock()[1].head.contains("/events?runtime=true"));
}

/// However many begin to listen while the gateway says nothing, each gives up when its own patience is over.
#[tokio::test]
async fn listeners_lose_patience_together() {
    let server = Server::gateway(|_, _| Does::Waits).await;
    let settings = HttpSettings { patience: 500 * MS, ..server.settings() };
    let client = HttpClient::connect(&settings, session()).await.unwrap();
    let begun = Instant::now();
    let all = join_all((0..20).map(|_| client.changes(None))).await;
    assert!(all.iter().all(|it| it.as_ref().is_err_and(|no| no.code == Code::Unavailable)));
    assert!(begun.elapsed() < 5_000 * MS, "{:?}", begun.elapsed());
}
