//! RETRY: what is tried again, how often, and when.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common;
use common::*;
use serde_json::Value as Json;
use tenure_core::Rules;
use tenure_core::command::policy::backoff_ms;
use tenure_core::command::{RetrySteps, RunOutcome, StepReport};
use tenure_core::patch::ReasonInput;
use tenure_core::record::{Backoff, EdgeReason, Reason};
use tenure_core::retry_policy::Limit;
use tenure_core::status::{Policy, StepStatus, TaskStatus};
use tenure_core::{Code, Command, Limits, Rejection};

use StepStatus::{Blocked, Failed, Pending, Ready};

/// Three failures, the waits without jitter.
fn patient() -> Fixture {
    let policy = json!({"max_attempts": 3, "backoff": {"initial_ms": 100, "jitter": 0.0}});
    with_policy("a", policy, Policy::Manual)
}

/// RETRY-01: without a policy failed Steps stay failed, and lost ones are offered again for ever.
#[test]
fn without_a_policy_nothing_is_retried() {
    let mut t = Fixture::manual("a b");
    let held = t.claim("a");
    t.fail(&held, "broken");
    assert_eq!(t.events(), ["task_step_failed a"]);
    for _ in 0..10 {
        let held = t.claim("b");
        t.lose(&held);
        assert_eq!(t.status("b"), Ready);
    }
}

/// RETRY-02: an automatic Task without a policy gets the default at creation, and keeps it.
#[test]
fn the_default_policy_is_written_at_creation() {
    let mut t = Fixture::auto("a");
    let policy = t.task.head().spec.retry_policy.clone().unwrap();
    let limits = (policy.max_attempts, policy.max_lost);
    assert_eq!(limits, (Some(Limit::Of(5)), Some(Limit::Of(3))));
    let whole = Backoff { initial_ms: 1_000, factor: 4.0, max_ms: 600_000, jitter: 0.5 };
    assert_eq!(policy.backoff(), whole);
    t.ok(patch(json!([{"op": "update_task", "completion": "manual"}])));
    assert_eq!(t.task.head().spec.retry_policy.as_ref(), Some(&policy));
    let mut t = Fixture::manual("a");
    let policy = t.task.head().spec.retry_policy.clone().unwrap();
    let limits = (policy.max_attempts, policy.max_lost);
    assert_eq!(limits, (Some(Limit::Of(1)), Some(Limit::Unlimited)));
    t.ok(patch(json!([{"op": "update_task", "completion": "auto"}])));
    assert_eq!(t.task.head().spec.retry_policy, Some(policy));
    // By rules 1 there are three of each, and a manual Task has no policy.
    let t = Fixture::by_first_rules(create_input("a"), Policy::Auto);
    let policy = t.task.head().spec.retry_policy.clone().unwrap();
    assert_eq!((policy.max_attempts, policy.max_lost), (Some(Limit::Of(3)), Some(Limit::Of(3))));
    assert_eq!(policy.backoff(), Backoff::default());
    let mut t = Fixture::by_first_rules(create_input("a"), Policy::Manual);
    t.ok(patch(json!([{"op": "update_task", "completion": "auto"}])));
    assert_eq!(t.task.head().spec.retry_policy, None);
}

/// RETRY-04, RETRY-07, S19, U2: a retry is one commit: failed, reopened by `system`, pending until
/// its moment, then ready by the timer.
#[test]
fn a_failed_step_is_tried_again_after_its_wait() {
    let mut t = patient();
    let held = t.claim("a");
    t.fail(&held, "broken");
    assert_eq!(t.events(), ["task_step_failed a", "task_step_reopened a"]);
    assert_eq!(t.actors(), ["ant", "system"]);
    let at = t.now + 100;
    let payload = t.payload("task_step_reopened");
    assert_eq!(payload["reason"]["code"], "auto_retry");
    assert_eq!((&payload["not_before"], &payload["from"]), (&json!(at), &json!("failed")));
    assert_eq!(payload["counters_reset"], false);
    let state = &t.step("a").state;
    assert_eq!((state.status, state.not_before, state.attempt_count), (Pending, Some(at), 1));
    assert_eq!(t.task.next_due(), Some(at));
    let run = t.dispatch(POOL);
    assert!(t.due_at(at - 1).commit.is_none());
    t.now = at - 2;
    t.refuse_as(&t.member("ant", run), claim_command(run, "a"), Code::StepNotReady);
    t.due_at(at);
    assert_eq!((t.events(), t.actors()), (vec!["task_step_ready a".to_owned()], vec!["system"]));
    assert_eq!(t.step("a").state.not_before, None);
}

/// RETRY-04, RETRY-06: the wait grows, and the last failure is final.
#[test]
fn attempts_end_with_the_budget() {
    let mut t = patient();
    for (n, wait) in [(1, 100), (2, 400)] {
        let held = t.claim("a");
        t.fail(&held, "broken");
        assert_eq!(t.step("a").state.not_before, Some(t.now + wait), "retry {n}");
        t.due_at(t.now + wait);
    }
    let held = t.claim("a");
    t.fail(&held, "broken");
    assert_eq!(t.events(), ["task_step_failed a"]);
    assert_eq!(t.payload("task_step_failed")["attempt_count"], 3);
    assert_eq!(t.status("a"), Failed);
}

/// RETRY-03: what counts for `max_attempts`, and what does not.
#[test]
fn failures_time_outs_and_silence_count_and_nothing_else() {
    type End = fn(&mut Fixture, &Held);
    let ways: [(End, u32, u32); 8] = [
        (|t, h| t.fail(h, "broken"), 1, 0),
        (|t, h| drop(t.end(h, RunOutcome::TimedOut)), 1, 0),
        (|t, h| drop(t.end(h, RunOutcome::Finished)), 1, 0),
        (|t, h| drop(t.stop(h)), 0, 0),
        (|t, h| drop(t.report(h, Blocked)), 0, 0),
        (|t, h| t.lose(h), 0, 1),
        (|t, h| drop(t.ok_as(&h.caller(), h.releases())), 0, 0),
        (|t, _| t.write("a", Failed), 1, 0),
    ];
    for (n, (end, attempts, lost)) in ways.into_iter().enumerate() {
        let mut t = with_policy("a", json!({"max_attempts": 9, "max_lost": 9}), Policy::Manual);
        let held = t.claim("a");
        end(&mut t, &held);
        let state = &t.step("a").state;
        assert_eq!((state.attempt_count, state.lost_count), (attempts, lost), "way {n}");
    }
}

/// RETRY-05: what is never retried by itself.
#[test]
fn some_codes_are_never_retried() {
    let policy = json!({"max_attempts": 9, "non_retryable": ["poison"]});
    let fresh = || with_policy("a", policy.clone(), Policy::Manual);
    for code in [
        "poison",
        "rejected",
        "worker_cancelled",
        "lost",
        "schedule_to_start_timeout",
        "unknown_handler",
        "blob_missing",
        "value_too_large",
    ] {
        let mut t = fresh();
        let held = t.claim("a");
        t.fail(&held, code);
        assert_eq!(t.status("a"), Failed, "{code}");
    }
    for (retryable, status) in [(Some(false), Failed), (Some(true), Pending), (None, Pending)] {
        let mut t = fresh();
        let held = t.claim("a");
        let why = ReasonInput { retryable, ..reason("broken", "") };
        let report = StepReport { status: Some(Failed), reason: Some(why), ..held.says() };
        t.ok_as(&held.caller(), Command::TaskUpdateStep(report));
        assert_eq!(t.status("a"), status, "{retryable:?}");
    }
    let mut t = fresh();
    t.write("a", Failed);
    assert_eq!(t.status("a"), Failed, "S21");
    t.write("a", Pending);
    t.claim("a");
    t.write("a", Failed);
    assert_eq!(t.status("a"), Failed, "S22");
}

/// RETRY-06: min(max, initial * factor^(n-1)) * (1 - jitter * u), rounded down; u in [0, 1].
#[test]
fn the_wait_follows_the_formula() {
    let plain = Backoff { initial_ms: 100, factor: 3.0, max_ms: 1_000, jitter: 0.0 };
    let waits: Vec<u64> = (1..=5).map(|n| backoff_ms(&plain, n, 7)).collect();
    assert_eq!(waits, [100, 300, 900, 1_000, 1_000]);
    assert_eq!(backoff_ms(&Backoff { factor: 1.0, ..plain.clone() }, u32::MAX, 7), 100);
    assert_eq!(backoff_ms(&Backoff { initial_ms: 5_000, ..plain.clone() }, 1, 7), 1_000);
    assert_eq!(backoff_ms(&Backoff { initial_ms: 0, ..plain.clone() }, 3, 7), 0);
    let huge = Backoff { initial_ms: u64::MAX, factor: 1000.0, max_ms: u64::MAX, jitter: 1.0 };
    assert!(backoff_ms(&huge, 40, 7) > 0);
    let most = (0..2_000).map(|random| backoff_ms(&Backoff::standard(), 9, random)).max();
    assert!(most <= Some(600_000), "no wait is longer than the longest: {most:?}");
    let jittered = Backoff { jitter: 0.5, ..plain };
    let waits: Vec<u64> = (0..2_000).map(|r| backoff_ms(&jittered, 3, r)).collect();
    let (low, high) = (waits.iter().min().unwrap(), waits.iter().max().unwrap());
    assert!((450..460).contains(low) && (890..=900).contains(high), "{low} {high}");
    let mean = waits.iter().sum::<u64>() / 2_000;
    assert!((665..685).contains(&mean), "{mean}");
}

/// RETRY-06: a Step that fails for ever and waits for nothing is tried a second apart from its twentieth retry on.
#[test]
fn a_step_that_always_fails_does_not_loop() {
    let policy = json!({"max_attempts": "unlimited", "backoff": {"initial_ms": 0, "max_ms": 0}});
    let mut t = with_policy("a", policy, Policy::Manual);
    let mut waits = Vec::new();
    for _ in 0..25 {
        if let Some(not_before) = t.step("a").state.not_before {
            t.due_at(not_before);
        }
        assert_eq!(t.status("a"), Ready);
        let held = t.claim("a");
        t.fail(&held, "broken");
        let (status, not_before) = (t.status("a"), t.step("a").state.not_before);
        let wait = not_before.filter(|_| status == Pending).map_or(0, |at| at - t.now);
        waits.push(wait);
    }
    assert_eq!(waits[..19], [0; 19]);
    assert_eq!(waits[19..], [1_000; 6]);
}

/// RETRY-06: the chosen moment is in the event, so that replay needs no random number.
#[test]
fn the_chosen_wait_is_in_the_event() {
    let policy = json!({"max_attempts": 3, "backoff": {"initial_ms": 1_000_000, "jitter": 1.0}});
    let mut moments = Vec::new();
    for random in [1, 2] {
        let mut t = with_policy("a", policy.clone(), Policy::Manual);
        t.random = random;
        let held = t.claim("a");
        t.fail(&held, "broken");
        moments.push(t.step("a").state.not_before.unwrap());
        t.restart();
        assert_eq!(t.step("a").state.not_before, moments.last().copied());
    }
    assert_ne!(moments[0], moments[1]);
}

/// RETRY-09: an explicit reopen starts both counts anew; ordinals go on.
#[test]
fn an_explicit_reopen_gives_a_new_budget() {
    let policy = json!({"max_attempts": 1, "max_lost": 1});
    let mut t = with_policy("a", policy, Policy::Manual);
    for ordinal in [1, 3] {
        let held = t.claim("a");
        assert_eq!(t.attempt_of(&held).ordinal, ordinal);
        t.fail(&held, "broken");
        t.write("a", Pending);
        assert_eq!(t.payload("task_step_reopened")["counters_reset"], true);
        assert_eq!(t.step("a").state.attempt_count, 0);
        let held = t.claim("a");
        t.lose(&held);
        assert_eq!(t.status("a"), Failed);
        t.write("a", Pending);
        assert_eq!(t.step("a").state.lost_count, 0);
    }
}

/// RETRY-10, S15: a ready Step that nobody claims in time fails, with no retry.
#[test]
fn a_step_nobody_claims_in_time_fails() {
    let policy = json!({"schedule_to_start_ms": 100, "max_attempts": 9});
    let mut t = with_policy("a b<-a", policy, Policy::Manual);
    let at = START + 100;
    assert_eq!(t.task.next_due(), Some(at));
    assert!(t.due_at(at - 1).commit.is_none());
    t.due_at(at);
    assert_eq!((t.events(), t.actors()), (vec!["task_step_failed a".to_owned()], vec!["system"]));
    assert_eq!((t.status("a"), t.code_of("a")), (Failed, "schedule_to_start_timeout"));
    assert_eq!(t.step("a").state.attempt_count, 0);
    assert_eq!(t.task.next_due(), None, "b is not ready");
}

/// S15: the limit rests while the Task is blocked, paused or closing, and starts anew with reopen
/// and resume.
#[test]
fn the_wait_for_a_worker_rests_with_the_task() {
    let cases = [
        (block_task(), Command::ReopenTask(Default::default())),
        (Command::PauseTask(Default::default()), Command::ResumeTask(Default::default())),
    ];
    for (stop, go) in cases {
        let policy = json!({"schedule_to_start_ms": 100, "start_to_close_ms": 5_000});
        let mut t = with_policy("a b c<-b", policy, Policy::Manual);
        let b = t.claim("b");
        t.ok(stop);
        let close = t.attempt_of(&b).started_at + 5_000;
        assert_eq!(t.task.next_due(), Some(close), "S14 does not rest, S15 does");
        t.now += 1_000;
        assert!(t.ok_as(&system(), Command::Due).commit.is_none());
        t.ok(go);
        let resumed = t.now;
        assert_eq!(t.task.next_due(), Some(resumed + 100));
        t.now += 50;
        t.complete(&b);
        let ready = t.now;
        t.due_at(resumed + 100);
        assert_eq!(t.statuses("a c"), "a:failed c:ready");
        assert_eq!(t.task.next_due(), Some(ready + 100));
        t.restart();
        assert_eq!(t.task.next_due(), Some(ready + 100));
    }
    let mut t = with_policy("a b", json!({"schedule_to_start_ms": 100}), Policy::Manual);
    t.claim("b");
    t.ok(cancel_task());
    assert_eq!(t.task.next_due(), Some(t.now + 10_000));
}

/// S15: the first limit to pass is the next due, in whatever order Steps got ready.
#[test]
fn the_earliest_limit_is_next() {
    let mut t = with_policy("a b c", json!({"schedule_to_start_ms": 1_000}), Policy::Manual);
    t.ok(patch(json!([{"op": "update_step", "step_id": "c", "fields":
        {"retry_policy": {"schedule_to_start_ms": 10}}}])));
    t.ok(block_task());
    t.now += 500;
    t.ok(Command::ReopenTask(Default::default()));
    assert_eq!(t.task.next_due(), Some(t.now + 10));
}

/// RETRY-10, S14: from the claim, renewals or not; then S19 as after any failure.
#[test]
fn a_step_that_takes_too_long_times_out() {
    let policy = json!({"start_to_close_ms": 100, "max_attempts": 2});
    let mut t = with_policy("a", policy, Policy::Manual);
    let held = t.claim("a");
    let at = t.now + 100;
    t.start(&held);
    t.ok(Command::PauseTask(Default::default()));
    assert_eq!(t.task.next_due(), Some(at));
    t.due_at(at);
    assert_eq!(t.events(), ["task_step_failed a", "task_step_reopened a"]);
    assert_eq!(t.payload("task_step_failed")["reason"]["code"], "worker_timeout");
    assert_eq!(t.payload("task_step_failed")["outcome"], "timed_out");
    assert_eq!(t.task_status(), TaskStatus::Paused);
}

/// S14, S15, mechanisms 6: the limits of Steps wait until their workers could be heard; others do not.
#[test]
fn limits_of_steps_wait_while_they_are_spared() {
    let policy = json!({"schedule_to_start_ms": 100, "start_to_close_ms": 100, "max_attempts": 1});
    let mut t = with_policy("a b", policy, Policy::Manual);
    t.claim("a");
    let (due, spared_until) = (t.now + 100, t.now + 5_000);
    t.task.spare_steps_until(spared_until);
    assert_eq!(t.task.next_due(), Some(spared_until));
    assert!(t.due_at(due).commit.is_none());
    assert!(t.due_at(spared_until - 1).commit.is_none());
    t.task.spare_steps_until(due);
    assert_eq!(t.task.next_due(), Some(due), "it is a matter of the moment");
    t.task.spare_steps_until(spared_until);
    t.due_at(spared_until);
    assert_eq!((t.status("b"), t.code_of("b")), (Failed, "schedule_to_start_timeout"));
    t.due_at(spared_until);
    assert_eq!((t.status("a"), t.code_of("a")), (Failed, "worker_timeout"));
    assert_eq!(t.task.next_due(), None);

    let mut t = with_policy("a", json!({"start_to_close_ms": 100}), Policy::Manual);
    t.claim("a");
    t.ok(cancel_task());
    let closing = t.now + 10_000;
    t.task.spare_steps_until(closing + 1);
    assert_eq!(t.task.next_due(), Some(closing), "closing takes no longer");
}

fn retry(step_ids: Option<&[&str]>) -> Command {
    let step_ids = step_ids.map(|ids| ids.iter().map(|i| id(i)).collect());
    Command::RetryTask(RetrySteps { reason: reason("again", "it was the net"), step_ids })
}

/// RETRY-11: `retry_task` reopens the named failed Steps, or all, in creation order.
#[test]
fn retry_task_reopens_failed_steps() {
    let mut t = Fixture::manual("a b c d");
    let no = t.refuse(retry(None), Code::ValidationError);
    assert_eq!(no.details["field"], "step_ids");
    for step in ["c", "a", "b"] {
        t.write(step, Failed);
    }
    t.refuse(retry(Some(&["a", "never"])), Code::StepNotFound);
    t.refuse(retry(Some(&["a", "d"])), Code::InvalidTransition);
    t.refuse(retry(Some(&[])), Code::ValidationError);
    t.ok(retry(Some(&["b", "b"])));
    assert_eq!(t.events(), ["task_step_reopened b", "task_step_ready b"]);
    t.ok(retry(None));
    assert_eq!(t.events()[..2], ["task_step_reopened a", "task_step_reopened c"]);
    assert_eq!(t.statuses("a b c"), "a:ready b:ready c:ready");
}

/// RETRY-11, POL-05: a reopened failure fails an automatic Task no more.
#[test]
fn retry_task_saves_a_stopped_automatic_task() {
    let mut t = with_policy("a", json!({"max_attempts": 1}), Policy::Auto);
    let held = t.grant("ant", POOL).unwrap();
    t.ok(block_task());
    t.fail(&held, "broken");
    t.ok(retry(None));
    t.ok(Command::ReopenTask(Default::default()));
    assert_eq!((t.task_status(), t.status("a")), (TaskStatus::Running, Ready));
}

/// RETRY-12, U5: an ended Task is started again as a new one: same DAG and terms, all Steps
/// afresh, linked `retry_of` with the reason.
#[test]
fn an_ended_task_is_retried_as_a_new_one() {
    let mut t = with_policy("a b<-a gone", json!({"max_attempts": 2}), Policy::Manual);
    let reason: ReasonInput =
        serde_json::from_value(json!({"code": "flaky_network", "message": "once more"})).unwrap();
    let live = t
        .task
        .durable()
        .retry_input("t2".parse().unwrap(), &made_again(&reason), Rules::NEWEST)
        .unwrap_err();
    assert_eq!(live.code, Code::InvalidTransition);
    t.ok(patch(json!([
        {"op": "delete_step", "step_id": "gone"},
        {"op": "update_step", "step_id": "a", "fields": {"title": "final", "handler": "h"}},
        {"op": "update_task", "acceptance": [{"id": "ok", "state": "met"}], "priority": 4},
    ])));
    t.do_step("a");
    t.ok(cancel_task());
    let before = t.task.clone();
    let given = t
        .task
        .durable()
        .retry_input("t2".parse().unwrap(), &made_again(&reason), Rules::NEWEST)
        .unwrap();
    let new = Fixture::create(given, Policy::Auto);
    assert_eq!(t.task, before, "the old one is untouched");
    assert_eq!(new.statuses("a b"), "a:ready b:pending");
    assert!(new.task.step(&id("gone")).is_none());
    let (old, spec) = (&before.head().spec, &new.task.head().spec);
    assert_eq!(new.step("a").spec.title, "final");
    assert_eq!(new.step("a").spec.handler.as_str(), "h");
    assert_eq!((spec.dispatch, spec.completion), (old.dispatch, old.completion));
    assert_eq!((&spec.retry_policy, spec.priority), (&old.retry_policy, 4));
    assert_eq!(spec.acceptance[0].state.as_str(), "unknown");
    assert_eq!(spec.retry_of.as_ref().unwrap().as_str(), "t");
    let edge = &spec.relationships[0];
    assert_eq!((edge.kind.as_str(), edge.to.as_str()), ("retry_of", "t"));
    let whole = Reason::new("flaky_network", "once more");
    assert_eq!(edge.reason, Some(EdgeReason::Whole(whole.into())));

    // A reason without a code has that of the operation, and one of words alone stays that.
    let again = |reason: Json| {
        let reason = serde_json::from_value(reason).unwrap();
        let given = t
            .task
            .durable()
            .retry_input("t3".parse().unwrap(), &made_again(&reason), Rules::NEWEST)
            .unwrap();
        let new = Fixture::try_create(given, Policy::Auto, Limits::default())?;
        let reason = &new.task.head().spec.relationships[0].reason;
        Ok::<_, Rejection>(serde_json::to_value(reason).unwrap())
    };
    assert_eq!(again(json!({"message": "more"})).unwrap(), "more");
    let detailed = json!({"message": "more", "details": {"run": 7}});
    let kept = json!({"code": "retry_task", "message": "more", "details": {"run": 7}});
    assert_eq!(again(detailed).unwrap(), kept);
    assert_eq!(again(json!({"code": ""})).unwrap_err().code, Code::ValidationError);
}
