//! States of Tasks that a journal keeps: a Task is read from there on, and as its log has it where
//! that cannot be.
#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

use std::sync::Arc;

use crate::common::{self, Node, View, create, dag, envelope, node, node_on, replayed};
use tenure_core::command::create::CreateTask;
use tenure_core::{Command, Task};
use tenure_ports::Journal;
use tenure_ports::journal::{EncodedSnapshot, TaskKey};
use tenure_scheduler::load_until;
use tenure_wire::stored::encode_snapshot;

/// The Task as its whole log has it.
async fn whole(node: &Node, key: &TaskKey) -> Task {
    load_until(&**node.journal(), key, u64::MAX).await.unwrap()
}

fn folded(task: Task) -> EncodedSnapshot {
    let records = task.into_snapshot();
    EncodedSnapshot { version: records.version(), bytes: encode_snapshot(&records).unwrap() }
}

/// The state of another Task of this name, which is told by its summary.
async fn twin(steps: &str) -> EncodedSnapshot {
    let other = node().await;
    let twin = CreateTask { summary: "a twin".into(), ..dag("t", steps) };
    let key = create(&other, twin).await.unwrap();
    folded(whole(&other, &key).await)
}

async fn rename(node: &Node, key: &TaskKey, title: &str) {
    let operations =
        format!(r#"[{{"op": "update_step", "step_id": "a", "fields": {{"title": "{title}"}}}}]"#);
    let operations = serde_json::from_str(&operations).unwrap();
    node.command(key, envelope(), Command::TaskUpdate { operations }).await.unwrap();
}

/// RECOVER-01, mechanisms 5: a Task is read from the state that was kept of it on, which shows
/// where that is another's; and goes on from there.
#[tokio::test]
async fn a_task_is_read_from_its_state_on() {
    let twin = twin("a").await;
    let node = node().await;
    let key = create(&node, dag("t", "a")).await.unwrap();
    rename(&node, &key, "behind it").await;
    node.journal().keep(&key, twin).await;
    node.stop().await;
    let next = node_on(Arc::clone(node.journal())).await;
    let look = |task: &View<'_>| (task.head().spec.summary.clone(), task.version());
    let (summary, version) = next.read(&key, look).await.unwrap();
    let log = whole(&next, &key).await;
    assert_eq!((summary.as_str(), version), ("a twin", log.version()));
    assert_eq!(log.head().spec.summary, "t");
    rename(&next, &key, "further").await;
    let title = |task: &View<'_>| task.step(&common::step_id("a")).unwrap().spec.title.clone();
    assert_eq!(next.read(&key, title).await.unwrap(), "further");
}

/// RECOVER-01, mechanisms 5: a state that cannot be used is none: the log is read whole, and says
/// the same.
#[tokio::test]
async fn a_state_that_cannot_be_used_is_none() {
    let does_not_fit = twin("z").await;
    let node = node().await;
    let key = create(&node, dag("t", "a")).await.unwrap();
    let other = create(&node, dag("u", "a")).await.unwrap();
    let early = folded(whole(&node, &key).await);
    rename(&node, &key, "new").await;
    let task = whole(&node, &key).await;
    let mut damaged = early.clone();
    damaged.bytes[100] ^= 1;
    let mut later = early.clone();
    later.bytes[4] += 1;
    let nothing = EncodedSnapshot { version: early.version, bytes: Vec::new() };
    let misplaced = EncodedSnapshot { version: task.version(), ..early.clone() };
    let of_another = folded(whole(&node, &other).await);
    for state in [does_not_fit, damaged, later, nothing, misplaced, of_another, early] {
        node.journal().keep(&key, state).await;
        assert_eq!(replayed(&node, &key).await, task);
    }
}
