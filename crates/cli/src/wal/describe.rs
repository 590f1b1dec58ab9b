//! Describes an event of a log in a few words, beside its type.

use tenure_core::event::{
    Body, Ended, Event, LeaseEnd, ReportFacts, StepBlocked, StepClaimed, StepCompleted, StepFailed,
    StepLeaseExpired, StepReopened, TaskCreated, TaskProgress, TaskUpdated,
};
use tenure_core::id::StepId;
use tenure_core::patch::Operation;
use tenure_core::record::{Progress, Reason, ValueBody};

use crate::answer::human;

/// How many things of one kind to name on a line.
const NAMED_MAX: usize = 3;

/// The description of an event.
pub(super) fn describe(event: &Event) -> String {
    match &event.body {
        Body::TaskCreated(event) => created(event),
        Body::TaskSubmitted(_) | Body::TaskRunning(_) | Body::StepReady(_) => String::new(),
        Body::TaskReopened(moved) | Body::TaskResumed(moved) => reason(moved.reason.as_ref()),
        Body::TaskBlocked(stopped) | Body::TaskPaused(stopped) => reason(Some(&stopped.reason)),
        Body::TaskUpdated(update) => updated(update),
        Body::TaskCancelRequested(request) => {
            format!("{}: {}", request.intent, reason(Some(&request.reason)))
        }
        Body::TaskProgress(progress) => task_progress(progress),
        Body::TaskLinked(linked) => format!("{} {}", linked.edge.kind, linked.edge.to),
        Body::TaskUnlinked(unlinked) => unlinked.edge_id.to_string(),
        Body::TaskCompleted(end) | Body::TaskFailed(end) | Body::TaskCancelled(end) => ended(end),
        Body::TaskFact(fact) => format!("{} {}", fact.kind, fact.key),
        Body::TaskArchived(archived) => reason(archived.reason.as_ref()),
        Body::TaskDeliveryUpdated(delivery) => delivery.delivery_state.to_string(),
        Body::StepClaimed(claim) => claimed(claim),
        Body::StepStarted(started) => facts(started.report.as_deref()),
        Body::StepUpdated(update) => facts(update.report.as_deref()),
        Body::StepBlocked(step) => blocked(step),
        Body::StepCompleted(step) => completed(step),
        Body::StepFailed(step) => failed(step),
        Body::StepCancelled(step) => reason(step.reason.as_ref()),
        Body::StepReopened(step) => reopened(step),
        Body::StepTakenOver(step) => format!("from task {}", step.from_task_id),
        Body::StepLeaseExpired(step) => expired(step),
        Body::RunDispatched(run) => format!("run {} for pool {}", run.run_id, run.worker_pool_id),
        Body::RunEnded(run) => format!("run {}: {}", run.run_id, run.end_reason),
    }
}

fn created(event: &TaskCreated) -> String {
    let steps = match &event.creation {
        None => human::plural(event.task.steps.len(), "step"),
        Some(whole) => format!("the first {} of {} steps", event.task.steps.len(), whole.steps),
    };
    match event.task.title.is_empty() {
        true => steps,
        false => format!("{steps}: {}", event.task.title),
    }
}

fn updated(update: &TaskUpdated) -> String {
    let operations: Vec<String> = update.operations.iter().take(NAMED_MAX).map(operation).collect();
    let named = operations.join(", ");
    match update.operations.len() - operations.len() {
        0 => named,
        rest => format!("{named} and {} more", human::len(rest)),
    }
}

fn operation(operation: &Operation) -> String {
    let on = |name: &str, id: &StepId| format!("{name} {id}");
    match operation {
        Operation::UpdateTask(_) => "update_task".into(),
        Operation::AddStep { step, .. } => on("add_step", &step.step_id),
        Operation::UpdateStep { step_id, .. } => on("update_step", step_id),
        Operation::DeleteStep { step_id, .. } => on("delete_step", step_id),
        Operation::AddDependency { step_id, depends_on_step_id, .. } => {
            format!("add_dependency {step_id} on {depends_on_step_id}")
        }
        Operation::RemoveDependency { step_id, depends_on_step_id, .. } => {
            format!("remove_dependency {step_id} on {depends_on_step_id}")
        }
        Operation::CancelStep { step_id, .. } => on("cancel_step", step_id),
        Operation::ReopenStep { step_id, .. } => on("reopen_step", step_id),
        Operation::BlockTask { .. } => "block_task".into(),
        Operation::ReopenTask { .. } => "reopen_task".into(),
    }
}

fn task_progress(event: &TaskProgress) -> String {
    let progress = event.progress.as_ref().map(progress).unwrap_or_default();
    let artifacts = match event.artifacts.len() {
        0 => String::new(),
        n => human::plural(n, "artifact"),
    };
    together([progress, artifacts])
}

fn ended(end: &Ended) -> String {
    let result = end.result_summary.clone().unwrap_or_default();
    together([reason(end.reason.as_ref()), result])
}

fn claimed(claim: &StepClaimed) -> String {
    format!("try {} under run {}", claim.ordinal, claim.run_id)
}

fn blocked(step: &StepBlocked) -> String {
    format!("waits for {}: {}", step.wait_kind, reason(Some(&step.reason)))
}

fn completed(step: &StepCompleted) -> String {
    let output = step.output.as_ref().map(|output| match &output.body {
        ValueBody::Data(data) => format!("{} of output", human::bytes(data.len() as u64)),
        ValueBody::Blob(blob) => format!("{} of output in a blob", human::bytes(blob.size_bytes)),
        ValueBody::Ref(_) => "output elsewhere".to_owned(),
    });
    together([output.unwrap_or_default(), facts(step.report.as_deref())])
}

fn failed(step: &StepFailed) -> String {
    let count = step.attempt_count.map(|n| format!("failure {n}"));
    together([reason(Some(&step.reason)), count.unwrap_or_default()])
}

fn reopened(step: &StepReopened) -> String {
    let when = step.not_before.map(|at| format!("not before {}", human::local_exact(at)));
    let from = format!("from {}", step.from);
    together([reason(Some(&step.reason)), from, when.unwrap_or_default()])
}

fn expired(step: &StepLeaseExpired) -> String {
    let (reason, run) = (step.reason, step.run_id);
    match (reason, step.release_reason) {
        (LeaseEnd::Released, Some(why)) => format!("{reason} as {why}, run {run}"),
        (LeaseEnd::Released, None) => format!("{reason}, run {run}"),
        _ => format!("{reason}, loss {}, run {run}", step.lost_count),
    }
}

fn facts(facts: Option<&ReportFacts>) -> String {
    let Some(facts) = facts else { return String::new() };
    let artifacts = match facts.artifacts.len() + facts.artifact_ids.len() {
        0 => String::new(),
        n => human::plural(n, "artifact"),
    };
    let summary = facts.result_summary.clone().unwrap_or_default();
    together([facts.progress.as_ref().map(progress).unwrap_or_default(), artifacts, summary])
}

fn progress(progress: &Progress) -> String {
    let percent = progress.percent.map(|percent| format!("{percent:.0}%"));
    let phase = progress.phase.as_ref().map(ToString::to_string);
    let summary = progress.summary.clone();
    together([percent, phase, summary].map(Option::unwrap_or_default))
}

/// `code (message)`, or one of them.
fn reason(reason: Option<&Reason>) -> String {
    match reason {
        None => String::new(),
        Some(r) if r.message.is_empty() || r.message == r.code => r.code.to_string(),
        Some(r) => format!("{} ({})", r.code, r.message),
    }
}

fn together<const N: usize>(parts: [String; N]) -> String {
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}
