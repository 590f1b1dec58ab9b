//! [`AnyClient`]: a client of a cluster, over NATS or through a gateway. Commands need not know which.

use std::fmt;

use futures::stream::BoxStream;
use tenure_core::command::Write;
use tenure_core::id::{SessionId, TaskId};
use tenure_core::view::{ListInput, RuntimeEvent, Snapshot, TaskPage, ViewsInput, WriteSummary};
use tenure_core::{Context, Query, Rejection};
use tenure_ports::ClientPort;
use tenure_ports::client::{Answers, Changed, Listing, LogPage};
use tenure_ports::erased::ErasedClient;
use tenure_sdk::http::HttpClient;
use tenure_sdk::nats::NatsClient;
use tenure_sdk::nats::client::Gather;
use tenure_wire::bus::event::Published;
use tenure_wire::bus::operate::{LeaseRow, NodeFacts};
use tenure_wire::bus::output::{OutputPage, ReadOutput};
use tenure_wire::bus::request::ReadLog;

/// A client over NATS or over HTTP.
#[derive(Clone)]
pub(crate) struct AnyClient {
    /// What all clients can do: commands are compiled once for it.
    port: ErasedClient,
    /// What these two can do beside it.
    way: ClientWay,
}

#[derive(Clone)]
enum ClientWay {
    /// To the nodes themselves.
    Nats(NatsClient),
    /// Through a gateway, or to the process that is at work on a directory.
    Http(HttpClient),
}

impl From<NatsClient> for AnyClient {
    fn from(client: NatsClient) -> Self {
        Self { port: client.clone().erased(), way: ClientWay::Nats(client) }
    }
}

impl From<HttpClient> for AnyClient {
    fn from(client: HttpClient) -> Self {
        Self { port: client.clone().erased(), way: ClientWay::Http(client) }
    }
}

/// Calls the client, whichever it is.
macro_rules! either {
    ($any:expr, $client:ident => $asked:expr) => {
        match &$any.way {
            ClientWay::Nats($client) => $asked,
            ClientWay::Http($client) => $asked,
        }
    };
}

impl fmt::Debug for AnyClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        either!(self, client => client.fmt(f))
    }
}

impl AnyClient {
    /// The facts of every node about itself, its workers and its pools.
    pub(crate) async fn nodes(&self) -> Result<Gather<NodeFacts>, Rejection> {
        either!(self, client => client.nodes().await)
    }

    /// Leases and open Attempts of the session, in the order of the Attempts.
    pub(crate) async fn leases(&self) -> Result<Vec<LeaseRow>, Rejection> {
        either!(self, client => client.leases().await)
    }

    /// A page of what the command of an Attempt wrote (ART-09).
    pub(crate) async fn read_output(
        &self,
        task: &TaskId,
        asked: ReadOutput,
    ) -> Result<OutputPage, Rejection> {
        either!(self, client => client.read_output(task, asked).await)
    }
}

macro_rules! answers {
    (
        task { $($task:ident($asks:ty))* }
        history { $($history:ident($reads:ty))* }
        parts { $($part:ident($brings:ty))* }
        other { $($other:ident($_query:ty))* }
    ) => {
        $(answers!($asks);)*
        $(answers!($reads);)*
        $(answers!($brings);)*
    };
    ($query:ty) => {
        impl Answers<$query> for AnyClient {
            async fn answer(
                &self,
                task: &TaskId,
                query: $query,
            ) -> Result<<$query as Query>::Output, Rejection> {
                self.port.answer(task, query).await
            }
        }
    };
}

tenure_wire::queries!(answers);

impl ClientPort for AnyClient {
    fn session(&self) -> &SessionId {
        self.port.session()
    }

    fn erased(self) -> ErasedClient {
        self.port
    }

    fn within(&self, max_bytes: usize) -> Self {
        match &self.way {
            ClientWay::Nats(client) => client.within(max_bytes).into(),
            ClientWay::Http(client) => client.within(max_bytes).into(),
        }
    }

    async fn write(
        &self,
        task: &TaskId,
        context: Context,
        what: impl Into<Write> + Send,
    ) -> Result<WriteSummary, Rejection> {
        self.port.write(task, context, what).await
    }

    async fn tasks(&self, input: ListInput) -> Result<TaskPage, Rejection> {
        self.port.tasks(input).await
    }

    async fn views(&self, input: ViewsInput) -> Result<(Snapshot, Vec<u32>), Rejection> {
        self.port.views(input).await
    }

    async fn log(
        &self,
        task: &TaskId,
        which: impl Into<ReadLog> + Send,
    ) -> Result<LogPage, Rejection> {
        self.port.log(task, which).await
    }

    async fn published(&self, task: &TaskId) -> Result<BoxStream<'static, Published>, Rejection> {
        self.port.published(task).await
    }

    async fn runtime(
        &self,
        task: Option<&TaskId>,
    ) -> Result<BoxStream<'static, RuntimeEvent>, Rejection> {
        self.port.runtime(task).await
    }

    async fn list(&self, include_terminal: bool) -> Result<Listing, Rejection> {
        self.port.list(include_terminal).await
    }

    async fn changes(
        &self,
        task: Option<&TaskId>,
    ) -> Result<BoxStream<'static, Changed>, Rejection> {
        self.port.changes(task).await
    }
}
