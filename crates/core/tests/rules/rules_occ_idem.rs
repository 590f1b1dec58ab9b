//! OCC and IDEM: versions, and commands that come twice.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common;
use common::*;
use tenure_core::command::create::{CreateTask, Defaults};
use tenure_core::command::{Close, RunOutcome};
use tenure_core::id::{CommandId, Digest};
use tenure_core::status::{Policy, StepStatus};
use tenure_core::{Caller, Code, Command, Cx, Limits, Rejection};

fn at_version(expected: u64) -> Envelope {
    Envelope { expected_version: Some(expected), ..Envelope::default() }
}

fn named(command_id: &str, digest: u8) -> Envelope {
    let command_id = Some(command_id.to_owned());
    Envelope { command_id, digest: Some([digest; 32]), ..Envelope::default() }
}

fn title(new: &str) -> Command {
    patch(json!([{"op": "update_task", "title": new}]))
}

/// OCC-01, U6: the version is the last `wal_seq`; every event raises it by one.
#[test]
fn the_version_counts_events() {
    let mut t = Fixture::manual("a b<-a");
    assert_eq!(t.task.version(), t.log[0].events.len() as u64);
    t.do_step("a");
    let events: usize = t.log.iter().map(|c| c.events.len()).sum();
    assert_eq!(t.task.version(), events as u64);
}

/// OCC-02, OCC-03: a mismatch is refused with the current version; without an expectation the
/// state alone decides.
#[test]
fn a_command_may_expect_a_version() {
    let mut t = Fixture::manual("a");
    let version = t.task.version();
    for wrong in [version - 1, version + 1] {
        let no = t.run_with(&orchestrator(), &title("x"), &at_version(wrong)).unwrap_err();
        assert_eq!(no.code, Code::VersionConflict);
        assert_eq!(no.details["current_version"], version);
        assert_eq!(no.details["expected_version"], wrong);
    }
    t.run_with(&orchestrator(), &title("x"), &at_version(version)).unwrap();
    t.ok(title("y"));
}

/// OCC-04: on an ended Task the answer is `task_terminal`, also when the version differs; and while
/// closing it is `task_cancelling` (K8, K9, K10).
#[test]
fn the_end_is_told_before_the_version() {
    let mut t = Fixture::manual("a");
    t.claim("a");
    t.ok(cancel_task());
    let no = t.run_with(&orchestrator(), &title("x"), &at_version(1)).unwrap_err();
    assert_eq!(no.code, Code::TaskCancelling);
    let no = t.run_with(&orchestrator(), &cancel_task(), &at_version(1)).unwrap_err();
    assert_eq!(no.code, Code::VersionConflict, "a repeated cancel skips K9, not K10");
    t.due_at(t.task.next_due().unwrap());
    let no = t.run_with(&orchestrator(), &title("x"), &at_version(1)).unwrap_err();
    assert_eq!(no.code, Code::TaskTerminal);
}

/// OCC-06, K10: what a holder says is fenced by its Attempt, never by a version.
#[test]
fn holders_are_not_asked_for_a_version() {
    let mut t = Fixture::manual("a b c");
    let (a, b, c) = (t.claim("a"), t.claim("b"), t.claim("c"));
    t.run_with(&a.caller(), &a.reports(StepStatus::Running), &at_version(1)).unwrap();
    t.run_with(&b.caller(), &b.ends(RunOutcome::Finished), &at_version(1)).unwrap();
    t.run_with(&c.caller(), &c.releases(), &at_version(1)).unwrap();
    let run = t.dispatch(POOL);
    let no =
        t.run_with(&t.member("ant", run), &claim_command(run, "c"), &at_version(1)).unwrap_err();
    assert_eq!(no.code, Code::VersionConflict, "a claim is");
}

/// OCC-05: two follow-ups on one blocked Step: the first wins, the second is told.
#[test]
fn of_two_follow_ups_the_first_wins() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    t.report(&held, StepStatus::Blocked);
    let version = t.task.version();
    let answer = write_command("a", StepStatus::Pending);
    t.run_with(&orchestrator(), &answer, &at_version(version)).unwrap();
    let no = t.run_with(&orchestrator(), &answer, &at_version(version)).unwrap_err();
    assert_eq!(no.code, Code::VersionConflict);
    t.refuse(answer, Code::InvalidTransition);
}

/// IDEM-01, IDEM-05, WAL-11: a replay returns the first result and writes nothing; from the log
/// alone, and after the Task ended; before rights, version and state are judged.
#[test]
fn a_replayed_command_returns_the_first_result() {
    let mut t = Fixture::manual("a");
    let first = t.run_with(&orchestrator(), &title("x"), &named("c", 1)).unwrap();
    t.ok(title("y"));
    let again = |t: &mut Fixture| {
        let envelope = Envelope { expected_version: Some(1), ..named("c", 1) };
        let again = t.run_with(&orchestrator(), &title("x"), &envelope).unwrap();
        assert_eq!(again.commit, None);
        assert_eq!(again.reply.written, first.reply.written);
        assert_eq!(
            (again.reply.version, again.reply.made),
            (first.reply.version, first.reply.made)
        );
    };
    again(&mut t);
    t.restart();
    again(&mut t);
    t.ok(cancel_task());
    again(&mut t);
    t.restart();
    again(&mut t);
    assert_eq!(t.task.head().spec.title, "y");
}

/// IDEM-02, P38: the same id with other content is a conflict, whoever sends it.
#[test]
fn a_command_id_with_other_content_is_a_conflict() {
    let mut t = Fixture::manual("a");
    t.run_with(&orchestrator(), &title("x"), &named("c", 1)).unwrap();
    let no = t.run_with(&orchestrator(), &title("y"), &named("c", 2)).unwrap_err();
    assert_eq!((no.code, &no.details["command_id"]), (Code::IdempotencyConflict, &json!("c")));
    t.ok(cancel_task());
    let no = t.run_with(&orchestrator(), &title("y"), &named("c", 2)).unwrap_err();
    assert_eq!(no.code, Code::IdempotencyConflict, "K6 comes before K8");
}

/// IDEM-06: refusals and no-ops are not remembered.
#[test]
fn refusals_and_no_ops_are_judged_afresh() {
    let mut t = Fixture::manual("a");
    let resume = Command::ResumeTask(Default::default());
    t.run_with(&orchestrator(), &resume, &named("c", 1)).unwrap_err();
    t.ok(Command::PauseTask(Default::default()));
    t.run_with(&orchestrator(), &resume, &named("c", 1)).unwrap();

    let run = t.dispatch(POOL);
    t.ok(cancel_run(run));
    assert!(
        t.run_with(&orchestrator(), &cancel_run(run), &named("n", 1)).unwrap().commit.is_none()
    );
    assert!(t.task.command(&"n".parse().unwrap()).is_none());
    t.run_with(&orchestrator(), &title("x"), &named("n", 2)).unwrap();
}

/// IDEM-01: a replayed close waits for the Task's end as long as it has not come, and other
/// replays wait for nothing.
#[test]
fn a_replay_waits_only_for_what_its_command_waits_for() {
    let mut t = Fixture::manual("a");
    t.run_with(&orchestrator(), &title("x"), &named("c", 1)).unwrap();
    t.claim("a");
    t.run_with(&orchestrator(), &cancel_task(), &named("close", 1)).unwrap();
    let replay = |t: &mut Fixture, command: &Command, name: &str| {
        t.run_with(&orchestrator(), command, &named(name, 1)).unwrap().reply.waits
    };
    assert_eq!(replay(&mut t, &title("x"), "c"), None);
    assert!(replay(&mut t, &cancel_task(), "close").is_some());
    let at_once = Command::TaskCancel(Close { grace_ms: None, reason: None, wait: Some(false) });
    assert_eq!(replay(&mut t, &at_once, "close"), None);
    t.due_at(t.task.next_due().unwrap());
    assert_eq!(replay(&mut t, &cancel_task(), "close"), None);
}

/// Repeats a create on the Task.
fn recreate(
    t: &mut Fixture,
    caller: &Caller,
    given: &CreateTask,
    command: (&str, u8),
) -> Result<tenure_core::Reply, Rejection> {
    let (command_id, limits): (CommandId, _) = (command.0.parse().unwrap(), Limits::default());
    let cx = Cx {
        caller,
        stamp: t.stamp(),
        command_id: Some(&command_id),
        digest: Some(Digest::first([command.1; 32])),
        expected_version: None,
        expected_spec_version: None,
        trace: None,
        epoch: 0,
        limits: &limits,
    };
    let defaults = Defaults { policy: Policy::Manual, worker_pool_id: pool_id(POOL) };
    t.task.recreated(&cx, given, &defaults, None).map(|outcome| {
        assert_eq!(outcome.commit, None);
        outcome.reply
    })
}

/// IDEM-03, ID-03: the same key and content return the first Task; the same key with other content is
/// `idempotency_conflict`; none where the first had one is `task_id_conflict`.
#[test]
fn a_create_is_idempotent_by_its_key() {
    let keyed = |key: Option<&str>| CreateTask {
        idempotency_key: key.map(Into::into),
        task_id: Some(keyed_id("k")),
        ..create_input("a")
    };
    let mut t = Fixture::create(keyed(Some("k")), Policy::Manual);
    t.ok(cancel_task());
    let boss = orchestrator();
    let first = t.log[0].clone();
    let same = recreate(&mut t, &boss, &keyed(Some("k")), ("another", 7)).unwrap();
    assert_eq!(same.written.unwrap().commit_id, first.commit_id);
    assert_eq!(same.version, first.last_seq());
    let code = |r: Result<_, Rejection>| r.map(|_: tenure_core::Reply| ()).unwrap_err().code;
    let mut ask = |key, command| code(recreate(&mut t, &boss, &keyed(key), command));
    assert_eq!(ask(Some("k"), ("another", 8)), Code::IdempotencyConflict);
    assert_eq!(ask(Some("other"), ("another", 7)), Code::ValidationError, "it makes another id");
    assert_eq!(ask(None, ("another", 7)), Code::TaskIdConflict);
    assert_eq!(ask(None, ("create", 8)), Code::IdempotencyConflict);
    let replayed = recreate(&mut t, &boss, &keyed(None), ("create", 7)).unwrap();
    assert_eq!(replayed.version, first.last_seq());
}

/// IDEM-03: without a key the same content is the same Task; other content is a conflict.
#[test]
fn a_create_without_a_key_is_idempotent_by_its_content() {
    let mut t = Fixture::manual("a");
    let (boss, given) = (orchestrator(), create_input("a"));
    let same = recreate(&mut t, &boss, &given, ("another", 7)).unwrap();
    assert_eq!(same.version, t.log[0].last_seq());
    let no = recreate(&mut t, &boss, &given, ("another", 8)).unwrap_err();
    assert_eq!(no.code, Code::TaskIdConflict);
}

/// PERM-04, PERM-16: a repeated create tells nothing to those who may not create.
#[test]
fn a_repeated_create_is_checked_as_the_first() {
    let mut t = Fixture::manual("a");
    let ant = worker("ant", POOL, None);
    let no = recreate(&mut t, &ant, &create_input("a"), ("create", 7)).unwrap_err();
    assert_eq!(no.code, Code::ToolNotAvailable);
    let no_id = CreateTask { task_id: None, ..create_input("a") };
    let no = recreate(&mut t, &orchestrator(), &no_id, ("create", 7)).unwrap_err();
    assert_eq!(no.code, Code::ValidationError);
}

/// IDEM-03: the key is compared with the create, whatever command came first with an id.
#[test]
fn a_key_is_compared_with_the_create_alone() {
    let (key, task_id) = (Some("k".into()), Some(keyed_id("k")));
    let given = CreateTask { idempotency_key: key, task_id, ..create_input("a") };
    let (boss, limits) = (orchestrator(), Limits::default());
    let defaults = Defaults { policy: Policy::Manual, worker_pool_id: pool_id(POOL) };
    let mut t = Fixture::manual("a");
    let cx = Cx {
        caller: &boss,
        stamp: t.stamp(),
        command_id: None,
        digest: None,
        expected_version: None,
        expected_spec_version: None,
        trace: None,
        epoch: 0,
        limits: &limits,
    };
    let (task, outcome) = tenure_core::Task::create(&cx, &given, &defaults, None).unwrap();
    (t.task, t.log) = (task, vec![outcome.commit.unwrap()]);
    t.now = START;
    t.run_with(&boss, &title("x"), &named("c", 7)).unwrap();
    let no = recreate(&mut t, &boss, &given, ("other", 7)).unwrap_err();
    assert_eq!(no.code, Code::IdempotencyConflict);
}

/// CTRL-07: what a caller believes counts for nothing: a Step that it saw as ready a moment ago is
/// judged as it is now, and so is everything else it says.
#[test]
fn what_a_caller_believes_counts_for_nothing() {
    let mut t = Fixture::manual("a b");
    let believed = t.task.clone();
    let run = t.dispatch("main");
    t.claim_by("bee", "a");
    assert_eq!(believed.durable().step(&id("a")).unwrap().status(), StepStatus::Ready);
    let late = claim_command(run, "a");
    t.refuse_as(&worker("ant", "main", Some(run)), late, Code::StepAlreadyClaimed);
    t.refuse(write_command("a", StepStatus::Cancelled), Code::StepInProgress);
    t.refuse(patch(json!([{"op": "delete_step", "step_id": "a"}])), Code::StepInProgress);
    t.ok(cancel_task());
    t.refuse(title("it goes on"), Code::TaskCancelling);
}
