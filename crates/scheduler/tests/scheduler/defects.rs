//! A Task whose actor fails by a defect is read again from its log, and pools know what it has now.

#![allow(clippy::unwrap_used, clippy::expect_used)] // A test that cannot go on has failed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::{Node, POOL, View, completing, create, dag, envelope};
use smol_str::SmolStr;
use tenure_core::command::Why;
use tenure_core::id::{AttemptId, PoolId};
use tenure_core::status::TaskStatus;
use tenure_core::{Code, Command, Commit, Rejection, Task};
use tenure_local::MemoryLeases;
use tenure_ports::Observer;
use tenure_ports::observer::{Called, LeaseCall, LinkEnd};
use tenure_scheduler::{Config, Scheduler};
use tenure_testkit::{Faulty, MemoryJournal};

/// An observer with a defect, once it is told to have one: who tells it of an append falls with it.
#[derive(Debug, Default)]
struct Defective(AtomicBool);

impl Observer for Defective {
    fn appended(&self, _: &Task, _: &[Arc<Commit>]) {
        assert!(!self.0.swap(false, Ordering::SeqCst), "a defect of the observer");
    }
    fn refused(&self, _: &Rejection) {}
    fn wrote(&self, _: Called) {}
    fn held_up(&self, _: Duration) {}
    fn leased(&self, _: LeaseCall, _: Called) {}
    fn framed(&self, _: Called) {}
    fn took_over(&self, _: Duration) {}
    fn answered(&self, _: &'static str, _: Duration, _: Option<Code>) {}
    fn parted(&self, _: LinkEnd) {}
    fn opened(&self, _: &Task) {}
    fn ended_before(&self, _: &Task) {}
    fn expired(&self, _: AttemptId, _: Duration) {}
    fn taken(&self) -> Option<tokio::sync::oneshot::Receiver<u64>> {
        None
    }
    fn trace_of(&self, _: &View<'_>, _: AttemptId) -> Option<SmolStr> {
        None
    }
}

/// How many Steps wait for workers, as pools count them.
fn waiting(node: &Node) -> u64 {
    node.sample().pools.iter().map(|pool| pool.waiting).sum()
}

async fn until_waiting(node: &Node, steps: u64) {
    for _ in 0..1_000 {
        if waiting(node) == steps {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{} wait, and not {steps}", waiting(node));
}

/// VIEW-17: the actor that fails as its Task is paused leaves no Steps behind that seem to wait for workers.
#[tokio::test(start_paused = true)]
async fn a_pool_forgets_what_a_failed_actor_has_left_there() {
    let defective = Arc::new(Defective::default());
    let mut config = Config::embedded(PoolId::new(POOL).unwrap());
    config.observer = Some(defective.clone());
    let journal = Arc::new(Faulty::new(MemoryJournal::default()));
    let leases = Arc::new(MemoryLeases::default());
    let node = Scheduler::start(journal, leases, config).await.unwrap();
    let task = create(&node, dag("t", "a b")).await.unwrap();
    let other = create(&node, dag("other", "a")).await.unwrap();
    until_waiting(&node, 3).await;

    defective.0.store(true, Ordering::SeqCst);
    let _ = node.command(&task, envelope(), Command::PauseTask(Why::default())).await; // It is in doubt.
    assert!(!defective.0.load(Ordering::SeqCst), "the actor has failed");
    until_waiting(&node, 1).await;
    assert!(node.read(&task, |task| task.head().status == TaskStatus::Paused).await.unwrap());

    node.command(&task, envelope(), Command::ResumeTask(Why::default())).await.unwrap();
    until_waiting(&node, 3).await;
    let workers = completing(&node, 3);
    node.wait_for_end(&task).await.unwrap();
    node.wait_for_end(&other).await.unwrap();
    assert_eq!(waiting(&node), 0);
    drop(workers);
}
