//! RETRY-14: what the fields of a retry policy mean, and where those that are not given come from.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common;
use common::*;
use serde_json::Value as Json;
use tenure_core::command::StepReport;
use tenure_core::command::create::CreateTask;
use tenure_core::patch::ReasonInput;
use tenure_core::record::{Backoff, RetryPolicy};
use tenure_core::retry_policy::Limit;
use tenure_core::status::{OnFailure, Policy, StepStatus};
use tenure_core::{Code, Command, Limits, Rules};

use StepStatus::{Failed, Pending};

/// A create whose Task and whose Step `a` have these policies.
fn given(tasks: Json, steps: Json) -> CreateTask {
    let policy = |json: Json| serde_json::from_value(json).expect("a policy");
    let mut given = CreateTask { retry_policy: policy(tasks), ..create_input("a b") };
    given.steps[0].retry_policy = policy(steps);
    given
}

fn tasks_policy(t: &Fixture) -> RetryPolicy {
    RetryPolicy::clone(t.task.head().spec.retry_policy.as_deref().expect("the task has one"))
}

/// The policy of a Step's next Attempt.
fn claimed(t: &mut Fixture, step: &str) -> RetryPolicy {
    let held = t.claim(step);
    RetryPolicy::clone(t.attempt_of(&held).retry_policy.as_deref().expect("the attempt has one"))
}

fn update_task(policy: Json) -> Command {
    patch(json!([{"op": "update_task", "retry_policy": policy}]))
}

/// RETRY-14: a policy that names one thing has the defaults of its `completion` for all others.
/// (A time limit alone had meant retries without end.)
#[test]
fn a_policy_is_filled_in_from_the_default() {
    for (completion, attempts, lost) in [
        (Policy::Auto, Limit::Of(5), Limit::Of(3)),
        (Policy::Manual, Limit::Of(1), Limit::Unlimited),
    ] {
        let t =
            Fixture::create(given(json!({"start_to_close_ms": 60_000}), Json::Null), completion);
        let expected = RetryPolicy {
            max_attempts: Some(attempts),
            max_lost: Some(lost),
            backoff: Some(Backoff::standard().into()),
            start_to_close_ms: Some(Limit::Of(60_000)),
            ..RetryPolicy::default()
        };
        assert_eq!(tasks_policy(&t), expected);
        let stored = serde_json::to_value(tasks_policy(&t)).unwrap();
        assert_eq!(stored["max_lost"], serde_json::to_value(lost).unwrap());
    }
}

/// RETRY-14: a Step that takes too long fails for good under such a policy of a manual Task.
#[test]
fn a_time_limit_alone_retries_nothing_in_a_manual_task() {
    let mut t = with_policy("a", json!({"start_to_close_ms": 50}), Policy::Manual);
    t.claim("a");
    t.due_at(t.now + 51);
    assert_eq!(t.events(), ["task_step_failed a"]);
    assert_eq!(t.status("a"), Failed);
}

/// RETRY-14: null means the default, and `unlimited` means no limit.
#[test]
fn null_is_the_default_and_unlimited_is_a_word() {
    let policy = json!({
        "max_attempts": null, "max_lost": "unlimited", "backoff": null, "non_retryable": null,
        "start_to_close_ms": "unlimited"
    });
    let t = Fixture::create(given(policy, Json::Null), Policy::Auto);
    let expected = RetryPolicy {
        max_lost: Some(Limit::Unlimited),
        start_to_close_ms: Some(Limit::Unlimited),
        ..RetryPolicy::of_completion(Policy::Auto)
    };
    assert_eq!(tasks_policy(&t), expected);
    for wrong in [json!("forever"), json!(-1), json!(1.5), json!(5_000_000_000_u64), json!([])] {
        let policy = serde_json::from_value::<RetryPolicy>(json!({"max_attempts": wrong}));
        assert!(policy.is_err(), "{policy:?}");
    }
}

/// RETRY-14: without limit a Step is tried again each time, however often it was before.
#[test]
fn unlimited_attempts_never_end() {
    let policy = json!({"max_attempts": "unlimited", "backoff": {"initial_ms": 1, "max_ms": 1, "jitter": 0.0}});
    let mut t = with_policy("a", policy, Policy::Manual);
    for _ in 0..20 {
        let held = t.claim("a");
        t.fail(&held, "broken");
        assert_eq!(t.status("a"), Pending);
        t.wait_ms(2);
        t.judge_due();
    }
}

/// RETRY-14: a Step's policy is kept as it was given, and filled in from the Task's at each claim:
/// `backoff` field by field, `non_retryable` as a whole.
#[test]
fn a_steps_policy_is_filled_in_at_each_claim() {
    let tasks = json!({"max_attempts": 7, "non_retryable": ["x"], "backoff": {"factor": 3.0}});
    let own = json!({"max_lost": 9, "backoff": {"initial_ms": 5, "jitter": 0.0}});
    let mut t = Fixture::create(given(tasks, own.clone()), Policy::Manual);
    let stored = t.step("a").spec.retry_policy.clone().unwrap();
    assert_eq!(*stored, serde_json::from_value(own).unwrap(), "as it was given");
    let first = claimed(&mut t, "a");
    assert_eq!((first.max_attempts, first.max_lost), (Some(Limit::Of(7)), Some(Limit::Of(9))));
    let backoff = Backoff { initial_ms: 5, factor: 3.0, max_ms: 600_000, jitter: 0.0 };
    assert_eq!(first.backoff(), backoff);
    assert_eq!(first.non_retryable, Some(vec!["x".into()]));
    assert_eq!(claimed(&mut t, "b"), tasks_policy(&t), "a step without a policy has the task's");

    t.write("a", Failed);
    t.write("a", Pending);
    t.ok(update_task(json!({"max_attempts": 4})));
    t.ok(patch(json!([{"op": "update_step", "step_id": "a", "fields": {
        "retry_policy": {"non_retryable": [], "start_to_close_ms": 30}}}])));
    let second = claimed(&mut t, "a");
    assert_eq!(second.max_attempts, Some(Limit::Of(4)), "the task's of now");
    assert_eq!(second.max_lost, Some(Limit::Unlimited));
    assert_eq!(second.non_retryable, Some(vec![]), "an empty list is one");
    assert_eq!(second.start_to_close_ms, Some(Limit::Of(30)));
}

/// RETRY-14, S15: a limit that only the Task names counts for a Step with a policy of its own, and a
/// Step may take it away.
#[test]
fn a_ready_step_has_the_limits_of_its_task() {
    let tasks = json!({"schedule_to_start_ms": 100});
    let t = Fixture::create(given(tasks.clone(), json!({"max_lost": 1})), Policy::Manual);
    assert_eq!(t.task.next_due(), Some(START + 100));
    let mut t =
        Fixture::create(given(tasks, json!({"schedule_to_start_ms": "unlimited"})), Policy::Manual);
    t.claim("b");
    assert_eq!(t.task.next_due(), None, "a has no limit, and b is claimed");
    t.ok(patch(json!([{"op": "update_step", "step_id": "a", "fields": {"retry_policy": null}}])));
    assert_eq!(t.task.next_due(), Some(START + 100), "a has the task's");
}

/// RETRY-14: a patch fills a Task's policy in from the default of its `completion` at creation, and
/// so does one that clears it; the event says the whole policy.
#[test]
fn a_patch_writes_a_whole_policy() {
    let mut t = Fixture::create(given(json!({"max_attempts": 2}), Json::Null), Policy::Auto);
    t.ok(patch(json!([{"op": "update_task", "completion": "manual"}])));
    t.ok(update_task(json!({"max_lost": "unlimited"})));
    let expected = RetryPolicy {
        max_lost: Some(Limit::Unlimited),
        ..RetryPolicy::of_completion(Policy::Auto)
    };
    assert_eq!(tasks_policy(&t), expected, "what a patch does not name has its default");
    let written = &t.payload("task_updated")["operations"][0]["retry_policy"];
    assert_eq!(*written, serde_json::to_value(&expected).unwrap());
    t.ok(update_task(Json::Null));
    assert_eq!(tasks_policy(&t), RetryPolicy::of_completion(Policy::Auto));
}

/// RETRY-14: a policy that cannot be is refused by the name of its field.
#[test]
fn a_policy_that_cannot_be_is_refused() {
    for (field, policy) in [
        ("max_attempts", json!({"max_attempts": 0})),
        ("max_lost", json!({"max_lost": 0})),
        ("start_to_close_ms", json!({"start_to_close_ms": 0})),
        ("backoff.factor", json!({"backoff": {"factor": 0.5}})),
        ("backoff.jitter", json!({"backoff": {"jitter": 1.5}})),
    ] {
        let mut t = Fixture::manual("a");
        let no = t.refuse(update_task(policy.clone()), Code::ValidationError);
        assert_eq!(no.details["field"], format!("retry_policy.{field}"));
        let given = given(policy, Json::Null);
        let no = Fixture::try_create(given, Policy::Auto, Limits::default()).unwrap_err();
        assert_eq!(no.details["field"], format!("retry_policy.{field}"));
    }
}

/// RETRY-14, EVOLVE-01: in a Task of rules 1 what is absent or null is unlimited, the word is stored
/// as null, and a Step's policy replaces the Task's as a whole. The stored form is that of then.
#[test]
fn by_the_first_rules_no_number_means_no_limit() {
    let tasks = json!({"max_lost": "unlimited", "max_attempts": 4, "schedule_to_start_ms": 100});
    let own = json!({"start_to_close_ms": 60_000, "non_retryable": []});
    let mut t = Fixture::by_first_rules(given(tasks, own), Policy::Auto);
    let whole = json!({"initial_ms": 1_000, "factor": 2.0, "max_ms": 60_000, "jitter": 0.1});
    assert_eq!(
        serde_json::to_value(tasks_policy(&t)).unwrap(),
        json!({"max_attempts": 4, "max_lost": null, "backoff": whole, "schedule_to_start_ms": 100})
    );
    let stored = json!({"max_attempts": null, "max_lost": null, "backoff": whole, "start_to_close_ms": 60_000});
    let of_step = &t.step("a").spec.retry_policy;
    assert_eq!(serde_json::to_value(of_step).unwrap(), stored);
    let a = t.grant("ant", POOL).unwrap();
    let attempts = &t.attempt_of(&a).retry_policy;
    assert_eq!(serde_json::to_value(attempts).unwrap(), stored, "nothing of the task's");
    assert_eq!(t.task.next_due(), Some(START + 100), "b alone waits for its worker");
    t.ok(update_task(json!({"max_attempts": "unlimited", "backoff": {"initial_ms": 5}})));
    let written = t.payload("task_updated")["operations"][0]["retry_policy"].clone();
    let backoff = json!({"initial_ms": 5, "factor": 2.0, "max_ms": 60_000, "jitter": 0.1});
    assert_eq!(written, json!({"max_attempts": null, "max_lost": null, "backoff": backoff}));
    t.ok(update_task(Json::Null));
    assert_eq!(t.task.head().spec.retry_policy, None, "null clears it");
}

/// RETRY-14, RETRY-12: a Task of rules 1 that is made again keeps what its policies meant.
#[test]
fn a_policy_of_the_first_rules_keeps_its_meaning() {
    let tasks = json!({"max_attempts": 4, "schedule_to_start_ms": 100});
    let own = json!({"start_to_close_ms": 60_000});
    let mut old = Fixture::by_first_rules(given(tasks, own), Policy::Auto);
    old.ok(cancel_task());
    let remade = |old: &Fixture| {
        let reason: ReasonInput = serde_json::from_value(json!({"message": "again"})).unwrap();
        let input = old
            .task
            .durable()
            .retry_input("t2".parse().unwrap(), &made_again(&reason), Rules::NEWEST)
            .unwrap();
        Fixture::create(input, Policy::Auto)
    };
    let mut new = remade(&old);
    assert_eq!(new.task.head().rules, Rules::Second);
    let tasks = tasks_policy(&new);
    let limits = (tasks.max_attempts, tasks.max_lost);
    assert_eq!(limits, (Some(Limit::Of(4)), Some(Limit::Unlimited)));
    assert_eq!(tasks.backoff(), Backoff::default());
    let steps = new.grant("ant", POOL).unwrap();
    let steps = new.attempt_of(&steps).retry_policy.clone().unwrap();
    let limits = (steps.max_attempts, steps.max_lost, steps.schedule_to_start_ms);
    assert_eq!(limits, (Some(Limit::Unlimited), Some(Limit::Unlimited), Some(Limit::Unlimited)));

    let mut old = Fixture::by_first_rules(create_input("a"), Policy::Auto);
    old.ok(update_task(Json::Null));
    old.ok(cancel_task());
    let tasks = tasks_policy(&remade(&old));
    let limits = (tasks.max_attempts, tasks.max_lost);
    assert_eq!(limits, (Some(Limit::Of(1)), Some(Limit::Unlimited)), "RETRY-01");
}

/// RETRY-12, CLAIM-13, POL-05: a Task of rules 1 that is made again keeps who may claim, and that it stops at once; in
/// a log that may not hold the second edition it stays as it is.
#[test]
fn a_task_of_the_first_rules_keeps_its_claimer_and_its_stop() {
    let mut input = create_input("a b");
    input.assignee = Some(agent_id("ann.b1"));
    input.steps[1].assignee = Some(agent_id("bob"));
    let mut old = Fixture::by_first_rules(input, Policy::Auto);
    old.ok(cancel_task());
    let reason: ReasonInput = serde_json::from_value(json!({"message": "again"})).unwrap();
    let remade = |rules| {
        let view = old.task.durable();
        view.retry_input("t2".parse().unwrap(), &made_again(&reason), rules).unwrap()
    };
    let new = remade(Rules::Second);
    assert_eq!((new.claim_only_by, new.on_failure), (Some(agent_id("ann")), Some(OnFailure::Stop)));
    let steps: Vec<_> = new.steps.iter().map(|step| step.claim_only_by.clone()).collect();
    assert_eq!(steps, [None, Some(agent_id("bob"))]);
    let first = remade(Rules::First);
    assert_eq!((&first.claim_only_by, first.on_failure), (&None, None));
    let limits = Limits::default().of_first_edition();
    assert!(Fixture::try_create(first, Policy::Auto, limits).is_ok(), "it names nothing new");
}

/// RETRY-02: a worker that fails may say how long a retry has to wait at least; `max_ms` does not cut
/// that.
#[test]
fn a_failure_may_name_the_shortest_wait() {
    let policy =
        json!({"max_attempts": 9, "backoff": {"initial_ms": 100, "max_ms": 200, "jitter": 0.0}});
    let mut t = with_policy("a", policy, Policy::Manual);
    let mut waits = |retry_after_ms: Option<u64>| {
        let held = t.claim("a");
        let report = StepReport { retry_after_ms, status: Some(Failed), ..held.says() };
        t.ok_as(&held.caller(), Command::TaskUpdateStep(report));
        let wait = t.step("a").state.not_before.unwrap() - t.now;
        t.due_at(t.now + wait + 1);
        wait
    };
    assert_eq!([waits(None), waits(Some(50)), waits(Some(3_600_000))], [100, 200, 3_600_000]);
}

/// RETRY-02: such a wait goes with a failure only, and is at most an hour.
#[test]
fn a_wait_that_cannot_be_is_refused() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    for (status, ms) in [(Some(Failed), 3_600_001), (Some(StepStatus::Blocked), 5), (None, 5)] {
        let report = StepReport { retry_after_ms: Some(ms), status, ..held.says() };
        let command = Command::TaskUpdateStep(report);
        let no = t.refuse_as(&held.caller(), command, Code::ValidationError);
        assert_eq!(no.details["field"], "retry_after_ms");
    }
}
