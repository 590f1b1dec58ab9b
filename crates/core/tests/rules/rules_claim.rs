//! CLAIM: who may claim which Step, under which Run, and what a claim makes.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common;
use common::*;
use std::sync::Arc;
use tenure_core::Code;
use tenure_core::command::create::CreateTask;
use tenure_core::command::{Grant, RunOutcome, StepReport};
use tenure_core::id::{HandlerName, Ref, RunId};
use tenure_core::patch::StepInput;
use tenure_core::record::{RetryPolicy, Value};
use tenure_core::status::{AttemptStatus, Policy, RunState, StepStatus, TaskStatus};
use tenure_core::task::Made;
use tenure_core::{Command, Limits, Rules};

/// CLAIM-01: an unknown Run is `run_not_found`, a Run of another pool `permission_denied`.
#[test]
fn a_claim_needs_a_known_run_of_the_askers_own_pool() {
    let mut t = Fixture::manual("a b@gpu");
    let unknown = RunId(uuid::Uuid::from_u128(99_999));
    t.refuse_as(
        &worker("ant", POOL, Some(unknown)),
        claim_command(unknown, "a"),
        Code::RunNotFound,
    );
    let run = t.dispatch("gpu");
    t.refuse_as(&worker("ant", POOL, Some(run)), claim_command(run, "b"), Code::PermissionDenied);
    let nowhere = caller_under("ant", run);
    t.refuse_as(&nowhere, claim_command(run, "b"), Code::PermissionDenied);
}

fn caller_under(agent: &str, run: RunId) -> tenure_core::Caller {
    let role = tenure_core::status::Role::Worker;
    tenure_core::Caller { run_id: Some(run), ..caller(agent, role) }
}

/// CLAIM-01, CLAIM-02, PERM-02, PERM-03: a worker claims under the Run of its envelope and no other,
/// and the event names both.
#[test]
fn a_claim_under_another_run_than_the_envelopes_is_denied() {
    let mut t = Fixture::manual("a b");
    let (own, other) = (t.dispatch(POOL), t.dispatch(POOL));
    let asker = worker("ant", POOL, Some(own));
    t.refuse_as(&asker, claim_command(other, "a"), Code::PermissionDenied);
    t.ok_as(&asker, claim_command(own, "a"));
    assert_eq!(t.actors(), ["ant"]);
    assert_eq!(t.payload("task_step_claimed")["run_id"], own.to_string());
}

/// RUN-01: a Run is of its Task: another Task does not know it.
#[test]
fn a_run_is_bound_to_its_task() {
    let mut one = Fixture::manual("a");
    let run = one.dispatch(POOL);
    let mut other = Fixture::create(
        CreateTask { task_id: Some("other".parse().unwrap()), ..create_input("a") },
        Policy::Manual,
    );
    let ant = worker("ant", POOL, Some(run));
    other.refuse_as(&ant, claim_command(run, "a"), Code::RunNotFound);
    one.ok_as(&ant, claim_command(run, "a"));
}

/// A Step under a lease is another's until the lease is judged; then it is claimed.
#[test]
fn expired_leases_are_judged_before_a_claim() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    let run = t.dispatch(POOL);
    let bee = t.member("bee", run);
    t.refuse_as(&bee, claim_command(run, "a"), Code::StepAlreadyClaimed);
    t.lose(&held);
    t.ok_as(&bee, claim_command(run, "a"));
}

/// CLAIM-01, DISP-16: a Run known to be taken by another worker is denied; after an owner change
/// nobody knows, and the first pool member to claim has it.
#[test]
fn a_run_that_another_worker_took_is_denied_until_the_owner_changes() {
    let mut t = Fixture::manual("a");
    let run = t.dispatch(POOL);
    assert!(t.takes(run, "ant"));
    assert!(!t.takes(run, "bee"), "taken once");
    assert_eq!(t.task.runs_to_take(&pool_id(POOL), t.now).count(), 0);
    let bee = t.member("bee", run);
    t.refuse_as(&bee, claim_command(run, "a"), Code::PermissionDenied);
    t.restart();
    assert_eq!(t.task.runs_to_take(&pool_id(POOL), t.now).count(), 1);
    t.ok_as(&bee, claim_command(run, "a"));
}

/// CLAIM-01, R05: a Run that ended with nothing claimed is `run_ended`.
#[test]
fn a_run_that_ended_claims_nothing() {
    let mut t = Fixture::manual("a");
    let run = t.dispatch(POOL);
    let ant = t.member("ant", run);
    t.ok_as(&ant, end_run(run, RunOutcome::Finished));
    t.refuse_as(&ant, claim_command(run, "a"), Code::RunEnded);

    let run = t.dispatch(POOL);
    let ant = t.member("ant", run);
    t.ok(cancel_run(run));
    t.refuse_as(&ant, claim_command(run, "a"), Code::RunEnded);

    let run = t.dispatch(POOL);
    let ant = t.member("ant", run);
    t.ok_as(&ant, decline_run(run));
    t.refuse_as(&ant, claim_command(run, "a"), Code::RunEnded);
}

/// CLAIM-01, DISP-02: a Run is valid until `expires_at`, judged or not.
#[test]
fn a_run_claims_until_it_expires_and_not_at_that_moment() {
    let mut t = Fixture::manual("a");
    let run = t.dispatch(POOL);
    let expires_at = t.run_of(run).expires_at.unwrap();
    assert_eq!(expires_at, t.now + 300_000);
    let ant = t.member("ant", run);
    let mut late = t.clone();
    late.now = expires_at - 1;
    late.refuse_as(&ant, claim_command(run, "a"), Code::RunEnded);
    t.now = expires_at - 2;
    t.ok_as(&ant, claim_command(run, "a"));
}

/// CLAIM-03, RUN-10: one claim for life, whatever became of the first Attempt.
#[test]
fn a_run_claims_once_in_its_life() {
    let mut t = Fixture::manual("a b");
    let held = t.claim("a");
    let again = claim_command(held.run_id, "b");
    t.refuse_as(&held.caller(), again.clone(), Code::StepAlreadyClaimedByRun);
    t.complete(&held);
    t.refuse_as(&held.caller(), again.clone(), Code::StepAlreadyClaimedByRun);
    let lost = t.claim("b");
    t.lose(&lost);
    t.refuse_as(&lost.caller(), claim_command(lost.run_id, "b"), Code::StepAlreadyClaimedByRun);
}

/// CLAIM-01: a Run that has made its claim answers by CLAIM-03 first, even to another worker and
/// after it ended.
#[test]
fn a_spent_run_says_so_before_anything_else() {
    let mut t = Fixture::manual("a b");
    let held = t.claim("a");
    t.complete(&held);
    let bee = t.member("bee", held.run_id);
    t.ok(block_task());
    let again = claim_command(held.run_id, "b");
    t.refuse_as(&bee, again, Code::StepAlreadyClaimedByRun);
}

/// CLAIM-05: a Step outside the pool, outside `allowed_step_ids`, deleted or unknown gets one and
/// the same answer.
#[test]
fn what_is_out_of_scope_cannot_be_told_from_what_does_not_exist() {
    let mut t = Fixture::manual("a b gone x@gpu");
    t.ok(patch(json!([{"op": "delete_step", "step_id": "gone"}])));
    let run = t.dispatch_for(POOL, Some(&["a"]));
    let ant = t.member("ant", run);
    let answers: Vec<String> = ["b", "x", "gone", "never"]
        .iter()
        .map(|step| {
            let no = t.refuse_as(&ant, claim_command(run, step), Code::StepOutOfScope);
            let details = serde_json::to_string(&no.details).unwrap();
            format!("{} {details}", no.message).replace(step, "*")
        })
        .collect();
    assert!(answers.windows(2).all(|w| w[0] == w[1]), "{answers:?}");
}

/// CLAIM-06, READY-03: in scope but not ready is `step_not_ready`, in every such status.
#[test]
fn a_step_that_is_not_ready_is_not_claimed() {
    for status in [
        StepStatus::Pending,
        StepStatus::Blocked,
        StepStatus::Completed,
        StepStatus::Failed,
        StepStatus::Cancelled,
    ] {
        let mut t = Fixture::manual("a b<-a");
        let step = if status == StepStatus::Pending { "b" } else { "a" };
        t.bring(step, status);
        let run = t.dispatch(POOL);
        let ant = t.member("ant", run);
        t.refuse_as(&ant, claim_command(run, step), Code::StepNotReady);
    }
}

/// CLAIM-07, CLAIM-08, CLAIM-09, CLAIM-10, LEASE-03: of many claims on one Step one succeeds; the
/// losers write nothing, and their Runs may claim another Step.
#[test]
fn of_many_claims_on_one_step_exactly_one_succeeds() {
    let mut t = Fixture::manual("a b");
    let runs: Vec<RunId> = (0..8).map(|_| t.dispatch(POOL)).collect();
    let won = t.claim_under("ant-0", runs[0], "a");
    let version = t.task.version();
    for (n, &run) in runs.iter().enumerate().skip(1) {
        let loser = t.member(&format!("ant-{n}"), run);
        t.refuse_as(&loser, claim_command(run, "a"), Code::StepAlreadyClaimed);
    }
    assert_eq!(t.task.version(), version);
    t.start(&won);
    let loser = t.member("ant-1", runs[1]);
    t.refuse_as(&loser, claim_command(runs[1], "a"), Code::StepAlreadyClaimed);
    t.ok_as(&loser, claim_command(runs[1], "b"));
}

/// CLAIM-11, ATT-01, STEP-04, LEASE-01, LEASE-13, R02: what a claim sets and writes.
#[test]
fn a_claim_opens_an_attempt_and_takes_a_lease() {
    let mut t = Fixture::manual("a");
    let run = t.dispatch_for(POOL, Some(&["a"]));
    let held = t.claim_under("ant", run, "a");
    assert_eq!(t.events(), ["task_step_claimed a"]);
    assert_eq!(t.actors(), ["ant"]);
    assert_eq!(t.last().events[0].run, Some(run));
    assert_eq!(t.status("a"), StepStatus::Claimed);
    assert_eq!(held.token, t.task.version());
    let (attempt, run) = (t.attempt_of(&held), t.run_of(held.run_id));
    assert_eq!(attempt.status, AttemptStatus::Claimed);
    assert_eq!(attempt.lease_expires_at, t.now + 30_000);
    assert_eq!((attempt.started_at, attempt.ordinal), (t.now, 1));
    assert_eq!(attempt.step_snapshot.title, "title of a");
    assert_eq!(attempt.step_snapshot.version, held.token - 1);
    assert_eq!(run.state, RunState::Active);
    assert_eq!(run.worker_id, Some(agent_id("ant")));
    let payload = t.payload("task_step_claimed");
    assert_eq!(payload["dispatched_by"], ORCHESTRATOR);
    assert_eq!(payload["allowed_step_ids"], json!(["a"]));
    assert_eq!(payload["fencing_token"], held.token);
    assert_eq!(payload["worker_pool_id"], POOL);
}

/// CLAIM-13: in a Task of rules 1 only the assignee of Task or Step may claim, and that is asked before
/// lease and readiness.
#[test]
fn by_rules_1_an_assigned_step_is_its_assignees_alone() {
    let by_rules_1 = |given, policy| {
        let limits = Limits { rules: Rules::First, ..Limits::default() };
        Fixture::try_create(given, policy, limits).unwrap()
    };
    let mut t = by_rules_1(create_input("a b<-a"), Policy::Manual);
    t.ok(patch(json!([
        {"op": "update_step", "step_id": "a", "fields": {"assignee": "bee"}},
        {"op": "update_step", "step_id": "b", "fields": {"assignee": "bee"}},
    ])));
    let run = t.dispatch(POOL);
    let ant = t.member("ant", run);
    t.refuse_as(&ant, claim_command(run, "b"), Code::PermissionDenied);
    t.refuse_as(&ant, claim_command(run, "a"), Code::PermissionDenied);
    let held = t.claim_by("bee", "a");
    t.refuse_as(&ant, claim_command(run, "a"), Code::PermissionDenied);
    t.complete(&held);

    let given = CreateTask { assignee: Some(agent_id("bee")), ..create_input("a") };
    let mut t = by_rules_1(given, Policy::Auto);
    assert!(t.grant("ant", POOL).is_none());
    assert!(t.grant("bee.boot1", POOL).is_none(), "the name of a worker is compared as a whole");
    assert!(t.grant("bee", POOL).is_some());
}

/// CLAIM-14, 2.4, ATT-09: an Attempt is given the refs of its input, of its dependencies' outputs
/// and artifacts, of Step and Task, and earlier checkpoints.
#[test]
fn a_claim_carries_everything_the_attempt_is_given() {
    let by_ref = |r: &str| serde_json::from_value::<Value>(json!({ "ref": r })).unwrap();
    let mut steps = dag("a b<-a");
    steps[1] = StepInput { input: Some(by_ref("mem:in")), ..steps[1].clone() };
    let given = CreateTask { steps, ..create_input("a") };
    let mut t = Fixture::create(given, Policy::Manual);
    let a = t.claim("a");
    t.ok_as(
        &a.caller(),
        Command::TaskUpdateStep(StepReport {
            status: Some(StepStatus::Completed),
            output: Some(by_ref("mem:out")),
            artifact_ids: vec!["art".parse().unwrap()],
            ..a.says()
        }),
    );
    let late = tenure_core::command::AppendProgress {
        input_refs: vec![Ref::new("mem:late").unwrap()],
        ..Default::default()
    };
    t.ok(Command::AppendTaskProgress(late));
    let first = t.claim("b");
    let given: Vec<_> = t.attempt_of(&first).input_refs.iter().map(Ref::to_string).collect();
    assert_eq!(given, ["mem:in", "mem:out", "art", "mem:late"]);
    t.ok_as(
        &first.caller(),
        Command::TaskUpdateStep(StepReport {
            checkpoint_refs: vec![Ref::new("mem:half").unwrap()],
            ..first.says()
        }),
    );
    t.fail(&first, "broken");
    t.ok(Command::TaskUpdateStep(StepReport {
        status: Some(StepStatus::Pending),
        input_refs: vec![Ref::new("mem:answer").unwrap()],
        ..StepReport::on(id("b"))
    }));
    let second = t.claim("b");
    let given: Vec<_> = t.attempt_of(&second).input_refs.iter().map(Ref::to_string).collect();
    assert_eq!(given, ["mem:in", "mem:out", "art", "mem:answer", "mem:late", "mem:half"]);
}

/// CLAIM-15, IDEM-01: a repeated claim returns the first result, ids and token included, and
/// writes nothing.
#[test]
fn a_repeated_claim_returns_the_first_result() {
    let mut t = Fixture::manual("a");
    let run = t.dispatch(POOL);
    let ant = t.member("ant", run);
    let envelope =
        Envelope { command_id: Some("c1".into()), digest: Some([1; 32]), ..Envelope::default() };
    let first = t.run_with(&ant, &claim_command(run, "a"), &envelope).unwrap();
    let held = t.held_of(&first);
    t.complete(&held);
    let again = t.run_with(&ant, &claim_command(run, "a"), &envelope).unwrap();
    assert!(again.commit.is_none());
    assert!(matches!(again.reply.made, Made::Attempt(_)));
    assert_eq!(again.reply.made, first.reply.made);
    assert_eq!(again.reply.written, first.reply.written);
    assert_eq!(again.reply.version, first.reply.version);
}

/// TASK-12, CLAIM-04, in the order of 5.2: `task_not_dispatchable` comes after the Run's own state and before
/// the Step's.
#[test]
fn claims_are_checked_in_the_order_of_the_table() {
    let mut t = Fixture::manual("a b<-a");
    let (run, ended) = (t.dispatch(POOL), t.dispatch(POOL));
    t.ok(cancel_run(ended));
    t.ok(Command::PauseTask(Default::default()));
    let (ant, late) = (t.member("ant", run), t.member("ant", ended));
    t.refuse_as(&late, claim_command(ended, "never"), Code::RunEnded);
    let no = t.refuse_as(&ant, claim_command(run, "never"), Code::TaskNotDispatchable);
    assert_eq!(no.details["status"], "paused");
    t.ok(Command::ResumeTask(Default::default()));
    t.refuse_as(&ant, claim_command(run, "never"), Code::StepOutOfScope);
    t.refuse_as(&ant, claim_command(run, "b"), Code::StepNotReady);
    t.ok(cancel_task());
    t.refuse_as(&ant, claim_command(run, "a"), Code::TaskTerminal);
}

/// TASK-12: in draft, blocked and paused Tasks nothing is claimed, also under Runs of earlier.
#[test]
fn a_task_that_stands_still_gives_no_steps() {
    let mut t = Fixture::manual("a");
    let run = t.dispatch(POOL);
    let ant = t.member("ant", run);
    t.ok(block_task());
    t.refuse_as(&ant, claim_command(run, "a"), Code::TaskNotDispatchable);
    t.ok(Command::ReopenTask(Default::default()));
    t.ok_as(&ant, claim_command(run, "a"));
}

/// DISP-14, DISP-15: a grant goes to the oldest ready Step of the pool that the worker can run, as
/// a Run born in its claim with that Step as its scope.
#[test]
fn a_grant_is_the_oldest_step_that_the_worker_can_run() {
    let mut steps = dag("a b c d@gpu");
    let handled = |name: &str| Some(HandlerName::new(name).unwrap());
    for (at, name) in [(0, "cut"), (1, "sew"), (2, "cut")] {
        steps[at] = StepInput { handler: handled(name), ..steps[at].clone() };
    }
    let given = CreateTask { steps, ..create_input("a") };
    let mut t = Fixture::create(given, Policy::Auto);
    assert_eq!(t.task.ready_in(&pool_id(POOL)), 3);
    assert_eq!(t.task.ready_in(&pool_id("gpu")), 1);
    let mut grant = |handlers: Option<Vec<&str>>| {
        let handlers = handlers.map(|h| h.iter().map(|n| handled(n).unwrap()).collect());
        let (worker_id, worker_pool_id) = (agent_id("ant"), pool_id(POOL));
        t.ok_as(
            &system(),
            Command::GrantStep(Grant {
                worker_id,
                worker_pool_id,
                origin: None,
                handlers,
                may_be_suspect: true,
            }),
        )
    };
    assert!(grant(Some(vec!["wash"])).commit.is_none());
    let first = grant(None);
    let second = grant(Some(vec!["sew", "wash"]));
    assert!(grant(Some(vec!["sew"])).commit.is_none());
    let third = grant(Some(vec!["sew", "cut"]));
    assert!(grant(None).commit.is_none());
    let held: Vec<String> = [first, second, third].iter().map(|o| t.held_of(o).step_id).collect();
    assert_eq!(held, ["a", "b", "c"]);
    let claim = t.payload("task_step_claimed");
    assert_eq!(claim["dispatched_by"], "system");
    assert_eq!(claim["allowed_step_ids"], json!(["c"]));
    assert_eq!(t.actors(), ["ant"]);
    assert_eq!(t.run_of(t.task.attempt_at(2).run_id).expires_at, None);
}

/// DISP-03, DISP-14: a manual Task grants nothing by itself, nor does one that stands still.
#[test]
fn a_grant_needs_an_automatic_task_that_runs() {
    let mut t = Fixture::manual("a");
    assert!(t.grant("ant", POOL).is_none());
    assert_eq!(t.task.open_pools().count(), 0);
    let mut t = Fixture::auto("a");
    assert_eq!(t.task.open_pools().collect::<Vec<_>>(), [(&pool_id(POOL), 1)]);
    t.ok(block_task());
    assert!(t.grant("ant", POOL).is_none());
    assert_eq!(t.task.open_pools().count(), 0);
}

/// A worker that bears the scheduler's name is granted nothing: its events would pass for the
/// scheduler's own.
#[test]
fn nobody_is_granted_a_step_as_the_scheduler() {
    let mut t = Fixture::auto("a");
    let (worker_id, worker_pool_id) = (agent_id("system"), pool_id(POOL));
    let grant = Command::GrantStep(Grant {
        worker_id,
        worker_pool_id,
        origin: None,
        handlers: None,
        may_be_suspect: true,
    });
    t.refuse_as(&system(), grant, Code::ValidationError);
}

/// LEASE-02: the lease lasts as the limits say, unless the policy in force says otherwise.
#[test]
fn a_policys_heartbeat_is_the_lease_instead() {
    let limits = Limits { lease_ms: 5_000, ..Limits::default() };
    let policy = RetryPolicy { heartbeat_ms: Some(1_700), ..RetryPolicy::default() };
    let mut steps = dag("a b");
    steps[1] = StepInput { retry_policy: Some(Arc::new(policy)), ..steps[1].clone() };
    let given = CreateTask { steps, ..create_input("a") };
    let mut t = Fixture::try_create(given, Policy::Manual, limits).unwrap();
    let a = t.claim("a");
    assert_eq!(t.attempt_of(&a).lease_expires_at, t.now + 5_000);
    let b = t.claim("b");
    assert_eq!(t.attempt_of(&b).lease_expires_at, t.now + 1_700);
    t.start(&b);
    assert_eq!(t.attempt_of(&b).lease_expires_at, t.now + 1_700);
    assert_eq!(t.task_status(), TaskStatus::Running);
}

/// LEASE-02: a policy that asks for a lease of a millisecond gets one of a second: its Step would otherwise be given
/// out and lost some hundred times a second. The lease of the cluster itself may be shorter.
#[test]
fn no_policy_makes_a_lease_that_nobody_can_renew() {
    let limits = Limits { lease_ms: 400, ..Limits::default() };
    let mut steps = dag("a b c");
    for (at, heartbeat_ms) in [(1, 1), (2, 1_001)] {
        let policy = RetryPolicy { heartbeat_ms: Some(heartbeat_ms), ..RetryPolicy::default() };
        steps[at] = StepInput { retry_policy: Some(Arc::new(policy)), ..steps[at].clone() };
    }
    let given = CreateTask { steps, ..create_input("a") };
    let mut t = Fixture::try_create(given, Policy::Manual, limits).unwrap();
    for (step, lasts) in [("a", 400), ("b", 1_000), ("c", 1_001)] {
        let held = t.claim(step);
        assert_eq!(t.attempt_of(&held).lease_expires_at, t.now + lasts);
        t.start(&held);
        assert_eq!(t.attempt_of(&held).lease_expires_at, t.now + lasts, "a report renews it");
    }
}

/// LEASE-02, P30: on a log with replicas a shorter lease acts as one of 15 s, whoever asks for it.
#[test]
fn no_lease_is_shorter_than_an_election() {
    let limits = Limits { lease_ms: 5_000, ..Limits::default() }.on_replicated_log();
    let mut steps = dag("a b c");
    for (at, heartbeat_ms) in [(1, 700), (2, 20_000)] {
        let policy = RetryPolicy { heartbeat_ms: Some(heartbeat_ms), ..RetryPolicy::default() };
        steps[at] = StepInput { retry_policy: Some(Arc::new(policy)), ..steps[at].clone() };
    }
    let given = CreateTask { steps, ..create_input("a") };
    let mut t = Fixture::try_create(given, Policy::Manual, limits).unwrap();
    for (step, lasts) in [("a", 15_000), ("b", 15_000), ("c", 20_000)] {
        let held = t.claim(step);
        assert_eq!(t.attempt_of(&held).lease_expires_at, t.now + lasts);
        t.start(&held);
        assert_eq!(t.attempt_of(&held).lease_expires_at, t.now + lasts, "a report renews it");
    }
}
