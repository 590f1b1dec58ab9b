//! READY: automatic readiness.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common;
use common::*;
use tenure_core::command::Why;
use tenure_core::command::create::CreateTask;
use tenure_core::status::{Policy, StepStatus, TaskStatus};
use tenure_core::{Code, Command};

/// READY-01: nobody sets `ready` by hand.
#[test]
fn nobody_sets_ready() {
    for &status in StepStatus::ALL {
        let mut t = Fixture::with_step(status);
        let code = match status {
            StepStatus::Completed => Code::StepHistoryImmutable,
            _ => Code::InvalidTransition,
        };
        t.refuse(write_command("x", StepStatus::Ready), code);
    }
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    t.refuse_as(&held.caller(), held.reports(StepStatus::Ready), Code::PermissionDenied);
}

/// READY-02, STEP-02: the commit that completes the last dependency makes the Step ready.
#[test]
fn a_step_is_ready_in_the_commit_that_met_its_dependencies() {
    let mut t = Fixture::manual("a b c<-a,b d<-c");
    t.do_step("a");
    assert_eq!(t.events(), ["task_step_completed a"]);
    t.do_step("b");
    assert_eq!(t.events(), ["task_step_completed b", "task_step_ready c"]);
    let step = t.step("c");
    assert_eq!(step.state.ready_at, Some(t.last().created_at));
    assert_eq!(t.status("d"), StepStatus::Pending);
}

/// READY-03: a Step with an open dependency cannot be claimed, nor be completed by the orchestrator.
#[test]
fn a_step_behind_open_dependencies_is_out_of_reach() {
    let mut t = Fixture::manual("a b<-a");
    let run_id = t.dispatch(POOL);
    let caller = worker(WORKER, POOL, Some(run_id));
    t.refuse_as(&caller, claim_command(run_id, "b"), Code::StepNotReady);
    t.refuse(write_command("b", StepStatus::Completed), Code::StepNotReady);
    t.refuse(write_command("b", StepStatus::Running), Code::InvalidTransition);
}

/// READY-04: behind a failed or cancelled Step nothing moves until the orchestrator does: by
/// reopening, editing, or a replacement.
#[test]
fn nothing_moves_behind_a_failed_or_cancelled_step() {
    let mut t = Fixture::manual("a b c<-a d<-b e<-c");
    let held = t.claim("a");
    t.report(&held, StepStatus::Failed);
    assert_eq!(t.events(), ["task_step_failed a"]);
    t.write("b", StepStatus::Cancelled);
    assert_eq!(t.events(), ["task_step_cancelled b"]);
    assert_eq!(t.statuses("c d e"), "c:pending d:pending e:pending");
    t.write("a", StepStatus::Pending);
    assert_eq!(t.events(), ["task_step_reopened a", "task_step_ready a"]);
    t.ok(patch(json!([
        {"op": "remove_dependency", "step_id": "d", "depends_on_step_id": "b"},
    ])));
    assert_eq!(t.events(), ["task_updated", "task_step_ready d"]);
}

/// READY-05, S19: a Step in its backoff is pending until the timer, which needs no other command.
#[test]
fn a_backoff_ends_by_its_timer() {
    let mut t = Fixture::auto("a");
    let held = t.grant(WORKER, POOL).unwrap();
    t.report(&held, StepStatus::Failed);
    assert_eq!(t.events(), ["task_step_failed a", "task_step_reopened a"]);
    let not_before = t.step("a").state.not_before.unwrap();
    assert_eq!(t.status("a"), StepStatus::Pending);
    assert_eq!(t.task.next_due(), Some(not_before));
    t.ok_as(&system(), Command::Due);
    assert_eq!(t.status("a"), StepStatus::Pending, "it is too early");
    t.now = not_before;
    t.judge_due();
    assert_eq!(t.events(), ["task_step_ready a"]);
    assert_eq!(t.step("a").state.not_before, None);
}

/// READY-05: a patch does not end a backoff either.
#[test]
fn a_patch_does_not_shorten_a_backoff() {
    let mut t = Fixture::auto("a b");
    let held = t.grant(WORKER, POOL).unwrap();
    t.report(&held, StepStatus::Failed);
    t.ok(patch(json!([
        {"op": "add_dependency", "step_id": "a", "depends_on_step_id": "b"},
        {"op": "remove_dependency", "step_id": "a", "depends_on_step_id": "b"},
        {"op": "update_step", "step_id": "a", "fields": {"title": "x"}},
    ])));
    assert_eq!(t.events(), ["task_updated"]);
    assert_eq!(t.statuses("a b"), "a:pending b:ready");
}

/// READY-06: own events, then ready Steps in creation order, then `task_running`.
#[test]
fn events_of_a_commit_stand_in_their_order() {
    let given = CreateTask { draft: Some(true), ..create_input("c b a<-c") };
    let mut t = Fixture::create(given, Policy::Manual);
    assert_eq!(t.events(), ["task_created"]);
    t.ok(Command::SubmitTask(Why::default()));
    assert_eq!(
        t.events(),
        ["task_submitted", "task_step_ready c", "task_step_ready b", "task_running"]
    );
}

/// READY-06: own events, the retry of S19, then the policy (POL-04 to POL-06).
#[test]
fn retries_stand_before_the_policy() {
    let mut t = Fixture::auto("a b");
    let a = t.grant(WORKER, POOL).unwrap();
    assert_eq!(a.step_id, "a");
    t.report(&a, StepStatus::Failed);
    assert_eq!(t.events(), ["task_step_failed a", "task_step_reopened a"]);
    t.ok(patch(json!([{"op": "cancel_step", "step_id": "b"}])));
    assert_eq!(
        t.events(),
        ["task_updated", "task_step_cancelled b", "task_step_failed a", "task_failed"]
    );
}

/// READY-06: the same history yields the same events.
#[test]
fn the_same_history_yields_the_same_events() {
    let story = || {
        let mut t = Fixture::auto("a b c<-a d<-a,b e?<-c");
        while !t.task.is_terminal() {
            let held = t.grant(WORKER, POOL).unwrap();
            t.complete(&held);
        }
        t
    };
    let (one, two) = (story(), story());
    assert_eq!(one.log, two.log);
    assert_eq!(one.task_status(), TaskStatus::Completed);
}

/// READY-07: under dispatch=manual a ready Step starts nothing.
#[test]
fn ready_steps_of_a_manual_task_are_given_to_nobody() {
    let mut t = Fixture::manual("a");
    assert!(t.grant(WORKER, POOL).is_none());
    assert_eq!(t.status("a"), StepStatus::Ready);
    assert_eq!(t.task.open_pools().count(), 0);
    assert_eq!(Fixture::auto("a").task.open_pools().count(), 1);
}

/// READY-08, S01: every Step starts as pending, and is ready in the same commit if it may be.
#[test]
fn a_new_step_is_pending_before_it_is_ready() {
    let mut t = Fixture::manual("a");
    assert_eq!(t.events(), ["task_created", "task_step_ready a", "task_running"]);
    t.ok(patch(json!([{"op": "add_step", "step":
        {"step_id": "b", "title": "", "summary": "", "depends_on_step_ids": []}}])));
    assert_eq!(t.events(), ["task_updated", "task_step_ready b"]);
    let mut t = Fixture::draft("a");
    assert_eq!(t.status("a"), StepStatus::Pending);
    t.ok(patch(json!([{"op": "update_task", "title": "x"}])));
    assert_eq!(t.events(), ["task_updated"]);
}
