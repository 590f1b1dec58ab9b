//! Tasks with which nothing happens have no actor, and nobody can tell.
#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

use futures::StreamExt as _;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{self, POOL, completing, create, dag, node, node_on, status};
use tenure_core::Code;
use tenure_core::command::StepReport;
use tenure_core::event::Body;
use tenure_core::id::{AgentId, PoolId};
use tenure_core::record::Progress;
use tenure_core::status::{StepStatus, TaskStatus};
use tenure_ports::bus::{Credit, Delivery, Holding, Pulse, WorkerPort as _};
use tenure_testkit::{Faulty, MemoryJournal};

/// READY-02: Tasks that waited for long run as soon as there is a worker.
#[tokio::test(start_paused = true)]
async fn tasks_at_rest_run_when_a_worker_comes() {
    let node = node().await;
    let mut keys = Vec::new();
    for n in 0..300 {
        keys.push(create(&node, dag(&format!("t{n}"), "a b<-a")).await.unwrap());
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    let _workers = completing(&node, 4);
    for key in &keys {
        node.wait_for_end(key).await.unwrap();
        assert_eq!(status(&node, key).await, TaskStatus::Completed);
    }
}

/// What is said to a Task arrives in order, also where it goes to rest in between.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_said_to_a_task_arrives_in_order() {
    let node = node().await;
    let id = AgentId::new("w").unwrap();
    let (link, mut inbox) = node.join(id, PoolId::new(POOL).unwrap(), None).unwrap();
    link.credit(Credit { free: 1, seen: 0, lost: 0, number: 1 });
    let key = create(&node, dag("t", "a")).await.unwrap();
    let Some(Delivery::Grant(claim)) = inbox.next().await else { panic!("a grant comes") };
    let held = Holding::of(&claim);
    let mut answers = Vec::new();
    for n in 0..500_i32 {
        let progress = Progress { percent: Some(f64::from(n) / 10.0), ..Progress::default() };
        let report = StepReport {
            attempt_id: Some(held.attempt_id),
            fencing_token: Some(held.fencing_token),
            progress: Some(progress),
            status: Some(StepStatus::Running),
            ..StepReport::on(claim.step.step_id.clone())
        };
        answers.push(link.report(&held, report, None));
        if n % 3 == 0 {
            // Sometimes all of it is done by the next, and sometimes not.
            tokio::time::sleep(Duration::from_micros(u64::from(n.unsigned_abs()) % 200)).await;
        }
    }
    for answer in answers {
        answer.await.unwrap();
    }
    let commits = node.commits(&key).await.unwrap();
    let said = commits.iter().flat_map(|c| &c.events).filter_map(|event| match &event.body {
        Body::StepUpdated(said) => said.report.as_ref()?.progress.as_ref()?.percent,
        _ => None,
    });
    let said: Vec<f64> = said.collect();
    assert!(said.len() >= 499, "{} of 500 were written", said.len()); // The first starts it.
    assert!(said.is_sorted(), "{said:?}");
}

/// CTX-11: the log of a Task that has ended is not read because a worker still names it in a heartbeat.
#[tokio::test(start_paused = true)]
async fn a_heartbeat_reads_no_log_of_what_has_ended() {
    let node = node().await;
    let id = AgentId::new("w").unwrap();
    let (link, mut inbox) = node.join(id, PoolId::new(POOL).unwrap(), None).unwrap();
    link.credit(Credit { free: 1, seen: 0, lost: 0, number: 1 });
    let key = create(&node, dag("t", "a")).await.unwrap();
    let Some(Delivery::Grant(claim)) = inbox.next().await else { panic!("a grant comes") };
    let held = Holding::of(&claim);
    let renewed = link.heartbeat(std::slice::from_ref(&held)).await;
    assert!(matches!(&renewed[..], [Pulse::Renewed { .. }]), "{renewed:?}");
    common::cancel(&node, &key).await.unwrap();
    tokio::time::sleep(Duration::from_secs(120)).await; // Its lease is over, and so it is.
    node.wait_for_end(&key).await.unwrap();
    node.journal().fail_reads(u64::MAX);
    let pulses = link.heartbeat(&[held]).await;
    let [Pulse::Lost(refused)] = &pulses[..] else { panic!("{pulses:?}") };
    assert_eq!(refused.code, Code::TaskTerminal);
}

/// A node that was stopped is gone, with all the Tasks that rested there.
#[tokio::test(start_paused = true)]
async fn nothing_is_left_of_a_node_that_stopped() {
    let journal = Arc::new(Faulty::new(MemoryJournal::default()));
    let node = node_on(Arc::clone(&journal)).await;
    for n in 0..10 {
        create(&node, dag(&format!("t{n}"), "a")).await.unwrap();
    }
    node.stop().await;
    drop(node);
    tokio::time::sleep(Duration::from_secs(5)).await; // The loops of the node notice.
    assert_eq!(Arc::strong_count(&journal), 1);
}

/// The same where nobody stopped it, and its runtime is no more.
#[test]
fn nothing_is_left_of_a_node_whose_runtime_has_gone() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let journal = Arc::new(Faulty::new(MemoryJournal::default()));
    let node = runtime.block_on(async {
        let node = node_on(Arc::clone(&journal)).await;
        create(&node, dag("t", "a")).await.unwrap();
        node
    });
    drop(runtime);
    drop(node);
    assert_eq!(Arc::strong_count(&journal), 1);
}

/// A Task at rest is told something by a thread that knows no runtime: its actor runs where the node
/// was started.
#[tokio::test]
async fn any_thread_may_tell_a_task_at_rest() {
    let node = node().await;
    let partition = common::key("t").partition(8);
    let mut names = (0..).map(|n| format!("u{n}"));
    let other = names.find(|name| common::key(name).partition(8) == partition).unwrap();
    let key = create(&node, dag("t", "a")).await.unwrap();
    let other = create(&node, dag(&other, "a")).await.unwrap();
    let gate = node.journal().hold_next();
    let cancelled = tokio::spawn({
        let (node, other) = (node.clone(), other.clone());
        async move { common::cancel(&node, &other).await }
    });
    while !node.journal().is_spent() {
        tokio::task::yield_now().await; // It has the one actor that was free.
    }
    let teller = std::thread::spawn({
        let (node, key) = (node.clone(), key.clone());
        move || futures::executor::block_on(common::cancel(&node, &key))
    });
    tokio::task::spawn_blocking(move || teller.join().unwrap().unwrap()).await.unwrap();
    gate.open();
    cancelled.await.unwrap().unwrap();
    assert_eq!(status(&node, &key).await, TaskStatus::Cancelled);
}
