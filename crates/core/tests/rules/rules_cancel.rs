//! CANCEL: intent, and what rests while a Task is closing.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common;
use common::*;
use tenure_core::command::create::{CreateTask, Parent, ParentEnd};
use tenure_core::command::{AppendProgress, Close, Dispatch, Link, RetrySteps};
use tenure_core::id::Ref;
use tenure_core::status::{
    DeliveryState, EdgeKind, Intent, ParentClose, Policy, StepStatus, TaskStatus,
};
use tenure_core::{Code, Command};

/// CANCEL-01: whenever something is held, the intent is recorded first; for fail as for cancel.
#[test]
fn the_intent_is_recorded_while_something_is_held() {
    for started in [false, true] {
        let mut t = Fixture::manual("a");
        let held = t.claim("a");
        if started {
            t.start(&held);
        }
        t.ok(Command::TaskCancel(Close {
            grace_ms: None,
            reason: Some(reason("bored", "of it")),
            wait: None,
        }));
        let request = t.task.head().cancel_requested.clone().unwrap();
        assert_eq!((request.intent, request.reason.code.as_str()), (Intent::Cancel, "bored"));
        assert_eq!((request.by.as_str(), request.at), (ORCHESTRATOR, t.now));
        assert!(t.task.is_closing());
    }
}

/// CANCEL-02, CANCEL-01: from then on nothing is dispatched, claimed, promoted, patched, linked,
/// retried or otherwise changed.
#[test]
fn nothing_changes_while_the_task_is_closing() {
    let mut t = Fixture::auto("a b c<-a");
    let run = t.dispatch(POOL);
    let held = t.grant("bee", POOL).unwrap();
    t.ok(cancel_task());
    for command in [
        patch(json!([{"op": "update_task", "title": "new"}])),
        write_command("b", StepStatus::Failed),
        block_task(),
        complete_task(),
        Command::PauseTask(Default::default()),
        Command::ArchiveTask(Default::default()),
        Command::RetryTask(RetrySteps { reason: reason("again", ""), step_ids: None }),
        Command::LinkTasks(Link {
            kind: EdgeKind::Blocks,
            reason: None,
            to: Ref::new("other").unwrap(),
        }),
        Command::AppendTaskProgress(AppendProgress {
            delivery_state: Some(DeliveryState::Queued),
            ..AppendProgress::default()
        }),
        Command::DispatchWorker(Dispatch::to(pool_id(POOL))),
    ] {
        t.refuse(command, Code::TaskCancelling);
    }
    let ant = t.member("ant", run);
    t.refuse_as(&ant, claim_command(run, "b"), Code::TaskCancelling);
    t.start(&held);
    t.restart();
    assert_eq!(t.status("b"), StepStatus::Ready);
    t.ok_as(&ant, decline_run(run));
    assert_eq!(t.events(), ["task_run_ended"], "declining skips K9");
}

/// CANCEL-02, READY: no Step gets ready while closing, neither by a completion nor by a timer.
#[test]
fn nothing_gets_ready_while_the_task_is_closing() {
    let policy = json!({"max_attempts": 3, "backoff": {"initial_ms": 50, "jitter": 0.0}});
    let mut t = with_policy("a b c<-b", policy, Policy::Manual);
    let a = t.claim("a");
    t.fail(&a, "broken");
    assert_eq!(t.status("a"), StepStatus::Pending);
    let (b, x) = (t.claim("b"), t.now);
    t.ok(cancel_task());
    let closes = t.task.next_due();
    assert_eq!(closes, Some(x + 1 + 10_000), "the backoff rests");
    t.now += 1_000;
    assert!(t.ok_as(&system(), Command::Due).commit.is_none());
    t.complete(&b);
    assert_eq!(
        t.events(),
        [
            "task_step_completed b",
            "task_step_cancelled a",
            "task_step_cancelled c",
            "task_cancelled"
        ]
    );
}

/// CANCEL-03, CANCEL-04: a Task that is closing, or was closed, says how its children end;
/// the scheduler closes them with that reason, as itself, once. A draft is cancelled either way.
#[test]
fn a_child_ends_as_its_parent_says() {
    for (close, intent, end, code, status) in [
        (
            cancel_task(),
            Intent::Cancel,
            ParentEnd::Cancelled,
            "parent_cancelled",
            TaskStatus::Cancelled,
        ),
        (fail_task(), Intent::Fail, ParentEnd::Failed, "parent_failed", TaskStatus::Failed),
    ] {
        let mut parent = Fixture::manual("a");
        assert_eq!(parent.task.durable().closes_children(), None);
        let held = parent.claim("a");
        parent.ok(close);
        assert_eq!(parent.task.durable().closes_children(), Some(intent));
        parent.ok_as(&held.caller(), held.releases());
        assert!(parent.task.is_terminal());
        assert_eq!(parent.task.durable().closes_children(), Some(intent));
        assert_eq!(parent.task.durable().end_for_children(), Some(end));

        let mut child = Fixture::manual("a");
        let command = child.task.follows_parent(end).unwrap();
        child.ok_as(&system(), command);
        assert_eq!((child.task_status(), child.task_code()), (status, code));
        assert_eq!(*child.actors().last().unwrap(), "system");
        assert_eq!(child.task.follows_parent(end), None);

        let mut draft = Fixture::draft("a");
        let command = draft.task.follows_parent(end).unwrap();
        draft.ok_as(&system(), command);
        assert_eq!((draft.task_status(), draft.task_code()), (TaskStatus::Cancelled, code));
    }
    let mut completed = Fixture::manual("a");
    let a = completed.claim("a");
    completed.complete(&a);
    completed.ok(Command::TaskComplete(Default::default()));
    assert_eq!(completed.task.durable().closes_children(), None);
}

/// REL-09: what becomes of a child when its parent completes is the child's to say; cancel and failure
/// reach it in any case.
#[test]
fn a_child_may_end_with_the_completion_of_its_parent() {
    let mut parent = Fixture::manual("a");
    assert_eq!(parent.task.durable().end_for_children(), None);
    parent.do_step("a");
    parent.ok(Command::TaskComplete(Default::default()));
    let end = parent.task.durable().end_for_children().unwrap();
    assert_eq!(end, ParentEnd::Completed);
    let named = Parent::of(&parent.task.durable(), &"c".parse().unwrap());
    assert_eq!((named.end(), named.closes_children), (Some(end), None));
    assert_eq!(Parent::ended("t".parse().unwrap(), TaskStatus::Completed).end(), Some(end));

    for parent_close in [None, Some(ParentClose::Abandon)] {
        let child =
            Fixture::create(CreateTask { parent_close, ..create_input("a") }, Policy::Manual);
        assert!(child.task.outlives_parent());
        assert_eq!(child.task.follows_parent(end), None);
        assert!(child.task.follows_parent(ParentEnd::Failed).is_some());
    }
    let given = CreateTask { parent_close: Some(ParentClose::Cancel), ..create_input("a") };
    let mut child = Fixture::create(given, Policy::Manual);
    let command = child.task.follows_parent(end).unwrap();
    child.ok_as(&system(), command);
    assert_eq!(
        (child.task_status(), child.task_code()),
        (TaskStatus::Cancelled, "parent_completed")
    );
    assert_eq!(child.task.follows_parent(end), None);
}

/// CANCEL-05, RECOVER-01: intent and deadline survive a restart; closing goes on with the time
/// left.
#[test]
fn closing_survives_a_restart_with_the_time_left() {
    let mut t = Fixture::manual("a");
    t.claim("a");
    t.ok(cancel_task());
    let due = t.task.next_due();
    t.restart();
    assert_eq!(t.task.next_due(), due);
    t.due_at(due.unwrap());
    assert_eq!(t.task_status(), TaskStatus::Cancelled);
}

/// CANCEL-07: every holder of a closing Task is asked to stop.
#[test]
fn every_holder_of_a_closing_task_is_asked_to_stop() {
    let mut t = Fixture::manual("a b");
    t.claim("a");
    t.claim("b");
    let open: Vec<_> = ["a", "b"].iter().map(|s| t.step(s).state.current.unwrap()).collect();
    assert!(!open.iter().any(|&at| t.asks_to_stop(at)));
    t.ok(fail_task());
    assert!(open.iter().all(|&at| t.asks_to_stop(at)));
}

/// CANCEL-08, CANCEL-07: `cancel_run` of one Run asks its holder alone.
#[test]
fn a_cancelled_run_asks_its_own_holder_alone() {
    let mut t = Fixture::manual("a b");
    let held = t.claim("a");
    t.claim("b");
    t.ok(cancel_run(held.run_id));
    let at = |t: &Fixture, s: &str| t.step(s).state.current.unwrap();
    assert!(t.asks_to_stop(at(&t, "a")));
    assert!(!t.asks_to_stop(at(&t, "b")));
}
