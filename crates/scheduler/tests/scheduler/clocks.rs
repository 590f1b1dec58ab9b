//! Clocks that are set, and machines that are suspended (mechanisms 17), on time that the test holds.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{
    self, Hands, Node, Pool, create, dag, node_by, status, step_status, until, with_policy,
};
use tenure_core::command::create::CreateTask;
use tenure_core::id::Millis;
use tenure_core::record::{Backoff, RetryPolicy};
use tenure_core::retry_policy::Limit;
use tenure_core::status::{StepStatus, TaskStatus};
use tenure_ports::journal::TaskKey;
use tenure_testkit::{Faulty, MemoryJournal};
use tokio::time::{Instant, sleep};

const HOUR: Millis = 3_600_000;

/// Workers whose first try of all fails; the next ones complete.
fn failing_once(node: &Node) -> Pool {
    let tries = AtomicUsize::new(0);
    common::workers(node, 1, move |ctx| {
        let nth = tries.fetch_add(1, Ordering::SeqCst);
        async move { if nth == 0 { Err("not yet".into()) } else { Ok(ctx.complete(None)?) } }
    })
}

/// Workers that never end by themselves.
fn hanging(node: &Node) -> Pool {
    common::workers(node, 1, |ctx| async move {
        ctx.cancellation().cancelled().await;
        Ok(())
    })
}

/// A Task of one Step that is tried twice, so long after each other.
fn patient(task: &str, wait: Duration) -> CreateTask {
    let ms = u64::try_from(wait.as_millis()).unwrap();
    let backoff = Backoff { initial_ms: ms, max_ms: ms, jitter: 0.0, ..Backoff::default() };
    let policy = RetryPolicy {
        max_attempts: Some(Limit::Of(2)),
        backoff: Some(backoff.into()),
        ..RetryPolicy::default()
    };
    with_policy(dag(task, "a"), policy)
}

/// A Task of one Step that may take so long.
fn limited(task: &str, limit: Duration) -> CreateTask {
    let start_to_close_ms = Some(Limit::Of(u64::try_from(limit.as_millis()).unwrap()));
    let policy = RetryPolicy {
        max_attempts: Some(Limit::Of(1)),
        start_to_close_ms,
        ..RetryPolicy::default()
    };
    with_policy(dag(task, "a"), policy)
}

fn until_deadline(input: CreateTask, at: Millis) -> CreateTask {
    let constraints = Some([("deadline_at".to_owned(), at.into())].into_iter().collect());
    CreateTask { constraints, ..input }
}

async fn last_stamp(node: &Node, key: &TaskKey) -> Millis {
    node.commits(key).await.unwrap().last().unwrap().created_at
}

/// Lets so many seconds pass in which whoever has something to say is heard.
async fn pass(seconds: u64) {
    sleep(Duration::from_secs(seconds)).await;
}

/// How long it took, in whole seconds: what is due is due a little after its second.
fn seconds(since: Instant) -> u64 {
    since.elapsed().as_secs()
}

/// READY-05: a machine that was suspended has let backoffs pass.
#[tokio::test(start_paused = true)]
async fn a_backoff_ends_though_the_machine_is_suspended() {
    let machine = Hands::new();
    let node = node_by(&machine, &Arc::default(), true).await;
    let _workers = failing_once(&node);
    let key = create(&node, patient("t", Duration::from_secs(3_600))).await.unwrap();
    until(&node, &key, |task| task.to_task().next_due().is_some()).await;
    let started = Instant::now();
    machine.suspend(HOUR);
    node.wait_for_end(&key).await.unwrap();
    assert!(seconds(started) < 5, "{:?}", started.elapsed());
    assert!(last_stamp(&node, &key).await >= Hands::FIRST + HOUR);
}

/// POL-08, P37: the system's clock of a process that is everything is set ahead for a moment: no deadline
/// comes by it, and nothing is stamped with it.
#[tokio::test(start_paused = true)]
async fn a_clock_that_is_ahead_for_a_moment_ends_nothing() {
    let machine = Hands::new();
    let node = node_by(&machine, &Arc::default(), true).await;
    let _workers = hanging(&node);
    let at = node.now() + HOUR;
    let key = create(&node, until_deadline(limited("t", Duration::from_secs(300)), at)).await;
    let key = key.unwrap();
    until(&node, &key, |task| task.tally().held() == 1).await;
    let started = Instant::now();
    machine.set_clock(2 * HOUR);
    sleep(Duration::from_millis(1_200)).await;
    machine.set_clock(-2 * HOUR);
    pass(120).await;
    assert_eq!(status(&node, &key).await, TaskStatus::Running);
    node.wait_for_end(&key).await.unwrap();
    assert_eq!(seconds(started), 300, "its Step's own limit has failed it");
    assert!(last_stamp(&node, &key).await <= machine.right());
}

/// READY-05, S14, POL-08: where the clock was set to stay, deadlines follow it, and waits do not.
#[tokio::test(start_paused = true)]
async fn deadlines_follow_a_clock_that_stays_set_and_waits_do_not() {
    for by in [2 * HOUR, -2 * HOUR] {
        let machine = Hands::new();
        let node = node_by(&machine, &Arc::default(), true).await;
        let failing = failing_once(&node);
        let retried = create(&node, patient("retried", Duration::from_secs(600))).await.unwrap();
        until(&node, &retried, |task| task.to_task().next_due().is_some()).await;
        drop(failing);
        let _hanging = hanging(&node);
        let limit = create(&node, limited("limited", Duration::from_secs(300))).await.unwrap();
        until(&node, &limit, |task| task.tally().held() == 1).await;
        let at = node.now() + 3 * HOUR;
        let waits = create(&node, until_deadline(dag("waits", "a"), at)).await.unwrap();
        let started = Instant::now();
        machine.set_clock(by);
        node.wait_for_end(&limit).await.unwrap();
        assert_eq!(seconds(started), 300);
        assert!((node.now() - machine.right() - by).abs() < 1_000, "it is followed by then");
        until(&node, &retried, |task| task.tally().of(StepStatus::Pending) == 0).await;
        assert!(seconds(started).abs_diff(600) <= 1, "{:?}", started.elapsed());
        node.wait_for_end(&waits).await.unwrap();
        let took = Millis::try_from(started.elapsed().as_millis()).unwrap();
        assert!((took - (3 * HOUR - by)).abs() < 5_000, "{took}");
    }
}

/// READY-05, P37: a process whose clock was ahead has gone; the next one's is right. Stamps stay at the last
/// one, and no wait is longer than it was to be.
#[tokio::test(start_paused = true)]
async fn after_a_restart_with_a_clock_set_back_no_wait_is_longer() {
    let journal: Arc<Faulty<MemoryJournal>> = Arc::default();
    let ahead = Hands::new();
    ahead.set_clock(2 * HOUR);
    let key = {
        let node = node_by(&ahead, &journal, true).await;
        let _workers = failing_once(&node);
        let key = create(&node, patient("t", Duration::from_secs(10))).await.unwrap();
        until(&node, &key, |task| task.to_task().next_due().is_some()).await;
        node.stop().await;
        key
    };
    let node = node_by(&Hands::new(), &journal, true).await;
    let last = last_stamp(&node, &key).await;
    let started = Instant::now();
    assert_eq!(step_status(&node, &key, "a").await, StepStatus::Pending);
    let workers = failing_once(&node);
    until(&node, &key, |task| task.tally().of(StepStatus::Pending) == 0).await;
    assert!((9..=11).contains(&seconds(started)), "{:?}", started.elapsed());
    assert_eq!(last_stamp(&node, &key).await, last, "the clock has not reached it yet");
    drop(workers);

    // What begins now takes as long as it is to take, too.
    let _workers = hanging(&node);
    let limit = create(&node, limited("limited", Duration::from_secs(5))).await.unwrap();
    node.wait_for_end(&limit).await.unwrap();
    assert!(last_stamp(&node, &limit).await < last, "a new Task knows nothing of that");
}

/// LEASE-14, READY-05, S14: a node whose clock Redis contradicts goes on as if it had not been set: retries
/// and limits take as long as they are to take, now and later.
#[tokio::test(start_paused = true)]
async fn a_clock_that_a_second_one_contradicts_is_not_followed() {
    let machine = Hands::new();
    let node = node_by(&machine, &Arc::default(), false).await;
    machine.set_clock(HOUR / 6);
    let compared = async |seconds: u64| {
        for _ in 0..seconds {
            node.compare_clock(machine.right(), Duration::from_millis(1));
            pass(1).await;
        }
    };
    compared(120).await;
    let failing = failing_once(&node);
    let key = create(&node, patient("t", Duration::from_secs(10))).await.unwrap();
    until(&node, &key, |task| task.to_task().next_due().is_some()).await;
    machine.set_clock(-HOUR / 6);
    let started = Instant::now();
    node.wait_for_end(&key).await.unwrap();
    assert!((9..=11).contains(&seconds(started)), "{:?}", started.elapsed());
    assert!(last_stamp(&node, &key).await <= machine.right());
    drop(failing);

    let _hanging = hanging(&node);
    let limit = create(&node, limited("limited", Duration::from_secs(20))).await.unwrap();
    until(&node, &limit, |task| task.tally().held() == 1).await;
    let started = Instant::now();
    node.compare_clock(machine.right(), Duration::from_millis(1));
    node.wait_for_end(&limit).await.unwrap();
    assert!((19..=21).contains(&seconds(started)), "{:?}", started.elapsed());
}

/// POL-08: one that a second clock bears out is followed at once, forward and back, and deadlines with it.
#[tokio::test(start_paused = true)]
async fn a_clock_that_a_second_one_bears_out_is_followed() {
    let machine = Hands::new();
    machine.set_clock(-HOUR);
    let node = node_by(&machine, &Arc::default(), false).await;
    let at = machine.right() + HOUR / 2;
    let key = create(&node, until_deadline(dag("t", "a"), at)).await.unwrap();
    machine.set_clock(HOUR);
    node.compare_clock(machine.right(), Duration::from_millis(1));
    assert!((node.now() - machine.right()).abs() < 10);
    let started = Instant::now();
    node.wait_for_end(&key).await.unwrap();
    assert!(seconds(started).abs_diff(1_800) <= 1, "{:?}", started.elapsed());
}
