//! Creations in parts (IDEM-07 to IDEM-09).

use tenure_core::command::Why;
use tenure_core::command::create::CreateTask;
use tenure_core::creation::Creation;
use tenure_core::id::Digest;
use tenure_core::status::{Policy, TaskStatus};
use tenure_core::view::summary::TaskSummary;
use tenure_core::{Code, Command, Limits};

use crate::common::ops::add;
use crate::common::*;
use crate::views::known;

const DAY: i64 = 24 * 60 * 60 * 1000;

fn creation(draft: bool) -> Creation {
    Creation { digest: Digest([9; 32]), draft, steps: 4 }
}

/// The first two Steps of four.
fn first(draft: bool) -> CreateTask {
    let creation = Some(creation(draft));
    CreateTask { creation, draft: Some(true), ..create_input("a b") }
}

fn begun(draft: bool) -> Fixture {
    Fixture::create(first(draft), Policy::Auto)
}

fn part(number: usize) -> Envelope {
    let command_id = Some(creation(false).part(number).unwrap().to_string());
    Envelope { command_id, digest: Some([1; 32]), ..Envelope::default() }
}

fn adds(steps: &[&str]) -> Command {
    patch(steps.iter().map(|id| add(id, &["a"])).collect())
}

fn submit() -> Command {
    Command::SubmitTask(Why::default())
}

/// IDEM-07, IDEM-08: the parts come under their ids, each once; with the last one the Task begins.
#[test]
fn a_task_in_parts_begins_with_the_part_that_makes_it_whole() {
    let mut t = begun(false);
    let boss = orchestrator();
    t.run_with(&boss, &adds(&["c"]), &part(1)).unwrap();
    assert_eq!(t.task_status(), TaskStatus::Draft);
    let version = t.task.version();
    assert!(t.run_with(&boss, &adds(&["c"]), &part(1)).unwrap().commit.is_none(), "it came before");
    assert_eq!(t.task.version(), version);
    let no = t.run_with(&boss, &adds(&["d", "e"]), &part(2)).unwrap_err();
    assert_eq!((no.code, t.task.version()), (Code::ValidationError, version), "there are too many");
    t.run_with(&boss, &adds(&["d"]), &part(2)).unwrap();
    assert_eq!(t.events()[..2], ["task_updated", "task_submitted"]);
    assert_eq!(t.task_status(), TaskStatus::Running);
    t.restart();
    assert_eq!(t.task.unfinished(), None);
    assert_eq!(t.task.next_due(), None, "it was not left");
    t.ok(patch(json!([add("e", &[])])));
}

/// IDEM-08: a draft that was asked for stays one, which anybody may submit once it is whole.
#[test]
fn a_draft_in_parts_stays_a_draft() {
    let mut t = begun(true);
    t.run_with(&orchestrator(), &adds(&["c", "d"]), &part(1)).unwrap();
    assert_eq!((t.task_status(), t.task.unfinished()), (TaskStatus::Draft, None));
    t.ok(submit());
}

/// IDEM-09: before it is whole nobody begins it, and nobody but its creator changes it.
#[test]
fn an_unfinished_creation_is_neither_begun_nor_changed() {
    let mut t = begun(false);
    let no = t.refuse(submit(), Code::CreationUnfinished);
    assert_eq!((&no.details["steps_here"], &no.details["steps"]), (&json!(2), &json!(4)));
    t.refuse(adds(&["c", "d"]), Code::CreationUnfinished);
    let other = Envelope { command_id: Some("another/1".into()), ..Envelope::default() };
    let no = t.run_with(&orchestrator(), &adds(&["c"]), &other).unwrap_err();
    assert_eq!(no.code, Code::CreationUnfinished);
    t.restart();
    t.refuse(submit(), Code::CreationUnfinished);
    t.ok(cancel_task());
    assert_eq!(t.task_status(), TaskStatus::Cancelled);
}

/// IDEM-09: whoever looks is told that parts are missing, and of no other way on.
#[test]
fn an_unfinished_creation_is_called_one() {
    let mut t = begun(false);
    let known = known();
    let reason = TaskSummary::of(&t.task.durable(), &known).status_reason.unwrap();
    assert_eq!(reason.code, "unfinished_creation");
    assert!(reason.message.contains("2 of 4 steps"), "{}", reason.message);
    t.run_with(&orchestrator(), &adds(&["c", "d"]), &part(1)).unwrap();
    assert_eq!(TaskSummary::of(&t.task.durable(), &known).status_reason, None);
}

/// IDEM-09: what is left for a day ends; each part begins the day anew.
#[test]
fn a_creation_that_was_left_ends_after_a_day() {
    let mut t = begun(false);
    t.wait_ms(DAY - 10);
    t.judge_due();
    t.run_with(&orchestrator(), &adds(&["c"]), &part(1)).unwrap();
    t.wait_ms(DAY - 10);
    t.judge_due();
    assert_eq!(t.task_status(), TaskStatus::Draft);
    t.wait_ms(20);
    t.judge_due();
    assert_eq!(t.task_status(), TaskStatus::Cancelled);
    assert_eq!(t.task_code(), "unfinished_creation");
}

/// IDEM-07: what comes in parts is a draft, and has more Steps than come first.
#[test]
fn a_creation_in_parts_says_what_the_whole_is() {
    let refused = |given| {
        let no = Fixture::try_create(given, Policy::Auto, Limits::default()).unwrap_err();
        (no.code, no.details["field"].as_str().unwrap().to_owned())
    };
    let (code, whole) =
        (Code::ValidationError, |steps| Some(Creation { steps, ..creation(false) }));
    assert_eq!(refused(CreateTask { draft: None, ..first(false) }), (code, "draft".into()));
    for steps in [0, 2, 100_001] {
        let given = CreateTask { creation: whole(steps), ..first(false) };
        assert_eq!(refused(given), (code, "creation.steps".into()), "{steps}");
    }
}
