//! POL: what a Task does by itself under `dispatch` and `completion`.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common;
use common::*;
use tenure_core::command::create::CreateTask;
use tenure_core::command::{AppendProgress, RunOutcome, StepReport};
use tenure_core::patch::StepInput;
use tenure_core::record::{Acceptance, RemoteRef};
use tenure_core::status::{AcceptanceState, Policy, StepStatus, TaskStatus};
use tenure_core::{Code, Command, Limits};

use StepStatus::{Blocked, Cancelled, Completed, Failed, Pending, Ready};

/// An automatic Task without retries, so that every failure is final.
fn once(notation: &str) -> Fixture {
    with_policy(notation, json!({"max_attempts": 1, "max_lost": 1}), Policy::Auto)
}

fn set(field: &str, value: serde_json::Value) -> Command {
    patch(json!([{"op": "update_task", field: value}]))
}

/// POL-01, P40: what is not given comes from the entry point; what is given stands.
#[test]
fn policies_default_by_entry_point() {
    let of = |t: &Fixture| (t.task.head().spec.dispatch, t.task.head().spec.completion);
    assert_eq!(of(&Fixture::manual("a")), (Policy::Manual, Policy::Manual));
    assert_eq!(of(&Fixture::auto("a")), (Policy::Auto, Policy::Auto));
    let given = CreateTask { completion: Some(Policy::Manual), ..create_input("a") };
    assert_eq!(of(&Fixture::create(given, Policy::Auto)), (Policy::Auto, Policy::Manual));
    // By the names of the entry points, whatever the node's own default.
    let called = |name: &str| of(&Fixture::create(create_input("a").called(name), Policy::Auto));
    assert_eq!(called("agent.task_create"), (Policy::Manual, Policy::Manual));
    assert_eq!(called("create_task"), (Policy::Auto, Policy::Auto));
    let given = CreateTask { dispatch: Some(Policy::Auto), ..create_input("a") };
    let given = Fixture::create(given.called("agent.task_create"), Policy::Auto);
    assert_eq!(of(&given), (Policy::Auto, Policy::Manual));
}

/// POL-02, TASK-05, TASK-14, TASK-15, DISP-03, READY-07: a manual Task neither runs, ends nor
/// blocks by itself, whatever happens to its Steps.
#[test]
fn a_manual_task_does_nothing_by_itself() {
    for status in [Completed, Failed, Blocked, Cancelled] {
        let mut t = Fixture::manual("a");
        t.bring("a", status);
        assert_eq!(t.task_status(), TaskStatus::Running);
        assert_eq!(t.task.next_due(), None);
    }
}

/// POL-03, POL-04, TASK-14: an automatic Task completes as `system` in the commit that made it so,
/// and the claim of its Runs has the worker as actor.
#[test]
fn an_automatic_task_completes_in_the_commit_that_made_it_so() {
    let mut t = Fixture::auto("a b<-a o?<-b p?");
    let a = t.grant("ant", POOL).unwrap();
    assert_eq!(t.actors(), ["ant"]);
    t.complete(&a);
    let b = t.grant("ant", POOL).unwrap();
    assert_eq!(b.step_id, "b");
    t.ok(set("optional_wait_ms", json!(0)));
    t.complete(&b);
    assert_eq!(
        t.events(),
        [
            "task_step_completed b",
            "task_step_cancelled o",
            "task_step_cancelled p",
            "task_completed"
        ]
    );
    assert_eq!(t.actors(), ["ant", "system", "system", "system"]);
}

/// POL-04, TERM-04: it does not complete while any Step is held, optional ones included.
#[test]
fn an_automatic_task_waits_for_optional_steps_at_work() {
    let mut t = once("a o?");
    let (a, o) = (t.grant("ant", POOL).unwrap(), t.grant("bee", POOL).unwrap());
    t.complete(&a);
    assert_eq!(t.task_status(), TaskStatus::Running);
    t.fail(&o, "broken");
    assert_eq!(t.task_status(), TaskStatus::Completed);
}

/// POL-04, TERM-10, TERM-11: nor while facts are open; it does in the commit that settles them.
#[test]
fn an_automatic_task_waits_for_its_facts() {
    let open = Acceptance {
        id: "ok".into(),
        text: None,
        reference: None,
        state: AcceptanceState::Unknown,
    };
    let given = CreateTask { acceptance: vec![open], ..create_input("a") };
    let mut t = Fixture::create(given, Policy::Auto);
    let a = t.grant("ant", POOL).unwrap();
    let artifact = json!({"artifact_id": "x", "name": "x", "kind": "text", "state": "pending"});
    let remote = RemoteRef { remote_task_id: "r".into(), reconciled: true, ..RemoteRef::default() };
    t.ok_as(
        &a.caller(),
        Command::TaskUpdateStep(StepReport {
            status: Some(Completed),
            artifacts: vec![serde_json::from_value(artifact.clone()).unwrap()],
            remote: Some(remote),
            ..a.says()
        }),
    );
    assert_eq!(t.task_status(), TaskStatus::Running);
    t.ok(set("acceptance", json!([{"id": "ok", "state": "met"}])));
    assert_eq!(t.task_status(), TaskStatus::Running);
    let mut there = artifact;
    there["state"] = json!("available");
    t.ok(Command::AppendTaskProgress(AppendProgress {
        artifacts: vec![serde_json::from_value(there).unwrap()],
        ..AppendProgress::default()
    }));
    assert_eq!(t.events(), ["task_progress", "task_completed"]);
}

/// TASK-21, P14: without a required Step it completes when every Step is settled.
#[test]
fn a_task_of_optional_steps_completes_when_all_are_settled() {
    let mut t = once("a? b? c?");
    assert!(t.task.is_completeable(), "by TASK-19");
    let a = t.grant("ant", POOL).unwrap();
    t.complete(&a);
    let b = t.grant("ant", POOL).unwrap();
    t.fail(&b, "broken");
    assert_eq!(t.task_status(), TaskStatus::Running);
    t.write("c", Cancelled);
    assert_eq!(t.events(), ["task_step_cancelled c", "task_completed"]);
}

/// POL-05, TASK-17: a required Step that failed for good fails the Task, with a code by its code.
#[test]
fn a_final_failure_fails_the_task_with_its_code() {
    for (code, task_code) in [
        ("broken", "step_failed"),
        ("rejected", "rejected"),
        ("timed_out", "timed_out"),
        ("lost", "lost"),
    ] {
        let mut t = once("a b");
        let a = t.grant("ant", POOL).unwrap();
        t.fail(&a, code);
        assert_eq!(t.events(), ["task_step_failed a", "task_step_failed b", "task_failed"]);
        assert_eq!(t.task_code(), task_code);
        let details = t.task.head().status_reason.as_ref().unwrap().details.clone().unwrap();
        assert_eq!(details["step_id"], "a");
        assert_eq!(t.actors(), ["ant", "system", "system"]);
    }
}

/// POL-05: so do time limits, a used-up loss budget, and Runs that end without a word.
#[test]
fn limits_and_losses_fail_the_task_too() {
    let mut t = once("a");
    let a = t.grant("ant", POOL).unwrap();
    t.lose(&a);
    assert_eq!((t.task_status(), t.task_code()), (TaskStatus::Failed, "lost"));

    let mut t = once("a");
    let a = t.grant("ant", POOL).unwrap();
    t.end(&a, RunOutcome::Finished);
    assert_eq!((t.task_status(), t.task_code()), (TaskStatus::Failed, "step_failed"));

    let mut t = once("a");
    let a = t.grant("ant", POOL).unwrap();
    t.end(&a, RunOutcome::TimedOut);
    assert_eq!((t.task_status(), t.task_code()), (TaskStatus::Failed, "timed_out"));

    let limit = json!({"max_attempts": 1, "schedule_to_start_ms": 100});
    let mut t = with_policy("a", limit, Policy::Auto);
    t.due_at(t.now + 100);
    assert_eq!((t.task_status(), t.task_code()), (TaskStatus::Failed, "timed_out"));

    let limit = json!({"max_attempts": 1, "start_to_close_ms": 100});
    let mut t = with_policy("a", limit, Policy::Auto);
    t.grant("ant", POOL).unwrap();
    t.due_at(t.now + 100);
    assert_eq!((t.task_status(), t.task_code()), (TaskStatus::Failed, "timed_out"));
}

/// POL-05: an optional Step, a cancelled Run and a failure written by an orchestrator fail nothing.
#[test]
fn some_failures_wait_for_the_orchestrator() {
    let mut t = once("a b?");
    let (a, b) = (t.grant("ant", POOL).unwrap(), t.grant("bee", POOL).unwrap());
    t.fail(&b, "broken");
    assert_eq!(t.task_status(), TaskStatus::Running);
    t.stop(&a);
    assert_eq!(t.statuses("a b"), "a:failed b:failed");
    assert_eq!(t.task_status(), TaskStatus::Running);
    t.write("a", Pending);
    t.write("a", Failed);
    assert_eq!(t.task_status(), TaskStatus::Running, "S21");
    t.write("a", Pending);
    let a = t.grant("ant", POOL).unwrap();
    t.write("a", Failed);
    assert_eq!(t.task_status(), TaskStatus::Running, "S22");
    assert_eq!(t.attempt_of(&a).outcome.unwrap().as_str(), "failed");
}

/// POL-05, RETRY-04: a failure that is tried again fails nothing.
#[test]
fn a_failure_that_is_retried_fails_nothing() {
    let mut t = with_policy("a b<-a", json!({"max_attempts": 2}), Policy::Auto);
    let a = t.grant("ant", POOL).unwrap();
    t.fail(&a, "broken");
    assert_eq!(t.events(), ["task_step_failed a", "task_step_reopened a"]);
    assert_eq!(t.task_status(), TaskStatus::Running);
    t.due_at(t.task.next_due().unwrap());
    let a = t.grant("ant", POOL).unwrap();
    t.fail(&a, "broken");
    assert_eq!(t.task_status(), TaskStatus::Failed);
}

/// POL-06, P07: a required Step that is cancelled fails the Task.
#[test]
fn a_cancelled_required_step_fails_the_task() {
    let mut t = once("a b");
    t.write("b", Cancelled);
    assert_eq!(t.events(), ["task_step_cancelled b", "task_step_failed a", "task_failed"]);
    assert_eq!(t.task_code(), "required_step_cancelled");
    let mut t = once("a b");
    let a = t.grant("ant", POOL).unwrap();
    t.report(&a, Cancelled);
    assert_eq!(t.task_code(), "required_step_cancelled", "by its holder too");
}

/// POL-06, P26: so does one that can never be ready, directly or through others, at once and
/// without waiting for other Steps; held ones are asked to stop.
#[test]
fn a_required_step_that_can_never_be_ready_fails_the_task() {
    for end in ["fail", "cancel"] {
        let mut t = once("a? m?<-a z<-m x");
        t.ok(set("on_failure", json!("stop")));
        let a = t.grant("ant", POOL).unwrap();
        let x = t.grant("bee", POOL).unwrap();
        assert_eq!(x.step_id, "x");
        if end == "fail" {
            t.fail(&a, "broken");
        } else {
            t.report(&a, Cancelled);
        }
        assert_eq!(t.events()[1], "task_cancel_requested", "{:?}", t.events());
        assert_eq!(t.payload("task_cancel_requested")["reason"]["code"], "unreachable_step");
        t.complete(&x);
        assert_eq!((t.task_status(), t.task_code()), (TaskStatus::Failed, "unreachable_step"));
    }
}

/// POL-06: a dependency that an orchestrator failed dooms nobody: it may be reopened.
#[test]
fn a_dependency_failed_by_the_orchestrator_dooms_nobody() {
    let mut t = once("a? b<-a");
    t.write("a", Failed);
    assert_eq!(t.task_status(), TaskStatus::Running);
    t.write("a", Pending);
    let a = t.grant("ant", POOL).unwrap();
    t.complete(&a);
    assert_eq!(t.status("b"), Ready);
}

/// POL-07: blocked Steps are not failed.
#[test]
fn a_blocked_step_waits_for_the_orchestrator() {
    let mut t = once("a b<-a");
    let a = t.grant("ant", POOL).unwrap();
    t.report(&a, Blocked);
    assert_eq!((t.task_status(), t.status("a")), (TaskStatus::Running, Blocked));
}

/// POL-11: a deadline that counts from the creation is kept as a time, and nothing is left to doubt.
#[test]
fn a_deadline_may_count_from_the_creation() {
    let create = |constraints: serde_json::Value| CreateTask {
        constraints: constraints.as_object().cloned(),
        ..create_input("a")
    };
    let t = Fixture::create(create(json!({"deadline_ms": 1_000, "cost": 1})), Policy::Auto);
    let spec = &t.task.head().spec;
    let kept = json!({"deadline_at": START + 1_000, "cost": 1});
    assert_eq!(spec.constraints, kept.as_object().cloned());
    assert_eq!(t.task.next_due(), Some(START + 1_000));

    let both = json!({"deadline_ms": 1_000, "deadline_at": START});
    for wrong in [both, json!({"deadline_ms": -1}), json!({"deadline_ms": "1h"})] {
        let no = Fixture::try_create(create(wrong), Policy::Auto, Limits::default()).unwrap_err();
        assert_eq!(no.code, Code::ValidationError);
        assert_eq!(no.details["field"], "constraints.deadline_ms");
    }

    let mut t = Fixture::auto("a");
    t.refuse(set("constraints", json!({"deadline_ms": 1_000})), Code::ValidationError);
}

fn with_deadline(notation: &str, kind: Policy, at: i64, draft: bool) -> Fixture {
    let constraints = serde_json::from_value(json!({ "deadline_at": at })).unwrap();
    let given =
        CreateTask { constraints: Some(constraints), draft: Some(draft), ..create_input(notation) };
    Fixture::create(given, kind)
}

/// POL-08, TASK-15: the deadline fails an automatic Task in every live status but draft and, unless it
/// is a hard one, paused; and no manual one.
#[test]
fn the_deadline_fails_an_automatic_task_alone() {
    let at = START + 1_000;
    for stop in [None, Some(block_task())] {
        let mut t = with_deadline("a", Policy::Auto, at, false);
        stop.into_iter().for_each(|stop| drop(t.ok(stop)));
        assert_eq!(t.task.next_due(), Some(at));
        assert!(t.due_at(at - 1).commit.is_none());
        t.due_at(at);
        assert_eq!((t.task_status(), t.task_code()), (TaskStatus::Failed, "timed_out"));
        assert_eq!(*t.actors().last().unwrap(), "system");
    }
    let mut t = with_deadline("a", Policy::Manual, at, false);
    assert_eq!(t.task.next_due(), None);
    assert!(t.due_at(at + 1).commit.is_none());
    let mut t = with_deadline("a", Policy::Auto, at, true);
    assert_eq!(t.task.next_due(), None);
    assert!(t.due_at(at + 1).commit.is_none());
    t.ok(Command::SubmitTask(Default::default()));
    assert!(t.task.next_due().unwrap() <= t.now);
}

/// POL-08, T10: with Steps held, the deadline asks them to stop first, once.
#[test]
fn the_deadline_asks_holders_to_stop_first() {
    let at = START + 1_000;
    let mut t = with_deadline("a", Policy::Auto, at, false);
    t.grant("ant", POOL).unwrap();
    t.due_at(at);
    assert_eq!(t.events(), ["task_cancel_requested"]);
    assert_eq!(t.task.next_due(), Some(at + 10_000));
    t.due_at(at + 10_000);
    assert_eq!((t.task_status(), t.task_code()), (TaskStatus::Failed, "timed_out"));
}

/// POL-04 to POL-06 rest while the Task is blocked or paused, and are judged again on reopen and
/// resume.
#[test]
fn policies_rest_while_the_task_stands_still() {
    let cases = [
        (block_task(), Command::ReopenTask(Default::default())),
        (Command::PauseTask(Default::default()), Command::ResumeTask(Default::default())),
    ];
    for (stop, go) in cases {
        let mut t = once("a");
        let a = t.grant("ant", POOL).unwrap();
        t.ok(stop.clone());
        let mut failing = t.clone();
        t.complete(&a);
        assert!(!t.task.is_terminal());
        t.ok(go.clone());
        assert_eq!(t.task_status(), TaskStatus::Completed);
        failing.fail(&a, "broken");
        assert!(!failing.task.is_terminal());
        failing.ok(go);
        assert_eq!(
            (failing.task_status(), failing.task_code()),
            (TaskStatus::Failed, "step_failed")
        );
    }
}

/// POL-09: orchestrator commands keep working in an automatic Task.
#[test]
fn an_orchestrator_still_steers_an_automatic_task() {
    let mut t = Fixture::auto("a b");
    let held = t.claim("b");
    t.write("a", Completed);
    t.ok(block_task());
    t.ok(Command::ReopenTask(Default::default()));
    t.complete(&held);
    assert_eq!(t.task_status(), TaskStatus::Completed);
}

/// POL-10: a policy may change while the Task is live; it takes effect with the next evaluation.
#[test]
fn a_changed_policy_acts_from_the_next_evaluation() {
    let mut t = Fixture::manual("a");
    t.do_step("a");
    t.ok(set("completion", json!("auto")));
    assert_eq!(t.events(), ["task_updated", "task_completed"]);

    let mut t = Fixture::manual("a");
    let a = t.claim("a");
    t.fail(&a, "broken");
    t.ok(set("completion", json!("auto")));
    assert_eq!((t.task_status(), t.task_code()), (TaskStatus::Failed, "step_failed"));

    let mut t = Fixture::auto("a");
    t.ok(set("dispatch", json!("manual")));
    assert!(t.grant("ant", POOL).is_none());
    t.ok(set("completion", json!("manual")));
    t.do_step("a");
    assert_eq!(t.task_status(), TaskStatus::Running);
}

/// READY-06: own events, retries, policy events, readiness, `task_running`, in this order; the
/// same history gives the same events.
#[test]
fn follow_ups_come_in_one_fixed_order() {
    let mut t = with_policy("a b c<-b", json!({"max_attempts": 3}), Policy::Auto);
    let a = t.grant("ant", POOL).unwrap();
    t.ok(block_task());
    t.ok(Command::ReopenTask(Default::default()));
    assert_eq!(t.events(), ["task_reopened", "task_running"]);
    t.fail(&a, "broken");
    assert_eq!(t.events(), ["task_step_failed a", "task_step_reopened a"]);
    let b = t.grant("bee", POOL).unwrap();
    t.now += 60_000;
    t.complete(&b);
    assert_eq!(
        t.events(),
        ["task_step_completed b", "task_step_ready a", "task_step_ready c"],
        "a backoff that is over ends with whatever comes first"
    );
    let first = Fixture::auto("a b<-a c");
    assert_eq!(
        names(&first.log[0]),
        ["task_created", "task_step_ready a", "task_step_ready c", "task_running"]
    );
    let mut steps = dag("a");
    steps[0] = StepInput { required: Some(false), ..steps[0].clone() };
    let given = CreateTask { steps, ..create_input("a") };
    assert_eq!(Fixture::create(given, Policy::Auto).task_status(), TaskStatus::Running);
}
