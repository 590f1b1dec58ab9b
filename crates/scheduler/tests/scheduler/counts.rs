//! What a node counts of its own work with nobody who watches, and what it tells an observer.

#![allow(clippy::unwrap_used, clippy::expect_used)] // A test that cannot go on has failed.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{
    self, POOL, View, cancel, completing, create, dag, envelope, key, node, until, workers,
};
use futures::StreamExt as _;
use serde_json::json;
use smol_str::SmolStr;
use tenure_core::command::create::CreateTask;
use tenure_core::eligibility::Obstacle;
use tenure_core::id::{AgentId, AttemptId, PoolId};
use tenure_core::status::Policy;
use tenure_core::{Code, Command, Commit, Counts, Rejection, Task};
use tenure_local::MemoryLeases;
use tenure_ports::Observer;
use tenure_ports::bus::{Credit, Delivery, WorkerPort as _};
use tenure_ports::journal::TaskKey;
use tenure_ports::observer::{Called, LeaseCall, LinkEnd, PoolSample};
use tenure_scheduler::{Config, Scheduler};
use tenure_testkit::faulty::Fault;
use tenure_testkit::{Faulty, MemoryJournal};
use tenure_wire::bus::operate::RetainedWork;

#[tokio::test(start_paused = true)]
async fn what_becomes_durable_is_counted() {
    let node = node().await;
    let workers = completing(&node, 3);
    let task = create(&node, dag("t", "a b<-a c<-a")).await.unwrap();
    node.wait_for_end(&task).await.unwrap();
    let sample = node.sample();
    let all =
        Counts { claims: 3, completed: 3, tasks_created: 1, tasks_ended: 1, ..Counts::default() };
    assert_eq!(sample.counts, all);
    let [pool] = &sample.pools[..] else { panic!("one pool: {sample:?}") };
    assert_eq!((pool.ended, pool.running), (3, 0));
    drop(workers);
}

/// VIEW-17: a Task counts its ready Steps for the partition of its log, and takes them back when it has ended.
#[tokio::test(start_paused = true)]
async fn ready_steps_wait_for_a_log_that_is_away() {
    let node = node().await;
    let task = create(&node, dag("t", "a b c<-a")).await.unwrap();
    let waits = |reaches_log| {
        let waits = node.sample_if(reaches_log).waits.into_iter();
        waits.filter(|(_, count)| *count > 0).collect::<Vec<_>>()
    };
    let pending = (Obstacle::DependencyPending, 1);
    while !waits(true).contains(&(Obstacle::NoWorkerInPool, 2)) {
        tokio::time::sleep(Duration::from_millis(5)).await; // The pool learns of them a moment later.
    }
    assert_eq!(waits(false), [pending, (Obstacle::LogUnavailable, 2)]);
    let workers = completing(&node, 3);
    node.wait_for_end(&task).await.unwrap();
    assert_eq!(waits(false), []);
    drop(workers);
}

/// It is the Task that knows who holds what: a worker whose link has ended still does.
#[tokio::test(start_paused = true)]
async fn what_a_worker_holds_is_counted_over_its_links_and_over_owners() {
    let pool_id = PoolId::new(POOL).unwrap();
    let config = Config { embedded: false, ..Config::embedded(pool_id) };
    let journal = Arc::new(Faulty::new(MemoryJournal::default()));
    let node = Scheduler::start(journal, Arc::new(MemoryLeases::default()), config).await.unwrap();
    let join =
        || node.join(AgentId::new("w.1").unwrap(), PoolId::new(POOL).unwrap(), None).unwrap();
    let pool = || -> PoolSample { node.sample().pools.remove(0) };
    let (link, mut inbox) = join();
    link.credit(Credit { free: 2, seen: 0, lost: 0, number: 1 });
    let task = create(&node, dag("t", "a b")).await.unwrap();
    for _ in 0..2 {
        let Some(Delivery::Grant(_)) = inbox.next().await else { panic!("a grant") };
    }
    until(&node, &task, |task| task.open_attempts().count() == 2).await;
    assert_eq!((link.holds(), pool().running), (2, 2));
    drop(link);
    assert_eq!(pool().running, 2, "its leases say whether it is at work");

    // The partition is left, and taken again while the worker is not there.
    let partition = key("t").partition(8);
    node.leave(partition, None).await;
    until_running(&node, 0).await;
    node.resume(partition).await.unwrap();
    until_running(&node, 2).await;
    let (link, _inbox) = join();
    assert_eq!(link.holds(), 2);
    let lost = node.read(&task, |task| task.open_attempts().next().unwrap().attempt_id);
    link.undelivered(&task, lost.await.unwrap());
    until_running(&node, 1).await;
    assert_eq!((link.holds(), pool().ended), (1, 1));
    assert_eq!(node.sample().counts.lost, 0, "it was given back");
}

/// Whoever waits for an end is counted until it is told.
#[tokio::test(start_paused = true)]
async fn callers_that_wait_for_an_end_are_counted() {
    let node = node().await;
    let stuck = workers(&node, 1, |_| std::future::pending());
    let first = create(&node, dag("t", "a")).await.unwrap();
    let second = create(&node, dag("u", "a")).await.unwrap();
    until(&node, &first, |task| task.open_attempts().count() == 1).await;
    assert_eq!(node.kept(), RetainedWork::default());
    let waits = |key: &TaskKey| {
        let (node, key) = (node.clone(), key.clone());
        tokio::spawn(async move { node.wait_for_end(&key).await })
    };
    let waiting = [waits(&first), waits(&second)];
    let cancelling = tokio::spawn({
        let (node, first) = (node.clone(), first.clone());
        async move { cancel(&node, &first).await }
    });
    let three = async {
        while node.kept().waiters < 3 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(9), three).await.unwrap();
    cancelling.await.unwrap().unwrap();
    cancel(&node, &second).await.unwrap();
    for waiting in waiting {
        waiting.await.unwrap().unwrap();
    }
    assert_eq!(node.kept(), RetainedWork::default());
    drop(stuck);
}

/// What Steps wait for is counted over all Tasks, for as long as they are here.
#[tokio::test(start_paused = true)]
async fn what_steps_wait_for_is_counted() {
    let node = node().await;
    let waits = || waits(&node);
    assert_eq!(waits(), [""; 0]);
    let first = create(&node, dag("t", "a b<-a c<-b")).await.unwrap();
    let second = create(&node, dag("other", "a b")).await.unwrap();
    assert_ne!(first.partition(8), second.partition(8));
    until_waits(&node, &["dependency_pending 2", "no_worker_in_pool 3"]).await;
    order(&node, &second, "pause_task").await;
    until_waits(&node, &["task_paused 2", "dependency_pending 2", "no_worker_in_pool 1"]).await;

    node.leave(first.partition(8), None).await;
    until_waits(&node, &["task_paused 2"]).await;
    node.resume(first.partition(8)).await.unwrap();
    until_waits(&node, &["task_paused 2", "dependency_pending 2", "no_worker_in_pool 1"]).await;

    order(&node, &second, "resume_task").await;
    let workers = completing(&node, 3);
    node.wait_for_end(&first).await.unwrap();
    node.wait_for_end(&second).await.unwrap();
    assert_eq!(waits(), [""; 0]);
    drop(workers);
}

/// A ready Step waits for its pool where that has no worker, or none with room; a Step that nobody is
/// to be given yet waits for neither.
#[tokio::test(start_paused = true)]
async fn ready_steps_wait_for_workers_or_for_room() {
    let node = node().await;
    let first = create(&node, dag("t", "a b c<-a")).await.unwrap();
    let second = create(&node, dag("other", "a")).await.unwrap();
    until_waits(&node, &["dependency_pending 1", "no_worker_in_pool 3"]).await;
    let pool = PoolId::new(POOL).unwrap();
    let (link, mut inbox) = node.join(AgentId::new("w.1").unwrap(), pool, None).unwrap();
    until_waits(&node, &["dependency_pending 1", "pool_saturated 3"]).await;
    link.credit(Credit { free: 1, seen: 0, lost: 0, number: 1 });
    let Some(Delivery::Grant(_)) = inbox.next().await else { panic!("a grant") };
    until_waits(&node, &["dependency_pending 1", "pool_saturated 2"]).await;
    drop(link);
    until_waits(&node, &["dependency_pending 1", "no_worker_in_pool 2"]).await;
    let manual = CreateTask { dispatch: Some(Policy::Manual), ..dag("by-hand", "a") };
    create(&node, manual).await.unwrap();
    until_waits(&node, &["dependency_pending 1", "runnable_now 1", "no_worker_in_pool 2"]).await;
    // Runs that wait for a worker are no Steps.
    let by_hand = key("by-hand");
    for _ in 0..3 {
        let input = serde_json::json!({"worker_pool_id": POOL});
        let run = serde_json::json!({"operation": "dispatch_worker", "input": input});
        node.command(&by_hand, envelope(), serde_json::from_value::<Command>(run).unwrap())
            .await
            .unwrap();
    }
    for task in [&first, &second] {
        order(&node, task, "pause_task").await;
    }
    until_waits(&node, &["task_paused 3", "runnable_now 1"]).await;
    let waiting = || node.sample().pools.iter().map(|pool| pool.waiting).sum::<u64>();
    while waiting() != 3 {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(waits(&node), ["task_paused 3", "runnable_now 1"]);
}

/// VIEW-17: a ready Step whose handler no worker of its pool has waits for that, however much room there is.
#[tokio::test(start_paused = true)]
async fn ready_steps_wait_for_their_handler() {
    let node = node().await;
    let mut task = dag("t", "a b c");
    task.steps[0].handler = Some("send".parse().unwrap());
    let key = create(&node, task).await.unwrap();
    until_waits(&node, &["no_worker_in_pool 3"]).await;
    let handlers = Some(vec!["h".parse().unwrap()]);
    let join = |handlers| {
        let pool = PoolId::new(POOL).unwrap();
        node.join(AgentId::new("w.1").unwrap(), pool, handlers).unwrap()
    };
    let (link, mut inbox) = join(handlers);
    until_waits(&node, &["no_worker_with_handler 1", "pool_saturated 2"]).await;
    link.credit(Credit { free: 1, seen: 0, lost: 0, number: 1 });
    let Some(Delivery::Grant(_)) = inbox.next().await else { panic!("a grant") };
    until_waits(&node, &["no_worker_with_handler 1", "pool_saturated 1"]).await;
    link.credit(Credit { free: 5, seen: 1, lost: 0, number: 2 });
    let Some(Delivery::Grant(_)) = inbox.next().await else { panic!("a grant") };
    until_waits(&node, &["no_worker_with_handler 1"]).await;
    order(&node, &key, "pause_task").await;
    until_waits(&node, &["task_paused 1"]).await;
}

/// Which Step has waited longest is told of each pool, and of one session alone.
#[tokio::test(start_paused = true)]
async fn the_step_that_has_waited_longest_is_named() {
    let node = node().await;
    let first = create(&node, dag("t", "a b<-a")).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    create(&node, dag("other", "c")).await.unwrap();
    until_waits(&node, &["dependency_pending 1", "no_worker_in_pool 2"]).await;
    let longest = node.longest_waits(&first.session_id);
    let [(pool, step)] = &longest[..] else { panic!("{longest:?}") };
    assert_eq!((pool.as_str(), step.task_id.as_str(), step.step_id.as_str()), (POOL, "t", "a"));
    assert!(node.now() - step.since >= 1_000, "{step:?}");
    assert_eq!(node.longest_waits(&"elsewhere".parse().unwrap()), []);
    order(&node, &first, "pause_task").await;
    until_waits(&node, &["task_paused 2", "no_worker_in_pool 1"]).await;
    while node.longest_waits(&first.session_id)[0].1.task_id.as_str() != "other" {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let workers = completing(&node, 3);
    order(&node, &first, "resume_task").await;
    node.wait_for_end(&first).await.unwrap();
    assert_eq!(node.longest_waits(&first.session_id), []);
    drop(workers);
}

/// What Steps wait for, in numbers that are not 0.
fn waits(node: &common::Node) -> Vec<String> {
    let waits = node.sample().waits.into_iter().filter(|(_, count)| *count > 0);
    waits.map(|(why, count)| format!("{why} {count}")).collect()
}

async fn until_waits(node: &common::Node, all: &[&str]) {
    for _ in 0..1_000 {
        if waits(node) == all {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("{:?} and not {all:?}", waits(node));
}

async fn order(node: &common::Node, task: &TaskKey, operation: &str) {
    let command = serde_json::json!({"operation": operation, "input": {}});
    node.command(task, envelope(), serde_json::from_value::<Command>(command).unwrap())
        .await
        .unwrap();
}

async fn until_running(node: &common::Node, running: u64) {
    for _ in 0..1_000 {
        if node.sample().pools.iter().map(|pool| pool.running).sum::<u64>() == running {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("it does not come to pass: {:?}", node.sample());
}

/// Counts what it is told of expiries, and notes how appends went and how long they had no answer.
#[derive(Debug, Default)]
struct Expiries(AtomicUsize, Mutex<Vec<bool>>, Mutex<Vec<Duration>>);

impl Observer for Expiries {
    fn appended(&self, _: &Task, _: &[Arc<Commit>]) {}
    fn refused(&self, _: &Rejection) {}
    fn wrote(&self, called: Called) {
        self.1.lock().unwrap().push(called.is_ok);
    }
    fn held_up(&self, waited: Duration) {
        self.2.lock().unwrap().push(waited);
    }
    fn leased(&self, _: LeaseCall, _: Called) {}
    fn framed(&self, _: Called) {}
    fn took_over(&self, _: Duration) {}
    fn answered(&self, _: &'static str, _: Duration, _: Option<Code>) {}
    fn parted(&self, _: LinkEnd) {}
    fn opened(&self, _: &Task) {}

    fn ended_before(&self, _: &Task) {}
    fn taken(&self) -> Option<tokio::sync::oneshot::Receiver<u64>> {
        None
    }
    fn trace_of(&self, _: &View<'_>, _: AttemptId) -> Option<SmolStr> {
        None
    }

    fn expired(&self, _: AttemptId, _: Duration) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

async fn observed() -> (Arc<Expiries>, Arc<Faulty<MemoryJournal>>, common::Node) {
    let seen = Arc::new(Expiries::default());
    let journal = Arc::new(Faulty::new(MemoryJournal::default()));
    let mut config = Config::embedded(PoolId::new(POOL).unwrap());
    config.observer = Some(seen.clone());
    let leases = Arc::new(MemoryLeases::default());
    let node = Scheduler::start(journal.clone(), leases, config).await.unwrap();
    (seen, journal, node)
}

/// However often its lease is found to be over before its end is in the log.
#[tokio::test(start_paused = true)]
async fn an_attempt_that_was_lost_is_noted_once() {
    let (seen, journal, node) = observed().await;
    let id = AgentId::new("silent").unwrap();
    let (link, mut inbox) = node.join(id, PoolId::new(POOL).unwrap(), None).unwrap();
    link.credit(Credit { free: 1, seen: 0, lost: 0, number: 1 });
    let key = create(&node, dag("t", "a")).await.unwrap();
    assert!(matches!(inbox.next().await, Some(Delivery::Grant(_))));
    until(&node, &key, |task| task.tally().held() == 1).await;
    let held = journal.hold_next();
    tokio::time::sleep(Duration::from_secs(40)).await;
    assert_eq!(seen.0.load(Ordering::Relaxed), 0, "nothing of it is in the log");
    held.open();
    until(&node, &key, |task| task.tally().held() == 0).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(seen.0.load(Ordering::Relaxed), 1);
}

/// An append without an answer is told of while it goes on: who waits for the end of an outage sees nothing of it.
#[tokio::test(start_paused = true)]
async fn an_append_without_an_answer_is_noted_while_it_goes_on() {
    let (seen, journal, node) = observed().await;
    let key = create(&node, dag("t", "a")).await.unwrap();
    let held = journal.hold_next();
    let pausing = {
        let (node, key) = (node.clone(), key.clone());
        let pause = json!({"operation": "pause_task", "input": {}});
        let pause = serde_json::from_value::<Command>(pause).unwrap();
        tokio::spawn(async move { node.command(&key, envelope(), pause).await })
    };
    tokio::time::sleep(Duration::from_millis(1_900)).await;
    assert!(seen.2.lock().unwrap().is_empty(), "it is not late yet");
    tokio::time::sleep(Duration::from_secs(60)).await;
    let waited = seen.2.lock().unwrap().clone();
    assert!(waited.len() >= 8, "again and again: {waited:?}");
    assert!(waited.is_sorted() && waited[0] >= Duration::from_secs(2), "{waited:?}");
    assert_eq!(*seen.1.lock().unwrap(), [true], "it was created, and the rest is open");
    held.open();
    pausing.await.unwrap().unwrap();
    assert_eq!(*seen.1.lock().unwrap(), [true, true], "it was written after all");
    let noted = waited.len();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(seen.2.lock().unwrap().len(), noted, "and is not late any more");
}

/// An append that comes too late, as another node owns the Task by then, is no failure of the log.
#[tokio::test(start_paused = true)]
async fn what_is_another_nodes_is_no_failure_of_the_log() {
    let (seen, journal, node) = observed().await;
    let key = create(&node, dag("t", "a")).await.unwrap();
    let pause =
        || serde_json::from_value::<Command>(json!({"operation": "pause_task", "input": {}}));
    journal.next(Fault::Fail);
    let refused = node.command(&key, envelope(), pause().unwrap()).await.unwrap_err();
    assert_eq!(refused.code, Code::StorageError);
    assert_eq!(*seen.1.lock().unwrap(), [true, false], "it was created, and the log failed");

    let (held, before) = (journal.hold_next(), journal.writes());
    let pausing = {
        let (node, key) = (node.clone(), key.clone());
        tokio::spawn(async move { node.command(&key, envelope(), pause().unwrap()).await })
    };
    while journal.writes() == before {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    journal.set_epoch(Some(9));
    held.open();
    assert_eq!(pausing.await.unwrap().unwrap_err().code, Code::NotOwner);
    assert_eq!(*seen.1.lock().unwrap(), [true, false], "as before");
}
