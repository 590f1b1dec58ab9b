//! The examples do what they say.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../../sdk/examples/lab/mod.rs"]
mod lab;
#[path = "../../sdk/examples/plan/mod.rs"]
mod plan;

use tenure::embedded::Embedded;
use tenure_sdk::client::{Step, Task};
use tenure_sdk::view::write::TaskHeader;

/// CTRL-01: what steers a cluster steers an embedded scheduler.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_is_steered_in_one_process() {
    let dir = tempfile::tempdir().unwrap();
    let tenure = Embedded::open(dir.path()).await.unwrap();
    let _workers = tenure.work(lab::handlers().unwrap(), 8).unwrap();
    let last = plan::steer(&tenure.client("default").unwrap()).await.unwrap();
    assert_eq!(last, "task.completed");
}

/// 2.1, 5.2: the answer to a create says where the log is.
#[tokio::test(flavor = "multi_thread")]
async fn a_create_says_where_the_log_is() {
    let dir = tempfile::tempdir().unwrap();
    let tenure = Embedded::open(dir.path()).await.unwrap();
    let task = Task::new("t").id("t").step(Step::new("a")).with(|input| {
        input.wal_name = Some("named".parse().unwrap());
    });
    let input = task.build(&"main".parse().unwrap()).unwrap();
    let client = tenure.client("main").unwrap();
    let made = client.create_as("c".parse().unwrap(), input).await.unwrap();
    let TaskHeader::Summary(task) = made.task else { panic!("{made:?}") };
    let path = dir.path().join("tasks/main/named.wal.jsonl");
    assert_eq!(task.wal_path.as_deref(), path.to_str());
    assert!(path.exists());
}
