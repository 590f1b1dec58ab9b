//! A caller's end.

use std::future::ready;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use tenure_core::command::RetryEnded;
use tenure_core::command::create::CreateTask;
use tenure_core::id::{SessionId, TaskId};
use tenure_core::view::{
    BoardInput, ExplainInput, ExplainTaskInput, Explanation, InspectInput, Inspection, ListInput,
    QueryInput, ReplayInput, RuntimeEvent, Snapshot, StepPage, TaskExplanation, TaskLines,
    TaskPage, TaskView, ViewsInput, WriteSummary,
};
use tenure_core::{Command, Rejection};
use tenure_wire::bus::V;
use tenure_wire::bus::event::{EventPage, Published, ReadEvents, Runtime};
use tenure_wire::bus::request::{Ask, Committed, Request};

use super::{answered, crossed, misread};
use crate::client::{Around, Changed, ClientPort, Listing, LogPage};

/// A caller whose words, and whatever it is told, are bytes on their way.
///
/// Not what a network gathers from partitions or sends in parts: lists of the index, views and logs
/// are handed on as they are.
#[derive(Debug, Clone)]
pub struct Client<C>(C);

impl<C: ClientPort> Client<C> {
    /// This caller.
    pub fn new(inner: C) -> Self {
        Self(inner)
    }
}

/// What is asked of a Task, as it arrives.
fn asked(task: &TaskId, ask: Ask) -> Result<(TaskId, Ask), Rejection> {
    let request = Request::new(Some(task.clone()), None, ask);
    let Request { head, ask } = Request::read(&request.write()?)?;
    Ok((head.task_id.ok_or_else(misread)?, ask))
}

/// What is to be done with a Task, as it arrives.
fn told(task: &TaskId, around: Around, ask: Ask) -> Result<(TaskId, Around, Ask), Rejection> {
    let mut request = Request::new(Some(task.clone()), Some(around.command_id), ask);
    request.head.expected_version = around.expected_version;
    request.head.trace = around.trace;
    let Request { head, ask } = Request::read(&request.write()?)?;
    let command_id = head.command_id.ok_or_else(misread)?;
    let around = Around { command_id, expected_version: head.expected_version, trace: head.trace };
    Ok((head.task_id.ok_or_else(misread)?, around, ask))
}

impl<C: ClientPort> ClientPort for Client<C> {
    type Changes = BoxStream<'static, Changed>;
    type Events = BoxStream<'static, Published>;

    fn session(&self) -> &SessionId {
        self.0.session()
    }

    fn is_over(&self) -> bool {
        self.0.is_over()
    }

    fn within(&self, max_bytes: usize) -> Self {
        Self(self.0.within(max_bytes))
    }

    async fn create(&self, around: Around, input: CreateTask) -> Result<WriteSummary, Rejection> {
        let task = input.task_id()?.clone();
        match told(&task, around, Ask::Create(Box::new(input)))? {
            (_, around, Ask::Create(input)) => answered(self.0.create(around, *input).await),
            _ => Err(misread()),
        }
    }

    async fn retry_ended(
        &self,
        task: TaskId,
        around: Around,
        input: RetryEnded,
    ) -> Result<WriteSummary, Rejection> {
        match told(&task, around, Ask::RetryEnded(Box::new(input)))? {
            (task, around, Ask::RetryEnded(input)) => {
                answered(self.0.retry_ended(task, around, *input).await)
            }
            _ => Err(misread()),
        }
    }

    async fn command(
        &self,
        task: &TaskId,
        around: Around,
        command: Command,
    ) -> Result<WriteSummary, Rejection> {
        match told(task, around, Ask::Command(Box::new(command)))? {
            (task, around, Ask::Command(command)) => {
                answered(self.0.command(&task, around, *command).await)
            }
            _ => Err(misread()),
        }
    }

    async fn get(&self, task: &TaskId) -> Result<TaskView, Rejection> {
        match asked(task, Ask::Get)? {
            (task, Ask::Get) => answered(self.0.get(&task).await),
            _ => Err(misread()),
        }
    }

    async fn query(&self, task: &TaskId, input: QueryInput) -> Result<StepPage, Rejection> {
        match asked(task, Ask::Query(input))? {
            (task, Ask::Query(input)) => answered(self.0.query(&task, input).await),
            _ => Err(misread()),
        }
    }

    async fn tasks(&self, input: ListInput) -> Result<TaskPage, Rejection> {
        let request = Request::new(None, None, Ask::Tasks(input));
        match Request::read(&request.write()?)?.ask {
            Ask::Tasks(input) => answered(self.0.tasks(input).await),
            _ => Err(misread()),
        }
    }

    async fn explain(&self, task: &TaskId, input: ExplainInput) -> Result<Explanation, Rejection> {
        match asked(task, Ask::Explain(input))? {
            (task, Ask::Explain(input)) => answered(self.0.explain(&task, input).await),
            _ => Err(misread()),
        }
    }

    async fn explain_task(
        &self,
        task: &TaskId,
        input: ExplainTaskInput,
    ) -> Result<TaskExplanation, Rejection> {
        match asked(task, Ask::ExplainTask(input))? {
            (task, Ask::ExplainTask(input)) => answered(self.0.explain_task(&task, input).await),
            _ => Err(misread()),
        }
    }

    async fn inspect(&self, task: &TaskId, input: InspectInput) -> Result<Inspection, Rejection> {
        match asked(task, Ask::Inspect(input))? {
            (task, Ask::Inspect(input)) => answered(self.0.inspect(&task, input).await),
            _ => Err(misread()),
        }
    }

    async fn replay(&self, task: &TaskId, input: ReplayInput) -> Result<TaskView, Rejection> {
        match asked(task, Ask::Replay(input))? {
            (task, Ask::Replay(input)) => answered(self.0.replay(&task, input).await),
            _ => Err(misread()),
        }
    }

    async fn board(&self, task: &TaskId, input: BoardInput) -> Result<TaskLines, Rejection> {
        match asked(task, Ask::Board(input))? {
            (task, Ask::Board(input)) => answered(self.0.board(&task, input).await),
            _ => Err(misread()),
        }
    }

    async fn views(&self, input: ViewsInput) -> Result<(Snapshot, Vec<u32>), Rejection> {
        self.0.views(input).await
    }

    async fn log(&self, task: &TaskId, after: u64) -> Result<LogPage, Rejection> {
        self.0.log(task, after).await
    }

    async fn events(&self, task: &TaskId, after: u64) -> Result<EventPage, Rejection> {
        match asked(task, Ask::ReadEvents(ReadEvents { after }))? {
            (task, Ask::ReadEvents(which)) => answered(self.0.events(&task, which.after).await),
            _ => Err(misread()),
        }
    }

    async fn published(&self, task: &TaskId) -> Result<Self::Events, Rejection> {
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

    async fn oldest(&self, most: usize) -> Result<Listing, Rejection> {
        self.0.oldest(most).await
    }

    async fn changes(&self, task: Option<&TaskId>) -> Result<Self::Changes, Rejection> {
        Ok(self.0.changes(task).await?.filter_map(|changed| ready(hint(changed))).boxed())
    }
}

/// A hint as it arrives; its subject names the Task.
fn hint(changed: Changed) -> Option<Changed> {
    let Changed { task_id, version, ended } = changed;
    let Committed { version, ended, .. } = crossed(&Committed { v: V, version, ended }).ok()?;
    Some(Changed { task_id, version, ended })
}
