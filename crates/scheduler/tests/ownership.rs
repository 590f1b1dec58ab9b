//! A node that loses Tasks to another, and gets them back.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Node, POOL, cancel, completing, create, dag, events, key, node_on};
use futures::StreamExt as _;
use tenure_core::Code;
use tenure_core::command::StepReport;
use tenure_core::id::{AgentId, PoolId};
use tenure_core::status::{End, StepStatus, TaskStatus};
use tenure_local::MemoryLeases;
use tenure_ports::bus::{Credit, Delivery, Holding, WorkerPort as _};
use tenure_ports::{Faulty, MemoryJournal};
use tenure_scheduler::{Config, Scheduler};

/// OWN-03: what another node owns is neither read nor changed here.
#[tokio::test(start_paused = true)]
async fn tasks_of_another_node_are_refused() {
    let journal = Arc::new(Faulty::new(MemoryJournal::default()));
    let node = node_on(Arc::clone(&journal)).await;
    create(&node, dag("t", "a")).await.unwrap();
    journal.set_epoch(None);
    node.leave(key("t").partition(8), Some(0)).await;
    let not_owner = |code: Code| assert_eq!(code, Code::NotOwner);
    not_owner(node.read(&key("t"), |_| ()).await.unwrap_err().code);
    not_owner(cancel(&node, &key("t")).await.unwrap_err().code);
    not_owner(create(&node, dag("u", "a")).await.unwrap_err().code);
    journal.set_epoch(Some(0));
    let version = node.read(&key("t"), |task| task.version()).await.unwrap();
    assert_eq!(version, 3, "nothing was written meanwhile");
}

/// OWN-06: a Task whose append was on its way when its partition was left and taken again goes on by
/// itself, though nobody names it.
#[tokio::test(start_paused = true)]
async fn a_task_that_was_left_and_taken_again_goes_on() {
    let journal = Arc::new(Faulty::new(MemoryJournal::default()));
    let node = node_on(Arc::clone(&journal)).await;
    create(&node, dag("t", "a b")).await.unwrap();
    let partition = key("t").partition(8);
    let gate = journal.hold_next();
    let _workers = completing(&node, 1);
    wait(async || journal.is_spent()).await;
    journal.set_epoch(None);
    node.leave(partition, Some(0)).await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    journal.set_epoch(Some(7));
    assert_eq!(node.resume(partition).await.unwrap(), 1);
    gate.open(); // What was decided before is refused.
    let ended = async || {
        let status = journal_status(&journal).await;
        status == Some(TaskStatus::Completed)
    };
    wait(ended).await;
}

/// Mechanisms 7: a new owner sends the grant of an open Attempt again: it may have got lost with the
/// owner before. The worker has one Attempt, and ends it where it is now.
#[tokio::test(start_paused = true)]
async fn a_new_owner_sends_grants_again() {
    let journal = Arc::new(Faulty::new(MemoryJournal::default()));
    let leases = Arc::new(MemoryLeases::default());
    let mut config = Config::embedded(PoolId::new(POOL).unwrap());
    config.embedded = false;
    let start = || Scheduler::start(Arc::clone(&journal), Arc::clone(&leases), config.clone());
    let (old, new) = (start().await.unwrap(), start().await.unwrap());
    let join = |node: &Node| {
        node.join(AgentId::new("w").unwrap(), PoolId::new(POOL).unwrap(), None).unwrap()
    };
    let (link, mut inbox) = join(&old);
    let (next_link, mut next_inbox) = join(&new);
    link.credit(Credit { free: 1, seen: 0, number: 1 });
    let key = create(&old, dag("t", "a")).await.unwrap();
    let Some(Delivery::Grant(first)) = inbox.next().await else { panic!("a grant comes") };

    let partition = key.partition(8);
    journal.set_epoch(None);
    old.leave(partition, Some(0)).await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    journal.set_epoch(Some(7));
    assert_eq!(new.resume(partition).await.unwrap(), 1);
    let Some(Delivery::Grant(again)) = next_inbox.next().await else { panic!("it comes again") };
    assert_eq!(again, first);
    let report = StepReport {
        attempt_id: Some(again.attempt_id),
        fencing_token: Some(again.fencing_token),
        status: Some(StepStatus::Completed),
        ..StepReport::on(again.step.step_id.clone())
    };
    next_link.report(&Holding::of(&again), report, None).await.unwrap();
    new.wait_for_end(&key).await.unwrap();
    let claims = events(&new, &key).await;
    assert_eq!(claims.iter().filter(|name| **name == "task_step_claimed").count(), 1);
}

/// A word to leave an epoch that is over does not end what was read in a newer one.
#[tokio::test(start_paused = true)]
async fn a_late_word_to_leave_ends_nothing_newer() {
    let journal = Arc::new(Faulty::new(MemoryJournal::default()));
    journal.set_epoch(Some(3));
    let node = node_on(Arc::clone(&journal)).await;
    create(&node, dag("t", "a")).await.unwrap();
    node.leave(key("t").partition(8), Some(2)).await;
    let _workers = completing(&node, 1);
    wait(async || journal_status(&journal).await == Some(TaskStatus::Completed)).await;
}

/// How a Task ended, as the log has it: the node is not asked, which would have it read the Task.
async fn journal_status(journal: &Faulty<MemoryJournal>) -> Option<TaskStatus> {
    use tenure_ports::Journal as _;
    journal.inner().entry(&key("t")).await.unwrap().unwrap().ended.map(End::status)
}

async fn wait<F: Future<Output = bool>>(mut holds: impl FnMut() -> F) {
    for _ in 0..10_000 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it does not come to pass");
}
