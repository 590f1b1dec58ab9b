//! Finds a Task that a command follows until it has ended.

use std::time::Duration;

use clap::Args;
use tenure_ports::journal::TaskKey;
use tenure_sdk::client::{NotifiedWait, passes};

use super::any::AnyClient;
use super::args::PlaceArgs;
use super::data::TaskReader;
use super::host::Host;
use super::names;
use super::scan::LogFile;
use crate::answer::{Failure, output};

/// The pause between two tries to find a scheduler.
const PAUSE: Duration = Duration::from_millis(500);

/// One Task that somebody follows.
#[derive(Debug, Clone, Args)]
pub(crate) struct LiveTask {
    /// Id of the task, or SESSION/ID, or `last` for the newest
    #[arg(value_name = "TASK_ID")]
    task: String,

    #[command(flatten)]
    at: PlaceArgs,
}

impl LiveTask {
    /// The directory and the log of the Task, if it is in one. A command follows the Task even if
    /// no process is at work there, as one may begin.
    pub(crate) fn here(&self) -> Result<Option<(TaskReader, LogFile)>, Failure> {
        if self.at.is_cluster() {
            return Ok(None);
        }
        let (data, log) = self.look()?;
        if data.host == Host::Nobody && !data.fold(log.clone())?.task.is_terminal() {
            let resume = data.resume(&log.key);
            output::say(format_args!("no process is at work here; to go on: {resume}"));
        }
        Ok(Some((data, log)))
    }

    /// The place of the Task, and its log; of a cluster a copy of it.
    pub(crate) fn look(&self) -> Result<(TaskReader, LogFile), Failure> {
        let data = TaskReader::open(&self.at)?;
        let log = data.find(&self.at.key(&self.task)?)?;
        Ok((data, log))
    }

    /// The Task as it was named.
    pub(crate) fn name(&self) -> &str {
        &self.task
    }

    /// The command that continues to wait for the Task.
    pub(crate) fn waits_on(&self, key: Option<&TaskKey>) -> String {
        let name = match key {
            Some(key) => key.to_string(),
            None if self.task.contains('/') => self.task.clone(),
            None => format!("{}/{}", self.at.session, self.task),
        };
        self.at.waits_on(name)
    }

    /// Connects to the session of the Task, and finds it. If no scheduler answers, waits for one,
    /// as the Task will go on.
    pub(crate) async fn far_in_the_end(&self) -> Result<(AnyClient, TaskKey), Failure> {
        let mut told = None;
        loop {
            match self.far().await {
                Err(silence) if silence.refusal().is_some_and(passes) => {
                    if told.is_none() {
                        told = Some(NotifiedWait::begin(&silence.message));
                    }
                    tokio::time::sleep(PAUSE).await;
                }
                found => {
                    if let Some(told) = told.filter(|_| found.is_ok()) {
                        told.answered();
                    }
                    return found;
                }
            }
        }
    }

    /// Connects to the session of the Task, and finds it.
    async fn far(&self) -> Result<(AnyClient, TaskKey), Failure> {
        let key = self.at.key(&self.task)?;
        let client = self.at.cluster.caller().await?.client(&key.session_id).await?;
        let key = names::find(&client, key).await?;
        Ok((client, key))
    }
}
