//! `tenure task …`

mod command;
mod explain;
mod frontier;
mod get;
mod list;
mod watch;

pub(super) use get::{Page, print_task};

use clap::Subcommand;
use tenure_core::Command;

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
    /// Show what happens to a task of a cluster, until it has ended
    Watch(watch::WatchArgs),
    /// Wait until a task of a cluster has ended
    Wait(watch::WaitArgs),
    /// Cancel a task of a cluster: steps at work are asked to stop
    Cancel(command::CloseArgs),
    /// End a task of a cluster as failed: steps at work are asked to stop
    Fail(command::CloseArgs),
    /// Give out no more steps of a task of a cluster
    Pause(command::WhyArgs),
    /// Go on with a paused task of a cluster
    Resume(command::WhyArgs),
    /// Try the failed steps of a task of a cluster again, in a task that has ended too
    Retry(command::RetryArgs),
}

pub(super) fn run(command: TaskCommand) -> Result<Exit, Failure> {
    match command {
        TaskCommand::List(args) => list::run(&args),
        TaskCommand::Get(args) => get::run(&args),
        TaskCommand::Explain(args) => explain::run(&args),
        TaskCommand::Graph(args) => graph::run(&args),
        TaskCommand::Watch(args) => watch::watch(&args),
        TaskCommand::Wait(args) => watch::wait(&args),
        TaskCommand::Cancel(args) => command::close(&args, Command::TaskCancel),
        TaskCommand::Fail(args) => command::close(&args, Command::TaskFail),
        TaskCommand::Pause(args) => command::why(&args, Command::PauseTask),
        TaskCommand::Resume(args) => command::why(&args, Command::ResumeTask),
        TaskCommand::Retry(args) => command::retry(&args),
    }
}
