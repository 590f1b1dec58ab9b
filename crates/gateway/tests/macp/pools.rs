//! Pools of Tenure that take part in sessions.

use std::num::NonZeroUsize;
use std::sync::Arc;

use prost::Message as _;
use tenure_core::record::Progress;
use tenure_core::status::TaskStatus;
use tenure_gateway::macp::{MacpSettings, read_pool};
use tenure_macp::SessionState;
use tenure_macp::pb::Envelope;
use tenure_macp::pb::stream_session_response::Response as Told;
use tenure_macp::task_pb::{TaskCompletePayload, TaskFailPayload, TaskUpdatePayload};
use tenure_sdk::worker::{Handlers, Options, StepContext, WorkerPool};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::agent::{SOON, Stream, accept, code, commit, request, start};
use crate::site::{LocalWorker, Served, Site, settings};

pub(crate) const POOL: &str = "pool://sales";

/// Settings with which the pools `sales` and, for one handler, `sales/fails` take part.
pub(crate) fn with_pools() -> MacpSettings {
    let pools = ["sales", "sales/fails", "sales/held"].map(|it| read_pool(it).unwrap());
    let usual = settings();
    let policies = (*usual.policies.now()).clone().with_pools(pools.to_vec());
    MacpSettings { policies: policies.into(), ..usual }
}

/// A worker of the pool, whose handler `held` goes on as often as the gate lets it.
fn worker(site: &Site, gate: &Arc<Semaphore>) -> WorkerPool<LocalWorker> {
    let gate = Arc::clone(gate);
    let handlers = Handlers::new()
        .on("default", |step: StepContext| async move {
            let (percent, phase) = (Some(50.0), Some("loading".into()));
            let summary = Some("half of it".to_owned());
            step.send_status(Progress { percent, phase, summary, ..Progress::default() }).await?;
            step.complete(step.input().cloned())?;
            Ok(step.summarise("revenue up")?)
        })
        .unwrap()
        .on("fails", |step: StepContext| async move { Ok(step.fail("no_data", "none", None)?) })
        .unwrap()
        .on("held", move |step: StepContext| {
            let gate = Arc::clone(&gate);
            async move {
                tokio::select! {
                    permit = gate.acquire() => permit?.forget(),
                    () = step.cancellation().cancelled() => gate.close(),
                }
                Ok(step.complete_json(&1)?)
            }
        })
        .unwrap();
    let (link, deliveries) = site.join("ant", "sales");
    WorkerPool::start(link, deliveries, handlers, Options::new(NonZeroUsize::new(4).unwrap()))
}

async fn gateway(site: &Site) -> Served {
    site.served(with_pools(), None).await
}

async fn next(told: &mut Stream) -> Envelope {
    match told.next().await.unwrap() {
        Told::Envelope(envelope) => envelope,
        Told::Error(error) => panic!("{error:?}"),
    }
}

/// MACP-19: what a worker of a pool does is told as messages of the pool, and the initiator commits as ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_pool_does_what_is_requested_of_it() {
    let site = Site::open().await;
    let (gateway, gate) = (gateway(&site).await, Arc::new(Semaphore::new(0)));
    let planner = gateway.agent("planner").await;
    let session = planner.starts(start(&["planner", POOL, "ann"])).await;
    let mut told = planner.follows(&session, 1).await;
    planner.says(&session, "TaskRequest", &request(POOL)).await;
    let ann = gateway.agent("ann").await;
    assert_eq!(ann.refused(&session, "TaskAccept", &accept()).await, "FORBIDDEN");
    let _worker = worker(&site, &gate);
    assert_eq!(told.kinds(1).await, ["TaskRequest"]);
    let said = [next(&mut told).await, next(&mut told).await, next(&mut told).await];
    assert_eq!(
        said.each_ref().map(|it| it.message_type.as_str()),
        ["TaskAccept", "TaskUpdate", "TaskComplete"]
    );
    assert!(said.iter().all(|it| it.sender == POOL), "{said:?}");
    let update = TaskUpdatePayload::decode(said[1].payload.as_slice()).unwrap();
    assert_eq!((update.status.as_str(), update.message.as_str()), ("loading", "half of it"));
    assert!((update.progress - 0.5).abs() < 1e-9);
    let done = TaskCompletePayload::decode(said[2].payload.as_slice()).unwrap();
    assert_eq!(
        (&done.output[..], done.summary.as_str()),
        (&br#"{"quarter": "Q4"}"#[..], "revenue up")
    );
    let ack = planner.says(&session, "Commitment", &commit("task.completed", true)).await;
    assert_eq!(ack.session_state(), SessionState::Resolved);
    let view = site.client().get(&session.parse().unwrap()).await.unwrap();
    assert_eq!((view.task.native_status, view.attempts.len()), (TaskStatus::Completed, 1));
}

/// MACP-19: a failure is a TaskFail of the pool. The pool of a handler has that in its name.
#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_fails_says_so() {
    let site = Site::open().await;
    let (gateway, gate) = (gateway(&site).await, Arc::new(Semaphore::new(0)));
    let _worker = worker(&site, &gate);
    let planner = gateway.agent("planner").await;
    let session = planner.starts(start(&["pool://sales/fails"])).await;
    planner.says(&session, "TaskRequest", &request("pool://sales/fails")).await;
    let mut told = planner.follows(&session, 2).await;
    assert_eq!(told.kinds(1).await, ["TaskAccept"]);
    let failed = TaskFailPayload::decode(next(&mut told).await.payload.as_slice()).unwrap();
    assert_eq!((failed.error_code.as_str(), failed.reason.as_str()), ("no_data", "none"));
    planner.says(&session, "Commitment", &commit("task.failed", false)).await;
    let ended = site.client().wait_for_end(&session.parse().unwrap()).await.unwrap();
    assert_eq!(ended.status, TaskStatus::Failed);
}

/// MACP-19: a worker that is lost is followed by another, and nobody hears of it; and a gateway that begins while the
/// worker is at work tells what it does.
#[tokio::test(flavor = "multi_thread")]
async fn another_worker_goes_on_at_another_gateway() {
    let site = Site::open().await;
    let first = gateway(&site).await;
    let planner = first.agent("planner").await;
    let (link, deliveries) = site.join("lost", "sales");
    let frozen = Handlers::new().on("default", |_| std::future::pending()).unwrap();
    let frozen = WorkerPool::start(link, deliveries, frozen, Options::new(NonZeroUsize::MIN));
    let session = planner.starts(start(&[POOL])).await;
    planner.says(&session, "TaskRequest", &request(POOL)).await;
    let mut told = planner.follows(&session, 2).await;
    assert_eq!(told.kinds(1).await, ["TaskAccept"]);
    drop((frozen, told, first)); // Its heartbeats end, and it never says anything.

    let _worker = worker(&site, &Arc::new(Semaphore::new(0)));
    let second = gateway(&site).await;
    let planner = second.agent("planner").await;
    let mut told = planner.follows(&session, 3).await;
    assert_eq!(told.kinds(2).await, ["TaskUpdate", "TaskComplete"], "it was accepted once");
    planner.says(&session, "Commitment", &commit("task.completed", true)).await;
    let view = site.client().get(&session.parse().unwrap()).await.unwrap();
    assert_eq!((view.task.native_status, view.attempts.len()), (TaskStatus::Completed, 2));
}

/// MACP-19, L-04: what a worker does while the session is suspended is told when it is resumed; and a session that is
/// cancelled stops the worker.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_with_a_pool_is_steered() {
    let site = Site::open().await;
    let (gateway, gate) = (gateway(&site).await, Arc::new(Semaphore::new(0)));
    let _worker = worker(&site, &gate);
    let planner = gateway.agent("planner").await;
    let held = "pool://sales/held";
    let session = planner.starts(start(&[held])).await;
    planner.says(&session, "TaskRequest", &request(held)).await;
    let mut told = planner.follows(&session, 2).await;
    assert_eq!(told.kinds(1).await, ["TaskAccept"]);
    assert!(planner.suspend(&session).await.unwrap().ok);
    gate.add_permits(1);
    let (client, task) = (site.client(), session.parse().unwrap());
    let done = async {
        while client.get(&task).await.unwrap().steps[0].status.as_str() != "completed" {
            tokio::task::yield_now().await;
        }
    };
    timeout(SOON, done).await.unwrap();
    assert_eq!(planner.state(&session).await, SessionState::Suspended);
    assert!(planner.resume(&session).await.unwrap().ok);
    assert_eq!(told.kinds(1).await, ["TaskComplete"]);

    let session = planner.starts(start(&[held])).await;
    planner.says(&session, "TaskRequest", &request(held)).await;
    let mut told = planner.follows(&session, 2).await;
    assert_eq!(told.kinds(1).await, ["TaskAccept"]);
    assert!(planner.cancel(&session).await.unwrap().ok);
    site.is_cancelled(&session).await;
    assert!(gate.is_closed(), "the worker was asked to stop");
    assert_eq!(planner.state(&session).await, SessionState::Cancelled);
}

/// MACP-19, MACP-16: only pools that are named take part, and nobody comes in under the name of one.
#[tokio::test(flavor = "multi_thread")]
async fn only_pools_that_are_named_take_part() {
    let site = Site::open().await;
    let gateway = gateway(&site).await;
    let planner = gateway.agent("planner").await;
    for wrong in ["pool://other", "pool://sales/other", "pool://", "pool://a b", "tenure://steps"] {
        let begins = planner.envelope(
            &uuid::Uuid::new_v4().to_string(),
            "SessionStart",
            &start(&["ann", wrong]),
        );
        assert_eq!(code(&planner.send(begins).await), "INVALID_ENVELOPE", "{wrong}");
    }
    let session = planner.starts(start(&[POOL])).await;
    planner.says(&session, "TaskRequest", &request(POOL)).await;
    let false_one = gateway.agent(POOL).await;
    assert_eq!(false_one.refused(&session, "TaskAccept", &accept()).await, "UNAUTHENTICATED");
}
