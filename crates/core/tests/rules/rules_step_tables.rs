//! STEP: the tables of section 3.2, exhaustively, and the transitions that time and losses cause.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common;
use common::*;
use tenure_core::command::StepReport;
use tenure_core::event::Body;
use tenure_core::status::{EndReason, Outcome, Policy, StepStatus};
use tenure_core::{Code, Command, Rejection, Rules};

fn letter(result: &Result<(), Rejection>) -> &'static str {
    match result {
        Ok(()) => "yes",
        Err(rejection) => match rejection.code {
            Code::InvalidTransition => "invalid",
            Code::StepNotReady => "not_ready",
            Code::StepInProgress => "in_work",
            Code::StepHistoryImmutable => "history",
            Code::PermissionDenied => "denied",
            Code::StaleAttempt => "stale",
            other => other.as_str(),
        },
    }
}

/// One line per status, one column per target: yes, or the code.
fn matrix(mut result: impl FnMut(StepStatus, StepStatus) -> Result<(), Rejection>) -> String {
    let mut out = String::new();
    for &from in StepStatus::ALL {
        out += &format!("{from:<10}");
        for &to in StepStatus::ALL {
            out += &format!(" {:<9}", letter(&result(from, to)));
        }
        out = out.trim_end().to_owned() + "\n";
    }
    out
}

/// 3.2: what an orchestrator may write, from every status to every target. STEP-02, STEP-09,
/// STEP-12, STEP-13, STEP-17, STEP-18, STEP-19, STEP-36, S16, S18, S20, S21, S22, S29.
#[test]
fn what_an_orchestrator_may_write() {
    let table = |rules| {
        matrix(|from, to| {
            let mut t = Fixture::with_step_of(rules, from);
            t.run(&orchestrator(), &write_command("x", to))?;
            let now = t.status("x");
            let reopened = to == StepStatus::Pending && now == StepStatus::Ready;
            assert!(now == to || reopened, "{from} to {to} gave {now}");
            Ok(())
        })
    };
    // Columns: pending, ready, claimed, running, blocked, completed, failed, cancelled.
    let expected = "\
pending    invalid   invalid   invalid   invalid   yes       not_ready yes       yes\n\
ready      invalid   invalid   invalid   invalid   yes       yes       yes       yes\n\
claimed    invalid   invalid   invalid   invalid   yes       yes       yes       in_work\n\
running    invalid   invalid   invalid   invalid   yes       yes       yes       in_work\n\
blocked    yes       invalid   invalid   invalid   invalid   yes       yes       invalid\n\
completed  history   history   history   history   history   history   history   history\n\
failed     yes       invalid   invalid   invalid   invalid   yes       invalid   invalid\n\
cancelled  invalid   invalid   invalid   invalid   invalid   invalid   invalid   invalid\n";
    assert_eq!(table(Rules::Second), expected, "\n{}", table(Rules::Second));
    let unmarked = expected
        .replace(
            "invalid   yes       yes       invalid\n",
            "invalid   invalid   yes       invalid\n",
        )
        .replace(
            "invalid   yes       invalid   invalid\n",
            "invalid   invalid   invalid   invalid\n",
        );
    assert_eq!(table(Rules::First), unmarked, "\n{}", table(Rules::First));
}

/// 3.2: what a holder may write, from claimed and running. STEP-03, STEP-05, STEP-10, S05 to S10.
#[test]
fn what_a_holder_may_write() {
    use StepStatus::{Claimed, Ready};
    for starts in [false, true] {
        for &to in StepStatus::ALL {
            let mut t = Fixture::manual("x");
            let held = t.claim("x");
            if starts {
                t.start(&held);
            }
            let result = t.run(&held.caller(), &held.reports(to)).map(drop);
            let expected = match to {
                StepStatus::Pending | Ready => "denied",
                Claimed => "invalid",
                _ => "yes",
            };
            assert_eq!(letter(&result), expected, "{to}");
            assert!(result.is_err() || t.status("x") == to);
        }
    }
}

/// 3.2: what a worker may write that holds the Step no longer, whatever became of it: nothing.
/// STEP-07, STEP-08, STEP-11, REPORT-14.
#[test]
fn what_a_former_holder_may_write() {
    let table = matrix(|from, to| {
        let mut t = Fixture::manual("other x");
        let former = t.claim_by("bee", "x");
        t.ok_as(&former.caller(), former.releases());
        if from == StepStatus::Pending {
            let edge =
                json!({"op": "add_dependency", "step_id": "x", "depends_on_step_id": "other"});
            t.ok(patch(json!([edge])));
        }
        t.bring("x", from);
        t.run(&former.caller(), &former.reports(to)).map(drop)
    });
    let line = "denied    denied    invalid   stale     stale     stale     stale     stale\n";
    let lines: Vec<String> = StepStatus::ALL.iter().map(|s| format!("{s:<10} {line}")).collect();
    assert_eq!(table, lines.concat(), "\n{table}");
}

/// 3.2: a worker whose Run never claimed the Step may write nothing on it.
#[test]
fn what_a_stranger_may_write() {
    let table = matrix(|from, to| {
        let mut t = Fixture::with_step(from);
        let held = t.claim_by("bee", "other");
        let report = StepReport { step_id: id("x"), status: Some(to), ..held.says() };
        t.run(&held.caller(), &Command::TaskUpdateStep(report)).map(drop)
    });
    let line = "denied    denied    invalid   denied    denied    denied    denied    denied\n";
    let lines: Vec<String> = StepStatus::ALL.iter().map(|s| format!("{s:<10} {line}")).collect();
    assert_eq!(table, lines.concat(), "\n{table}");
}

/// 3.2: results without a status: the holder on its Step, the orchestrator on any but completed and
/// cancelled ones. STEP-21.
#[test]
fn results_without_a_status_go_to_steps_that_have_not_ended() {
    for &status in StepStatus::ALL {
        let mut t = Fixture::with_step(status);
        let report =
            StepReport { result_summary: Some("so far".into()), ..StepReport::on(id("x")) };
        match status {
            StepStatus::Completed => {
                t.refuse(Command::TaskUpdateStep(report), Code::StepHistoryImmutable);
            }
            StepStatus::Cancelled => {
                t.refuse(Command::TaskUpdateStep(report), Code::InvalidTransition);
            }
            _ => {
                t.ok(Command::TaskUpdateStep(report));
                assert_eq!(t.events(), ["task_step_updated x"]);
                assert_eq!(t.status("x"), status);
                assert_eq!(t.step("x").state.facts().result_summary.as_deref(), Some("so far"));
            }
        }
    }
}

/// 3.2: the reducer's table, every status against every event of a Step. STEP-02.
#[test]
fn every_status_meets_every_event() {
    let mut bodies: Vec<Body> = Vec::new();
    for (event_type, payload) in [
        ("task_step_ready", json!({})),
        ("task_step_started", json!({"attempt_id": NIL, "lease_expires_at": 1})),
        ("task_step_updated", json!({})),
        ("task_step_blocked", json!({"wait_kind": "other", "reason": {"code": "c"}})),
        ("task_step_completed", json!({})),
        ("task_step_completed", json!({"attempt_id": NIL, "adopted": true})),
        ("task_step_failed", json!({"reason": {"code": "c"}})),
        ("task_step_cancelled", json!({})),
        (
            "task_step_reopened",
            json!({"from": "failed", "reason": {"code": "c"}, "counters_reset": true}),
        ),
        (
            "task_step_lease_expired",
            json!({"attempt_id": NIL, "run_id": NIL, "lease_expires_at": 1,
            "lost_count": 1, "reason": "lease_expired"}),
        ),
    ] {
        bodies.push(Body::deserialize(event_type, payload).unwrap());
    }
    let mut claimed = Fixture::manual("a");
    claimed.claim("a");
    bodies.insert(1, claimed.body("task_step_claimed").clone());
    let mut table = String::new();
    for body in &bodies {
        table += &format!("{:<13}", body.event_type().trim_start_matches("task_step_"));
        for &from in StepStatus::ALL {
            let to = from.after(body).map_or(".".to_owned(), |to| to.to_string());
            table += &format!(" {to:<9}");
        }
        table = table.trim_end().to_owned() + "\n";
    }
    // Columns: pending, ready, claimed, running, blocked, completed, failed, cancelled.
    let expected = "\
ready         ready     .         .         .         .         .         .         .\n\
claimed       .         claimed   .         .         .         .         .         .\n\
started       .         .         running   .         .         .         .         .\n\
updated       pending   ready     claimed   running   blocked   completed failed    .\n\
blocked       blocked   blocked   blocked   blocked   .         .         .         .\n\
completed     completed completed completed completed .         .         .         .\n\
completed     completed completed completed completed .         .         .         .\n\
failed        failed    failed    failed    failed    failed    .         .         .\n\
cancelled     cancelled cancelled cancelled cancelled cancelled .         .         .\n\
reopened      .         .         .         .         pending   .         pending   .\n\
lease_expired .         .         pending   pending   .         .         .         .\n";
    assert_eq!(table, expected, "\n{table}");
}

const NIL: &str = "00000000-0000-0000-0000-000000000000";

/// S11, S12: an expiry gives the Step back at once, until the losses are used up.
#[test]
fn lost_steps_come_back_until_the_losses_are_used_up() {
    let mut t = with_policy("a", json!({"max_lost": 2}), Policy::Manual);
    let held = t.claim("a");
    t.lose(&held);
    assert_eq!(t.events(), ["task_step_lease_expired a", "task_step_ready a"]);
    let held = t.claim("a");
    t.lose(&held);
    assert_eq!(t.events(), ["task_step_lease_expired a", "task_step_failed a"]);
    assert_eq!(t.step("a").state.facts().status_reason.as_ref().unwrap().code, "lost");
}

/// S14, S15: limits of time fail the Step.
#[test]
fn limits_of_time_fail_a_step() {
    let policy = json!({"max_attempts": 1, "schedule_to_start_ms": 50, "start_to_close_ms": 100});
    let mut t = with_policy("a b", policy, Policy::Manual);
    let held = t.claim("a");
    t.wait_ms(60);
    t.judge_due();
    assert_eq!(t.statuses("a b"), "a:claimed b:failed");
    assert_eq!(
        t.step("b").state.facts().status_reason.as_ref().unwrap().code,
        "schedule_to_start_timeout"
    );
    t.wait_ms(60);
    t.judge_due();
    assert_eq!(t.status("a"), StepStatus::Failed);
    assert_eq!(t.attempt_of(&held).outcome, Some(Outcome::TimedOut));
}

/// S15, POL-10: another policy of the Task moves the limits of Steps that are ready already.
#[test]
fn another_policy_of_the_task_moves_the_limits_of_ready_steps() {
    let mut t = Fixture::manual("a b");
    assert_eq!(t.task.next_due(), None);
    t.ok(patch(json!([ops::update(
        "b",
        json!({"retry_policy": {"schedule_to_start_ms": "unlimited"}})
    )])));
    let set = |ms: u64| {
        patch(json!([{"op": "update_task", "retry_policy": {"schedule_to_start_ms": ms}}]))
    };
    t.ok(set(1_000));
    assert_eq!(t.task.next_due(), Some(START + 1_000));
    t.ok(set(50));
    t.wait_ms(60);
    t.judge_due();
    assert_eq!(t.statuses("a b"), "a:failed b:ready");
    t.ok(patch(json!([{"op": "update_task", "retry_policy": null}])));
    assert_eq!(t.task.next_due(), None);
}

/// S22: what the orchestrator writes on a held Step ends its Attempt and revokes its Run.
#[test]
fn the_orchestrator_overrules_a_holder() {
    for (to, outcome) in [
        (StepStatus::Completed, Outcome::Completed),
        (StepStatus::Failed, Outcome::Failed),
        (StepStatus::Blocked, Outcome::Blocked),
    ] {
        let mut t = Fixture::manual("a");
        let held = t.claim("a");
        t.write("a", to);
        assert_eq!(t.attempt_of(&held).outcome, Some(outcome));
        assert_eq!(t.run_of(held.run_id).end_reason, Some(EndReason::Revoked));
        t.refuse_as(&held.caller(), held.reports(StepStatus::Running), Code::StaleAttempt);
    }
}

/// S26: released, the Step is there for others at once.
#[test]
fn a_released_step_is_ready_at_once() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    t.ok_as(&held.caller(), held.releases());
    assert_eq!(t.events(), ["task_step_lease_expired a", "task_step_ready a"]);
    assert_eq!(t.step("a").state.lost_count, 0);
    assert_eq!(t.attempt_of(&held).outcome, Some(Outcome::Abandoned));
}
