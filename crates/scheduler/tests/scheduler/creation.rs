//! How Tasks come to be: in parts, in the place of another, and under a parent that is closed meanwhile.
#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::Code;
use tenure_core::command::create::CreateTask;
use tenure_core::creation::Creation;
use tenure_core::status::TaskStatus;
use tenure_testkit::faulty::Fault;

use crate::common::{cancel, create, dag, key, node, node_on, replayed, status};

/// The first Step of three.
fn first() -> CreateTask {
    let creation = Some(Creation { digest: Creation::digest_of([]), draft: false, steps: 3 });
    CreateTask { creation, draft: Some(true), ..dag("t", "a") }
}

/// IDEM-10, WAL-07, RECOVER-02: another creation takes the place of an unfinished one once that is durable: after a
/// failed append the first is there as it was, and after a restart the last.
#[tokio::test]
async fn an_unfinished_creation_is_replaced_when_that_is_durable() {
    let node = node().await;
    let key = create(&node, first()).await.unwrap();
    let before = node.read(&key, |task| task.to_task()).await.unwrap();
    node.journal().next(Fault::Fail);
    let refused = create(&node, dag("t", "b c<-b")).await.unwrap_err();
    assert_eq!(refused.code, Code::StorageError);
    assert_eq!(node.read(&key, |task| task.to_task()).await.unwrap(), before);
    assert_eq!(replayed(&node, &key).await, before);
    create(&node, first()).await.unwrap();
    assert_eq!(node.read(&key, |task| task.version()).await.unwrap(), before.version());

    create(&node, dag("t", "b c<-b")).await.unwrap();
    assert_eq!(status(&node, &key).await, TaskStatus::Running);
    let refused = create(&node, first()).await.unwrap_err();
    assert_eq!(refused.code, Code::TaskIdConflict);
    node.stop().await;
    let node = node_on(Arc::clone(node.journal())).await;
    let steps = |task: &tenure_core::view::View<'_>| {
        task.steps().map(|step| step.id().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(node.read(&key, steps).await.unwrap(), ["b", "c"]);
}

/// REL-05: a parent that is closed while it is to record a child lets none be made.
#[tokio::test(start_paused = true)]
async fn a_parent_that_is_closed_meanwhile_lets_no_child_be_made() {
    let node = node().await;
    let parent = create(&node, dag("p", "a")).await.unwrap();
    let held = node.journal().hold_next();
    let (canceller, of) = (node.clone(), parent.clone());
    let closed = tokio::spawn(async move { cancel(&canceller, &of).await });
    tokio::time::sleep(Duration::from_millis(10)).await;
    let (maker, child) = (node.clone(), dag("c", "a"));
    let child = CreateTask { parent_task_id: Some("p".parse().unwrap()), ..child };
    let made = tokio::spawn(async move { create(&maker, child).await });
    tokio::time::sleep(Duration::from_millis(10)).await;
    held.open();
    closed.await.unwrap().unwrap();
    assert_eq!(made.await.unwrap().unwrap_err().code, Code::TaskTerminal);
    let child = node.read(&key("c"), |_| ()).await;
    assert_eq!(child.unwrap_err().code, Code::TaskNotFound);
    let children = node.read(&parent, |task| task.children().len()).await;
    assert_eq!(children.unwrap(), 0);
}
