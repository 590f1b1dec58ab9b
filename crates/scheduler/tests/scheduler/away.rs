//! What operators are told of a pool while the store of leases or the log is away: what waits in the log waits
//! there too, whatever the Tasks do meanwhile.
#![allow(clippy::unwrap_used, missing_docs)] // A test that cannot go on has failed.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{self, Mood, Moody, POOL, create, dag, envelope, key};
use futures::StreamExt as _;
use serde_json::json;
use tenure_core::Command;
use tenure_core::eligibility::Obstacle;
use tenure_core::id::{AgentId, PoolId};
use tenure_core::status::Policy;
use tenure_ports::bus::{Credit, Delivery, WorkerPort as _};
use tenure_ports::observer::PoolSample;
use tenure_ports::{Journal, Leases};
use tenure_scheduler::{Config, Scheduler};
use tenure_testkit::faulty::Fault;
use tenure_testkit::{Faulty, MemoryJournal};
use tokio::time::sleep;

/// The only pool, as an operator sees it.
fn pool<J: Journal, L: Leases>(node: &Scheduler<J, L>) -> PoolSample {
    node.sample().pools.into_iter().find(|pool| pool.pool.as_str() == POOL).unwrap()
}

/// CTRL-11, P16: with the store of leases away all Steps wait, and grow older, though workers have capacity and are
/// lent to the Tasks again and again. When it answers, all of them are given out.
#[tokio::test(start_paused = true)]
async fn while_nobody_keeps_leases_the_steps_of_the_log_wait_and_age() {
    let journal = Arc::new(Faulty::new(MemoryJournal::default()));
    let leases = Arc::new(Moody::default());
    let config = Config::embedded(PoolId::new(POOL).unwrap());
    let node = Scheduler::start(journal, Arc::clone(&leases), config).await.unwrap();
    let worker = AgentId::new("w").unwrap();
    let (link, mut inbox) = node.join(worker, PoolId::new(POOL).unwrap(), None).unwrap();
    link.credit(Credit { free: 8, seen: 0, lost: 0, number: 1 });
    leases.set(Mood::Fails);
    sleep(Duration::from_secs(1)).await; // The scheduler has learned it.
    for (task, steps) in [("t", "a b c"), ("u", "a b")] {
        node.create(envelope(), dag(task, steps), Policy::Auto).await.unwrap();
    }
    for second in 1..=30 {
        sleep(Duration::from_secs(1)).await;
        let pool = pool(&node);
        assert_eq!((pool.waiting, pool.ready), (5, 5), "after {second} s");
        assert!(pool.oldest >= Duration::from_secs(second), "{second} s: {:?}", pool.oldest);
        assert_eq!((pool.free, pool.running), (8, 0));
        let waits: Vec<_> = node.sample().waits.into_iter().filter(|it| it.1 > 0).collect();
        assert_eq!(waits, [(Obstacle::LeasesUnavailable, 5)]);
        assert!(node.longest_waits(&key("t").session_id)[0].1.step_id.as_str() == "a");
    }
    leases.set(Mood::Answers);
    for _ in 0..5 {
        let given = tokio::time::timeout(Duration::from_secs(10), inbox.next()).await;
        assert!(matches!(given, Ok(Some(Delivery::Grant(_)))));
    }
    sleep(Duration::from_secs(1)).await;
    let pool = pool(&node);
    assert_eq!((pool.waiting, pool.ready, pool.running), (0, 0, 5));
    assert_eq!(pool.oldest, Duration::ZERO);
}

/// The same of a log that takes no writes: a Task that tries again later waits meanwhile.
#[tokio::test(start_paused = true)]
async fn while_the_log_fails_the_steps_of_the_log_wait() {
    let node = common::node().await;
    let key = create(&node, dag("t", "a b c")).await.unwrap();
    sleep(Duration::from_millis(10)).await;
    assert_eq!(pool(&node).waiting, 3, "there is no worker");
    let pause = json!({"operation": "append_task_progress", "input": {"progress": {"percent": 1}}});
    let pause = serde_json::from_value::<Command>(pause).unwrap();
    node.journal().next(Fault::Fail);
    node.command(&key, envelope(), pause).await.unwrap_err();
    for _ in 0..20 {
        sleep(Duration::from_millis(100)).await;
        let pool = pool(&node);
        assert_eq!((pool.waiting, pool.ready), (3, 3));
        assert!(pool.oldest > Duration::ZERO);
    }
}

/// A Task that another node takes waits here no longer, even if it had just been put off.
#[tokio::test(start_paused = true)]
async fn a_task_that_is_left_while_the_log_fails_waits_here_no_longer() {
    let node = common::node().await;
    let key = create(&node, dag("t", "a b c")).await.unwrap();
    let progress =
        json!({"operation": "append_task_progress", "input": {"progress": {"percent": 1}}});
    let progress = serde_json::from_value::<Command>(progress).unwrap();
    node.journal().next(Fault::Fail);
    node.command(&key, envelope(), progress).await.unwrap_err();
    node.leave(key.partition(8), None).await;
    sleep(Duration::from_millis(50)).await;
    let waiting: u64 = node.sample().pools.iter().map(|pool| pool.waiting).sum();
    assert_eq!(waiting, 0);
}
