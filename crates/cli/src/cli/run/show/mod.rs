//! What is shown while a Task runs, in each format.

mod jsonl;
mod live;
mod news;
mod plain;

use std::time::Duration;

use tenure_core::Commit;
use tenure_core::view::{Stage, View};
use tenure_local::Published;

use super::args::Format;
use crate::cli::answer::Failure;
use crate::cli::answer::output::{self, Stream};

/// A commit that has become durable, and the Task after it.
#[derive(Debug)]
pub(super) struct Seen<'a> {
    pub(super) commit: &'a Commit,
    /// What only the moment knew, one for each event.
    pub(super) stages: &'a [Stage],
    pub(super) view: View<'a>,
}

/// A way to show a Task that runs.
pub(super) trait Show: Send {
    /// A commit, in order, each once.
    fn commit(&mut self, seen: &Seen<'_>) -> Result<(), Failure>;

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

/// The way to show that fits the format and who reads. `mark` is where it notes what it published.
pub(super) fn of(format: Format, mark: Option<Published>) -> Box<dyn Show> {
    match format {
        Format::Jsonl => Box::new(jsonl::Lines::new(mark)),
        Format::Json | Format::Quiet => Box::new(Nothing),
        Format::Table if Stream::Stderr.is_terminal() => Box::new(live::Live::new()),
        Format::Table => Box::new(plain::Plain::new()),
    }
}

/// Shows nothing: what there is to say is said at the end.
#[derive(Debug)]
struct Nothing;

impl Show for Nothing {
    fn commit(&mut self, _: &Seen<'_>) -> Result<(), Failure> {
        Ok(())
    }
}
