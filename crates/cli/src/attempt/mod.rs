//! `tenure attempt …`: the Attempts of a Task.

mod get;
mod list;

use clap::Subcommand;

pub(crate) use self::list::attempt_rows;
use crate::answer::{Exit, Failure};

/// Attempts.
#[derive(Debug, Subcommand)]
pub(crate) enum AttemptCommand {
    /// List the attempts of a task, oldest first
    List(list::ListArgs),
    /// Show an attempt: what it was given, what came of it
    #[command(visible_alias = "show")]
    Get(get::GetArgs),
}

pub(crate) fn run(command: AttemptCommand) -> Result<Exit, Failure> {
    match command {
        AttemptCommand::List(args) => list::run(&args),
        AttemptCommand::Get(args) => get::run(&args),
    }
}
