//! Sending and subscribing over NATS, each within a time limit of our own: a client that has lost
//! its server would wait for ever.

use std::future::{Ready, ready};
use std::io;
use std::path::Path;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::{
    Client, ConnectError, ConnectErrorKind, ConnectOptions, ReconnectToServer, Server, ServerInfo,
    SubscribeError, Subscriber,
};
use bytes::Bytes;
use parking_lot::Mutex;
use serde::Serialize;
use tenure_cluster::request::{RequestError, within};
pub use tenure_wire::bus::fault::Fault;
use tenure_wire::bus::fault::{check_certificates, is_of_tls, why};
use tenure_wire::bus::subject::Token;
use tenure_wire::bus::turns::ServerTurns;
use tenure_wire::bus::{address, encode};
use tokio::time::timeout;

use crate::outage::event_log;
use crate::settings::{Login, Nats};

/// How long a send or a subscription may take.
const TIMEOUT: Duration = Duration::from_secs(2);

/// How often the client pings its server. If two pings have had no answer when the third is due,
/// the client takes the server for lost and tries another: a frozen server says nothing, and its
/// connections stay open.
const PING: Duration = Duration::from_secs(1);

/// How long the first connection may take.
const CONNECT: Duration = Duration::from_secs(10);

/// How many messages of a subscription may wait for this process.
const WAITING_MAX: usize = 65_536;

/// There is no connection to NATS; with the reason.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub(crate) struct NoConnection {
    pub(crate) fault: Fault,
    pub(crate) why: String,
}

/// Connects for one of the parts of a node.
pub(crate) async fn connect(
    nats: &Nats,
    login: &Login,
    node: &Token,
    part: &str,
) -> Result<Client, NoConnection> {
    connect_with(options(nats, login, node, part).await?, nats).await
}

/// The options with which a part of a node connects.
pub(crate) async fn options(
    nats: &Nats,
    login: &Login,
    node: &Token,
    part: &str,
) -> Result<ConnectOptions, NoConnection> {
    let options = ConnectOptions::new()
        .name(format!("tenure-{node}-{part}"))
        .custom_inbox_prefix(format!("_INBOX.scheduler.{node}.{part}"))
        .subscription_capacity(WAITING_MAX)
        .ping_interval(PING)
        .connection_timeout(TIMEOUT)
        .event_callback(event_log(part, address::without_secrets(&nats.url)))
        .reconnect_to_server_callback(in_turn());
    let unusable = |path: &Path, error: io::Error| NoConnection {
        fault: Fault::Settings,
        why: format!("{}: {error}", path.display()),
    };
    let options = match &nats.ca {
        Some(ca) => {
            check_certificates(tokio::fs::read(ca).await).map_err(|error| unusable(ca, error))?;
            options.add_root_certificates(ca.clone())
        }
        None => options,
    };
    Ok(match login {
        // The client library ignores a login in an address.
        Login::Address => match address::login(&nats.url) {
            Some(address::UserLogin { user, password: Some(password) }) => {
                options.user_and_password(user, password)
            }
            Some(address::UserLogin { user: token, password: None }) => options.token(token),
            None => options,
        },
        Login::Password { user, password } => {
            options.user_and_password(user.clone(), password.clone())
        }
        Login::File(path) => {
            let read = options.credentials_file(path).await;
            read.map_err(|error| unusable(path, error))?
        }
    })
}

/// Has the client try another server at once when it has lost one.
fn in_turn() -> impl Fn(Vec<Server>, ServerInfo) -> Ready<Option<ReconnectToServer>> {
    let turns = Mutex::new(ServerTurns::default());
    move |servers, _| {
        let servers: Vec<_> = servers.into_iter().map(|it| (it.addr, it.did_connect)).collect();
        let next = turns.lock().next(&servers);
        ready(next.map(|addr| ReconnectToServer { addr, delay: None }))
    }
}

/// Connects.
pub(crate) async fn connect_with(
    options: ConnectOptions,
    nats: &Nats,
) -> Result<Client, NoConnection> {
    let servers: Vec<String> = address::servers(&nats.url).collect();
    match timeout(CONNECT, options.connect(servers)).await {
        Ok(connected) => {
            connected.map_err(|error| NoConnection { fault: fault(&error), why: why(&error) })
        }
        Err(_) => Err(NoConnection { fault: Fault::Away, why: "it does not answer".into() }),
    }
}

fn fault(error: &ConnectError) -> Fault {
    match error.kind() {
        ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
            Fault::Denied
        }
        // A server says that it requires TLS before TLS begins, so it is there.
        ConnectErrorKind::ServerParse | ConnectErrorKind::Tls => Fault::Settings,
        ConnectErrorKind::Io if is_of_tls(error) => Fault::Settings,
        ConnectErrorKind::Dns
        | ConnectErrorKind::TimedOut
        | ConnectErrorKind::Io
        | ConnectErrorKind::MaxReconnects => Fault::Away,
    }
}

/// Sends a message. A message that cannot be sent in time is lost, as any message may be.
pub(crate) async fn say(client: &Client, to: &str, message: &impl Serialize) {
    match encode(message) {
        Ok(bytes) => send(client, to, bytes.into()).await,
        Err(error) => tracing::error!(to, %error, "a message cannot be sent"),
    }
}

/// Sends a message, and has the server answer at `nobody` if nobody subscribes to its subject.
pub(crate) async fn send_or_hear(client: &Client, to: &str, nobody: &str, bytes: Bytes) {
    if client.connection_state() != State::Connected {
        return; // As below.
    }
    let sent = client.publish_with_reply(to.to_owned(), nobody.to_owned(), bytes);
    if !matches!(timeout(TIMEOUT, sent).await, Ok(Ok(()))) {
        tracing::debug!(to, "a message was not sent");
    }
}

pub(crate) async fn send(client: &Client, to: &str, bytes: Bytes) {
    if client.connection_state() != State::Connected {
        return; // The client would buffer it and send it late, ahead of what is true by then.
    }
    let sent = timeout(TIMEOUT, client.publish(to.to_owned(), bytes)).await;
    if !matches!(sent, Ok(Ok(()))) {
        tracing::debug!(to, "a message was not sent");
    }
}

/// Why the node cannot subscribe to a subject.
#[derive(Debug, thiserror::Error)]
#[error("{subject}: {error}")]
pub(crate) struct ListenError {
    subject: String,
    error: RequestError,
}

/// Subscribes to a subject.
pub(crate) async fn listen(client: &Client, subject: String) -> Result<Subscriber, ListenError> {
    subscribed(subject.clone(), client.subscribe(subject)).await
}

/// Subscribes to a subject in a queue group, of which one member gets each message.
pub(crate) async fn listen_as_one(
    client: &Client,
    subject: String,
) -> Result<Subscriber, ListenError> {
    subscribed(subject.clone(), client.queue_subscribe(subject, "tenure".into())).await
}

async fn subscribed(
    subject: String,
    asked: impl Future<Output = Result<Subscriber, SubscribeError>>,
) -> Result<Subscriber, ListenError> {
    let heard = within(TIMEOUT, "the server does not answer", asked).await;
    heard.map_err(|error| ListenError { subject, error })
}
