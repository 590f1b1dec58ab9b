//! The options that say where Tasks are.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::Args;
use tenure_core::id::{SessionId, TaskId};
use tenure_local::check_real_dir;
use tenure_ports::journal::TaskKey;

use super::cluster::LookArgs;
use super::gateway::is_typed;
use crate::answer::{Exit, Failure, Format};

/// The default directory.
const DEFAULT: &str = ".tenure";
/// The name of the folder of [`files_of`].
const FILES: &str = "files";

/// The folder of a data directory in which commands leave what they print. Such a directory may come from elsewhere, so
/// the folder must be no link.
pub(crate) fn files_of(data: &Path) -> Result<PathBuf, Failure> {
    let files = data.join(FILES);
    match check_real_dir(&files) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(Failure::cannot(format_args!("use {}", files.display()))(error))
        }
        _ => Ok(files),
    }
}

/// The variable that names a directory.
const VARIABLE: &str = "TENURE_DATA";

/// Whether the environment names this directory: then nobody has typed it.
pub(crate) fn is_of_environment(data: &Path) -> bool {
    !is_typed(&data.to_string_lossy(), VARIABLE)
}

/// Where Tasks are kept.
#[derive(Debug, Clone, Args)]
pub(crate) struct DataDir {
    /// Directory that keeps the tasks
    #[arg(long = "data", value_name = "DIR", env = VARIABLE, default_value = DEFAULT)]
    pub(crate) path: PathBuf,
}

/// A session of a directory or of a cluster.
#[derive(Debug, Clone, Args)]
pub(crate) struct PlaceArgs {
    /// Directory that keeps the tasks [default: .tenure, unless --nats or --http names a cluster]
    #[arg(long = "data", value_name = "DIR", env = VARIABLE)]
    pub(crate) data: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) cluster: LookArgs,

    /// Session to look in
    #[arg(long, value_name = "NAME", env = "TENURE_SESSION", default_value = "default")]
    pub(crate) session: SessionId,
}

/// Where to look, and how to answer.
#[derive(Debug, Clone, Args)]
pub(crate) struct ViewArgs {
    #[command(flatten)]
    pub(crate) at: PlaceArgs,

    /// How to write the answer
    #[arg(long, short = 'o', value_enum, value_name = "FORMAT", default_value_t)]
    pub(crate) output: Format,
}

/// One Task.
#[derive(Debug, Clone, Args)]
pub(crate) struct OfTask {
    /// Id of the task, or SESSION/ID, or `last` for the newest; to look at one, how only it begins
    #[arg(value_name = "TASK_ID")]
    task: String,

    #[command(flatten)]
    pub(crate) look: ViewArgs,
}

impl PlaceArgs {
    /// Whether to use a cluster, over NATS or through a gateway, and no directory. What is typed goes before what
    /// the environment says, and after that a directory goes before a cluster.
    pub(crate) fn is_cluster(&self) -> bool {
        match &self.data {
            Some(data) => is_of_environment(data) && self.cluster.is_typed(),
            None => self.cluster.is_given(),
        }
    }

    /// The directory, if no cluster is used.
    pub(crate) fn dir(&self) -> &Path {
        self.data.as_deref().unwrap_or_else(|| Path::new(DEFAULT))
    }

    /// The Task that `text` names: `TASK_ID` in the session of the options, or `SESSION/TASK_ID`.
    pub(crate) fn key(&self, text: &str) -> Result<TaskKey, Failure> {
        let bad = |error| Failure::caused(Exit::Usage, &error);
        let (session_id, task) = match text.split_once('/') {
            Some((session, task)) => (SessionId::new(session).map_err(bad)?, task),
            None => (self.session.clone(), text),
        };
        Ok(TaskKey { session_id, task_id: TaskId::new(task).map_err(bad)? })
    }

    /// The command that waits for the end of a Task of this name.
    pub(crate) fn waits_on(&self, name: impl std::fmt::Display) -> String {
        let place = match &self.data {
            Some(data) if !self.is_cluster() => format!(" --data {}", data.display()),
            _ => self.cluster.told(),
        };
        format!("tenure task wait {name}{place}")
    }

    /// The options with which another command uses the same place.
    pub(crate) fn told(&self) -> String {
        let mut at = String::new();
        if self.is_cluster() {
            at.push_str(&self.cluster.hinted());
        } else if let Some(data) = &self.data {
            at.push_str(&format!(" --data {}", data.display()));
        }
        if self.session.as_str() != "default" {
            at.push_str(&format!(" --session {}", self.session));
        }
        at
    }
}

impl OfTask {
    pub(crate) fn key(&self) -> Result<TaskKey, Failure> {
        self.look.at.key(&self.task)
    }
}

/// The `tenure run` command with this directory and session.
pub(super) fn run_from_text(dir: &Path, session: &SessionId) -> String {
    let mut at = String::new();
    if dir != Path::new(DEFAULT) {
        at.push_str(&format!(" --data {}", dir.display()));
    }
    if session.as_str() != "default" {
        at.push_str(&format!(" --session {session}"));
    }
    at
}

/// The command that goes on with a Task of a directory on which no process is at work.
pub(super) fn resume(dir: &Path, key: &TaskKey) -> String {
    let at = run_from_text(dir, &key.session_id);
    format!("tenure run --resume={}{at}", key.task_id)
}
