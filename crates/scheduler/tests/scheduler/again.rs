//! Ended Tasks that are made again under a new id.

use tenure_core::command::{RetryEnded, StepReport};
use tenure_core::patch::ReasonInput;
use tenure_core::record::Value;
use tenure_core::status::{EdgeKind, StepStatus, TaskStatus};
use tenure_core::{Code, Command};

use crate::common::{
    self, cancel, completing, create, dag, envelope, events, key, node, status, until,
};

fn again_as() -> RetryEnded {
    RetryEnded {
        deadline_at: None,
        deadline_ms: None,
        keep_completed: false,
        reason: ReasonInput { code: None, details: None, message: "again".into(), retryable: None },
        retry_of: "old".parse().unwrap(),
        wal_name: None,
    }
}

/// RETRY-12, TERM-22: an ended Task is made again under a new id, and stays what it was.
#[tokio::test]
async fn an_ended_task_is_made_again() {
    let node = node().await;
    let old = create(&node, dag("old", "a b<-a")).await.unwrap();
    let alive = node.retry(envelope(), "new".parse().unwrap(), again_as()).await;
    assert_eq!(alive.unwrap_err().code, Code::InvalidTransition);
    cancel(&node, &old).await.unwrap();
    let before = events(&node, &old).await;
    let asked = envelope();
    for _ in 0..2 {
        let id = "new".parse().unwrap();
        node.retry(asked.clone(), id, again_as()).await.unwrap(); // IDEM-01: once.
    }
    assert_eq!(events(&node, &old).await, before);
    let _workers = completing(&node, 1);
    until(&node, &key("new"), |task| task.is_terminal()).await;
    let made = node.read(&key("new"), |t| t.edges().next().unwrap().clone()).await;
    let made = made.unwrap();
    assert_eq!((made.kind, made.to.as_str()), (EdgeKind::RetryOf, "old"));
}

/// RETRY-15, IDEM-01: it takes over what is completed; a repetition that asks for something else is
/// another command.
#[tokio::test]
async fn an_ended_task_is_made_again_from_where_it_stood() {
    let node = node().await;
    let old = create(&node, dag("old", "a b<-a")).await.unwrap();
    let report = StepReport {
        status: Some(StepStatus::Completed),
        output: Some(Value::json(*b"1")),
        ..StepReport::on(common::step_id("a"))
    };
    node.command(&old, envelope(), Command::TaskUpdateStep(report)).await.unwrap();
    cancel(&node, &old).await.unwrap();
    let again = |keep_completed| RetryEnded { keep_completed, ..again_as() };
    let (asked, new) = (envelope(), || "new".parse().unwrap());
    for _ in 0..2 {
        node.retry(asked.clone(), new(), again(true)).await.unwrap();
    }
    let other = node.retry(asked.clone(), new(), again(false)).await;
    assert_eq!(other.unwrap_err().code, Code::IdempotencyConflict);
    let made = key("new");
    let taken = node.read(&made, |task| {
        let step = task.step(&common::step_id("a")).unwrap();
        (step.facts().output.clone(), step.facts().taken_over_from.clone().unwrap().task_id)
    });
    assert_eq!(taken.await.unwrap(), (Some(Value::json(*b"1")), old.task_id.clone()));
    let _workers = completing(&node, 1);
    until(&node, &made, |task| task.is_terminal()).await;
    assert_eq!(status(&node, &made).await, TaskStatus::Completed);
}
