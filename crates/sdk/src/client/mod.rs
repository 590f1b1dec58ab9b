//! The client of orchestrators and observers: it creates, steers and reads Tasks with the same API,
//! whether the scheduler is in this process or a node of a cluster.
//!
//! ```no_run
//! # use tenure_sdk::client::{Client, Step, Task};
//! # async fn example<P: tenure_ports::ClientPort>(port: P) -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::new(port);
//! let task = Task::new("nightly report")
//!     .step(Step::new("fetch").handler("fetch").input_json(&["a", "b"])?)
//!     .step(Step::new("print").handler("print").after("fetch"));
//! let task_id = client.create(task).await?;
//! let ended = client.wait_for_end(&task_id).await?;
//! println!("{} at version {}", ended.status, ended.version);
//! # Ok(())
//! # }
//! ```
//!
//! Step 2 of the walk in docs/architecture.md.

mod events;
mod look;
mod patience;
mod steer;
mod task;
#[cfg(test)]
mod tests;
mod values;
mod watch;

use tenure_core::command::create::CreateTask;
use tenure_core::command::{Close, Complete, Why};
use tenure_core::id::{CommandId, TaskId};
use tenure_core::patch::{Operation, ReasonInput};
use tenure_core::view::{GetInput, QueryInput, StepPage, TaskView, WriteSummary};
use tenure_core::{Command, Context, Query, Rejection};
use tenure_ports::ClientPort;
use tenure_ports::client::{Answers, Listing};
use tenure_ports::erased::ErasedClient;
use uuid::Uuid;

pub use self::events::check_after;
pub use self::patience::{NotifiedWait, WAITS, passes, patiently};
pub use self::steer::answering;
pub use self::task::{Step, Task};
pub use self::values::{get_blob, put_blob, write_with_blobs};
pub use self::watch::TaskEnded;

/// An orchestrator or observer.
#[derive(Debug, Clone)]
pub struct Client<P> {
    port: P,
    expected_version: Option<u64>,
    expected_spec_version: Option<u64>,
}

impl<P: ClientPort> Client<P> {
    /// On a connection to a scheduler.
    pub const fn new(port: P) -> Self {
        Self { port, expected_version: None, expected_spec_version: None }
    }

    /// The connection, for requests that have no method here.
    pub const fn port(&self) -> &P {
        &self.port
    }

    /// The same client with its connection behind a pointer. Code for such clients is compiled once for all of them.
    #[must_use]
    pub fn erased(self) -> Client<ErasedClient> {
        let Self { port, expected_version, expected_spec_version } = self;
        Client { port: port.erased(), expected_version, expected_spec_version }
    }

    /// The same client, which wants answers of at most so many bytes (CTRL-06). A longer answer to
    /// a write comes without its Steps, then without the Task. A longer Task comes without its
    /// lists, and says so in `left_out`. A longer page of Steps, Tasks or events comes with fewer
    /// of them, at least one. Other answers are never shortened.
    #[must_use]
    pub fn within(&self, max_bytes: usize) -> Self {
        Self { port: self.port.within(max_bytes), ..*self }
    }

    /// The same client, whose commands the scheduler accepts only at this version of their Task
    /// (OCC-02): if the Task has changed meanwhile, it refuses them with `version_conflict`.
    /// Commands that make a new Task are not affected.
    #[must_use]
    pub fn expecting(&self, version: u64) -> Self {
        Self { port: self.port.clone(), expected_version: Some(version), ..*self }
    }

    /// The same client, whose commands the scheduler accepts only as long as orchestrators have changed the
    /// Task at this version and not since (`spec_version`, OCC-07): what workers do meanwhile does not matter.
    /// Otherwise it refuses them with `version_conflict`.
    #[must_use]
    pub fn expecting_spec(&self, version: u64) -> Self {
        Self { port: self.port.clone(), expected_spec_version: Some(version), ..*self }
    }

    /// The context of a command under a new id.
    fn context(&self) -> Result<Context, Rejection> {
        let context = Context::new(CommandId::new(Uuid::now_v7().to_string())?);
        let (expected_version, expected_spec_version) =
            (self.expected_version, self.expected_spec_version);
        Ok(Context { expected_version, expected_spec_version, ..context })
    }

    /// Creates a Task, and returns its id when it is durable.
    ///
    /// # Errors
    /// A field of the Task is invalid, or the scheduler refuses it.
    pub async fn create(&self, task: Task) -> Result<TaskId, Rejection> {
        let input = task.build(self.port.session())?;
        let task_id = input.task_id()?.clone();
        write_with_blobs(&self.port, &task_id, self.context()?, input).await?;
        Ok(task_id)
    }

    /// Creates a Task under the caller's own `command_id`: a repetition with the same `task_id` or
    /// key gets the first answer (IDEM-01, IDEM-03).
    ///
    /// # Errors
    /// Why it could not be created.
    pub async fn create_as(
        &self,
        command_id: CommandId,
        input: CreateTask,
    ) -> Result<WriteSummary, Rejection> {
        self.create_under(Context::new(command_id), input).await
    }

    /// As [`create_as`](Self::create_as), with the trace that the Task is to be a part of.
    ///
    /// # Errors
    /// Why it could not be created.
    pub async fn create_under(
        &self,
        context: Context,
        input: CreateTask,
    ) -> Result<WriteSummary, Rejection> {
        let input = task::named(input, self.port.session())?;
        let task_id = input.task_id()?.clone();
        write_with_blobs(&self.port, &task_id, context, input).await
    }

    /// Asks any query about a Task.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn ask<Q: Query>(&self, task: &TaskId, query: Q) -> Result<Q::Output, Rejection>
    where
        P: Answers<Q>,
    {
        self.port.ask(task, query).await
    }

    /// A Task in full. One that is too long for an answer comes without its lists, and says so in
    /// `left_out`: [`steps`](Self::steps) has its Steps page by page.
    ///
    /// # Errors
    /// There is no such Task, or no scheduler answers.
    pub async fn get(&self, task: &TaskId) -> Result<TaskView, Rejection> {
        self.port.ask(task, GetInput {}).await
    }

    /// A page of the Steps of a Task.
    ///
    /// # Errors
    /// There is no such Task, or no scheduler answers.
    pub async fn steps(&self, task: &TaskId, input: QueryInput) -> Result<StepPage, Rejection> {
        self.port.ask(task, input).await
    }

    /// Tasks of the session, live ones and, if asked for, ended ones.
    ///
    /// # Errors
    /// The caller may not list. The listing names partitions that do not answer.
    pub async fn list(&self, include_terminal: bool) -> Result<Listing, Rejection> {
        self.port.list(include_terminal).await
    }

    /// Changes a Task: all operations take effect, or none.
    ///
    /// # Errors
    /// Why the scheduler refuses it.
    pub async fn update(
        &self,
        task: &TaskId,
        operations: Vec<Operation>,
    ) -> Result<WriteSummary, Rejection> {
        self.command(task, Command::TaskUpdate { operations }).await
    }

    /// Lets a draft begin.
    ///
    /// # Errors
    /// Why the scheduler refuses it.
    pub async fn submit(&self, task: &TaskId) -> Result<WriteSummary, Rejection> {
        self.command(task, Command::SubmitTask(Why::default())).await
    }

    /// Requests that a Task be cancelled, and returns when the request is durable.
    /// [`wait_for_end`](Self::wait_for_end) waits until its Steps have stopped.
    ///
    /// # Errors
    /// Why the scheduler refuses it.
    pub async fn cancel(&self, task: &TaskId, why: &str) -> Result<WriteSummary, Rejection> {
        self.command(task, Command::TaskCancel(close(why))).await
    }

    /// Requests that a Task fail, as [`cancel`](Self::cancel) does.
    ///
    /// # Errors
    /// Why the scheduler refuses it.
    pub async fn fail(&self, task: &TaskId, why: &str) -> Result<WriteSummary, Rejection> {
        self.command(task, Command::TaskFail(close(why))).await
    }

    /// Completes a Task.
    ///
    /// # Errors
    /// Why the scheduler refuses it: a required Step is unfinished, for one.
    pub async fn complete(
        &self,
        task: &TaskId,
        complete: Complete,
    ) -> Result<WriteSummary, Rejection> {
        self.command(task, Command::TaskComplete(complete)).await
    }

    /// Sends any command, under a new id.
    ///
    /// # Errors
    /// Why the scheduler refuses it.
    pub async fn command(
        &self,
        task: &TaskId,
        command: Command,
    ) -> Result<WriteSummary, Rejection> {
        write_with_blobs(&self.port, task, self.context()?, command).await
    }

    /// Sends any command, with the id, expected version and trace that the caller gives.
    ///
    /// # Errors
    /// Why the scheduler refuses it.
    pub async fn command_as(
        &self,
        task: &TaskId,
        context: Context,
        command: Command,
    ) -> Result<WriteSummary, Rejection> {
        write_with_blobs(&self.port, task, context, command).await
    }
}

fn close(why: &str) -> Close {
    let reason =
        ReasonInput { code: None, details: None, message: why.to_owned(), retryable: None };
    Close { grace_ms: None, reason: Some(reason), wait: Some(false) }
}
