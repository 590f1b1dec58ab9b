//! What a data directory was found to hold when it was opened, for whoever starts a scheduler on it.

use std::fmt;
use std::path::PathBuf;

use tenure_ports::journal::{ReadError, TaskKey};

/// What opening found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenReport {
    /// All Tasks, damaged ones included.
    pub tasks: usize,
    /// Those that have not ended.
    pub live: usize,
    /// Logs whose ends were read, as the index did not say enough about them.
    pub looked_into: usize,
    /// Torn tails that were cut off: writes that a crash broke off and that nobody was told had succeeded.
    pub repairs: Vec<Repair>,
    /// Logs that cannot be used, each for its own Task alone.
    pub damaged: Vec<Damage>,
    /// What lies where logs should be, and is none.
    pub ignored: Vec<PathBuf>,
}

/// A torn tail that was cut off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repair {
    /// The log. If all of it was torn, the file is gone.
    pub file: PathBuf,
    /// Where it ends now.
    pub offset: u64,
    /// How much was cut.
    pub bytes: u64,
}

/// A log that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The Task, as far as the log says it.
    pub task: TaskKey,
    /// What is wrong.
    pub error: ReadError,
}

impl fmt::Display for Repair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, offset, bytes } = self;
        write!(f, "{}: cut {bytes} bytes of a torn write at byte {offset}", file.display())
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "task {} cannot be used: {}", self.task, self.error)
    }
}

impl fmt::Display for OpenReport {
    /// A line with the totals, and one for each finding that a person may want to check.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tasks, {} live", self.tasks, self.live)?;
        self.repairs.iter().try_for_each(|repair| write!(f, "\n{repair}"))?;
        self.damaged.iter().try_for_each(|damage| write!(f, "\n{damage}"))?;
        self.ignored.iter().try_for_each(|path| write!(f, "\n{}: not a log", path.display()))
    }
}
