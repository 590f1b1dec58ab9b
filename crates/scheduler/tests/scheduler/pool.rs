//! Pools: credits, fairness, admission, workers that come and go.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use futures::StreamExt as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{
    self, POOL, completing, create, dag, envelope, events, key, node, status, until, workers,
};
use tenure_core::command::StepReport;
use tenure_core::id::{AgentId, PoolId};
use tenure_core::patch::{Change, Operation, TaskFields};
use tenure_core::record::RemoteRef;
use tenure_core::status::{StepStatus, TaskStatus, WaitKind};
use tenure_core::{Code, Command};
use tenure_ports::bus::{Credit, Delivery, WorkerPort as _};

/// DISP-14, DISP-15: a DAG runs to its end in dependency order, and every Step once.
#[tokio::test]
async fn a_dag_runs_in_order_and_every_step_once() {
    let node = node().await;
    let _workers = completing(&node, 3);
    let key = create(&node, dag("t", "a b<-a c<-a d<-b,c e<-d f")).await.unwrap();
    node.wait_for_end(&key).await.unwrap();
    assert_eq!(status(&node, &key).await, TaskStatus::Completed);
    let all = events(&node, &key).await;
    assert_eq!(all.iter().filter(|e| **e == "task_step_completed").count(), 6);
    assert_eq!(all.iter().filter(|e| **e == "task_step_claimed").count(), 6);
}

/// Never more handlers at a time than there is room for, and all of the room is used.
#[tokio::test(start_paused = true)]
async fn concurrency_is_kept_and_used() {
    let node = node().await;
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (n, m) = (Arc::clone(&now), Arc::clone(&most));
    let _workers = workers(&node, 5, move |ctx| {
        let (n, m) = (Arc::clone(&n), Arc::clone(&m));
        async move {
            m.fetch_max(n.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(100)).await;
            n.fetch_sub(1, Ordering::SeqCst);
            Ok(ctx.complete(None)?)
        }
    });
    let steps: Vec<String> = (0..50).map(|i| format!("s{i}")).collect();
    let key = create(&node, dag("t", &steps.join(" "))).await.unwrap();
    node.wait_for_end(&key).await.unwrap();
    assert_eq!(most.load(Ordering::SeqCst), 5);
}

/// READY-07, DISP-14: absolute credits, so that a repeated or old message does no harm.
#[tokio::test]
async fn credits_are_absolute() {
    let node = node().await;
    let (link, mut inbox) =
        node.join(AgentId::new("w").unwrap(), PoolId::new(POOL).unwrap(), None).unwrap();
    for _ in 0..5 {
        link.credit(Credit { free: 2, seen: 0, lost: 0, number: 1 });
    }
    let key = create(&node, dag("t", "a b c d")).await.unwrap();
    let mut grants = Vec::new();
    for _ in 0..2 {
        let Some(Delivery::Grant(grant)) = inbox.next().await else { panic!("a grant") };
        grants.push(grant);
    }
    assert_eq!(node.read(&key, |t| t.tally().held()).await.unwrap(), 2);
    link.credit(Credit { free: 1, seen: 2, lost: 0, number: 2 });
    link.credit(Credit { free: 2, seen: 0, lost: 0, number: 1 }); // Late: it was said before.
    let Some(Delivery::Grant(_)) = inbox.next().await else { panic!("a grant") };
    until(&node, &key, |t| t.tally().held() == 3).await;
    assert!(inbox.try_recv().is_err());
}

/// Tasks share a pool in turn: none waits for another's whole backlog.
#[tokio::test(start_paused = true)]
async fn tasks_take_turns() {
    let node = node().await;
    let big: Vec<String> = (0..500).map(|i| format!("s{i}")).collect();
    let big = create(&node, dag("big", &big.join(" "))).await.unwrap();
    let small = create(&node, dag("small", "a b<-a")).await.unwrap();
    let _workers = workers(&node, 2, |ctx| async move {
        tokio::time::sleep(Duration::from_millis(100)).await;
        Ok(ctx.complete(None)?)
    });
    node.wait_for_end(&small).await.unwrap();
    let left = node.read(&big, |t| t.tally().unfinished()).await.unwrap();
    assert!(left > 450, "{left} of the big one are left when the small one ends");
}

/// P16: a turn is worth many credits while Steps are short, so reports and claims share appends
/// however many Tasks wait.
#[tokio::test(start_paused = true)]
async fn short_steps_of_many_tasks_share_appends() {
    let node = node().await;
    let steps: Vec<String> = (0..50).map(|i| format!("s{i}")).collect();
    let mut keys = Vec::new();
    for task in 0..40 {
        keys.push(create(&node, dag(&format!("t{task}"), &steps.join(" "))).await.unwrap());
    }
    let before = node.journal().writes();
    let _workers = completing(&node, 64);
    for key in &keys {
        node.wait_for_end(key).await.unwrap();
    }
    let appends = node.journal().writes() - before;
    assert!(appends < 40 * 50 / 4, "{appends} appends for {} steps", 40 * 50);
}

/// P16: the priority of a Task counts from when it is changed, also while it waits.
#[tokio::test(start_paused = true)]
async fn a_changed_priority_counts_at_once() {
    let node = node().await;
    for task in ["one", "two"] {
        create(&node, dag(task, "a b c")).await.unwrap();
    }
    let fields = TaskFields { priority: Change::Set(10), ..TaskFields::default() };
    let operations = vec![Operation::UpdateTask(Box::new(fields))];
    node.command(&key("two"), envelope(), Command::TaskUpdate { operations }).await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&order);
    let _workers = workers(&node, 1, move |ctx| {
        seen.lock().unwrap().push(ctx.task_id().to_owned());
        async move {
            tokio::time::sleep(Duration::from_millis(100)).await;
            Ok(ctx.complete(None)?)
        }
    });
    node.wait_for_end(&key("one")).await.unwrap();
    assert_eq!(*order.lock().unwrap(), ["two", "two", "two", "one", "one", "one"]);
}

/// DISP-14: a Step goes to a worker that announced its handler.
#[tokio::test(start_paused = true)]
async fn a_step_waits_for_a_worker_with_its_handler() {
    let node = node().await;
    let other = Some(vec![tenure_core::id::HandlerName::new("other").unwrap()]);
    let (link, mut inbox) =
        node.join(AgentId::new("w").unwrap(), PoolId::new(POOL).unwrap(), other).unwrap();
    link.credit(Credit { free: 4, seen: 0, lost: 0, number: 1 });
    let key = create(&node, dag("t", "a")).await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(inbox.try_recv().is_err());
    let _workers = completing(&node, 1);
    node.wait_for_end(&key).await.unwrap();
}

/// DISP-14, P16: a Step that fits none of the workers with room waits in peace: each of them is thought of
/// once, and not in turn for ever.
#[tokio::test(start_paused = true)]
async fn a_step_that_fits_nobody_keeps_nobody_busy() {
    let node = node().await;
    let pool = PoolId::new(POOL).unwrap();
    let mut others = Vec::new();
    for id in ["u", "v", "w"] {
        let other = Some(vec![tenure_core::id::HandlerName::new("other").unwrap()]);
        let (link, inbox) = node.join(AgentId::new(id).unwrap(), pool.clone(), other).unwrap();
        link.credit(Credit { free: 1, seen: 0, lost: 0, number: 1 });
        others.push((link, inbox));
    }
    let key = create(&node, dag("t", "a")).await.unwrap();
    let (busy, too_long) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(20));
        let _ = busy.send(()); // The test may have ended long ago.
    });
    tokio::select! {
        () = tokio::time::sleep(Duration::from_secs(5)) => {} // Time passes only while nobody is busy.
        _ = too_long => panic!("the pool and the task are busy with each other"),
    }
    assert_eq!(node.pool_facts(&pool).free, 3);
    assert!(others.iter_mut().all(|(_, inbox)| inbox.try_recv().is_err()));
    let _workers = completing(&node, 1);
    node.wait_for_end(&key).await.unwrap();
}

/// DISP-14, DISP-20: many Tasks wait for a handler that nobody has, and a Task that comes after them is done all
/// the same; a worker that has it then does them all.
#[tokio::test(start_paused = true)]
async fn tasks_that_nobody_can_run_hold_up_nobody() {
    let node = node().await;
    let (handler, pool) = (tenure_core::id::HandlerName::new, PoolId::new(POOL).unwrap());
    let absent = handler("absent").unwrap();
    let has_other = Some(vec![handler("h").unwrap()]);
    let (theirs, mut grants) =
        node.join(AgentId::new("v").unwrap(), pool.clone(), has_other).unwrap();
    theirs.credit(Credit { free: 1, seen: 0, lost: 0, number: 1 });
    let mut waiting = Vec::new();
    for task in 0..300 {
        let mut input = dag(&format!("t{task}"), "a b<-a");
        input.steps.iter_mut().for_each(|step| step.handler = Some(absent.clone()));
        waiting.push(create(&node, input).await.unwrap());
    }
    let steps: Vec<String> = (0..50).map(|i| format!("s{i}")).collect();
    let other = create(&node, dag("other", &steps.join(" "))).await.unwrap();
    for seen in 1..=50 {
        let Some(Delivery::Grant(grant)) = grants.next().await else { panic!("a grant") };
        assert_eq!(grant.task_id, other.task_id);
        theirs.credit(Credit { free: 1, seen, lost: 0, number: seen + 1 });
    }
    let (link, mut inbox) =
        node.join(AgentId::new("w").unwrap(), pool, Some(vec![absent])).unwrap();
    link.credit(Credit { free: 300, seen: 0, lost: 0, number: 1 });
    let mut tasks = Vec::new();
    for _ in 0..300 {
        let Some(Delivery::Grant(grant)) = inbox.next().await else { panic!("a grant") };
        tasks.push(grant.task_id.clone());
    }
    tasks.sort();
    let mut all: Vec<_> = waiting.into_iter().map(|key| key.task_id).collect();
    all.sort();
    assert_eq!(tasks, all);
    assert!(inbox.try_recv().is_err());
}

/// DISP-14: a worker that says again what it can run gets the Steps that did not fit it before.
#[tokio::test(start_paused = true)]
async fn a_worker_that_can_run_more_than_before_gets_what_waited() {
    let node = node().await;
    let (pool, id) = (PoolId::new(POOL).unwrap(), AgentId::new("w").unwrap());
    let other = Some(vec![tenure_core::id::HandlerName::new("other").unwrap()]);
    let (before, mut nothing) = node.join(id.clone(), pool.clone(), other).unwrap();
    before.credit(Credit { free: 1, seen: 0, lost: 0, number: 1 });
    create(&node, dag("t", "a")).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await; // As soon as nobody has anything to do.
    assert!(nothing.try_recv().is_err());
    let (now, mut inbox) = node.join(id, pool, None).unwrap();
    now.credit(Credit { free: 1, seen: 0, lost: 0, number: 1 });
    let next = tokio::time::timeout(Duration::from_secs(60), inbox.next()).await;
    assert!(matches!(next, Ok(Some(Delivery::Grant(_)))), "{next:?}");
}

/// S26: a grant that reaches nobody gives its Step back at once, and the Step counts in no budget.
#[tokio::test(start_paused = true)]
async fn a_grant_that_reaches_nobody_is_released() {
    let node = node().await;
    let (link, inbox) =
        node.join(AgentId::new("gone").unwrap(), PoolId::new(POOL).unwrap(), None).unwrap();
    link.credit(Credit { free: 1, seen: 0, lost: 0, number: 1 });
    drop(inbox);
    let key = create(&node, dag("t", "a")).await.unwrap();
    until(&node, &key, |t| t.tally().held() == 0).await;
    drop(link);
    let _workers = completing(&node, 1);
    node.wait_for_end(&key).await.unwrap();
}

/// CTX-03, CTX-12: a handler that panics, before or after it has begun, fails its Step with
/// `unhandled_exception`; one that returns without a final word with
/// `worker_finished_without_terminal_step_status`; one whose result can never be recorded with the
/// reason of that, and not with the loss of its lease.
#[tokio::test]
async fn broken_handlers_fail_their_steps() {
    let node = node().await;
    let _workers = workers(&node, 2, |ctx| {
        assert_ne!(ctx.step_id().as_str(), "early", "on purpose");
        async move {
            match ctx.step_id().as_str() {
                "panics" => panic!("on purpose, {}", "and at length ".repeat(1_000)),
                "large" => ctx.complete_json(&"x".repeat(17 << 20))?,
                _ => {}
            }
            Ok(())
        }
    });
    let policy = tenure_core::record::RetryPolicy {
        max_attempts: Some(tenure_core::retry_policy::Limit::Of(1)),
        ..Default::default()
    };
    for (id, code) in [
        ("early", "unhandled_exception"),
        ("panics", "unhandled_exception"),
        ("large", "value_too_large"),
        ("silent", "worker_finished_without_terminal_step_status"),
    ] {
        let input = common::with_policy(dag(id, id), policy.clone());
        let key = create(&node, input).await.unwrap();
        node.wait_for_end(&key).await.unwrap();
        let step = common::step_id(id);
        let reason = node
            .read(&key, move |t| t.step(&step).unwrap().state.facts().status_reason.clone())
            .await;
        assert_eq!(reason.unwrap().unwrap().code, code);
    }
}

/// REPORT-19: a handler whose peer's facts are not stored here learns it while it runs, and goes on until
/// they are. One that has returned already leaves its Step blocked, with what it has made.
#[tokio::test]
async fn no_handler_completes_before_the_facts_of_its_peer_are_here() {
    let node = node().await;
    let asker = node.clone();
    let _workers = workers(&node, 2, move |ctx| {
        let node = asker.clone();
        async move {
            let peer = |reconciled| RemoteRef {
                remote_task_id: "there".into(),
                reconciled,
                ..RemoteRef::default()
            };
            if ctx.step_id().as_str() == "asks" {
                ctx.delegate(peer(false)).await?;
                let refused = ctx.complete(None).unwrap_err();
                assert_eq!(refused.code, Code::FactsUnreconciled);
                ctx.delegate(peer(true)).await?;
            } else {
                // The orchestrator has given the work to a peer meanwhile.
                let task = key(ctx.task_id());
                let report = StepReport {
                    remote: Some(peer(false)),
                    ..StepReport::on(ctx.step_id().clone())
                };
                let delegates = Command::TaskUpdateStep(report);
                node.command(&task, envelope(), delegates).await?;
            }
            Ok(ctx.respond(None, "done")?)
        }
    });
    let asks = create(&node, dag("asks", "asks")).await.unwrap();
    node.wait_for_end(&asks).await.unwrap();
    assert_eq!(status(&node, &asks).await, TaskStatus::Completed);
    let told = create(&node, dag("told", "told")).await.unwrap();
    until(&node, &told, |t| t.tally().of(StepStatus::Blocked) == 1).await;
    let step = common::step_id("told");
    let state = node.read(&told, move |t| t.step(&step).unwrap().state.clone()).await.unwrap();
    assert_eq!(state.wait_kind, Some(WaitKind::Dependency));
    let facts = state.facts();
    assert_eq!(facts.status_reason.as_ref().unwrap().code, "facts_unreconciled");
    assert_eq!(facts.result_summary.as_deref(), Some("done"));
}

/// An interrupted worker gives its Steps back, and they run again elsewhere.
#[tokio::test(start_paused = true)]
async fn an_interrupted_worker_releases_what_it_holds() {
    let node = node().await;
    let first = workers(&node, 4, |ctx| async move {
        ctx.cancellation().cancelled().await;
        Ok(())
    });
    let key = create(&node, dag("t", "a b c")).await.unwrap();
    until(&node, &key, |t| t.tally().held() == 3).await;
    assert_eq!(first.interrupt().await, 3);
    assert_eq!(node.read(&key, |t| t.tally().held()).await.unwrap(), 0);
    drop(first);
    let _second = completing(&node, 1);
    node.wait_for_end(&key).await.unwrap();
    assert_eq!(status(&node, &key).await, TaskStatus::Completed);
}
