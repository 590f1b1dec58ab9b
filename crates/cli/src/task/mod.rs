//! `tenure task …`: the commands on Tasks.

mod board;
mod events;
mod explain;
mod follow;
mod get;
mod graph;
mod life;
mod link;
mod list;
mod patch;
mod views;
mod wait;
mod watch;

use clap::Subcommand;
use tenure_core::Command;

pub(crate) use self::explain::describe;
pub(crate) use self::follow::until_stopped;
pub(crate) use self::get::{TaskNotes, print_task};
pub(crate) use self::watch::{WatchArgs, run as watch};
use crate::answer::{Exit, Failure};
use crate::place::OfTask;

/// Tasks.
#[derive(Debug, Subcommand)]
pub(crate) enum TaskCommand {
    /// List tasks: live ones, oldest first, then ended ones, newest first
    List(list::ListArgs),
    /// Show a task with its steps
    #[command(visible_alias = "show")]
    Get(OfTask),
    /// Say why a task, or one of its steps, is not running, and what would change it
    Explain(explain::ExplainArgs),
    /// Print tasks in few words, for the context of a model
    Board(board::BoardArgs),
    /// Show all live tasks of a session at once
    Views(views::ViewsArgs),
    /// Draw the steps and what they wait for
    Graph(graph::GraphArgs),
    /// Show what happens to a task, until it has ended
    Watch(WatchArgs),
    /// Print the public events of a task, a JSON line each, until it has ended
    Events(events::EventsArgs),
    /// Wait until a task has ended
    Wait(wait::WaitArgs),
    /// Change a task while it runs, all operations of a file or none; or show what they would do
    Patch(patch::PatchArgs),
    /// Let a draft begin
    Submit(life::WhyArgs),
    /// Give out no more steps
    Pause(life::WhyArgs),
    /// Go on with a paused task
    Resume(life::WhyArgs),
    /// Say that a task waits for something: nothing is given out until it is reopened
    Block(life::WhyArgs),
    /// Go on with a blocked task
    Reopen(life::WhyArgs),
    /// End a task well
    Complete(life::CompleteArgs),
    /// Cancel a task: steps at work are asked to stop
    Cancel(life::CloseArgs),
    /// End a task as failed: steps at work are asked to stop
    Fail(life::CloseArgs),
    /// Try failed steps again, or make a task that has ended again
    Retry(life::RetryArgs),
    /// Put an ended task away: lists leave it out
    Archive(life::WhyArgs),
    /// Relate a task to another
    Link(link::LinkArgs),
    /// Take a relation back
    Unlink(link::UnlinkArgs),
}

pub(crate) fn run(command: TaskCommand) -> Result<Exit, Failure> {
    match command {
        TaskCommand::List(args) => list::run(&args),
        TaskCommand::Get(args) => get::run(&args),
        TaskCommand::Explain(args) => explain::run(&args),
        TaskCommand::Board(args) => board::run(&args),
        TaskCommand::Views(args) => views::run(&args),
        TaskCommand::Graph(args) => graph::run(&args),
        TaskCommand::Watch(args) => watch(&args),
        TaskCommand::Events(args) => events::run(&args),
        TaskCommand::Wait(args) => wait::run(&args),
        TaskCommand::Patch(args) => patch::run(&args),
        TaskCommand::Submit(args) => life::why(&args, Command::SubmitTask),
        TaskCommand::Pause(args) => life::why(&args, Command::PauseTask),
        TaskCommand::Resume(args) => life::why(&args, Command::ResumeTask),
        TaskCommand::Block(args) => life::why(&args, Command::BlockTask),
        TaskCommand::Reopen(args) => life::why(&args, Command::ReopenTask),
        TaskCommand::Complete(args) => life::complete(&args),
        TaskCommand::Cancel(args) => life::close(&args, Command::TaskCancel),
        TaskCommand::Fail(args) => life::close(&args, Command::TaskFail),
        TaskCommand::Retry(args) => life::retry(&args),
        TaskCommand::Archive(args) => life::why(&args, Command::ArchiveTask),
        TaskCommand::Link(args) => link::link(&args),
        TaskCommand::Unlink(args) => link::unlink(&args),
    }
}
