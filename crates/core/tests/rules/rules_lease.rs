//! LEASE: how a lease ends without a word, and what becomes of its Step.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common;
use common::*;
use tenure_core::command::{GiveBack, Grant, RetrySteps, RunOutcome};
use tenure_core::event::{LeaseEnd, ReleaseReason};
use tenure_core::id::AgentId;
use tenure_core::status::{EndReason, Outcome, Policy, RunState, StepStatus};
use tenure_core::view::claim_result;
use tenure_core::{Code, Command};

/// LEASE-07, LEASE-08, LEASE-09, LEASE-10, S11, A07, R10: the Attempt is lost and the Step ready again, in one
/// commit of the scheduler's.
#[test]
fn an_expired_lease_loses_the_attempt_and_offers_the_step_again() {
    for started in [false, true] {
        let mut t = Fixture::manual("a");
        let held = t.claim("a");
        if started {
            t.start(&held);
        }
        t.lose(&held);
        assert_eq!(t.events(), ["task_step_lease_expired a", "task_step_ready a"]);
        assert_eq!(t.actors(), ["system", "system"]);
        let state = &t.step("a").state;
        assert_eq!((state.current, state.lost_count, state.attempt_count), (None, 1, 0));
        let (attempt, run) = (t.attempt_of(&held), t.run_of(held.run_id));
        assert_eq!(attempt.outcome, Some(Outcome::Lost));
        assert_eq!(attempt.error.as_ref().unwrap().code, "lease_expired");
        assert_eq!((run.state, run.end_reason), (RunState::Ended, Some(EndReason::Lost)));
        let payload = t.payload("task_step_lease_expired");
        assert_eq!(payload["run_id"], held.run_id.to_string());
        assert_eq!(payload["lost_count"], 1);
        assert_eq!(payload["reason"], "lease_expired");
    }
}

/// LEASE-10, STEP-26: where dependencies no longer hold, the Step stays pending.
#[test]
fn a_lost_step_whose_dependencies_changed_waits_for_them() {
    let mut t = Fixture::manual("a b");
    let held = t.claim("a");
    let operation = json!([{"op": "add_dependency", "step_id": "a", "depends_on_step_id": "b"}]);
    t.ok(patch(operation));
    t.lose(&held);
    assert_eq!(t.events(), ["task_step_lease_expired a"]);
    assert_eq!(t.statuses("a b"), "a:pending b:ready");
}

/// LEASE-11, LEASE-13, ATT-04, ATT-05: the next claim is a new Attempt with a greater token.
#[test]
fn every_new_claim_has_a_greater_token_and_the_next_ordinal() {
    let mut t = Fixture::manual("a");
    let mut last = 0;
    for ordinal in 1..=4 {
        let held = t.claim("a");
        assert!(held.token > last);
        assert_eq!(held.token, t.task.version());
        assert_eq!(t.attempt_of(&held).ordinal, ordinal);
        last = held.token;
        t.lose(&held);
    }
}

/// LEASE-12, TASK-16, WAL-11: any number of losses ends no Task, and what is lost already writes
/// nothing.
#[test]
fn losses_alone_end_no_task_and_are_written_once() {
    let mut t = Fixture::manual("a");
    for _ in 0..20 {
        let held = t.claim("a");
        t.lose(&held);
        let version = t.task.version();
        t.lose(&held);
        assert_eq!(t.task.version(), version);
    }
    assert_eq!(t.status("a"), StepStatus::Ready);
}

/// K11, LEASE-06: several leases end in one commit, Steps in creation order.
#[test]
fn leases_that_end_together_are_one_commit_in_creation_order() {
    let mut t = Fixture::manual("a b c");
    let (c, a) = (t.claim("c"), t.claim("a"));
    t.ok_as(&system(), expire(&[&c, &a, &c], LeaseEnd::LeaseExpired));
    assert_eq!(
        t.events(),
        [
            "task_step_lease_expired a",
            "task_step_lease_expired c",
            "task_step_ready a",
            "task_step_ready c"
        ]
    );
}

/// S12, RETRY-08: the loss that uses up `max_lost` fails the Step, with code `lost` and no retry.
#[test]
fn the_last_loss_fails_the_step() {
    let mut t = with_policy("a", json!({"max_lost": 2, "max_attempts": 9}), Policy::Manual);
    let held = t.claim("a");
    t.lose(&held);
    assert_eq!(t.status("a"), StepStatus::Ready);
    let held = t.claim("a");
    t.lose(&held);
    assert_eq!(t.events(), ["task_step_lease_expired a", "task_step_failed a"]);
    assert_eq!((t.status("a"), t.code_of("a")), (StepStatus::Failed, "lost"));
    assert_eq!(t.attempt_of(&held).outcome, Some(Outcome::Lost));
}

/// S26, A13, R12, LEASE-09, LEASE-18, RETRY-03, 2.5: a Step given back counts in no budget, and was not tried; the
/// event is its holder's.
#[test]
fn a_step_given_back_counts_for_nothing() {
    let mut t = with_policy("a", json!({"max_lost": 1, "max_attempts": 1}), Policy::Manual);
    for _ in 0..5 {
        let held = t.claim("a");
        t.ok_as(&held.caller(), held.gives_back(GiveBack::because(ReleaseReason::Surplus)));
        assert_eq!(t.events(), ["task_step_lease_expired a", "task_step_ready a"]);
        assert_eq!(t.actors(), ["ant", "system"]);
        assert_eq!(t.last().events[0].run, Some(held.run_id));
        assert_eq!(t.attempt_of(&held).outcome, Some(Outcome::Abandoned));
        assert_eq!(t.attempt_of(&held).error.as_ref().unwrap().code, "released");
        assert_eq!(t.run_of(held.run_id).end_reason, Some(EndReason::Released));
        let state = &t.step("a").state;
        assert_eq!((state.lost_count, state.attempt_count), (0, 0));
    }
    t.claim("a");
    let view = t.task.durable();
    let step = view.step(&id("a")).unwrap();
    assert_eq!((view.attempts_of(step).count(), view.tries_of(step).count()), (6, 1));
}

/// S26, LEASE-15: a grant that reached nobody, and the Attempts of an earlier boot, end the same
/// way by the scheduler.
#[test]
fn a_lease_ended_by_the_host_counts_for_nothing() {
    for why in [LeaseEnd::Released, LeaseEnd::HostRestarted] {
        let mut t = with_policy("a", json!({"max_lost": 1}), Policy::Manual);
        let held = t.claim("a");
        t.ok_as(&system(), expire(&[&held], why));
        assert_eq!(t.status("a"), StepStatus::Ready);
        assert_eq!(t.actors(), ["system", "system"]);
        assert_eq!(t.attempt_of(&held).outcome, Some(Outcome::Abandoned));
        assert_eq!(t.attempt_of(&held).error.as_ref().unwrap().code, why.as_str());
        assert_eq!(t.step("a").state.lost_count, 0);
    }
}

/// S26, S11, S12, LEASE-07, RETRY-08: a grant that its worker has not acknowledged is no loss; but a Step that ends
/// each worker before that would be given out for ever: the fifth in a row is a loss, and each after it.
#[test]
fn a_step_that_nobody_acknowledges_is_lost_in_the_end() {
    let mut t = Fixture::auto("a");
    let unacknowledged =
        |held: &Held| Command::Unacknowledged { attempt_ids: vec![held.attempt_id] };
    let mut lost = Vec::new();
    for n in 0..7 {
        let held = t.grant("ant", POOL).unwrap();
        t.ahead(&system(), &unacknowledged(&held)); // Its append fails, and counts nothing.
        t.task.abort();
        t.ok_as(&system(), unacknowledged(&held));
        lost.push(t.step("a").state.lost_count);
        assert_eq!(t.attempt_of(&held).outcome == Some(Outcome::Lost), n >= 4, "{n}");
    }
    assert_eq!(lost, [0, 0, 0, 0, 1, 2, 3]);
    assert_eq!(t.task_status(), tenure_core::status::TaskStatus::Failed);
    let why = t.step("a").state.facts().status_reason.as_ref().map(|reason| reason.code.clone());
    assert_eq!(why.as_deref(), Some("lost"));
}

/// S26: one that is acknowledged in between begins the count anew, and what has ended is passed over.
#[test]
fn grants_that_nobody_acknowledges_count_in_a_row_only() {
    let mut t = Fixture::auto("a b");
    for round in 0..3 {
        for _ in 0..4 {
            let held = t.grant("ant", POOL).unwrap();
            t.ok_as(&system(), Command::Unacknowledged { attempt_ids: vec![held.attempt_id] });
            let again = Command::Unacknowledged { attempt_ids: vec![held.attempt_id] };
            assert!(t.run(&system(), &again).unwrap().commit.is_none(), "it is over");
        }
        let held = t.grant("ant", POOL).unwrap();
        t.ok_as(&held.caller(), held.releases());
        assert_eq!(t.step("a").state.lost_count, 0, "{round}");
    }
}

/// 5.4 `release_step`: only the holder, only while current.
#[test]
fn only_the_holder_gives_a_step_back() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    t.refuse_as(&worker("bee", POOL, None), held.releases(), Code::PermissionDenied);
    let wrong = GiveBack::default().of(held.attempt_id, held.token + 1);
    t.refuse_as(&held.caller(), wrong, Code::StaleAttempt);
    t.ok_as(&held.caller(), held.releases());
    t.refuse_as(&held.caller(), held.releases(), Code::StaleAttempt);
    let unknown = tenure_core::id::AttemptId(uuid::Uuid::from_u128(12_345));
    let unknown = GiveBack::default().of(unknown, 1);
    t.refuse_as(&held.caller(), unknown, Code::StaleAttempt);
    t.ok(cancel_task());
    t.refuse_as(&held.caller(), held.releases(), Code::TaskTerminal);
    t.refuse_as(&worker("bee", POOL, None), held.releases(), Code::PermissionDenied);
}

/// TASK-07: leases end in blocked and paused Tasks too, and the Step is kept ready for later.
#[test]
fn leases_end_while_the_task_stands_still() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    t.ok(block_task());
    t.lose(&held);
    assert_eq!(t.events(), ["task_step_lease_expired a", "task_step_ready a"]);
}

/// LEASE-05: the version does not change by the passing of time alone; nothing falls due by a
/// lease in the core.
#[test]
fn a_lease_by_itself_is_no_timer() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    assert_eq!(t.task.next_due(), None);
    t.wait_ms(10_000_000);
    t.judge_due();
    assert_eq!(t.attempt_of(&held).outcome, None);
}

/// A Step, given back again and again without jitter.
fn unfit() -> Fixture {
    let backoff = json!({"initial_ms": 100, "factor": 2.0, "max_ms": 350, "jitter": 0.0});
    with_policy("a", json!({"max_attempts": 1, "backoff": backoff}), Policy::Manual)
}

fn gives_back(t: &mut Fixture, how: GiveBack) -> Option<i64> {
    let held = t.claim("a");
    t.ok_as(&held.caller(), held.gives_back(how));
    t.step("a").state.not_before.map(|at| at - t.now)
}

/// Brings a Step that waits to be ready.
fn wait_out(t: &mut Fixture) {
    let at = t.step("a").state.not_before.unwrap();
    t.due_at(at);
    assert_eq!(t.events(), ["task_step_ready a"]);
}

/// LEASE-18, RETRY-06: a Step that no worker is fit for waits from the second time in a row on, longer each
/// time, counts as no failure, and is not given out before; replay knows the wait from the event.
#[test]
fn a_step_that_no_worker_is_fit_for_waits() {
    let mut t = unfit();
    assert_eq!(gives_back(&mut t, GiveBack::default()), None);
    assert_eq!(t.events(), ["task_step_lease_expired a", "task_step_ready a"]);
    for wait in [100, 200, 350, 350] {
        assert_eq!(gives_back(&mut t, GiveBack::default()), Some(wait));
        assert_eq!(t.events(), ["task_step_lease_expired a"]);
        let payload = t.payload("task_step_lease_expired");
        assert_eq!(
            (&payload["reason"], &payload["release_reason"]),
            (&json!("released"), &json!("unfit"))
        );
        assert_eq!(payload["not_before"], json!(t.now + wait));
        t.restart();
        assert_eq!(t.step("a").state.not_before, Some(t.now + wait));
        wait_out(&mut t);
    }
    let state = &t.step("a").state;
    assert_eq!((state.attempt_count, state.lost_count, state.status), (0, 0, StepStatus::Ready));
}

/// LEASE-18: where no policy is given the wait is the default's; a Run that ends as cancelled though nobody
/// asked gives its Step back the same way (RUN-05).
#[test]
fn without_a_policy_the_wait_is_that_of_the_default() {
    let mut t = Fixture::manual("a");
    for seen in [false, true] {
        let held = t.claim("a");
        t.ok_as(&held.caller(), held.ends(RunOutcome::Cancelled));
        assert_eq!(t.step("a").state.not_before.is_some(), seen);
    }
    let wait = t.step("a").state.not_before.unwrap() - t.now;
    assert!((500..=1_000).contains(&wait), "{wait}");
}

/// Has an Attempt end.
type Ends<'a> = &'a dyn Fn(&mut Fixture, &Held);

/// LEASE-18: only `unfit` counts, and any other end of an Attempt starts anew.
#[test]
fn other_reasons_count_nothing_and_start_anew() {
    let given_back = |reason| {
        move |t: &mut Fixture, held: &Held| {
            t.ok_as(&held.caller(), held.gives_back(GiveBack::because(reason)));
        }
    };
    let others: [Ends<'_>; 7] = [
        &given_back(ReleaseReason::Draining),
        &given_back(ReleaseReason::Surplus),
        &given_back(ReleaseReason::Fenced),
        &|t, held| {
            let (attempt_ids, reason) = (vec![held.attempt_id], LeaseEnd::Released);
            t.ok_as(&system(), Command::ExpireLeases { attempt_ids, reason });
        },
        &|t, held| {
            t.ok_as(&system(), Command::Unacknowledged { attempt_ids: vec![held.attempt_id] });
        },
        &|t, held| t.lose(held),
        &|t, held| {
            t.fail(held, "broken");
            let again = reason("again", "its disk has room");
            t.ok(Command::RetryTask(RetrySteps { reason: again, step_ids: None }));
        },
    ];
    for other in others {
        let mut t = unfit();
        assert_eq!(gives_back(&mut t, GiveBack::default()), None);
        for _ in 0..3 {
            let held = t.claim("a");
            other(&mut t, &held);
            assert_eq!((t.status("a"), t.step("a").state.not_before), (StepStatus::Ready, None));
        }
        assert_eq!(gives_back(&mut t, GiveBack::default()), None);
        assert_eq!(gives_back(&mut t, GiveBack::default()), Some(100));
    }
}

/// LEASE-18: a worker may say how long the Step is to wait at least; more than an hour is refused, and the
/// Attempt stays its own.
#[test]
fn a_worker_says_how_long_the_step_waits_at_least() {
    let mut t = unfit();
    let least = |reason, ms| GiveBack { reason, retry_after_ms: Some(ms) };
    let held = t.claim("a");
    let long = held.gives_back(least(ReleaseReason::Unfit, 3_600_001));
    t.refuse_as(&held.caller(), long, Code::ValidationError);
    t.ok_as(&held.caller(), held.gives_back(least(ReleaseReason::Unfit, 3_600_000)));
    assert_eq!(t.step("a").state.not_before, Some(t.now + 3_600_000));
    wait_out(&mut t);
    assert_eq!(gives_back(&mut t, least(ReleaseReason::Unfit, 70)), Some(100));
    wait_out(&mut t);
    assert_eq!(gives_back(&mut t, least(ReleaseReason::Unfit, 270)), Some(270));
    wait_out(&mut t);
    assert_eq!(gives_back(&mut t, least(ReleaseReason::Draining, 30)), Some(30));
    wait_out(&mut t);
    assert_eq!(gives_back(&mut t, GiveBack::default()), None);
}

/// LEASE-19, S11, S12: Steps that were lost with one worker name each other, in the log and in the reason of
/// the failure; what was lost with another is not named.
#[test]
fn steps_that_were_lost_together_name_each_other() {
    let policy = json!({"max_lost": 1});
    let mut t = with_policy("a b c", policy, Policy::Manual);
    let (a, b) = (t.claim("a"), t.claim("b"));
    let other = t.claim_by("bee", "c");
    t.ok_as(&system(), expire(&[&other, &b, &a], LeaseEnd::LeaseExpired));
    let named = |t: &Fixture, held: &Held| {
        let error = t.attempt_of(held).error.clone().unwrap();
        error.details.clone().map(|details| details["lost_with"].clone())
    };
    assert_eq!(named(&t, &a), Some(json!(["b"])));
    assert_eq!(named(&t, &b), Some(json!(["a"])));
    assert_eq!(named(&t, &other), None);
    let why = t.step("a").state.facts().status_reason.clone().unwrap();
    assert_eq!((why.code.as_str(), &why.details.unwrap()["lost_with"]), ("lost", &json!(["b"])));
    t.restart();
    assert_eq!(named(&t, &a), Some(json!(["b"])));
}

/// LEASE-19, DISP-18: a worker that has a Step in hand that was lost before gets those that were not; what is
/// to be minded of the next one is told.
#[test]
fn what_is_to_be_minded_of_the_next_step_is_told() {
    let mut t = Fixture::auto("a b c");
    let names = |ids: &[AgentId]| ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    let next_step_needs = |t: &Fixture, worker: &str| {
        let next_step_needs =
            t.task.next_step_needs(&agent_id(worker), &pool_id(POOL), None, false);
        next_step_needs
            .map(|next_step_needs| (next_step_needs.was_lost, names(&next_step_needs.tried)))
    };
    assert_eq!(next_step_needs(&t, "ant"), None);
    let beside_suspect =
        t.task.next_step_needs(&agent_id("ant"), &pool_id(POOL), None, true).unwrap();
    assert!(!beside_suspect.was_lost && beside_suspect.tried.is_empty());
    let held = t.grant("ant", POOL).unwrap();
    t.lose(&held);
    assert_eq!(next_step_needs(&t, "ant"), Some((true, "ant".into())));
    assert_eq!(next_step_needs(&t, "bee"), Some((true, "ant".into())));
    let held = t.grant("bee", POOL).unwrap();
    t.lose(&held);
    let (worker_id, worker_pool_id) = (agent_id("bee"), pool_id(POOL));
    let grant =
        Grant { worker_id, worker_pool_id, origin: None, handlers: None, may_be_suspect: false };
    t.ok_as(&system(), Command::GrantStep(grant));
    assert_eq!(t.statuses("a b c"), "a:ready b:claimed c:ready");
    let held = t.grant("cat", POOL).unwrap();
    assert_eq!(held.step_id, "a");
    t.ok_as(&held.caller(), held.releases());
    assert_eq!(next_step_needs(&t, "bee"), Some((true, "cat bee ant".into())), "one was not fit");
}

/// LEASE-19, CLAIM-14: a claim says that its Step was lost, since its creation or its last explicit reopen.
#[test]
fn a_claim_says_that_its_step_was_lost() {
    let mut t = with_policy("a", json!({"max_attempts": 1}), Policy::Manual);
    let was_lost = |t: &Fixture, held: &Held| {
        claim_result(&t.task.durable(), held.attempt_id).unwrap().was_lost
    };
    let first = t.claim("a");
    assert!(!was_lost(&t, &first));
    t.lose(&first);
    let second = t.claim("a");
    assert!(was_lost(&t, &second));
    t.fail(&second, "broken");
    t.ok(t.patch(json!([{"op": "reopen_step", "step_id": "a"}])));
    let third = t.claim("a");
    assert!(!was_lost(&t, &third));
}
