//! How Tasks come to be: in parts, in the place of another, and under a parent that is closed meanwhile.
#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::command::create::{CreateTask, Defaults};
use tenure_core::command::{Cx, Stamp};
use tenure_core::creation::Creation;
use tenure_core::id::{AttemptId, CommitId, DigestForm, RunId, TaskId};
use tenure_core::status::{Policy, TaskStatus};
use tenure_core::{Caller, Code, Limits, Rejection, Task};
use tenure_ports::Journal as _;
use tenure_ports::journal::TaskKey;
use tenure_scheduler::{Envelope, WriteAnswer};
use tenure_testkit::faulty::Fault;
use tenure_wire::digest::digest_create;
use uuid::Uuid;

use crate::common::{
    Node, POOL, cancel, create, dag, envelope, key, node, node_on, orchestrator, replayed, session,
    status,
};

/// The first Step of three.
fn first() -> CreateTask {
    let creation = Some(Creation { digest: Creation::digest_of([]), draft: false, steps: 3 });
    CreateTask { creation, draft: Some(true), ..dag("t", "a") }
}

/// IDEM-10, WAL-07, RECOVER-02: another creation takes the place of an unfinished one once that is durable: after a
/// failed append the first is there as it was, and after a restart the last.
#[tokio::test]
async fn an_unfinished_creation_is_replaced_when_that_is_durable() {
    let node = node().await;
    let key = create(&node, first()).await.unwrap();
    let before = node.read(&key, |task| task.to_task()).await.unwrap();
    node.journal().next(Fault::Fail);
    let refused = create(&node, dag("t", "b c<-b")).await.unwrap_err();
    assert_eq!(refused.code, Code::StorageError);
    assert_eq!(node.read(&key, |task| task.to_task()).await.unwrap(), before);
    assert_eq!(replayed(&node, &key).await, before);
    create(&node, first()).await.unwrap();
    assert_eq!(node.read(&key, |task| task.version()).await.unwrap(), before.version());

    create(&node, dag("t", "b c<-b")).await.unwrap();
    assert_eq!(status(&node, &key).await, TaskStatus::Running);
    let refused = create(&node, first()).await.unwrap_err();
    assert_eq!(refused.code, Code::TaskIdConflict);
    node.stop().await;
    let node = node_on(Arc::clone(node.journal())).await;
    let steps = |task: &tenure_core::view::View<'_>| {
        task.steps().map(|step| step.id().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(node.read(&key, steps).await.unwrap(), ["b", "c"]);
}

/// REL-05: a parent that is closed while it is to record a child lets none be made.
#[tokio::test(start_paused = true)]
async fn a_parent_that_is_closed_meanwhile_lets_no_child_be_made() {
    let node = node().await;
    let parent = create(&node, dag("p", "a")).await.unwrap();
    let held = node.journal().hold_next();
    let (canceller, of) = (node.clone(), parent.clone());
    let closed = tokio::spawn(async move { cancel(&canceller, &of).await });
    tokio::time::sleep(Duration::from_millis(10)).await;
    let (maker, child) = (node.clone(), dag("c", "a"));
    let child = CreateTask { parent_task_id: Some("p".parse().unwrap()), ..child };
    let made = tokio::spawn(async move { create(&maker, child).await });
    tokio::time::sleep(Duration::from_millis(10)).await;
    held.open();
    closed.await.unwrap().unwrap();
    assert_eq!(made.await.unwrap().unwrap_err().code, Code::TaskTerminal);
    let child = node.read(&key("c"), |_| ()).await;
    assert_eq!(child.unwrap_err().code, Code::TaskNotFound);
    let children = node.read(&parent, |task| task.children().len()).await;
    assert_eq!(children.unwrap(), 0);
}

/// A create by a login, with a command of its own.
async fn by(node: &Node, login: &str, input: CreateTask) -> Result<WriteAnswer, Rejection> {
    let caller = Caller { agent: login.parse().unwrap(), ..orchestrator() };
    node.create(Envelope { caller, ..envelope() }, input, Policy::Auto).await
}

fn keyed() -> CreateTask {
    let (key, task_id) = ("nightly", TaskId::of_key(&session(), "nightly"));
    CreateTask { idempotency_key: Some(key.into()), task_id: Some(task_id), ..dag("t", "a") }
}

/// IDEM-02, IDEM-03: two replicas of a publisher with logins of their own send one key and one body: they get
/// one Task, before and after a restart, and the second is told who made it.
#[tokio::test]
async fn two_logins_make_one_task_of_one_key() {
    let first = node().await;
    let made = by(&first, "one", keyed()).await.unwrap();
    let known = by(&first, "two", keyed()).await.unwrap();
    first.stop().await;
    let node = node_on(Arc::clone(first.journal())).await;
    let later = by(&node, "three", keyed()).await.unwrap();
    for answer in [known, later] {
        assert_eq!((answer.is_written, answer.reply.written), (false, made.reply.written));
        let told = serde_json::to_value(answer.summary.unwrap()).unwrap();
        assert_eq!(told["task"]["created_by_agent_id"], "one");
    }
    let other = CreateTask { title: "another".into(), ..keyed() };
    let refused = by(&node, "one", other).await.unwrap_err();
    assert_eq!(refused.code, Code::IdempotencyConflict);
    let explicit = CreateTask { task_id: Some("t2".parse().unwrap()), ..keyed() };
    let refused = by(&node, "one", explicit).await.unwrap_err();
    assert_eq!(refused.code, Code::ValidationError);
    assert_eq!(node.journal().entries(None).await.unwrap().len(), 1);
}

/// EVOLVE-04: a Task whose digest is of the first form is compared in that form: the same create by the same
/// login is answered with it, and by another login it is another create, as it was then.
#[tokio::test]
async fn an_older_digest_is_compared_in_its_own_form() {
    let node = node().await;
    let (input, key) = (keyed(), TaskKey { task_id: keyed().task_id.unwrap(), ..key("t") });
    let caller = Caller { agent: "one".parse().unwrap(), ..orchestrator() };
    let digest = digest_create(DigestForm::First, &caller.agent, &input).unwrap();
    let command_id = "older".parse().unwrap();
    let stamp = Stamp {
        now: 1,
        steady: 1,
        commit_id: CommitId(Uuid::from_u128(1)),
        run_id: RunId(Uuid::from_u128(2)),
        attempt_id: AttemptId(Uuid::from_u128(3)),
        random: 0,
    };
    let cx = Cx {
        caller: &caller,
        stamp,
        command_id: Some(&command_id),
        digest: Some(digest),
        expected_version: None,
        expected_spec_version: None,
        trace: None,
        epoch: 0,
        limits: &Limits::default(),
    };
    let defaults = Defaults { policy: Policy::Auto, worker_pool_id: POOL.parse().unwrap() };
    let (task, outcome) = Task::create(&cx, &input, &defaults, None).unwrap();
    let commits = vec![Arc::new(outcome.commit.unwrap())];
    node.journal().create(&key, &task.head().spec.wal_name, commits).await.unwrap();

    let same = by(&node, "one", input.clone()).await.unwrap();
    assert_eq!((same.is_written, same.reply.version), (false, task.version()));
    let refused = by(&node, "two", input).await.unwrap_err();
    assert_eq!(refused.code, Code::IdempotencyConflict);
}
