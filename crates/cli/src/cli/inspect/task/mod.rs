//! `tenure task …`

mod explain;
mod frontier;
mod get;
mod list;

pub(super) use get::{Page, print_task};

use clap::Subcommand;

use super::args::OfTask;
use super::graph::{self, GraphArgs};
use crate::cli::exit::{Exit, Failure};

/// Tasks.
#[derive(Debug, Subcommand)]
pub(crate) enum TaskCommand {
    /// List tasks: live ones, oldest first, then ended ones, newest first
    List(list::ListArgs),
    /// Show a task with its steps
    Get(OfTask),
    /// Say why a task, or one of its steps, is not running, and what would change it
    Explain(explain::ExplainArgs),
    /// Draw the steps and what they wait for
    Graph(GraphArgs),
}

pub(super) fn run(command: TaskCommand) -> Result<Exit, Failure> {
    match command {
        TaskCommand::List(args) => list::run(&args),
        TaskCommand::Get(args) => get::run(&args),
        TaskCommand::Explain(args) => explain::run(&args),
        TaskCommand::Graph(args) => graph::run(&args),
    }
}
