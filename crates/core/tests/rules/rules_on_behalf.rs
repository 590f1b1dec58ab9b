//! CLAIM-16: a gateway claims for a worker that has no link of its own.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common;
use common::ops::update;
use common::*;
use tenure_core::command::{Close, Complete, Dispatch, OnBehalf, StepReport};
use tenure_core::event::LeaseEnd;
use tenure_core::record::{Progress, Value};
use tenure_core::status::{AttemptStatus, EndReason, Outcome, RunState, StepStatus, TaskStatus};
use tenure_core::{Code, Command};

const HOUR_MS: u64 = 3_600_000;

fn by(worker: &str) -> OnBehalf {
    OnBehalf { lease_ms: Some(HOUR_MS), ..OnBehalf::of(agent_id(worker)) }
}

fn dispatch(step: &str, on_behalf: OnBehalf) -> Dispatch {
    let (allowed_step_ids, on_behalf) = (Some(vec![id(step)]), Some(on_behalf));
    Dispatch { allowed_step_ids, on_behalf, ..Dispatch::to(pool_id(POOL)) }
}

fn claim(step: &str, worker: &str) -> Command {
    Command::DispatchWorker(dispatch(step, by(worker)))
}

fn claimed(t: &mut Fixture, step: &str) -> Held {
    let outcome = t.ok(claim(step, "scout.macp"));
    t.held_of(&outcome)
}

/// CLAIM-16: one command makes the Run and its claim. The worker is who was named, the events are their caller's, and
/// the lease lasts as long as was asked for, after a restart too.
#[test]
fn a_dispatch_on_behalf_claims_in_the_same_commit() {
    let mut t = Fixture::manual("a b");
    let held = claimed(&mut t, "a");
    assert_eq!(t.events(), ["task_run_dispatched", "task_step_claimed a"]);
    assert_eq!(t.actors(), ["boss", "boss"]);
    let told = t.payload("task_step_claimed");
    assert_eq!((&told["worker_id"], &told["on_behalf"]), (&json!("scout.macp"), &json!(true)));
    assert_eq!(told["lease_expires_at"], json!(t.now + i64::try_from(HOUR_MS).unwrap()));
    let run = t.run_of(held.run_id);
    assert_eq!(
        (run.state, run.worker_id.as_ref().unwrap().as_str()),
        (RunState::Active, "scout.macp")
    );
    t.restart();
    let attempt = t.attempt_of(&held);
    assert_eq!((attempt.lease_ms, attempt.worker_id.as_str()), (HOUR_MS, "scout.macp"));
}

/// CLAIM-16: a lease is as every claim's unless one is asked for; an ordinary claim says nothing of it.
#[test]
fn without_a_length_the_lease_is_as_ever() {
    let mut t = Fixture::manual("a b");
    let on_behalf = OnBehalf::of(agent_id("scout.macp"));
    let outcome = t.ok(Command::DispatchWorker(dispatch("a", on_behalf)));
    let held = t.held_of(&outcome);
    assert_eq!(t.attempt_of(&held).lease_ms, 30_000);
    t.claim("b");
    assert_eq!(t.payload("task_step_claimed").get("on_behalf"), None);
}

/// CLAIM-16, LEASE-04: the orchestrator's `running` and its progress are the holder's: they show on the Attempt and
/// renew its lease by the length that it has.
#[test]
fn reports_of_the_orchestrator_are_the_holders() {
    let mut t = Fixture::manual("a");
    let held = claimed(&mut t, "a");
    for expected in ["task_step_started a", "task_step_updated a"] {
        t.wait_ms(1_000);
        t.write("a", StepStatus::Running);
        assert_eq!(t.events(), [expected]);
        let attempt = t.attempt_of(&held);
        assert_eq!(attempt.lease_expires_at, t.now + i64::try_from(HOUR_MS).unwrap());
        assert_eq!((attempt.status, t.status("a")), (AttemptStatus::Running, StepStatus::Running));
    }
    let progress = Some(Progress { percent: Some(30.0), ..Progress::default() });
    t.ok(Command::TaskUpdateStep(StepReport { progress, ..StepReport::on(id("a")) }));
    assert_eq!(t.payload("task_step_updated")["attempt_id"], json!(held.attempt_id));
}

/// CLAIM-16: a final report of the orchestrator ends the Run as its own report would.
#[test]
fn a_final_report_ends_the_run_as_completed() {
    for (to, outcome) in
        [(StepStatus::Completed, Outcome::Completed), (StepStatus::Failed, Outcome::Failed)]
    {
        let mut t = Fixture::manual("a");
        let held = claimed(&mut t, "a");
        let output = (to == StepStatus::Completed).then(|| Value::json(b"1".to_vec()));
        let report = StepReport { status: Some(to), output, ..StepReport::on(id("a")) };
        t.ok(Command::TaskUpdateStep(report));
        assert_eq!(t.attempt_of(&held).outcome, Some(outcome));
        assert_eq!(t.run_of(held.run_id).end_reason, Some(EndReason::Completed));
        assert_eq!(t.status("a"), to, "it is not tried again");
    }
}

/// CLAIM-16, CLAIM-13: whom the Step is for decides, as for the worker itself; and a Step is claimed once.
#[test]
fn the_named_worker_is_judged_as_if_it_asked() {
    let mut t = Fixture::manual("a");
    t.ok(t.patch(json!([update("a", json!({"claim_only_by": "scout"}))])));
    let before = t.task.clone();
    t.refuse(claim("a", "rover.macp"), Code::PermissionDenied);
    assert_eq!(t.task, before, "not even the run is there");
    claimed(&mut t, "a");
    t.refuse(claim("a", "scout.macp"), Code::StepAlreadyClaimed);
    let mut t = Fixture::manual("a b<-a");
    t.refuse(claim("b", "scout.macp"), Code::StepNotReady);
    t.refuse(claim("c", "scout.macp"), Code::StepNotFound);
    t.ok(t.patch(json!([update("a", json!({"worker_pool_id": "gpu"}))])));
    t.refuse(claim("a", "scout.macp"), Code::StepOutOfScope);
}

/// CLAIM-16, MACP-06: a Run is declined for a worker in the commit that made it.
#[test]
fn a_dispatch_on_behalf_may_be_declined_at_once() {
    let mut t = Fixture::manual("a");
    let declined = Some(reason("busy", "no time"));
    let on_behalf = OnBehalf { declined, ..OnBehalf::of(agent_id("scout.macp")) };
    t.ok(Command::DispatchWorker(dispatch("a", on_behalf)));
    assert_eq!(t.events(), ["task_run_dispatched", "task_run_ended"]);
    let told = t.payload("task_run_ended");
    assert_eq!(
        (&told["end_reason"], &told["worker_id"]),
        (&json!("declined"), &json!("scout.macp"))
    );
    assert_eq!((&told["reason"]["code"], t.status("a")), (&json!("busy"), StepStatus::Ready));
}

/// CLAIM-16: it names one Step, a worker that is not the scheduler, and a lease from a second to eight days.
#[test]
fn what_is_said_on_behalf_is_checked() {
    let mut t = Fixture::manual("a b");
    for lease_ms in [0, 999, 691_200_001] {
        let on_behalf = OnBehalf { lease_ms: Some(lease_ms), ..by("scout.macp") };
        let no = t.refuse(Command::DispatchWorker(dispatch("a", on_behalf)), Code::ValidationError);
        assert_eq!(no.details["field"], "on_behalf.lease_ms");
    }
    let no = t.refuse(claim("a", "system"), Code::ValidationError);
    assert_eq!(no.details["field"], "on_behalf.worker_id");
    for allowed_step_ids in [None, Some(vec![id("a"), id("b")])] {
        let command = Dispatch { allowed_step_ids, ..dispatch("a", by("scout.macp")) };
        let no = t.refuse(Command::DispatchWorker(command), Code::ValidationError);
        assert_eq!(no.details["field"], "allowed_step_ids");
    }
    for lease_ms in [1_000, 691_200_000] {
        let mut t = t.clone();
        let on_behalf = OnBehalf { lease_ms: Some(lease_ms), ..by("scout.macp") };
        let outcome = t.ok(Command::DispatchWorker(dispatch("a", on_behalf)));
        let held = t.held_of(&outcome);
        assert_eq!(t.attempt_of(&held).lease_ms, lease_ms);
    }
}

/// CLAIM-16, LEASE-07: its lease ends as any other, and a cancellation without a grace waits for nobody.
#[test]
fn nobody_is_waited_for() {
    let mut t = Fixture::manual("a");
    let held = claimed(&mut t, "a");
    t.ok_as(&system(), expire(&[&held], LeaseEnd::LeaseExpired));
    assert_eq!(
        (t.attempt_of(&held).outcome, t.status("a")),
        (Some(Outcome::Lost), StepStatus::Ready)
    );
    claimed(&mut t, "a");
    t.ok(Command::TaskCancel(Close { grace_ms: Some(0), ..Close::default() }));
    t.judge_due();
    assert_eq!(t.task_status(), TaskStatus::Cancelled);
    let mut t = Fixture::manual("a");
    claimed(&mut t, "a");
    t.write("a", StepStatus::Completed);
    t.ok(Command::TaskComplete(Complete::default()));
    assert_eq!(t.task_status(), TaskStatus::Completed);
}
