//! The first connection: all servers are asked side by side, and the first that lets this login in is taken. So a
//! server that is frozen or away costs no time where another one answers.

use std::fmt;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::time::Duration;

use async_nats::{Client, ConnectErrorKind, ConnectOptions, ReconnectToServer, Server};
use async_nats::{ServerAddr, ServerInfo};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use parking_lot::Mutex;
use tenure_wire::bus::address::{self, without_secrets};
use tenure_wire::bus::fault::{self, Fault};
use tenure_wire::bus::turns::ServerTurns;
use tokio::time::{Instant, sleep, timeout_at};

use super::connect::ConnectError;
use super::news::News;

/// The pause before a server that is away is asked again: it may be just starting.
const PAUSE: Duration = Duration::from_millis(200);

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
/// server that is away is asked again until the time is over; any other fault of a server is final.
pub(super) async fn first(
    url: &str,
    options: &ConnectOptions,
    wait: Duration,
) -> Result<(Client, Arc<News>), ConnectError> {
    let (servers, until) = (servers(url)?, Instant::now() + wait);
    let mut asked: FuturesUnordered<_> =
        servers.iter().map(|server| reach(server, options, until)).collect();
    let mut faults = Vec::new();
    while let Some(answer) = asked.next().await {
        match answer {
            Ok((client, news)) => {
                tell_of_others(&client, &servers).await;
                return Ok((client, news));
            }
            Err(fault) => faults.push(fault),
        }
    }
    Err(conclude(&faults))
}

async fn reach(
    server: &ServerAddr,
    options: &ConnectOptions,
    until: Instant,
) -> Result<(Client, Arc<News>), ServerFault> {
    let mut last = None;
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
        if fault.kind != Fault::Away || Instant::now() + PAUSE >= until {
            return Err(fault);
        }
        last = Some(fault);
        sleep(PAUSE).await;
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
    address::servers(url).map(|server| server.parse::<ServerAddr>().map_err(refused)).collect()
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    const WAIT: Duration = Duration::from_millis(600);

    async fn refused(url: &str) -> ConnectError {
        first(url, &ConnectOptions::new(), WAIT).await.unwrap_err()
    }

    #[test]
    fn no_piece_of_a_login_is_in_a_refused_address() {
        let refused = servers("nats://ann:s3,cret@one:4222").unwrap_err().to_string();
        assert!(refused.contains("…,one:4222") && !refused.contains("s3"), "{refused}");
    }

    #[tokio::test]
    async fn each_server_that_is_not_there_is_named_with_the_cause() {
        let said = refused("nats://a:b@127.0.0.1:9,nats://127.0.0.1:10").await.to_string();
        for server in ["nats://127.0.0.1:9", "nats://127.0.0.1:10"] {
            let words = format!("cannot reach {server}: Connection refused (os error 111)");
            assert!(said.contains(&words), "{said}");
        }
        assert!(!said.contains("a:b"), "{said}");
    }

    /// A server that accepts connections and says nothing does not keep the others from being asked.
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
