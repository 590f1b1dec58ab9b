//! What the looking commands can be told.

use clap::{Args, ValueEnum};
use tenure_core::id::{SessionId, TaskId};
use tenure_ports::journal::TaskKey;

use crate::cli::DataDir;
use crate::cli::exit::{Exit, Failure};

/// How an answer is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    #[default]
    Table,
    /// For programs: the field names of the API, times in epoch milliseconds
    Json,
}

/// Where to look, and how to answer.
#[derive(Debug, Clone, Args)]
pub(crate) struct Place {
    #[command(flatten)]
    pub(super) data: DataDir,

    /// Session to look in
    #[arg(long, value_name = "NAME", env = "TENURE_SESSION", default_value = "default")]
    pub(super) session: SessionId,

    /// How to write the answer
    #[arg(long, short = 'o', value_enum, value_name = "FORMAT", default_value_t)]
    pub(super) output: Format,
}

/// One Task.
#[derive(Debug, Clone, Args)]
pub(crate) struct OfTask {
    /// Id of the task, or SESSION/ID
    #[arg(value_name = "TASK_ID")]
    pub(super) task: String,

    #[command(flatten)]
    pub(super) place: Place,
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
        let bad = |error| Failure::caused(Exit::Usage, &error);
        let (session_id, task) = match text.split_once('/') {
            Some((session, task)) => (SessionId::new(session).map_err(bad)?, task),
            None => (self.session.clone(), text),
        };
        Ok(TaskKey { session_id, task_id: TaskId::new(task).map_err(bad)? })
    }

    pub(super) fn is_json(&self) -> bool {
        self.output == Format::Json
    }
}

impl OfTask {
    pub(super) fn key(&self) -> Result<TaskKey, Failure> {
        self.place.key(&self.task)
    }
}

/// A status by its stable name; the error names them all.
pub(super) fn task_status(text: &str) -> Result<tenure_core::status::TaskStatus, String> {
    use tenure_core::status::TaskStatus;
    TaskStatus::from_name(text).ok_or_else(|| one_of(TaskStatus::ALL.iter().map(|s| s.as_str())))
}

/// A status by its stable name; the error names them all.
pub(super) fn step_status(text: &str) -> Result<tenure_core::status::StepStatus, String> {
    use tenure_core::status::StepStatus;
    StepStatus::from_name(text).ok_or_else(|| one_of(StepStatus::ALL.iter().map(|s| s.as_str())))
}

fn one_of<'a>(names: impl Iterator<Item = &'a str>) -> String {
    format!("one of: {}", names.collect::<Vec<_>>().join(", "))
}
