//! `tenure step …`: the Steps of a Task.

mod change;
mod get;
mod list;
mod rows;

use clap::Subcommand;

pub(crate) use self::get::value;
pub(crate) use self::rows::step_rows;
use crate::answer::{Exit, Failure};

/// Only the worker that holds a Step can release it (`release_step`), because only that worker
/// knows that it has stopped working on it.
const RELEASE: &str = "\
To take a step from its worker and give it out again: `step block`, then `step reopen`. To have its
worker stop of its own accord, and the step fail: `runs cancel`; to send the worker away: `worker drain`.";

/// Steps.
#[derive(Debug, Subcommand)]
#[command(after_help = RELEASE)]
pub(crate) enum StepCommand {
    /// List the steps of a task, in the order they were made
    List(list::ListArgs),
    /// Show a step with its attempts, its input and what came of it
    #[command(visible_alias = "show")]
    Get(get::GetArgs),
    /// Say that a step waits for something; whoever is at work on it is stopped
    Block(change::BlockArgs),
    /// Complete a step in its worker's place, a blocked or failed one too; whoever is at work on it is
    /// stopped
    Complete(change::CompleteArgs),
    /// Fail a step in its worker's place; whoever is at work on it is stopped
    Fail(change::StepArgs),
    /// Settle what a completed step left open: the facts of its peer, artifacts that were announced
    Settle(change::SettleArgs),
    /// Cancel a step that nobody is at work on
    Cancel(change::StepArgs),
    /// Go on with a blocked or failed step
    Reopen(change::StepArgs),
    /// Answer a step that asked for input, and go on with it
    Answer(change::AnswerArgs),
    /// Only its worker can: says what to do instead
    #[command(hide = true)]
    Release {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
        _rest: Vec<String>,
    },
}

pub(crate) fn run(command: StepCommand) -> Result<Exit, Failure> {
    match command {
        StepCommand::List(args) => list::run(&args),
        StepCommand::Get(args) => get::run(&args),
        StepCommand::Block(args) => change::block(&args),
        StepCommand::Complete(args) => change::complete(&args),
        StepCommand::Fail(args) => change::fail(&args),
        StepCommand::Settle(args) => change::settle_facts(&args),
        StepCommand::Cancel(args) => change::cancel(&args),
        StepCommand::Reopen(args) => change::reopen(&args),
        StepCommand::Answer(args) => change::answer(&args),
        StepCommand::Release { .. } => {
            let message = "only the worker that holds a step releases it";
            Err(Failure::new(Exit::Usage, message).help(RELEASE.replace('\n', " ")))
        }
    }
}
