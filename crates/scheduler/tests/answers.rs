//! What writes are answered with.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;

use common::{create, dag, envelope, key, node, orchestrator, step_id};
use tenure_core::command::StepReport;
use tenure_core::status::{Policy, StepStatus, TaskStatus};
use tenure_core::view::write::Header;
use tenure_core::view::{Known, write_summary};
use tenure_core::{Command, Task};

/// CTRL-04: a write answers with the Task in short, the Steps it changed, its events and the
/// version; the same again when it is repeated.
#[tokio::test]
async fn a_write_answers_with_a_summary() {
    let node = node().await;
    let created = node.create(envelope(), dag("t", "a b<-a c<-b"), Policy::Auto).await.unwrap();
    let key = key("t");
    let summary = created.summary.unwrap();
    assert_eq!((summary.version, summary.event_ids.len()), (3, 3));

    let mut report = StepReport::on(step_id("a"));
    report.status = Some(StepStatus::Completed);
    let (first, command) = (envelope(), Command::TaskUpdateStep(report));
    for _ in 0..2 {
        let answer = node.command(&key, first.clone(), command.clone()).await.unwrap();
        let summary = answer.summary.unwrap();
        assert_eq!(summary.version, node.read(&key, Task::version).await.unwrap());
        assert_eq!(summary.event_ids.len(), 2);
        let Header::Summary(task) = summary.task else { panic!("a summary") };
        assert_eq!((task.native_status, task.counts.completed), (TaskStatus::Running, 1));
    }
    let answer = node.command(&key, first, command).await.unwrap();
    assert_eq!(answer.reply.written.unwrap().count, 2);
}

/// CTRL-04: who may not see the Task is told where it is, and no more.
#[tokio::test]
async fn a_summary_shows_no_more_than_its_reader_may_see() {
    let node = node().await;
    let key = create(&node, dag("t", "a")).await.unwrap();
    let paused = node.command(&key, envelope(), Command::PauseTask(Default::default())).await;
    let mut stranger = orchestrator();
    stranger.role = tenure_core::status::Role::SubAgent;
    let reply = paused.unwrap().reply;
    let now = node.now();
    let look = move |task: &Task| {
        write_summary(&task.durable(), &stranger, &reply, &Known::new(now, &|_| None))
    };
    let summary = node.read(&key, look).await.unwrap();
    assert!(matches!(summary.task, Header::Reference(_)) && summary.steps.is_empty());
}
