//! The alphabet: every input worth trying on a state.

use serde_json::{Value as Json, json};
use tenure_core::command::Grant;
use tenure_core::event::LeaseEnd;
use tenure_core::id::RunId;
use tenure_core::status::{Role, RunState};
use tenure_core::task::Attempt;
use tenure_core::view::StepRef;
use tenure_core::{Caller, Command};

use crate::shapes::{POOL, step_id};
use crate::world::{Input, World, caller, orchestrator, system, worker};

/// The workers. Two are enough to be another's rival.
const WORKERS: [&str; 2] = ["ann", "bob"];

/// How many Attempts a Step may have before nothing more is given out: it goes on alike.
const ATTEMPTS_MAX: usize = 3;

/// How many unused Runs there are at most.
const RUNS_MAX: usize = 2;

/// How many Steps there are at most.
const STEPS_MAX: usize = 4;

/// What somebody asks for, as they would send it.
pub(crate) fn command(operation: &str, input: Json) -> Command {
    let sent = json!({"operation": operation, "input": input});
    serde_json::from_value(sent).unwrap_or_else(|why| panic!("{operation}: {why}"))
}

/// An input that comes now.
pub(crate) fn by(caller: Caller, command: Command) -> Input {
    Input { caller, command, at: None }
}

/// A patch of one operation.
pub(crate) fn patch(operation: Json) -> Input {
    by(orchestrator(), command("task_update", json!({"operations": [operation]})))
}

/// The next thing that is due, when it is.
pub(crate) fn next_due(world: &World) -> Option<Input> {
    let at = world.task.next_due()?;
    Some(Input { caller: system(), command: Command::Due, at: Some(at) })
}

/// All inputs on this state, the ordinary ones first.
pub(crate) fn all(world: &World) -> Vec<Input> {
    let mut found = Vec::new();
    found.extend(ordinary(world));
    of_orchestrator(world, &mut found);
    found
}

/// Those of time, the scheduler and workers, with which Steps usually go on.
pub(crate) fn ordinary(world: &World) -> Vec<Input> {
    let mut found = Vec::new();
    found.extend(next_due(world));
    of_scheduler(world, &mut found);
    of_workers(world, &mut found);
    found
}

fn may_try_again(world: &World) -> bool {
    let view = world.task.durable();
    let tries = |step: StepRef<'_>| view.attempts_of(step).count();
    view.steps().all(|step| tries(step) < ATTEMPTS_MAX)
}

fn of_scheduler(world: &World, found: &mut Vec<Input>) {
    if may_try_again(world) {
        found.extend(WORKERS.map(grant));
    }
    let open: Vec<_> = world.task.open_attempts().map(|a| a.attempt_id).collect();
    for attempt in open {
        let ids = vec![attempt];
        for reason in [LeaseEnd::LeaseExpired, LeaseEnd::Outage, LeaseEnd::HostRestarted] {
            let command = Command::ExpireLeases { attempt_ids: ids.clone(), reason };
            found.push(by(system(), command));
        }
        found.push(by(system(), Command::Unacknowledged { attempt_ids: ids }));
    }
}

/// The scheduler gives the next Step to a worker.
pub(crate) fn grant(worker: &str) -> Input {
    let grant = Grant {
        worker_id: worker.parse().unwrap(),
        worker_pool_id: POOL.parse().unwrap(),
        handlers: None,
        may_be_suspect: true,
        origin: None,
    };
    by(system(), Command::GrantStep(grant))
}

fn of_workers(world: &World, found: &mut Vec<Input>) {
    let view = world.task.durable();
    for step in view.steps() {
        // The newest Attempt, open or ended: what an ended one says is late or doubled.
        let mut attempts = view.attempts_of(step);
        if let Some(newest) = attempts.next() {
            reports(newest, found);
        }
        if let Some(older) = attempts.next() {
            found.push(report(older, json!({"status": "completed"})));
        }
    }
    let unused = view.live_runs().filter(|(_, run)| run.state == RunState::Dispatched);
    for (_, run) in unused {
        for name in WORKERS {
            let caller = worker(name, run.run_id);
            for step in view.steps().filter(|_| may_try_again(world)) {
                found.push(claim(caller.clone(), run.run_id, step.id().as_str()));
            }
            let run_id = run.run_id.to_string();
            let end = json!({"run_id": run_id, "outcome": "finished"});
            found.push(by(caller.clone(), command("end_run", end)));
            found.push(by(caller, command("decline_run", json!({"run_id": run_id}))));
        }
    }
}

/// A worker claims a Step under a Run.
pub(crate) fn claim(caller: Caller, run_id: RunId, step_id: &str) -> Input {
    let input = json!({"run_id": run_id.to_string(), "step_id": step_id});
    by(caller, command("task_claim_step", input))
}

/// What the holder of an Attempt reports.
pub(crate) fn report(attempt: &Attempt, more: Json) -> Input {
    let mut input = json!({"step_id": attempt.step_id, "attempt_id": attempt.attempt_id,
        "fencing_token": attempt.fencing_token});
    let (Some(input_map), Json::Object(more)) = (input.as_object_mut(), more) else {
        panic!("a report is a map")
    };
    input_map.extend(more);
    let caller = worker(attempt.worker_id.as_str(), attempt.run_id);
    by(caller, command("task_update_step", input))
}

fn reports(attempt: &Attempt, found: &mut Vec<Input>) {
    let reason = |code: &str| json!({"code": code, "message": "it is so"});
    let peer = |reconciled: bool| json!({"native_protocol": "a2a", "remote_task_id": "r", "reconciled": reconciled});
    let artifact = |state: &str| {
        let id = format!("a{}", attempt.ordinal);
        json!([{"artifact_id": id, "name": "a", "kind": "file", "state": state}])
    };
    let all = [
        json!({"status": "running"}),
        json!({"input_seen": 1}),
        json!({"status": "completed"}),
        json!({"status": "failed", "reason": reason("broken")}),
        json!({"status": "failed", "reason": {"code": "broken", "message": "m", "retryable": false}}),
        json!({"status": "blocked", "wait_kind": "input", "reason": reason("asks")}),
        json!({"status": "cancelled", "reason": reason("refuses")}),
        json!({"remote": peer(false)}),
        json!({"remote": peer(true)}),
        json!({"artifacts": artifact("pending")}),
        json!({"artifacts": artifact("available")}),
        json!({"status": "completed", "fencing_token": attempt.fencing_token + 1}),
        json!({"status": "ready"}),
    ];
    found.extend(all.map(|input| report(attempt, input)));
    let caller = worker(attempt.worker_id.as_str(), attempt.run_id);
    for outcome in ["finished", "error", "cancelled", "timed_out"] {
        let end = json!({"run_id": attempt.run_id.to_string(), "outcome": outcome});
        found.push(by(caller.clone(), command("end_run", end)));
    }
    for reason in ["unfit", "surplus"] {
        let back = json!({"attempt_id": attempt.attempt_id, "fencing_token": attempt.fencing_token,
            "reason": reason});
        found.push(by(caller.clone(), command("release_step", back)));
    }
}

fn of_orchestrator(world: &World, found: &mut Vec<Input>) {
    let view = world.task.durable();
    let mut ask = |operation, input| found.push(by(orchestrator(), command(operation, input)));
    for operation in ["task_complete", "task_fail", "task_cancel", "archive_task"] {
        ask(operation, json!({}));
    }
    for operation in ["submit_task", "pause_task", "resume_task", "block_task", "reopen_task"] {
        ask(operation, json!({}));
    }
    ask("retry_task", json!({"reason": {"message": "again"}}));
    ask("append_task_progress", json!({"input_refs": ["mem:late"]}));
    let unused = view.live_runs().filter(|(_, run)| run.state == RunState::Dispatched).count();
    if unused < RUNS_MAX && may_try_again(world) {
        ask("dispatch_worker", json!({"worker_pool_id": POOL}));
        ask("dispatch_worker", json!({"worker_pool_id": POOL, "allowed_step_ids": ["s1"]}));
    }
    for (_, run) in view.live_runs() {
        ask("cancel_run", json!({"run_id": run.run_id.to_string()}));
    }
    let ids: Vec<String> = view.steps().map(|step| step.id().to_string()).collect();
    for id in &ids {
        for status in ["pending", "blocked", "completed", "failed", "cancelled"] {
            ask(
                "task_update_step",
                json!({"step_id": id, "status": status,
                "reason": {"message": "it is so"}}),
            );
        }
        ask(
            "task_update_step",
            json!({"step_id": id, "remote": {"native_protocol": "a2a",
            "remote_task_id": "r", "reconciled": true}}),
        );
    }
    for artifact in view.artifacts() {
        let settled = json!({"artifact_id": artifact.given.artifact_id, "name": "a", "kind": "file",
            "state": "available"});
        if let Some(step) = &artifact.step_id {
            ask("task_update_step", json!({"step_id": step, "artifacts": [settled]}));
        }
    }
    patches(world, &ids, found);
    let stranger = caller("eve", Role::Observer);
    found.push(by(stranger, command("task_cancel", json!({}))));
}

fn patches(world: &World, ids: &[String], found: &mut Vec<Input>) {
    for (at, id) in ids.iter().enumerate() {
        found.push(patch(json!({"op": "delete_step", "step_id": id})));
        found.push(patch(json!({"op": "cancel_step", "step_id": id})));
        found.push(patch(json!({"op": "reopen_step", "step_id": id})));
        for by in [json!(WORKERS[0]), Json::Null] {
            let fields = json!({"claim_only_by": by});
            found.push(patch(json!({"op": "update_step", "step_id": id, "fields": fields})));
        }
        for required in [false, true] {
            let fields = json!({"required": required});
            found.push(patch(json!({"op": "update_step", "step_id": id, "fields": fields})));
        }
        for on in ids.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, on)| on) {
            let edge = |op| json!({"op": op, "step_id": id, "depends_on_step_id": on});
            found.push(patch(edge("add_dependency")));
            found.push(patch(edge("remove_dependency")));
        }
    }
    let made = world.task.durable().steps().last().map_or(0, |step| step.pos + 1) as usize;
    if made < STEPS_MAX {
        let on: Vec<&String> = ids.first().into_iter().collect();
        let step = json!({"step_id": step_id(made), "title": "t", "depends_on_step_ids": on});
        found.push(patch(json!({"op": "add_step", "step": step})));
    }
    for (field, value) in [
        ("completion", "auto"),
        ("completion", "manual"),
        ("dispatch", "auto"),
        ("dispatch", "manual"),
    ] {
        found.push(patch(json!({"op": "update_task", field: value})));
    }
}
