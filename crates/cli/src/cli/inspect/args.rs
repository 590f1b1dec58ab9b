//! What the looking commands can be told.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use tenure_core::id::{SessionId, TaskId};
use tenure_core::status::{AttemptStatus, StepStatus, TaskStatus};
use tenure_core::view::Normal;
use tenure_ports::journal::TaskKey;
use tenure_sdk::client::{Client, passes};
use tenure_sdk::nats::NatsClient;

use super::data::Data;
use super::host::Host;
use super::select;
use super::wal::scan::Log;
use crate::cli::answer::{Exit, Failure, Format, output};
use crate::cli::cluster::LookArgs;

/// Between two looks for a scheduler.
const PAUSE: Duration = Duration::from_millis(500);

/// Where to look, and how to answer.
#[derive(Debug, Clone, Args)]
pub(crate) struct Place {
    /// Directory that keeps the tasks [default: .tenure, unless --nats names a cluster]
    #[arg(long = "data", value_name = "DIR", env = "TENURE_DATA")]
    pub(crate) data: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) cluster: LookArgs,

    /// Session to look in
    #[arg(long, value_name = "NAME", env = "TENURE_SESSION", default_value = "default")]
    pub(super) session: SessionId,

    /// How to write the answer
    #[arg(long, short = 'o', value_enum, value_name = "FORMAT", default_value_t)]
    pub(crate) output: Format,
}

/// One Task.
#[derive(Debug, Clone, Args)]
pub(crate) struct OfTask {
    /// Id of the task, or SESSION/ID, or `last` for the newest; to look at one, how only it begins
    #[arg(value_name = "TASK_ID")]
    pub(crate) task: String,

    #[command(flatten)]
    pub(crate) place: Place,
}

impl OfTask {
    /// The command that waits for the end of the Task.
    pub(crate) fn waits_on(&self, key: &TaskKey) -> String {
        waits_on(&key.to_string(), self.place.data.as_deref(), &self.place.cluster)
    }
}

/// One Task that somebody follows.
#[derive(Debug, Clone, Args)]
pub(crate) struct LiveTask {
    /// Id of the task, or SESSION/ID, or `last` for the newest
    #[arg(value_name = "TASK_ID")]
    task: String,

    /// Directory that keeps the tasks [default: .tenure, unless --nats names a cluster]
    #[arg(long = "data", value_name = "DIR", env = "TENURE_DATA")]
    data: Option<PathBuf>,

    #[command(flatten)]
    cluster: LookArgs,

    /// Session to look in
    #[arg(long, value_name = "NAME", env = "TENURE_SESSION", default_value = "default")]
    session: SessionId,
}

impl LiveTask {
    /// The directory and the log of the Task, if it is in one. What nobody works on is followed all the
    /// same: somebody may begin.
    pub(super) fn here(&self) -> Result<Option<(Data, Log)>, Failure> {
        let (data, cluster) = (self.data.clone(), self.cluster.clone());
        let (session, output) = (self.session.clone(), Format::default());
        let place = Place { data, cluster, session, output };
        if place.is_cluster() {
            return Ok(None);
        }
        let data = Data::open(&place)?;
        let log = data.find(&place.key(&self.task)?)?;
        if data.host == Host::Nobody && !data.fold(log.clone())?.task.is_terminal() {
            let resume = data.resume(&log.key);
            output::say(format_args!("no process is at work here; to go on: {resume}"));
        }
        Ok(Some((data, log)))
    }

    /// The Task as it was named.
    pub(super) fn name(&self) -> &str {
        &self.task
    }

    /// The command that goes on waiting for the Task.
    pub(super) fn waits_on(&self, key: Option<&TaskKey>) -> String {
        let name = match key {
            Some(key) => key.to_string(),
            None if self.task.contains('/') => self.task.clone(),
            None => format!("{}/{}", self.session, self.task),
        };
        waits_on(&name, self.data.as_deref(), &self.cluster)
    }

    /// Connects to the session of the Task, and finds it. As the Task goes on without a scheduler's
    /// answer, one is waited for.
    pub(super) async fn far_in_the_end(&self) -> Result<(Client<NatsClient>, TaskKey), Failure> {
        let mut is_told = false;
        loop {
            match self.far().await {
                Err(silence) if silence.refusal().is_some_and(passes) => {
                    if !is_told {
                        output::say(format_args!("{}; it is waited for", silence.message));
                    }
                    is_told = true;
                    tokio::time::sleep(PAUSE).await;
                }
                found => {
                    if is_told && found.is_ok() {
                        output::say("there is an answer again");
                    }
                    return found;
                }
            }
        }
    }

    /// Connects to the session of the Task, and finds it.
    async fn far(&self) -> Result<(Client<NatsClient>, TaskKey), Failure> {
        let key = key_in(&self.session, &self.task)?;
        let client = self.cluster.caller().await?.client(&key.session_id).await?;
        let key = select::find(&client, key).await?;
        Ok((client, key))
    }
}

/// The command that waits for the end of a Task of this name.
fn waits_on(name: &str, data: Option<&Path>, cluster: &LookArgs) -> String {
    let place = match data {
        Some(data) => format!(" --data {}", data.display()),
        None => cluster.told(),
    };
    format!("tenure task wait {name}{place}")
}

/// A cluster, and how to answer.
#[derive(Debug, Clone, Args)]
pub(crate) struct FleetArgs {
    #[command(flatten)]
    cluster: LookArgs,

    /// Session to ask in
    #[arg(long, value_name = "NAME", env = "TENURE_SESSION", default_value = "default")]
    pub(super) session: SessionId,

    /// How to write the answer
    #[arg(long, short = 'o', value_enum, value_name = "FORMAT", default_value_t)]
    pub(super) output: Format,
}

impl FleetArgs {
    /// Connects and asks: the cluster that is named, or that of this machine.
    pub(super) fn ask<T>(
        &self,
        ask: impl AsyncFnOnce(Client<NatsClient>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let client = self.cluster.caller().await?.client(&self.session).await?;
            ask(client).await
        })
    }
}

/// Which part of a long answer.
#[derive(Debug, Clone, Args)]
pub(crate) struct Cut {
    /// At most so many
    #[arg(long, value_name = "N")]
    pub(super) limit: Option<usize>,

    /// From this one on
    #[arg(long, value_name = "N", default_value_t)]
    pub(super) offset: usize,
}

impl Place {
    /// The Task that `text` means: a bare id is of the session asked for.
    pub(super) fn key(&self, text: &str) -> Result<TaskKey, Failure> {
        key_in(&self.session, text)
    }

    /// A cluster is to be looked into: it is named, and no directory is.
    pub(crate) const fn is_cluster(&self) -> bool {
        self.data.is_none() && self.cluster.is_given()
    }
}

impl OfTask {
    pub(crate) fn key(&self) -> Result<TaskKey, Failure> {
        self.place.key(&self.task)
    }
}

/// The Task that `text` means: `TASK_ID`, which is of this session, or `SESSION/TASK_ID`.
fn key_in(session: &SessionId, text: &str) -> Result<TaskKey, Failure> {
    let bad = |error| Failure::caused(Exit::Usage, &error);
    let (session_id, task) = match text.split_once('/') {
        Some((session, task)) => (SessionId::new(session).map_err(bad)?, task),
        None => (session.clone(), text),
    };
    Ok(TaskKey { session_id, task_id: TaskId::new(task).map_err(bad)? })
}

/// A status that is asked for by its name: that of the log, or that which tables show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Asked<S> {
    native: Option<S>,
    normal: Option<Normal>,
}

impl<S: Copy + PartialEq> Asked<S> {
    /// The status of this name; the error names them all.
    fn named(text: &str, native: Option<S>, natives: &[&'static str]) -> Result<Self, String> {
        let normal = Normal::from_name(text);
        if native.is_none() && normal.is_none() {
            let shown = Normal::ALL.iter().map(|s| s.as_str()).filter(|s| !natives.contains(s));
            return Err(one_of(natives.iter().copied().chain(shown)));
        }
        Ok(Self { native, normal })
    }

    fn fits(self, native: S, normal: Normal) -> bool {
        self.native == Some(native) || self.normal == Some(normal)
    }

    /// Whether one of these fits.
    pub(super) fn any(asked: &[Self], native: S, normal: Normal) -> bool {
        asked.iter().any(|one| one.fits(native, normal))
    }

    /// The native statuses, if they tell all of these: what is `running` or `blocked` to a table may be
    /// something else in the log, and what has another name there as well.
    pub(super) fn natives(asked: &[Self]) -> Option<Vec<S>> {
        let told = asked.iter().map(|one| match one.normal {
            Some(Normal::Running | Normal::Blocked) => None,
            _ => one.native,
        });
        told.collect::<Option<Vec<S>>>().filter(|told| !told.is_empty())
    }
}

/// A status of a Task.
pub(super) fn task_status(text: &str) -> Result<Asked<TaskStatus>, String> {
    let names: Vec<&str> = TaskStatus::ALL.iter().map(|status| status.as_str()).collect();
    Asked::named(text, TaskStatus::from_name(text), &names)
}

/// A status of a Step.
pub(super) fn step_status(text: &str) -> Result<Asked<StepStatus>, String> {
    let names: Vec<&str> = StepStatus::ALL.iter().map(|status| status.as_str()).collect();
    Asked::named(text, StepStatus::from_name(text), &names)
}

/// A status of an Attempt.
pub(super) fn attempt_status(text: &str) -> Result<Asked<AttemptStatus>, String> {
    let names: Vec<&str> = AttemptStatus::ALL.iter().map(|status| status.as_str()).collect();
    Asked::named(text, AttemptStatus::from_name(text), &names)
}

pub(crate) fn one_of<'a>(names: impl Iterator<Item = &'a str>) -> String {
    format!("one of: {}", names.collect::<Vec<_>>().join(", "))
}
