//! Clients and workers over HTTP keep what their ports promise, as those in process and over NATS do.
#![allow(clippy::unwrap_used, missing_docs)] // A test that cannot go on has failed.

#[path = "sdk/bus.rs"]
mod bus;
#[path = "sdk/house.rs"]
mod house;
#[allow(dead_code)] // Other tests use more of it.
#[path = "../../cluster/tests/real/servers.rs"]
mod servers;
#[path = "sdk/worker.rs"]
mod worker;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use tenure_core::command::create::CreateTask;
use tenure_core::command::{Close, Why};
use tenure_core::id::{CommandId, StepId, TaskId};
use tenure_core::patch::StepInput;
use tenure_core::record::Value;
use tenure_core::status::{Role, TaskStatus};
use tenure_core::view::{GetInput, ListInput, TemplateInput, ViewsInput};
use tenure_core::{Code, Command, Context, Rejection};
use tenure_gateway::identity::{Allowed, Identity};
use tenure_ports::ClientPort as _;
use tenure_sdk::client::{Client, Step, Task};
use tenure_sdk::http::{HttpConnectError, HttpSettings};
use tenure_wire::bus::call::{CALL_MAX, CallAnswer, MEDIA_TYPE, PAGE_BYTES};
use tenure_wire::bus::decode;
use tenure_wire::bus::event::ReadEvents;
use tenure_wire::bus::request::Request;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

use self::house::{House, Socket, connect, session};
use self::servers::free_port;

/// Whatever a test waits for comes sooner than this.
const SOON: Duration = Duration::from_secs(30);

fn task_id(id: &str) -> TaskId {
    TaskId::new(id).unwrap()
}

fn context(id: &str) -> Context {
    Context::new(CommandId::new(id).unwrap())
}

fn step(id: &str, input: Option<Value>) -> StepInput {
    StepInput {
        assignee: None,
        claim_only_by: None,
        ext: None,
        depends_on_step_ids: Vec::new(),
        handler: None,
        input,
        inputs_from: None,
        required: None,
        retry_policy: None,
        step_id: StepId::new(id).unwrap(),
        summary: "does something".into(),
        title: id.into(),
        worker_pool_id: None,
    }
}

fn create(task: &TaskId, steps: Vec<StepInput>) -> CreateTask {
    CreateTask { steps, task_id: Some(task.clone()), title: "t".into(), ..CreateTask::default() }
}

/// Over TLS, with a certificate that the caller knows, and with one that it does not.
#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_behind_tls_is_reached_if_it_is_known() {
    let house = House::start().await;
    let dir = tempfile::tempdir().unwrap();
    let ca = dir.path().join("ca.pem");
    let socket = Socket::tls(&ca, house.routes_for(Identity::local())).await;
    let known = HttpSettings { ca: Some(ca), ..socket.settings() };
    let client = connect(&known, "main").await.unwrap();
    assert!(client.list(true).await.unwrap().entries.is_empty());
    let Err(HttpConnectError::Refused(refused)) = connect(&socket.settings(), "main").await else {
        panic!("a stranger was believed");
    };
    assert_eq!(refused.code, Code::ValidationError, "it is not asked again");
    assert!(
        refused.message.starts_with(&format!("no connection to {}: ", socket.url)),
        "{refused}"
    );
}

/// A caller learns at once that a session, or all of this, is not for it.
#[tokio::test]
async fn callers_are_let_into_their_sessions_only() {
    let house = House::start().await;
    let only = Allowed::Only(vec![session("main")]);
    let observer = Identity { role: Role::Observer, sessions: only, ..Identity::local() };
    let worker = Identity { role: Role::Worker, ..Identity::local() };
    for (who, to, is_let_in) in
        [(&observer, "main", true), (&observer, "other", false), (&worker, "main", false)]
    {
        let socket = Socket::tcp("127.0.0.1:0", house.routes_for(who.clone())).await;
        match connect(&socket.settings(), to).await {
            Ok(_) => assert!(is_let_in),
            Err(HttpConnectError::Refused(refused)) if !is_let_in => {
                assert_eq!(refused.code, Code::PermissionDenied);
            }
            Err(other) => panic!("{other}"),
        }
    }
}

/// Lists, views and logs are those that a caller in process has.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_read_is_what_there_is() {
    let house = House::start().await;
    let (client, _socket) = house.client().await;
    let link = house.link();
    for number in 0..5 {
        let task = task_id(&format!("t{number}"));
        client.write(&task, context("c"), create(&task, vec![step("a", None)])).await.unwrap();
        if number % 2 == 0 {
            let cancel = Command::TaskCancel(Close::default());
            client.write(&task, context("end"), cancel).await.unwrap();
        }
    }
    for include_terminal in [false, true] {
        let listed = client.list(include_terminal).await.unwrap();
        assert_eq!(listed, link.list(include_terminal).await.unwrap());
        assert_eq!(listed.entries.len(), if include_terminal { 5 } else { 2 });
    }
    let input = ListInput { include_terminal: true, ..ListInput::default() };
    let (page, own) =
        (client.tasks(input.clone()).await.unwrap(), link.tasks(input).await.unwrap());
    assert_eq!(page.tasks.len(), 5);
    assert_eq!(serde_json::to_value(page).unwrap(), serde_json::to_value(own).unwrap());
    let input = ViewsInput::default();
    let (views, missing) = client.views(input.clone()).await.unwrap();
    assert_eq!((views, missing), link.views(input).await.unwrap());
    let task = task_id("t0");
    let (log, own) = (client.log(&task, 0).await.unwrap(), link.log(&task, 0).await.unwrap());
    assert_eq!((&log.commits, log.more, log.status), (&own.commits, own.more, own.status));
    let all = ReadEvents { after: 0 };
    assert_eq!(client.ask(&task, all).await.unwrap(), link.ask(&task, all).await.unwrap());
    let short = client.within(600).ask(&task, GetInput {}).await.unwrap();
    assert!(short.left_out.is_some(), "CTRL-06");
}

/// IDEM-07 is not needed here: a Task goes in one request, and its log comes back in parts.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_of_many_megabytes_goes_in_one_request() {
    let house = House::start().await;
    let (client, _socket) = house.client().await;
    let task = task_id("long");
    let value = Value::inline("application/octet-stream", vec![0xf0; 48 << 10]);
    let steps = (0..100).map(|number| step(&format!("a{number}"), Some(value.clone())));
    client.write(&task, context("c"), create(&task, steps.collect())).await.unwrap();
    let own = house.link().log(&task, 0).await.unwrap();
    let log = client.log(&task, 0).await.unwrap();
    assert_eq!(log.commits, own.commits);
    let written = serde_json::to_vec(&value).unwrap().len() * 100;
    assert!(written > PAGE_BYTES, "the log came in parts");
}

/// What HTTP does not carry is refused by the client, and by the gateway to others.
#[tokio::test]
async fn a_request_has_a_greatest_length_and_a_type() {
    let house = House::start().await;
    let (client, socket) = house.client().await;
    let task = task_id("t");
    let title = "x".repeat(CALL_MAX).into();
    let refused = client.write(&task, context("c"), CreateTask { title, ..create(&task, vec![]) });
    assert_eq!(refused.await.unwrap_err().code, Code::ValidationError);
    let template = Request::new(None, None, TemplateInput {}).write().unwrap();
    for (media_type, length, body, status) in [
        (MEDIA_TYPE, CALL_MAX + 1, &b""[..], "413"),
        ("application/json", 2, &b"{}"[..], "415"),
        (MEDIA_TYPE, template.len(), &template[..], "200"),
        (MEDIA_TYPE, 1, &b"\xc1"[..], "200"), // The refusal is in the answer, as on the bus.
    ] {
        let (said, answer) = post(&socket, media_type, length, body).await;
        assert!(said.starts_with(&format!("HTTP/1.1 {status} ")), "{said}");
        if body == b"\xc1" {
            let answer: CallAnswer<()> = decode(&answer).unwrap();
            assert_eq!(answer.into_result().unwrap_err().code, Code::ValidationError);
        }
    }
}

/// Sends a request as the bytes that it is. Answers the head and the body.
async fn post(socket: &Socket, media_type: &str, length: usize, body: &[u8]) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect(socket.url.trim_start_matches("http://")).await.unwrap();
    let head = format!(
        "POST /v1/sessions/main/call HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\
         Content-Type: {media_type}\r\nContent-Length: {length}\r\n\r\n"
    );
    stream.write_all(&[head.as_bytes(), body].concat()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap() + 4;
    (String::from_utf8_lossy(&answer[..end]).into_owned(), answer[end..].to_vec())
}

/// IDEM-01: answers that are lost on their way do not make a command take effect twice.
#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_dies_before_it_answers_has_done_it_once() {
    let house = House::start().await;
    let (_, socket) = house.client().await;
    let lost = Arc::new(AtomicUsize::new(0));
    let url = losing_answers(&socket, Arc::clone(&lost)).await;
    let client =
        connect(&HttpSettings { first_wait: SOON, ..HttpSettings::new(url) }, "main").await;
    let (client, task) = (client.unwrap(), task_id("t"));
    let made = client.write(&task, context("c"), create(&task, vec![step("a", None)])).await;
    let made = made.unwrap();
    let pause = || Command::PauseTask(Why::default());
    let paused = client.write(&task, context("p"), pause()).await.unwrap();
    assert!(lost.load(Ordering::SeqCst) >= 3, "answers were lost");
    assert_eq!(paused.version, made.version + paused.event_ids.len() as u64, "nothing came twice");
    assert_eq!(client.ask(&task, GetInput {}).await.unwrap().task.version, paused.version);
}

/// Something before a gateway that loses every second answer: it passes a request on, waits for the
/// answer and breaks the connection.
async fn losing_answers(socket: &Socket, lost: Arc<AtomicUsize>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let behind = socket.url.trim_start_matches("http://").to_owned();
    tokio::spawn(async move {
        let mut count = 0;
        while let Ok((mut caller, _)) = listener.accept().await {
            let mut gateway = TcpStream::connect(&behind).await.unwrap();
            count += 1;
            if count % 2 == 0 {
                tokio::spawn(async move {
                    // One answer for each connection, so that the next request comes on another one.
                    let (mut from_caller, mut to_caller) = caller.split();
                    let (mut from_gateway, mut to_gateway) = gateway.split();
                    let answer = async {
                        let mut bytes = vec![0; 64 << 10];
                        let count = from_gateway.read(&mut bytes).await.unwrap();
                        to_caller.write_all(&bytes[..count]).await.unwrap();
                    };
                    tokio::select! {
                        _ = tokio::io::copy(&mut from_caller, &mut to_gateway) => {}
                        () = answer => {}
                    }
                });
                continue;
            }
            let lost = Arc::clone(&lost);
            tokio::spawn(async move {
                let (mut from_caller, _to_caller) = caller.split();
                let (from_gateway, mut to_gateway) = gateway.split();
                tokio::select! {
                    _ = tokio::io::copy(&mut from_caller, &mut to_gateway) => {}
                    answered = from_gateway.readable() => {
                        answered.unwrap();
                        lost.fetch_add(1, Ordering::SeqCst);
                    }
                }
            });
        }
    });
    url
}

/// Another gateway takes the place of one that has died: who waits for a Task waits on, and who follows
/// its events gets each of them once.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_survives_a_gateway() {
    let (house, at) = (House::start().await, format!("127.0.0.1:{}", free_port()));
    let (port, socket) = house.client_at(&at).await;
    let client = Client::new(port);
    let task = client.create(Task::new("t").step(Step::new("a").handler("echo"))).await.unwrap();
    let (waiting, following) = (client.clone(), client.clone());
    let id = task.clone();
    let ended = tokio::spawn(async move { waiting.wait_for_end(&id).await });
    let id = task.clone();
    let events =
        tokio::spawn(async move { following.events(&id, 0).try_collect::<Vec<_>>().await });
    sleep(Duration::from_millis(300)).await;
    drop(socket);
    while TcpStream::connect(&at).await.is_ok() {
        sleep(Duration::from_millis(10)).await;
    }
    let refused = client.get(&task);
    assert!(timeout(Duration::from_millis(300), refused).await.is_err(), "nobody answers");
    let _next = Socket::tcp(&at, house.routes_for(Identity::local())).await;
    let _workers = house.work();
    let ended = timeout(SOON, ended).await.unwrap().unwrap().unwrap();
    assert_eq!(ended.status, TaskStatus::Completed);
    let events = timeout(SOON, events).await.unwrap().unwrap().unwrap();
    assert_eq!(events, house.link().ask(&task, ReadEvents { after: 0 }).await.unwrap().events);
}

/// All requests of a client go over few connections, and all who listen share one.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_needs_few_connections() {
    let house = House::start().await;
    let _workers = house.work();
    let (port, socket) = house.client().await;
    let client = Client::new(port);
    for _ in 0..20 {
        let task =
            client.create(Task::new("t").step(Step::new("a").handler("echo"))).await.unwrap();
        let ended = timeout(SOON, client.wait_for_end(&task)).await.unwrap().unwrap();
        assert_eq!(ended.status, TaskStatus::Completed);
    }
    let count = socket.count.load(Ordering::SeqCst);
    assert!(count <= 3, "{count}");
    let mut all = Vec::new();
    for number in 0..50 {
        all.push(client.port().changes(Some(&task_id(&format!("u{number}")))).await.unwrap());
    }
    assert_eq!(socket.count.load(Ordering::SeqCst), count);
    client.create(Task::new("t").id("u49").step(Step::new("a").handler("echo"))).await.unwrap();
    let hints = all.last_mut().unwrap();
    let ended = async {
        loop {
            if let Some(status) = hints.next().await.unwrap().ended {
                return status;
            }
        }
    };
    assert_eq!(timeout(SOON, ended).await.unwrap(), TaskStatus::Completed);
}

/// A scheduler that has stopped is told as one, however long the gateway lives on.
#[tokio::test]
async fn a_scheduler_that_has_stopped_is_told_of() {
    let house = House::start().await;
    let (_, socket) = house.client().await;
    let settings = HttpSettings { patience: Duration::from_millis(300), ..socket.settings() };
    let client = connect(&settings, "main").await.unwrap();
    house.scheduler.stop().await;
    let refused: Rejection = client.log(&task_id("t"), u64::MAX).await.unwrap_err();
    assert_eq!((refused.code, client.is_over()), (Code::Unavailable, false));
}
