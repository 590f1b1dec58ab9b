//! `tenure step cancel`, `reopen`, `answer`.

use clap::Args;
use tenure_core::Command;
use tenure_core::id::StepId;
use tenure_core::patch::Operation;
use tenure_sdk::client::answering;

use super::{OnTask, Reason};
use crate::cli::exit::{Exit, Failure};

/// Cancel or reopen a step.
#[derive(Debug, Args)]
pub(crate) struct StepArgs {
    #[command(flatten)]
    on: OnTask,

    /// Id of the step
    #[arg(value_name = "STEP_ID")]
    step: StepId,

    #[command(flatten)]
    why: Reason,
}

/// Answer a step that asked for input.
#[derive(Debug, Args)]
pub(crate) struct AnswerArgs {
    #[command(flatten)]
    on: OnTask,

    /// Id of the step
    #[arg(value_name = "STEP_ID")]
    step: StepId,

    /// The answer
    #[arg(value_name = "TEXT")]
    text: String,
}

/// Cancels a Step that nobody is at work on.
pub(crate) fn cancel(args: &StepArgs) -> Result<Exit, Failure> {
    let cancel = Operation::CancelStep { reason: args.why.input(), step_id: args.step.clone() };
    args.on.order(Command::TaskUpdate { operations: vec![cancel] }, false)
}

/// Goes on with a blocked or failed Step.
pub(crate) fn reopen(args: &StepArgs) -> Result<Exit, Failure> {
    let (reason, step_id) = (args.why.input(), args.step.clone());
    let reopen = Operation::ReopenStep { input_refs: Vec::new(), reason, step_id };
    args.on.order(Command::TaskUpdate { operations: vec![reopen] }, false)
}

/// Goes on with a Step and gives it an answer.
pub(crate) fn answer(args: &AnswerArgs) -> Result<Exit, Failure> {
    let operations = vec![answering(args.step.clone(), &args.text)?];
    args.on.order(Command::TaskUpdate { operations }, false)
}
