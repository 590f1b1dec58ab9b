//! A client port whose calls cross the bus as bytes.

use std::future::ready;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use tenure_core::command::Write;
use tenure_core::id::{SessionId, TaskId};
use tenure_core::view::{ListInput, RuntimeEvent, Snapshot, TaskPage, ViewsInput, WriteSummary};
use tenure_core::{Context, Query, Rejection};
use tenure_ports::client::{Answers, Changed, ClientPort, Listing, LogPage};
use tenure_wire::bus::V;
use tenure_wire::bus::event::{Published, Runtime};
use tenure_wire::bus::request::{Ask, Committed, ReadLog, Request, RequestHead};

use super::{answered, crossed, misread};

/// A client port that encodes its requests, and everything that comes back, to bytes and decodes
/// them again.
///
/// It passes on unchanged what a network gathers from partitions or sends in parts: lists of the
/// index, views and logs.
#[derive(Debug, Clone)]
pub struct Client<C>(C);

impl<C: ClientPort> Client<C> {
    /// Wraps a client port.
    pub fn new(inner: C) -> Self {
        Self(inner)
    }
}

/// A query about a Task as it arrives.
fn asked(task: &TaskId, ask: impl Into<Ask>) -> Result<Request, Rejection> {
    Request::read(&Request::new(Some(task.clone()), None, ask).write()?)
}

macro_rules! answers {
    (
        task { $($task:ident($asks:ty))* }
        history { $($history:ident($reads:ty))* }
        parts { $($part:ident($brings:ty))* }
        other { $($_other:ident($_query:ty))* }
    ) => {
        $(answers!($task($asks));)*
        $(answers!($history($reads));)*
        $(answers!($part($brings));)*
    };
    ($ask:ident($query:ty)) => {
        impl<C: ClientPort> Answers<$query> for Client<C> {
            async fn answer(
                &self,
                task: &TaskId,
                query: $query,
            ) -> Result<<$query as Query>::Output, Rejection> {
                match asked(task, query)? {
                    Request { head: RequestHead { task_id: Some(task), .. }, ask: Ask::$ask(query) } => {
                        answered(self.0.ask(&task, query).await)
                    }
                    _ => Err(misread()),
                }
            }
        }
    };
}

tenure_wire::queries!(answers);

impl<C: ClientPort> ClientPort for Client<C> {
    fn session(&self) -> &SessionId {
        self.0.session()
    }

    fn is_over(&self) -> bool {
        self.0.is_over()
    }

    fn within(&self, max_bytes: usize) -> Self {
        Self(self.0.within(max_bytes))
    }

    async fn write(
        &self,
        task: &TaskId,
        context: Context,
        what: impl Into<Write> + Send,
    ) -> Result<WriteSummary, Rejection> {
        let request = Request::command(task, context, what.into());
        let Request { head, ask } = Request::read(&request.write()?)?;
        let task = head.task_id.clone().ok_or_else(misread)?;
        let context = head.context(|| Err(misread()))?;
        let what = ask.into_write().ok_or_else(misread)?;
        answered(self.0.write(&task, context, what).await)
    }

    async fn tasks(&self, input: ListInput) -> Result<TaskPage, Rejection> {
        let request = Request::new(None, None, Ask::Tasks(input));
        match Request::read(&request.write()?)?.ask {
            Ask::Tasks(input) => answered(self.0.tasks(input).await),
            _ => Err(misread()),
        }
    }

    async fn views(&self, input: ViewsInput) -> Result<(Snapshot, Vec<u32>), Rejection> {
        self.0.views(input).await
    }

    async fn log(
        &self,
        task: &TaskId,
        which: impl Into<ReadLog> + Send,
    ) -> Result<LogPage, Rejection> {
        self.0.log(task, which).await
    }

    async fn published(&self, task: &TaskId) -> Result<BoxStream<'static, Published>, Rejection> {
        let published = self.0.published(task).await?;
        Ok(published.filter_map(|told| ready(crossed(&told).ok())).boxed())
    }

    async fn runtime(
        &self,
        task: Option<&TaskId>,
    ) -> Result<BoxStream<'static, RuntimeEvent>, Rejection> {
        let arrives = |event| Some(crossed(&Runtime { v: V, event }).ok()?.event);
        Ok(self.0.runtime(task).await?.filter_map(move |event| ready(arrives(event))).boxed())
    }

    async fn list(&self, include_terminal: bool) -> Result<Listing, Rejection> {
        self.0.list(include_terminal).await
    }

    async fn changes(
        &self,
        task: Option<&TaskId>,
    ) -> Result<BoxStream<'static, Changed>, Rejection> {
        Ok(self.0.changes(task).await?.filter_map(|changed| ready(hint(changed))).boxed())
    }
}

/// A hint as it arrives; its subject names the Task.
fn hint(changed: Changed) -> Option<Changed> {
    let Changed { task_id, version, ended } = changed;
    let Committed { version, ended, .. } = crossed(&Committed { v: V, version, ended }).ok()?;
    Some(Changed { task_id, version, ended })
}
