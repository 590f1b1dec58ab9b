//! Selects by `-o` how to show a Task while it runs, and when it has ended.

use std::time::Instant;

use clap::ValueEnum;
use tenure_core::Task;
use tenure_core::id::Millis;
use tenure_core::status::TaskStatus;
use tenure_local::PublishedMark;

use super::report::RunReport;
use super::seen::{SeenCommit, Show};
use super::{jsonl, live, plain, table};
use crate::answer::{Exit, Failure, Paint, Stream, output};

/// What goes to stdout.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// Progress while it runs and a table at the end, for people
    #[default]
    Table,
    /// One JSON object at the end
    Json,
    /// One JSON line for each public event, as it happens
    Jsonl,
    /// Nothing; the exit code tells
    Quiet,
}

/// The display for this format, and for a terminal or a file. `mark` stores which events were
/// published.
pub(crate) fn show_as(format: OutputFormat, mark: Option<PublishedMark>) -> Box<dyn Show> {
    match format {
        OutputFormat::Jsonl => Box::new(jsonl::EventWriter::new(mark)),
        OutputFormat::Json | OutputFormat::Quiet => Box::new(QuietOutput),
        OutputFormat::Table if Stream::Stderr.is_terminal() => Box::new(live::Live::new()),
        OutputFormat::Table => Box::new(plain::Plain::new()),
    }
}

/// Shows nothing while the Task runs: the output comes at the end.
#[derive(Debug)]
struct QuietOutput;

impl Show for QuietOutput {
    fn commit(&mut self, _: &SeenCommit<'_>) -> Result<(), Failure> {
        Ok(())
    }
}

/// Prints the state of a Task at the end of this command.
pub(crate) fn print_end(format: OutputFormat, task: &Task, begun: Instant) -> Result<(), Failure> {
    let view = task.durable();
    let elapsed = Millis::try_from(begun.elapsed().as_millis()).unwrap_or(Millis::MAX);
    match format {
        OutputFormat::Table => {
            output::print(table::end(&view, elapsed, Paint::of(Stream::Stdout)))?
        }
        OutputFormat::Json => output::print_json(&RunReport::of(&view, elapsed.unsigned_abs()))?,
        OutputFormat::Jsonl | OutputFormat::Quiet => {}
    }
    Ok(())
}

/// The exit code for the end of a Task.
pub(crate) fn exit_of(task: &Task) -> Exit {
    match task.head().status {
        TaskStatus::Completed => Exit::Ok,
        _ => Exit::TaskFailed,
    }
}
