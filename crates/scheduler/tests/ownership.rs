//! A node that loses Tasks to another, and gets them back.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{cancel, completing, create, dag, key, node_on};
use tenure_core::Code;
use tenure_core::status::{End, TaskStatus};
use tenure_ports::{Faulty, MemoryJournal};

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
