//! Makes a connected client or worker pool from an address, in one call.

use tenure_core::Rejection;
use tenure_core::status::Role;
use tenure_wire::bus::subject::{ClientName, Token, WorkerName, inbox};
use uuid::Uuid;

use super::{ConnectError, Connection, NatsClient, NatsSettings, NatsWorker};
use crate::client::Client;
use crate::worker::{Handlers, Options, WorkerPool};

/// Why a program could not join a cluster.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// There is no connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// A name is malformed, or no node answers.
    #[error(transparent)]
    Refused(#[from] Rejection),
}

impl From<&str> for NatsSettings {
    fn from(url: &str) -> Self {
        Self::new(url)
    }
}

impl From<String> for NatsSettings {
    fn from(url: String) -> Self {
        Self::new(url)
    }
}

impl Client<NatsClient> {
    /// Connects to a cluster, at an address or with [`NatsSettings`], as an orchestrator of a
    /// session. The name is that of the NATS user.
    ///
    /// # Errors
    /// No server answers there, or a name is malformed.
    pub async fn connect(
        to: impl Into<NatsSettings>,
        session: &str,
        name: &str,
    ) -> Result<Self, JoinError> {
        join(to.into(), Role::Orchestrator, session, name).await
    }

    /// The same as an observer, which may only read.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn observe(
        to: impl Into<NatsSettings>,
        session: &str,
        name: &str,
    ) -> Result<Self, JoinError> {
        join(to.into(), Role::Observer, session, name).await
    }
}

async fn join(
    settings: NatsSettings,
    role: Role,
    session: &str,
    name: &str,
) -> Result<Client<NatsClient>, JoinError> {
    let session = session.parse().map_err(Rejection::from)?;
    let name = ClientName { role, session, principal: token(name)? };
    let inbox = inbox(role, &name.principal, &token(&boot())?);
    let connection = Connection::open(&settings, inbox).await?;
    Ok(Client::new(NatsClient::join(connection, &name).await?))
}

/// The pool and the name of a worker.
#[derive(Debug, Clone, Copy)]
pub struct PoolMember<'a> {
    /// Its pool.
    pub pool: &'a str,
    /// Its name: that of the NATS user.
    pub name: &'a str,
    /// The build of the program, for its Attempts to name (ATT-12).
    pub build: Option<&'a str>,
}

impl WorkerPool<NatsWorker> {
    /// Connects to a cluster, at an address or with [`NatsSettings`](super::NatsSettings), and
    /// starts to work. It gets only Steps for which it has the handler.
    ///
    /// # Errors
    /// No server answers there, or a name is malformed.
    pub async fn connect(
        to: impl Into<NatsSettings>,
        member: PoolMember<'_>,
        handlers: Handlers,
        options: Options,
    ) -> Result<Self, JoinError> {
        let pool = member.pool.parse().map_err(Rejection::from)?;
        let name = WorkerName { pool, principal: token(member.name)?, boot: token(&boot())? };
        let connection = Connection::open(&to.into(), name.inbox()).await?;
        let abilities = options.abilities(&handlers);
        let (port, deliveries) =
            NatsWorker::join_as(connection, &name, abilities, member.build).await?;
        Ok(Self::start(port, deliveries, handlers, options))
    }

    /// Takes no more work, finishes the Attempts that it has, and leaves the cluster.
    ///
    /// # Errors
    /// `unavailable`: nodes notice by themselves then, after some seconds.
    pub async fn leave(self) -> Result<(), Rejection> {
        self.drain().await;
        self.port().leave_pool().await
    }
}

fn token(name: &str) -> Result<Token, Rejection> {
    Ok(Token::new(name)?)
}

/// A new boot: a name that no other start of this or another process has.
pub fn boot() -> String {
    Uuid::now_v7().simple().to_string().split_off(20) // The random part of the UUID.
}
