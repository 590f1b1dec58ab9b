//! TERM-26: from every live state somebody who follows the rules brings a Task to its end.

use serde_json::{Value as Json, json};
use tenure_core::status::{ArtifactState, Policy, RunState, StepStatus, TaskStatus};
use tenure_core::view::View;

use crate::inputs::{by, claim, command, grant, next_due, patch, report};
use crate::laws::Broken;
use crate::shapes::POOL;
use crate::world::{Input, World, orchestrator, worker};

/// How many inputs a small Task needs at most to end.
const INPUTS_MAX: usize = 80;

/// Brings a copy of the Task to its end. Returns it.
///
/// # Errors
/// The Task cannot be brought to its end, or to another than `completed` though nothing that has happened forbids
/// that.
pub(crate) fn finish(world: &World) -> Result<World, Broken> {
    let mut world = world.clone();
    let mut done: Vec<String> = Vec::new();
    while !world.task.is_terminal() {
        if done.len() > INPUTS_MAX {
            return Err(format!("it does not come to its end by {done:#?}"));
        }
        let mut refused = Vec::new();
        let took = candidates(&world).into_iter().find_map(|input| match world.after(&input) {
            Ok((next, commit)) if commit.is_some() || next.now > world.now => Some((input, next)),
            Ok(_) => None,
            Err(why) => {
                refused.push(format!("{input}: {why}"));
                None
            }
        });
        let Some((input, next)) = took else {
            return Err(format!("it is stuck after {done:#?}; refused were {refused:#?}"));
        };
        done.push(input.to_string());
        world = next;
    }
    if world.task.head().status == TaskStatus::Completed || !may_complete(&world, &done) {
        return Ok(world);
    }
    Err(format!("it ends as {} by {done:#?}", world.task.head().status))
}

/// Whether a Task that ended otherwise should have completed: nobody had asked for its closing.
fn may_complete(world: &World, done: &[String]) -> bool {
    world.task.head().cancel_requested.is_none() && !done.is_empty() && {
        let reason = world.task.head().status_reason.as_ref();
        // A Task that fails by its policy does so in the input that made it so, which is not the finisher's.
        reason.is_none_or(|reason| reason.code == "task_cancelled")
    }
}

/// What a diligent orchestrator and its workers would do next, in order.
fn candidates(world: &World) -> Vec<Input> {
    let view = world.task.durable();
    let ask = |operation: &str| by(orchestrator(), command(operation, json!({})));
    let mut found = Vec::new();
    if view.is_closing() {
        found.extend(next_due(world));
        return found;
    }
    match view.status() {
        TaskStatus::Draft => found.push(ask("submit_task")),
        TaskStatus::Paused => found.push(ask("resume_task")),
        TaskStatus::Blocked => found.push(ask("reopen_task")),
        _ => {}
    }
    found.extend(facts_settled(&view));
    found.push(ask("task_complete"));
    for attempt in view.open_attempts() {
        found.push(report(attempt, json!({"status": "completed"})));
    }
    found.extend(work_given_out(world, &view));
    found.extend(hindrances_removed(&view));
    found.extend(next_due(world));
    found
}

/// Announced artifacts are there, and what peers did is stored here.
fn facts_settled(view: &View<'_>) -> Vec<Input> {
    let mut found = Vec::new();
    let peer = json!({"native_protocol": "a2a", "remote_task_id": "r", "reconciled": true});
    for attempt in view.open_attempts() {
        if attempt.remote.as_ref().is_some_and(|remote| !remote.reconciled) {
            found.push(report(attempt, json!({"remote": peer})));
        }
    }
    let on_step = |step: &str, more: Json| {
        let mut input = json!({"step_id": step});
        if let (Some(input), Json::Object(more)) = (input.as_object_mut(), more) {
            input.extend(more);
        }
        by(orchestrator(), command("task_update_step", input))
    };
    for step in view.steps() {
        if step.facts().remote.as_ref().is_some_and(|remote| !remote.reconciled) {
            found.push(on_step(step.id().as_str(), json!({"remote": peer})));
        }
    }
    for artifact in view.artifacts().filter(|a| a.given.state == ArtifactState::Pending) {
        let given = json!([{"artifact_id": artifact.given.artifact_id, "name": artifact.given.name,
            "kind": "file", "state": "missing"}]);
        if let Some(step) = &artifact.step_id {
            found.push(on_step(step.as_str(), json!({"artifacts": given})));
        }
    }
    found
}

/// Ready Steps go to a worker.
fn work_given_out(world: &World, view: &View<'_>) -> Vec<Input> {
    let mut found = Vec::new();
    let is_ready = view.steps().any(|step| step.status() == StepStatus::Ready);
    if !is_ready {
        return found;
    }
    if world.task.head().spec.dispatch == Policy::Auto {
        found.push(grant("ann"));
    }
    for (_, run) in view.live_runs().filter(|(_, run)| run.state == RunState::Dispatched) {
        for step in view.steps().filter(|step| step.status() == StepStatus::Ready) {
            found.push(claim(worker("ann", run.run_id), run.run_id, step.id().as_str()));
        }
    }
    let dispatch = command("dispatch_worker", json!({"worker_pool_id": POOL}));
    found.push(by(orchestrator(), dispatch));
    found
}

/// Steps that wait, failed or were cancelled go on, or no longer count.
fn hindrances_removed(view: &View<'_>) -> Vec<Input> {
    let mut found = Vec::new();
    for step in view.steps() {
        let id = step.id().as_str();
        match step.status() {
            StepStatus::Blocked | StepStatus::Failed => {
                found.push(patch(json!({"op": "reopen_step", "step_id": id})));
            }
            StepStatus::Cancelled => {
                for waiting in view.steps() {
                    if waiting.spec.depends_on_step_ids.contains(step.id()) {
                        found.push(patch(json!({"op": "remove_dependency",
                            "step_id": waiting.id(), "depends_on_step_id": id})));
                    }
                }
                if step.spec.required {
                    found.push(patch(json!({"op": "delete_step", "step_id": id})));
                    let fields = json!({"required": false});
                    found
                        .push(patch(json!({"op": "update_step", "step_id": id, "fields": fields})));
                }
            }
            _ => {}
        }
    }
    found
}
