//! Silence that says nothing: after a change of owners, a gap, or while the store of leases or the log is
//! away, nobody is judged by what was not heard (mechanisms 6).
#![allow(clippy::unwrap_used, missing_docs)] // A test that cannot go on has failed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{
    self, Mood, Moody, POOL, View, completes, create, dag, envelope, key, node, status,
    step_status, until, with_policy,
};
use futures::StreamExt as _;
use tenure_core::command::create::CreateTask;
use tenure_core::id::{AgentId, PoolId};
use tenure_core::record::RetryPolicy;
use tenure_core::retry_policy::Limit;
use tenure_core::status::{Policy, StepStatus, TaskStatus};
use tenure_core::view::ClaimResult;
use tenure_local::MemoryLeases;
use tenure_ports::bus::{Credit, Delivery, Holding, WorkerPort as _};
use tenure_ports::observer::LeaseCall;
use tenure_ports::{Journal, Leases};
use tenure_scheduler::{Config, Scheduler, WorkerLink};
use tenure_testkit::{Faulty, MemoryJournal};
use tokio::time::{Instant, sleep};

type Inbox = futures::channel::mpsc::UnboundedReceiver<Delivery>;

/// A worker with room for so many Steps.
fn join<J: Journal, L: Leases>(node: &Scheduler<J, L>, free: u64) -> (WorkerLink<J, L>, Inbox) {
    let (link, inbox) =
        node.join(AgentId::new("w").unwrap(), PoolId::new(POOL).unwrap(), None).unwrap();
    link.credit(Credit { free, seen: 0, lost: 0, number: 1 });
    (link, inbox)
}

async fn grant(inbox: &mut Inbox) -> ClaimResult {
    let next = tokio::time::timeout(Duration::from_secs(300), inbox.next());
    let Ok(Some(Delivery::Grant(claim))) = next.await else { panic!("a grant comes") };
    *claim
}

/// A Task of these Steps, each of which may take 5 s, and may wait so long for a worker.
fn short(steps: &str) -> CreateTask {
    let limit = Some(Limit::Of(5_000));
    let policy = RetryPolicy {
        max_attempts: Some(Limit::Of(1)),
        start_to_close_ms: limit,
        schedule_to_start_ms: limit,
        ..RetryPolicy::default()
    };
    with_policy(dag("t", steps), policy)
}

/// Mechanisms 6, S14: a Step that ended while no node had its Task is not failed before its worker's
/// report could come to the new owner. If none comes, it is.
#[tokio::test(start_paused = true)]
async fn after_a_change_of_owners_limits_of_steps_wait() {
    for is_reported in [true, false] {
        let journal = Arc::new(Faulty::new(MemoryJournal::default()));
        let leases = Arc::new(MemoryLeases::default());
        let config = Config { embedded: false, ..Config::embedded(PoolId::new(POOL).unwrap()) };
        let start = || Scheduler::start(Arc::clone(&journal), Arc::clone(&leases), config.clone());
        let (old, new) = (start().await.unwrap(), start().await.unwrap());
        let (_link, mut inbox) = join(&old, 1);
        let (link, _inbox) = join(&new, 0);
        let key = create(&old, short("a")).await.unwrap();
        let claim = grant(&mut inbox).await;
        let partition = key.partition(8);
        journal.set_epoch(None);
        old.leave(partition, Some(0)).await;
        sleep(Duration::from_secs(10)).await;
        journal.set_epoch(Some(7));
        let taken = Instant::now();
        new.resume(partition).await.unwrap();
        sleep(Duration::from_secs(10)).await;
        if is_reported {
            link.report(&Holding::of(&claim), completes(&claim), None).await.unwrap();
            assert_eq!(status(&new, &key).await, TaskStatus::Completed);
            continue;
        }
        until(&new, &key, |task| task.tally().of(StepStatus::Failed) == 1).await;
        let took = taken.elapsed();
        assert!(took >= Duration::from_secs(15) && took < Duration::from_secs(16), "{took:?}");
    }
}

/// Mechanisms 6, S14: nor after this process stood still.
#[tokio::test(start_paused = true)]
async fn after_a_gap_limits_of_steps_wait() {
    let node = node().await;
    let (link, mut inbox) = join(&node, 1);
    let key = create(&node, short("a")).await.unwrap();
    let claim = grant(&mut inbox).await;
    tokio::time::advance(Duration::from_secs(60)).await;
    sleep(Duration::from_secs(10)).await;
    link.report(&Holding::of(&claim), completes(&claim), None).await.unwrap();
    assert_eq!(status(&node, &key).await, TaskStatus::Completed);
}

/// Mechanisms 6 and 17: nor after the machine was suspended.
#[tokio::test(start_paused = true)]
async fn after_a_suspension_limits_of_steps_wait() {
    let machine = common::Hands::new();
    let node = common::node_by(&machine, &Arc::default(), true).await;
    let (link, mut inbox) = join(&node, 1);
    let key = create(&node, short("a")).await.unwrap();
    let claim = grant(&mut inbox).await;
    machine.suspend(60_000);
    sleep(Duration::from_secs(10)).await;
    link.report(&Holding::of(&claim), completes(&claim), None).await.unwrap();
    assert_eq!(status(&node, &key).await, TaskStatus::Completed);
}

/// Mechanisms 6, S14, S15: nor while the store of leases is away, when nothing can be claimed, however
/// long that takes and however short leases are.
#[tokio::test(start_paused = true)]
async fn while_nobody_keeps_leases_limits_of_steps_wait() {
    let journal = Arc::new(Faulty::new(MemoryJournal::default()));
    let leases = Arc::new(Moody::default());
    let mut config = Config::embedded(PoolId::new(POOL).unwrap());
    config.limits.lease_ms = 1_000;
    let node = Scheduler::start(journal, Arc::clone(&leases), config).await.unwrap();
    let (link, mut inbox) = join(&node, 1);
    let input = CreateTask { completion: Some(Policy::Manual), ..short("a b") };
    node.create(envelope(), input, Policy::Auto).await.unwrap();
    let key = key("t");
    let claim = grant(&mut inbox).await;
    leases.set(Mood::Fails);
    let states = async || {
        let states = |task: &View<'_>| {
            let of = |status| task.tally().of(status);
            (of(StepStatus::Claimed), of(StepStatus::Ready))
        };
        node.read(&key, states).await.unwrap()
    };
    for _ in 0..120 {
        sleep(Duration::from_millis(500)).await;
        assert_eq!(states().await, (1, 1));
    }
    link.report(&Holding::of(&claim), completes(&claim), None).await.unwrap();
    link.credit(Credit { free: 1, seen: 1, lost: 0, number: 2 });
    leases.set(Mood::Answers);
    let claim = grant(&mut inbox).await;
    assert_eq!(claim.step.step_id.as_str(), "b");
    link.report(&Holding::of(&claim), completes(&claim), None).await.unwrap();
}

/// What is said of leases from warnings on.
#[derive(Clone, Default)]
struct Warnings(Arc<AtomicUsize>);

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= tracing::Level::WARN
    }

    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::Id {
        tracing::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::Id, _: &tracing::Id) {}
    fn enter(&self, _: &tracing::Id) {}
    fn exit(&self, _: &tracing::Id) {}
}

/// Mechanisms 6: that the store of leases is away is said once, however long that takes.
#[tokio::test(start_paused = true)]
async fn that_nobody_keeps_leases_is_said_once() {
    let warnings = Warnings::default();
    let _heard = tracing::subscriber::set_default(warnings.clone());
    let leases = Arc::new(Moody::default());
    let journal = Arc::new(Faulty::new(MemoryJournal::default()));
    let config = Config::embedded(PoolId::new(POOL).unwrap());
    let node = Scheduler::start(journal, Arc::clone(&leases), config).await.unwrap();
    let (link, mut inbox) = join(&node, 1);
    node.create(envelope(), dag("t", "a"), Policy::Auto).await.unwrap();
    let claim = grant(&mut inbox).await;
    for times in 1..=2 {
        leases.set(Mood::Fails);
        for _ in 0..60 {
            sleep(Duration::from_secs(1)).await;
            link.heartbeat(&[Holding::of(&claim)]).await;
        }
        assert_eq!(warnings.0.load(Ordering::SeqCst), times);
        leases.set(Mood::Answers);
        sleep(Duration::from_secs(10)).await; // Nothing fails for a while: the next time is another.
    }
}

/// LEASE-14: a claim that was long under way, as where the log has no leader, is not over before it
/// begins.
#[tokio::test(start_paused = true)]
async fn while_the_log_is_away_no_lease_is_judged() {
    let node = node().await;
    let key = create(&node, dag("t", "a")).await.unwrap();
    let held = node.journal().hold_next();
    let (link, mut inbox) = join(&node, 1);
    sleep(Duration::from_secs(120)).await;
    held.open();
    let claim = grant(&mut inbox).await;
    sleep(Duration::from_secs(5)).await;
    assert_eq!(step_status(&node, &key, "a").await, StepStatus::Claimed);
    link.report(&Holding::of(&claim), completes(&claim), None).await.unwrap();
    assert_eq!(status(&node, &key).await, TaskStatus::Completed);
    assert!(!common::events(&node, &key).await.contains(&"task_step_lease_expired"));
}

/// Mechanisms 6, LEASE-14: where the store of leases does not get what it is told, that is a gap, whatever it
/// was: leases to drop, or to make sure of. It may not have heard heartbeats either, so that no lease is
/// judged by what its scan says before workers had the time to be heard.
#[tokio::test(start_paused = true)]
async fn what_the_store_of_leases_does_not_get_is_a_gap() {
    for call in [LeaseCall::Release, LeaseCall::Ensure] {
        let leases = Arc::new(Moody::default());
        let journal = Arc::new(Faulty::new(MemoryJournal::default()));
        let config = Config::embedded(PoolId::new(POOL).unwrap());
        let node = Scheduler::start(journal, Arc::clone(&leases), config).await.unwrap();
        let (link, mut inbox) = join(&node, 2);
        let policy = RetryPolicy { heartbeat_ms: Some(30_500), ..RetryPolicy::default() };
        let input = with_policy(dag("t", "a b"), policy);
        node.create(envelope(), input, Policy::Auto).await.unwrap();
        let (a, b) = (grant(&mut inbox).await, grant(&mut inbox).await);
        // Leases are made sure of after 30 s; b's ends before the next look at them.
        sleep(Duration::from_millis(29_500)).await;
        leases.set_failing(Some(call));
        let held = Holding::of(&a);
        link.report(&held, completes(&a), None).await.unwrap();
        sleep(Duration::from_millis(900)).await;
        leases.set_failing(None);
        sleep(Duration::from_secs(3)).await;
        let id = b.step.step_id.as_str();
        assert_eq!(step_status(&node, &key("t"), id).await, StepStatus::Claimed, "{call:?}");
        sleep(Duration::from_secs(60)).await;
        assert_eq!(step_status(&node, &key("t"), id).await, StepStatus::Ready, "then it is judged");
    }
}
