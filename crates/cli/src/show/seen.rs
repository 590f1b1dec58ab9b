//! What a display gets of a running Task, and the trait of displays.

use std::time::Duration;

use tenure_core::Commit;
use tenure_core::view::{Stage, View};

use crate::answer::{Failure, output};

/// A commit that has become durable, and the Task after it.
#[derive(Debug)]
pub(crate) struct SeenCommit<'a> {
    pub(crate) commit: &'a Commit,
    /// Facts that are known only while the commit is applied, one for each event.
    pub(crate) stages: &'a [Stage],
    pub(crate) view: View<'a>,
}

/// A display of a running Task.
pub(crate) trait Show: Send {
    /// Takes a commit. They come in order, each once.
    fn commit(&mut self, seen: &SeenCommit<'_>) -> Result<(), Failure>;

    /// Called when all commits that are there have been given.
    fn flush(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// How often to call [`tick`](Self::tick).
    fn every(&self) -> Option<Duration> {
        None
    }

    /// Called when time has passed.
    fn tick(&mut self, _view: &View<'_>) {}

    /// Shows a line that is not about a commit.
    fn say(&mut self, line: &str) {
        output::say(line);
    }

    /// Called at any end: clears what is not to stay on the terminal.
    fn leave(&mut self) {}
}
