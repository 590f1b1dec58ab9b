//! [`NatsBackend`]: a cluster, reached over NATS.
//!
//! The gateway speaks as its callers do: each principal has a connection with an inbox of its own,
//! and each of its sessions a client on that connection. The subjects thus name the caller, and the
//! nodes check it as if it had come by itself. Connections are kept in a bounded cache, and their
//! clients with them. A connection that the cache forgets lives on as long as a request uses it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::id::{PoolId, SessionId, TaskId};
use tenure_core::sessions::Abilities;
use tenure_core::status::Role;
use tenure_core::{Code, Rejection};
use tenure_sdk::client::Client;
use tenure_sdk::nats::client::Gather;
use tenure_sdk::nats::{ConnectError, Connection, NatsClient, NatsSettings, NatsWorker, boot};
use tenure_wire::bus::operate::LeaseRow;
use tenure_wire::bus::output::{OutputPage, ReadOutput};
use tenure_wire::bus::subject::{ClientName, Token, WorkerName, inbox};
use tokio::time::timeout;

use super::callers::CallerConnections;
use super::{Backend, ErasedBackend, Joined, NodeAnswers, check_client};
use crate::guard::AnswerMemory;
use crate::identity::Identity;

/// How many connections of clients the gateway keeps open. A server of NATS has room for 65,536 by
/// default; so many principals in a short time are rare behind one gateway.
pub const CONNECTIONS_MAX: usize = 256;

/// How many clients (one for each session) the gateway keeps on a connection. One is some hundred bytes.
pub const CLIENTS_OF_ONE_MAX: usize = 64;

/// How long a request waits for a connection or a client to be made. Others wait behind it.
const MADE_WITHIN: Duration = Duration::from_secs(8);

/// How long a node may take to answer whether the cluster is there.
const READY_WITHIN: Duration = Duration::from_secs(2);

/// How many bytes of pages, as they are on the bus, are gathered for lists and views at a time. A caller has at most
/// three times as many as are free.
const GATHERED_BYTES_MAX: usize = 128 << 20;

/// Who holds a connection.
type CallerKey = (Role, Token);

/// The way to a cluster. Cheap to clone.
#[derive(Clone)]
pub struct NatsBackend(Arc<BackendShared>);

struct BackendShared {
    settings: NatsSettings,
    /// As whom the gateway itself asks whether the cluster is there.
    own: ClientName,
    /// Where the pages of all callers are gathered.
    gathering: AnswerMemory,
    callers: CallerConnections<CallerKey, Connection, SessionId, NatsClient>,
}

impl fmt::Debug for NatsBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsBackend").field("settings", &self.0.settings).finish_non_exhaustive()
    }
}

impl NatsBackend {
    /// A backend that connects when a request needs it. `own` is as whom the gateway itself asks
    /// whether the cluster is there: an observer of any session.
    ///
    /// # Errors
    /// None: a new boot always has the form of a token.
    pub fn new(
        settings: NatsSettings,
        principal: Token,
        session: SessionId,
    ) -> Result<Self, Rejection> {
        let own = ClientName { role: Role::Observer, session, principal };
        let callers = CallerConnections::new(CONNECTIONS_MAX, CLIENTS_OF_ONE_MAX);
        let gathering = AnswerMemory::new(GATHERED_BYTES_MAX, Duration::MAX);
        Ok(Self(Arc::new(BackendShared { settings, own, gathering, callers })))
    }

    /// The client of a caller in a session.
    async fn client_of(&self, name: &ClientName) -> Result<NatsClient, Rejection> {
        let caller = self.0.callers.of(&(name.role, name.principal.clone()));
        let made = caller.client(&name.session);
        let join = async || {
            let connection = caller.connection(|| self.open(name)).await?;
            let client = NatsClient::join(connection, name).await.map_err(not_as_caller)?;
            let share = self.0.gathering.share(Some(name.principal.as_str()));
            Ok(client.within_capacity(move |bytes| Ok(Box::new(share.take(bytes)?))))
        };
        within(made.get_or_try_init(join)).await.cloned()
    }

    /// Opens a connection for a caller, which all of its sessions share.
    async fn open(&self, name: &ClientName) -> Result<Connection, Rejection> {
        // Each connection has an inbox of its own, also after one that was forgotten and is still used.
        let inbox = inbox(name.role, &name.principal, &Token::new(boot())?);
        Connection::open(&self.0.settings, inbox).await.map_err(no_connection)
    }

    async fn of(&self, who: &Identity, session: &SessionId) -> Result<NatsClient, Rejection> {
        check_client(who)?;
        let (role, principal, session) = (who.role, who.principal.clone(), session.clone());
        self.client_of(&ClientName { role, session, principal }).await
    }
}

impl Backend for NatsBackend {
    type Client = NatsClient;
    type Worker = NatsWorker;

    fn erased(self) -> ErasedBackend {
        ErasedBackend::new(self)
    }

    async fn client(
        &self,
        who: &Identity,
        session: &SessionId,
    ) -> Result<Client<NatsClient>, Rejection> {
        self.of(who, session).await.map(Client::new)
    }

    async fn nodes(&self, who: &Identity, session: &SessionId) -> Result<NodeAnswers, Rejection> {
        let Gather { answers, missing_partitions } = self.of(who, session).await?.nodes().await?;
        Ok(NodeAnswers { nodes: answers, missing_partitions })
    }

    async fn read_output(
        &self,
        who: &Identity,
        session: &SessionId,
        task: &TaskId,
        asked: ReadOutput,
    ) -> Result<OutputPage, Rejection> {
        self.of(who, session).await?.read_output(task, asked).await
    }

    async fn leases(
        &self,
        who: &Identity,
        session: &SessionId,
    ) -> Result<Vec<LeaseRow>, Rejection> {
        self.of(who, session).await?.leases().await
    }

    /// The worker gets a connection of its own, as its inbox is that of this boot alone.
    async fn join(
        &self,
        who: &Identity,
        pool: PoolId,
        boot: Token,
        abilities: Abilities,
    ) -> Result<Joined<NatsWorker>, Rejection> {
        let name = WorkerName { pool, principal: who.principal.clone(), boot };
        let open =
            async { Connection::open(&self.0.settings, name.inbox()).await.map_err(no_connection) };
        // A node that gets the same hello again keeps the link that it has. The build makes each hello another one: a
        // worker that joins anew has nothing of its former link, perhaps of another gateway, and that link is told
        // that it is over.
        let build = format!("gateway-{}", tenure_sdk::nats::boot());
        let joined = NatsWorker::join_for_now(within(open).await?, &name, abilities, &build);
        joined.await.map_err(not_as_caller)
    }

    async fn ready(&self) -> Result<(), Rejection> {
        let own = &self.0.own;
        let hello = async {
            let caller = self.0.callers.of(&(own.role, own.principal.clone()));
            let connection = caller.connection(|| self.open(own)).await?;
            NatsClient::join(connection, own).await.map(drop)
        };
        let answer = timeout(READY_WITHIN, hello).await;
        answer.unwrap_or_else(|_| Err(unavailable("no node of the cluster answers")))
    }
}

/// What was made, unless that takes too long.
async fn within<T>(making: impl Future<Output = Result<T, Rejection>>) -> Result<T, Rejection> {
    let made = timeout(MADE_WITHIN, making).await;
    made.unwrap_or_else(|_| Err(unavailable("the cluster does not answer")))
}

fn unavailable(message: impl Into<String>) -> Rejection {
    Rejection::new(Code::Unavailable, message).with("retry_after_ms", 1_000)
}

/// A fault between the gateway and NATS. Its caller can only come back.
fn no_connection(error: ConnectError) -> Rejection {
    tracing::warn!(%error, "there is no connection to the cluster");
    unavailable("the gateway has no connection to the cluster")
}

/// The server of NATS does not let the gateway act as this caller: the caller has proved who it is,
/// and may not.
fn not_as_caller(refused: Rejection) -> Rejection {
    match refused.code {
        Code::Unauthenticated => Rejection { code: Code::PermissionDenied, ..refused },
        _ => refused,
    }
}
