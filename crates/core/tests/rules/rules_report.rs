//! REPORT: status and results of a Step, by its holder and by its orchestrator (matrix of 3.2).

#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common;
use common::*;
use tenure_core::command::{RunOutcome, StepReport};
use tenure_core::id::{ArtifactId, Ref, RunId};
use tenure_core::record::{Progress, Value};
use tenure_core::status::{
    AttemptStatus, EndReason, Outcome, Policy, RunState, StepStatus, WaitKind,
};
use tenure_core::{Code, Command, Limits};

use StepStatus::{Blocked, Cancelled, Claimed, Completed, Failed, Pending, Ready, Running};

/// What the matrix of 3.2 says of an orchestrator's write: the status it gives, or the refusal.
fn orchestrators(from: StepStatus, to: StepStatus) -> Result<StepStatus, Code> {
    match (from, to) {
        (Pending, Blocked | Failed | Cancelled) => Ok(to),
        (Pending, Completed) => Err(Code::StepNotReady),
        (Ready, Blocked | Completed | Failed | Cancelled) => Ok(to),
        (Claimed | Running, Blocked | Completed | Failed) => Ok(to),
        (Claimed | Running, Cancelled) => Err(Code::StepInProgress),
        (Blocked, Pending | Failed) => Ok(to),
        (Failed, Pending) => Ok(to),
        (Blocked | Failed, Completed) => Ok(to), // STEP-36
        (Completed, _) => Err(Code::StepHistoryImmutable),
        _ => Err(Code::InvalidTransition),
    }
}

/// A Task whose Step `s` was brought to a status, and who held it last under which Attempt.
fn at(status: StepStatus) -> (Fixture, Option<Held>) {
    let mut t = Fixture::manual("a s z<-s");
    if status == Pending {
        return (Fixture::manual("a s<-a z<-s"), None);
    }
    if status == Ready {
        return (t, None);
    }
    let held = t.claim("s");
    match status {
        Claimed => {}
        Running => t.start(&held),
        _ => drop(t.report(&held, status)),
    }
    assert_eq!(t.status("s"), status);
    (t, Some(held))
}

/// REPORT-02, STEP-02, READY-01, STEP-13, STEP-17 to STEP-19, STEP-21: what an orchestrator may
/// write, for every status and every target.
#[test]
fn an_orchestrator_writes_what_the_matrix_permits_and_nothing_else() {
    for &from in StepStatus::ALL {
        for &to in StepStatus::ALL {
            let (mut t, _) = at(from);
            match orchestrators(from, to) {
                Ok(_) => {
                    t.write("s", to);
                    // A reopened Step is ready again at once (READY-02).
                    let then = if to == Pending { Ready } else { to };
                    assert_eq!(t.status("s"), then, "{from} to {to}");
                }
                Err(code) => drop(t.refuse(write_command("s", to), code)),
            }
        }
    }
}

/// REPORT-03, REPORT-14, REPORT-17, STEP-08, STEP-11, READY-01: what the worker whose Run claimed
/// the Step may write, for every status and every target.
#[test]
fn a_holder_writes_what_the_matrix_permits_and_nothing_else() {
    for &from in &[Claimed, Running, Blocked, Completed, Failed, Cancelled] {
        for &to in StepStatus::ALL {
            let (mut t, held) = at(from);
            let held = held.unwrap();
            match to {
                Pending | Ready => {
                    t.refuse_as(&held.caller(), held.reports(to), Code::PermissionDenied);
                }
                Claimed => {
                    t.refuse_as(&held.caller(), held.reports(to), Code::InvalidTransition);
                }
                _ if from.is_held() => {
                    t.report(&held, to);
                    assert_eq!(t.status("s"), to);
                }
                // The same final report again is a replay (REPORT-16); anything else is stale.
                _ if from == to => assert!(t.report(&held, to).commit.is_none()),
                _ => drop(t.refuse_as(&held.caller(), held.reports(to), Code::StaleAttempt)),
            }
        }
    }
}

/// REPORT-03, PERM-13: a worker whose Run never claimed the Step is denied, whatever the status
/// and target, unless an earlier refusal fits.
#[test]
fn a_worker_writes_no_step_that_its_run_never_claimed() {
    for &from in StepStatus::ALL {
        for &to in StepStatus::ALL {
            let (mut t, _) = at(from);
            let other = t.claim_by("bee", "a");
            let report = StepReport { status: Some(to), step_id: id("s"), ..other.says() };
            let code = if to == Claimed { Code::InvalidTransition } else { Code::PermissionDenied };
            t.refuse_as(&other.caller(), Command::TaskUpdateStep(report), code);
        }
    }
}

/// REPORT-03, PERM-16: nor does it learn whether a Step exists; nor does it pass for the holder
/// with the holder's ids.
#[test]
fn a_worker_cannot_use_the_attempt_of_another() {
    let mut t = Fixture::manual("a b");
    let held = t.claim("a");
    let other = t.claim_by("bee", "b");
    let unknown = StepReport { status: Some(Running), step_id: id("never"), ..other.says() };
    t.refuse_as(&other.caller(), Command::TaskUpdateStep(unknown), Code::PermissionDenied);
    t.refuse_as(&other.caller(), held.reports(Completed), Code::PermissionDenied);
    let thief = worker("bee", POOL, Some(held.run_id));
    t.refuse_as(&thief, held.reports(Completed), Code::PermissionDenied);
    t.refuse_as(&worker("ant", POOL, None), held.reports(Completed), Code::PermissionDenied);
    let elsewhere = worker("ant", POOL, Some(RunId(uuid::Uuid::from_u128(55_555))));
    t.refuse_as(&elsewhere, held.reports(Completed), Code::PermissionDenied);
}

/// REPORT-01, REPORT-04, STEP-32, PERM-09: content fields are refused before anything else is looked at.
#[test]
fn content_in_a_report_is_refused() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    let with = |report: StepReport| {
        let content_fields = vec!["title".into()];
        Command::TaskUpdateStep(StepReport { content_fields, ..report })
    };
    let no = t.refuse_as(&held.caller(), with(held.says()), Code::PermissionDenied);
    assert_eq!(no.details["field"], "title");
    let no = t.refuse(with(StepReport::on(id("a"))), Code::ValidationError);
    assert!(no.message.contains("agent.task_update"), "{no}");
    t.complete(&held);
    t.ok(complete_task());
    t.refuse_as(&held.caller(), with(held.says()), Code::PermissionDenied);
}

/// REPORT-05, TERM-19: an outdated report on a terminal Task is `task_terminal`, not stale.
#[test]
fn a_report_on_an_ended_task_is_refused_as_that() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    t.ok(cancel_task());
    t.ok_as(&held.caller(), held.ends(RunOutcome::Finished));
    t.refuse_as(&held.caller(), held.reports(Completed), Code::TaskTerminal);
    t.refuse(write_command("a", Pending), Code::TaskTerminal);
}

/// REPORT-06, LEASE-04, REPORT-08, REPORT-09, REPORT-12: `running` starts once, and every
/// non-final report renews the lease.
#[test]
fn a_non_final_report_renews_the_lease_and_starts_once() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    t.wait_ms(10_000);
    t.start(&held);
    assert_eq!(t.events(), ["task_step_started a"]);
    assert_eq!(t.attempt_of(&held).lease_expires_at, t.now + 30_000);
    assert_eq!(t.attempt_of(&held).status, AttemptStatus::Running);
    let begun_at = t.now;
    t.wait_ms(10_000);
    t.start(&held);
    assert_eq!(t.attempt_of(&held).begun_at, Some(begun_at));
    assert_eq!(t.events(), ["task_step_updated a"], "a repeated `running` is progress (S06)");
    assert_eq!(t.attempt_of(&held).lease_expires_at, t.now + 30_000);
    t.wait_ms(10_000);
    t.ok_as(&held.caller(), Command::TaskUpdateStep(held.says()));
    assert_eq!(t.events(), ["task_step_updated a"]);
    assert_eq!(t.payload("task_step_updated")["lease_expires_at"], t.now + 30_000);
}

/// REPORT-07, REPORT-10, REPORT-11, STEP-03, STEP-05 to STEP-07, STEP-10, LEASE: a final report
/// ends Attempt, lease and Run.
#[test]
fn a_final_report_ends_attempt_lease_and_run() {
    let cases = [
        (Blocked, "task_step_blocked a", Outcome::Blocked),
        (Completed, "task_step_completed a", Outcome::Completed),
        (Failed, "task_step_failed a", Outcome::Failed),
        (Cancelled, "task_step_cancelled a", Outcome::Cancelled),
    ];
    for start_first in [false, true] {
        for (status, event, outcome) in cases {
            let mut t = Fixture::manual("a");
            let held = t.claim("a");
            if start_first {
                t.start(&held);
            }
            t.report(&held, status);
            assert_eq!(t.events(), [event]);
            assert_eq!(t.status("a"), status);
            assert_eq!(t.step("a").state.current, None);
            let (attempt, run) = (t.attempt_of(&held), t.run_of(held.run_id));
            assert_eq!((attempt.status, attempt.outcome), (AttemptStatus::Ended, Some(outcome)));
            assert_eq!((run.state, run.end_reason), (RunState::Ended, Some(EndReason::Completed)));
            assert_eq!(attempt.ended_at, Some(t.now));
        }
    }
}

/// STEP-05: `wait_kind` of a blocked Step defaults to `other`.
#[test]
fn a_blocked_step_says_what_it_waits_for() {
    let mut t = Fixture::manual("a b");
    let held = t.claim("a");
    t.report(&held, Blocked);
    assert_eq!(t.step("a").state.wait_kind, Some(WaitKind::Other));
    assert_eq!(t.code_of("a"), "blocked");
    let held = t.claim("b");
    let report = StepReport {
        status: Some(Blocked),
        wait_kind: Some(WaitKind::Permission),
        reason: Some(reason("no_key", "which key?")),
        ..held.says()
    };
    t.ok_as(&held.caller(), Command::TaskUpdateStep(report));
    assert_eq!(t.step("b").state.wait_kind, Some(WaitKind::Permission));
    assert_eq!(t.code_of("b"), "no_key");
    assert_eq!(t.attempt_of(&held).error.as_ref().unwrap().code, "no_key");
}

/// REPORT-13, U13: what a holder may write beside a status, and where it goes.
#[test]
fn a_holder_writes_its_results() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    let art: ArtifactId = "art".parse().unwrap();
    let report = StepReport {
        status: Some(Completed),
        result_summary: Some("done".into()),
        artifact_ids: vec![art.clone()],
        output_refs: vec![Ref::new("mem:o").unwrap()],
        progress: Some(Progress { percent: Some(100.0), ..Progress::default() }),
        output: Some(Value::json(b"42".to_vec())),
        ..held.says()
    };
    t.ok_as(&held.caller(), Command::TaskUpdateStep(report));
    let facts = t.step("a").state.facts();
    assert_eq!(facts.result_summary.as_deref(), Some("done"));
    assert_eq!(facts.artifact_ids, [art]);
    assert_eq!(facts.output.as_ref().unwrap().data(), Some(&b"42"[..]));
    assert_eq!(facts.progress.as_ref().unwrap().percent, Some(100.0));
    let attempt = t.attempt_of(&held);
    assert_eq!(attempt.completion_summary.as_deref(), Some("done"));
    assert_eq!(attempt.output_refs[0].as_str(), "mem:o");
}

/// REPORT-14: id, token or both of another Attempt of the same Run's Step are stale.
#[test]
fn a_report_with_another_id_or_token_is_stale() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    for wrong in [
        StepReport { fencing_token: Some(held.token + 1), ..held.says() },
        StepReport { fencing_token: None, ..held.says() },
        StepReport { attempt_id: None, ..held.says() },
    ] {
        let report = StepReport { status: Some(Completed), ..wrong };
        t.refuse_as(&held.caller(), Command::TaskUpdateStep(report), Code::StaleAttempt);
    }
}

/// REPORT-15: under a lease that ran out but was not judged the holder is heard.
#[test]
fn a_holder_is_heard_until_the_expiry_is_written() {
    let mut t = Fixture::manual("a b");
    let (a, b) = (t.claim("a"), t.claim("b"));
    t.wait_ms(1_000_000);
    t.start(&a);
    assert_eq!(t.attempt_of(&a).lease_expires_at, t.now + 30_000, "the lease is taken anew");
    t.complete(&b);
    assert_eq!(t.status("b"), Completed);
}

/// REPORT-16, IDEM-04: the same final report returns the first result, with another `command_id`
/// too and after the Task ended; a different one is stale.
#[test]
fn a_final_report_is_idempotent_by_its_attempt() {
    for status in [Completed, Failed, Blocked, Cancelled] {
        let mut t = Fixture::manual("a b");
        let held = t.claim("a");
        let report = |summary: Option<&str>, code: Option<&str>| {
            Command::TaskUpdateStep(StepReport {
                status: Some(status),
                result_summary: summary.map(str::to_owned),
                reason: code.map(|c| reason(c, "because")),
                ..held.says()
            })
        };
        let first = t.ok_as(&held.caller(), report(Some("s"), Some("c")));
        let again = t.ok_as(&held.caller(), report(Some("s"), Some("c")));
        assert!(again.commit.is_none());
        assert_eq!(again.reply.written, first.reply.written);
        assert_eq!(again.reply.version, first.reply.version);
        t.refuse_as(&held.caller(), report(Some("other"), Some("c")), Code::StaleAttempt);
        t.refuse_as(&held.caller(), report(Some("s"), Some("other")), Code::StaleAttempt);
        t.refuse_as(&held.caller(), report(None, Some("c")), Code::StaleAttempt);
        t.restart();
        let again = t.ok_as(&held.caller(), report(Some("s"), Some("c")));
        assert_eq!(again.reply.written, first.reply.written, "known from the log");
        t.ok(cancel_task());
        let again = t.ok_as(&held.caller(), report(Some("s"), Some("c")));
        assert_eq!(again.reply.written, first.reply.written, "also after the end");
        t.refuse_as(&held.caller(), report(None, None), Code::TaskTerminal);
    }
}

/// REPORT-16: the output is part of what is the same.
#[test]
fn another_output_is_another_report() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    let with = |output: Option<&str>| {
        let output = output.map(|o| Value::json(o.as_bytes().to_vec()));
        Command::TaskUpdateStep(StepReport { status: Some(Completed), output, ..held.says() })
    };
    t.ok_as(&held.caller(), with(Some("1")));
    assert!(t.ok_as(&held.caller(), with(Some("1"))).commit.is_none());
    t.refuse_as(&held.caller(), with(Some("2")), Code::StaleAttempt);
    t.refuse_as(&held.caller(), with(None), Code::StaleAttempt);
}

/// REPORT-16: what others wrote about an Attempt is not its worker's report.
#[test]
fn an_end_written_by_others_is_no_report_to_repeat() {
    let mut t = Fixture::manual("a b");
    let a = t.claim("a");
    t.write("a", Completed);
    t.refuse_as(&a.caller(), a.reports(Completed), Code::StaleAttempt);
    let b = t.claim("b");
    t.end(&b, RunOutcome::Finished);
    let same = StepReport {
        status: Some(Failed),
        reason: Some(reason("worker_finished_without_terminal_step_status", "")),
        result_summary: Some("worker_finished_without_terminal_step_status".into()),
        ..b.says()
    };
    t.refuse_as(&b.caller(), Command::TaskUpdateStep(same), Code::StaleAttempt);
}

/// REPORT-18, S22, A03 to A05, R03: an orchestrator's final write closes the Attempt and revokes
/// the Run.
#[test]
fn an_orchestrators_final_write_revokes_the_attempt() {
    let cases =
        [(Completed, Outcome::Completed), (Failed, Outcome::Failed), (Blocked, Outcome::Blocked)];
    for (status, outcome) in cases {
        let mut t = Fixture::manual("a");
        let held = t.claim("a");
        t.start(&held);
        t.write("a", status);
        let (attempt, run) = (t.attempt_of(&held), t.run_of(held.run_id));
        assert_eq!(attempt.outcome, Some(outcome));
        assert_eq!((run.state, run.end_reason), (RunState::Ended, Some(EndReason::Revoked)));
        t.refuse_as(&held.caller(), held.reports(Running), Code::StaleAttempt);
    }
}

/// REPORT-18, RETRY-05: that holds for an orchestrator that bears the holder's own Run, too.
#[test]
fn an_orchestrator_under_the_holders_run_is_still_not_the_holder() {
    let policy = json!({"max_attempts": 5, "max_lost": null});
    let mut t = with_policy("a b", policy, Policy::Manual);
    let held = t.claim("a");
    let boss = tenure_core::Caller { run_id: Some(held.run_id), ..orchestrator() };
    t.ok_as(&boss, write_command("a", Failed));
    assert_eq!(t.status("a"), Failed, "no automatic retry");
    assert_eq!(t.run_of(held.run_id).end_reason, Some(EndReason::Revoked));
    assert_eq!(t.last().events[0].run, None);
}

/// 3.2: results without a status: by the orchestrator on any Step but completed and cancelled
/// ones, by the holder on its own.
#[test]
fn results_without_a_status_follow_the_last_line_of_the_matrix() {
    for &from in StepStatus::ALL {
        let (mut t, held) = at(from);
        let lease = |t: &Fixture| held.as_ref().map(|h| t.attempt_of(h).lease_expires_at);
        let before = lease(&t);
        let report =
            StepReport { result_summary: Some("so far".into()), ..StepReport::on(id("s")) };
        match from {
            Completed => {
                t.refuse(Command::TaskUpdateStep(report), Code::StepHistoryImmutable);
            }
            Cancelled => drop(t.refuse(Command::TaskUpdateStep(report), Code::InvalidTransition)),
            _ => {
                t.ok(Command::TaskUpdateStep(report));
                assert_eq!(t.events(), ["task_step_updated s"]);
                assert_eq!(t.payload("task_step_updated")["attempt_id"], json!(null));
                assert_eq!(t.step("s").state.facts().result_summary.as_deref(), Some("so far"));
                assert_eq!(lease(&t), before, "an orchestrator renews no lease");
            }
        }
    }
}

/// STEP-09, STEP-12, STEP-33, S18: only the orchestrator lifts a block or a failure, and the
/// result fields start afresh.
#[test]
fn a_reopened_step_starts_with_a_clean_slate() {
    for status in [Blocked, Failed] {
        let mut t = Fixture::manual("a");
        let held = t.claim("a");
        let report = StepReport {
            status: Some(status),
            result_summary: Some("half".into()),
            artifact_ids: vec!["art".parse().unwrap()],
            ..held.says()
        };
        t.ok_as(&held.caller(), Command::TaskUpdateStep(report));
        t.write("a", Pending);
        assert_eq!(t.events(), ["task_step_reopened a", "task_step_ready a"]);
        let (state, facts) = (&t.step("a").state, t.step("a").state.facts());
        assert_eq!((state.wait_kind, state.status), (None, Ready));
        assert_eq!((&facts.result_summary, facts.artifact_ids.len()), (&None, 0));
        assert_eq!((&facts.status_reason, &facts.progress), (&None, &None));
        assert_eq!(t.attempt_of(&held).completion_summary.as_deref(), Some("half"));
    }
}

/// TASK-03: in a draft no Step is written; unknown Steps are still told first.
#[test]
fn a_draft_takes_no_step_reports() {
    let mut t = Fixture::draft("a");
    for &to in StepStatus::ALL {
        t.refuse(write_command("a", to), Code::InvalidTransition);
    }
    t.refuse(Command::TaskUpdateStep(StepReport::on(id("a"))), Code::InvalidTransition);
    t.refuse(write_command("never", Failed), Code::StepNotFound);
}

/// K3, U13: fields that go with one status only.
#[test]
fn fields_of_one_status_are_refused_with_another() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    type With = fn(StepReport) -> StepReport;
    let fields: [(&str, With); 4] = [
        ("output", |r| StepReport { output: Some(Value::json(b"1".to_vec())), ..r }),
        ("reply", |r| StepReport { reply: Some(tenure_core::status::ReplyKind::Message), ..r }),
        ("wait_kind", |r| StepReport { wait_kind: Some(WaitKind::Input), ..r }),
        ("input_refs", |r| StepReport { input_refs: vec![Ref::new("mem:i").unwrap()], ..r }),
    ];
    for (field, with) in fields {
        let report = with(StepReport { status: Some(Running), ..held.says() });
        let no =
            t.refuse_as(&held.caller(), Command::TaskUpdateStep(report), Code::ValidationError);
        assert_eq!(no.details["field"], field);
    }
}

/// K3, P30: limits of a report, at them and one over.
#[test]
fn a_report_is_accepted_at_its_limits_and_refused_over_them() {
    let limits = Limits { progress_bytes_max: 60, value_bytes_max: 10, ..Limits::default() };
    type Sized = fn(usize) -> StepReport;
    let texts: [(&str, Sized); 4] = [
        ("result_summary", |n| StepReport {
            result_summary: Some("x".repeat(n)),
            ..StepReport::on(id("a"))
        }),
        ("reason.message", |n| StepReport {
            status: Some(Failed),
            reason: Some(reason("c", &"x".repeat(n))),
            ..StepReport::on(id("a"))
        }),
        ("output", |n| StepReport {
            status: Some(Completed),
            output: Some(Value::json(vec![b'x'; n])),
            ..StepReport::on(id("a"))
        }),
        ("reason.code", |n| StepReport {
            status: Some(Failed),
            reason: Some(reason(&"x".repeat(n), "")),
            ..StepReport::on(id("a"))
        }),
    ];
    for ((field, report), at) in texts.into_iter().zip([60, 60, 10, 64]) {
        let given = create_input("a");
        let mut t = Fixture::try_create(given, Policy::Manual, limits.clone()).unwrap();
        let no = t.refuse(Command::TaskUpdateStep(report(at + 1)), Code::ValidationError);
        assert_eq!(no.details["field"], field);
        t.ok(Command::TaskUpdateStep(report(at)));
    }
    let mut t = Fixture::try_create(create_input("a"), Policy::Manual, limits).unwrap();
    let summary = |n: usize| {
        let progress = Progress { summary: Some("x".repeat(n)), ..Progress::default() };
        Command::TaskUpdateStep(StepReport { progress: Some(progress), ..StepReport::on(id("a")) })
    };
    t.refuse(summary(60), Code::ValidationError);
    t.ok(summary(30));
    let percent = |p: f64| {
        let progress = Progress { percent: Some(p), ..Progress::default() };
        Command::TaskUpdateStep(StepReport { progress: Some(progress), ..StepReport::on(id("a")) })
    };
    for wrong in [-0.1, 100.1, f64::NAN] {
        t.refuse(percent(wrong), Code::ValidationError);
    }
    t.ok(percent(0.0));
    t.ok(percent(100.0));
}
