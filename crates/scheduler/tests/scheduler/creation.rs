//! A creation of which parts are missing, and what takes its place.
#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

use std::sync::Arc;

use tenure_core::Code;
use tenure_core::command::create::CreateTask;
use tenure_core::creation::Creation;
use tenure_core::status::TaskStatus;
use tenure_ports::faulty::Fault;

use crate::common::{create, dag, node, node_on, replayed, status};

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
