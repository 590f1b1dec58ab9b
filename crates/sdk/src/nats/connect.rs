//! A connection to NATS: settings, sending within a time, and replies.
//!
//! Replies come to one subscription below the inbox of the principal (law 7), and every wait has an
//! end. A message waits here until there is a connection, and only then goes to the client library,
//! so the library does not send old messages when a broken connection comes back.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::{Client, ConnectOptions, Message, PublishErrorKind, StatusCode, Subscriber};
use bytes::Bytes;
use futures::StreamExt as _;
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tenure_core::Rejection;
use tenure_ports::supervise::spawn;
pub use tenure_wire::bus::address::without_secrets;
use tenure_wire::bus::address::{UserLogin, login};
use tenure_wire::bus::fault;
use tenure_wire::bus::subject::ClusterName;
use tenure_wire::bus::{Answer, decode, encode};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::connect_error::ConnectError;
use super::mux::{self, NatsReply, WaiterSlot, Waiters};
use super::news::{Hears, News};
use super::reach;
use crate::patience::{ambiguous, unavailable};

/// How often to check whether there is a connection again.
const LOOK: Duration = Duration::from_millis(10);

/// How often a waiting request checks whether the connection is still the one over which it was
/// sent.
const LOOK_FOR_ANOTHER: Duration = Duration::from_millis(100);

/// How often the library pings the server. When it would send the third ping without an answer in
/// between, the server counts as lost, and the library tries another: a frozen server does not
/// answer, and its connections stay open.
const PING: Duration = Duration::from_secs(2);

/// How long one server may take to accept the connection, before the library tries another.
const LET_IN: Duration = Duration::from_secs(2);

/// How to reach the servers.
#[derive(Clone)]
pub struct NatsSettings {
    /// `nats://user:password@host:port`, or several with commas between them.
    pub url: String,
    /// A credentials file of NATS, which identifies the user.
    pub credentials: Option<PathBuf>,
    /// The certificate of the authority that signed the servers' own, if the machine does not know it.
    pub ca: Option<PathBuf>,
    /// The cluster at these servers.
    pub cluster: ClusterName,
    /// What the server calls this connection in its lists.
    pub name: String,
    /// How long the first connection may take.
    pub first_wait: Duration,
    /// How long one request waits for its answer.
    pub request_timeout: Duration,
    /// How long to repeat a request that gets no final answer.
    pub patience: Duration,
}

impl NatsSettings {
    /// The defaults for these servers: the cluster `TENURE`, 5 s for a connection and for a request, 30 s of
    /// patience.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            credentials: None,
            ca: None,
            cluster: ClusterName::default(),
            name: "tenure".into(),
            first_wait: Duration::from_secs(5),
            request_timeout: Duration::from_secs(5),
            patience: Duration::from_secs(30),
        }
    }
}

impl fmt::Debug for NatsSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsSettings")
            .field("url", &without_secrets(&self.url))
            .field("credentials", &self.credentials)
            .field("ca", &self.ca)
            .field("cluster", &self.cluster)
            .field("name", &self.name)
            .field("first_wait", &self.first_wait)
            .field("request_timeout", &self.request_timeout)
            .field("patience", &self.patience)
            .finish()
    }
}

/// A connection of a principal. Cheap to clone.
#[derive(Clone)]
pub struct Connection(Arc<ConnectionShared>);

struct ConnectionShared {
    client: Client,
    waiters: Arc<Mutex<Waiters>>,
    cluster: ClusterName,
    inbox: String,
    request_timeout: Duration,
    patience: Duration,
    news: Arc<News>,
    reader: AbortHandle,
}

impl Drop for ConnectionShared {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("inbox", &self.0.inbox).finish_non_exhaustive()
    }
}

impl Connection {
    /// Connects. Replies and all other messages for this principal alone come below `inbox`, which
    /// [`tenure_wire::bus::subject::inbox`] makes. When the connection breaks later, it reconnects
    /// by itself.
    ///
    /// # Errors
    /// See [`ConnectError`]. Where a server is away, it is asked again until `first_wait` is over.
    pub async fn open(settings: &NatsSettings, inbox: String) -> Result<Self, ConnectError> {
        let options = options(settings, &inbox).await?;
        let (client, news) = reach::first(&settings.url, &options, settings.first_wait).await?;
        let listens = Self::listen(settings, client, inbox, news).await;
        listens.map_err(|no| ConnectError::Unreachable {
            why: format!("{}: {}", without_secrets(&settings.url), no.message),
        })
    }

    async fn listen(
        settings: &NatsSettings,
        client: Client,
        inbox: String,
        news: Arc<News>,
    ) -> Result<Self, Rejection> {
        let replies = subscribe(&client, format!("{inbox}.r.*"), settings.request_timeout).await?;
        let waiters = Arc::default();
        let reader = spawn("answers", hand_out(replies, Arc::clone(&waiters))).abort_handle();
        let (cluster, patience) = (settings.cluster.clone(), settings.patience);
        let request_timeout = settings.request_timeout;
        Ok(Self(Arc::new(ConnectionShared {
            client,
            waiters,
            cluster,
            inbox,
            request_timeout,
            patience,
            news,
            reader,
        })))
    }

    /// The cluster that is spoken to.
    pub fn cluster(&self) -> &ClusterName {
        &self.0.cluster
    }

    /// The beginning of this principal's inboxes.
    pub fn inbox(&self) -> &str {
        &self.0.inbox
    }

    /// How long one request waits for its answer.
    pub fn request_timeout(&self) -> Duration {
        self.0.request_timeout
    }

    /// How long to repeat a request that gets no final answer.
    pub fn patience(&self) -> Duration {
        self.0.patience
    }

    /// Counts connections: the count rises with each reconnect.
    pub(super) fn connects(&self) -> watch::Receiver<u64> {
        self.0.news.connects.subscribe()
    }

    /// Receives the subjects that the server refuses to this principal.
    pub(super) fn denials(&self) -> Hears {
        self.0.news.denials.listen()
    }

    /// The refusal of this subject, if it is the last that the server refused.
    pub(super) fn denial_of(&self, subject: &str) -> Option<Rejection> {
        self.0.news.denials.of(subject)
    }

    /// Subscribes. A message that somebody publishes after receiving a later message of this
    /// connection reaches this subscription.
    pub(super) async fn subscribe(&self, subject: String) -> Result<Subscriber, Rejection> {
        subscribe(&self.0.client, subject, self.0.request_timeout).await
    }

    /// Sends a message that has no answer.
    pub(super) async fn tell<T: Serialize>(
        &self,
        subject: String,
        message: &T,
    ) -> Result<(), Rejection> {
        let body = encode(message)?.into();
        let deadline = Instant::now() + self.0.request_timeout;
        self.send(subject, None, body, deadline).await
    }

    /// Waits until the library has sent all messages: otherwise the last ones would be lost when
    /// the connection closes.
    pub(super) async fn flush(&self) -> Result<(), Rejection> {
        match timeout(self.0.request_timeout, self.0.client.flush()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(unavailable(format!("it could not be sent: {error}"))),
            Err(_) => Err(self.0.news.no_connection()),
        }
    }

    /// Sends a request; the caller waits for its answer.
    pub(super) async fn ask(
        &self,
        subject: String,
        body: Bytes,
        within: Duration,
    ) -> Result<PendingRequest, Rejection> {
        let (place, reply) = mux::one(&self.0.waiters);
        let deadline = Instant::now() + within;
        self.send(subject, Some(self.reply_to(&place)), body, deadline).await?;
        let cluster = self.0.cluster.clone();
        Ok(PendingRequest { _place: place, reply, deadline, cluster })
    }

    /// Sends a request to which several nodes answer.
    pub(super) async fn ask_all(
        &self,
        subject: String,
        body: Bytes,
        within: Duration,
    ) -> Result<AskedAll, Rejection> {
        let (place, replies) = mux::many(&self.0.waiters);
        let deadline = Instant::now() + within;
        self.send(subject, Some(self.reply_to(&place)), body, deadline).await?;
        let cluster = self.0.cluster.clone();
        Ok(AskedAll { _place: place, replies, deadline, cluster })
    }

    /// Waits until a new connection has replaced the present one. Requests that were sent over the
    /// present one then get no answer.
    pub(super) async fn replaced(&self) {
        let count = || self.0.client.statistics().connects.load(Ordering::Relaxed);
        let now = count();
        while count() == now {
            sleep(LOOK_FOR_ANOTHER).await;
        }
    }

    /// Sends a request once and reads its answer, or learns that the server refuses it.
    pub(super) async fn request<T: DeserializeOwned>(
        &self,
        subject: String,
        body: Bytes,
        within: Duration,
    ) -> Result<T, Rejection> {
        let denials = self.denials();
        let asked = self.ask(subject.clone(), body, within).await?;
        tokio::select! {
            biased;
            answer = asked.answer() => answer,
            denied = denials.of(&subject) => Err(denied),
            () = self.replaced() => Err(ambiguous("the connection was lost")),
        }
    }

    fn reply_to(&self, place: &WaiterSlot) -> String {
        format!("{}.r.{}", self.0.inbox, place.id)
    }

    async fn send(
        &self,
        subject: String,
        reply: Option<String>,
        body: Bytes,
        deadline: Instant,
    ) -> Result<(), Rejection> {
        let client = &self.0.client;
        let sent = timeout_at(deadline, async {
            connected(client).await;
            match reply {
                Some(reply) => client.publish_with_reply(subject, reply, body).await,
                None => client.publish(subject, body).await,
            }
        });
        match sent.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) if error.kind() == PublishErrorKind::MaxPayloadExceeded => {
                Err(Rejection::invalid("message", error.to_string()))
            }
            Ok(Err(error)) => Err(unavailable(format!("it could not be sent: {error}"))),
            Err(_) => Err(self.0.news.no_connection()),
        }
    }
}

/// A request that was sent. Drop it to stop waiting.
#[derive(Debug)]
pub(super) struct PendingRequest {
    _place: WaiterSlot,
    reply: oneshot::Receiver<NatsReply>,
    deadline: Instant,
    cluster: ClusterName,
}

impl PendingRequest {
    /// Waits for the answer. Without one, the request may have taken effect all the same.
    pub(super) async fn answer<T: DeserializeOwned>(self) -> Result<T, Rejection> {
        match timeout_at(self.deadline, self.reply).await {
            Ok(Ok(reply)) => read(reply, &self.cluster),
            Ok(Err(_)) => Err(ambiguous("the connection was closed")),
            Err(_) => Err(ambiguous("there was no answer in time")),
        }
    }
}

/// A request to which several nodes answer.
#[derive(Debug)]
pub(super) struct AskedAll {
    _place: WaiterSlot,
    replies: UnboundedReceiver<NatsReply>,
    deadline: Instant,
    cluster: ClusterName,
}

impl AskedAll {
    /// The next answer; none when the time is over or the server says that nobody is subscribed.
    pub(super) async fn next<T: DeserializeOwned>(&mut self) -> Option<Result<T, Rejection>> {
        match timeout_at(self.deadline, self.replies.recv()).await {
            Ok(Some(NatsReply::Nobody) | None) | Err(_) => None,
            Ok(Some(reply)) => Some(read(reply, &self.cluster)),
        }
    }
}

fn read<T: DeserializeOwned>(reply: NatsReply, cluster: &ClusterName) -> Result<T, Rejection> {
    match reply {
        // An answer that cannot be decoded does not say whether the request took effect.
        NatsReply::Body(body) => match decode::<Answer<T>>(&body) {
            Ok(answer) => answer.into_result(),
            Err(bad) => Err(ambiguous(format!("the answer cannot be used: {bad}"))),
        },
        NatsReply::Nobody if cluster.is_default() => Err(unavailable("nobody serves this now")),
        NatsReply::Nobody => {
            Err(unavailable(format!("nobody serves this in the cluster {cluster} now")))
        }
    }
}

async fn hand_out(mut replies: Subscriber, waiters: Arc<Mutex<Waiters>>) {
    while let Some(Message { subject, payload, status, .. }) = replies.next().await {
        let Some(id) = mux::id_of(&subject) else { continue };
        let nobody = status == Some(StatusCode::NO_RESPONDERS);
        let reply = if nobody { NatsReply::Nobody } else { NatsReply::Body(payload) };
        waiters.lock().deliver(id, reply);
    }
    waiters.lock().close();
}

async fn subscribe(
    client: &Client,
    subject: String,
    within: Duration,
) -> Result<Subscriber, Rejection> {
    match timeout(within, client.subscribe(subject)).await {
        Ok(Ok(messages)) => Ok(messages),
        Ok(Err(error)) => Err(unavailable(format!("the subscription failed: {error}"))),
        Err(_) => Err(unavailable("there is no connection to the server")),
    }
}

async fn connected(client: &Client) {
    while client.connection_state() != State::Connected {
        sleep(LOOK).await;
    }
}

/// How to connect: what is the same for all servers.
async fn options(settings: &NatsSettings, inbox: &str) -> Result<ConnectOptions, ConnectError> {
    let mut options = ConnectOptions::new();
    if let Some(ca) = &settings.ca {
        let checked = fault::check_certificates(tokio::fs::read(ca).await);
        checked.map_err(|source| ConnectError::Certificates { path: ca.clone(), source })?;
        options = options.add_root_certificates(ca.clone());
    }
    if let Some(path) = &settings.credentials {
        let read = options.credentials_file(path).await;
        options =
            read.map_err(|source| ConnectError::Credentials { path: path.clone(), source })?;
    }
    // The client library ignores a login in an address.
    let options = match login(&settings.url) {
        Some(UserLogin { user, password: Some(password) }) => {
            options.user_and_password(user, password)
        }
        Some(UserLogin { user: token, password: None }) => options.token(token),
        None => options,
    };
    Ok(options
        .name(&settings.name)
        .custom_inbox_prefix(inbox)
        .ping_interval(PING)
        .connection_timeout(LET_IN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_addresses_without_secrets() {
        let url = "nats://ann:s3cret@one:4222, nats://two:4222";
        assert_eq!(without_secrets(url), "one:4222,two:4222");
        assert!(!format!("{:?}", NatsSettings::new(url)).contains("s3cret"));
    }

    /// A file of certificates that cannot be used is refused, also where no server asks for TLS.
    #[tokio::test]
    async fn a_file_without_certificates_is_named_and_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (missing, other) = (dir.path().join("ca.pem"), dir.path().join("ca.der"));
        std::fs::write(&other, "no certificate").unwrap();
        for path in [missing, other] {
            let usual = NatsSettings::new("nats://127.0.0.1:9");
            let settings = NatsSettings { ca: Some(path.clone()), ..usual };
            let refused =
                Connection::open(&settings, "_INBOX.worker.p.b".into()).await.unwrap_err();
            assert!(refused.to_string().contains(path.to_str().unwrap()), "{refused}");
            assert!(matches!(refused, ConnectError::Certificates { .. }));
        }
    }
}
