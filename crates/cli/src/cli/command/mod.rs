//! Commands on Tasks: of a cluster, or of a data directory that no process is at work on.
//!
//! | Module | What it does |
//! |---|---|
//! | [`life`] | submit, pause, resume, block, reopen, complete, cancel, fail, retry, archive |
//! | [`patch`] | changes the DAG, or shows what a change would do |
//! | [`step`] | settles, cancels, reopens and answers Steps |
//! | [`dispatch`] | Runs: dispatches and cancels them |
//! | [`relate`] | relations between Tasks |

pub(crate) mod dispatch;
pub(crate) mod life;
pub(crate) mod patch;
pub(crate) mod relate;
pub(crate) mod step;

use std::path::Path;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tenure::embedded::{Embedded, LocalClient, orchestrator};
use tenure_core::Command;
use tenure_core::id::{CommandId, Millis, RunId, SessionId, TaskId};
use tenure_core::patch::ReasonInput;
use tenure_core::view::write::Header;
use tenure_core::view::{Normal, RunEnd, WriteSummary};
use tenure_local::JsonlReader;
use tenure_ports::client::Around;
use tenure_ports::journal::TaskKey;
use tenure_sdk::client::Client;
use tenure_sdk::nats::NatsClient;
use uuid::Uuid;

use super::exit::{Exit, Failure};
use super::inspect::args::{OfTask, Place, Shape};
use super::inspect::select;
use super::output;

/// A Task, and how to command it.
#[derive(Debug, Args)]
pub(crate) struct OnTask {
    #[command(flatten)]
    of: OfTask,

    /// Only if the task is at this version
    #[arg(long, value_name = "N")]
    expected_version: Option<u64>,

    /// Id of this command: the same again is answered as the first time
    #[arg(long, value_name = "ID")]
    command_id: Option<CommandId>,
}

/// How long a command is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Until {
    /// It is durable.
    Done,
    /// It is answered, however long that takes.
    Answered,
    /// The Task has ended.
    Ended,
}

/// Between two tries of what is waited for.
const PAUSE: Duration = Duration::from_millis(500);

/// Why something is commanded.
#[derive(Debug, Args)]
pub(crate) struct Reason {
    /// Why, for people and for the log
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

impl Reason {
    fn input(&self) -> Option<ReasonInput> {
        let message = self.reason.clone()?;
        Some(ReasonInput { code: None, details: None, message, retryable: None })
    }
}

/// Where commands go.
enum Desk {
    /// To the nodes of a cluster.
    Far(Client<NatsClient>),
    /// To a scheduler of this process.
    Here { client: Client<LocalClient>, _scheduler: Embedded },
}

impl Desk {
    async fn open(place: &Place, session: &SessionId) -> Result<Self, Failure> {
        if place.is_cluster() {
            return Ok(Self::Far(place.cluster.caller().await?.client(session).await?));
        }
        let data = place.data.as_deref().unwrap_or_else(|| Path::new(super::inspect::DEFAULT));
        JsonlReader::open(data)?; // It is not made for a command on what is in it.
        let scheduler = Embedded::open(data).await?;
        let me = orchestrator(session.clone());
        let me = me.map_err(|error| Failure::caused(Exit::Usage, &error))?;
        let port = scheduler.scheduler().client(me.role, me.agent, me.session_id);
        Ok(Self::Here { client: Client::new(port), _scheduler: scheduler })
    }

    async fn command(
        &self,
        task: &TaskId,
        around: Around,
        command: Command,
    ) -> Result<WriteSummary, Failure> {
        Ok(match self {
            Self::Far(client) => client.command_as(task, around, command).await?,
            Self::Here { client, .. } => client.command_as(task, around, command).await?,
        })
    }

    async fn retry_ended(
        &self,
        old: &TaskId,
        new: &TaskId,
        around: Around,
        why: ReasonInput,
    ) -> Result<WriteSummary, Failure> {
        let new = new.clone();
        Ok(match self {
            Self::Far(client) => client.retry_ended_as(old, new, around, why).await?,
            Self::Here { client, .. } => client.retry_ended_as(old, new, around, why).await?,
        })
    }

    async fn newest(&self, name: &TaskKey) -> Result<Option<TaskKey>, Failure> {
        let known = match self {
            Self::Far(client) => client.list(true).await?,
            Self::Here { client, .. } => client.list(true).await?,
        };
        select::newest(name, &known)
    }

    async fn wait_for_end(&self, task: &TaskId) -> Result<(), Failure> {
        match self {
            Self::Far(client) => client.wait_for_end(task).await?,
            Self::Here { client, .. } => client.wait_for_end(task).await?,
        };
        Ok(())
    }
}

impl OnTask {
    fn around(&self) -> Result<Around, Failure> {
        let fresh = || CommandId::new(Uuid::now_v7().to_string());
        let command_id = self.command_id.clone().map_or_else(fresh, Ok);
        let command_id = command_id.map_err(|error| Failure::caused(Exit::Usage, &error))?;
        Ok(Around { expected_version: self.expected_version, ..Around::new(command_id) })
    }

    /// Sends a command, and waits for what it leads to if asked to. Answers which Task it was.
    fn send(&self, command: Command, until: Until) -> Result<(TaskKey, WriteSummary), Failure> {
        let (mut key, around) = (self.of.key()?, self.around()?);
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build()?;
        runtime.block_on(async {
            let desk = Desk::open(&self.of.place, &key.session_id).await?;
            let summary = loop {
                // What may take hours is answered by no request: the same again waits on.
                match desk.command(&key.task_id, around.clone(), command.clone()).await {
                    Err(silence)
                        if until == Until::Answered && silence.exit == Exit::Unavailable =>
                    {
                        output::say("no answer yet; it is waited for");
                        tokio::time::sleep(PAUSE).await;
                    }
                    Err(failure) if failure.exit == Exit::NotFound && select::is_last(&key) => {
                        key = self.newest(&desk, &key).await?.ok_or(failure)?;
                    }
                    answer => break answer?,
                }
            };
            if until == Until::Ended {
                desk.wait_for_end(&key.task_id).await?;
            }
            Ok((key, summary))
        })
    }

    /// The Task that `last` means: another one, perhaps, whenever somebody asks.
    async fn newest(&self, desk: &Desk, name: &TaskKey) -> Result<Option<TaskKey>, Failure> {
        if self.command_id.is_some() {
            let message = "--command-id goes with a task that is named in full";
            return Err(Failure::new(Exit::Usage, message));
        }
        desk.newest(name).await
    }

    /// Makes a Task that has ended again, and says what became of that.
    fn retry_ended(&self, new: &TaskId, why: ReasonInput) -> Result<Exit, Failure> {
        let (mut key, around) = (self.of.key()?, self.around()?);
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build()?;
        let summary = runtime.block_on(async {
            let desk = Desk::open(&self.of.place, &key.session_id).await?;
            if select::is_last(&key)
                && let Some(newest) = self.newest(&desk, &key).await?
            {
                key = newest;
            }
            desk.retry_ended(&key.task_id, new, around, why).await
        })?;
        key.task_id = new.clone();
        self.tell(&key, &summary, false)
    }

    /// Sends a command and says what became of the Task.
    fn order(&self, command: Command, wait: bool) -> Result<Exit, Failure> {
        let until = if wait { Until::Ended } else { Until::Done };
        let (key, summary) = self.send(command, until)?;
        self.tell(&key, &summary, wait)
    }

    /// Says what became of a Task.
    fn tell(
        &self,
        key: &TaskKey,
        summary: &WriteSummary,
        has_ended: bool,
    ) -> Result<Exit, Failure> {
        let done = Done::of(summary, has_ended);
        let status = match done.status {
            Some(status) => status.to_string(),
            None if has_ended => "has ended".into(),
            None => "changed".into(), // The answer had no room for more (CTRL-06).
        };
        let version = done.version;
        let told = Told { key: Key::of(key), done };
        self.of.place.output.answer(&told, Shape::one("task_id"), || {
            output::print(format_args!("{key}  {status}  version {version}\n"))
        })?;
        Ok(Exit::Ok)
    }
}

/// Which Task, in an answer.
#[derive(Serialize)]
struct Key<'a> {
    task_id: &'a TaskId,
    session_id: &'a SessionId,
}

impl<'a> Key<'a> {
    fn of(key: &'a TaskKey) -> Self {
        Self { task_id: &key.task_id, session_id: &key.session_id }
    }
}

/// What is answered.
#[derive(Serialize)]
struct Told<'a> {
    #[serde(flatten)]
    key: Key<'a>,
    #[serde(flatten)]
    done: Done<'a>,
}

/// What a command has done.
#[derive(Serialize)]
struct Done<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Normal>,
    version: u64,
    event_ids: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<RunId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<Millis>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_end: Option<&'a RunEnd>,
}

impl<'a> Done<'a> {
    /// The status is left out of a Task that has ended since.
    fn of(summary: &'a WriteSummary, has_ended: bool) -> Self {
        let status = match &summary.task {
            Header::Summary(task) if !has_ended => Some(task.status),
            _ => None,
        };
        let WriteSummary { version, event_ids, run_id, expires_at, .. } = summary;
        let (version, run_id, expires_at) = (*version, *run_id, *expires_at);
        let run_end = summary.run_end.as_ref();
        Self { status, version, event_ids, run_id, expires_at, run_end }
    }
}
