//! POL-06, TASK-21: how long a Task with `completion=auto` waits for optional Steps.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common;
use common::*;
use serde_json::Value as Json;
use tenure_core::Command;
use tenure_core::command::Why;
use tenure_core::command::create::CreateTask;
use tenure_core::record::Acceptance;
use tenure_core::status::{AcceptanceState, Policy, StepStatus, TaskStatus};
use tenure_core::view::{Known, TaskSummary};

use StepStatus::{Blocked, Cancelled, Completed, Pending, Ready};

/// An hour, which an automatic Task waits if it does not say.
const HOUR: i64 = 3_600_000;

/// An automatic Task in which every failure is final.
fn task(notation: &str) -> Fixture {
    with_policy(notation, json!({"max_attempts": 1}), Policy::Auto)
}

fn set(field: &str, value: Json) -> Command {
    patch(json!([{"op": "update_task", field: value}]))
}

/// Does the next ready Step, which must be this one.
fn next(t: &mut Fixture, step: &str) {
    let held = t.grant("ant", POOL).expect("a step is ready");
    assert_eq!(held.step_id, step);
    t.complete(&held);
}

/// POL-06, T09: an optional Step behind a required one runs, and the Task completes after it.
#[test]
fn an_optional_step_behind_a_required_one_runs() {
    let mut t = task("deploy notify?<-deploy");
    next(&mut t, "deploy");
    assert_eq!(t.events(), ["task_step_completed deploy", "task_step_ready notify"]);
    next(&mut t, "notify");
    assert_eq!(t.events(), ["task_step_completed notify", "task_completed"]);
    // By rules 1 the required Step ends the Task, and the cancellation has no reason.
    let mut t = Fixture::by_first_rules(create_input("deploy notify?<-deploy"), Policy::Auto);
    next(&mut t, "deploy");
    assert_eq!(
        t.events(),
        ["task_step_completed deploy", "task_step_cancelled notify", "task_completed"]
    );
    assert_eq!(t.payload("task_step_cancelled").get("reason"), None);
}

/// POL-06, S17: failed and dead ones are not waited for; what is left is cancelled in the completing
/// commit, with a reason.
#[test]
fn what_can_never_run_is_not_waited_for() {
    let mut t = task("a o? p?<-o q?<-p,a");
    let (a, o) = (t.grant("ant", POOL).unwrap(), t.grant("bee", POOL).unwrap());
    t.complete(&a);
    assert_eq!(t.task_status(), TaskStatus::Running, "o runs");
    t.fail(&o, "broken");
    assert_eq!(
        t.events(),
        ["task_step_failed o", "task_step_cancelled p", "task_step_cancelled q", "task_completed"]
    );
    assert_eq!((t.code_of("p"), t.code_of("q")), ("unreachable_step", "unreachable_step"));
}

/// POL-06: nor are blocked ones, and those that wait for them.
#[test]
fn blocked_optional_steps_are_not_waited_for() {
    let mut t = task("a o? p?<-o");
    let (a, o) = (t.grant("ant", POOL).unwrap(), t.grant("bee", POOL).unwrap());
    t.report(&o, Blocked);
    t.complete(&a);
    assert_eq!(t.events(), ["task_step_completed a", "task_step_cancelled p", "task_completed"]);
    assert_eq!((t.status("o"), t.code_of("p")), (Blocked, "not_needed"));
}

/// POL-06: one in backoff is waited for.
#[test]
fn an_optional_step_in_backoff_is_waited_for() {
    let policy = json!({"max_attempts": 2, "backoff": {"initial_ms": 100, "jitter": 0.0}});
    let mut t = with_policy("a o?", policy, Policy::Auto);
    let (a, o) = (t.grant("ant", POOL).unwrap(), t.grant("bee", POOL).unwrap());
    t.fail(&o, "broken");
    t.complete(&a);
    assert_eq!((t.status("o"), t.task_status()), (Pending, TaskStatus::Running));
    t.due_at(t.now + 200);
    next(&mut t, "o");
    assert_eq!(t.task_status(), TaskStatus::Completed);
}

/// POL-06: with dispatch=manual nobody waits for a Step that is only ready, but for one that runs or is
/// in backoff.
#[test]
fn a_task_that_gives_nothing_out_waits_only_for_what_was_begun() {
    let manual = |notation: &str| {
        let dispatch = Some(Policy::Manual);
        Fixture::create(CreateTask { dispatch, ..create_input(notation) }, Policy::Auto)
    };
    let mut t = manual("a o? p?<-a");
    t.do_step("a");
    assert_eq!(
        t.events(),
        [
            "task_step_completed a",
            "task_step_cancelled o",
            "task_step_cancelled p",
            "task_completed"
        ]
    );
    assert_eq!((t.code_of("o"), t.code_of("p")), ("not_needed", "not_needed"));
    let mut t = manual("a o?");
    let o = t.claim("o");
    t.do_step("a");
    assert_eq!(t.task_status(), TaskStatus::Running);
    t.fail(&o, "broken");
    assert_eq!(
        (t.status("o"), t.task_status()),
        (Pending, TaskStatus::Running),
        "it is in backoff"
    );
    t.due_at(t.now + 1_001);
    assert_eq!(
        t.task_status(),
        TaskStatus::Completed,
        "the backoff is over, and nobody gives it out"
    );
}

/// POL-06: `optional_wait_ms`, an hour by default, ends the waiting for Steps that are not held. It
/// counts from the last completion of a required Step.
#[test]
fn the_waiting_for_optional_steps_has_an_end() {
    for (given, ms) in [(None, HOUR), (Some(500), 500), (Some(0), 0)] {
        let input = CreateTask { optional_wait_ms: given, ..create_input("a b o?@gpu p?<-o") };
        let mut t = Fixture::create(input, Policy::Auto);
        next(&mut t, "a");
        t.wait_ms(100);
        next(&mut t, "b");
        let end = t.now + ms;
        if ms > 0 {
            assert_eq!(t.task.next_due(), Some(end));
            t.restart();
            assert_eq!(t.task.next_due(), Some(end));
            t.due_at(end);
        }
        assert_eq!(t.task_status(), TaskStatus::Completed);
        assert_eq!((t.code_of("o"), t.code_of("p")), ("not_needed", "not_needed"));
        assert_eq!(t.actors().last(), Some(&"system"));
    }
}

/// POL-06: a Step that is held has all the time that it needs; the end counts as soon as it is not.
#[test]
fn a_held_optional_step_is_waited_for_without_end() {
    let mut t = task("a o? p?<-o");
    t.ok(set("optional_wait_ms", json!(500)));
    let (a, o) = (t.grant("ant", POOL).unwrap(), t.grant("bee", POOL).unwrap());
    t.complete(&a);
    assert_eq!(t.task.next_due(), None, "nothing is due while o is held");
    t.wait_ms(2 * HOUR);
    t.complete(&o);
    assert_eq!(t.events(), ["task_step_completed o", "task_step_cancelled p", "task_completed"]);
}

/// POL-04, POL-06: the waiting rests while the Task is paused, and a patch moves its end.
#[test]
fn the_waiting_rests_and_can_be_changed() {
    let mut t = task("a o?@gpu");
    next(&mut t, "a");
    t.wait_ms(HOUR / 2);
    t.ok(Command::PauseTask(Why::default()));
    assert_eq!(t.task.next_due(), None);
    t.wait_ms(HOUR);
    t.ok(Command::ResumeTask(Why::default()));
    assert_eq!(t.task.next_due(), Some(t.now + HOUR), "as the wait of a ready Step does (S15)");
    let end = t.now + 1_000;
    t.ok(set("optional_wait_ms", json!(1_000)));
    assert_eq!(t.task.next_due(), Some(end));
    t.ok(set("optional_wait_ms", Json::Null));
    assert_eq!(t.task.next_due(), Some(end - 1_000 + HOUR));
}

/// POL-06: the end of the waiting completes nothing that may not complete; the Task then completes in
/// the commit that settles its facts.
#[test]
fn the_end_of_the_waiting_waits_for_acceptance() {
    let state = AcceptanceState::Unknown;
    let open = Acceptance { id: "ok".into(), text: None, reference: None, state };
    let given = CreateTask {
        acceptance: vec![open],
        optional_wait_ms: Some(50),
        ..create_input("a o?@gpu")
    };
    let mut t = Fixture::create(given, Policy::Auto);
    next(&mut t, "a");
    assert_eq!(t.task.next_due(), None);
    t.wait_ms(100);
    t.ok(set("acceptance", json!([{"id": "ok", "state": "met"}])));
    assert_eq!(t.events(), ["task_updated", "task_step_cancelled o", "task_completed"]);
}

/// TASK-21, POL-06: a Task whose Steps are all optional ends in the same way. (`a` fails, `b` needs it:
/// nothing can run, and the Task had not ended.)
#[test]
fn a_task_of_optional_steps_ends_when_nothing_can_run() {
    let mut t = task("a? b?<-a c?");
    let (a, c) = (t.grant("ant", POOL).unwrap(), t.grant("bee", POOL).unwrap());
    t.fail(&a, "broken");
    assert_eq!(t.task_status(), TaskStatus::Running, "c runs");
    t.complete(&c);
    assert_eq!(t.events(), ["task_step_completed c", "task_step_cancelled b", "task_completed"]);
    assert_eq!(t.code_of("b"), "unreachable_step");

    // In it blocked ones are waited for, without end.
    let mut t = task("a? b?<-a c?");
    let (a, c) = (t.grant("ant", POOL).unwrap(), t.grant("bee", POOL).unwrap());
    t.report(&a, Blocked);
    t.complete(&c);
    assert_eq!((t.task_status(), t.task.next_due()), (TaskStatus::Running, None));
    t.ok(patch(json!([{"op": "reopen_step", "step_id": "a"}])));
    next(&mut t, "a");
    next(&mut t, "b");
    assert_eq!(t.task_status(), TaskStatus::Completed);

    // By rules 1 a Step that can never run keeps the Task from its end.
    let policy = serde_json::from_value(json!({"max_attempts": 1})).unwrap();
    let given = CreateTask { retry_policy: policy, ..create_input("a? b?<-a") };
    let mut t = Fixture::by_first_rules(given, Policy::Auto);
    let a = t.grant("ant", POOL).unwrap();
    t.fail(&a, "broken");
    assert_eq!((t.status("b"), t.task_status()), (Pending, TaskStatus::Running));
}

/// POL-06, TERM-05: with completion=manual the orchestrator completes the Task when it likes.
#[test]
fn a_manual_task_waits_for_no_optional_step() {
    let mut t = Fixture::manual("a o?");
    t.do_step("a");
    t.ok(complete_task());
    assert_eq!(t.status("o"), Cancelled);
    assert_eq!(t.payload("task_step_cancelled").get("reason"), None, "only auto says why");
}

/// POL-06, N16: meanwhile the Task is not awaiting a command, and says what it waits for.
#[test]
fn a_task_that_waits_says_so() {
    let mut t = task("a o?@gpu");
    next(&mut t, "a");
    let end = t.now + HOUR;
    let known = Known::new(t.now, &|_| None);
    let summary = TaskSummary::of(&t.task.durable(), &known);
    assert_eq!(summary.status.as_str(), "queued");
    let reason = summary.status_reason.unwrap();
    assert_eq!(reason.code, "waits_for_optional");
    assert_eq!(reason.details.unwrap()["until"], end);
    assert_eq!((t.statuses("a o"), t.status("a")), ("a:completed o:ready".into(), Completed));
    assert_eq!(t.status("o"), Ready);
}

/// POL-06, POL-07: a blocked required Step that can never be ready counts as dead when it is reopened,
/// not before, and `explain` says so.
#[test]
fn a_blocked_step_that_waits_in_vain_counts_when_it_is_reopened() {
    let mut t = task("o? b<-o c");
    t.write("b", Blocked);
    let (o, c) = (t.grant("ant", POOL).unwrap(), t.grant("bee", POOL).unwrap());
    t.fail(&o, "broken");
    t.complete(&c);
    assert_eq!((t.status("b"), t.task_status()), (Blocked, TaskStatus::Running));
    let known = Known::new(t.now, &|_| None);
    let about_b = tenure_core::view::explain::ForWhom::default();
    let why = tenure_core::view::explain::explain(&t.task.durable(), &id("b"), about_b, &known);
    let remedies = why.unwrap().reasons[0].remedies.clone();
    let reopening = remedies.iter().find(|remedy| remedy.operation == "reopen_step");
    assert!(reopening.is_some_and(|remedy| remedy.ends_task), "{remedies:?}");
    t.ok(patch(json!([{"op": "reopen_step", "step_id": "b"}])));
    assert_eq!((t.task_status(), t.task_code()), (TaskStatus::Failed, "unreachable_step"));
}
