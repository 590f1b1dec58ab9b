//! ATT: Attempts, and the rows of 3.3.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common;
use common::*;
use tenure_core::Command;
use tenure_core::command::create::CreateTask;
use tenure_core::command::{RunOutcome, StepReport};
use tenure_core::event::LeaseEnd;
use tenure_core::id::Ref;
use tenure_core::status::{
    AttemptStatus, EndReason, Outcome, Policy, RunState, StepStatus, TaskStatus,
};
use tenure_core::view::{Known, TaskView};

/// Ends an Attempt in one way.
type End = fn(&mut Fixture, &Held);

/// A03 to A13, R03, R06 to R12, ATT-06: how an Attempt ends, its outcome, its error, its Run's end.
#[test]
fn every_way_to_end_has_one_outcome() {
    use EndReason as E;
    use Outcome as O;
    let silent = "worker_finished_without_terminal_step_status";
    let rows: [(&str, End, O, Option<&str>, E); 18] = [
        ("A03 own", |t, h| t.complete(h), O::Completed, None, E::Completed),
        ("A03 S22", |t, _| t.write("a", StepStatus::Completed), O::Completed, None, E::Revoked),
        ("A04 own", |t, h| t.fail(h, "broken"), O::Failed, Some("broken"), E::Completed),
        ("A04 S22", |t, _| t.write("a", StepStatus::Failed), O::Failed, Some("failed"), E::Revoked),
        (
            "A05 own",
            |t, h| drop(t.report(h, StepStatus::Blocked)),
            O::Blocked,
            Some("blocked"),
            E::Completed,
        ),
        (
            "A05 S22",
            |t, _| t.write("a", StepStatus::Blocked),
            O::Blocked,
            Some("blocked"),
            E::Revoked,
        ),
        ("A06", |t, h| drop(t.report(h, StepStatus::Cancelled)), O::Cancelled, None, E::Completed),
        ("A07", |t, h| t.lose(h), O::Lost, Some("lease_expired"), E::Lost),
        (
            "A08",
            |t, h| drop(t.end(h, RunOutcome::Finished)),
            O::Abandoned,
            Some(silent),
            E::FinishedWithoutTerminalStepStatus,
        ),
        (
            "A08 error",
            |t, h| drop(t.end(h, RunOutcome::Error)),
            O::Abandoned,
            Some(silent),
            E::FinishedWithoutTerminalStepStatus,
        ),
        ("A09", |t, h| drop(t.stop(h)), O::Cancelled, Some("worker_cancelled"), E::Cancelled),
        (
            "A09 asked",
            |t, h| {
                t.ok(cancel_run(h.run_id));
                t.end(h, RunOutcome::Finished);
            },
            O::Cancelled,
            Some("worker_cancelled"),
            E::Cancelled,
        ),
        (
            "A10 S13",
            |t, h| drop(t.end(h, RunOutcome::TimedOut)),
            O::TimedOut,
            Some("worker_timeout"),
            E::TimedOut,
        ),
        (
            "A10 S14",
            |t, _| drop(t.due_at(t.now + 5_000)),
            O::TimedOut,
            Some("worker_timeout"),
            E::TimedOut,
        ),
        (
            "A11",
            |t, h| {
                t.ok(fail_task());
                t.end(h, RunOutcome::Finished);
            },
            O::Cancelled,
            Some("task_failed"),
            E::TaskTerminal,
        ),
        (
            "A12",
            |t, h| {
                t.ok(cancel_task());
                t.end(h, RunOutcome::Finished);
            },
            O::Cancelled,
            Some("task_cancelled"),
            E::TaskTerminal,
        ),
        (
            "A13 own",
            |t, h| drop(t.ok_as(&h.caller(), h.releases())),
            O::Abandoned,
            Some("released"),
            E::Released,
        ),
        (
            "A13 host",
            |t, h| drop(t.ok_as(&system(), expire(&[h], LeaseEnd::HostRestarted))),
            O::Abandoned,
            Some("host_restarted"),
            E::Released,
        ),
    ];
    for started in [false, true] {
        for (row, end, outcome, code, end_reason) in rows {
            let mut t = with_policy(
                "a",
                json!({"start_to_close_ms": 5_000, "max_attempts": 1}),
                Policy::Manual,
            );
            let held = t.claim("a");
            if started {
                t.start(&held);
            }
            end(&mut t, &held);
            let (attempt, run) = (t.attempt_of(&held), t.run_of(held.run_id));
            assert_eq!(
                (attempt.status, attempt.outcome),
                (AttemptStatus::Ended, Some(outcome)),
                "{row}"
            );
            assert_eq!(attempt.error.as_ref().map(|e| e.code.as_str()), code, "{row}");
            let is_failure = match outcome {
                O::Failed | O::TimedOut | O::Lost => true,
                O::Abandoned => row != "A13 own",
                _ => false,
            };
            let failure = attempt.failure().map(|reason| reason.code.as_str());
            assert_eq!(failure, code.filter(|_| is_failure), "{row}");
            assert_eq!((run.state, run.end_reason), (RunState::Ended, Some(end_reason)), "{row}");
            assert_eq!(attempt.ended_at, Some(t.now), "{row}");
            assert_eq!(run.ended_at, Some(t.now), "{row}");
        }
    }
}

/// ATT-01, ATT-04, ATT-05, ATT-07, ATT-11: one Attempt per claim and by nothing else; ordinals
/// count from 1 and go on over every reopening.
#[test]
fn every_claim_and_nothing_else_makes_an_attempt() {
    let mut t = Fixture::manual("a");
    t.write("a", StepStatus::Failed);
    t.write("a", StepStatus::Pending);
    t.write("a", StepStatus::Blocked);
    t.write("a", StepStatus::Pending);
    assert_eq!(t.step("a").state.last_attempt, None);
    for ordinal in 1..=3 {
        let held = t.claim("a");
        assert_eq!(t.attempt_of(&held).ordinal, ordinal);
        assert_eq!(t.step("a").state.current, t.step("a").state.last_attempt);
        t.fail(&held, "broken");
        assert_eq!(t.step("a").state.current, None);
        t.write("a", StepStatus::Pending);
    }
    t.write("a", StepStatus::Completed);
    assert_eq!(t.step("a").state.ordinal, 3);
}

/// ATT-02, U3: an ended Attempt never changes, whatever happens to its Step.
#[test]
fn an_ended_attempt_is_kept_as_it_was() {
    let mut t = Fixture::manual("a b");
    let held = t.claim("a");
    let report = StepReport {
        output_refs: vec![Ref::new("mem:o").unwrap()],
        checkpoint_refs: vec![Ref::new("mem:c").unwrap()],
        status: Some(StepStatus::Failed),
        ..held.says()
    };
    t.ok_as(&held.caller(), Command::TaskUpdateStep(report));
    let before = t.attempt_of(&held).clone();
    t.write("a", StepStatus::Pending);
    t.ok(patch(json!([{"op": "update_step", "step_id": "a", "fields": {"title": "new"}}])));
    t.do_step("a");
    t.do_step("b");
    t.ok(complete_task());
    assert_eq!(*t.attempt_of(&held), before);
}

/// ATT-02, ID-06: Attempts of deleted Steps are kept, too.
#[test]
fn attempts_outlive_their_step() {
    let mut t = Fixture::manual("a b");
    let held = t.claim("a");
    t.lose(&held);
    t.ok(patch(json!([{"op": "delete_step", "step_id": "a"}])));
    assert_eq!(t.attempt_of(&held).outcome, Some(Outcome::Lost));
    assert_eq!(t.attempt_of(&held).step_id, id("a"));
}

/// STEP-24, STEP-27, ATT-03: an edit of a held Step is marked on its Attempt; claim-time values
/// hold for it.
#[test]
fn an_edit_during_an_attempt_is_marked_and_changes_nothing_for_it() {
    let mut t = with_policy("a", json!({"start_to_close_ms": 5_000}), Policy::Manual);
    let held = t.claim("a");
    let due = t.task.next_due();
    t.ok(patch(json!([{"op": "update_step", "step_id": "a", "fields":
        {"title": "new", "retry_policy": {"start_to_close_ms": 50}}}])));
    let attempt = t.attempt_of(&held);
    assert!(attempt.updated_after_dispatch);
    assert_eq!(attempt.step_snapshot.title, "title of a");
    assert_eq!(t.task.next_due(), due);
}

/// ATT-08, DAG-13: what a Run says of itself alters no Step.
#[test]
fn a_runs_own_result_is_informative_only() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    t.complete(&held);
    let end = tenure_core::command::EndRun {
        outcome: RunOutcome::Finished,
        result: Some("I did it all".into()),
        run_id: held.run_id,
    };
    assert!(t.ok_as(&held.caller(), Command::EndRun(end)).commit.is_none());
    assert_eq!(t.step("a").state.facts().result_summary, None);
}

/// ATT-09: outputs and checkpoints grow while the Attempt is open, each once.
#[test]
fn refs_grow_while_the_attempt_is_open() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    for names in [["x", "y"], ["y", "z"]] {
        let refs: Vec<Ref> = names.iter().map(|n| Ref::new(format!("mem:{n}")).unwrap()).collect();
        let report = StepReport { output_refs: refs.clone(), checkpoint_refs: refs, ..held.says() };
        t.ok_as(&held.caller(), Command::TaskUpdateStep(report));
    }
    let attempt = t.attempt_of(&held);
    let outputs: Vec<&str> = attempt.output_refs.iter().map(Ref::as_str).collect();
    assert_eq!(outputs, ["mem:x", "mem:y", "mem:z"]);
    assert_eq!(attempt.output_refs, attempt.checkpoint_refs);
    assert_eq!(attempt.progress_at, Some(t.now), "PROG-08");
}

/// ATT-10: a lost Attempt counts as nothing good: neither its Step nor its Task is completed.
#[test]
fn a_lost_attempt_is_no_success() {
    let mut t = with_policy("a", json!({"max_lost": 1}), Policy::Auto);
    let held = t.grant("ant", POOL).unwrap();
    t.lose(&held);
    assert_eq!(t.task_status(), TaskStatus::Failed);
    assert_eq!(t.task.tally().of(StepStatus::Completed), 0);
}

/// ATT-03: an Attempt is shown by the fields of 2.4, with its normalized status, and with signs of life
/// while it is open; and by no others.
#[test]
fn an_attempt_is_shown_by_its_fields() {
    let policy = serde_json::from_value(json!({"max_attempts": 1})).unwrap();
    let given = CreateTask { retry_policy: Some(policy), ..create_input("a") };
    let mut t = Fixture::create(given, Policy::Manual);
    let held = t.claim("a");
    let mut open = vec![
        "attempt_id",
        "task_id",
        "step_id",
        "run_id",
        "worker_id",
        "ordinal",
        "fencing_token",
        "status",
        "normalized_status",
        "input_refs",
        "output_refs",
        "checkpoint_refs",
        "retry_policy",
        "step_snapshot",
        "updated_after_dispatch",
        "started_at",
    ];
    let mut ended = open.clone();
    open.extend(["last_progress_at", "lease_expires_at", "lease_state"]);
    ended.extend(["outcome", "error", "completion_summary", "remote", "ended_at"]);
    assert_eq!(keys(&shown(&t)), sorted(open));

    let remote = json!({"native_protocol": "a2a", "remote_task_id": "r", "remote_agent_ref": "peer",
        "delivery_mechanism": "polling"});
    t.ok_as(
        &held.caller(),
        Command::TaskUpdateStep(StepReport {
            status: Some(StepStatus::Failed),
            reason: Some(reason("broken", "it broke")),
            result_summary: Some("half of it".into()),
            output_refs: vec![Ref::new("mem:out").unwrap()],
            checkpoint_refs: vec![Ref::new("mem:half").unwrap()],
            remote: serde_json::from_value(remote).unwrap(),
            ..held.says()
        }),
    );
    let shown = shown(&t);
    assert_eq!(keys(&shown), sorted(ended));
    let snapshot = vec!["title", "summary", "depends_on_step_ids", "version"];
    assert_eq!(keys(&shown["step_snapshot"]), sorted(snapshot));
    let values = [
        ("task_id", json!("t")),
        ("step_id", json!("a")),
        ("run_id", json!(held.run_id.to_string())),
        ("attempt_id", json!(held.attempt_id.to_string())),
        ("worker_id", json!("ant")),
        ("ordinal", json!(1)),
        ("fencing_token", json!(held.token)),
        ("status", json!("ended")),
        ("outcome", json!("failed")),
        ("output_refs", json!(["mem:out"])),
        ("checkpoint_refs", json!(["mem:half"])),
        ("completion_summary", json!("half of it")),
        ("updated_after_dispatch", json!(false)),
    ];
    for (name, value) in values {
        assert_eq!(shown[name], value, "{name}");
    }
    assert_eq!(shown["error"]["code"], "broken");
    assert_eq!(shown["remote"]["remote_task_id"], "r");
    assert_eq!(shown["retry_policy"]["max_attempts"], 1);
}

/// The only Attempt, as callers see it.
fn shown(t: &Fixture) -> serde_json::Value {
    let view = TaskView::of(&t.task.durable(), &Known::new(t.now, &|_| None));
    assert_eq!(view.attempts.len(), 1);
    serde_json::to_value(&view.attempts[0]).unwrap()
}

fn keys(object: &serde_json::Value) -> Vec<&str> {
    sorted(object.as_object().unwrap().keys().map(String::as_str).collect())
}

fn sorted(mut names: Vec<&str>) -> Vec<&str> {
    names.sort_unstable();
    names
}
