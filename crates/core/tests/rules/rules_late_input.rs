//! CTRL-12: input that comes to a Task while its Steps are at work.

use serde_json::json;
use tenure_core::command::{AppendProgress, Complete};
use tenure_core::event::{Body, LeaseEnd};
use tenure_core::id::Ref;
use tenure_core::status::StepStatus;
use tenure_core::view::explain::ForWhom;
use tenure_core::view::{claim_result, explain_task};
use tenure_core::{Code, Command};

use crate::common::*;

fn refs(names: &[&str]) -> Vec<Ref> {
    names.iter().map(|name| Ref::new(format!("urn:{name}")).unwrap()).collect()
}

/// Adds input to the Task.
fn add(t: &mut Fixture, names: &[&str]) {
    let input_refs = refs(names);
    let given = AppendProgress { input_refs, ..AppendProgress::default() };
    t.run(&orchestrator(), &Command::AppendTaskProgress(given)).unwrap();
}

fn report(t: &mut Fixture, held: &Held, status: StepStatus, seen: Option<u64>) {
    let mut report = held.says();
    (report.status, report.input_seen) = (Some(status), seen);
    t.run(&held.caller(), &Command::TaskUpdateStep(report)).unwrap();
}

/// What the end of the Task says that nobody has read.
fn unread(t: &Fixture) -> Vec<Ref> {
    let ends = t.log.iter().flat_map(|commit| &commit.events);
    let mut end = ends.filter_map(|event| match &event.body {
        Body::TaskCompleted(end) => Some(end.unread_input_refs.clone()),
        _ => None,
    });
    let unread = end.next_back().expect("the task has completed");
    let view = t.task.durable();
    let known = unread.clone();
    assert_eq!(view.head().unread_input_refs.as_deref().cloned().unwrap_or_default(), known);
    unread
}

/// CTRL-12: completion does not wait for input that came late; it lists what no completed Attempt has seen, and
/// so do view and explanation.
#[test]
fn what_nobody_has_read_is_listed() {
    let mut t = Fixture::auto("a");
    let held = t.grant("ann", POOL).unwrap();
    add(&mut t, &["early", "late"]);
    report(&mut t, &held, StepStatus::Completed, None);
    assert_eq!(unread(&t), refs(&["early", "late"]));
    let told = explain_task(&t.task.durable(), ForWhom::default(), &crate::views::known());
    assert_eq!(told.unwrap().unread_input_refs, refs(&["early", "late"]));
}

/// CTRL-12: an Attempt has seen what it had in its claim, and what it reported; the cursor counts entries, so a
/// repeated ref is a new entry.
#[test]
fn the_cursor_counts_entries() {
    let mut t = Fixture::auto("a");
    add(&mut t, &["x"]);
    let held = t.grant("ann", POOL).unwrap();
    let claim = claim_result(&t.task.durable(), held.attempt_id).unwrap();
    assert_eq!((claim.input_seen, claim.input_refs.to_vec()), (1, refs(&["x"])));
    add(&mut t, &["x", "y"]);
    assert_eq!(t.task.head().input_refs.to_vec(), refs(&["x", "x", "y"]));
    report(&mut t, &held, StepStatus::Running, Some(2));
    assert_eq!(t.task.attempt(held.attempt_id).unwrap().input_seen, 2);
    report(&mut t, &held, StepStatus::Running, Some(1));
    assert_eq!(t.task.attempt(held.attempt_id).unwrap().input_seen, 2, "it never falls");
    report(&mut t, &held, StepStatus::Completed, None);
    assert_eq!(unread(&t), refs(&["y"]));
}

/// CTRL-12: nobody can have seen more than there is.
#[test]
fn more_than_there_is_cannot_be_seen() {
    let mut t = Fixture::auto("a");
    let held = t.grant("ann", POOL).unwrap();
    add(&mut t, &["x"]);
    let mut report = held.says();
    report.input_seen = Some(2);
    let refused = t.run(&held.caller(), &Command::TaskUpdateStep(report)).unwrap_err();
    assert_eq!(
        (refused.code, &refused.details["field"]),
        (Code::ValidationError, &json!("input_seen"))
    );
    self::report(&mut t, &held, StepStatus::Completed, Some(1));
    assert!(unread(&t).is_empty());
}

/// CTRL-12: what a heartbeat says is taken into the log by the next report, and what a lost Attempt has seen
/// does not count as read.
#[test]
fn a_heartbeat_counts_with_the_next_report() {
    let mut t = Fixture::auto("a");
    let lost = t.grant("ann", POOL).unwrap();
    add(&mut t, &["x", "y"]);
    report(&mut t, &lost, StepStatus::Running, Some(2));
    t.ok_as(&system(), expire(&[&lost], LeaseEnd::LeaseExpired));
    let view = t.task.durable();
    assert!(view.head().unread_input_refs.is_none());
    let held = t.grant("bob", POOL).unwrap();
    add(&mut t, &["z"]);
    let before = t.task.clone();
    t.task.note_input_seen(held.attempt_id, 9);
    assert_eq!(t.task, before, "no event says it yet");
    report(&mut t, &held, StepStatus::Completed, None);
    assert!(unread(&t).is_empty(), "three, and no more than there are");
}

/// CTRL-12: a heartbeat is news once, and only of what its holder has not said before.
#[test]
fn a_heartbeat_is_news_once() {
    let mut t = Fixture::auto("a");
    let held = t.grant("ann", POOL).unwrap();
    let is_news = |t: &Fixture, seen| t.task.durable().is_news_of_input(held.attempt_id, seen);
    assert!(!is_news(&t, 0) && !is_news(&t, 9), "there is nothing to see");
    add(&mut t, &["x", "y"]);
    assert!(!is_news(&t, 0) && is_news(&t, 1));
    t.task.note_input_seen(held.attempt_id, 1);
    assert!(!is_news(&t, 1) && is_news(&t, 2));
    report(&mut t, &held, StepStatus::Running, Some(2));
    assert!(!is_news(&t, 2) && !is_news(&t, 9));
    add(&mut t, &["z"]);
    assert!(is_news(&t, 3));
    report(&mut t, &held, StepStatus::Completed, None);
    assert!(!is_news(&t, 3), "the Attempt has ended");
}

/// LIVE-02, CTRL-12: what a heartbeat has said keeps a Task in memory no longer than its Attempt is open.
#[test]
fn what_a_heartbeat_said_ends_with_its_attempt() {
    let mut t = Fixture::auto("a b");
    let held = t.grant("ann", POOL).unwrap();
    add(&mut t, &["x"]);
    t.task.note_input_seen(held.attempt_id, 1);
    assert!(!t.task.is_all_in_log(), "an Attempt is open");
    report(&mut t, &held, StepStatus::Completed, None);
    assert!(t.task.is_all_in_log());
}

/// CTRL-12: under dispatch=manual, and in Tasks of rules 1, nothing is pushed; a Task of rules 1 lists nothing.
#[test]
fn only_automatic_tasks_of_rules_2_push() {
    let mut auto = Fixture::auto("a");
    let held = auto.grant("ann", POOL).unwrap();
    add(&mut auto, &["x", "y"]);
    let view = auto.task.durable();
    assert_eq!(view.pushed_inputs(), 2);
    let attempt = view.attempt(held.attempt_id).unwrap();
    assert_eq!(view.inputs_for(attempt, 0), (0, refs(&["x", "y"]).as_slice()));
    assert_eq!(view.inputs_for(attempt, 1), (1, refs(&["y"]).as_slice()));

    let mut manual = Fixture::manual("a");
    add(&mut manual, &["x"]);
    assert_eq!(manual.task.durable().pushed_inputs(), 0);

    let mut first = Fixture::by_first_rules(create_input("a"), tenure_core::status::Policy::Auto);
    let held = first.grant("ann", POOL).unwrap();
    add(&mut first, &["x"]);
    add(&mut first, &["x"]);
    assert_eq!(first.task.durable().pushed_inputs(), 0);
    assert_eq!(first.task.head().input_refs.to_vec(), refs(&["x"]), "a set, as it was");
    report(&mut first, &held, StepStatus::Completed, None);
    assert!(unread(&first).is_empty());
}

/// CTRL-12: `agent.task_complete` lists it as well.
#[test]
fn a_completion_by_command_lists_it_too() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    add(&mut t, &["x"]);
    report(&mut t, &held, StepStatus::Completed, None);
    t.run(&orchestrator(), &Command::TaskComplete(Complete::default())).unwrap();
    assert_eq!(unread(&t), refs(&["x"]));
}
