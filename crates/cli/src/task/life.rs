//! The life of a Task: `tenure task submit`, `pause`, `block`, `complete`, `cancel`, `retry` and so on.

use clap::Args;
use tenure_core::Command;
use tenure_core::command::{Close, Complete, RetryEnded, RetrySteps, Why};
use tenure_core::id::{Ref, StepId, TaskId};
use tenure_core::patch::ReasonInput;
use tenure_core::record::{Acceptance, ArtifactInput};
use tenure_core::status::AcceptanceState;
use tenure_ports::journal::TaskKey;

use crate::answer::{Exit, Failure};
use crate::order::{CommandDone, OnTask, ReasonArgs, artifact};

/// What takes a reason and nothing else.
#[derive(Debug, Args)]
pub(crate) struct WhyArgs {
    #[command(flatten)]
    on: OnTask,

    #[command(flatten)]
    why: ReasonArgs,
}

/// End a task.
#[derive(Debug, Args)]
pub(crate) struct CloseArgs {
    #[command(flatten)]
    on: OnTask,

    #[command(flatten)]
    why: ReasonArgs,

    /// How long its workers may take to stop, such as 90s, at most 1h [default: as their steps say]
    #[arg(long, value_name = "DURATION", value_parser = milliseconds)]
    grace: Option<u64>,

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

    /// Criterion of acceptance that is met (repeatable); `task get` has their ids
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    met: Vec<String>,

    /// Criterion of acceptance that is waived (repeatable)
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    waived: Vec<String>,

    /// Evidence that it is done: an address or an id (repeatable)
    #[arg(long, value_name = "REF")]
    evidence: Vec<Ref>,

    /// Artifact of the task, or how one that was announced stands now, as JSON (repeatable)
    #[arg(long, value_name = "JSON", value_parser = artifact)]
    artifact: Vec<ArtifactInput>,
}

/// Try steps again, or a whole task.
#[derive(Debug, Args)]
pub(crate) struct RetryArgs {
    #[command(flatten)]
    on: OnTask,

    #[command(flatten)]
    why: ReasonArgs,

    /// Only this step (repeatable) [default: all that failed]
    #[arg(long = "step", value_name = "STEP_ID")]
    steps: Vec<StepId>,

    /// Make a task that has ended again, as this one: the same steps, all of them to be run
    #[arg(long = "as", value_name = "NEW_TASK_ID", conflicts_with = "steps")]
    new: Option<TaskId>,

    /// How long the new task has, such as 2h [default: as long as the one that has ended had]
    #[arg(long, value_name = "DURATION", value_parser = milliseconds, requires = "new")]
    deadline: Option<u64>,

    /// Take over the steps that are completed and wait for none that is not, instead of running them again
    #[arg(long, requires = "new")]
    keep_completed: bool,
}

/// A duration, in milliseconds.
fn milliseconds(text: &str) -> Result<u64, String> {
    let duration = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    u64::try_from(duration.as_millis()).map_err(|error| error.to_string())
}

/// Ends a Task.
pub(crate) fn close(args: &CloseArgs, command: fn(Close) -> Command) -> Result<Exit, Failure> {
    let close = Close { grace_ms: args.grace, reason: args.why.input(), wait: Some(false) };
    args.on.order(command(close), args.wait)
}

/// Sends a command that takes a reason and nothing else.
pub(crate) fn why(args: &WhyArgs, command: fn(Why) -> Command) -> Result<Exit, Failure> {
    args.on.order(command(Why { reason: args.why.input() }), false)
}

/// Completes a Task.
pub(crate) fn complete(args: &CompleteArgs) -> Result<Exit, Failure> {
    args.on.at(async |session| {
        let mut context = args.on.context()?;
        let mut complete = Complete {
            acceptance: None,
            artifacts: args.artifact.clone(),
            evidence_refs: args.evidence.clone(),
            output: None,
            result_summary: args.result.clone(),
        };
        if !(args.met.is_empty() && args.waived.is_empty()) {
            // The command replaces the whole list, so it holds only if no orchestrator has changed the
            // Task meanwhile.
            let view = session.view().await?;
            context.expected_spec_version.get_or_insert(view.task.spec_version);
            complete.acceptance = Some(args.judge(view.acceptance, session.key())?);
        }
        let summary = session.command(context, Command::TaskComplete(complete)).await?;
        args.on.tell(session.key(), CommandDone::of(&summary))
    })
}

impl CompleteArgs {
    /// The criteria, with those of this command met or waived.
    fn judge(&self, mut all: Vec<Acceptance>, key: &TaskKey) -> Result<Vec<Acceptance>, Failure> {
        for (ids, state) in
            [(&self.met, AcceptanceState::Met), (&self.waived, AcceptanceState::Waived)]
        {
            for id in ids {
                let Some(one) = all.iter_mut().find(|one| one.id == *id) else {
                    let message = format!("task {key} has no criterion of acceptance `{id}`");
                    let help = format!("`tenure task get {key}` shows its criteria");
                    return Err(Failure::new(Exit::Usage, message).help(help));
                };
                one.state = state;
            }
        }
        Ok(all)
    }
}

/// Tries failed Steps again.
pub(crate) fn retry(args: &RetryArgs) -> Result<Exit, Failure> {
    let asked =
        || ReasonInput { code: None, details: None, message: String::new(), retryable: None };
    let reason = args.why.input().unwrap_or_else(asked);
    if let Some(new) = &args.new {
        return args.on.retry_ended(new, |retry_of| RetryEnded {
            deadline_at: None,
            deadline_ms: args.deadline,
            keep_completed: args.keep_completed,
            reason: reason.clone(),
            retry_of,
            wal_name: None,
        });
    }
    let step_ids = (!args.steps.is_empty()).then(|| args.steps.clone());
    args.on.order(Command::RetryTask(RetrySteps { reason, step_ids }), false)
}
