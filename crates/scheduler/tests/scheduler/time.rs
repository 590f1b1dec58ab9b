//! Leases, backoffs and limits, on a clock that the test holds.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use futures::StreamExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{
    self, POOL, cancel, completing, create, dag, envelope, events, node, replayed, status,
    step_status, until, with_policy, workers,
};
use tenure_core::Command;
use tenure_core::command::{Close, RunAndWhy, Why};
use tenure_core::id::{AgentId, AttemptId, PoolId};
use tenure_core::record::{Backoff, RetryPolicy};
use tenure_core::retry_policy::Limit;
use tenure_core::status::{Policy, StepStatus, TaskStatus};
use tenure_local::MemoryLeases;
use tenure_ports::Leases as _;
use tenure_ports::bus::{Credit, Delivery, Holding, Pulse, WorkerPort as _};
use tenure_scheduler::{Config, Scheduler};
use tenure_testkit::faulty::Fault;
use tenure_testkit::{Faulty, MemoryJournal};
use tokio::time::Instant;

/// LEASE-07, LEASE-10, LEASE-16, CLAIM-12, QUERY-14: a worker that falls silent loses its Step within the
/// lease and one tick, though nobody asks, and the Step is there to be claimed and runs again elsewhere.
#[tokio::test(start_paused = true)]
async fn a_silent_worker_loses_its_step_within_lease_and_tick() {
    let node = node().await;
    let id = AgentId::new("silent").unwrap();
    let (link, mut inbox) = node.join(id, PoolId::new(POOL).unwrap(), None).unwrap();
    link.credit(Credit { free: 1, seen: 0, lost: 0, number: 1 });
    let key = create(&node, dag("t", "a")).await.unwrap();
    assert!(matches!(inbox.next().await, Some(Delivery::Grant(_))));
    let started = Instant::now();
    until(&node, &key, |task| task.tally().held() == 0).await;
    let took = started.elapsed();
    assert!(took >= Duration::from_secs(30), "lost after {took:?}");
    assert!(took <= Duration::from_millis(31_100), "lost after {took:?}");
    assert!(matches!(inbox.next().await, Some(Delivery::Lost(_))));
    let _workers = completing(&node, 1);
    node.wait_for_end(&key).await.unwrap();
    assert_eq!(status(&node, &key).await, TaskStatus::Completed);
}

/// LEASE-15: a single lease that the store has lost is made again, with all of its duration. Without it
/// an Attempt whose worker is gone would stay open for ever.
#[tokio::test(start_paused = true)]
async fn a_lease_that_was_lost_in_silence_is_made_again() {
    let journal = Arc::new(Faulty::new(MemoryJournal::default()));
    let leases = Arc::new(MemoryLeases::default());
    let config = Config::embedded(PoolId::new(POOL).unwrap());
    let node = Scheduler::start(journal, Arc::clone(&leases), config).await.unwrap();
    let id = AgentId::new("silent").unwrap();
    let (link, mut inbox) = node.join(id, PoolId::new(POOL).unwrap(), None).unwrap();
    link.credit(Credit { free: 1, seen: 0, lost: 0, number: 1 });
    let key = create(&node, dag("t", "a")).await.unwrap();
    let Some(Delivery::Grant(claim)) = inbox.next().await else { panic!("a grant comes") };
    let attempt = Holding::of(&claim).attempt_id;
    leases.release(vec![attempt]).await.unwrap();
    assert_eq!(leases.left_ms(attempt), None);
    tokio::time::sleep(Duration::from_secs(32)).await;
    assert!(leases.left_ms(attempt).unwrap() > 25_000);
    until(&node, &key, |task| task.tally().held() == 1).await;
    tokio::time::sleep(Duration::from_secs(32)).await;
    assert!(events(&node, &key).await.contains(&"task_step_lease_expired"));
}

/// LEASE-04, LEASE-05, CTX-11: the worker heartbeats by itself; nothing of it reaches the log.
#[tokio::test(start_paused = true)]
async fn a_long_handler_keeps_its_lease_by_heartbeats() {
    let node = node().await;
    let _workers = workers(&node, 1, |ctx| async move {
        tokio::time::sleep(Duration::from_secs(600)).await;
        Ok(ctx.complete(None)?)
    });
    let key = create(&node, dag("t", "a")).await.unwrap();
    node.wait_for_end(&key).await.unwrap();
    let events = events(&node, &key).await;
    assert_eq!(
        events,
        [
            "task_created",
            "task_step_ready",
            "task_running",
            "task_step_claimed",
            "task_step_completed",
            "task_completed"
        ]
    );
}

/// A handler that blocks its thread does not lose its lease: it runs on a thread for that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blocking_handler_keeps_its_lease() {
    let node = node().await;
    let (link, inbox) =
        node.join(AgentId::new("b").unwrap(), PoolId::new(POOL).unwrap(), None).unwrap();
    let handlers = tenure_sdk::worker::Handlers::new()
        .blocking("h", |ctx| {
            std::thread::sleep(Duration::from_millis(1_500));
            Ok(ctx.complete(None)?)
        })
        .unwrap();
    let options = tenure_sdk::worker::Options::new(std::num::NonZeroUsize::MIN);
    let _pool = tenure_sdk::worker::WorkerPool::start(link, inbox, handlers, options);
    let short = RetryPolicy { heartbeat_ms: Some(1_000), ..RetryPolicy::default() };
    let key = create(&node, with_policy(dag("t", "a"), short)).await.unwrap();
    node.wait_for_end(&key).await.unwrap();
    assert!(!events(&node, &key).await.contains(&"task_step_lease_expired"));
}

/// READY-05, RETRY-04, RETRY-06: a failed Step is tried again when its backoff has passed, by the
/// timer alone.
#[tokio::test(start_paused = true)]
async fn a_failed_step_is_tried_again_after_its_backoff() {
    let node = node().await;
    let tries = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&tries);
    let _workers = workers(&node, 1, move |ctx| {
        let nth = counted.fetch_add(1, Ordering::SeqCst);
        async move {
            if nth < 2 {
                return Err("not yet".into());
            }
            Ok(ctx.complete(None)?)
        }
    });
    let policy = RetryPolicy {
        max_attempts: Some(Limit::Of(3)),
        backoff: Some(Backoff { initial_ms: 10_000, jitter: 0.0, ..Backoff::default() }.into()),
        ..RetryPolicy::default()
    };
    let started = Instant::now();
    let key = create(&node, with_policy(dag("t", "a"), policy)).await.unwrap();
    node.wait_for_end(&key).await.unwrap();
    assert_eq!(tries.load(Ordering::SeqCst), 3);
    assert!(started.elapsed() >= Duration::from_secs(30), "{:?}", started.elapsed());
    assert!(started.elapsed() <= Duration::from_secs(31), "{:?}", started.elapsed());
}

/// S14, RETRY-10: a Step that takes longer than `start_to_close_ms` fails with `worker_timeout`, and
/// its worker is told.
#[tokio::test(start_paused = true)]
async fn a_step_that_takes_too_long_times_out() {
    let node = node().await;
    let _workers = workers(&node, 1, |ctx| async move {
        ctx.cancellation().cancelled().await;
        Ok(())
    });
    let policy = RetryPolicy {
        max_attempts: Some(Limit::Of(1)),
        start_to_close_ms: Some(Limit::Of(5_000)),
        ..RetryPolicy::default()
    };
    let key = create(&node, with_policy(dag("t", "a"), policy)).await.unwrap();
    node.wait_for_end(&key).await.unwrap();
    let code = node.read(&key, |t| t.head().status_reason.clone()).await.unwrap().unwrap();
    assert_eq!(code.code, "timed_out");
}

/// S15: a ready Step that nobody claims in time fails.
#[tokio::test(start_paused = true)]
async fn a_step_that_nobody_claims_in_time_fails() {
    let node = node().await;
    let policy =
        RetryPolicy { schedule_to_start_ms: Some(Limit::Of(60_000)), ..RetryPolicy::default() };
    let key = create(&node, with_policy(dag("t", "a"), policy)).await.unwrap();
    let started = Instant::now();
    node.wait_for_end(&key).await.unwrap();
    assert!(started.elapsed() >= Duration::from_secs(60));
    assert_eq!(step_status(&node, &key, "a").await, StepStatus::Failed);
}

/// POL-08: an automatic Task that passes its deadline fails with `timed_out`.
#[tokio::test(start_paused = true)]
async fn a_task_past_its_deadline_fails() {
    let node = node().await;
    let mut input = dag("t", "a");
    let at = node.now() + 60_000;
    input.constraints = Some([("deadline_at".to_owned(), at.into())].into_iter().collect());
    let key = create(&node, input).await.unwrap();
    node.wait_for_end(&key).await.unwrap();
    let reason = node.read(&key, |t| t.head().status_reason.clone()).await.unwrap().unwrap();
    assert_eq!(reason.code, "timed_out");
}

/// CANCEL-01, CANCEL-07, TERM-09: a holder is asked to stop first; it may, and the Task then ends.
#[tokio::test(start_paused = true)]
async fn cancelling_asks_the_holder_first() {
    let node = node().await;
    let _workers = workers(&node, 1, |ctx| async move {
        ctx.cancellation().cancelled().await;
        Ok(())
    });
    let key = create(&node, dag("t", "a b<-a")).await.unwrap();
    until(&node, &key, |task| task.tally().held() == 1).await;
    let started = Instant::now();
    let answer = cancel(&node, &key).await.unwrap();
    assert_eq!(answer.status, TaskStatus::Cancelled);
    assert!(started.elapsed() < Duration::from_secs(1), "it stopped by itself");
    let events = events(&node, &key).await;
    assert!(events.contains(&"task_cancel_requested"));
    assert_eq!(events.last(), Some(&"task_cancelled"));
}

/// TERM-12, TERM-13: a holder that does not stop delays the end by the wait limit, no more.
#[tokio::test(start_paused = true)]
async fn a_holder_that_does_not_stop_delays_the_end_by_the_wait_limit() {
    let node = node().await;
    let (link, mut inbox) =
        node.join(AgentId::new("deaf").unwrap(), PoolId::new(POOL).unwrap(), None).unwrap();
    link.credit(Credit { free: 1, seen: 0, lost: 0, number: 1 });
    let key = create(&node, dag("t", "a")).await.unwrap();
    assert!(matches!(inbox.next().await, Some(Delivery::Grant(_))));
    let started = Instant::now();
    cancel(&node, &key).await.unwrap();
    assert!(started.elapsed() >= Duration::from_secs(10), "{:?}", started.elapsed());
    assert!(started.elapsed() <= Duration::from_secs(11), "{:?}", started.elapsed());
    assert!(matches!(inbox.next().await, Some(Delivery::CancelRequested(..))));
    assert!(matches!(inbox.next().await, Some(Delivery::Lost(_))));
}

/// CANCEL-07: a worker that has come anew under its name, as after a break of its connection, is told on
/// the link that it has now.
#[tokio::test(start_paused = true)]
async fn a_signal_goes_to_the_link_that_its_worker_has_now() {
    let node = node().await;
    let join = || node.join(AgentId::new("w").unwrap(), PoolId::new(POOL).unwrap(), None).unwrap();
    let (old, mut before) = join();
    old.credit(Credit { free: 1, seen: 0, lost: 0, number: 1 });
    let key = create(&node, dag("t", "a")).await.unwrap();
    let Some(Delivery::Grant(claim)) = before.next().await else { panic!("a grant comes") };
    let (_link, mut inbox) = join();
    drop(old);
    let close = Close { wait: Some(false), ..Close::default() };
    node.command(&key, envelope(), Command::TaskCancel(close)).await.unwrap();
    let mut told = async || {
        let told = tokio::time::timeout(Duration::from_secs(60), inbox.next()).await;
        told.expect("it is told").unwrap()
    };
    assert!(matches!(told().await, Delivery::CancelRequested(id, _) if id == claim.attempt_id));
    assert!(matches!(told().await, Delivery::Lost(id) if id == claim.attempt_id));
}

/// CANCEL-07: a worker whose link ended before it heard of a signal, or before there was one, is told on
/// its next link, and once.
#[tokio::test(start_paused = true)]
async fn a_signal_waits_for_the_next_link_of_its_worker() {
    let node = node().await;
    let join = || node.join(AgentId::new("w").unwrap(), PoolId::new(POOL).unwrap(), None).unwrap();
    let (link, mut inbox) = join();
    link.credit(Credit { free: 1, seen: 0, lost: 0, number: 1 });
    let key = create(&node, dag("t", "a")).await.unwrap();
    let Some(Delivery::Grant(claim)) = inbox.next().await else { panic!("a grant comes") };
    drop((link, inbox));
    let close = Close { wait: Some(false), ..Close::default() };
    node.command(&key, envelope(), Command::TaskCancel(close)).await.unwrap();
    let is_it = |told: &Delivery| matches!(told, Delivery::CancelRequested(id, _) if *id == claim.attempt_id);
    let (link, mut inbox) = join();
    let told = inbox.try_recv().unwrap();
    assert!(is_it(&told));
    let (_next, mut next_inbox) = join();
    link.unacknowledged(told);
    assert!(is_it(&next_inbox.try_recv().unwrap()));
    assert!(inbox.try_recv().is_err());
    drop(link);
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert!(matches!(next_inbox.try_recv().unwrap(), Delivery::Lost(id) if id == claim.attempt_id));
    assert!(next_inbox.try_recv().is_err());
}

/// What a worker was to be told that does not come again is forgotten.
#[tokio::test(start_paused = true)]
async fn a_signal_waits_no_longer_than_a_lease() {
    let node = node().await;
    let join = || node.join(AgentId::new("w").unwrap(), PoolId::new(POOL).unwrap(), None).unwrap();
    let (link, inbox) = join();
    drop(inbox);
    link.unacknowledged(Delivery::Lost(AttemptId(uuid::Uuid::nil())));
    drop(link);
    tokio::time::sleep(Duration::from_secs(32)).await;
    assert!(join().1.try_recv().is_err());
}

/// RUN-02, RUN-05, CANCEL-08: cancelling one run fails its Step with `worker_cancelled`, which the
/// orchestrator can reopen, and leaves the Task alone.
#[tokio::test(start_paused = true)]
async fn cancelling_a_run_fails_its_step_only() {
    let node = node().await;
    let _workers = workers(&node, 1, |ctx| async move {
        ctx.cancellation().cancelled().await;
        Ok(())
    });
    let key = create(&node, dag("t", "a")).await.unwrap();
    until(&node, &key, |task| task.tally().held() == 1).await;
    let run = node.read(&key, |task| task.open_attempts().next().map(|a| a.run_id)).await;
    let cancel = RunAndWhy { reason: None, run_id: run.unwrap().unwrap() };
    node.command(&key, envelope(), Command::CancelRun(cancel)).await.unwrap();
    assert_eq!(step_status(&node, &key, "a").await, StepStatus::Failed);
    assert_eq!(status(&node, &key).await, TaskStatus::Running);
}

/// TASK-12, TASK-13: nothing is claimed while a Task is paused; resuming offers its Steps again.
#[tokio::test(start_paused = true)]
async fn a_paused_task_is_claimed_from_only_after_it_resumes() {
    let node = node().await;
    let key = create(&node, dag("t", "a b<-a")).await.unwrap();
    node.command(&key, envelope(), Command::PauseTask(Why::default())).await.unwrap();
    let _workers = completing(&node, 2);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(step_status(&node, &key, "a").await, StepStatus::Ready);
    node.command(&key, envelope(), Command::ResumeTask(Why::default())).await.unwrap();
    node.wait_for_end(&key).await.unwrap();
}

/// A worker that runs for so long.
fn slow(node: &common::Node, seconds: u64) -> common::Pool {
    workers(node, 1, move |ctx| async move {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        Ok(ctx.complete(None)?)
    })
}

/// LEASE-07: after this process stood still, its workers are heard before any lease is judged; one
/// that stays silent then loses its Step after all.
#[tokio::test(start_paused = true)]
async fn a_standstill_costs_no_living_worker_its_lease() {
    let node = node().await;
    let living = slow(&node, 300);
    let key = create(&node, dag("t", "a")).await.unwrap();
    until(&node, &key, |task| task.tally().held() == 1).await;
    for _ in 0..3 {
        tokio::time::advance(Duration::from_secs(60)).await;
        tokio::time::sleep(Duration::from_secs(20)).await;
    }
    node.wait_for_end(&key).await.unwrap();
    assert!(!events(&node, &key).await.contains(&"task_step_lease_expired"));
    drop(living);

    let id = AgentId::new("silent").unwrap();
    let (link, mut inbox) = node.join(id, PoolId::new(POOL).unwrap(), None).unwrap();
    link.credit(Credit { free: 1, seen: 0, lost: 0, number: 1 });
    let key = create(&node, dag("u", "a")).await.unwrap();
    assert!(matches!(inbox.next().await, Some(Delivery::Grant(_))));
    tokio::time::advance(Duration::from_secs(60)).await;
    let stood_still = Instant::now();
    until(&node, &key, |task| task.tally().held() == 0).await;
    let took = stood_still.elapsed();
    assert!(took >= Duration::from_secs(10) && took <= Duration::from_secs(14), "{took:?}");
}

/// CTX-11: a Task that cannot answer just now costs no other Task its lease, and its own holder
/// hears nothing rather than a wrong word.
#[tokio::test(start_paused = true)]
async fn a_heartbeat_waits_for_no_single_task() {
    let node = node().await;
    let id = AgentId::new("w").unwrap();
    let (link, mut inbox) = node.join(id, PoolId::new(POOL).unwrap(), None).unwrap();
    link.credit(Credit { free: 2, seen: 0, lost: 0, number: 1 });
    let mut held = Vec::new();
    for task in ["slow", "fast"] {
        create(&node, dag(task, "a")).await.unwrap();
        let Some(Delivery::Grant(claim)) = inbox.next().await else { panic!("a grant comes") };
        held.push(Holding::of(&claim));
    }
    let gate = node.journal().hold_reads();
    node.journal().next(Fault::UnknownKept);
    let paused = Command::PauseTask(Why::default());
    node.command(&held[0].task, envelope(), paused).await.unwrap_err();
    let asked = Instant::now();
    let pulses = link.heartbeat(&held).await;
    assert!(asked.elapsed() <= Duration::from_millis(2_100), "{:?}", asked.elapsed());
    assert_eq!(
        pulses,
        [Pulse::Unknown, Pulse::Renewed { cancel_requested: false, time_left_ms: None }]
    );
    gate.open();
    let pulses = link.heartbeat(&held).await;
    assert!(pulses.iter().all(|pulse| matches!(pulse, Pulse::Renewed { .. })), "{pulses:?}");
}

/// CTX-11: nor does it give up a Task at once that is late with its answer, as one whose log is being read.
#[tokio::test(start_paused = true)]
async fn a_heartbeat_waits_a_while_for_a_task_that_is_late() {
    let node = node().await;
    let id = AgentId::new("w").unwrap();
    let (link, mut inbox) = node.join(id, PoolId::new(POOL).unwrap(), None).unwrap();
    link.credit(Credit { free: 1, seen: 0, lost: 0, number: 1 });
    let key = create(&node, dag("t", "a")).await.unwrap();
    let Some(Delivery::Grant(claim)) = inbox.next().await else { panic!("a grant comes") };
    let gate = node.journal().hold_reads();
    node.journal().next(Fault::UnknownKept);
    node.command(&key, envelope(), Command::PauseTask(Why::default())).await.unwrap_err();
    let late = async {
        tokio::time::sleep(Duration::from_millis(1_900)).await;
        gate.open();
    };
    let held = [Holding::of(&claim)];
    let (pulses, ()) = tokio::join!(link.heartbeat(&held), late);
    assert_eq!(pulses, [Pulse::Renewed { cancel_requested: false, time_left_ms: None }]);
}

/// RECOVER-09: what falls due all at once is written in appends of a bounded size, and all of it.
#[tokio::test(start_paused = true)]
async fn what_falls_due_at_once_is_written_in_bounded_appends() {
    let steps = 1_500;
    let node = node().await;
    let id = AgentId::new("w").unwrap();
    let (link, mut inbox) = node.join(id, PoolId::new(POOL).unwrap(), None).unwrap();
    link.credit(Credit { free: steps, seen: 0, lost: 0, number: 1 });
    let policy = RetryPolicy {
        max_attempts: Some(Limit::Of(1)),
        start_to_close_ms: Some(Limit::Of(5_000)),
        ..RetryPolicy::default()
    };
    let names: Vec<String> = (0..steps).map(|n| format!("s{n}")).collect();
    let mut input = with_policy(dag("t", &names.join(" ")), policy);
    input.completion = Some(Policy::Manual);
    let key = create(&node, input).await.unwrap();
    for _ in 0..steps {
        assert!(matches!(inbox.next().await, Some(Delivery::Grant(_))));
    }
    let before = node.journal().writes();
    until(&node, &key, |task| task.tally().of(StepStatus::Failed) == 1_500).await;
    let appends = node.journal().writes() - before;
    assert!((2..=20).contains(&appends), "{appends} appends");
    assert_eq!(replayed(&node, &key).await.tally().of(StepStatus::Failed), 1_500);
}
