//! POL-12: how long a Step may be blocked, may take altogether, and may take to stop.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common;
use common::*;
use serde_json::Value as Json;
use tenure_core::command::create::CreateTask;
use tenure_core::command::{Close, RunOutcome, StepReport, Why};
use tenure_core::record::RetryPolicy;
use tenure_core::status::{EndReason, Intent, Outcome, Policy, StepStatus, TaskStatus};
use tenure_core::{Code, Command, Limits};

use StepStatus::{Blocked, Completed, Failed, Pending, Ready, Running};

fn reopen(step: &str) -> Command {
    patch(json!([{"op": "reopen_step", "step_id": step}]))
}

fn update_task(policy: Json) -> Command {
    patch(json!([{"op": "update_task", "retry_policy": policy}]))
}

/// Lets the Task rest for a time, in the named way.
fn rest(t: &mut Fixture, how: &str, ms: i64) {
    let (begin, end) = match how {
        "paused" => (Command::PauseTask(Why::default()), Command::ResumeTask(Why::default())),
        _ => (block_task(), Command::ReopenTask(Why::default())),
    };
    t.ok(begin);
    assert_eq!(t.task.next_due(), None, "nothing is due while it is {how}");
    t.wait_ms(ms - 1);
    t.ok(end);
}

/// POL-12, S27: a Step that is blocked for too long fails, and is not retried; an automatic Task fails
/// as timed out.
#[test]
fn a_step_is_not_blocked_for_ever() {
    let mut t = with_policy("a b", json!({"blocked_ms": 1_000}), Policy::Auto);
    let (a, b) = (t.grant("ant", POOL).unwrap(), t.grant("bee", POOL).unwrap());
    t.report(&a, Blocked);
    let end = t.now + 1_000;
    assert_eq!(t.task.next_due(), Some(end));
    t.due_at(end - 1);
    assert_eq!(t.status("a"), Blocked);
    t.due_at(end);
    assert_eq!(t.events(), ["task_step_failed a"]);
    assert_eq!(
        (t.status("a"), t.code_of("a"), t.actors()),
        (Failed, "wait_timeout", vec!["system"])
    );
    assert_eq!(t.attempt_of(&a).outcome, Some(Outcome::Blocked), "its Attempt had ended before");
    t.complete(&b);
    assert_eq!((t.task_status(), t.task_code()), (TaskStatus::Failed, "timed_out"));
}

/// POL-12: each block has its time; a reopening in time ends it.
#[test]
fn each_block_has_its_own_time() {
    let mut t = with_policy("a", json!({"blocked_ms": 1_000}), Policy::Manual);
    t.write("a", Blocked);
    t.wait_ms(900);
    t.ok(reopen("a"));
    assert_eq!(t.task.next_due(), None);
    t.write("a", Blocked);
    assert_eq!(t.task.next_due(), Some(t.now + 1_000));
}

/// POL-12, S28: all Attempts of a Step together have a time, from its first ready on; what then runs is
/// stopped as timed out, and is not retried.
#[test]
fn all_attempts_together_have_a_time() {
    let policy = json!({
        "schedule_to_close_ms": 1_000, "max_attempts": "unlimited",
        "backoff": {"initial_ms": 100, "jitter": 0.0}
    });
    let mut t = with_policy("a", policy.clone(), Policy::Auto);
    let end = START + 1_000;
    let first = t.grant("ant", POOL).unwrap();
    t.fail(&first, "broken");
    assert_eq!(t.status("a"), Pending, "in backoff");
    t.due_at(t.now + 101);
    let second = t.grant("bee", POOL).unwrap();
    t.start(&second);
    assert_eq!(t.task.next_due(), Some(end), "the second Attempt has what the first left");
    t.due_at(end);
    assert_eq!(t.events(), ["task_step_failed a", "task_failed"]);
    assert_eq!((t.code_of("a"), t.task_code()), ("schedule_to_close_timeout", "timed_out"));
    assert_eq!(t.attempt_of(&second).outcome, Some(Outcome::TimedOut));
    assert_eq!(t.run_of(second.run_id).end_reason, Some(EndReason::TimedOut));
    t.refuse_as(&second.caller(), second.reports(Completed), Code::TaskTerminal);

    // Nobody claims it, or it is in backoff, when the time is up.
    for claims in [false, true] {
        let mut t = with_policy("a", policy.clone(), Policy::Manual);
        if claims {
            let held = t.claim("a");
            t.wait_ms(950);
            t.fail(&held, "broken");
        }
        assert_eq!(t.status("a"), if claims { Pending } else { Ready });
        t.due_at(START + 1_000);
        assert_eq!((t.status("a"), t.code_of("a")), (Failed, "schedule_to_close_timeout"));
    }
}

/// POL-12: an explicit reopen gives the whole time again; an automatic retry does not, and nor does
/// a Step that has to wait for others again.
#[test]
fn only_an_explicit_reopen_gives_the_time_again() {
    let mut t = with_policy("a b", json!({"schedule_to_close_ms": 1_000}), Policy::Manual);
    t.write("b", Completed);
    t.wait_ms(500);
    t.ok(patch(json!([{"op": "add_step", "step": {"step_id": "c", "title": "c"}},
        {"op": "add_dependency", "step_id": "a", "depends_on_step_id": "c"}])));
    assert_eq!(t.status("a"), Pending);
    assert_eq!(t.task.next_due(), Some(START + 1_000), "it was ready before");
    t.due_at(START + 1_000);
    t.write("c", Completed);
    t.wait_ms(5_000);
    t.ok(reopen("a"));
    assert_eq!(t.task.next_due(), Some(t.now + 1_000));
}

/// POL-12: both times rest while the Task is paused or blocked, and go on with what is left of them.
#[test]
fn the_times_rest_with_the_task() {
    for how in ["paused", "blocked"] {
        let policy = json!({"schedule_to_close_ms": 1_000, "blocked_ms": 300});
        let mut t = with_policy("a b", policy, Policy::Manual);
        t.wait_ms(99);
        t.write("b", Blocked);
        let blocked_at = t.now;
        rest(&mut t, how, 50_000);
        assert_eq!(t.task.next_due(), Some(blocked_at + 300 + 50_000), "b");
        rest(&mut t, how, 50_000);
        t.ok(reopen("b"));
        t.write("b", Completed);
        assert_eq!(t.task.next_due(), Some(START + 1_000 + 100_000), "a");
        t.restart();
        assert_eq!(t.task.next_due(), Some(START + 1_000 + 100_000), "by the log alone");
        t.due_at(START + 1_000 + 100_000);
        assert_eq!(t.status("a"), Failed);
    }
}

/// POL-12: a time that begins while the Task rests begins with the end of the rest.
#[test]
fn a_time_that_begins_in_a_rest_begins_after_it() {
    let mut t = with_policy("a b<-a", json!({"schedule_to_close_ms": 1_000}), Policy::Manual);
    let held = t.claim("a");
    t.ok(Command::PauseTask(Why::default()));
    t.wait_ms(400);
    t.complete(&held);
    assert_eq!(t.status("b"), Ready);
    t.wait_ms(700);
    t.ok(Command::ResumeTask(Why::default()));
    assert_eq!(t.task.next_due(), Some(t.now + 1_000));
}

/// POL-12: neither counts while the Task is closing; the grace does.
#[test]
fn the_times_rest_while_the_task_closes() {
    let mut t = with_policy("a", json!({"schedule_to_close_ms": 1_000}), Policy::Manual);
    t.claim("a");
    t.wait_ms(900);
    t.ok(cancel_task());
    assert_eq!(t.task.next_due(), Some(t.now + 10_000));
}

/// POL-12, POL-10: another policy moves the times of Steps that wait: ready, blocked or once ready.
#[test]
fn another_policy_moves_the_times() {
    let mut t = Fixture::manual("a b");
    t.write("b", Blocked);
    let blocked_at = t.now;
    assert_eq!(t.task.next_due(), None);
    t.ok(update_task(json!({"blocked_ms": 700})));
    assert_eq!(t.task.next_due(), Some(blocked_at + 700));
    t.ok(update_task(json!({"schedule_to_close_ms": 800})));
    assert_eq!(t.task.next_due(), Some(START + 800));
    let held = t.claim("a");
    t.ok(update_task(json!({"schedule_to_close_ms": 900})));
    assert_eq!(t.task.next_due(), Some(START + 800), "a held Step has the policy of its claim");
    t.ok_as(&held.caller(), held.releases());
    assert_eq!(t.task.next_due(), Some(START + 900));
    t.ok(update_task(Json::Null));
    assert_eq!(t.task.next_due(), None);
}

/// RECOVER-09: what is due at once is judged in the order of the contract.
#[test]
fn what_is_due_is_judged_in_order() {
    let policy = json!({
        "blocked_ms": 10, "schedule_to_close_ms": 10, "start_to_close_ms": 10, "max_attempts": 1
    });
    let given = CreateTask {
        retry_policy: serde_json::from_value(policy).unwrap(),
        constraints: serde_json::from_value(json!({"deadline_at": START + 10})).unwrap(),
        completion: Some(Policy::Auto),
        ..create_input("a b c")
    };
    let mut t = Fixture::create(given, Policy::Manual);
    t.claim("a");
    t.write("b", Blocked);
    t.wait_ms(100);
    let mut judged = Vec::new();
    while t.task_status() != TaskStatus::Failed {
        t.ok_as(&system(), Command::Due);
        judged.push(t.events()[0].clone());
    }
    assert_eq!(
        judged,
        ["task_step_failed a"],
        "a fails by its claim, and nothing is held any more"
    );
    assert_eq!((t.code_of("a"), t.task_code()), ("worker_timeout", "timed_out"));

    let manual = json!({"blocked_ms": 10, "schedule_to_close_ms": 10, "start_to_close_ms": 10});
    let mut t = with_policy("a b c", manual, Policy::Manual);
    t.claim("a");
    t.write("b", Blocked);
    t.wait_ms(100);
    t.judge_due();
    let codes: Vec<_> = ["a", "b", "c"].iter().map(|step| t.code_of(step)).collect();
    assert_eq!(codes, ["worker_timeout", "wait_timeout", "schedule_to_close_timeout"]);
    let order: Vec<_> =
        t.log[t.log.len() - 3..].iter().map(|commit| names(commit)[0].clone()).collect();
    assert_eq!(order, ["task_step_failed a", "task_step_failed b", "task_step_failed c"]);
}

/// POL-12, TERM-12: a closing waits as long as the Step that is held and needs longest; a Step that says
/// nothing needs `agents.child_cancel_timeout_ms`.
#[test]
fn a_closing_waits_for_the_longest_grace() {
    for (graces, wait) in [
        ([None, None], 10_000),
        ([Some(60_000), None], 60_000),
        ([Some(1_000), None], 10_000),
        ([Some(1_000), Some(500)], 1_000),
        ([Some(0), Some(0)], 0),
    ] {
        let mut given = create_input("a b c");
        let policy = |ms| RetryPolicy { cancel_grace_ms: ms, ..RetryPolicy::default() };
        given.steps[0].retry_policy = Some(policy(graces[0]).into());
        given.steps[1].retry_policy = Some(policy(graces[1]).into());
        given.steps[2].retry_policy = Some(policy(Some(3_600_000)).into()); // It is not held.
        let mut t = Fixture::create(given, Policy::Auto);
        let held: Vec<Held> = (0..2).map(|n| t.grant(&format!("w{n}"), POOL).unwrap()).collect();
        t.ok(cancel_task());
        let end = t.now + wait;
        assert_eq!(t.task.head().cancel_requested.as_ref().unwrap().deadline_at, end);
        assert_eq!(t.task.next_due(), Some(end));
        t.due_at(end);
        assert_eq!(t.task_status(), TaskStatus::Cancelled);
        assert_eq!(t.attempt_of(&held[0]).outcome, Some(Outcome::Cancelled));
    }
}

/// POL-12, TERM-23: the checkpoint of a handler that takes 14 s to stop is recorded, and its Step may
/// still complete. (It was lost after 10 s.)
#[test]
fn a_holder_reports_until_its_grace_ends() {
    let mut t = with_policy("a", json!({"cancel_grace_ms": 20_000}), Policy::Manual);
    let held = t.claim("a");
    assert_eq!(t.task.durable().time_to_stop(t.attempt_of(&held), t.now), None);
    t.ok(cancel_task());
    let end = t.now + 20_000;
    t.wait_ms(14_000);
    let view = t.task.durable();
    assert_eq!(view.time_to_stop(t.attempt_of(&held), t.now), Some(6_000), "the holder is told");
    assert_eq!(view.time_of_caller_to_stop(&held.caller(), t.now), Some(6_000));
    assert_eq!(view.time_of_caller_to_stop(&orchestrator(), t.now), None);
    let artifact = json!({"artifact_id": "x", "name": "x", "kind": "file", "state": "available"});
    let report = StepReport {
        checkpoint_refs: vec!["file:///saved".parse().unwrap()],
        artifacts: vec![serde_json::from_value(artifact).unwrap()],
        ..held.says()
    };
    t.ok_as(&held.caller(), Command::TaskUpdateStep(report));
    assert_eq!(t.attempt_of(&held).checkpoint_refs.len(), 1);
    t.due_at(end - 1);
    assert_eq!(t.status("a"), StepStatus::Claimed);
    t.end(&held, RunOutcome::Cancelled);
    assert_eq!(t.task_status(), TaskStatus::Cancelled);
    assert_eq!(t.attempt_of(&held).checkpoint_refs.len(), 1);
}

/// POL-12: cancel and fail may carry the time instead, also a shorter one; at most an hour.
#[test]
fn a_command_may_carry_the_grace() {
    let close = |grace_ms| Close { grace_ms, ..Close::default() };
    for (intent, command) in [
        (Intent::Cancel, Command::TaskCancel as fn(Close) -> Command),
        (Intent::Fail, Command::TaskFail),
    ] {
        for ms in [0, 5, 3_600_000] {
            let mut t = with_policy("a", json!({"cancel_grace_ms": 60_000}), Policy::Manual);
            t.claim("a");
            t.ok(command(close(Some(ms))));
            let request = t.task.head().cancel_requested.clone().unwrap();
            assert_eq!((request.intent, request.deadline_at), (intent, t.now + ms as i64));
        }
        let mut t = Fixture::manual("a");
        t.claim("a");
        let no = t.refuse(command(close(Some(3_600_001))), Code::ValidationError);
        assert_eq!(no.details["field"], "grace_ms");
    }
    let no = t_refused(json!({"cancel_grace_ms": 3_600_001}));
    assert_eq!(no, "retry_policy.cancel_grace_ms");
    assert_eq!(t_refused(json!({"blocked_ms": 0})), "retry_policy.blocked_ms");
    assert_eq!(t_refused(json!({"schedule_to_close_ms": 0})), "retry_policy.schedule_to_close_ms");
}

/// The field that a policy is refused for.
fn t_refused(policy: Json) -> String {
    let retry_policy = serde_json::from_value(policy).unwrap();
    let given = CreateTask { retry_policy, ..create_input("a") };
    let no = Fixture::try_create(given, Policy::Auto, Limits::default()).unwrap_err();
    no.details["field"].as_str().unwrap().to_owned()
}

/// POL-12, C43: a Run that is cancelled alone has the grace of its Step, too.
#[test]
fn a_cancelled_run_has_the_grace_of_its_step() {
    let mut t = with_policy("a", json!({"cancel_grace_ms": 60_000}), Policy::Manual);
    let held = t.claim("a");
    t.start(&held);
    t.ok(cancel_run(held.run_id));
    let end = t.now + 60_000;
    assert_eq!(t.task.next_due(), Some(end));
    let left = t.task.durable().time_to_stop(t.attempt_of(&held), t.now + 1_000);
    assert_eq!(left, Some(59_000), "its holder is told");
    t.due_at(end - 1);
    assert_eq!(t.status("a"), Running);
    t.due_at(end);
    assert_eq!((t.status("a"), t.code_of("a")), (Failed, "worker_cancelled"));
}

/// POL-12, EVOLVE-01: a Task of rules 1 has none of this.
#[test]
fn a_task_of_the_first_rules_has_none_of_these_times() {
    let policy = json!({"blocked_ms": 5, "schedule_to_close_ms": 5, "cancel_grace_ms": 60_000});
    let retry_policy = serde_json::from_value(policy).unwrap();
    let given = CreateTask { retry_policy, ..create_input("a b") };
    let mut t = Fixture::by_first_rules(given, Policy::Manual);
    t.write("b", Blocked);
    assert_eq!(t.task.next_due(), None);
    t.claim("a");
    t.ok(Command::TaskCancel(Close { grace_ms: Some(5), ..Close::default() }));
    assert_eq!(t.task.next_due(), Some(t.now + 10_000));
}
