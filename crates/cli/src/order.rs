//! Sends a command on one Task, and prints the answer. The Task is in a cluster, or in a data
//! directory on which no process is at work.

use clap::Args;
use serde::Serialize;
use tenure_core::command::RetryEnded;
use tenure_core::id::{CommandId, Millis, RunId, SessionId, TaskId};
use tenure_core::patch::ReasonInput;
use tenure_core::record::ArtifactInput;
use tenure_core::status::TaskStatus;
use tenure_core::view::write::TaskHeader;
use tenure_core::view::{Normal, RunEnd, TaskSummary, WriteSummary};
use tenure_core::{Command, Context, Rejection};
use tenure_ports::journal::TaskKey;
use uuid::Uuid;

use crate::answer::{Exit, Failure, Shape, output};
use crate::place::{CallerSession, OfTask};
use crate::runtime::{START, unless_stopped};

/// A Task, and how to command it.
#[derive(Debug, Args)]
pub(crate) struct OnTask {
    #[command(flatten)]
    pub(crate) of: OfTask,

    /// Only if the task is at this version
    #[arg(long, value_name = "N")]
    pub(crate) expected_version: Option<u64>,

    /// Only if orchestrators have last changed the task at this version
    #[arg(long, value_name = "N")]
    pub(crate) expected_spec_version: Option<u64>,

    /// Id of this command: the same again is answered as the first time
    #[arg(long, value_name = "ID")]
    pub(crate) command_id: Option<CommandId>,
}

/// Why something is commanded.
#[derive(Debug, Args)]
pub(crate) struct ReasonArgs {
    /// Why, for people and for the log
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

impl ReasonArgs {
    pub(crate) fn input(&self) -> Option<ReasonInput> {
        let message = self.reason.clone()?;
        Some(ReasonInput { code: None, details: None, message, retryable: None })
    }
}

/// The context of a command: with the given id, or a new one.
pub(crate) fn context(id: Option<&CommandId>) -> Result<Context, Failure> {
    let fresh = || CommandId::new(Uuid::now_v7().to_string());
    let id = id.cloned().map_or_else(fresh, Ok).map_err(Rejection::from)?;
    Ok(Context::new(id))
}

/// An artifact, from its JSON form.
pub(crate) fn artifact(text: &str) -> Result<ArtifactInput, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

impl OnTask {
    pub(crate) fn context(&self) -> Result<Context, Failure> {
        let context = context(self.command_id.as_ref())?;
        let (expected_version, expected_spec_version) =
            (self.expected_version, self.expected_spec_version);
        Ok(Context { expected_version, expected_spec_version, ..context })
    }

    /// Opens the session of the Task, and runs something there.
    pub(crate) fn at(
        &self,
        work: impl AsyncFnOnce(&CallerSession) -> Result<Exit, Failure>,
    ) -> Result<Exit, Failure> {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime =
            runtime.worker_threads(1).enable_all().build().map_err(Failure::cannot(START))?;
        runtime.block_on(async {
            let mut session = CallerSession::open(&self.of.look.at, self.of.key()?).await?;
            if session.find_last().await? && self.command_id.is_some() {
                // `last` may be another Task each time.
                let message = "--command-id goes with a task that is named in full";
                return Err(Failure::new(Exit::Usage, message));
            }
            match work(&session).await {
                Err(failure) => Err(session.with_names(failure).await),
                done => done,
            }
        })
    }

    /// Sends a command and prints the Task's new status; with `wait`, once the Task has ended.
    pub(crate) fn order(&self, command: Command, wait: bool) -> Result<Exit, Failure> {
        self.at(async |session| {
            let summary = session.command(self.context()?, command).await?;
            if !wait {
                return self.tell(session.key(), CommandDone::of(&summary));
            }
            let said = || {
                let key = session.key();
                let waits_on = self.of.look.at.waits_on(key);
                format!(
                    "stopped; task {key} was asked to end, and has not yet; to wait for its end: {waits_on}"
                )
            };
            let ended = async {
                let end = session.end().await?;
                self.tell(session.key(), CommandDone::of(&summary).at_end(&end))
            };
            unless_stopped(said, ended).await
        })
    }

    /// Makes an ended Task again, and prints the status of the new one.
    pub(crate) fn retry_ended(
        &self,
        new: &TaskId,
        how: impl Fn(TaskId) -> RetryEnded,
    ) -> Result<Exit, Failure> {
        self.at(async |session| {
            let how = how(session.key().task_id.clone());
            let summary = session.retry_ended(new, self.context()?, how).await?;
            let key = TaskKey { task_id: new.clone(), ..session.key().clone() };
            self.tell(&key, CommandDone::of(&summary))
        })
    }

    /// Prints the status of a Task after a command.
    pub(crate) fn tell(&self, key: &TaskKey, done: CommandDone<'_>) -> Result<Exit, Failure> {
        let status = done.status.map(|status| status.to_string());
        let status = status.unwrap_or_else(|| "changed".into()); // The answer was shortened (CTRL-06).
        let version = done.version;
        let told = CommandAnswer { key: Key::of(key), done };
        self.of.look.output.answer(&told, Shape::one("task_id"), || {
            output::print(format_args!("{key}  {status}  version {version}\n"))
        })
    }
}

/// The ids of a Task in an answer.
#[derive(Serialize)]
pub(crate) struct Key<'a> {
    task_id: &'a TaskId,
    session_id: &'a SessionId,
}

impl<'a> Key<'a> {
    pub(crate) fn of(key: &'a TaskKey) -> Self {
        Self { task_id: &key.task_id, session_id: &key.session_id }
    }
}

/// The answer to a command.
#[derive(Serialize)]
pub(crate) struct CommandAnswer<'a> {
    #[serde(flatten)]
    pub(crate) key: Key<'a>,
    #[serde(flatten)]
    pub(crate) done: CommandDone<'a>,
}

/// The effect of a command.
#[derive(Serialize)]
pub(crate) struct CommandDone<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Normal>,
    #[serde(skip_serializing_if = "Option::is_none")]
    native_status: Option<TaskStatus>,
    version: u64,
    event_ids: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) run_id: Option<RunId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<Millis>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) run_end: Option<&'a RunEnd>,
}

impl<'a> CommandDone<'a> {
    pub(crate) fn of(summary: &'a WriteSummary) -> Self {
        let task = match &summary.task {
            TaskHeader::Summary(task) => Some(task),
            TaskHeader::Worker(_) | TaskHeader::Reference(_) => None,
        };
        let WriteSummary { version, event_ids, run_id, expires_at, .. } = summary;
        Self {
            status: task.map(|task| task.status),
            native_status: task.map(|task| task.native_status),
            version: *version,
            event_ids,
            run_id: *run_id,
            expires_at: *expires_at,
            run_end: summary.run_end.as_ref(),
        }
    }

    /// The same when the Task has ended.
    fn at_end(self, end: &TaskSummary) -> Self {
        let (status, native_status) = (Some(end.status), Some(end.native_status));
        Self { status, native_status, version: end.version, ..self }
    }
}
