//! `tenure dispatch` and `tenure runs cancel`.

use clap::Args;
use tenure_core::Command;
use tenure_core::command::{Dispatch, RunAndWhy};
use tenure_core::id::{PoolId, RunId, StepId};
use tenure_core::status::EndReason;

use super::super::inspect::args::Shape;
use super::super::inspect::human;
use super::{Done, Key, OnTask, Reason, Told, Until};
use crate::cli::exit::{Exit, Failure};
use crate::cli::output;

/// Dispatch a run.
#[derive(Debug, Args)]
pub(crate) struct DispatchArgs {
    #[command(flatten)]
    on: OnTask,

    /// Pool whose worker takes it
    #[arg(long, value_name = "NAME", default_value = tenure::embedded::DEFAULT_POOL)]
    pool: PoolId,

    /// Step that it may see and claim, and no other (repeatable) [default: all of its pool]
    #[arg(long = "step", value_name = "STEP_ID", value_delimiter = ',')]
    steps: Vec<StepId>,

    /// What the worker should know
    #[arg(long, value_name = "TEXT")]
    instructions: Option<String>,

    /// Wait until the run has ended; exit code 1 if not as `completed` or `no_step_claimed`
    #[arg(long, short = 'w')]
    wait: bool,
}

/// Cancel a run.
#[derive(Debug, Args)]
pub(crate) struct CancelArgs {
    #[command(flatten)]
    on: OnTask,

    /// Id of the run
    #[arg(value_name = "RUN_ID")]
    run: RunId,

    #[command(flatten)]
    why: Reason,
}

/// Dispatches a Run.
pub(crate) fn dispatch(args: &DispatchArgs) -> Result<Exit, Failure> {
    let dispatch = Dispatch {
        allowed_step_ids: (!args.steps.is_empty()).then(|| args.steps.clone()),
        bindings: None,
        instructions: args.instructions.clone(),
        wait: Some(args.wait),
        worker_pool_id: args.pool.clone(),
    };
    if args.wait && !args.on.of.place.is_cluster() {
        let message = "--wait needs a cluster: in a directory no worker is there to take the run";
        return Err(Failure::new(Exit::Usage, message));
    }
    let until = if args.wait { Until::Answered } else { Until::Done };
    let (key, summary) = args.on.send(Command::DispatchWorker(dispatch), until)?;
    let done = Done::of(&summary, false);
    let run = done.run_id.map_or_else(String::new, |run| run.to_string());
    let end = done.run_end.map_or_else(String::new, |end| format!("  {}", end.end_reason));
    let result = done.run_end.and_then(|end| end.result.as_deref()).unwrap_or_default();
    let result = human::indented(result, "  ");
    let told = Told { key: Key::of(&key), done };
    args.on.of.place.output.answer(&told, Shape::one("run_id"), || {
        output::print(format_args!("{key}  run {run}{end}\n{result}"))
    })?;
    Ok(match told.done.run_end.map(|end| end.end_reason) {
        None | Some(EndReason::Completed | EndReason::NoStepClaimed) => Exit::Ok,
        Some(_) => Exit::TaskFailed,
    })
}

/// Takes a Run back.
pub(crate) fn cancel(args: &CancelArgs) -> Result<Exit, Failure> {
    let cancel = RunAndWhy { reason: args.why.input(), run_id: args.run };
    args.on.order(Command::CancelRun(cancel), false)
}
