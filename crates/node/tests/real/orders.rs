//! What an orchestrator orders beside its dispatches: one suite, in one process and in a cluster.

use futures::StreamExt as _;
use serde_json::json;
use tenure_core::command::{AppendProgress, Dispatch, Link};
use tenure_core::id::{Ref, RunId, TaskId};
use tenure_core::record::{EdgeReason, Progress};
use tenure_core::status::{
    DeliveryState, EdgeKind, EdgeStatus, EndReason, Policy, StepStatus, TaskStatus,
};
use tenure_core::view::{ListInput, RunView};
use tenure_core::{Code, Commit};
use tenure_ports::ClientPort;
use tenure_sdk::client::{Client, Step, Task};

use crate::common::until;
use crate::verbs::{facts, id, once, step, until_step};

pub(crate) async fn orders<P: ClientPort>(client: &Client<P>) {
    relates(client).await;
    notes(client).await;
    takes_runs_back(client).await;
    tries_again(client).await;
}

fn draft(name: &str) -> Task {
    Task::new(name).id(name).draft().step(Step::new("a").handler("complete"))
}

/// REL-01 to REL-03, REL-06: `link`, `unlink`; and the page of live Tasks, the oldest first (LIST-06).
async fn relates<P: ClientPort>(client: &Client<P>) {
    let one = client.create(draft("rel-1")).await.unwrap();
    let two = client.create(draft("rel-2")).await.unwrap();
    let to = |task: &str| Ref::new(task).unwrap();
    let version = client.get(&one).await.unwrap().task.version;
    let late = client.expecting(version + 1).link(&one, EdgeKind::Blocks, to("rel-2")).await;
    assert_eq!(late.unwrap_err().code, Code::VersionConflict, "OCC-02");
    let why = Some("it needs the same machine".to_owned());
    let link = Link { kind: EdgeKind::Blocks, reason: why.clone(), to: to("rel-2") };
    client.expecting(version).link_as(&one, link).await.unwrap();
    let edge = async || {
        let view = client.get(&one).await.unwrap();
        view.relationships.into_iter().find(|edge| edge.kind == EdgeKind::Blocks).unwrap()
    };
    let made = edge().await;
    assert_eq!((made.to.as_str(), made.status), ("rel-2", EdgeStatus::Active));
    assert_eq!(made.reason, why.map(EdgeReason::Text));
    let code = async |task: &TaskId, kind, other: &str| {
        client.link(task, kind, to(other)).await.unwrap_err().code
    };
    assert_eq!(code(&two, EdgeKind::Blocks, "rel-1").await, Code::DependencyCycle);
    assert_eq!(code(&one, EdgeKind::Blocks, "nothing").await, Code::TaskNotFound);
    assert_eq!(code(&one, EdgeKind::Parent, "rel-2").await, Code::ValidationError);
    client.unlink(&one, made.edge_id.clone()).await.unwrap();
    let gone = edge().await;
    assert_eq!((gone.edge_id, gone.status), (made.edge_id, EdgeStatus::Removed));
    client.link(&two, EdgeKind::Blocks, to("rel-1")).await.unwrap();

    let mut live = client.list(false).await.unwrap().entries;
    live.sort_by(|a, b| (a.created_at, &a.key).cmp(&(b.created_at, &b.key)));
    assert!(live.len() >= 2);
    for most in [1, 2, 500] {
        let input = ListInput { limit: Some(most), ..ListInput::default() };
        let page = client.tasks(input).await.unwrap();
        let listed = page.tasks.iter().map(|task| &task.task_id);
        assert!(listed.eq(live.iter().take(most).map(|entry| &entry.key.task_id)), "{most}");
        assert!(page.missing_partitions.is_empty());
    }
    for task in [one, two] {
        client.cancel(&task, "enough").await.unwrap();
        client.wait_for_end(&task).await.unwrap();
    }
}

/// PROG-05, PROG-07: `note`, of a live Task and of one that has ended.
async fn notes<P: ClientPort>(client: &Client<P>) {
    let task = client.create(draft("noted")).await.unwrap();
    let progress = Some(Progress { percent: Some(40.0), ..Progress::default() });
    let delivered =
        |state| AppendProgress { delivery_state: Some(state), ..AppendProgress::default() };
    let facts = AppendProgress {
        progress,
        evidence_refs: vec![Ref::new("https://example.org/1").unwrap()],
        ..delivered(DeliveryState::Queued)
    };
    let done = client.note(&task, facts).await.unwrap();
    assert_eq!(done.event_ids.len(), 2, "the progress, and the delivery");
    let view = client.get(&task).await.unwrap();
    assert_eq!((view.task.progress.percent, view.evidence_refs.len()), (Some(40.0), 1));
    assert_eq!(view.task.delivery_state, DeliveryState::Queued);
    client.cancel(&task, "enough").await.unwrap();
    client.wait_for_end(&task).await.unwrap();
    client.note(&task, delivered(DeliveryState::Delivered)).await.unwrap();
    let view = client.get(&task).await.unwrap();
    assert_eq!(view.task.delivery_state, DeliveryState::Delivered);
    let late = AppendProgress { progress: Some(Progress::default()), ..Default::default() };
    assert_eq!(client.note(&task, late).await.unwrap_err().code, Code::TaskTerminal);
}

/// RUN-05, CANCEL-08, R-rows of 3.4: `cancel_run`, of a Run at work and of one that nobody took.
async fn takes_runs_back<P: ClientPort>(client: &Client<P>) {
    let task = Task::new("taken back").id("taken-back").with(|input| {
        (input.dispatch, input.completion) = (Some(Policy::Manual), Some(Policy::Manual));
    });
    let task = client.create(task.step(Step::new("a").handler("deaf"))).await.unwrap();
    let dispatch = async |pool: &str| -> RunId {
        let given = serde_json::from_value::<Dispatch>(json!({"worker_pool_id": pool})).unwrap();
        client.dispatch(&task, given).await.unwrap().run_id.unwrap()
    };
    let run = async |run: RunId| -> RunView {
        let view = client.get(&task).await.unwrap();
        view.runs.into_iter().find(|one| one.run_id == run).unwrap()
    };
    let unused = dispatch("nowhere").await;
    client.cancel_run(&task, unused, "not needed").await.unwrap();
    assert_eq!(run(unused).await.end_reason, Some(EndReason::Cancelled));

    let used = dispatch("default").await;
    until(async || step(client, &task, "a").await.holder.is_some()).await;
    client.cancel_run(&task, used, "stop").await.unwrap();
    assert_eq!(run(used).await.end_reason, Some(EndReason::Cancelled));
    let view = client.get(&task).await.unwrap();
    assert_eq!(facts(&view, "a").status_reason.unwrap().code, "worker_cancelled");
    client.cancel_run(&task, used, "stop").await.unwrap(); // It has ended: nothing is written.
    assert_eq!(client.get(&task).await.unwrap().task.version, view.task.version);
    let nobodys = uuid::Uuid::now_v7().to_string().parse().unwrap();
    let unknown = client.cancel_run(&task, nobodys, "").await.unwrap_err();
    assert_eq!(unknown.code, Code::RunNotFound);
    client.cancel(&task, "enough").await.unwrap();
    client.wait_for_end(&task).await.unwrap();
}

/// RETRY-11, TASK-17: `retry` of a live Task, and `fail`; `watch` sees all of it, once and in order.
async fn tries_again<P: ClientPort>(client: &Client<P>) {
    let task = Task::new("tried again").id("tried-again").retry(once());
    let task = task.with(|input| input.completion = Some(Policy::Manual));
    let steps = ["a", "b"].map(|name| Step::new(name).handler("fail"));
    let task = client.create(task.steps(steps)).await.unwrap();
    let watched = client.watch(&task, 0).map(Result::unwrap).collect::<Vec<Commit>>();
    let watched = tokio::spawn(watched);
    let attempts = async |name: &str| {
        let view = client.get(&task).await.unwrap();
        view.attempts.iter().filter(|one| one.step_id == id(name)).count()
    };
    let all_failed = async |counts: [usize; 2]| {
        for (name, count) in ["a", "b"].into_iter().zip(counts) {
            until(async || attempts(name).await == count).await;
            until_step(client, &task, name, StepStatus::Failed).await;
        }
    };
    all_failed([1, 1]).await;
    client.retry(&task, &[id("a")], "another mirror").await.unwrap();
    all_failed([2, 1]).await;
    client.retry(&task, &[], "all of it").await.unwrap();
    all_failed([3, 2]).await;
    let none = client.retry(&task, &[id("nothing")], "why").await.unwrap_err();
    assert_eq!(none.code, Code::StepNotFound);

    client.fail(&task, "no mirror has it").await.unwrap();
    assert_eq!(client.wait_for_end(&task).await.unwrap().status, TaskStatus::Failed);
    let why = client.get(&task).await.unwrap().task.status_reason.unwrap();
    assert_eq!((why.code.as_str(), why.message.as_str()), ("task_failed", "no mirror has it"));
    let late = client.retry(&task, &[], "why").await.unwrap_err();
    assert_eq!(late.code, Code::TaskTerminal);

    let watched = watched.await.unwrap();
    let log = client.port().log(&task, 0).await.unwrap();
    assert_eq!((&watched, log.more), (&log.commits, false));
    let after = watched[1].last_seq();
    let rest = client.watch(&task, after).map(Result::unwrap).collect::<Vec<Commit>>().await;
    assert_eq!(rest[..], watched[2..]);
}
