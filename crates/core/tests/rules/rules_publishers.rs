//! What publishers and orchestrators rely on: guards of what is specified, creates that several replicas send,
//! and who alone may claim.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use tenure_core::command::create::{CreateTask, Defaults};
use tenure_core::command::{RetrySteps, Why};
use tenure_core::creation::Creation;
use tenure_core::id::{CommandId, Digest, DigestForm, TaskId};
use tenure_core::status::{Policy, Role, StepStatus, TaskStatus};
use tenure_core::view::explain::ForWhom;
use tenure_core::view::query::QueryInput;
use tenure_core::view::summary::TaskSummary;
use tenure_core::view::{explain, get_task, graph, query_steps, write_summary};
use tenure_core::{Caller, Code, Command, Cx, Limits, Outcome, Rejection, Rules};

use crate::common::ops::{add, cancel, reopen, update};
use crate::common::*;
use crate::views::{as_json, known};

// ---- OCC-07

fn at_spec(version: u64) -> Envelope {
    Envelope { expected_spec_version: Some(version), ..Envelope::default() }
}

fn spec_version(t: &Fixture) -> u64 {
    assert_eq!(t.replayed().head().spec_version, t.task.head().spec_version, "the log says it");
    t.task.durable().spec_version()
}

fn retitle(title: &str) -> Command {
    patch(json!([{"op": "update_task", "title": title}]))
}

/// OCC-07: a Task at work changes its version all the time, and still takes a patch by whoever has read what
/// orchestrators last wrote. (A real Task refused ten of ten patches that named its version.)
#[test]
fn a_task_at_work_takes_patches_of_what_was_specified() {
    let mut t = Fixture::manual("a b c d e");
    for step in ["a", "b", "c", "d", "e"] {
        let (version, spec) = (t.task.version(), spec_version(&t));
        let held = t.claim(step);
        t.start(&held);
        let no = Envelope { expected_version: Some(version), ..Envelope::default() };
        let no = t.run_with(&orchestrator(), &retitle(step), &no).unwrap_err();
        assert_eq!(no.code, Code::VersionConflict, "the work has changed the version");
        let reply = t.run_with(&orchestrator(), &retitle(step), &at_spec(spec)).unwrap().reply;
        assert_eq!(reply.spec_version, Some(spec_version(&t)), "the answer tells it");
        assert_eq!(spec_version(&t), t.task.version(), "the patch is what was specified last");
        t.complete(&held);
    }
    assert!(spec_version(&t) < t.task.version());
}

/// OCC-07: a mismatch is `version_conflict` with both versions, and writes nothing; of two guards both hold.
#[test]
fn a_command_may_expect_what_is_specified() {
    let mut t = Fixture::manual("a b");
    t.claim("a");
    let (version, spec) = (t.task.version(), spec_version(&t));
    for wrong in [spec - 1, spec + 1, version] {
        let no = t.run_with(&orchestrator(), &retitle("x"), &at_spec(wrong)).unwrap_err();
        assert_eq!(no.code, Code::VersionConflict);
        assert_eq!(no.details["current_spec_version"], spec);
        assert_eq!(no.details["expected_spec_version"], wrong);
        assert_eq!(no.details["current_version"], version);
        assert!(!no.details.contains_key("expected_version"), "it expected none");
    }
    let both = |version, spec| Envelope { expected_version: Some(version), ..at_spec(spec) };
    for (version, spec) in [(version, spec + 1), (version - 1, spec)] {
        let no = t.run_with(&orchestrator(), &retitle("x"), &both(version, spec)).unwrap_err();
        assert_eq!(no.code, Code::VersionConflict);
    }
    t.run_with(&orchestrator(), &retitle("x"), &both(version, spec)).unwrap();
}

/// OCC-07: what counts is what an orchestrator specifies, whoever writes it; not what workers report, what
/// follows from it, or what the scheduler decides.
#[test]
fn what_is_specified_is_what_orchestrators_write() {
    let policy = json!({"max_attempts": 2, "backoff": {"initial_ms": 0, "jitter": 0.0}});
    let mut t = with_policy("a b c d<-b e", policy, Policy::Manual);
    let counts = |t: &mut Fixture, does: bool, act: &dyn Fn(&mut Fixture)| {
        let before = spec_version(t);
        act(t);
        let events: Vec<_> = t.events();
        assert_eq!(spec_version(t) > before, does, "{events:?}");
    };
    assert_eq!(spec_version(&t), 1, "its creation counts");
    counts(&mut t, false, &|t| t.do_step("a"));
    counts(&mut t, true, &|t| drop(t.ok(patch(json!([add("f", &[])])))));
    counts(&mut t, true, &|t| drop(t.ok(Command::PauseTask(Why::default()))));
    counts(&mut t, true, &|t| drop(t.ok(Command::ResumeTask(Why::default()))));
    counts(&mut t, true, &|t| drop(t.ok(block_task())));
    counts(&mut t, true, &|t| drop(t.ok(Command::ReopenTask(Why::default()))));
    counts(&mut t, false, &|t| {
        let held = t.claim("b");
        t.fail(&held, "flaky");
        assert!(t.events().contains(&"task_step_reopened b".into()), "the policy reopens it");
    });
    counts(&mut t, false, &|t| {
        let held = t.claim("b");
        t.fail(&held, "flaky");
        assert_eq!(t.status("b"), StepStatus::Failed);
    });
    let retry = RetrySteps { reason: reason("again", ""), step_ids: Some(vec![id("b")]) };
    counts(&mut t, true, &|t| drop(t.ok(Command::RetryTask(retry.clone()))));
    assert!(!t.events().contains(&"task_updated".into()), "the reopening itself counts");
    counts(&mut t, true, &|t| t.write("f", StepStatus::Cancelled));
    assert!(!t.events().contains(&"task_updated".into()), "and so does the cancelling");
    counts(&mut t, false, &|t| {
        let held = t.claim("c");
        t.report(&held, StepStatus::Cancelled);
    });
    counts(&mut t, false, &|t| t.bring("e", StepStatus::Blocked));
    counts(&mut t, true, &|t| drop(t.ok(patch(json!([reopen("e")])))));
    t.claim("e");
    counts(&mut t, true, &|t| drop(t.ok(cancel_task())));
    let mut t = Fixture::draft("a");
    counts(&mut t, true, &|t| drop(t.ok(Command::SubmitTask(Why::default()))));
    assert_eq!(t.payload("task_submitted")["from"], "draft");
}

/// OCC-07: the last word of a patch is its last event: a patch that cancels a Step ends there.
#[test]
fn what_a_patch_does_by_events_of_its_own_counts() {
    let mut t = Fixture::manual("a b");
    t.ok(patch(json!([cancel("b")])));
    assert_eq!(t.events(), ["task_updated", "task_step_cancelled b"]);
    assert_eq!(spec_version(&t), t.task.version());
}

/// OCC-07: Tasks of rules 1 have it, too; every view that tells the version to orchestrators tells it, and
/// none to workers, who may not know of changes elsewhere.
#[test]
fn every_view_for_orchestrators_tells_what_is_specified() {
    let limits = Limits { rules: Rules::First, ..Limits::default() };
    let mut t = Fixture::try_create(create_input("a b"), Policy::Manual, limits).unwrap();
    t.ok(retitle("x"));
    let run = t.dispatch(POOL);
    let spec = json!(spec_version(&t));
    assert!(spec.as_u64().unwrap() < t.task.version());
    let (view, boss, known) = (t.task.durable(), orchestrator(), known());
    let limits = Limits::default();
    let page =
        |of: &Caller| query_steps(&view, of, &QueryInput::default(), &known, &limits).unwrap();
    let told = tenure_core::view::explain::explain_task(&view, ForWhom::default(), &known).unwrap();
    let lines = tenure_core::view::board::task_lines(&view, &boss, &known).unwrap();
    for read in [
        as_json(&get_task(&view, &boss, &known).unwrap()),
        as_json(&TaskSummary::of(&view, &known)),
        as_json(&page(&boss)),
        as_json(&graph(&view, &known)),
        as_json(&told),
        as_json(&lines),
    ] {
        assert_eq!(read["spec_version"], spec, "{read}");
    }
    let ant = worker("ant", POOL, Some(run));
    for read in [as_json(&get_task(&view, &ant, &known).unwrap()), as_json(&page(&ant))] {
        assert!(read["version"].is_u64() && read["spec_version"].is_null(), "{read}");
    }
}

// ---- IDEM-02, IDEM-03, EVOLVE-04

/// A publisher's replica with its own login.
fn replica(login: &str) -> Caller {
    caller(login, Role::Orchestrator)
}

fn cx<'a>(
    caller: &'a Caller,
    command: &'a CommandId,
    digest: Digest,
    limits: &'a Limits,
) -> Cx<'a> {
    Cx {
        caller,
        stamp: Fixture::manual("a").stamp(),
        command_id: Some(command),
        digest: Some(digest),
        expected_version: None,
        expected_spec_version: None,
        trace: None,
        epoch: 0,
        limits,
    }
}

fn defaults() -> Defaults {
    Defaults { policy: Policy::Manual, worker_pool_id: pool_id(POOL) }
}

fn keyed(given: CreateTask) -> CreateTask {
    CreateTask { idempotency_key: Some("k".into()), task_id: Some(keyed_id("k")), ..given }
}

/// Creates a Task as the first of two replicas.
fn created(given: &CreateTask, digest: Digest) -> tenure_core::Task {
    let (one, id, limits) = (replica("one"), "c1".parse().unwrap(), Limits::default());
    let (mut task, _) =
        tenure_core::Task::create(&cx(&one, &id, digest, &limits), given, &defaults(), None)
            .unwrap();
    task.settle();
    task
}

/// What the second of two replicas is answered.
fn again(
    task: &mut tenure_core::Task,
    given: &CreateTask,
    (command, digest): (&str, Digest),
) -> Result<Outcome, Rejection> {
    let (two, id, limits) = (replica("two"), command.parse().unwrap(), Limits::default());
    task.recreated(&cx(&two, &id, digest, &limits), given, &defaults(), None)
}

/// What a replica is answered to a command.
fn asks(
    task: &mut tenure_core::Task,
    login: &str,
    command: &Command,
    (id, digest): (&str, Digest),
) -> Result<Outcome, Rejection> {
    let (who, id, limits) = (replica(login), id.parse().unwrap(), Limits::default());
    let mut cx = cx(&who, &id, digest, &limits);
    cx.stamp.commit_id =
        tenure_core::id::CommitId(uuid::Uuid::from_u128(u128::from(task.version())));
    let decided = task.decide(&cx, command);
    task.settle();
    decided
}

/// IDEM-02, IDEM-03: two replicas of a publisher with different logins send the same create: the second is
/// answered with the first Task, which names who made it.
#[test]
fn a_create_is_the_same_whoever_sends_it() {
    let digest = Digest::second([5; 32]);
    for given in [keyed(create_input("a")), create_input("a")] {
        let mut task = created(&given, digest);
        for command in ["c1", "c2"] {
            let before = task.clone();
            let outcome = again(&mut task, &given, (command, digest)).unwrap();
            assert!(outcome.commit.is_none() && task.is_untouched_since(&before));
            let told = write_summary(&task.durable(), &replica("two"), &outcome.reply, &known());
            assert_eq!(as_json(&told)["task"]["created_by_agent_id"], "one");
        }
        let other = again(&mut task, &given, ("c3", Digest::second([6; 32]))).unwrap_err();
        let code = match given.idempotency_key {
            Some(_) => Code::IdempotencyConflict,
            None => Code::TaskIdConflict,
        };
        assert_eq!(other.code, code, "other content stays a conflict");
    }
}

/// IDEM-02: the parts of a create, and the `submit_task` of a keyed draft, belong to it: any replica may send
/// them again. Every other command has who asks for it in its digest.
#[test]
fn parts_and_submit_of_a_create_are_the_same_whoever_sends_them() {
    let part = Digest::second([1; 32]);
    let creation = Creation { digest: Creation::digest_of([part]), draft: true, steps: 2 };
    assert_eq!(creation.digest.form, DigestForm::Second);
    let given =
        keyed(CreateTask { creation: Some(creation), draft: Some(true), ..create_input("a") });
    let mut task = created(&given, Digest::second([5; 32]));
    let id = creation.part(1).unwrap();
    let adds = patch(json!([add("b", &["a"])]));
    let (submit, retitle) = (Command::SubmitTask(Why::default()), retitle("x"));
    for login in ["one", "two"] {
        asks(&mut task, login, &adds, (id.as_str(), part)).unwrap();
        asks(&mut task, login, &submit, ("submit", Digest::second([2; 32]))).unwrap();
    }
    assert_ne!(task.head().status, TaskStatus::Draft);
    let own = ("title", Digest::second([3; 32]));
    asks(&mut task, "one", &retitle, own).unwrap();
    asks(&mut task, "one", &retitle, own).unwrap();
    let no = asks(&mut task, "two", &retitle, own).unwrap_err();
    assert_eq!(no.code, Code::IdempotencyConflict, "it is another's command");

    let unkeyed = CreateTask { draft: Some(true), ..create_input("a") };
    let mut task = created(&unkeyed, Digest::second([5; 32]));
    asks(&mut task, "one", &submit, ("submit", Digest::second([2; 32]))).unwrap();
    let no = asks(&mut task, "two", &submit, ("submit", Digest::second([2; 32]))).unwrap_err();
    assert_eq!(no.code, Code::IdempotencyConflict, "this draft has no key");
}

/// EVOLVE-04: a digest carries the number of its form; the Task asks for the form that it remembers, and what
/// it remembers in the first form is compared as it stands, with who asked.
#[test]
fn a_digest_is_compared_in_the_form_that_is_remembered() {
    let older = Digest::first([5; 32]);
    assert_eq!(older.to_string(), "05".repeat(32));
    assert_eq!(Digest::second([5; 32]).to_string(), format!("2:{}", "05".repeat(32)));
    for digest in [older, Digest::second([5; 32])] {
        let stored = serde_json::to_string(&digest).unwrap();
        assert_eq!(serde_json::from_str::<Digest>(&stored).unwrap(), digest);
    }
    assert!(serde_json::from_str::<Digest>(&format!("\"3:{}\"", "05".repeat(32))).is_err());
    assert_eq!(older.asked_by(&agent_id("one")), older, "it has that already");
    let newer = Digest::second([5; 32]);
    assert_ne!(newer.asked_by(&agent_id("one")), newer.asked_by(&agent_id("two")));

    let given = keyed(create_input("a"));
    let mut task = created(&given, older);
    let form = |task: &tenure_core::Task, id: &str, is_create| {
        task.digest_form(Some(&id.parse().unwrap()), is_create)
    };
    assert_eq!(form(&task, "c1", true), DigestForm::First, "the command that made it");
    assert_eq!(form(&task, "c2", true), DigestForm::First, "another that may be the same");
    assert_eq!(form(&task, "c2", false), DigestForm::Second, "a new command");
    assert!(again(&mut task, &given, ("c2", older)).unwrap().commit.is_none());
    asks(&mut task, "one", &retitle("x"), ("old", older)).unwrap();
    asks(&mut task, "one", &retitle("y"), ("new", newer)).unwrap();
    assert_eq!(
        (form(&task, "old", false), form(&task, "new", false)),
        (DigestForm::First, DigestForm::Second)
    );
    let no = asks(&mut task, "one", &retitle("x"), ("old", newer)).unwrap_err();
    assert_eq!(no.code, Code::IdempotencyConflict, "forms are never mixed up");
    let part = |digest| Creation { digest, draft: false, steps: 2 }.part(1).unwrap().to_string();
    assert_eq!(form(&task, &part(Creation::digest_of([older])), false), DigestForm::First);
    assert_eq!(form(&task, &part(Creation::digest_of([newer])), false), DigestForm::Second);
}

/// IDEM-03: one key means one Task: with another id it is refused, as a first create and as a later one, and
/// a command that is known is answered before that is judged. (One key with two ids had made two Tasks.)
#[test]
fn a_key_goes_with_the_id_that_it_makes() {
    let other = CreateTask { task_id: Some("t".parse().unwrap()), ..keyed(create_input("a")) };
    let no = Fixture::try_create(other.clone(), Policy::Manual, Limits::default()).unwrap_err();
    assert_eq!((no.code, &no.details["field"]), (Code::ValidationError, &json!("task_id")));
    assert_eq!(no.details["task_id"], keyed_id("k").as_str(), "it says what would be right");
    let digest = Digest::second([5; 32]);
    let mut task = created(&create_input("a"), digest);
    let before = task.clone();
    let no = again(&mut task, &other, ("c2", digest)).unwrap_err();
    assert_eq!(no.code, Code::ValidationError);
    assert!(task.is_untouched_since(&before));
    assert!(again(&mut task, &other, ("c1", digest)).unwrap().commit.is_none(), "it is known");
    assert!(TaskId::new(keyed_id("k").as_str()).is_ok());
}

// ---- CLAIM-13

fn only(principal: &str) -> Option<tenure_core::id::AgentId> {
    Some(agent_id(principal))
}

/// CLAIM-13: `assignee`, `owner` and `requested_by` name people and gate nothing, on the Task, on the Step, on
/// both with different names, under either dispatch. (Such a Step was claimed by nobody for ever.)
#[test]
fn an_assignee_is_attribution() {
    for (of_task, of_step) in [(true, false), (false, true), (true, true)] {
        let mut given = create_input("a");
        given.assignee = only("alice").filter(|_| of_task);
        (given.owner, given.requested_by) = (only("bob"), only("carol"));
        given.steps[0].assignee = only("dora").filter(|_| of_step);
        let mut t = Fixture::create(given.clone(), Policy::Manual);
        let ant = agent_id("ant.boot1");
        let whom = ForWhom { worker: Some(&ant), ..ForWhom::default() };
        let told = explain(&t.task.durable(), &id("a"), whom, &known()).unwrap();
        assert_eq!(as_json(&told)["headline"], "needs_dispatch", "nobody is kept away");
        t.claim_by("ant.boot1", "a");
        let mut t = Fixture::create(given, Policy::Auto);
        assert!(t.grant("ant.boot1", POOL).is_some());
    }
}

/// CLAIM-13: `claim_only_by` names a principal; each boot of its worker may claim and nobody else, be it a
/// worker whose name begins or ends as the principal's does. A Step's own name counts instead of the Task's.
#[test]
fn only_the_principal_that_is_named_may_claim() {
    let mut given = create_input("a b");
    given.claim_only_by = only("eve");
    given.steps[1].claim_only_by = only("bob.smith");
    let outside = ["ant.1", "ev.e", "eve2.1", "x.eve", "eve.1.2", "system.eve"];
    let allowed =
        [("a", ["eve.1", "eve.2", "eve"]), ("b", ["bob.smith.1", "bob.smith.2", "bob.smith.x"])];
    for (step, workers) in allowed {
        for worker in workers {
            let mut t = Fixture::create(given.clone(), Policy::Manual);
            for other in outside.into_iter().chain(allowed.map(|(of, workers)| match of == step {
                true => "bob",
                false => workers[0],
            })) {
                let run = t.dispatch(POOL);
                let no = t.refuse_as(
                    &t.member(other, run),
                    claim_command(run, step),
                    Code::PermissionDenied,
                );
                assert_eq!(no.details["reason"], "assigned_elsewhere", "{other} for {step}");
            }
            t.claim_by(worker, step);
        }
    }
    let mut t = Fixture::create(given, Policy::Auto);
    assert!(outside.iter().all(|other| t.grant(other, POOL).is_none()));
    assert_eq!(t.grant("bob.smith.7", POOL).unwrap().step_id, "b");
    assert_eq!(t.grant("eve.7", POOL).unwrap().step_id, "a");
}

/// CLAIM-13: the name can be patched on Task and Step, holds in Tasks of rules 1 too, beside the assignee that
/// gates there, and goes with a Task that is made again.
#[test]
fn who_alone_may_claim_is_patched_and_inherited() {
    let limits = Limits { rules: Rules::First, ..Limits::default() };
    let mut given = create_input("a b");
    given.steps[1].assignee = only("bob.1");
    let mut t = Fixture::try_create(given, Policy::Auto, limits).unwrap();
    t.ok(patch(json!([{"op": "update_task", "claim_only_by": "bob"}, update("a", json!({"claim_only_by": "eve"}))])));
    assert!(t.grant("ant.1", POOL).is_none() && t.grant("bob.2", POOL).is_none());
    let again = t.task.durable();
    assert!(
        again
            .retry_input("t2".parse().unwrap(), &made_again(&reason("x", "")), Rules::NEWEST)
            .is_err(),
        "it is live"
    );
    assert_eq!(t.grant("bob.1", POOL).unwrap().step_id, "b");
    assert_eq!(t.grant("eve.1", POOL).unwrap().step_id, "a");
    t.ok(cancel_task());
    t.due_at(t.task.next_due().unwrap());
    let input = t
        .task
        .durable()
        .retry_input("t2".parse().unwrap(), &made_again(&reason("x", "")), Rules::NEWEST)
        .unwrap();
    assert_eq!(input.claim_only_by, only("bob"));
    assert_eq!(input.steps[0].claim_only_by, only("eve"));
}
