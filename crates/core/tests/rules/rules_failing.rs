//! POL-05: how a failing Task with `completion=auto` ends.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common;
use common::*;
use serde_json::Value as Json;
use tenure_core::command::create::CreateTask;
use tenure_core::command::{Dispatch, RetrySteps, Why};
use tenure_core::eligibility::Obstacle;
use tenure_core::status::{OnFailure, Policy, StepStatus, TaskStatus};
use tenure_core::view::Known;
use tenure_core::view::explain::{ForWhom, explain};
use tenure_core::{Code, Command};

use StepStatus::{Blocked, Failed, Pending, Ready};

/// An automatic Task in which every failure is final.
fn task(notation: &str, on_failure: Option<OnFailure>) -> Fixture {
    let policy = json!({"max_attempts": 1, "max_lost": 1});
    let retry_policy = Some(serde_json::from_value(policy).unwrap());
    let given = CreateTask { on_failure, retry_policy, ..create_input(notation) };
    Fixture::create(given, Policy::Auto)
}

/// All ready Steps, each with a worker of its own.
fn grant_all(t: &mut Fixture) -> Vec<Held> {
    (0..).map_while(|n| t.grant(&format!("w{n}"), POOL)).collect()
}

fn set(field: &str, value: Json) -> Command {
    patch(json!([{"op": "update_task", field: value}]))
}

fn reopen(step: &str) -> Command {
    patch(json!([{"op": "reopen_step", "step_id": step}]))
}

/// POL-05: five independent Steps are not killed because a sixth failed: they run to their ends, and
/// the Task fails in the commit of the last one. That is the default.
#[test]
fn what_runs_when_a_step_fails_runs_to_its_end() {
    let mut t = task("a b c d e f g", None);
    let held: Vec<Held> = (0..6).map(|n| t.grant(&format!("w{n}"), POOL).unwrap()).collect();
    t.fail(&held[0], "broken");
    assert_eq!(t.events(), ["task_step_failed a"]);
    assert!(t.task.head().cancel_requested.is_none());
    for held in &held[1..5] {
        t.complete(held);
        assert_eq!(t.task_status(), TaskStatus::Running);
    }
    t.complete(&held[5]);
    assert_eq!(t.events(), ["task_step_completed f", "task_step_failed g", "task_failed"]);
    assert_eq!((t.task_code(), t.actors()), ("step_failed", vec!["w5", "system", "system"]));
    assert_eq!(t.statuses("a b f g"), "a:failed b:completed f:completed g:failed");
}

/// POL-05, TASK-12, DISP-04: a draining Task gives out nothing, by neither way, and says why.
#[test]
fn a_draining_task_gives_out_nothing() {
    let mut t = task("a b c<-b d", None);
    let (a, b) = (t.grant("ant", POOL).unwrap(), t.grant("bee", POOL).unwrap());
    let run = t.dispatch(POOL);
    t.fail(&a, "broken");
    assert_eq!(t.status("d"), Ready);
    assert!(t.grant("cat", POOL).is_none());
    assert_eq!((t.task.open_pools().count(), t.task.given_out_in(&pool_id(POOL)).count()), (0, 0));
    let claim = claim_command(run, "d");
    let no = t.refuse_as(&t.member("cat", run), claim, Code::TaskNotDispatchable);
    assert_eq!(
        (&no.details["reason"], &no.details["status"]),
        (&json!("task_failing"), &json!("running"))
    );
    let to_all = Command::DispatchWorker(Dispatch::to(pool_id(POOL)));
    let no = t.refuse(to_all, Code::TaskNotDispatchable);
    assert_eq!(no.details["reason"], "task_failing");
    t.complete(&b);
    assert_eq!(t.task_status(), TaskStatus::Failed);
}

/// POL-05, READY-05, S15: backoffs and the waits of ready Steps rest meanwhile; both go on when the
/// failed Step is reopened, the second from its beginning.
#[test]
fn waits_rest_while_a_task_drains() {
    let policy = json!({"schedule_to_start_ms": 1_000});
    let mut t = with_policy("a b r h", policy, Policy::Auto);
    let twice = json!({"max_attempts": 2, "backoff": {"initial_ms": 100, "jitter": 0.0}});
    let once = json!({"max_attempts": 1});
    for (step, own) in [("a", once), ("b", twice)] {
        t.ok(patch(
            json!([{"op": "update_step", "step_id": step, "fields": {"retry_policy": own}}]),
        ));
    }
    let held: Vec<Held> = (0..3).map(|n| t.grant(&format!("w{n}"), POOL).unwrap()).collect();
    t.fail(&held[1], "broken");
    assert_eq!(t.status("b"), Pending, "it waits for its second try");
    t.fail(&held[0], "broken");
    assert_eq!(t.statuses("a b r h"), "a:failed b:pending r:claimed h:ready");
    assert_eq!(t.task.next_due(), None, "neither the backoff of b nor the limit of h");
    t.wait_ms(5_000);
    t.ok(reopen("a"));
    let end = t.now + 1_000;
    assert_eq!(t.events()[1..], ["task_step_reopened a", "task_step_ready a", "task_step_ready b"]);
    assert_eq!(t.task.next_due(), Some(end), "h waits for a worker as if it were ready since now");
    t.check();
}

/// S15, RETRY-04: a failure that is retried at once holds nothing up: the wait of another Step for a worker goes on.
#[test]
fn a_failure_that_is_retried_restarts_no_wait() {
    let policy =
        json!({"schedule_to_start_ms": 1_000, "backoff": {"initial_ms": 100, "jitter": 0.0}});
    let mut t = with_policy("b h", policy, Policy::Auto);
    let due = t.task.next_due();
    let held = t.grant("w0", POOL).unwrap();
    t.wait_ms(500);
    t.fail(&held, "broken");
    assert_eq!(t.statuses("b h"), "b:pending h:ready");
    t.wait_ms(200);
    t.ok_as(&system(), Command::Due);
    assert_eq!(t.status("b"), Ready, "it may be tried again");
    assert_eq!(t.task.next_due(), due, "h has waited since the beginning");
}

/// POL-05: reopening the failed Step, or `retry_task`, ends the failing: the Task gives out Steps again.
#[test]
fn a_reopened_failure_saves_a_draining_task() {
    let again = RetrySteps { reason: reason("again", "again"), step_ids: None };
    for saves in [reopen("a"), Command::RetryTask(again)] {
        let mut t = task("a b c", None);
        let (a, b) = (t.grant("ant", POOL).unwrap(), t.grant("bee", POOL).unwrap());
        t.fail(&a, "broken");
        t.ok(saves);
        t.complete(&b);
        assert_eq!(t.task_status(), TaskStatus::Running);
        for held in grant_all(&mut t) {
            t.complete(&held);
        }
        assert_eq!(t.task_status(), TaskStatus::Completed);
    }
}

/// POL-05: `stop` stops what runs at once. It is the default of Tasks of rules 1, which may drain, too,
/// if they say so.
#[test]
fn a_task_may_stop_at_its_first_failure() {
    let retry_policy = Some(serde_json::from_value(json!({"max_attempts": 1})).unwrap());
    let given = CreateTask { retry_policy, ..create_input("a b") };
    let first = |on_failure| {
        Fixture::by_first_rules(CreateTask { on_failure, ..given.clone() }, Policy::Auto)
    };
    for (mut t, stops) in [
        (task("a b", Some(OnFailure::Stop)), true),
        (first(None), true),
        (first(Some(OnFailure::Drain)), false),
        (task("a b", None), false),
    ] {
        let (a, b) = (t.grant("ant", POOL).unwrap(), t.grant("bee", POOL).unwrap());
        t.fail(&a, "broken");
        assert_eq!(t.task.is_closing(), stops);
        t.complete(&b);
        assert_eq!(t.statuses("a b"), "a:failed b:completed");
        assert_eq!((t.task_status(), t.task_code()), (TaskStatus::Failed, "step_failed"));
    }
}

/// POL-05: with `finish` everything runs that can, backoffs included, and the Task fails in the commit
/// in which nothing can run any more.
#[test]
fn a_task_may_finish_what_can_run() {
    let mut t = task("a x<-a b c<-b r", Some(OnFailure::Finish));
    let own = json!({"max_attempts": 2, "backoff": {"initial_ms": 100, "jitter": 0.0}});
    t.ok(patch(json!([{"op": "update_step", "step_id": "r", "fields": {"retry_policy": own}}])));
    let held = grant_all(&mut t);
    let names: Vec<&str> = held.iter().map(|h| h.step_id.as_str()).collect();
    assert_eq!(names, ["a", "b", "r"]);
    t.fail(&held[0], "broken");
    t.fail(&held[2], "broken");
    t.complete(&held[1]);
    assert_eq!(t.events(), ["task_step_completed b", "task_step_ready c"]);
    let c = t.grant("cat", POOL).unwrap();
    t.complete(&c);
    assert_eq!(t.statuses("a x b c r"), "a:failed x:pending b:completed c:completed r:pending");
    assert_eq!(t.task_status(), TaskStatus::Running, "r is tried again");
    t.due_at(t.now + 200);
    let r = t.grant("rat", POOL).unwrap();
    t.complete(&r);
    assert_eq!(t.events(), ["task_step_completed r", "task_step_failed x", "task_failed"]);
    assert_eq!(t.task_code(), "step_failed");
}

/// POL-05: blocked Steps delay neither kind of end, and with `finish` nor do Steps that wait for them.
#[test]
fn blocked_steps_delay_no_failure() {
    for on_failure in [OnFailure::Drain, OnFailure::Finish] {
        let mut t = task("a b c<-b d<-c", Some(on_failure));
        let (a, b) = (t.grant("ant", POOL).unwrap(), t.grant("bee", POOL).unwrap());
        t.report(&b, Blocked);
        t.fail(&a, "broken");
        assert_eq!((t.task_status(), t.task_code()), (TaskStatus::Failed, "step_failed"));
        assert_eq!(t.statuses("a b c d"), "a:failed b:failed c:failed d:failed");
    }
    // Reopened, a blocked Step may run again, and so may those behind it.
    let mut t = task("a b c<-b", Some(OnFailure::Finish));
    let (a, b) = (t.grant("ant", POOL).unwrap(), t.grant("bee", POOL).unwrap());
    t.report(&b, Blocked);
    t.ok(reopen("b"));
    t.fail(&a, "broken");
    assert_eq!(t.task_status(), TaskStatus::Running);
    let b = t.grant("bee", POOL).unwrap();
    t.complete(&b);
    let c = t.grant("bee", POOL).unwrap();
    t.complete(&c);
    assert_eq!(t.task_status(), TaskStatus::Failed);
}

/// POL-05, TERM-08: cancel and fail act at once, whatever the Task does when it is failing.
#[test]
fn cancel_and_fail_act_at_once() {
    for (close, code) in [(cancel_task(), "task_cancelled"), (fail_task(), "task_failed")] {
        for on_failure in [OnFailure::Drain, OnFailure::Finish] {
            let mut t = task("a b", Some(on_failure));
            let (a, b) = (t.grant("ant", POOL).unwrap(), t.grant("bee", POOL).unwrap());
            t.fail(&a, "broken");
            t.ok(close.clone());
            assert!(t.task.is_closing());
            t.complete(&b);
            assert_eq!(t.task_code(), code);
        }
    }
}

/// POL-05, POL-06: of several standing failures the first in the log is the Task's reason.
#[test]
fn the_first_standing_failure_is_the_reason() {
    let mut t = task("b<-a a c d", None);
    let held = grant_all(&mut t);
    let [a, c, d] = &held[..] else { panic!("{held:?}") };
    t.fail(c, "rejected");
    t.fail(a, "broken");
    t.complete(d);
    assert_eq!(t.task_code(), "rejected", "c failed first, though a comes before it");

    // What no longer stands does not count.
    let mut t = task("b<-a a c d", None);
    let held = grant_all(&mut t);
    let [a, c, d] = &held[..] else { panic!("{held:?}") };
    t.fail(c, "rejected");
    t.fail(a, "broken");
    t.ok(reopen("c"));
    t.complete(d);
    assert_eq!(t.task_code(), "step_failed");
    let reason = t.task.head().status_reason.clone().unwrap();
    assert_eq!(reason.details.as_ref().unwrap()["step_id"], "a", "not b, which a took with it");

    // A Step that was cancelled before counts before one that fails later.
    let mut t = task("a b c", Some(OnFailure::Finish));
    let a = t.grant("ant", POOL).unwrap();
    t.ok(patch(json!([{"op": "cancel_step", "step_id": "c"}])));
    t.fail(&a, "broken");
    let b = t.grant("bee", POOL).unwrap();
    t.complete(&b);
    assert_eq!(t.task_code(), "required_step_cancelled");
}

/// POL-05, POL-08: also at a deadline; without a failure the reason is `timed_out`.
#[test]
fn a_failing_task_fails_with_its_failure_at_the_deadline() {
    for (fails, code) in [(true, "step_failed"), (false, "timed_out")] {
        let constraints = json!({"deadline_at": START + 5_000});
        let mut t = task("a b", None);
        t.ok(set("constraints", constraints));
        let a = t.grant("ant", POOL).unwrap();
        let b = t.grant("bee", POOL).unwrap();
        if fails {
            t.fail(&a, "broken");
        }
        assert_eq!(t.task.next_due(), Some(START + 5_000));
        t.due_at(START + 5_000);
        t.complete(&b);
        if !fails {
            t.complete(&a);
        }
        assert_eq!(t.task_code(), code);
    }
}

/// POL-05, POL-10: a patch changes it while the Task lives, and null gives the default back.
#[test]
fn a_patch_may_change_what_a_failing_task_does() {
    let mut t = task("a b c", Some(OnFailure::Finish));
    let held = grant_all(&mut t);
    t.fail(&held[0], "broken");
    t.ok(set("on_failure", json!("stop")));
    assert_eq!(t.events(), ["task_updated", "task_cancel_requested"]);

    let mut t = task("a b c", Some(OnFailure::Finish));
    let (a, b) = (t.grant("ant", POOL).unwrap(), t.grant("bee", POOL).unwrap());
    t.fail(&a, "broken");
    t.complete(&b);
    t.ok(set("on_failure", Json::Null));
    assert_eq!(t.events(), ["task_updated", "task_step_failed c", "task_failed"]);
}

/// POL-04, POL-05: all this rests while the Task is paused or blocked, and is judged again after it.
#[test]
fn a_failing_task_rests_while_it_is_paused() {
    let mut t = task("a b", None);
    let (a, b) = (t.grant("ant", POOL).unwrap(), t.grant("bee", POOL).unwrap());
    t.fail(&a, "broken");
    t.ok(Command::PauseTask(Why::default()));
    t.complete(&b);
    assert_eq!(t.task_status(), TaskStatus::Paused);
    t.ok(Command::ResumeTask(Why::default()));
    assert_eq!(t.task_status(), TaskStatus::Failed);
}

/// POL-05: with `completion=manual` nothing of this happens.
#[test]
fn a_manual_task_is_never_failing() {
    let given = CreateTask { on_failure: Some(OnFailure::Drain), ..create_input("a b") };
    let mut t = Fixture::create(given, Policy::Manual);
    t.claim("a");
    let b = t.claim("b");
    t.fail(&b, "broken");
    t.dispatch(POOL);
    assert_eq!((t.status("b"), t.task_status()), (Failed, TaskStatus::Running));
}

/// POL-05, VIEW-16: `explain` says that the Task is failing, because of what, and what helps.
#[test]
fn explain_says_that_a_task_is_failing() {
    let mut t = task("a b c d<-c", None);
    let (a, b) = (t.grant("ant", POOL).unwrap(), t.grant("bee", POOL).unwrap());
    t.fail(&a, "broken");
    let view = t.task.durable();
    let known = Known::new(t.now, &|_| None);
    for step in ["c", "d"] {
        let why = explain(&view, &id(step), ForWhom::default(), &known).unwrap();
        assert_eq!(why.headline, Obstacle::TaskFailing);
        assert_eq!(
            why.text,
            "the task is failing and gives out no more steps: step_failed: a (step_failed)"
        );
        let remedies = serde_json::to_value(&why.reasons[0].remedies).unwrap();
        assert_eq!(remedies, json!([{"operation": "reopen_step", "step_id": "a"}]));
    }
    let waits = t.task.waits();
    let waits: Vec<_> = waits.iter().filter(|(_, count)| *count > 0).collect();
    assert_eq!(waits, [(Obstacle::TaskFailing, 2)]);
    t.complete(&b);
}
