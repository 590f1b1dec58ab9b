//! What the tests of views share: readers, and Tasks after random commands.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used)]

use proptest::prelude::*;
use serde::Serialize;
use serde_json::{Value as Json, json};
use tenure_core::command::{
    AppendProgress, Close, Complete, Dispatch, Grant, Link, RetrySteps, RunAndWhy, StepReport, Why,
};
use tenure_core::event::LeaseEnd;
use tenure_core::id::{AttemptId, CommitId, Millis, Ref, RunId, StepId};
use tenure_core::status::{EdgeKind, Role, StepStatus, WaitKind};
use tenure_core::view::{Known, LeaseFact, View};
use tenure_core::{Caller, Command, Cx, Limits, Outcome, Rejection, Stamp, Task};
use uuid::Uuid;

use crate::common::*;

/// Every lease is in force, for a minute more.
pub fn alive(_: AttemptId) -> Option<LeaseFact> {
    Some(LeaseFact { expires_at: START + 60_000, valid: true })
}

/// Nothing is known of any lease.
pub fn silent(_: AttemptId) -> Option<LeaseFact> {
    None
}

/// A reader of an owner that is up to date and sees all leases in force.
pub fn known() -> Known<'static> {
    Known::new(START, &alive)
}

/// Anything as JSON.
pub fn as_json(value: &impl Serialize) -> Json {
    serde_json::to_value(value).expect("views are JSON")
}

/// A command of a random run, as numbers that are read against the state of the moment.
pub type Move = (u8, u8, u8);

/// Sequences of random commands.
pub fn moves(max: usize) -> impl Strategy<Value = Vec<Move>> {
    prop::collection::vec((0..40_u8, any::<u8>(), any::<u8>()), 1..max)
}

/// DAGs worth trying.
pub fn dags() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "a",
        "a b<-a c<-b",
        "a b? c<-a,b d@gpu<-c e<-c",
        "a b<-a c<-a d<-b,c e?<-d f@gpu",
        "a@gpu b@gpu c@gpu<-a,b d<-c e",
    ])
}

/// Decides a command without appending it.
pub fn decide(
    task: &mut Task,
    caller: &Caller,
    command: &Command,
    now: Millis,
    id: u128,
) -> Result<Outcome, Rejection> {
    let limits = Limits::default();
    let id = Uuid::from_u128(id);
    let cx = Cx {
        caller,
        stamp: Stamp {
            now,
            steady: now,
            commit_id: CommitId(id),
            run_id: RunId(id),
            attempt_id: AttemptId(id),
            random: 7,
        },
        command_id: None,
        digest: None,
        expected_version: None,
        expected_spec_version: None,
        trace: None,
        epoch: 0,
        limits: &limits,
    };
    task.decide(&cx, command)
}

/// The command that a move means in this state, with who would send it.
pub fn read_move(task: &Task, (kind, a, b): Move) -> (Caller, Command) {
    let view = task.durable();
    let steps: Vec<StepId> = view.steps().map(|s| s.id().clone()).collect();
    let step = match steps.len() {
        0 => id("none"),
        n => steps[usize::from(a) % n].clone(),
    };
    match kind {
        0..=3 => (orchestrator(), dispatch_command(["main", "gpu"][usize::from(b % 2)])),
        4..=8 => claim_by_any(&view, &step, b),
        9..=20 => report_by_holder(&view, kind, a, b),
        21 => (orchestrator(), write_command(step.as_str(), status(b))),
        22 | 23 => {
            let open: Vec<AttemptId> = view.open_attempts().map(|a| a.attempt_id).collect();
            let attempt_ids = open.into_iter().take(usize::from(b % 3)).collect();
            let reason = [LeaseEnd::LeaseExpired, LeaseEnd::Released][usize::from(a % 2)];
            (system(), Command::ExpireLeases { attempt_ids, reason })
        }
        24..=29 => (orchestrator(), patch(json!([operation(&step, &steps, kind, b)]))),
        30 => (orchestrator(), Command::PauseTask(Why::default())),
        31 => (orchestrator(), Command::ResumeTask(Why::default())),
        32 => (orchestrator(), Command::BlockTask(Why::default())),
        33 => (orchestrator(), Command::ReopenTask(Why::default())),
        34 => (orchestrator(), append(b)),
        35 => (orchestrator(), link(b)),
        36 => {
            let reason = reason("again", "once more");
            (orchestrator(), Command::RetryTask(RetrySteps { reason, step_ids: None }))
        }
        37 => (system(), grant(["main", "gpu"][usize::from(b % 2)])),
        38 => (system(), Command::Due),
        _ => ending(&view, a, b),
    }
}

fn dispatch_command(pool: &str) -> Command {
    Command::DispatchWorker(Dispatch::to(pool_id(pool)))
}

fn grant(pool: &str) -> Command {
    let (worker_id, worker_pool_id) = (agent_id("ant"), pool_id(pool));
    Command::GrantStep(Grant {
        worker_id,
        worker_pool_id,
        origin: None,
        handlers: None,
        may_be_suspect: true,
    })
}

fn claim_by_any(view: &View<'_>, step: &StepId, b: u8) -> (Caller, Command) {
    let runs: Vec<_> = view.runs().map(|(_, run)| run).collect();
    match runs.len() {
        0 => (orchestrator(), dispatch_command("main")),
        n => {
            let run = runs[n - 1 - usize::from(b) % n];
            let caller = worker("ant", run.worker_pool_id.as_str(), Some(run.run_id));
            (caller, claim_command(run.run_id, step.as_str()))
        }
    }
}

fn report_by_holder(view: &View<'_>, kind: u8, a: u8, b: u8) -> (Caller, Command) {
    let open: Vec<_> = view.open_attempts().collect();
    if open.is_empty() {
        return (orchestrator(), dispatch_command("main"));
    }
    let attempt = open[usize::from(a) % open.len()];
    let pool = &view.run(attempt.run_id).unwrap().worker_pool_id;
    let caller = worker(attempt.worker_id.as_str(), pool.as_str(), Some(attempt.run_id));
    let status = match kind {
        9..=11 => Some(StepStatus::Running),
        12..=15 => Some(StepStatus::Completed),
        16 => Some(StepStatus::Failed),
        17 => Some(StepStatus::Blocked),
        18 => Some(StepStatus::Cancelled),
        _ => None,
    };
    let mut report = StepReport {
        attempt_id: Some(attempt.attempt_id),
        fencing_token: Some(attempt.fencing_token),
        status,
        ..StepReport::on(attempt.step_id.clone())
    };
    report.wait_kind = (kind == 17).then(|| WaitKind::ALL[usize::from(b) % WaitKind::ALL.len()]);
    if b.is_multiple_of(2) {
        report.artifacts = vec![artifact(&format!("art-{}", b % 4), "report")];
        report.result_summary = Some(format!("said {b}"));
    }
    (caller, Command::TaskUpdateStep(report))
}

/// An artifact that can be read.
pub fn artifact(id: &str, name: &str) -> tenure_core::record::ArtifactInput {
    serde_json::from_value(json!({
        "artifact_id": id, "name": name, "kind": "file", "state": "available",
    }))
    .unwrap()
}

fn status(b: u8) -> StepStatus {
    StepStatus::ALL[usize::from(b) % StepStatus::ALL.len()]
}

fn operation(step: &StepId, steps: &[StepId], kind: u8, b: u8) -> Json {
    let other = steps.get(usize::from(b) % steps.len().max(1)).map_or("none", StepId::as_str);
    let step = step.as_str();
    match (kind, b % 4) {
        (24, _) => json!({"op": "add_step", "step": {
            "step_id": format!("n{b}"), "title": "new", "summary": "new",
            "depends_on_step_ids": [other], "required": b.is_multiple_of(2)}}),
        (25, _) => json!({"op": "delete_step", "step_id": step}),
        (26, _) => json!({"op": "add_dependency", "step_id": step, "depends_on_step_id": other}),
        (27, 0) => json!({"op": "update_step", "step_id": step, "fields": {"title": "edited"}}),
        (27, 1) => json!({"op": "update_step", "step_id": step, "fields": {"required": b > 100}}),
        (27, 2) => {
            json!({"op": "update_step", "step_id": step, "fields": {"worker_pool_id": "gpu"}})
        }
        (27, _) => json!({"op": "update_task", "title": format!("title {b}"),
            "retry_policy": {"max_attempts": 2, "schedule_to_start_ms": 50}}),
        (28, _) => json!({"op": "cancel_step", "step_id": step}),
        _ => json!({"op": "reopen_step", "step_id": step}),
    }
}

fn append(b: u8) -> Command {
    Command::AppendTaskProgress(AppendProgress {
        artifacts: vec![artifact(&format!("own-{}", b % 3), "own")],
        input_refs: vec![Ref::new(format!("mem:{b}")).unwrap()],
        ..AppendProgress::default()
    })
}

fn link(b: u8) -> Command {
    let to = Ref::new(format!("other-{}", b % 3)).unwrap();
    Command::LinkTasks(Link { kind: EdgeKind::Blocks, reason: None, to })
}

fn ending(view: &View<'_>, a: u8, b: u8) -> (Caller, Command) {
    let run_id = view.runs().next().map(|(_, run)| run.run_id);
    match (a % 8, run_id) {
        (0, _) => (orchestrator(), Command::TaskComplete(Complete::default())),
        (1, _) => (orchestrator(), Command::TaskFail(Close::default())),
        (2, _) => (orchestrator(), Command::TaskCancel(Close::default())),
        (_, Some(run_id)) if b > 128 => {
            (orchestrator(), Command::CancelRun(RunAndWhy { reason: None, run_id }))
        }
        _ => (system(), Command::Due),
    }
}

/// A Task after random commands, all of them durable.
pub fn after(dag: &str, auto: bool, moves: &[Move]) -> Fixture {
    let mut t = if auto { Fixture::auto(dag) } else { Fixture::manual(dag) };
    for &one in moves {
        let (caller, command) = read_move(&t.task, one);
        drop(t.run(&caller, &command));
    }
    t
}

/// A caller that only looks.
pub fn observer() -> Caller {
    caller("eye", Role::Observer)
}
