//! What is shown of a Task that runs, and whoever shows it.

use std::time::Duration;

use tenure_core::Commit;
use tenure_core::view::{Stage, View};

use crate::cli::answer::{Failure, output};

/// A commit that has become durable, and the Task after it.
#[derive(Debug)]
pub(crate) struct SeenCommit<'a> {
    pub(crate) commit: &'a Commit,
    /// What only the moment knew, one for each event.
    pub(crate) stages: &'a [Stage],
    pub(crate) view: View<'a>,
}

/// A way to show a Task that runs.
pub(crate) trait Show: Send {
    /// A commit, in order, each once.
    fn commit(&mut self, seen: &SeenCommit<'_>) -> Result<(), Failure>;

    /// All commits that are there have been given.
    fn flush(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// How often [`tick`](Self::tick) is wanted.
    fn every(&self) -> Option<Duration> {
        None
    }

    /// Time has passed.
    fn tick(&mut self, _view: &View<'_>) {}

    /// A line of somebody else.
    fn say(&mut self, line: &str) {
        output::say(line);
    }

    /// The end, whatever it is: clears what is not to stay.
    fn leave(&mut self) {}
}
