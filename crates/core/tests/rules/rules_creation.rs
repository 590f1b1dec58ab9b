//! Creations in parts (IDEM-07 to IDEM-09).

use tenure_core::command::create::CreateTask;
use tenure_core::command::{AppendProgress, Dispatch, Why};
use tenure_core::creation::Creation;
use tenure_core::id::Digest;
use tenure_core::record::Progress;
use tenure_core::status::{Policy, TaskStatus};
use tenure_core::view::summary::TaskSummary;
use tenure_core::{Code, Command, Limits};

use crate::common::ops::add;
use crate::common::*;
use crate::views::known;

const DAY: i64 = 24 * 60 * 60 * 1000;

/// Of which `parts` patches bring the rest.
fn creation_of(parts: usize, draft: bool) -> Creation {
    let parts = (1..=parts).map(|number| Digest::first(part_digest(number)));
    Creation { digest: Creation::digest_of(parts), draft, steps: 4 }
}

fn creation(draft: bool) -> Creation {
    creation_of(1, draft)
}

/// What the digest of a patch is taken to be.
fn part_digest(number: usize) -> [u8; 32] {
    [u8::try_from(number).unwrap(); 32]
}

/// The first two Steps of four.
fn first(draft: bool) -> CreateTask {
    let creation = Some(creation(draft));
    CreateTask { creation, draft: Some(true), ..create_input("a b") }
}

fn begun(draft: bool) -> Fixture {
    Fixture::create(first(draft), Policy::Auto)
}

/// One that comes in two patches.
fn begun_of_two() -> Fixture {
    let creation = Some(creation_of(2, false));
    Fixture::create(CreateTask { creation, ..first(false) }, Policy::Auto)
}

fn part_of(creation: Creation, number: usize) -> Envelope {
    let command_id = Some(creation.part(number).unwrap().to_string());
    Envelope { command_id, digest: Some(part_digest(number)), ..Envelope::default() }
}

fn part(number: usize) -> Envelope {
    part_of(creation(false), number)
}

/// A create under an id of its own.
fn named(command_id: &str, digest: u8) -> Envelope {
    let command_id = Some(command_id.to_owned());
    Envelope { command_id, digest: Some([digest; 32]), ..Envelope::default() }
}

fn adds(steps: &[&str]) -> Command {
    patch(steps.iter().map(|id| add(id, &["a"])).collect())
}

fn submit() -> Command {
    Command::SubmitTask(Why::default())
}

/// IDEM-07, IDEM-08: the parts come under their ids, in their order, each once; with the last one the Task
/// begins.
#[test]
fn a_task_in_parts_begins_with_the_part_that_makes_it_whole() {
    let mut t = begun_of_two();
    let (boss, of) = (orchestrator(), creation_of(2, false));
    let no = t.run_with(&boss, &adds(&["d"]), &part_of(of, 2)).unwrap_err();
    assert_eq!(no.code, Code::CreationUnfinished, "it is not the next one");
    t.run_with(&boss, &adds(&["c"]), &part_of(of, 1)).unwrap();
    assert_eq!(t.task_status(), TaskStatus::Draft);
    let version = t.task.version();
    let again = t.run_with(&boss, &adds(&["c"]), &part_of(of, 1)).unwrap();
    assert!(again.commit.is_none(), "it came before");
    assert_eq!(t.task.version(), version);
    let no = t.run_with(&boss, &adds(&["d", "e"]), &part_of(of, 2)).unwrap_err();
    assert_eq!((no.code, t.task.version()), (Code::ValidationError, version), "there are too many");
    t.restart();
    t.run_with(&boss, &adds(&["d"]), &part_of(of, 2)).unwrap();
    assert_eq!(t.events()[..2], ["task_updated", "task_submitted"]);
    assert_eq!(t.task_status(), TaskStatus::Running);
    t.restart();
    assert_eq!(t.task.unfinished(), None);
    assert_eq!(t.task.next_due(), None, "it was not left");
    t.ok(patch(json!([add("e", &[])])));
}

/// IDEM-08: what has come in the end is held against the digest, whether or not a draft was asked for.
#[test]
fn a_whole_that_is_not_what_was_announced_does_not_begin() {
    for draft in [false, true] {
        let mut t = begun(draft);
        let version = t.task.version();
        for digest in [None, Some([8; 32])] {
            let other = Envelope { digest, ..part(1) };
            let no = t.run_with(&orchestrator(), &adds(&["c", "d"]), &other).unwrap_err();
            assert_eq!(no.code, Code::ValidationError);
            assert_eq!(no.details["field"], "creation.digest");
            assert_eq!((t.task.version(), t.task_status()), (version, TaskStatus::Draft));
        }
        t.run_with(&orchestrator(), &adds(&["c", "d"]), &part(1)).unwrap();
        assert_eq!(t.task.unfinished(), None);
    }
}

/// IDEM-07: the digest of patches is that of their digests, one behind the other.
#[test]
fn the_digest_of_a_creation_is_of_the_digests_of_its_parts() {
    let of = |parts: &[usize]| {
        Creation::digest_of(parts.iter().map(|at| Digest::first(part_digest(*at)))).to_string()
    };
    let known = "75877bb41d393b5fb8455ce60ecd8dda001d06316496b14dfa7f895656eeca4a";
    assert_eq!(of(&[2]), known, "sha256sum of 32 bytes of 02");
    assert_ne!(of(&[1, 2]), of(&[2, 1]));
}

/// IDEM-10: a create with other content takes the place of an unfinished creation, and that of this one may be
/// taken too; parts of what was before are no parts of it.
#[test]
fn another_creation_takes_the_place_of_an_unfinished_one() {
    let mut t = begun_of_two();
    let (boss, of) = (orchestrator(), creation_of(2, false));
    t.run_with(&boss, &adds(&["c"]), &part_of(of, 1)).unwrap();
    let created_at = t.task.head().created_at;
    let title = || CreateTask { title: "anew".into(), ..first(false) };
    let anew = CreateTask { steps: create_input("b x y").steps, ..title() };
    let made = t.recreate(&anew, Policy::Auto, &named("anew", 8)).unwrap();
    assert_eq!(made.reply.version, t.task.version());
    assert_eq!(t.events(), ["task_created"]);
    t.restart();
    let view = t.task.durable();
    let steps: Vec<_> = view.steps().map(|step| (step.pos, step.id().to_string())).collect();
    assert_eq!(steps, [(0, "b".into()), (1, "x".into()), (2, "y".into())]);
    assert_eq!((&*view.head().spec.title, view.head().created_at), ("anew", created_at));
    let no = t.run_with(&boss, &adds(&["c"]), &part_of(of, 1)).unwrap_err();
    assert_eq!(no.code, Code::CreationUnfinished, "a part of the one before");
    let same = t.recreate(&anew, Policy::Auto, &named("again", 8)).unwrap();
    assert_eq!((same.commit, same.reply.version), (None, made.reply.version));

    let back = CreateTask { creation: Some(of), ..first(false) };
    t.recreate(&back, Policy::Auto, &named("back", 7)).unwrap();
    t.run_with(&boss, &adds(&["c"]), &part_of(of, 1)).unwrap();
    assert!(t.log.last().unwrap().events.len() == 1, "it was forgotten, and came again");
    t.run_with(&boss, &adds(&["d"]), &part_of(of, 2)).unwrap();
    assert_eq!(t.task_status(), TaskStatus::Running);
    let no = t.recreate(&anew, Policy::Auto, &named("late", 8)).unwrap_err();
    assert_eq!(no.code, Code::TaskIdConflict, "it is whole");
}

/// IDEM-10: what takes the place may be whole at once, and begins then; with a key too.
#[test]
fn a_whole_create_takes_the_place_of_an_unfinished_one() {
    let key = Some("k".into());
    let task_id = Some(keyed_id("k"));
    let begun =
        CreateTask { idempotency_key: key.clone(), task_id: task_id.clone(), ..first(false) };
    let mut t = Fixture::create(begun, Policy::Auto);
    let whole = CreateTask { idempotency_key: key, task_id, ..create_input("a z<-a") };
    t.recreate(&whole, Policy::Auto, &named("whole", 8)).unwrap();
    assert_eq!(t.events(), ["task_created", "task_step_ready a", "task_running"]);
    let version = t.task.version();
    let no = t.run_with(&orchestrator(), &adds(&["c", "d"]), &part(1)).unwrap_err();
    assert_eq!(
        (no.code, t.task.version()),
        (Code::CreationUnfinished, version),
        "of the one before"
    );
    t.do_step("a");
    t.do_step("z");
    assert_eq!(t.task_status(), TaskStatus::Completed);
    let same = t.recreate(&whole, Policy::Auto, &named("again", 8)).unwrap();
    assert_eq!(same.commit, None);
    let late = CreateTask { task_id: Some(keyed_id("k")), ..first(false) };
    let no = t.recreate(&late, Policy::Auto, &named("late", 9)).unwrap_err();
    assert_eq!(no.code, Code::TaskIdConflict, "it has no key");
}

/// IDEM-10, REL-05: what was recorded as a child of the Task stays one.
#[test]
fn what_takes_the_place_keeps_the_children() {
    let mut t = begun(false);
    let child = "child".parse().unwrap();
    let adopt = t.task.durable().adopts(&child).unwrap();
    t.ok_as(&system(), adopt);
    t.recreate(&create_input("a z<-a"), Policy::Auto, &named("whole", 8)).unwrap();
    assert_eq!(t.task.durable().children(), std::slice::from_ref(&child));
    t.restart();
    assert_eq!(t.task.durable().children(), [child]);
}

/// IDEM-10, WAL-07: as long as it is not durable nobody sees that another creation took the place, nor what was
/// decided before it and behind it; and all of it can be taken back.
#[test]
fn what_takes_the_place_is_seen_when_it_is_durable() {
    let mut t = begun_of_two();
    let (boss, of) = (orchestrator(), creation_of(2, false));
    t.run_with(&boss, &adds(&["c"]), &part_of(of, 1)).unwrap();
    let before = t.task.clone();
    let progress = |summary: &str| {
        let progress = Some(Progress { summary: Some(summary.into()), ..Progress::default() });
        Command::AppendTaskProgress(AppendProgress { progress, ..AppendProgress::default() })
    };
    t.ahead(&boss, &progress("before"));
    let whole = create_input("x y<-x");
    t.recreate_ahead(&whole, Policy::Auto, &named("anew", 8)).unwrap();
    t.ahead(&boss, &progress("behind"));
    t.ahead(&boss, &patch(json!([add("z", &["y"])])));
    let seen = t.task.durable();
    assert_eq!((seen.version(), seen.status()), (before.version(), TaskStatus::Draft));
    assert_eq!(seen.head(), before.head());
    assert_eq!(seen.steps().count(), 3);
    assert_eq!(seen.to_task(), before);
    t.task.abort();
    assert!(t.task.is_untouched_since(&before));
    t.task.check_invariants().unwrap();
}

/// IDEM-10: what others hold by stays, and what is refused changes nothing.
#[test]
fn what_takes_the_place_has_the_same_log_and_parent() {
    let mut t = begun(false);
    let log = CreateTask { wal_name: Some("other".parse().unwrap()), ..first(false) };
    let cycle = create_input("a<-b b<-a");
    for (given, field) in [(log, Some("wal_name")), (cycle, None)] {
        let no = t.recreate(&given, Policy::Auto, &named("other", 8)).unwrap_err();
        assert!(matches!(no.code, Code::ValidationError | Code::DependencyCycle), "{no}");
        assert_eq!(no.details.get("field").and_then(|f| f.as_str()), field);
    }
    let no = t.recreate(&first(false), Policy::Auto, &named("create", 8)).unwrap_err();
    assert_eq!(no.code, Code::IdempotencyConflict, "the same command is the same create");
    t.run_with(&orchestrator(), &adds(&["c", "d"]), &part(1)).unwrap();
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
    let run = Command::DispatchWorker(Dispatch::to(pool_id(POOL)));
    t.refuse(run, Code::CreationUnfinished);
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
