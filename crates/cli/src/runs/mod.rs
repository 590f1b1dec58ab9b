//! `tenure runs …`: the Runs of a Task.

mod cancel;
mod get;
mod list;

use clap::Subcommand;

use crate::answer::{Exit, Failure};

/// Runs.
#[derive(Debug, Subcommand)]
pub(crate) enum RunsCommand {
    /// List the runs of a task, oldest first: dispatched and active ones
    List(list::ListArgs),
    /// Show a run
    #[command(visible_alias = "show")]
    Get(get::GetArgs),
    /// Take a run back, and stop its worker if it has one
    Cancel(cancel::CancelArgs),
}

pub(crate) fn run(command: RunsCommand) -> Result<Exit, Failure> {
    match command {
        RunsCommand::List(args) => list::run(&args),
        RunsCommand::Get(args) => get::run(&args),
        RunsCommand::Cancel(args) => cancel::run(&args),
    }
}
