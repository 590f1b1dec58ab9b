//! POL-08, RETRY-12: the deadline of a Task, in a pause and in a Task made again.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common;
use common::*;
use serde_json::Value as Json;
use tenure_core::Rules;
use tenure_core::command::create::CreateTask;
use tenure_core::command::{RetryEnded, Why};
use tenure_core::id::Millis;
use tenure_core::status::{Policy, TaskStatus};
use tenure_core::view::{Diagnostics, Known, TaskSummary};
use tenure_core::{Code, Command, Limits, Rejection};

/// Two days, a weekend.
const WEEKEND: i64 = 2 * 24 * 60 * 60 * 1_000;

fn constrained(constraints: Json) -> CreateTask {
    CreateTask { constraints: serde_json::from_value(constraints).unwrap(), ..create_input("a b") }
}

/// An automatic Task with a deadline.
fn until(deadline_at: Millis) -> Fixture {
    Fixture::create(constrained(json!({"deadline_at": deadline_at})), Policy::Auto)
}

fn pause(t: &mut Fixture, ms: i64) {
    t.ok(Command::PauseTask(Why::default()));
    t.wait_ms(ms - 1);
    t.ok(Command::ResumeTask(Why::default()));
}

fn set(constraints: Json) -> Command {
    patch(json!([{"op": "update_task", "constraints": constraints}]))
}

fn diagnostics(t: &Fixture) -> Diagnostics {
    TaskSummary::of(&t.task.durable(), &Known::new(t.now, &|_| None)).diagnostics
}

/// POL-08: a paused Task does not die by its deadline over the weekend; the pause moves the deadline.
#[test]
fn a_pause_moves_the_deadline() {
    let mut t = until(START + 10_000);
    t.wait_ms(4_000);
    t.ok(Command::PauseTask(Why::default()));
    t.wait_ms(WEEKEND - 2);
    assert_eq!(t.task.next_due(), None, "no deadline passes in a pause");
    assert!(!diagnostics(&t).overdue);
    t.ok_as(&system(), Command::Due);
    t.ok(Command::ResumeTask(Why::default()));
    assert_eq!(t.task.next_due(), Some(START + 10_000 + WEEKEND));
    pause(&mut t, 500);
    let end = START + 10_500 + WEEKEND;
    assert_eq!(t.task.next_due(), Some(end), "each pause adds to it");
    t.restart();
    assert_eq!(t.task.next_due(), Some(end), "and a replay says so, too");
    t.due_at(end);
    assert_eq!((t.task_status(), t.task_code()), (TaskStatus::Failed, "timed_out"));
}

/// POL-08: a block does not, and nor does a pause where the deadline is a hard one: it counts in the
/// pause, too. In Tasks of rules 1 every deadline is such.
#[test]
fn a_hard_deadline_stays_where_it_is() {
    let mut t = until(START + 10_000);
    t.ok(block_task());
    assert_eq!(t.task.next_due(), Some(START + 10_000));
    let hard = constrained(json!({"deadline_at": START + 10_000, "deadline_hard": true}));
    let soft = constrained(json!({"deadline_at": START + 10_000}));
    for mut t in [Fixture::create(hard, Policy::Auto), Fixture::by_first_rules(soft, Policy::Auto)]
    {
        pause(&mut t, 500);
        t.ok(Command::PauseTask(Why::default()));
        assert_eq!(t.task.next_due(), Some(START + 10_000));
        t.due_at(START + 10_000);
        assert_eq!((t.task_status(), t.task_code()), (TaskStatus::Failed, "timed_out"));
    }
}

/// POL-08: only time paused since the value was written counts; another patch leaves it alone.
#[test]
fn a_new_deadline_counts_from_when_it_was_written() {
    let mut t = until(START + 10_000);
    pause(&mut t, 500);
    t.ok(set(json!({"deadline_at": START + 10_000, "cost": 5})));
    assert_eq!(t.task.next_due(), Some(START + 10_500), "the value is the same");
    t.ok(set(json!({"deadline_at": START + 20_000})));
    assert_eq!(t.task.next_due(), Some(START + 20_000));
    t.ok(Command::PauseTask(Why::default()));
    t.wait_ms(1_000);
    t.ok(set(json!({"deadline_at": START + 30_000})));
    t.wait_ms(299);
    t.ok(Command::ResumeTask(Why::default()));
    assert_eq!(t.task.next_due(), Some(START + 30_300), "of this pause, what came after it");
}

/// POL-08: with completion=manual the deadline in force is what `overdue` goes by.
#[test]
fn overdue_goes_by_the_deadline_in_force() {
    let mut t = Fixture::create(constrained(json!({"deadline_at": START + 1_000})), Policy::Manual);
    pause(&mut t, 5_000);
    assert!(!diagnostics(&t).overdue);
    t.wait_ms(1_000);
    assert!(diagnostics(&t).overdue);
    assert_eq!(t.task.next_due(), None);
}

/// POL-08: `deadline_hard` is true or false.
#[test]
fn a_deadline_is_hard_or_not() {
    let wrong = json!({"deadline_at": 5, "deadline_hard": "yes"});
    let mut t = Fixture::manual("a");
    let no = t.refuse(set(wrong.clone()), Code::ValidationError);
    assert_eq!(no.details["field"], "constraints.deadline_hard");
    let no = Fixture::try_create(constrained(wrong), Policy::Auto, Limits::default()).unwrap_err();
    assert_eq!(no.details["field"], "constraints.deadline_hard");
}

/// A Task that ended by its deadline, 5 s after its creation, which this input made.
fn timed_out(given: CreateTask) -> Fixture {
    let mut t = Fixture::create(given, Policy::Auto);
    t.due_at(START + 5_000);
    assert_eq!(t.task_code(), "timed_out");
    t
}

/// The Task that `retry_task` makes of an ended one, by a clock that never stands still.
fn remade(old: &Fixture, how: &RetryEnded) -> Result<Fixture, Rejection> {
    let input = old.task.durable().retry_input("t2".parse().unwrap(), how, Rules::NEWEST)?;
    Fixture::try_create(input, Policy::Auto, Limits::default())
}

fn again() -> RetryEnded {
    made_again(&reason("again", "again"))
}

/// RETRY-12: a Task that timed out does not end again at once: the new deadline is as far from the
/// new creation as the old one was from the old. (It had ended after 11 ms.)
#[test]
fn a_deadline_is_as_far_from_the_new_creation() {
    // The fixture creates each Task at START; the old one is an hour older.
    let old = timed_out(constrained(json!({"deadline_at": START + 5_000, "cost": 7})));
    let mut new = remade(&old, &again()).unwrap();
    assert_eq!(new.task.next_due(), Some(START + 5_000));
    let constraints = serde_json::to_value(&new.task.head().spec.constraints).unwrap();
    assert_eq!(constraints, json!({"deadline_at": START + 5_000, "cost": 7}));
    pause(&mut new, 300);
    new.due_at(START + 5_300);
    let third = remade(&new, &again()).unwrap();
    assert_eq!(third.task.next_due(), Some(START + 5_000), "the written one counts, not the pause");
}

/// RETRY-12: a deadline that was not after the creation is dropped.
#[test]
fn a_deadline_before_the_creation_is_dropped() {
    let mut old = Fixture::create(constrained(json!({"deadline_at": START - 1})), Policy::Manual);
    old.ok(cancel_task());
    let new = remade(&old, &again()).unwrap();
    assert_eq!(new.task.head().spec.constraints, None);
}

/// RETRY-12: a hard deadline is copied, and refused if it has passed, unless the command gives another.
#[test]
fn a_hard_deadline_is_copied() {
    let hard = |at| constrained(json!({"deadline_at": at, "deadline_hard": true}));
    let mut old = Fixture::create(hard(START + 5_000), Policy::Auto);
    old.ok(cancel_task());
    let new = remade(&old, &again()).unwrap();
    assert_eq!(new.task.next_due(), Some(START + 5_000));

    let mut old = Fixture::create(hard(START - 1), Policy::Manual);
    old.ok(cancel_task());
    let no = remade(&old, &again()).unwrap_err();
    assert_eq!((no.code, &no.details["field"]), (Code::ValidationError, &json!("deadline_at")));
    let at = START + 900;
    for how in [
        RetryEnded { deadline_at: Some(at), ..again() },
        RetryEnded { deadline_ms: Some(900), ..again() },
    ] {
        let spec = remade(&old, &how).unwrap().task.head().spec.clone();
        assert_eq!((spec.deadline_at(), spec.is_deadline_hard()), (Some(at), true));
    }
    let both = RetryEnded { deadline_at: Some(at), deadline_ms: Some(900), ..again() };
    assert_eq!(remade(&old, &both).unwrap_err().code, Code::ValidationError);
}
