//! [`AnyClient`]: a client of a cluster, over NATS or through a gateway. Commands need not know which.

use std::fmt;

use futures::stream::BoxStream;
use tenure_core::command::Write;
use tenure_core::id::{SessionId, TaskId};
use tenure_core::view::{ListInput, RuntimeEvent, Snapshot, TaskPage, ViewsInput, WriteSummary};
use tenure_core::{Context, Query, Rejection};
use tenure_ports::ClientPort;
use tenure_ports::client::{Answers, Changed, Listing, LogPage};
use tenure_sdk::http::HttpClient;
use tenure_sdk::nats::NatsClient;
use tenure_sdk::nats::client::Gather;
use tenure_wire::bus::event::Published;
use tenure_wire::bus::operate::{LeaseRow, NodeFacts};
use tenure_wire::bus::output::{OutputPage, ReadOutput};
use tenure_wire::bus::request::ReadLog;

/// A client over NATS or over HTTP.
#[derive(Clone)]
pub(crate) enum AnyClient {
    /// To the nodes themselves.
    Nats(NatsClient),
    /// Through a gateway, or to the process that is at work on a directory.
    Http(HttpClient),
}

/// Calls the client, whichever it is.
macro_rules! either {
    ($any:expr, $client:ident => $asked:expr) => {
        match $any {
            AnyClient::Nats($client) => $asked,
            AnyClient::Http($client) => $asked,
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
                either!(self, client => client.answer(task, query).await)
            }
        }
    };
}

tenure_wire::queries!(answers);

impl ClientPort for AnyClient {
    fn session(&self) -> &SessionId {
        either!(self, client => client.session())
    }

    fn within(&self, max_bytes: usize) -> Self {
        match self {
            Self::Nats(client) => Self::Nats(client.within(max_bytes)),
            Self::Http(client) => Self::Http(client.within(max_bytes)),
        }
    }

    async fn write(
        &self,
        task: &TaskId,
        context: Context,
        what: impl Into<Write> + Send,
    ) -> Result<WriteSummary, Rejection> {
        either!(self, client => client.write(task, context, what).await)
    }

    async fn tasks(&self, input: ListInput) -> Result<TaskPage, Rejection> {
        either!(self, client => client.tasks(input).await)
    }

    async fn views(&self, input: ViewsInput) -> Result<(Snapshot, Vec<u32>), Rejection> {
        either!(self, client => client.views(input).await)
    }

    async fn log(
        &self,
        task: &TaskId,
        which: impl Into<ReadLog> + Send,
    ) -> Result<LogPage, Rejection> {
        either!(self, client => client.log(task, which).await)
    }

    async fn published(&self, task: &TaskId) -> Result<BoxStream<'static, Published>, Rejection> {
        either!(self, client => client.published(task).await)
    }

    async fn runtime(
        &self,
        task: Option<&TaskId>,
    ) -> Result<BoxStream<'static, RuntimeEvent>, Rejection> {
        either!(self, client => client.runtime(task).await)
    }

    async fn list(&self, include_terminal: bool) -> Result<Listing, Rejection> {
        either!(self, client => client.list(include_terminal).await)
    }

    async fn changes(
        &self,
        task: Option<&TaskId>,
    ) -> Result<BoxStream<'static, Changed>, Rejection> {
        either!(self, client => client.changes(task).await)
    }
}
