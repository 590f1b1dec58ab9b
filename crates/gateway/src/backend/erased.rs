//! [`ErasedBackend`]: any backend behind one pointer. The gateway is compiled once with it, here, and not once for
//! each backend in the crates that make gateways.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use tenure_core::Rejection;
use tenure_core::id::{PoolId, SessionId, TaskId};
use tenure_core::sessions::Abilities;
use tenure_ports::bus::WorkerPort as _;
use tenure_ports::erased::{ErasedClient, ErasedWorker};
use tenure_sdk::client::Client;
use tenure_wire::bus::operate::LeaseRow;
use tenure_wire::bus::output::{OutputPage, ReadOutput};
use tenure_wire::bus::subject::Token;

use super::{Backend, Joined, NodeAnswers};
use crate::identity::Identity;

/// The future of a call.
type Called<'a, T> = BoxFuture<'a, Result<T, Rejection>>;

/// A backend, whichever it is. Cheap to clone.
#[derive(Clone)]
pub struct ErasedBackend(Arc<dyn ObjectBackend>);

impl ErasedBackend {
    /// Puts this backend behind a pointer.
    pub fn new(backend: impl Backend) -> Self {
        Self(Arc::new(backend))
    }
}

impl fmt::Debug for ErasedBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ErasedBackend").finish_non_exhaustive()
    }
}

/// [`Backend`], for a pointer.
trait ObjectBackend: Send + Sync {
    fn client<'a>(
        &'a self,
        who: &'a Identity,
        session: &'a SessionId,
    ) -> Called<'a, Client<ErasedClient>>;
    fn nodes<'a>(&'a self, who: &'a Identity, session: &'a SessionId) -> Called<'a, NodeAnswers>;
    fn read_output<'a>(
        &'a self,
        who: &'a Identity,
        session: &'a SessionId,
        task: &'a TaskId,
        asked: ReadOutput,
    ) -> Called<'a, OutputPage>;
    fn leases<'a>(&'a self, who: &'a Identity, session: &'a SessionId)
    -> Called<'a, Vec<LeaseRow>>;
    fn join<'a>(
        &'a self,
        who: &'a Identity,
        pool: PoolId,
        boot: Token,
        abilities: Abilities,
    ) -> Called<'a, Joined<ErasedWorker>>;
    fn ready(&self) -> Called<'_, ()>;
}

impl<B: Backend> ObjectBackend for B {
    fn client<'a>(
        &'a self,
        who: &'a Identity,
        session: &'a SessionId,
    ) -> Called<'a, Client<ErasedClient>> {
        Box::pin(async move { Ok(Backend::client(self, who, session).await?.erased()) })
    }

    fn nodes<'a>(&'a self, who: &'a Identity, session: &'a SessionId) -> Called<'a, NodeAnswers> {
        Box::pin(Backend::nodes(self, who, session))
    }

    fn read_output<'a>(
        &'a self,
        who: &'a Identity,
        session: &'a SessionId,
        task: &'a TaskId,
        asked: ReadOutput,
    ) -> Called<'a, OutputPage> {
        Box::pin(Backend::read_output(self, who, session, task, asked))
    }

    fn leases<'a>(
        &'a self,
        who: &'a Identity,
        session: &'a SessionId,
    ) -> Called<'a, Vec<LeaseRow>> {
        Box::pin(Backend::leases(self, who, session))
    }

    fn join<'a>(
        &'a self,
        who: &'a Identity,
        pool: PoolId,
        boot: Token,
        abilities: Abilities,
    ) -> Called<'a, Joined<ErasedWorker>> {
        Box::pin(async move {
            let (port, deliveries) = Backend::join(self, who, pool, boot, abilities).await?;
            Ok((Arc::new(port).erased(), deliveries))
        })
    }

    fn ready(&self) -> Called<'_, ()> {
        Box::pin(Backend::ready(self))
    }
}

impl Backend for ErasedBackend {
    type Client = ErasedClient;
    type Worker = ErasedWorker;

    fn erased(self) -> ErasedBackend {
        self
    }

    async fn client(
        &self,
        who: &Identity,
        session: &SessionId,
    ) -> Result<Client<ErasedClient>, Rejection> {
        self.0.client(who, session).await
    }

    async fn nodes(&self, who: &Identity, session: &SessionId) -> Result<NodeAnswers, Rejection> {
        self.0.nodes(who, session).await
    }

    async fn read_output(
        &self,
        who: &Identity,
        session: &SessionId,
        task: &TaskId,
        asked: ReadOutput,
    ) -> Result<OutputPage, Rejection> {
        self.0.read_output(who, session, task, asked).await
    }

    async fn leases(
        &self,
        who: &Identity,
        session: &SessionId,
    ) -> Result<Vec<LeaseRow>, Rejection> {
        self.0.leases(who, session).await
    }

    async fn join(
        &self,
        who: &Identity,
        pool: PoolId,
        boot: Token,
        abilities: Abilities,
    ) -> Result<Joined<ErasedWorker>, Rejection> {
        self.0.join(who, pool, boot, abilities).await
    }

    async fn ready(&self) -> Result<(), Rejection> {
        self.0.ready().await
    }
}
