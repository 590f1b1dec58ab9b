//! Normalized status: table 7.2, exhaustively.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common;
use crate::views;
use std::collections::BTreeSet;

use common::*;
use tenure_core::command::{RunOutcome, StepReport};
use tenure_core::status::{FailedAs, Outcome, Policy, StepStatus, TaskStatus, WaitKind};
use tenure_core::view::normal::{Row, of_attempt, of_step};
use tenure_core::view::{AttemptView, Facts, Known, LeaseFact, Normal, TaskSummary};
use tenure_core::{Command, command::Why};
use views::*;

/// Every combination of the facts: 786,432 of them.
fn combinations() -> impl Iterator<Item = Facts> {
    let heads = TaskStatus::ALL
        .iter()
        .flat_map(|&native| FailedAs::ALL.iter().map(move |&failed_as| (native, failed_as)));
    heads.flat_map(|(native, failed_as)| {
        (0..1_u32 << 15).map(move |bits| {
            let bit = |n: u32| bits & (1 << n) != 0;
            Facts {
                readable: bit(0),
                archived: bit(1),
                native,
                failed_as,
                confirmed: bit(2),
                closing: bit(3),
                running: bit(4),
                claimed: bit(5),
                held: bit(6),
                awaits_completion: bit(7),
                waits_input: bit(8),
                waits_permission: bit(9),
                waits_resource: bit(10),
                waits_other: bit(11),
                retrying: bit(12),
                ready: bit(13),
                untouched: bit(14),
            }
        })
    })
}

/// The table of 7.2 as it is printed: every row with its own condition, in order.
fn rows_of(f: &Facts) -> [bool; 24] {
    let failed = f.native == TaskStatus::Failed;
    [
        !f.readable,
        f.archived,
        f.native == TaskStatus::Completed,
        f.native == TaskStatus::Cancelled,
        failed && f.failed_as == FailedAs::TimedOut,
        failed && f.failed_as == FailedAs::Lost,
        failed,
        !f.confirmed,
        f.closing,
        f.native == TaskStatus::Draft,
        f.native == TaskStatus::Paused,
        f.native == TaskStatus::Blocked,
        f.running,
        f.claimed,
        f.held,
        f.awaits_completion,
        f.waits_input,
        f.waits_permission,
        f.waits_resource,
        f.waits_other,
        f.retrying,
        f.ready,
        f.untouched,
        true,
    ]
}

/// VIEW-09, 7.2: every combination of facts hits the first row that fits, and exactly that one; all
/// 24 rows and all 20 statuses of Tasks are reached.
#[test]
fn every_combination_of_facts_has_one_row() {
    let (mut rows, mut statuses) = (BTreeSet::new(), BTreeSet::new());
    for facts in combinations() {
        let first = rows_of(&facts).iter().position(|&fits| fits).expect("the last row fits");
        let row = facts.row();
        assert_eq!(row, Row::ALL[first], "{facts:?}");
        rows.insert(row);
        statuses.insert(facts.status());
    }
    assert_eq!(rows.len(), 24);
    assert_eq!(statuses, Normal::OF_TASKS.iter().copied().collect::<BTreeSet<_>>());
    assert_eq!(statuses.len(), 20);
}

/// 7.2: the status of every row, as printed.
#[test]
fn every_row_has_the_status_of_the_table() {
    let statuses: Vec<&str> = Row::ALL.iter().map(|row| row.status().as_str()).collect();
    assert_eq!(
        statuses.join(" "),
        "unknown archived completed cancelled timed_out lost failed stale cancelling draft paused \
         blocked running preparing lost blocked waiting_input waiting_permission waiting_resource \
         blocked retrying queued accepted blocked"
    );
}

fn status(t: &Fixture) -> Normal {
    status_with(t, &known())
}

fn status_with(t: &Fixture, known: &Known<'_>) -> Normal {
    let summary = TaskSummary::of(&t.task.durable(), known);
    assert_eq!(summary.status, Facts::of(&t.task.durable(), known).status());
    summary.status
}

fn reason(t: &Fixture) -> tenure_core::record::Reason {
    TaskSummary::of(&t.task.durable(), &known()).status_reason.expect("there is a reason")
}

fn report(t: &mut Fixture, held: &Held, to: StepStatus, wait: Option<WaitKind>, code: &str) {
    let said = StepReport {
        status: Some(to),
        wait_kind: wait,
        reason: Some(common::reason(code, "")),
        ..held.says()
    };
    t.ok_as(&held.caller(), Command::TaskUpdateStep(said));
}

/// N10, N22, N14, N13, N16, N03, N02: the ordinary life of a Task.
#[test]
fn the_life_of_a_task_in_portable_words() {
    let mut t = Fixture::draft("a b<-a");
    assert_eq!(status(&t), Normal::Draft);
    t.ok(Command::SubmitTask(Why::default()));
    assert_eq!(status(&t), Normal::Queued);
    let held = t.claim("a");
    assert_eq!(status(&t), Normal::Preparing);
    t.start(&held);
    assert_eq!(status(&t), Normal::Running);
    t.complete(&held);
    assert_eq!(status(&t), Normal::Queued);
    t.do_step("b");
    assert_eq!(status(&t), Normal::Blocked);
    assert_eq!(reason(&t).code, "awaiting_completion");
    assert_eq!(reason(&t).details.unwrap()["action"], "agent.task_complete");
    t.ok(Command::TaskComplete(Default::default()));
    assert_eq!(status(&t), Normal::Completed);
    t.ok(Command::ArchiveTask(Why::default()));
    assert_eq!(status(&t), Normal::Archived);
}

/// N04 to N07, N09, N11, N12: endings and stops carry the Task's own reason.
#[test]
fn stops_and_endings_carry_their_reason() {
    let close = |code: &str| tenure_core::command::Close {
        grace_ms: None,
        reason: Some(common::reason(code, "why")),
        wait: None,
    };
    let after = |command: Command| {
        let mut t = Fixture::manual("a");
        t.ok(command);
        (status(&t).as_str(), reason(&t).code.to_string())
    };
    let why = || Why { reason: Some(common::reason("own", "why")) };
    assert_eq!(after(Command::TaskCancel(close("enough"))), ("cancelled", "enough".into()));
    assert_eq!(after(Command::TaskFail(close("timed_out"))), ("timed_out", "timed_out".into()));
    assert_eq!(after(Command::TaskFail(close("lost"))), ("lost", "lost".into()));
    assert_eq!(after(Command::TaskFail(close("rejected"))), ("failed", "rejected".into()));
    assert_eq!(after(Command::PauseTask(why())), ("paused", "own".into()));
    assert_eq!(after(Command::BlockTask(why())), ("blocked", "own".into()));
    let mut t = Fixture::manual("a");
    t.claim("a");
    t.ok(Command::TaskCancel(close("enough")));
    assert_eq!((status(&t), reason(&t).code.as_str()), (Normal::Cancelling, "enough"));
    assert_eq!(reason(&t).details.unwrap()["intent"], "cancel");
}

/// N08: a view that the owner has not confirmed is stale, unless it is of an ended Task, and says
/// what was known last.
#[test]
fn an_unconfirmed_view_is_stale() {
    let mut t = Fixture::auto("a");
    let stale = Known { confirmed: false, ..known() };
    assert_eq!(status_with(&t, &stale), Normal::Stale);
    let summary = TaskSummary::of(&t.task.durable(), &stale);
    let details = summary.status_reason.unwrap().details.unwrap();
    assert_eq!(details["last_known_status"], "queued");
    t.do_step("a");
    assert_eq!(status_with(&t, &stale), Normal::Completed);
    assert_eq!(Facts::UNREADABLE.status(), Normal::Unknown);
}

/// N13 to N15: only a lease that is shown to be in force counts; one is enough.
#[test]
fn a_held_step_without_a_confirmed_lease_is_shown_as_lost() {
    let mut t = Fixture::manual("a b");
    let a = t.claim("a");
    let b = t.claim("b");
    t.start(&b);
    let only = |id| move |asked| Some(LeaseFact { expires_at: START, valid: asked == id });
    let (a_lives, b_lives) = (only(a.attempt_id), only(b.attempt_id));
    assert_eq!(status_with(&t, &Known::new(START, &a_lives)), Normal::Preparing);
    assert_eq!(status_with(&t, &Known::new(START, &b_lives)), Normal::Running);
    let none = Known::new(START, &silent);
    assert_eq!(status_with(&t, &none), Normal::Lost);
    let reason = TaskSummary::of(&t.task.durable(), &none).status_reason.unwrap();
    assert_eq!(reason.details.unwrap()["step_ids"], json!(["a", "b"]));
}

/// N16, TASK-21: an automatic Task without required Steps waits for its Steps, not for a command.
#[test]
fn an_automatic_task_without_required_steps_settles_by_itself() {
    assert_eq!(status(&Fixture::manual("a?")), Normal::Blocked);
    assert_eq!(status(&Fixture::auto("a?")), Normal::Queued);
}

/// N17 to N20: what the most urgent blocked Step waits for, in the order of the table, with that
/// Step's reason.
#[test]
fn the_most_urgent_wait_is_shown() {
    let mut t = Fixture::manual("a b c d e");
    let waits = [
        ("a", WaitKind::Other, Normal::Blocked),
        ("b", WaitKind::Dependency, Normal::Blocked),
        ("c", WaitKind::Resource, Normal::WaitingResource),
        ("d", WaitKind::Permission, Normal::WaitingPermission),
        ("e", WaitKind::Input, Normal::WaitingInput),
    ];
    for (step, wait, expected) in waits {
        let held = t.claim(step);
        report(&mut t, &held, StepStatus::Blocked, Some(wait), &format!("why-{step}"));
        assert_eq!(status(&t), expected, "{step}");
        let shown = reason(&t);
        let of = if step == "b" { "a" } else { step };
        assert_eq!(shown.code, format!("why-{of}"));
        assert_eq!(shown.details.unwrap()["step_id"], of);
        assert_eq!(of_step(&t.step(step).state), expected);
        assert_eq!(of_attempt(t.attempt_of(&held)), expected);
        t.ok(Command::AppendTaskProgress(tenure_core::command::AppendProgress {
            progress: Some(Default::default()),
            ..Default::default()
        }));
    }
}

/// N21: a Step is to be tried again while it backs off, and when its last Attempt ended badly; one
/// that was given back, or answered, is simply queued.
#[test]
fn what_is_tried_again_is_shown_as_retrying() {
    let mut given = create_input("a");
    given.retry_policy = Some(std::sync::Arc::new(
        serde_json::from_value(json!({"max_attempts": 3, "backoff": {"jitter": 0.0}})).unwrap(),
    ));
    let mut t = Fixture::create(given, Policy::Manual);
    let held = t.claim("a");
    report(&mut t, &held, StepStatus::Failed, None, "broken");
    assert_eq!((status(&t), of_step(&t.step("a").state)), (Normal::Retrying, Normal::Retrying));
    t.wait_ms(2_000);
    t.judge_due();
    assert_eq!((status(&t), of_step(&t.step("a").state)), (Normal::Retrying, Normal::Queued));
    let held = t.claim("a");
    let release = held.releases();
    t.ok_as(&held.caller(), release);
    assert_eq!(status(&t), Normal::Queued, "it was given back");
    let held = t.claim("a");
    expire(&mut t, &held);
    assert_eq!(status(&t), Normal::Retrying, "its worker was lost");
    let held = t.claim("a");
    report(&mut t, &held, StepStatus::Blocked, Some(WaitKind::Input), "question");
    t.write("a", StepStatus::Pending);
    assert_eq!(status(&t), Normal::Queued, "the question was answered");
}

fn expire(t: &mut Fixture, held: &Held) {
    let attempt_ids = vec![held.attempt_id];
    let reason = tenure_core::event::LeaseEnd::LeaseExpired;
    t.ok_as(&system(), Command::ExpireLeases { attempt_ids, reason });
}

/// N24: nothing moves by itself; the Steps that failed, or are cancelled though required, are named.
#[test]
fn a_stalled_task_names_what_stalls_it() {
    let mut t = Fixture::manual("a b c? d<-a,b");
    t.bring("a", StepStatus::Failed);
    t.bring("b", StepStatus::Cancelled);
    t.bring("c", StepStatus::Cancelled);
    assert_eq!((status(&t), reason(&t).code.as_str()), (Normal::Blocked, "stalled"));
    let details = reason(&t).details.unwrap();
    assert_eq!(details["failed_step_ids"], json!(["a"]));
    assert_eq!(details["cancelled_step_ids"], json!(["b"]));
}

/// 7.2, Step level: every status, and the codes of a failure.
#[test]
fn every_step_status_has_a_portable_one() {
    let shown = |step: &Fixture| of_step(&step.step("a").state).as_str();
    let at = |to: StepStatus| {
        let mut t = Fixture::manual("a b");
        t.bring("a", to);
        shown(&t)
    };
    let all: Vec<&str> = StepStatus::ALL[1..].iter().map(|&s| at(s)).collect();
    assert_eq!(
        all,
        ["queued", "preparing", "running", "blocked", "completed", "failed", "cancelled"]
    );
    for (code, expected) in [
        ("worker_timeout", "timed_out"),
        ("schedule_to_start_timeout", "timed_out"),
        ("lost", "lost"),
        ("timed_out", "failed"),
        ("rejected", "failed"),
    ] {
        let mut t = Fixture::manual("a");
        let held = t.claim("a");
        report(&mut t, &held, StepStatus::Failed, None, code);
        assert_eq!(shown(&t), expected, "{code}");
    }
}

/// 7.2, Attempt level, ATT-10, LEASE-18: every outcome; a lost Attempt is never shown as success, a blocked one
/// keeps what it waited for when its Step goes on, and one that was given back has not failed.
#[test]
fn every_attempt_outcome_has_a_portable_one() {
    let mut t = Fixture::manual("a b c d e f g");
    let held = t.claim("a");
    let shown = |t: &Fixture, held: &Held| of_attempt(t.attempt_of(held)).as_str();
    assert_eq!(shown(&t, &held), "preparing");
    t.start(&held);
    assert_eq!(shown(&t, &held), "running");
    t.complete(&held);
    assert_eq!(shown(&t, &held), "completed");
    let held = t.claim("b");
    expire(&mut t, &held);
    assert_eq!(shown(&t, &held), "lost");
    for (step, to, expected) in
        [("c", StepStatus::Failed, "failed"), ("d", StepStatus::Cancelled, "cancelled")]
    {
        let held = t.claim(step);
        report(&mut t, &held, to, None, "x");
        assert_eq!(shown(&t, &held), expected);
    }
    let held = t.claim("e");
    report(&mut t, &held, StepStatus::Blocked, Some(WaitKind::Permission), "x");
    t.write("e", StepStatus::Pending);
    assert_eq!(shown(&t, &held), "waiting_permission");
    let held = t.claim("f");
    let release = held.releases();
    t.ok_as(&held.caller(), release);
    assert_eq!(t.attempt_of(&held).outcome, Some(Outcome::Abandoned));
    assert_eq!(shown(&t, &held), "released");
    let held = t.claim("g");
    t.end(&held, RunOutcome::Finished);
    assert_eq!(t.attempt_of(&held).outcome, Some(Outcome::Abandoned));
    assert_eq!(shown(&t, &held), "failed");
    let view = t.task.durable();
    let all = view.attempts().map(|a| AttemptView::of(&view, a, &known()));
    assert!(
        all.into_iter().all(|a| (a.outcome == Some(Outcome::Completed))
            == (a.normalized_status == Normal::Completed))
    );
}
