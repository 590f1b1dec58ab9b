//! STEP: status and content of a Step, and the tables of section 3.2.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common;
use common::*;
use serde_json::Value as Json;
use tenure_core::command::{EndRun, RunAndWhy, RunOutcome, StepReport};
use tenure_core::id::{ArtifactId, Ref};
use tenure_core::record::{Progress, Value};
use tenure_core::retry_policy::Limit;
use tenure_core::status::{EndReason, Outcome, Policy, StepStatus, TaskStatus, WaitKind};
use tenure_core::{Code, Command};

fn update(step: &str, fields: Json) -> Command {
    patch(json!([{"op": "update_step", "step_id": step, "fields": fields}]))
}

/// STEP-01: the statuses by name.
#[test]
fn there_are_eight_statuses() {
    let names: Vec<&str> = StepStatus::ALL.iter().map(|s| s.as_str()).collect();
    assert_eq!(
        names,
        ["pending", "ready", "claimed", "running", "blocked", "completed", "failed", "cancelled"]
    );
}

/// STEP-04: a claim is not a start.
#[test]
fn only_a_report_starts_a_step() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    assert_eq!(t.events(), ["task_step_claimed a"]);
    assert_eq!(t.status("a"), StepStatus::Claimed);
    t.start(&held);
    assert_eq!(t.events(), ["task_step_started a"]);
    t.start(&held);
    assert_eq!(t.events(), ["task_step_updated a"], "started once; then it is progress");
}

/// STEP-05, STEP-06, STEP-07, S07: a blocked Step is owned by nobody; its Attempt has ended.
#[test]
fn a_blocked_step_is_owned_by_nobody() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    let report = StepReport {
        status: Some(StepStatus::Blocked),
        reason: Some(reason("which_one", "a or b?")),
        result_summary: Some("half done".into()),
        ..held.says()
    };
    t.ok_as(&held.caller(), Command::TaskUpdateStep(report));
    let step = t.step("a");
    assert_eq!(step.state.wait_kind, Some(WaitKind::Other));
    assert_eq!(step.state.current, None);
    assert_eq!(step.state.facts().status_reason.as_ref().unwrap().code, "which_one");
    assert_eq!(step.state.facts().result_summary.as_deref(), Some("half done"));
    assert_eq!(t.attempt_of(&held).outcome, Some(Outcome::Blocked));
    assert_eq!(t.run_of(held.run_id).end_reason, Some(EndReason::Completed));
    let mut t = Fixture::manual("a");
    let report = StepReport {
        status: Some(StepStatus::Blocked),
        wait_kind: Some(WaitKind::Permission),
        ..StepReport::on(id("a"))
    };
    t.ok(Command::TaskUpdateStep(report));
    assert_eq!(t.step("a").state.wait_kind, Some(WaitKind::Permission));
}

/// STEP-09, S18: the orchestrator lifts a block; the Step is ready in the same commit.
#[test]
fn the_orchestrator_lifts_a_block() {
    for status in [StepStatus::Blocked, StepStatus::Failed] {
        let mut t = Fixture::with_step(status);
        t.write("x", StepStatus::Pending);
        assert_eq!(t.events(), ["task_step_reopened x", "task_step_ready x"]);
        assert_eq!(t.payload("task_step_reopened")["from"], status.as_str());
        assert_eq!(t.payload("task_step_reopened")["counters_reset"], true);
        assert_eq!(t.step("x").state.wait_kind, None);
    }
}

/// STEP-12, S19: under a retry policy `system` reopens, in the commit of the failure.
#[test]
fn a_policy_reopens_a_failed_step() {
    let mut t = with_policy("a", json!({"max_attempts": 2}), Policy::Manual);
    let held = t.claim("a");
    t.report(&held, StepStatus::Failed);
    assert_eq!(t.events(), ["task_step_failed a", "task_step_reopened a"]);
    let event = t.last().events.last().unwrap();
    assert_eq!(event.actor.as_str(), "system");
    assert_eq!(t.payload("task_step_reopened")["reason"]["code"], "auto_retry");
    t.now = t.step("a").state.not_before.unwrap();
    t.judge_due();
    let held = t.claim("a");
    t.report(&held, StepStatus::Failed);
    assert_eq!(t.events(), ["task_step_failed a"]);
}

/// STEP-10: the failure and its reason stay until the orchestrator reopens.
#[test]
fn a_failed_step_says_why() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    let report = StepReport {
        status: Some(StepStatus::Failed),
        reason: Some(reason("disk_full", "no space")),
        ..held.says()
    };
    t.ok_as(&held.caller(), Command::TaskUpdateStep(report));
    assert_eq!(t.step("a").state.facts().status_reason.as_ref().unwrap().code, "disk_full");
    assert_eq!(t.attempt_of(&held).error.as_ref().unwrap().code, "disk_full");
    assert_eq!(t.task.head().last_error.as_ref().unwrap().code, "disk_full");
}

/// STEP-13: nothing revives a cancelled Step.
#[test]
fn nothing_revives_a_cancelled_step() {
    let mut t = Fixture::with_step(StepStatus::Cancelled);
    t.refuse(patch(json!([{"op": "reopen_step", "step_id": "x"}])), Code::InvalidTransition);
    let retry = json!({"reason": {"message": "again"}, "step_ids": ["x"]});
    let retry = Command::RetryTask(serde_json::from_value(retry).unwrap());
    t.refuse(retry, Code::InvalidTransition);
    let run_id = t.dispatch(POOL);
    t.refuse_as(
        &worker(WORKER, POOL, Some(run_id)),
        claim_command(run_id, "x"),
        Code::StepNotReady,
    );
    assert_eq!(t.status("x"), StepStatus::Cancelled);
}

/// STEP-14, STEP-22: title and summary of cancelled and completed Steps can be edited; they stay so.
#[test]
fn texts_of_ended_steps_can_be_edited() {
    for status in [StepStatus::Cancelled, StepStatus::Completed] {
        let mut t = Fixture::manual("x");
        let held = t.claim("x");
        let result_summary = Some("the result".into());
        let report = StepReport { status: Some(status), result_summary, ..held.says() };
        t.ok_as(&held.caller(), Command::TaskUpdateStep(report));
        let before = t.step("x").state.facts().clone();
        t.ok(update("x", json!({"title": "new", "summary": "newer"})));
        assert_eq!(t.events(), ["task_updated"]);
        assert_eq!(t.step("x").spec.title, "new");
        assert_eq!(t.status("x"), status);
        assert_eq!(*t.step("x").state.facts(), before);
        assert_eq!(t.step("x").state.updated_at, t.last().created_at);
    }
}

/// STEP-15: what a cancelled Step waits for schedules nothing.
#[test]
fn a_cancelled_step_is_never_scheduled() {
    let mut t = Fixture::manual("a b<-a");
    t.write("b", StepStatus::Cancelled);
    t.do_step("a");
    assert_eq!(t.events(), ["task_step_completed a"]);
    assert_eq!(t.task.ready_in(&pool_id(POOL)), 0);
}

/// STEP-16: a cancelled required Step blocks completion; deleted, or optional before, it does not.
#[test]
fn a_cancelled_required_step_blocks_completion() {
    let complete = complete_task();
    let mut t = Fixture::manual("a b");
    t.do_step("a");
    t.write("b", StepStatus::Cancelled);
    let rejection = t.refuse(complete.clone(), Code::RequiredStepsIncomplete);
    assert_eq!(rejection.details["step_ids"], json!(["b"]));
    t.ok(patch(json!([{"op": "delete_step", "step_id": "b"}])));
    t.ok(complete.clone());

    let mut t = Fixture::manual("a b");
    t.do_step("a");
    t.ok(patch(json!([
        {"op": "update_step", "step_id": "b", "fields": {"required": false}},
        {"op": "cancel_step", "step_id": "b"},
    ])));
    t.ok(complete);
    assert_eq!(t.status("b"), StepStatus::Cancelled);
}

/// STEP-17, S16: pending and ready Steps are cancelled directly, by report or by operation.
#[test]
fn pending_and_ready_steps_are_cancelled_directly() {
    for status in [StepStatus::Pending, StepStatus::Ready] {
        let mut t = Fixture::with_step(status);
        t.write("x", StepStatus::Cancelled);
        assert_eq!(t.events(), ["task_step_cancelled x"]);
        let mut t = Fixture::with_step(status);
        t.ok(patch(json!([{"op": "cancel_step", "step_id": "x"}])));
        assert_eq!(t.events(), ["task_updated", "task_step_cancelled x"]);
    }
}

/// STEP-19, RUN-05: a Step in work is stopped by cancelling its run, and fails.
#[test]
fn a_step_in_work_is_stopped_by_cancelling_its_run() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    t.refuse(write_command("a", StepStatus::Cancelled), Code::StepInProgress);
    t.ok(Command::CancelRun(RunAndWhy { reason: None, run_id: held.run_id }));
    assert_eq!(t.status("a"), StepStatus::Claimed);
    let end = EndRun { outcome: RunOutcome::Cancelled, result: None, run_id: held.run_id };
    t.ok_as(&held.caller(), Command::EndRun(end));
    assert_eq!(t.status("a"), StepStatus::Failed);
    assert_eq!(t.step("a").state.facts().status_reason.as_ref().unwrap().code, "worker_cancelled");
}

/// STEP-20, S23, S24: the end of the Task ends Steps in work too.
#[test]
fn the_end_of_the_task_ends_steps_in_work() {
    for (command, to) in [(fail_task(), StepStatus::Failed), (cancel_task(), StepStatus::Cancelled)]
    {
        let mut t = Fixture::manual("a b c");
        t.claim("a");
        let held = t.claim("b");
        t.start(&held);
        t.ok(command);
        t.wait_ms(60_000);
        t.judge_due();
        assert!(t.task.is_terminal());
        assert!(["a", "b", "c"].iter().all(|s| t.status(s) == to));
        assert_eq!(t.attempt_of(&held).outcome, Some(Outcome::Cancelled));
    }
}

/// STEP-21, STEP-23: no command changes the results of a completed Step; a new Step corrects them.
#[test]
fn results_of_a_completed_step_do_not_change() {
    let mut t = Fixture::manual("a b<-a");
    let held = t.claim("a");
    let report = StepReport {
        status: Some(StepStatus::Completed),
        output: Some(Value::json(*b"42")),
        result_summary: Some("the answer".into()),
        artifact_ids: vec![ArtifactId::new("file-1").unwrap()],
        ..held.says()
    };
    t.ok_as(&held.caller(), Command::TaskUpdateStep(report));
    let before = t.step("a").state.clone();
    let on = || StepReport::on(id("a"));
    for report in [
        StepReport { result_summary: Some("no".into()), ..on() },
        StepReport { artifact_ids: vec![ArtifactId::new("file-2").unwrap()], ..on() },
        StepReport { progress: Some(Progress::default()), ..on() },
        StepReport {
            status: Some(StepStatus::Completed),
            output: Some(Value::json(*b"43")),
            ..on()
        },
        StepReport { status: Some(StepStatus::Failed), ..on() },
    ] {
        t.refuse(Command::TaskUpdateStep(report), Code::StepHistoryImmutable);
    }
    let other = StepReport { status: Some(StepStatus::Completed), ..held.says() };
    t.refuse_as(&held.caller(), Command::TaskUpdateStep(other), Code::StaleAttempt);
    for operations in [
        json!([{"op": "delete_step", "step_id": "a"}]),
        json!([{"op": "cancel_step", "step_id": "a"}]),
        json!([{"op": "update_step", "step_id": "a", "fields": {"required": false}}]),
    ] {
        t.refuse(patch(operations), Code::StepHistoryImmutable);
    }
    assert_eq!(t.step("a").state, before);
    t.ok(patch(json!([
        {"op": "add_step", "step": {"step_id": "a2", "title": "a, corrected", "summary": "", "depends_on_step_ids": ["a"]}},
        {"op": "add_dependency", "step_id": "b", "depends_on_step_id": "a2"},
    ])));
    assert_eq!(t.statuses("a a2 b"), "a:completed a2:ready b:pending");
}

/// STEP-24: claim-time values hold for the open Attempt.
#[test]
fn an_open_attempt_keeps_the_values_of_its_claim() {
    let mut t = with_policy("a", json!({"max_lost": 1}), Policy::Manual);
    let held = t.claim("a");
    t.ok(update(
        "a",
        json!({
            "retry_policy": {"max_lost": 5}, "worker_pool_id": "gpu", "assignee": "bee",
        }),
    ));
    assert_eq!(t.attempt_of(&held).retry_policy.as_ref().unwrap().max_lost, Some(Limit::Of(1)));
    t.start(&held);
    t.lose(&held);
    assert_eq!(t.events(), ["task_step_lease_expired a", "task_step_failed a"]);
}

/// STEP-25, STEP-26: an edit stops nothing; the holder finishes although dependencies are open now.
#[test]
fn an_edited_step_in_work_goes_on() {
    for starts in [false, true] {
        let mut t = Fixture::manual("a b");
        let held = t.claim("a");
        if starts {
            t.start(&held);
        }
        let status = t.status("a");
        t.ok(patch(json!([
            {"op": "add_dependency", "step_id": "a", "depends_on_step_id": "b"},
            {"op": "update_step", "step_id": "a", "fields": {"title": "new"}},
        ])));
        assert_eq!(t.events(), ["task_updated"]);
        assert_eq!(t.payload("task_updated")["demoted_step_ids"], json!([]));
        assert_eq!(t.status("a"), status);
        assert_eq!(t.attempt_of(&held).outcome, None);
        t.complete(&held);
        assert_eq!(t.status("a"), StepStatus::Completed);
    }
}

/// STEP-26: given back, it waits for what the edit added.
#[test]
fn an_edited_step_that_is_given_back_waits() {
    let mut t = Fixture::manual("a b");
    let held = t.claim("a");
    t.ok(patch(json!([{"op": "add_dependency", "step_id": "a", "depends_on_step_id": "b"}])));
    t.ok_as(&held.caller(), held.releases());
    assert_eq!(t.events(), ["task_step_lease_expired a"]);
    assert_eq!(t.status("a"), StepStatus::Pending);
}

/// STEP-27, STEP-28: the edit is on record, with the Step as it was at the claim.
#[test]
fn an_edit_after_dispatch_is_on_record() {
    let mut t = Fixture::manual("a b c d");
    let (a, b) = (t.claim("a"), t.claim("b"));
    t.ok(patch(json!([
        {"op": "update_step", "step_id": "c", "fields": {"title": "new"}},
        {"op": "update_step", "step_id": "b", "fields": {}},
        {"op": "add_dependency", "step_id": "a", "depends_on_step_id": "d"},
        {"op": "remove_dependency", "step_id": "a", "depends_on_step_id": "d"},
    ])));
    assert_eq!(t.payload("task_updated")["updated_after_dispatch"], json!([]), "nothing changed");
    t.ok(patch(json!([
        {"op": "add_dependency", "step_id": "b", "depends_on_step_id": "d"},
        {"op": "update_step", "step_id": "a", "fields": {"title": "new"}},
        {"op": "update_step", "step_id": "c", "fields": {"title": "newer"}},
    ])));
    assert_eq!(t.payload("task_updated")["updated_after_dispatch"], json!(["a", "b"]));
    for held in [&a, &b] {
        assert!(t.attempt_of(held).updated_after_dispatch);
    }
    assert_eq!(t.attempt_of(&a).step_snapshot.title, "title of a");
    assert_eq!(t.step("a").spec.title, "new");
    assert!(t.attempt_of(&b).step_snapshot.depends_on_step_ids.is_empty());
    let again = {
        t.complete(&a);
        t.claim("c")
    };
    assert!(!t.attempt_of(&again).updated_after_dispatch);
}

/// STEP-29, STEP-30: of edited Steps only pending and ready ones are judged anew.
#[test]
fn a_dependency_edit_moves_only_pending_and_ready_steps() {
    for &status in StepStatus::ALL {
        let mut t = Fixture::with_step(status);
        let edge = json!({"op": "add_dependency", "step_id": "x", "depends_on_step_id": "other"});
        if matches!(status, StepStatus::Completed | StepStatus::Cancelled) {
            continue; // Their edges are fixed (PATCH-22).
        }
        t.ok(patch(json!([edge])));
        let expected = match status {
            StepStatus::Ready => StepStatus::Pending,
            other => other,
        };
        assert_eq!(t.status("x"), expected);
        let edge =
            json!({"op": "remove_dependency", "step_id": "x", "depends_on_step_id": "other"});
        t.ok(patch(json!([edge])));
        let expected = match status {
            StepStatus::Pending => StepStatus::Ready,
            other => other,
        };
        assert_eq!(t.status("x"), expected);
    }
}

/// STEP-31, S03: unmet after the edit gives pending, met gives ready; the demotion is in the payload.
#[test]
fn ready_and_pending_follow_the_edit() {
    let mut t = Fixture::manual("a b c<-a d");
    let by_edges = json!([
        {"op": "add_dependency", "step_id": "b", "depends_on_step_id": "a"},
        {"op": "update_step", "step_id": "c", "fields": {"depends_on_step_ids": []}},
        {"op": "update_step", "step_id": "d", "fields": {"depends_on_step_ids": ["a", "b"]}},
    ]);
    t.ok(patch(by_edges));
    assert_eq!(t.events(), ["task_updated", "task_step_ready c"]);
    assert_eq!(t.payload("task_updated")["demoted_step_ids"], json!(["b", "d"]));
    assert_eq!(t.statuses("a b c d"), "a:ready b:pending c:ready d:pending");
    assert_eq!(t.step("b").state.ready_at, None);
    t.do_step("a");
    assert_eq!(t.events(), ["task_step_completed a", "task_step_ready b"]);
    t.ok(patch(json!([{"op": "add_dependency", "step_id": "b", "depends_on_step_id": "a"}])));
    assert_eq!(t.events(), ["task_updated"], "a completed dependency demotes nobody");
}

/// STEP-31: a demoted Step behind a dead end counts as one for those behind it.
#[test]
fn a_demoted_step_behind_a_dead_end_is_a_dead_end() {
    let mut t = Fixture::auto("a? b? c<-b d?");
    t.write("a", StepStatus::Cancelled);
    assert_eq!(t.task_status(), TaskStatus::Running);
    t.ok(patch(json!([{"op": "add_dependency", "step_id": "b", "depends_on_step_id": "a"}])));
    assert_eq!(t.payload("task_updated")["demoted_step_ids"], json!(["b"]));
    assert_eq!(t.task.head().status_reason.as_ref().unwrap().code, "unreachable_step");
}

/// STEP-32: a worker edits no content; it has no tool for it, and reports carry none (DAG-12).
#[test]
fn a_worker_edits_no_content() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    t.refuse_as(&held.caller(), update("a", json!({"title": "x"})), Code::ToolNotAvailable);
    let content_fields = vec!["title".into()];
    let report = StepReport { content_fields, ..held.says() };
    t.refuse_as(&held.caller(), Command::TaskUpdateStep(report), Code::PermissionDenied);
}

/// STEP-33: a reopening clears the view of the Step; Attempt and Task keep what was.
#[test]
fn a_reopening_clears_the_view_and_keeps_the_history() {
    for status in [StepStatus::Blocked, StepStatus::Failed] {
        let mut t = Fixture::manual("a");
        let held = t.claim("a");
        let report = StepReport {
            status: Some(status),
            reason: Some(reason("c", "m")),
            result_summary: Some("half".into()),
            artifact_ids: vec![ArtifactId::new("file").unwrap()],
            output_refs: vec![Ref::new("mem:out").unwrap()],
            progress: Some(Progress { percent: Some(50.0), ..Progress::default() }),
            ..held.says()
        };
        t.ok_as(&held.caller(), Command::TaskUpdateStep(report));
        t.write("a", StepStatus::Pending);
        let state = &t.step("a").state;
        assert_eq!(state.wait_kind, None);
        let facts = state.facts();
        assert!(facts.result_summary.is_none() && facts.status_reason.is_none());
        assert!(facts.artifact_ids.is_empty() && facts.progress.is_none());
        let attempt = t.attempt_of(&held);
        assert_eq!(attempt.completion_summary.as_deref(), Some("half"));
        assert_eq!(attempt.output_refs.len(), 1);
        let again = t.claim("a");
        assert_eq!(t.attempt_of(&again).ordinal, 2);
    }
}
