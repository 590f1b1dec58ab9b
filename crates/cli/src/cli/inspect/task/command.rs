//! Commands on a Task of a cluster: `tenure task cancel`, `fail`, `pause`, `resume`, `retry`.

use clap::Args;
use serde::Serialize;
use tenure_core::Command;
use tenure_core::command::{Close, RetrySteps, Why};
use tenure_core::id::{SessionId, StepId, TaskId};
use tenure_core::patch::ReasonInput;
use tenure_core::view::write::Header;
use tenure_core::view::{Normal, WriteSummary};
use tenure_ports::journal::TaskKey;

use super::super::args::{FarTask, Format};
use crate::cli::exit::{Exit, Failure};
use crate::cli::output;

/// What every command is told.
#[derive(Debug, Args)]
pub(crate) struct WhyArgs {
    #[command(flatten)]
    of: FarTask,

    /// Why, for people and for the log
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,

    /// How to write the answer
    #[arg(long, short = 'o', value_enum, value_name = "FORMAT", default_value_t)]
    output: Format,
}

/// End a task.
#[derive(Debug, Args)]
pub(crate) struct CloseArgs {
    #[command(flatten)]
    why: WhyArgs,

    /// Wait until its steps have stopped and the task has ended
    #[arg(long, short = 'w')]
    wait: bool,
}

/// Try steps again.
#[derive(Debug, Args)]
pub(crate) struct RetryArgs {
    #[command(flatten)]
    why: WhyArgs,

    /// Only this step (repeatable) [default: all that failed]
    #[arg(long = "step", value_name = "STEP_ID")]
    steps: Vec<StepId>,
}

/// What is answered.
#[derive(Serialize)]
struct Done<'a> {
    task_id: &'a TaskId,
    session_id: &'a SessionId,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Normal>,
    version: u64,
    event_ids: &'a [String],
}

/// Ends a Task.
pub(super) fn close(args: &CloseArgs, command: fn(Close) -> Command) -> Result<Exit, Failure> {
    let close = Close { reason: args.why.reason(), wait: Some(false) };
    send(&args.why, command(close), args.wait)
}

/// Commands what takes a reason and nothing else.
pub(super) fn why(args: &WhyArgs, command: fn(Why) -> Command) -> Result<Exit, Failure> {
    send(args, command(Why { reason: args.reason() }), false)
}

/// Tries failed Steps again.
pub(super) fn retry(args: &RetryArgs) -> Result<Exit, Failure> {
    let asked =
        || ReasonInput { code: None, details: None, message: String::new(), retryable: None };
    let reason = args.why.reason().unwrap_or_else(asked);
    let step_ids = (!args.steps.is_empty()).then(|| args.steps.clone());
    send(&args.why, Command::RetryTask(RetrySteps { reason, step_ids }), false)
}

impl WhyArgs {
    fn reason(&self) -> Option<ReasonInput> {
        let message = self.reason.clone()?;
        Some(ReasonInput { code: None, details: None, message, retryable: None })
    }
}

fn send(args: &WhyArgs, command: Command, wait: bool) -> Result<Exit, Failure> {
    let key = args.of.key()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let summary = runtime.block_on(async {
        let client = args.of.connect().await?;
        let summary = client.command(&key.task_id, command).await?;
        if wait {
            client.wait_for_end(&key.task_id).await?;
        }
        Ok::<_, Failure>(summary)
    })?;
    print(&key, &summary, wait, args.output)?;
    Ok(Exit::Ok)
}

fn print(
    key: &TaskKey,
    summary: &WriteSummary,
    has_ended: bool,
    format: Format,
) -> Result<(), Failure> {
    let status = match &summary.task {
        Header::Summary(task) if !has_ended => Some(task.status),
        _ => None, // It has changed since.
    };
    match format {
        Format::Json => output::print_json(&Done {
            task_id: &key.task_id,
            session_id: &key.session_id,
            status,
            version: summary.version,
            event_ids: &summary.event_ids,
        })?,
        Format::Table => {
            let status = status.map_or_else(|| "has ended".into(), |status| status.to_string());
            output::print(format_args!("{key}  {status}\n"))?;
        }
    }
    Ok(())
}
