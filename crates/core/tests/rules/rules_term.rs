//! TERM: completing, failing and cancelling a Task.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common;
use common::*;
use tenure_core::command::create::CreateTask;
use tenure_core::command::{AppendProgress, Close, Complete, RunOutcome, StepReport, Wait};
use tenure_core::record::{Acceptance, ArtifactInput, RemoteRef};
use tenure_core::status::{
    AcceptanceState, DeliveryState, Outcome, Policy, StepStatus, TaskStatus,
};
use tenure_core::{Code, Command};

use StepStatus::{Blocked, Cancelled, Claimed, Completed, Failed, Pending, Ready, Running};

/// A Task with a required Step `x` and one optional Step in every status; `p` is pending behind
/// `x`. Held Steps only if asked for.
fn one_of_each(held: bool) -> (Fixture, Vec<Held>) {
    let mut t = Fixture::manual("x p?<-x r? c? u? b? d? f? k?");
    for (step, status) in [("b", Blocked), ("d", Completed), ("f", Failed), ("k", Cancelled)] {
        t.bring(step, status);
    }
    let mut holding = Vec::new();
    if held {
        holding = vec![t.claim("c"), t.claim("u")];
        t.start(&holding[1]);
    }
    (t, holding)
}

/// TERM-03, TERM-04, TASK-19: complete names the Steps that hinder it, claimed ones first.
#[test]
fn complete_needs_every_required_step_and_no_step_at_work() {
    let mut t = Fixture::manual("a b? c<-a");
    let held = t.claim("b");
    let no = t.refuse(complete_task(), Code::StepsInProgress);
    assert_eq!(no.details["step_ids"], json!(["b"]));
    t.start(&held);
    t.refuse(complete_task(), Code::StepsInProgress);
    t.complete(&held);
    let no = t.refuse(complete_task(), Code::RequiredStepsIncomplete);
    assert_eq!(no.details["step_ids"], json!(["a", "c"]));
    t.do_step("a");
    assert!(!t.task.is_completeable());
    t.do_step("c");
    assert!(t.task.is_completeable());
    t.ok(complete_task());
    assert_eq!(t.events(), ["task_completed"]);
    assert_eq!(t.task_status(), TaskStatus::Completed);
    assert_eq!(t.task.head().ended_at, Some(t.now));
}

/// STEP-16, TERM-03: a required Step that was cancelled or failed still hinders.
#[test]
fn a_cancelled_required_step_hinders_completion() {
    for status in [Cancelled, Failed, Blocked] {
        let mut t = Fixture::manual("a b");
        t.do_step("a");
        t.bring("b", status);
        t.refuse(complete_task(), Code::RequiredStepsIncomplete);
    }
}

/// TERM-02, TERM-05, TERM-06, TERM-07, TERM-17, S17, T09: optional open Steps are cancelled by the
/// scheduler in creation order, others keep their status.
#[test]
fn completing_cancels_what_is_optional_and_open() {
    let (mut t, _) = one_of_each(false);
    t.do_step("x");
    t.ok(complete_task());
    let mut expected: Vec<String> =
        ["p", "r", "c", "u"].iter().map(|s| format!("task_step_cancelled {s}")).collect();
    expected.push("task_completed".into());
    assert_eq!(t.events(), expected);
    assert_eq!(t.actors(), ["system", "system", "system", "system", ORCHESTRATOR]);
    assert_eq!(t.statuses("x b d f k"), "x:completed b:blocked d:completed f:failed k:cancelled");
}

/// T09: complete works from blocked and paused, not from draft, and not after the end.
#[test]
fn complete_works_in_every_live_status_but_draft() {
    for stop in [block_task(), Command::PauseTask(Default::default())] {
        let mut t = Fixture::manual("a b?");
        t.do_step("a");
        t.ok(stop);
        t.ok(complete_task());
        t.refuse(complete_task(), Code::TaskTerminal);
    }
    let mut t = Fixture::draft("a");
    t.refuse(complete_task(), Code::InvalidTransition);
    t.refuse(fail_task(), Code::InvalidTransition);
}

fn artifact(id: &str, state: &str) -> ArtifactInput {
    let given = json!({"artifact_id": id, "name": id, "kind": "text", "state": state});
    serde_json::from_value(given).unwrap()
}

fn with_artifacts(artifacts: Vec<ArtifactInput>) -> Command {
    Command::TaskComplete(Complete { artifacts, ..Complete::default() })
}

/// TERM-10: no artifact is pending, those the command itself brings included; the command may
/// bring the last state of one.
#[test]
fn complete_needs_every_artifact_settled() {
    let mut t = Fixture::manual("a");
    t.do_step("a");
    let progress =
        AppendProgress { artifacts: vec![artifact("x", "pending")], ..Default::default() };
    t.ok(Command::AppendTaskProgress(progress));
    let no = t.refuse(complete_task(), Code::FactsUnreconciled);
    assert_eq!(no.details["artifacts_pending"], 1);
    let other = with_artifacts(vec![artifact("x", "available"), artifact("y", "pending")]);
    t.refuse(other, Code::FactsUnreconciled);
    t.refuse(with_artifacts(vec![artifact("y", "available")]), Code::FactsUnreconciled);
    t.ok(with_artifacts(vec![artifact("x", "available")]));
    assert_eq!(t.task.tally().artifacts_pending, 0);
}

/// TERM-10, REPORT-19: facts of a peer are stored here first.
#[test]
fn complete_needs_reconciled_peers() {
    let mut t = Fixture::manual("a");
    let remote = |reconciled: bool| {
        let remote = RemoteRef { remote_task_id: "r".into(), reconciled, ..RemoteRef::default() };
        StepReport { remote: Some(remote), ..StepReport::on(id("a")) }
    };
    let held = t.claim("a");
    let report = |r: StepReport| {
        Command::TaskUpdateStep(StepReport {
            attempt_id: Some(held.attempt_id),
            fencing_token: Some(held.token),
            ..r
        })
    };
    t.ok_as(&held.caller(), report(remote(false)));
    t.refuse_as(&held.caller(), held.reports(Completed), Code::FactsUnreconciled);
    t.ok_as(&held.caller(), report(remote(true)));
    t.complete(&held);
    t.ok(complete_task());
}

fn criterion(id: &str, state: AcceptanceState) -> Acceptance {
    Acceptance { id: id.into(), text: None, reference: None, state }
}

/// TERM-11: every criterion is met or waived; the command may say so itself.
#[test]
fn complete_needs_every_criterion_met_or_waived() {
    use AcceptanceState::{Met, Unknown, Unmet, Waived};
    let acceptance = vec![criterion("one", Unknown), criterion("two", Met)];
    let given = CreateTask { acceptance, ..create_input("a") };
    let mut t = Fixture::create(given, Policy::Manual);
    t.do_step("a");
    let no = t.refuse(complete_task(), Code::AcceptanceUnmet);
    assert_eq!(no.details["acceptance_ids"], json!(["one"]));
    let says = |one, two| {
        let acceptance = Some(vec![criterion("one", one), criterion("two", two)]);
        Command::TaskComplete(Complete { acceptance, ..Complete::default() })
    };
    t.refuse(says(Met, Unmet), Code::AcceptanceUnmet);
    t.ok(says(Waived, Met));
    assert_eq!(t.task.head().spec.acceptance[0].state, Waived);
}

/// 5.2 `agent.task_complete`: its checks come in the order of the table.
#[test]
fn completes_checks_come_in_the_order_of_the_table() {
    let acceptance = vec![criterion("one", AcceptanceState::Unknown)];
    let given = CreateTask { acceptance, ..create_input("a b") };
    let mut t = Fixture::create(given, Policy::Manual);
    let progress =
        AppendProgress { artifacts: vec![artifact("x", "pending")], ..Default::default() };
    t.ok(Command::AppendTaskProgress(progress));
    let held = t.claim("a");
    t.refuse(complete_task(), Code::StepsInProgress);
    t.complete(&held);
    t.refuse(complete_task(), Code::RequiredStepsIncomplete);
    t.do_step("b");
    t.refuse(complete_task(), Code::FactsUnreconciled);
    t.refuse(with_artifacts(vec![artifact("x", "missing")]), Code::AcceptanceUnmet);
}

/// TERM-08, TERM-14, TERM-16, TERM-17, S23, T11: fail ends every unfinished Step, in creation
/// order; the caller's own reason goes to the Task only.
#[test]
fn failing_fails_every_unfinished_step() {
    let (mut t, _) = one_of_each(false);
    t.ok(Command::TaskFail(Close {
        grace_ms: None,
        reason: Some(reason("no_money", "spent")),
        wait: None,
    }));
    let ended = ["x", "p", "r", "c", "u", "b"];
    let mut expected: Vec<String> = ended.iter().map(|s| format!("task_step_failed {s}")).collect();
    expected.push("task_failed".into());
    assert_eq!(t.events(), expected);
    for step in ended {
        assert_eq!((t.status(step), t.code_of(step)), (Failed, "task_failed"));
        assert_eq!(t.step(step).state.facts().result_summary.as_deref(), Some("task_failed"));
    }
    assert_eq!(t.task_code(), "no_money");
    assert_eq!(t.statuses("d f k"), "d:completed f:failed k:cancelled");
    assert_ne!(t.code_of("f"), "task_failed", "TERM-16");
    assert_eq!(*t.actors().last().unwrap(), ORCHESTRATOR);
    assert_eq!(t.actors()[0], "system");
}

/// TERM-15, TERM-16, S24, T13, CANCEL-06: cancel does the same with `task_cancelled`; with
/// nothing held in one commit, without a recorded intent.
#[test]
fn cancelling_cancels_every_unfinished_step() {
    let (mut t, _) = one_of_each(false);
    t.ok(cancel_task());
    let ended = ["x", "p", "r", "c", "u", "b"];
    let mut expected: Vec<String> =
        ended.iter().map(|s| format!("task_step_cancelled {s}")).collect();
    expected.push("task_cancelled".into());
    assert_eq!(t.events(), expected);
    for step in ended {
        assert_eq!((t.status(step), t.code_of(step)), (Cancelled, "task_cancelled"));
    }
    assert_eq!(t.task_code(), "task_cancelled");
    assert_eq!(t.statuses("d f k"), "d:completed f:failed k:cancelled");
}

/// TASK-17: the default code of an explicit fail.
#[test]
fn a_failed_task_has_a_reason_code() {
    let mut t = Fixture::manual("a");
    t.ok(fail_task());
    assert_eq!(t.task_code(), "task_failed");
    assert_eq!(t.task.head().last_error.as_ref().unwrap().code, "task_failed");
}

/// T13: a draft is cancelled at once.
#[test]
fn a_draft_is_cancelled_at_once() {
    let mut t = Fixture::draft("a b<-a");
    t.ok(cancel_task());
    assert_eq!(t.events(), ["task_step_cancelled a", "task_step_cancelled b", "task_cancelled"]);
}

/// TERM-09, TERM-12, T10, T12, S23, S24, A11, A12: with Steps held the intent is recorded with a
/// deadline; after it, or when the last Run is gone, every Step is ended.
#[test]
fn closing_waits_for_the_runs_and_no_longer_than_the_limit() {
    for (close, intent, last, code) in [
        (fail_task(), "fail", "task_failed", "task_failed"),
        (cancel_task(), "cancel", "task_cancelled", "task_cancelled"),
    ] {
        let (mut t, held) = one_of_each(true);
        let before = t.task_status();
        let asked = t.ok(close);
        assert_eq!(asked.reply.waits, Some(Wait::TaskEnd));
        assert_eq!(t.events(), ["task_cancel_requested"]);
        assert_eq!(t.task_status(), before, "unchanged + cancel_requested");
        let payload = t.payload("task_cancel_requested");
        let deadline = t.now + 10_000;
        assert_eq!(
            (&payload["intent"], &payload["deadline_at"]),
            (&json!(intent), &json!(deadline))
        );
        let runs = [held[0].run_id.to_string(), held[1].run_id.to_string()];
        assert_eq!(payload["run_ids"], json!(runs));
        assert_eq!(t.task.next_due(), Some(deadline));

        let mut soon = t.clone();
        soon.end(&held[0], RunOutcome::Finished);
        assert!(soon.task.is_closing());
        soon.end(&held[1], RunOutcome::Finished);
        let mut late = t;
        assert!(late.due_at(deadline - 1).commit.is_none());
        late.due_at(deadline);
        for t in [soon, late] {
            let events = t.events();
            assert_eq!(events.len(), 7, "{events:?}");
            assert_eq!(events.last().unwrap(), last);
            for (step, held) in ["c", "u"].iter().zip(&held) {
                assert_eq!(t.code_of(step), code);
                assert_eq!(t.attempt_of(held).outcome, Some(Outcome::Cancelled));
                assert_eq!(t.attempt_of(held).error.as_ref().unwrap().code, code);
            }
            assert_eq!(*t.actors().last().unwrap(), ORCHESTRATOR, "2.5: the requester");
        }
    }
}

/// 2.5: phase 2 by the timer carries the command that asked for it.
#[test]
fn the_end_names_the_command_that_asked_for_it() {
    let mut t = Fixture::manual("a");
    t.claim("a");
    let asked =
        Envelope { command_id: Some("close".into()), digest: Some([9; 32]), ..Envelope::default() };
    let first = t.run_with(&orchestrator(), &cancel_task(), &asked).unwrap();
    t.restart();
    t.due_at(t.now + 10_000);
    assert_eq!(t.task_status(), TaskStatus::Cancelled);
    assert_eq!(t.last().command_id.as_ref().unwrap().as_str(), "close");
    let again = t.run_with(&orchestrator(), &cancel_task(), &asked).unwrap();
    assert_eq!(again.reply.written, first.reply.written);
    assert_eq!(again.reply.waits, None);
}

/// 2.5: a holder's final word may be what closing waits for; that commit is the holder's, who gave it no
/// id, and not the cancel's. The end of a Run, which says nothing else, is written with the cancel.
#[test]
fn a_final_word_that_ends_the_closing_names_no_command() {
    for is_report in [true, false] {
        let mut t = Fixture::manual("a");
        let held = t.claim("a");
        let id = Some("close".into());
        let asked = Envelope { command_id: id, digest: Some([9; 32]), ..Envelope::default() };
        t.run_with(&orchestrator(), &cancel_task(), &asked).unwrap();
        if is_report {
            t.complete(&held);
        } else {
            t.end(&held, RunOutcome::Cancelled);
        }
        assert_eq!(t.task_status(), TaskStatus::Cancelled);
        let named = t.last().command_id.as_ref().map(|id| id.as_str());
        assert_eq!(named, (!is_report).then_some("close"));
        assert_eq!(t.last().command_digest.is_some(), !is_report);
    }
}

/// TERM-16, TERM-23, T11: what a holder reaches first while the Task is closing is kept, and its
/// final report may be the last thing closing waited for.
#[test]
fn holders_may_finish_while_the_task_is_closing() {
    let mut t = Fixture::manual("a b c");
    let (a, b) = (t.claim("a"), t.claim("b"));
    t.ok(cancel_task());
    t.start(&a);
    assert_eq!(t.events(), ["task_step_started a"]);
    t.complete(&a);
    assert_eq!(t.events(), ["task_step_completed a"], "and nothing gets ready");
    t.report(&b, Failed);
    assert_eq!(t.events(), ["task_step_failed b", "task_step_cancelled c", "task_cancelled"]);
    assert_eq!(t.statuses("a b c"), "a:completed b:failed c:cancelled");
}

/// TERM-23, RETRY: a Step that fails while closing is not tried again.
#[test]
fn nothing_is_retried_while_closing() {
    let mut t = with_policy("a b", json!({"max_attempts": 5}), Policy::Auto);
    let (a, _b) = (t.grant("ant", POOL).unwrap(), t.grant("bee", POOL).unwrap());
    t.ok(cancel_task());
    t.fail(&a, "broken");
    assert_eq!(t.events(), ["task_step_failed a"]);
}

/// TERM-18, TERM-19, TERM-20, PATCH-23: nothing changes after the end.
#[test]
fn an_ended_task_takes_no_command() {
    for end in [complete_task(), fail_task(), cancel_task()] {
        let mut t = Fixture::manual("a b");
        let (run, held) = (t.dispatch(POOL), t.claim("a"));
        t.complete(&held);
        t.do_step("b");
        t.ok(end);
        for command in [
            complete_task(),
            fail_task(),
            cancel_task(),
            block_task(),
            write_command("a", Pending),
            write_command("never", Failed),
            patch(json!([{"op": "update_task", "title": "new"}])),
            Command::SubmitTask(Default::default()),
            Command::ReopenTask(Default::default()),
            Command::ResumeTask(Default::default()),
            Command::PauseTask(Default::default()),
            Command::RetryTask(tenure_core::command::RetrySteps {
                reason: reason("again", "please"),
                step_ids: None,
            }),
            Command::AppendTaskProgress(AppendProgress {
                delivery_state: Some(DeliveryState::Delivered),
                artifacts: vec![artifact("x", "available")],
                ..AppendProgress::default()
            }),
            Command::DispatchWorker(tenure_core::command::Dispatch::to(pool_id(POOL))),
        ] {
            let no = t.refuse(command, Code::TaskTerminal);
            assert_eq!(no.details["status"], t.task_status().as_str());
        }
        let ant = t.member("ant", run);
        t.refuse_as(&ant, claim_command(run, "a"), Code::TaskTerminal);
        t.refuse_as(&system(), Command::Due, Code::TaskTerminal);
        t.refuse_as(
            &system(),
            expire(&[], tenure_core::event::LeaseEnd::LeaseExpired),
            Code::TaskTerminal,
        );
        assert_eq!(t.task.next_due(), None);
    }
}

/// TERM-21, T14, P11: only archive and delivery come after the end, and each raises the version.
#[test]
fn only_archive_and_delivery_come_after_the_end() {
    let mut t = Fixture::manual("a");
    let archive = || Command::ArchiveTask(Default::default());
    t.refuse(archive(), Code::InvalidTransition);
    t.ok(cancel_task());
    let delivered = AppendProgress {
        delivery_state: Some(DeliveryState::Delivered),
        ..AppendProgress::default()
    };
    t.ok(Command::AppendTaskProgress(delivered));
    assert_eq!(t.events(), ["task_delivery_updated"]);
    assert_eq!(t.task.head().delivery_state, DeliveryState::Delivered);
    let version = t.task.version();
    t.ok(archive());
    assert_eq!((t.events(), t.task.version()), (vec!["task_archived".to_owned()], version + 1));
    assert_eq!(t.task.head().archived_at, Some(t.now));
    assert_eq!(t.task_status(), TaskStatus::Cancelled);
    assert!(t.ok(archive()).commit.is_none(), "archived twice: no-op");
}

/// TERM-24: repeating the same close is answered, without an event; `wait` says whether the answer
/// may come at once.
#[test]
fn the_same_close_again_is_no_new_event() {
    for close in [Command::TaskFail, Command::TaskCancel] {
        let mut t = Fixture::manual("a");
        t.claim("a");
        let wait = |wait| close(Close { grace_ms: None, reason: None, wait });
        assert_eq!(t.ok(wait(Some(false))).reply.waits, None);
        let version = t.task.version();
        let again = t.ok(wait(None));
        assert!(again.commit.is_none());
        assert_eq!((again.reply.waits, t.task.version()), (Some(Wait::TaskEnd), version));
        assert_eq!(t.ok(wait(Some(false))).reply.waits, None);
    }
}

/// TERM-25: another close while closing is `task_cancelling`, and so is complete.
#[test]
fn another_close_while_closing_is_refused() {
    for (first, second, intent) in
        [(cancel_task(), fail_task(), "cancel"), (fail_task(), cancel_task(), "fail")]
    {
        let mut t = Fixture::manual("a");
        t.claim("a");
        t.ok(first);
        assert_eq!(t.refuse(second, Code::TaskCancelling).details["intent"], intent);
        assert_eq!(t.refuse(complete_task(), Code::TaskCancelling).details["intent"], intent);
    }
}

/// OCC-05: complete against cancel: the first appended wins, the other is told.
#[test]
fn of_complete_and_cancel_the_first_wins() {
    let mut t = Fixture::manual("a");
    t.do_step("a");
    let mut other = t.clone();
    t.ok(complete_task());
    t.refuse(cancel_task(), Code::TaskTerminal);
    other.ok(cancel_task());
    other.refuse(complete_task(), Code::TaskTerminal);
}

/// Every status a Step can be in is met above.
#[test]
fn one_of_each_is_one_of_each() {
    let (t, _) = one_of_each(true);
    let all = [Ready, Pending, Ready, Claimed, Running, Blocked, Completed, Failed, Cancelled];
    let found: Vec<StepStatus> =
        ["x", "p", "r", "c", "u", "b", "d", "f", "k"].iter().map(|s| t.status(s)).collect();
    assert_eq!(found, all);
}
