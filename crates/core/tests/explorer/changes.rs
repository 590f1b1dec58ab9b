//! What one accepted input may change. The laws are written down anew here, from the contract and without the code
//! that decides, so that they see a wrong decision that is carried out well.

use tenure_core::event::{Body, LeaseEnd, StepClaimed, StepLeaseExpired};
use tenure_core::read::StepRef;
use tenure_core::status::{
    ArtifactState, AttemptStatus, Outcome, Policy, Role, RunState, StepStatus, TaskStatus,
};
use tenure_core::{Command, Commit};

use crate::laws::Broken;
use crate::shapes::TRIES_MAX;
use crate::world::{Input, World};

/// Checks what an accepted input has made of a state.
pub(crate) fn check(
    before: &World,
    input: &Input,
    commit: &Commit,
    after: &World,
) -> Result<(), Broken> {
    holder_reports(before, input)?;
    for event in &commit.events {
        let id = event.step_id.as_ref();
        let step = id.and_then(|id| before.task.durable().step(id).map(|step| step.pos));
        match &event.body {
            Body::StepClaimed(claim) => given_out(before, step, claim, commit)?,
            Body::StepLeaseExpired(loss) => loss_counts(before, step, loss)?,
            Body::RunDispatched(_) if !is_at_work(before) => {
                return Err("DISP-04: a run was dispatched of a task that rests".to_owned());
            }
            Body::StepReopened(_) if input.caller.role == Role::Orchestrator => {
                counts_anew(after, step)?;
            }
            Body::TaskCancelRequested(_) if event.actor.as_str() == "system" => {
                return Err("POL-05: a task that drains stops its steps".to_owned());
            }
            Body::TaskCompleted(_) => completed(before, input, commit, after)?,
            _ => {}
        }
    }
    stays_within_bounds(after)
}

/// REPORT-14: a worker's report counts if it comes from the Step's holder, or if it is the late result of
/// its last, lost Attempt.
fn holder_reports(before: &World, input: &Input) -> Result<(), Broken> {
    let Command::TaskUpdateStep(report) = &input.command else { return Ok(()) };
    if input.caller.role != Role::Worker {
        return Ok(());
    }
    let view = before.task.durable();
    let attempt = report.attempt_id.and_then(|id| view.attempt(id));
    let attempt = attempt.filter(|attempt| {
        Some(attempt.fencing_token) == report.fencing_token
            && Some(attempt.run_id) == input.caller.run_id
            && attempt.worker_id == input.caller.agent
    });
    let attempt = attempt.ok_or("REPORT-14: a report without the holder's token was accepted")?;
    let step = view.step(&report.step_id).ok_or("a report on no step was accepted")?;
    let newest = view.attempts_of(step).next().map(|newest| newest.attempt_id);
    let is_newest = newest == Some(attempt.attempt_id);
    let is_late = attempt.outcome == Some(Outcome::Lost)
        && report.status == Some(StepStatus::Completed)
        && !step.status().is_held();
    if !is_newest || (attempt.status == AttemptStatus::Ended && !is_late) {
        return Err("REPORT-14: a report of an attempt that has ended was accepted".to_owned());
    }
    if is_late && step.status() == StepStatus::Completed {
        return Err("REPORT-14: a second result of a step was accepted".to_owned());
    }
    Ok(())
}

fn is_at_work(world: &World) -> bool {
    let view = world.task.durable();
    matches!(view.status(), TaskStatus::Pending | TaskStatus::Running) && !view.is_closing()
}

/// POL-05: a required Step has failed for good, is cancelled, or can never be ready. All Tasks here drain.
fn is_failing(world: &World) -> bool {
    let stands = |step: StepRef<'_>| step.spec.required && step.state.standing().is_some();
    let view = world.task.durable();
    view.head().spec.completion == Policy::Auto && view.steps().any(stands)
}

/// CLAIM-04, TASK-12, POL-05: only a ready Step of a Task at work is claimed, and none of a Task that fails.
fn given_out(
    before: &World,
    step: Option<u32>,
    claim: &StepClaimed,
    commit: &Commit,
) -> Result<(), Broken> {
    let step = step.and_then(|pos| before.task.durable().step_at(pos));
    let was_ready = step.is_some_and(|step| step.status() == StepStatus::Ready);
    let claimed = commit.events.iter().filter(|it| matches!(it.body, Body::StepClaimed(_)));
    if !was_ready || claimed.count() > 1 {
        return Err("CLAIM-04: a step was claimed that was not ready".to_owned());
    }
    let only = step.and_then(|step| step.spec.claim_only_by.as_ref());
    if only.is_some_and(|only| *only != claim.worker_id) {
        return Err("CLAIM-13: a step was claimed by another than the one named".to_owned());
    }
    if !is_at_work(before) {
        return Err("TASK-12: a step of a task that rests was claimed".to_owned());
    }
    if is_failing(before) {
        return Err("POL-05: a step of a failing task was claimed".to_owned());
    }
    Ok(())
}

/// LEASE-14: every loss counts, but for outages, of which as many do not as losses are allowed.
fn loss_counts(before: &World, step: Option<u32>, loss: &StepLeaseExpired) -> Result<(), Broken> {
    let step = step.and_then(|pos| before.task.durable().step_at(pos));
    let (lost, outages) = step.map_or((0, 0), |it| (it.state.lost_count, it.state.outages));
    let counts = u32::from(loss.reason == LeaseEnd::LeaseExpired);
    if loss.lost_count != lost + counts {
        return Err(format!("LEASE-14: {lost} losses became {} by {loss:?}", loss.lost_count));
    }
    if loss.reason == LeaseEnd::Outage && outages >= TRIES_MAX {
        return Err(format!("LEASE-14: outage {} in a row does not count", outages + 1));
    }
    Ok(())
}

/// RETRY-03: a Step that the orchestrator reopens has all its tries again.
fn counts_anew(after: &World, step: Option<u32>) -> Result<(), Broken> {
    let step = step.and_then(|pos| after.task.durable().step_at(pos));
    match step.map(|step| (step.state.attempt_count, step.state.lost_count)) {
        None | Some((0, 0)) => Ok(()),
        Some(counts) => Err(format!("a reopened step has counts {counts:?}")),
    }
}

/// T09, TERM-10, POL-06: a Task completes when its required Steps are, with all facts here, and takes no Step
/// away from its holder; by policy it waits for what is ready.
fn completed(before: &World, input: &Input, commit: &Commit, after: &World) -> Result<(), Broken> {
    let view = after.task.durable();
    let is_done = |step: StepRef<'_>| step.status() == StepStatus::Completed;
    if let Some(step) = view.steps().find(|step| step.spec.required && !is_done(*step)) {
        return Err(format!("T09: the task is completed and {} is not", step.id()));
    }
    if let Some(step) = view.steps().find(|step| step.state.is_unreconciled()) {
        return Err(format!("TERM-10: the task is completed and {} waits for its peer", step.id()));
    }
    let by_result = |id| view.attempt(id).is_some_and(|it| it.outcome == Some(Outcome::Completed));
    let mut announced = view.artifacts().filter(|it| it.given.state == ArtifactState::Pending);
    if let Some(owed) = announced.find(|it| it.attempt_id.is_none_or(by_result)) {
        let id = &owed.given.artifact_id;
        return Err(format!("TERM-10: the task is completed and artifact {id} is only announced"));
    }
    let reported = match &input.command {
        Command::TaskUpdateStep(report) => Some(&report.step_id),
        _ => None,
    };
    let waits = reported.is_some() && input.caller.role == Role::Worker;
    let cancelled = commit.events.iter().filter(|it| matches!(it.body, Body::StepCancelled(_)));
    let cancelled = cancelled.filter_map(|event| event.step_id.as_ref());
    // What the input itself is about may lose its holder first.
    let changed =
        |id| commit.events.iter().filter(|it| it.step_id.as_ref() == Some(id)).count() > 1;
    for id in cancelled.filter(|id| Some(*id) != reported && !changed(*id)) {
        let was = before.task.durable().step(id).map(|step| step.status());
        let gives_out = view.head().spec.dispatch == Policy::Auto;
        if was.is_some_and(|was| was.is_held() || waits && gives_out && was == StepStatus::Ready) {
            return Err(format!("POL-06: the completion of the task cancelled {id}"));
        }
    }
    Ok(())
}

/// RETRY-03, T09 to T13: nothing is tried too often, no ended Attempt has a live Run, and the end is an end.
fn stays_within_bounds(after: &World) -> Result<(), Broken> {
    let view = after.task.durable();
    for step in view.steps() {
        let state = step.state;
        let goes_on = !matches!(step.status(), StepStatus::Failed) && !step.status().is_settled();
        if goes_on && (state.attempt_count >= TRIES_MAX || state.lost_count >= TRIES_MAX) {
            return Err(format!("RETRY-03: {} goes on after its last try", step.id()));
        }
        let is_left = step.status().is_settled() || step.status() == StepStatus::Blocked;
        if view.is_terminal() && !is_left {
            return Err(format!("the task has ended and {} has not", step.id()));
        }
    }
    let ended = view.attempts().filter(|attempt| attempt.status == AttemptStatus::Ended);
    if let Some(attempt) = ended.into_iter().find(|it| view.run_at(it.run).state != RunState::Ended)
    {
        return Err(format!("the attempt on {} has ended and its run has not", attempt.step_id));
    }
    if view.is_terminal() && view.head().ended_at.is_none() {
        return Err("the task has ended, and nobody knows when".to_owned());
    }
    if is_at_work(after) && is_failing(after) && view.held().next().is_none() {
        return Err("POL-05: the task fails, nobody is at work, and it goes on".to_owned());
    }
    if view.is_closing() && view.held().next().is_none() {
        return Err("T11, T13: the task is closing, and nobody is at work".to_owned());
    }
    Ok(())
}
