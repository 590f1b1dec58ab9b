//! [`Backend`]: what the gateway speaks to. A scheduler in this process ([`EmbeddedBackend`]) or a
//! cluster over NATS ([`NatsBackend`]): the routes do not see which.
//!
//! A backend makes the ports of a caller. It judges nothing: who may do what is checked behind the
//! ports, by the principal, the role and the session that the backend hands over.

mod callers;
mod embedded;
mod erased;
mod nats;
mod recent;

use std::future::Future;

use futures::channel::mpsc::UnboundedReceiver;
use tenure_core::id::{PoolId, SessionId, TaskId};
use tenure_core::sessions::Abilities;
use tenure_core::status::Role;
use tenure_core::{Code, Rejection};
use tenure_ports::ClientPort;
use tenure_ports::bus::{Delivery, WorkerPort};
use tenure_sdk::client::Client;
use tenure_wire::bus::operate::{LeaseRow, NodeFacts};
use tenure_wire::bus::output::{OutputPage, ReadOutput};
use tenure_wire::bus::subject::Token;

use crate::identity::Identity;

pub use self::embedded::EmbeddedBackend;
pub use self::erased::ErasedBackend;
pub use self::nats::{CLIENTS_OF_ONE_MAX, CONNECTIONS_MAX, NatsBackend};

/// What all nodes that answered said of themselves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeAnswers {
    /// One entry for each node.
    pub nodes: Vec<NodeFacts>,
    /// Partitions for which nobody answered (OWN-08).
    pub missing_partitions: Vec<u32>,
}

/// What a worker joins a pool with.
pub type Joined<W> = (W, UnboundedReceiver<Delivery>);

/// The way to a scheduler. Cheap to clone.
pub trait Backend: Clone + Send + Sync + 'static {
    /// The port of an orchestrator or an observer.
    type Client: ClientPort;
    /// The port of a worker.
    type Worker: WorkerPort;

    /// The same backend behind a pointer. A backend that is no generic type overrides this with the same body, so that
    /// its own crate contains the code, and not each crate that calls this.
    #[must_use]
    fn erased(self) -> ErasedBackend {
        ErasedBackend::new(self)
    }

    /// The client of a caller in a session.
    ///
    /// # Errors
    /// `permission_denied` for an identity that is neither an orchestrator nor an observer;
    /// `unavailable` if there is no way to the scheduler now.
    fn client(
        &self,
        who: &Identity,
        session: &SessionId,
    ) -> impl Future<Output = Result<Client<Self::Client>, Rejection>> + Send;

    /// What every node says of itself, its workers and its pools.
    ///
    /// # Errors
    /// As [`client`](Self::client); `unavailable` if no node answers.
    fn nodes(
        &self,
        who: &Identity,
        session: &SessionId,
    ) -> impl Future<Output = Result<NodeAnswers, Rejection>> + Send;

    /// A page of what the command of an Attempt wrote (ART-09).
    ///
    /// # Errors
    /// As [`client`](Self::client); `worker_gone` if the worker that has the bytes cannot be asked.
    fn read_output(
        &self,
        who: &Identity,
        session: &SessionId,
        task: &TaskId,
        asked: ReadOutput,
    ) -> impl Future<Output = Result<OutputPage, Rejection>> + Send;

    /// Leases and open Attempts of the session, in the order of the Attempts.
    ///
    /// # Errors
    /// As [`client`](Self::client); `unavailable` if a partition has no owner now.
    fn leases(
        &self,
        who: &Identity,
        session: &SessionId,
    ) -> impl Future<Output = Result<Vec<LeaseRow>, Rejection>> + Send;

    /// Joins a pool for a worker that speaks HTTP. Whoever calls this has checked that the caller may. `boot`
    /// is unique among the boots of the principal. Dropping the port leaves the pool.
    ///
    /// # Errors
    /// `unavailable` if there is no way to the scheduler now.
    fn join(
        &self,
        who: &Identity,
        pool: PoolId,
        boot: Token,
        abilities: Abilities,
    ) -> impl Future<Output = Result<Joined<Self::Worker>, Rejection>> + Send;

    /// Whether requests would be answered now.
    ///
    /// # Errors
    /// Why they would not.
    fn ready(&self) -> impl Future<Output = Result<(), Rejection>> + Send;
}

/// Checks that an identity is one for which there is a client.
fn check_client(who: &Identity) -> Result<(), Rejection> {
    match who.role {
        Role::Orchestrator | Role::Observer => Ok(()),
        role => {
            let message = format!("a {role} has no access to tasks; only to its pools");
            Err(Rejection::new(Code::PermissionDenied, message))
        }
    }
}
