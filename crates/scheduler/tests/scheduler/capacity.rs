//! What is served where there is little room, or the store of leases is slow.
#![allow(clippy::unwrap_used, missing_docs)] // A test that cannot go on has failed.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{
    self, Mood, Moody, Node, POOL, cancel, create, dag, envelope, key, node, node_on, replayed,
};
use futures::StreamExt as _;
use tenure_core::command::{StepReport, Why};
use tenure_core::id::{AgentId, AttemptId, PoolId};
use tenure_core::status::{Policy, Role, StepStatus, TaskStatus};
use tenure_core::view::query::QueryInput;
use tenure_core::view::{ExplainInput, GetInput, Look};
use tenure_core::{Code, Command, Rejection};
use tenure_local::MemoryLeases;
use tenure_ports::Leases;
use tenure_ports::bus::{Credit, Delivery, Holding, WorkerPort as _};
use tenure_ports::client::ClientPort as _;
use tenure_ports::journal::TaskKey;
use tenure_ports::leases::{Lease, LeaseError, Scan};
use tenure_scheduler::{Config, Scheduler};
use tenure_testkit::{Faulty, MemoryJournal};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

/// An orchestrator sends so many commands on a Task. Answers those that were refused for want of room.
async fn send(
    node: &Node,
    key: &TaskKey,
    (who, many): (&str, usize),
    sent: &mut JoinSet<Refused>,
) -> usize {
    for _ in 0..many {
        let (node, key) = (node.clone(), key.clone());
        let mut around = envelope();
        around.caller.agent = AgentId::new(who).unwrap();
        sent.spawn(async move {
            let pause = Command::PauseTask(Why::default());
            node.command(&key, around, pause).await.err()
        });
    }
    tokio::time::sleep(Duration::from_millis(1)).await;
    let mut refused = 0;
    while let Some(answer) = sent.try_join_next() {
        assert!(is_for_room(answer.unwrap().as_ref().unwrap()));
        refused += 1;
    }
    refused
}

type Refused = Option<Rejection>;

fn is_for_room(refused: &Rejection) -> bool {
    refused.code == Code::Unavailable && refused.details["kind"] == "overloaded"
}

/// Mechanisms 16, LIVE-04: where there is little room creates are refused first, then other commands, and
/// cancels are still served. One who sends as much as there is room for leaves room to others.
#[tokio::test(start_paused = true)]
async fn creates_are_refused_first_and_cancels_are_served() {
    let node = node().await;
    let key_of_it = create(&node, dag("t", "a")).await.unwrap();
    let held = node.journal().hold_next();
    let mut sent = JoinSet::new();
    assert_eq!(send(&node, &key_of_it, ("o", 6_144), &mut sent).await, 0);
    let refused = node.create(envelope(), dag("new", "a"), Policy::Auto).await.unwrap_err();
    assert!(is_for_room(&refused), "{refused:?}");
    assert_eq!(send(&node, &key_of_it, ("o", 10), &mut sent).await, 10, "it has its share");
    let of_other = send(&node, &key_of_it, ("p", 1_536), &mut sent).await;
    assert_eq!(of_other, 0, "there is room for commands of others");
    assert_eq!(send(&node, &key_of_it, ("p", 10), &mut sent).await, 10);
    let cancelled = cancel(&node, &key_of_it);
    tokio::pin!(cancelled);
    assert!(timeout(Duration::from_millis(1), &mut cancelled).await.is_err(), "it waits its turn");
    held.open();
    cancelled.await.unwrap();
    while sent.join_next().await.is_some() {}
    node.create(envelope(), dag("new", "a"), Policy::Auto).await.unwrap();
    node.read(&key("new"), |_| ()).await.unwrap();
}

/// Mechanisms 16: what waits for another Task before it is judged takes room as well.
#[tokio::test(start_paused = true)]
async fn there_is_no_more_that_waits_for_another_task_than_there_is_room() {
    let journal = Arc::new(Faulty::new(MemoryJournal::default()));
    let first = node_on(Arc::clone(&journal)).await;
    create(&first, dag("parent", "a")).await.unwrap();
    first.stop().await;
    let node = node_on(journal).await;
    let held = node.journal().hold_reads();
    let child = |name: &str| {
        let mut child = dag(name, "a");
        child.parent_task_id = Some(key("parent").task_id);
        child
    };
    let mut asked = JoinSet::new();
    for number in 0..4_608 {
        let (node, child) = (node.clone(), child(&format!("child-{number}")));
        asked.spawn(async move { node.create(envelope(), child, Policy::Auto).await.err() });
    }
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(asked.try_join_next().is_none(), "all of them wait");
    let refused = node.create(envelope(), child("another"), Policy::Auto).await.unwrap_err();
    assert!(is_for_room(&refused), "{refused:?}");
    asked.shutdown().await;
    held.open();
    node.create(envelope(), child("another"), Policy::Auto).await.unwrap();
}

/// Mechanisms 16: what the log has no room for is refused and has changed nothing, neither the log nor the
/// state; what a worker reports and what is cancelled goes on.
#[tokio::test(start_paused = true)]
async fn what_the_log_has_no_room_for_changes_nothing() {
    let node = node().await;
    let key_of_it = create(&node, dag("t", "a b")).await.unwrap();
    let before = node.read(&key_of_it, |task| task.to_task()).await.unwrap();
    node.journal().set_room(false);
    let refused = node.create(envelope(), dag("new", "a"), Policy::Auto).await.unwrap_err();
    assert!(is_for_room(&refused), "{refused:?}");
    assert_eq!(refused.details["retry_after_ms"], 50);
    let missing = node.read(&key("new"), |_| ()).await.unwrap_err();
    assert_eq!(missing.code, Code::TaskNotFound);
    let (around, pause) = (envelope(), Command::PauseTask(Why::default()));
    let refused = node.command(&key_of_it, around.clone(), pause.clone()).await.unwrap_err();
    assert!(is_for_room(&refused), "{refused:?}");
    assert_eq!(node.read(&key_of_it, |task| task.to_task()).await.unwrap(), before);
    assert_eq!(replayed(&node, &key_of_it).await, before);

    let id = AgentId::new("w").unwrap();
    let (link, mut inbox) = node.join(id, PoolId::new(POOL).unwrap(), None).unwrap();
    link.credit(Credit { free: 1, seen: 0, lost: 0, number: 1 });
    let Some(Delivery::Grant(claim)) = inbox.next().await else { panic!("a grant comes") };
    let report = StepReport {
        attempt_id: Some(claim.attempt_id),
        fencing_token: Some(claim.fencing_token),
        status: Some(StepStatus::Completed),
        ..StepReport::on(claim.step.step_id.clone())
    };
    link.report(&Holding::of(&claim), report, None).await.unwrap();
    node.journal().set_room(true);
    let paused = node.command(&key_of_it, around, pause).await.unwrap();
    assert_eq!(paused.status, TaskStatus::Paused, "the same command is as good later");
    node.create(envelope(), dag("new", "a"), Policy::Auto).await.unwrap();
    node.journal().set_room(false);
    cancel(&node, &key_of_it).await.unwrap();
}

/// Mechanisms 16: room of workers that was meant for Steps of a refused command is not lost.
#[tokio::test(start_paused = true)]
async fn a_command_without_room_gives_back_what_it_had_of_workers() {
    let node = node().await;
    let key_of_it = create(&node, dag("t", "a")).await.unwrap();
    let why = Why::default();
    node.command(&key_of_it, envelope(), Command::PauseTask(why.clone())).await.unwrap();
    let id = AgentId::new("w").unwrap();
    let (link, mut inbox) = node.join(id, PoolId::new(POOL).unwrap(), None).unwrap();
    link.credit(Credit { free: 1, seen: 0, lost: 0, number: 1 });
    node.journal().set_room(false);
    let resume = Command::ResumeTask(why);
    let refused = node.command(&key_of_it, envelope(), resume.clone()).await.unwrap_err();
    assert!(is_for_room(&refused), "{refused:?}");
    node.journal().set_room(true);
    node.command(&key_of_it, envelope(), resume).await.unwrap();
    let granted = timeout(Duration::from_secs(60), inbox.next()).await.unwrap();
    assert!(matches!(granted, Some(Delivery::Grant(_))), "{granted:?}");
}

/// A store that takes its time.
struct Slow(MemoryLeases);

const SLOWLY: Duration = Duration::from_millis(400);

impl Leases for Slow {
    async fn acquire(&self, leases: Vec<Lease>) -> Result<(), LeaseError> {
        tokio::time::sleep(SLOWLY).await;
        self.0.acquire(leases).await
    }

    async fn renew(&self, leases: Vec<Lease>) -> Result<(), LeaseError> {
        self.0.renew(leases).await
    }

    async fn raise(&self, leases: Vec<Lease>) -> Result<(), LeaseError> {
        self.0.raise(leases).await
    }

    async fn ensure(&self, leases: Vec<Lease>) -> Result<(), LeaseError> {
        self.0.ensure(leases).await
    }

    async fn release(&self, attempts: Vec<AttemptId>) -> Result<(), LeaseError> {
        self.0.release(attempts).await
    }

    async fn expired(&self) -> Result<Scan, LeaseError> {
        self.0.expired().await
    }

    fn left_ms(&self, attempt: AttemptId) -> Option<u64> {
        self.0.left_ms(attempt)
    }
}

/// Mechanisms 9: where leases are slow, a report does not wait for those of the Steps that it made
/// ready: they are claimed in an append of their own.
#[tokio::test(start_paused = true)]
async fn a_report_does_not_wait_for_slow_leases() {
    let journal = Arc::new(Faulty::new(MemoryJournal::default()));
    let leases = Arc::new(Slow(MemoryLeases::default()));
    let config = Config::embedded(PoolId::new(POOL).unwrap());
    let node = Scheduler::start(journal, leases, config).await.unwrap();
    let id = AgentId::new("w").unwrap();
    let (link, mut inbox) = node.join(id, PoolId::new(POOL).unwrap(), None).unwrap();
    link.credit(Credit { free: 9, seen: 0, lost: 0, number: 1 });
    node.create(envelope(), dag("t", "a b<-a c<-b"), Policy::Auto).await.unwrap();
    for step in ["a", "b", "c"] {
        let Some(Delivery::Grant(claim)) = inbox.next().await else { panic!("a grant comes") };
        assert_eq!(claim.step.step_id.as_str(), step);
        let report = StepReport {
            attempt_id: Some(claim.attempt_id),
            fencing_token: Some(claim.fencing_token),
            status: Some(StepStatus::Completed),
            ..StepReport::on(claim.step.step_id.clone())
        };
        let begun = Instant::now();
        link.report(&Holding::of(&claim), report, None).await.unwrap();
        assert!(begun.elapsed() < SLOWLY / 4, "{step}: {:?}", begun.elapsed());
    }
    node.wait_for_end(&key("t")).await.unwrap();
}

/// LEASE-06: a read never waits for the store of leases, nor for an append in flight: it has the last
/// durable state.
#[tokio::test(start_paused = true)]
async fn a_read_waits_for_no_lease() {
    let journal = Arc::new(Faulty::new(MemoryJournal::default()));
    let leases = Arc::new(Moody::default());
    let config = Config::embedded(PoolId::new(POOL).unwrap());
    let node = Scheduler::start(journal, Arc::clone(&leases), config).await.unwrap();
    let id = AgentId::new("w").unwrap();
    let (link, mut inbox) = node.join(id, PoolId::new(POOL).unwrap(), None).unwrap();
    link.credit(Credit { free: 1, seen: 0, lost: 0, number: 1 });
    node.create(envelope(), dag("t", "a b"), Policy::Auto).await.unwrap();
    let Some(Delivery::Grant(held)) = inbox.next().await else { panic!("a grant comes") };
    leases.set(Mood::Hangs);
    link.credit(Credit { free: 1, seen: 1, lost: 0, number: 2 });
    tokio::time::sleep(Duration::from_secs(5)).await; // The claim of `b` is under way.
    let begun = Instant::now();
    let client = node.client(Role::Orchestrator, AgentId::new("o").unwrap(), common::session());
    let task = key("t").task_id;
    assert_eq!(client.ask(&task, GetInput {}).await.unwrap().steps.len(), 2);
    let ready = QueryInput { statuses: Some(vec![StepStatus::Ready]), ..QueryInput::default() };
    assert_eq!(client.ask(&task, ready).await.unwrap().steps.len(), 1);
    let why = ExplainInput { run_id: None, step_id: common::step_id("b"), worker_id: None };
    client.ask(&task, why).await.unwrap();
    assert_eq!(client.log(&task, 0).await.unwrap().leases.len(), 1);
    link.look(&key("t"), held.run_id, Look::TaskGet).await.unwrap();
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert!(inbox.try_recv().is_err(), "nothing is given without its lease");
}
