//! The first connection: all servers are asked side by side, and the first that lets this login in is taken. So a
//! server that is frozen or away costs no time where another one answers.
//!
//! Step 1 of the walk in docs/architecture.md.

use std::fmt;
use std::future::{Ready, ready};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use async_nats::{Client, ConnectErrorKind, ConnectOptions, ReconnectToServer, Server};
use async_nats::{ServerAddr, ServerInfo};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use parking_lot::Mutex;
use tenure_wire::bus::address::{self, HIDDEN, without_secrets};
use tenure_wire::bus::fault::{self, Fault};
use tenure_wire::bus::turns::ServerTurns;
use tokio::time::{Instant, sleep, timeout_at};

use super::connect_error::ConnectError;
use super::news::News;

/// The pause before a server that is away is asked again: it may be just starting.
const PAUSE: Duration = Duration::from_millis(200);

/// The pause before a server that does not let this login in is asked once more: one that is just starting may not
/// have read its accounts.
const PAUSE_OF_DENIED: Duration = Duration::from_millis(500);

/// Why there is no connection to one server.
#[derive(Debug)]
struct ServerFault {
    server: String,
    kind: Fault,
    why: String,
}

impl fmt::Display for ServerFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { server, kind, why } = self;
        match kind {
            Fault::Away => write!(f, "cannot reach {server}: {why}"),
            Fault::Denied => write!(f, "{server} does not let this login in: {why}"),
            Fault::Settings => write!(f, "no connection to {server}: {why}"),
        }
    }
}

impl ServerFault {
    fn of(server: &ServerAddr, error: &async_nats::ConnectError) -> Self {
        let kind = match error.kind() {
            ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
                Fault::Denied
            }
            // A server says that it requires TLS before TLS begins, so it is there.
            ConnectErrorKind::ServerParse | ConnectErrorKind::Tls => Fault::Settings,
            ConnectErrorKind::Io if fault::is_of_tls(error) => Fault::Settings,
            ConnectErrorKind::Dns
            | ConnectErrorKind::TimedOut
            | ConnectErrorKind::Io
            | ConnectErrorKind::MaxReconnects => Fault::Away,
        };
        Self { server: shown(server), kind, why: fault::why(error) }
    }

    fn silent(server: &ServerAddr) -> Self {
        Self { server: shown(server), kind: Fault::Away, why: "it does not answer".into() }
    }
}

/// Connects to the first of the servers that lets this login in, and tells the client library of the others. A
/// server that is away is asked again until the time is over; a server that refuses this login is asked once
/// more, and wrong settings are final.
pub(super) fn first<'a>(
    url: &'a str,
    options: &'a ConnectOptions,
    wait: Duration,
) -> BoxFuture<'a, Result<(Client, Arc<News>), ConnectError>> {
    Box::pin(first_of(url, options, wait)) // A pointer: this crate has the code of the connection.
}

async fn first_of(
    url: &str,
    options: &ConnectOptions,
    wait: Duration,
) -> Result<(Client, Arc<News>), ConnectError> {
    let (servers, until) = (servers(url)?, Instant::now() + wait);
    let ask = |server| async move { (server, reach(server, options, until).await) };
    let mut asked: FuturesUnordered<_> = shuffled(&servers).map(ask).collect();
    let mut faults = Vec::new();
    while let Some((server, answer)) = asked.next().await {
        match answer {
            // A client that has lost its server meanwhile tells nothing until it has it again.
            Ok((client, news)) => {
                match timeout_at(until, tell_of_others(&client, &servers)).await {
                    Ok(()) => return Ok((client, news)),
                    Err(_) => faults.push(ServerFault::silent(server)),
                }
            }
            Err(fault) => faults.push(fault),
        }
    }
    Err(conclude(&faults))
}

/// The servers from one on that chance draws: of two that answer at the same time the one that was asked first
/// is taken, and not all clients are to crowd there.
fn shuffled(servers: &[ServerAddr]) -> impl Iterator<Item = &ServerAddr> {
    let first = match u64::try_from(servers.len()) {
        Ok(count @ 1..) => usize::try_from(RandomState::new().hash_one(0) % count).unwrap_or(0),
        _ => 0,
    };
    servers.iter().cycle().skip(first).take(servers.len())
}

async fn reach(
    server: &ServerAddr,
    options: &ConnectOptions,
    until: Instant,
) -> Result<(Client, Arc<News>), ServerFault> {
    let mut last = None;
    let mut is_denied = false;
    loop {
        let news = Arc::new(News::default());
        let told = Arc::clone(&news);
        let options = options.clone().reconnect_to_server_callback(in_turn());
        let options = options.event_callback(move |event| {
            told.take(&event);
            ready(())
        });
        let fault = match timeout_at(until, options.connect(server.clone())).await {
            Ok(Ok(client)) => return Ok((client, news)),
            Ok(Err(error)) => ServerFault::of(server, &error),
            Err(_) => return Err(last.unwrap_or_else(|| ServerFault::silent(server))),
        };
        let (is_final, pause) = match fault.kind {
            Fault::Away => (false, PAUSE),
            Fault::Denied => (std::mem::replace(&mut is_denied, true), PAUSE_OF_DENIED),
            Fault::Settings => (true, PAUSE),
        };
        if is_final || Instant::now() + pause >= until {
            return Err(fault);
        }
        last = Some(fault);
        sleep(pause).await;
    }
}

/// Tells the client library of all servers, so that it tries them in turn when the connection breaks. Those that the
/// server itself has named stay.
async fn tell_of_others(client: &Client, servers: &[ServerAddr]) {
    if servers.len() == 1 {
        return;
    }
    let known = client.server_pool().await.unwrap_or_default();
    let found = known.into_iter().map(|server| server.addr).filter(|it| !servers.contains(it));
    let all: Vec<ServerAddr> = servers.iter().cloned().chain(found).collect();
    if let Err(error) = client.set_server_pool(&all[..]).await {
        tracing::warn!(%error, "the other servers cannot be used when this connection breaks");
    }
}

/// The faults of all servers together.
fn conclude(faults: &[ServerFault]) -> ConnectError {
    let why: Vec<String> = faults.iter().map(ToString::to_string).collect();
    let why = why.join("; ");
    if faults.iter().any(|fault| fault.kind == Fault::Away) {
        ConnectError::Unreachable { why }
    } else if faults.iter().any(|fault| fault.kind == Fault::Settings) {
        ConnectError::Settings { why }
    } else {
        ConnectError::Denied { why }
    }
}

/// Makes the library try another server at once when one is lost.
fn in_turn() -> impl Fn(Vec<Server>, ServerInfo) -> Ready<Option<ReconnectToServer>> {
    let turns = Mutex::new(ServerTurns::default());
    move |servers, _| {
        let servers: Vec<_> = servers.into_iter().map(|it| (it.addr, it.did_connect)).collect();
        let next = turns.lock().next(&servers);
        ready(next.map(|addr| ReconnectToServer { addr, delay: None }))
    }
}

fn shown(server: &ServerAddr) -> String {
    server.as_url_str().trim_end_matches('/').to_owned() // It has no login: `servers` took it out.
}

fn servers(url: &str) -> Result<Vec<ServerAddr>, ConnectError> {
    // The error shows the whole list, without secrets: a part that looks like an address may be a
    // piece of a password.
    let refused = |error: std::io::Error| ConnectError::Address {
        address: without_secrets(url),
        why: error.to_string(),
    };
    let shown = without_secrets(url);
    if shown.contains(HIDDEN) {
        let why = "a comma in a password is written as %2C".to_owned();
        return Err(ConnectError::Address { address: shown, why });
    }
    address::servers(url).map(|server| server.parse::<ServerAddr>().map_err(refused)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    const WAIT: Duration = Duration::from_millis(600);

    async fn refused(url: &str) -> ConnectError {
        first(url, &ConnectOptions::new(), WAIT).await.unwrap_err()
    }

    #[test]
    fn no_piece_of_a_login_is_in_a_refused_address() {
        for url in ["nats://ann:s3,cret@one:4222", "nats://ann:12,s3@one:4222"] {
            let refused = servers(url).unwrap_err().to_string();
            assert!(refused.contains("…,one:4222") && refused.contains("%2C"), "{refused}");
            assert!(!refused.contains("s3") && !refused.contains("12"), "{refused}");
        }
    }

    #[tokio::test]
    async fn each_server_that_is_not_there_is_named_with_the_cause() {
        let said = refused("nats://a:b@127.0.0.1:9,nats://127.0.0.1:10").await.to_string();
        for server in ["nats://127.0.0.1:9", "nats://127.0.0.1:10"] {
            let words = format!("cannot reach {server}: Connection refused");
            assert!(said.contains(&words), "{said}");
        }
        assert!(!said.contains("a:b"), "{said}");
    }

    /// A NATS server that lets everybody in.
    async fn open_server() -> std::net::SocketAddr {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = server.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut caller, _)) = server.accept().await {
                tokio::spawn(async move {
                    let info = json!({"server_id": "N", "server_name": "n", "version": "2.11.0",
                        "host": "127.0.0.1", "port": 4222, "proto": 1, "max_payload": 1_048_576,
                        "headers": true});
                    let _ = caller.write_all(format!("INFO {info}\r\n").as_bytes()).await;
                    let mut heard = [0; 4096];
                    while let Ok(1..) = caller.read(&mut heard).await {
                        let _ = caller.write_all(b"PONG\r\n").await;
                    }
                });
            }
        });
        at
    }

    /// A server that accepts connections and says nothing does not keep the others from being asked, and the
    /// client knows all of them for later.
    #[tokio::test]
    async fn a_silent_server_costs_no_time_where_another_answers() {
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("nats://{},nats://{}", silent.local_addr().unwrap(), open_server().await);
        let begun = Instant::now();
        let (client, _) = first(&url, &ConnectOptions::new(), 20 * WAIT).await.unwrap();
        assert!(begun.elapsed() < 10 * WAIT, "{:?}", begun.elapsed());
        assert_eq!(client.server_pool().await.unwrap().len(), 2);
    }

    /// A server that accepts connections and says nothing is told as one.
    #[tokio::test]
    async fn a_silent_server_is_told_as_one() {
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("nats://{},nats://127.0.0.1:9", silent.local_addr().unwrap());
        let said = refused(&url).await.to_string();
        assert!(said.contains("it does not answer") && said.contains("refused"), "{said}");
    }

    #[test]
    fn a_fault_that_passes_leaves_hope_and_others_are_final() {
        let fault = |kind| ServerFault { server: "nats://one:4222".into(), kind, why: "x".into() };
        let all =
            |kinds: &[Fault]| conclude(&kinds.iter().map(|&kind| fault(kind)).collect::<Vec<_>>());
        assert!(matches!(
            all(&[Fault::Denied, Fault::Away]),
            ConnectError::Unreachable { why } if why.contains("let this login in: x; cannot reach")
        ));
        assert!(matches!(all(&[Fault::Denied, Fault::Settings]), ConnectError::Settings { .. }));
        assert!(matches!(all(&[Fault::Denied, Fault::Denied]), ConnectError::Denied { .. }));
    }
}
