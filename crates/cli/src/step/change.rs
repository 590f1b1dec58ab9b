//! `tenure step block`, `complete`, `fail`, `cancel`, `reopen`, `answer`.

use clap::Args;
use tenure_core::Command;
use tenure_core::command::StepReport;
use tenure_core::id::StepId;
use tenure_core::patch::Operation;
use tenure_core::record::{ArtifactInput, RemoteRef, Value};
use tenure_core::status::{StepStatus, WaitKind};
use tenure_sdk::client::answering;

use crate::answer::{Exit, Failure};
use crate::filter::named;
use crate::order::{OnTask, ReasonArgs, artifact};

/// Block a step.
#[derive(Debug, Args)]
pub(crate) struct BlockArgs {
    #[command(flatten)]
    step: StepArgs,

    /// What it waits for: input, permission, resource, dependency, other
    #[arg(long, value_name = "KIND", value_parser = |name: &str| named(name, WaitKind::ALL))]
    waits_for: Option<WaitKind>,
}

/// Complete a step.
#[derive(Debug, Args)]
pub(crate) struct CompleteArgs {
    #[command(flatten)]
    step: StepArgs,

    /// What came of it, as JSON
    #[arg(long, value_name = "JSON", value_parser = json)]
    result: Option<String>,
}

/// A step, and why.
#[derive(Debug, Args)]
pub(crate) struct StepArgs {
    #[command(flatten)]
    on: OnTask,

    /// Id of the step
    #[arg(value_name = "STEP_ID")]
    step: StepId,

    #[command(flatten)]
    why: ReasonArgs,
}

/// Settle what a completed step left open.
#[derive(Debug, Args)]
pub(crate) struct SettleArgs {
    #[command(flatten)]
    on: OnTask,

    /// Id of the step
    #[arg(value_name = "STEP_ID")]
    step: StepId,

    /// The facts of the peer that did the work are here
    #[arg(long)]
    peer: bool,

    /// How an artifact that was announced stands now, as JSON (repeatable)
    #[arg(long, value_name = "JSON", value_parser = artifact)]
    artifact: Vec<ArtifactInput>,
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

fn json(text: &str) -> Result<String, String> {
    serde_json::from_str::<serde::de::IgnoredAny>(text).map_err(|error| error.to_string())?;
    Ok(text.to_owned())
}

/// Reports on a Step as its orchestrator, even while a worker holds it (S20 to S22).
fn settle(args: &StepArgs, mut report: StepReport, to: StepStatus) -> Result<Exit, Failure> {
    (report.status, report.reason) = (Some(to), args.why.input());
    args.on.order(Command::TaskUpdateStep(report), false)
}

/// Blocks a Step.
pub(crate) fn block(args: &BlockArgs) -> Result<Exit, Failure> {
    let mut report = StepReport::on(args.step.step.clone());
    report.wait_kind = args.waits_for;
    settle(&args.step, report, StepStatus::Blocked)
}

/// Completes a Step.
pub(crate) fn complete(args: &CompleteArgs) -> Result<Exit, Failure> {
    let mut report = StepReport::on(args.step.step.clone());
    report.output = args.result.as_ref().map(|json| Value::json(json.as_bytes()));
    settle(&args.step, report, StepStatus::Completed)
}

/// Settles what a completed Step left open (STEP-34).
pub(crate) fn settle_facts(args: &SettleArgs) -> Result<Exit, Failure> {
    let reconciled = RemoteRef { reconciled: true, ..RemoteRef::default() };
    let report = StepReport {
        artifacts: args.artifact.clone(),
        remote: args.peer.then_some(reconciled),
        ..StepReport::on(args.step.clone())
    };
    args.on.order(Command::TaskUpdateStep(report), false)
}

/// Fails a Step.
pub(crate) fn fail(args: &StepArgs) -> Result<Exit, Failure> {
    settle(args, StepReport::on(args.step.clone()), StepStatus::Failed)
}

/// Cancels a Step that no worker holds.
pub(crate) fn cancel(args: &StepArgs) -> Result<Exit, Failure> {
    let cancel = Operation::CancelStep { reason: args.why.input(), step_id: args.step.clone() };
    args.on.order(Command::TaskUpdate { operations: vec![cancel] }, false)
}

/// Reopens a blocked or failed Step.
pub(crate) fn reopen(args: &StepArgs) -> Result<Exit, Failure> {
    let (reason, step_id) = (args.why.input(), args.step.clone());
    let reopen = Operation::ReopenStep { input_refs: Vec::new(), reason, step_id };
    args.on.order(Command::TaskUpdate { operations: vec![reopen] }, false)
}

/// Reopens a Step with an answer.
pub(crate) fn answer(args: &AnswerArgs) -> Result<Exit, Failure> {
    let operations = vec![answering(args.step.clone(), &args.text)?];
    args.on.order(Command::TaskUpdate { operations }, false)
}
