//! The life of a Task: `tenure task submit`, `pause`, `block`, `complete`, `cancel`, `retry` and so on.

use clap::Args;
use tenure_core::Command;
use tenure_core::command::{Close, Complete, RetrySteps, Why};
use tenure_core::id::{StepId, TaskId};
use tenure_core::patch::ReasonInput;

use super::{OnTask, Reason};
use crate::cli::exit::{Exit, Failure};

/// What takes a reason and nothing else.
#[derive(Debug, Args)]
pub(crate) struct WhyArgs {
    #[command(flatten)]
    on: OnTask,

    #[command(flatten)]
    why: Reason,
}

/// End a task.
#[derive(Debug, Args)]
pub(crate) struct CloseArgs {
    #[command(flatten)]
    on: OnTask,

    #[command(flatten)]
    why: Reason,

    /// Wait until its steps have stopped and the task has ended
    #[arg(long, short = 'w')]
    wait: bool,
}

/// End a task well.
#[derive(Debug, Args)]
pub(crate) struct CompleteArgs {
    #[command(flatten)]
    on: OnTask,

    /// What came of it, in a few words
    #[arg(long, value_name = "TEXT")]
    result: Option<String>,
}

/// Try steps again, or a whole task.
#[derive(Debug, Args)]
pub(crate) struct RetryArgs {
    #[command(flatten)]
    on: OnTask,

    #[command(flatten)]
    why: Reason,

    /// Only this step (repeatable) [default: all that failed]
    #[arg(long = "step", value_name = "STEP_ID")]
    steps: Vec<StepId>,

    /// Make a task that has ended again, as this one: the same steps, all of them pending
    #[arg(long = "as", value_name = "NEW_TASK_ID", conflicts_with = "steps")]
    new: Option<TaskId>,
}

/// Ends a Task.
pub(crate) fn close(args: &CloseArgs, command: fn(Close) -> Command) -> Result<Exit, Failure> {
    let close = Close { reason: args.why.input(), wait: Some(false) };
    args.on.order(command(close), args.wait)
}

/// Commands what takes a reason and nothing else.
pub(crate) fn why(args: &WhyArgs, command: fn(Why) -> Command) -> Result<Exit, Failure> {
    args.on.order(command(Why { reason: args.why.input() }), false)
}

/// Ends a Task well.
pub(crate) fn complete(args: &CompleteArgs) -> Result<Exit, Failure> {
    let complete = Complete { result_summary: args.result.clone(), ..Complete::default() };
    args.on.order(Command::TaskComplete(complete), false)
}

/// Tries failed Steps again.
pub(crate) fn retry(args: &RetryArgs) -> Result<Exit, Failure> {
    let asked =
        || ReasonInput { code: None, details: None, message: String::new(), retryable: None };
    let reason = args.why.input().unwrap_or_else(asked);
    if let Some(new) = &args.new {
        return args.on.retry_ended(new, reason);
    }
    let step_ids = (!args.steps.is_empty()).then(|| args.steps.clone());
    args.on.order(Command::RetryTask(RetrySteps { reason, step_ids }), false)
}
