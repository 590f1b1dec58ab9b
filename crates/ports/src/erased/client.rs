//! [`ErasedClient`]: any caller's end of the bus.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use tenure_core::command::Write;
use tenure_core::id::{SessionId, TaskId};
use tenure_core::view::{ListInput, RuntimeEvent, Snapshot, TaskPage, ViewsInput, WriteSummary};
use tenure_core::{Context, Query, Rejection};
use tenure_wire::bus::event::Published;
use tenure_wire::bus::request::ReadLog;

use crate::client::{Answers, Changed, ClientPort, Listing, LogPage};

/// The future of a call.
type Called<'a, T> = BoxFuture<'a, Result<T, Rejection>>;

/// A caller's end of the bus, whichever it is. Cheap to clone.
#[derive(Clone)]
pub struct ErasedClient(Arc<dyn ObjectClient>);

impl ErasedClient {
    /// Puts this end behind a pointer.
    pub fn new(port: impl ClientPort) -> Self {
        Self(Arc::new(port))
    }
}

impl fmt::Debug for ErasedClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ErasedClient").field("session", self.0.session()).finish_non_exhaustive()
    }
}

/// [`Answers`], for a pointer.
trait ObjectAnswers<Q: Query> {
    fn answer<'a>(&'a self, task: &'a TaskId, query: Q) -> Called<'a, Q::Output>;
}

impl<Q: Query, P: Answers<Q>> ObjectAnswers<Q> for P {
    fn answer<'a>(&'a self, task: &'a TaskId, query: Q) -> Called<'a, Q::Output> {
        Box::pin(Answers::answer(self, task, query))
    }
}

/// The rest of [`ClientPort`], for a pointer.
trait ObjectCalls: Send + Sync {
    fn session(&self) -> &SessionId;
    fn is_over(&self) -> bool;
    fn within(&self, max_bytes: usize) -> ErasedClient;
    fn write<'a>(
        &'a self,
        task: &'a TaskId,
        context: Context,
        what: Write,
    ) -> Called<'a, WriteSummary>;
    fn tasks(&self, input: ListInput) -> Called<'_, TaskPage>;
    fn views(&self, input: ViewsInput) -> Called<'_, (Snapshot, Vec<u32>)>;
    fn log<'a>(&'a self, task: &'a TaskId, which: ReadLog) -> Called<'a, LogPage>;
    fn published<'a>(&'a self, task: &'a TaskId) -> Called<'a, BoxStream<'static, Published>>;
    fn runtime<'a>(
        &'a self,
        task: Option<&'a TaskId>,
    ) -> Called<'a, BoxStream<'static, RuntimeEvent>>;
    fn list(&self, include_terminal: bool) -> Called<'_, Listing>;
    fn changes<'a>(&'a self, task: Option<&'a TaskId>) -> Called<'a, BoxStream<'static, Changed>>;
}

impl<P: ClientPort> ObjectCalls for P {
    fn session(&self) -> &SessionId {
        ClientPort::session(self)
    }

    fn is_over(&self) -> bool {
        ClientPort::is_over(self)
    }

    fn within(&self, max_bytes: usize) -> ErasedClient {
        ErasedClient::new(ClientPort::within(self, max_bytes))
    }

    fn write<'a>(
        &'a self,
        task: &'a TaskId,
        context: Context,
        what: Write,
    ) -> Called<'a, WriteSummary> {
        Box::pin(ClientPort::write(self, task, context, what))
    }

    fn tasks(&self, input: ListInput) -> Called<'_, TaskPage> {
        Box::pin(ClientPort::tasks(self, input))
    }

    fn views(&self, input: ViewsInput) -> Called<'_, (Snapshot, Vec<u32>)> {
        Box::pin(ClientPort::views(self, input))
    }

    fn log<'a>(&'a self, task: &'a TaskId, which: ReadLog) -> Called<'a, LogPage> {
        Box::pin(ClientPort::log(self, task, which))
    }

    fn published<'a>(&'a self, task: &'a TaskId) -> Called<'a, BoxStream<'static, Published>> {
        Box::pin(ClientPort::published(self, task))
    }

    fn runtime<'a>(
        &'a self,
        task: Option<&'a TaskId>,
    ) -> Called<'a, BoxStream<'static, RuntimeEvent>> {
        Box::pin(ClientPort::runtime(self, task))
    }

    fn list(&self, include_terminal: bool) -> Called<'_, Listing> {
        Box::pin(ClientPort::list(self, include_terminal))
    }

    fn changes<'a>(&'a self, task: Option<&'a TaskId>) -> Called<'a, BoxStream<'static, Changed>> {
        Box::pin(ClientPort::changes(self, task))
    }
}

macro_rules! answers_all {
    (
        task { $($task:ident($asks:ty))* }
        history { $($history:ident($reads:ty))* }
        parts { $($part:ident($brings:ty))* }
        other { $($other:ident($_query:ty))* }
    ) => {
        /// All of [`ClientPort`], for a pointer.
        trait ObjectClient: ObjectCalls
            $(+ ObjectAnswers<$asks>)* $(+ ObjectAnswers<$reads>)* $(+ ObjectAnswers<$brings>)* {}

        $(answers_all!($asks);)*
        $(answers_all!($reads);)*
        $(answers_all!($brings);)*
    };
    ($query:ty) => {
        impl Answers<$query> for ErasedClient {
            async fn answer(
                &self,
                task: &TaskId,
                query: $query,
            ) -> Result<<$query as Query>::Output, Rejection> {
                ObjectAnswers::<$query>::answer(&*self.0, task, query).await
            }
        }
    };
}

tenure_wire::queries!(answers_all);

impl<P: ClientPort> ObjectClient for P {}

impl ClientPort for ErasedClient {
    fn session(&self) -> &SessionId {
        self.0.session()
    }

    fn erased(self) -> ErasedClient {
        self
    }

    fn is_over(&self) -> bool {
        self.0.is_over()
    }

    fn within(&self, max_bytes: usize) -> Self {
        self.0.within(max_bytes)
    }

    async fn write(
        &self,
        task: &TaskId,
        context: Context,
        what: impl Into<Write> + Send,
    ) -> Result<WriteSummary, Rejection> {
        self.0.write(task, context, what.into()).await
    }

    async fn tasks(&self, input: ListInput) -> Result<TaskPage, Rejection> {
        self.0.tasks(input).await
    }

    async fn views(&self, input: ViewsInput) -> Result<(Snapshot, Vec<u32>), Rejection> {
        self.0.views(input).await
    }

    async fn log(
        &self,
        task: &TaskId,
        which: impl Into<ReadLog> + Send,
    ) -> Result<LogPage, Rejection> {
        self.0.log(task, which.into()).await
    }

    async fn published(&self, task: &TaskId) -> Result<BoxStream<'static, Published>, Rejection> {
        self.0.published(task).await
    }

    async fn runtime(
        &self,
        task: Option<&TaskId>,
    ) -> Result<BoxStream<'static, RuntimeEvent>, Rejection> {
        self.0.runtime(task).await
    }

    async fn list(&self, include_terminal: bool) -> Result<Listing, Rejection> {
        self.0.list(include_terminal).await
    }

    async fn changes(
        &self,
        task: Option<&TaskId>,
    ) -> Result<BoxStream<'static, Changed>, Rejection> {
        self.0.changes(task).await
    }
}
