//! What must hold in every state, beside what `World::take` checks after every input.

use serde_json::json;
use tenure_core::eligibility::Obstacle;
use tenure_core::status::{RunState, StepStatus};
use tenure_core::view::explain::{ForWhom, Remedy};
use tenure_core::view::{Explanation, Known, QueryInput, explain, query_steps};
use tenure_core::{Command, Limits};

use crate::inputs::{by, claim, command, grant, patch};
use crate::world::{Input, World, orchestrator, worker};

/// The worker that asks.
const WORKER: &str = "ann";

/// A law that does not hold, in words.
pub(crate) type Broken = String;

/// Checks all laws on a state.
pub(crate) fn check(world: &World) -> Result<(), Broken> {
    if world.task.is_terminal() {
        return ends_for_good(world);
    }
    claims_agree(world)?;
    grants_agree(world)?;
    advice_works(world)
}

fn explained(world: &World, step: &str, whom: ForWhom<'_>) -> Explanation {
    let known = Known::new(world.now, &|_| None);
    explain(&world.task.durable(), &step.parse().unwrap(), whom, &known).unwrap()
}

fn step_ids(world: &World) -> Vec<String> {
    world.task.durable().steps().map(|step| step.id().to_string()).collect()
}

/// TERM-21: after the end no Step is unfinished, and nothing is due.
fn ends_for_good(world: &World) -> Result<(), Broken> {
    let view = world.task.durable();
    if let Some(step) = view.steps().find(|step| step.status().is_held()) {
        return Err(format!("the task has ended and {} is held", step.id()));
    }
    match world.task.next_due() {
        None => Ok(()),
        Some(at) => Err(format!("the task has ended and something is due at {at}")),
    }
}

/// VIEW-16: a Run can claim a Step exactly if `explain` says so, and its worker's query lists exactly those Steps.
fn claims_agree(world: &World) -> Result<(), Broken> {
    let view = world.task.durable();
    let unused: Vec<_> = view
        .live_runs()
        .filter(|(_, run)| run.state == RunState::Dispatched)
        .map(|(_, run)| run.run_id)
        .collect();
    for run_id in unused {
        let asker = worker(WORKER, run_id);
        let mut claimable = Vec::new();
        for id in step_ids(world) {
            let name = WORKER.parse().unwrap();
            let whom = ForWhom { run_id: Some(run_id), worker: Some(&name) };
            let said = explained(world, &id, whom);
            let claimed = world.after(&claim(asker.clone(), run_id, &id));
            if claimed.is_ok() != (said.headline == Obstacle::RunnableNow) {
                let refusal = claimed.err().map(|refusal| refusal.to_string());
                return Err(format!(
                    "run {run_id} claims {id}: refused as {refusal:?}, and explain says {}",
                    said.headline
                ));
            }
            if claimed.is_ok() {
                claimable.push(id);
            }
        }
        let statuses = Some(vec![StepStatus::Ready]);
        let input = QueryInput { statuses, ..QueryInput::default() };
        let known = Known::new(world.now, &|_| None);
        let page = query_steps(&view, &asker, &input, &known, &Limits::default());
        let listed: Vec<String> =
            page.unwrap().steps.iter().map(|step| step.spec.step_id.to_string()).collect();
        if listed != claimable {
            return Err(format!(
                "run {run_id} may claim {claimable:?}, and its query lists {listed:?}"
            ));
        }
    }
    Ok(())
}

/// VIEW-16: the scheduler gives a Step to a worker exactly if `explain` says of some Step that this worker could
/// claim it without a dispatch.
fn grants_agree(world: &World) -> Result<(), Broken> {
    let name = WORKER.parse().unwrap();
    let whom = ForWhom { run_id: None, worker: Some(&name) };
    let is_auto = world.task.head().spec.dispatch == tenure_core::status::Policy::Auto;
    let said = step_ids(world)
        .into_iter()
        .find(|id| is_auto && explained(world, id, whom).headline == Obstacle::RunnableNow);
    let granted = world.after(&grant(WORKER)).is_ok_and(|(_, commit)| commit.is_some());
    match (said, granted) {
        (Some(id), false) => {
            Err(format!("explain says that {id} can be claimed, and nothing is granted"))
        }
        (None, true) => {
            Err("a step is granted, and explain says that none can be claimed".to_owned())
        }
        _ => Ok(()),
    }
}

/// TERM-26, VIEW-16: what `explain` advises is accepted at once, and ends the Task only if that is said.
fn advice_works(world: &World) -> Result<(), Broken> {
    for id in step_ids(world) {
        for reason in explained(world, &id, ForWhom::default()).reasons {
            for remedy in &reason.remedies {
                let Some(input) = input_of(world, remedy) else { continue };
                let code = reason.code;
                let says = format!("explain of {id} advises {remedy:?} against {code}");
                let (next, _) =
                    world.after(&input).map_err(|refusal| format!("{says}: {refusal}"))?;
                let ends = next.task.is_terminal() || next.task.is_closing();
                if ends != (remedy.ends_task || world.task.is_closing()) {
                    return Err(format!(
                        "{says}, and afterwards the task is {}",
                        next.task.head().status
                    ));
                }
            }
        }
    }
    Ok(())
}

/// A remedy as its reader would send it; `None` for what makes another Task, or needs a choice of values.
pub(crate) fn input_of(world: &World, remedy: &Remedy) -> Option<Input> {
    let operation = remedy.operation.as_str();
    let id = remedy.step_id.as_ref().map(|id| id.as_str());
    let run_id = remedy.run_id.map(|run| run.to_string());
    let ask = |input| Some(by(orchestrator(), command(operation, input)));
    match operation {
        "retry_task" if world.task.is_terminal() => None,
        "task_create" | "update_task" | "update_step" => None,
        "add_step" => {
            let step = json!({"step_id": "more", "title": "t"});
            Some(patch(json!({"op": operation, "step": step})))
        }
        "delete_step" | "reopen_step" | "cancel_step" => {
            Some(patch(json!({"op": operation, "step_id": id})))
        }
        "remove_dependency" => {
            let on = remedy.depends_on_step_id.as_ref().map(|id| id.as_str());
            Some(patch(json!({"op": operation, "step_id": id, "depends_on_step_id": on})))
        }
        "cancel_run" => ask(json!({"run_id": run_id})),
        "dispatch_worker" => ask(json!({"worker_pool_id": crate::shapes::POOL})),
        "retry_task" => ask(json!({"reason": {"message": "again"}})),
        "submit_task"
        | "resume_task"
        | "reopen_task"
        | "agent.task_cancel"
        | "agent.task_fail"
        | "agent.task_complete" => ask(json!({})),
        _ => None,
    }
}

/// Whether a command is one that only time gives.
pub(crate) fn is_timer(command: &Command) -> bool {
    matches!(command, Command::Due)
}
