//! What a worker learns of Tasks and Attempts that are not its own: nothing, whatever it says.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::time::Duration;

use crate::common::*;
use futures::StreamExt as _;
use futures::channel::mpsc::UnboundedReceiver;
use tenure_core::command::{GiveBack, StepReport};
use tenure_core::id::{AgentId, AttemptId, CommandId, PoolId, RunId};
use tenure_core::record::RetryPolicy;
use tenure_core::status::{Policy, StepStatus};
use tenure_core::view::{Look, RunOffer};
use tenure_core::{Code, Rejection};
use tenure_ports::bus::{Credit, Delivery, Holding, Pulse, WorkerPort as _};
use tenure_ports::journal::TaskKey;
use tenure_scheduler::WorkerLink;
use tenure_testkit::{Faulty, MemoryJournal};
use uuid::Uuid;

type Link = WorkerLink<Faulty<MemoryJournal>, tenure_local::MemoryLeases>;

fn join(node: &Node, who: &str) -> (Link, UnboundedReceiver<Delivery>) {
    let (link, inbox) =
        node.join(AgentId::new(who).unwrap(), PoolId::new(POOL).unwrap(), None).unwrap();
    link.credit(Credit { free: 1, seen: 0, lost: 0, number: 1 });
    (link, inbox)
}

/// A Run of another Task, as if it were of this one.
fn offer_of(task: &TaskKey, run_id: RunId) -> RunOffer {
    RunOffer {
        session_id: task.session_id.clone(),
        task_id: task.task_id.clone(),
        run_id,
        worker_pool_id: PoolId::new(POOL).unwrap(),
        allowed_step_ids: None,
        instructions: None,
        bindings: None,
        expires_at: None,
    }
}

/// Everything that a worker can say of a Task by its name, under a Run and an Attempt that are not of it.
async fn says_everything(link: &Link, task: &TaskKey, run_id: RunId) -> Vec<Rejection> {
    let offer = offer_of(task, run_id);
    let attempt_id = AttemptId(Uuid::from_u128(9));
    let held = Holding {
        task: task.clone(),
        run_id,
        attempt_id,
        fencing_token: 4,
        lease_ms: 0,
        input_seen: None,
    };
    let why = || serde_json::from_str(r#"{"message": "no time"}"#).ok();
    let mut said = vec![
        link.query(&offer, 0).await.map(drop),
        link.claim(&offer, &step_id("a"), &CommandId::new("c").unwrap()).await.map(drop),
        link.leave(&offer, None, None).await.map(drop),
        link.leave(&offer, why(), None).await.map(drop),
        link.release(&held, GiveBack::default(), None).await.map(drop),
        link.end_run(&held, FINISHED, None, None).await.map(drop),
    ];
    for status in StepStatus::ALL.iter().copied().map(Some).chain([None]) {
        let report = StepReport {
            status,
            attempt_id: Some(attempt_id),
            fencing_token: Some(4),
            ..StepReport::on(step_id("a"))
        };
        said.push(link.report(&held, report, None).await.map(drop));
    }
    let long = StepReport {
        result_summary: Some("long".repeat(1_000_000)),
        ..StepReport::on(step_id("a"))
    };
    said.push(link.report(&held, long, None).await.map(drop));
    for look in looks() {
        said.push(link.look(task, run_id, look).await.map(drop));
    }
    said.into_iter().map(|answer| answer.expect_err("it is not the worker's")).collect()
}

/// Everything that a worker can ask of a Task, with what may stand there and what may not.
fn looks() -> Vec<Look> {
    let statuses = vec!["failed"; 1_000];
    let asked = serde_json::json!([
        {"operation": "task_get"},
        {"operation": "task_list", "input": {}},
        {"operation": "task_list", "input": {"limit": 0}},
        {"operation": "task_query_steps", "input": {}},
        {"operation": "task_query_steps", "input": {"limit": 0}},
        {"operation": "task_query_steps", "input": {"statuses": statuses}},
        {"operation": "task_board_summary", "input": {}},
        {"operation": "task_board_summary", "input": {"token_budget": 1}},
        {"operation": "task_board_summary", "input": {"token_budget": 1_000_000}},
    ]);
    serde_json::from_value(asked).unwrap()
}

/// PERM-16, CLAIM-02, QUERY-05: whether a Task is at work, has ended or never was is all the same to a
/// worker whose Run is of another; and nothing of it has changed.
#[tokio::test(start_paused = true)]
async fn a_task_that_is_not_the_runs_sounds_like_none() {
    let node = node().await;
    let (thief, mut inbox) = join(&node, "thief");
    create(&node, dag("own", "a")).await.unwrap();
    let Some(Delivery::Grant(own)) = inbox.next().await else { panic!("a grant comes") };
    let live = create(&node, dag("live", "a b<-a")).await.unwrap();
    let ended = create(&node, dag("ended", "a")).await.unwrap();
    cancel(&node, &ended).await.unwrap();
    let before = events(&node, &live).await;

    let absent = says_everything(&thief, &key("nowhere"), own.run_id).await;
    assert!(absent.iter().all(|no| no.code != Code::TaskNotFound), "{absent:?}");
    assert_eq!(says_everything(&thief, &live, own.run_id).await, absent);
    assert_eq!(says_everything(&thief, &ended, own.run_id).await, absent);
    assert_eq!(events(&node, &live).await, before);
}

/// Mechanisms 4: a token above the version of its Task is that of a claim which this node does not know
/// yet, as another owner made it: nothing is said of that Attempt.
#[tokio::test(start_paused = true)]
async fn an_attempt_that_a_later_owner_made_is_not_called_lost() {
    let node = node().await;
    let (link, mut inbox) = join(&node, "w");
    let key = create(&node, dag("t", "a")).await.unwrap();
    let Some(Delivery::Grant(claim)) = inbox.next().await else { panic!("a grant comes") };
    let version = node.read(&key, |task| task.version()).await.unwrap();
    let other = |fencing_token| Holding { fencing_token, ..Holding::of(&claim) };
    let pulses = link.heartbeat(&[other(version - 1), other(version + 1)]).await;
    assert!(matches!(&pulses[0], Pulse::Lost(no) if no.code == Code::StaleAttempt), "{pulses:?}");
    assert_eq!(pulses[1], Pulse::Unknown);
}

/// PERM-16: a heartbeat for what a worker does not hold has one answer: of an Attempt of another worker, of none, on
/// a Task that is at work, has ended or never was, whatever the fencing token.
#[tokio::test(start_paused = true)]
async fn a_heartbeat_tells_nobody_of_the_attempts_of_others() {
    let node = node().await;
    let (holder, mut inbox) = join(&node, "holder");
    let live = create(&node, dag("live", "a")).await.unwrap();
    let Some(Delivery::Grant(claim)) = inbox.next().await else { panic!("a grant comes") };
    let ended = create(&node, dag("ended", "a")).await.unwrap();
    cancel(&node, &ended).await.unwrap();
    node.wait_for_end(&ended).await.unwrap();
    let held = Holding::of(&claim);
    assert!(matches!(
        &holder.heartbeat(std::slice::from_ref(&held)).await[..],
        [Pulse::Renewed { .. }]
    ));
    let (thief, _) = join(&node, "thief");
    for task in [live.clone(), ended, key("nowhere")] {
        for attempt_id in [held.attempt_id, AttemptId(Uuid::from_u128(9))] {
            for fencing_token in [0, held.fencing_token, u64::MAX] {
                let asked =
                    Holding { task: task.clone(), attempt_id, fencing_token, ..held.clone() };
                let pulses = thief.heartbeat(&[asked]).await;
                assert_eq!(pulses, [Pulse::Unknown], "{task} {attempt_id} {fencing_token}");
            }
        }
    }
    cancel(&node, &live).await.unwrap();
    node.wait_for_end(&live).await.unwrap();
    tokio::time::sleep(Duration::from_secs(120)).await; // The Task is at rest.
    assert_eq!(thief.heartbeat(std::slice::from_ref(&held)).await, [Pulse::Unknown]);
    let pulses = holder.heartbeat(&[held]).await;
    assert!(
        matches!(&pulses[..], [Pulse::Lost(no)] if no.code == Code::TaskTerminal),
        "{pulses:?}"
    );
}

/// PERM-13, LEASE-04, 5.4 `heartbeat`: who knows an Attempt by name keeps it alive for nobody: its worker
/// is silent, and loses it in time.
#[tokio::test(start_paused = true)]
async fn a_heartbeat_for_another_renews_nothing() {
    let node = node().await;
    let (_silent, mut inbox) = join(&node, "silent");
    let lease = RetryPolicy { heartbeat_ms: Some(10_000), ..RetryPolicy::default() };
    let mut input = with_policy(dag("t", "a"), lease);
    input.completion = Some(Policy::Manual);
    let key = create(&node, input).await.unwrap();
    let Some(Delivery::Grant(claim)) = inbox.next().await else { panic!("a grant comes") };
    let (thief, _) = join(&node, "thief");
    let held = Holding::of(&claim);
    for _ in 0..4 {
        let pulses = thief.heartbeat(std::slice::from_ref(&held)).await;
        assert_eq!(pulses, [Pulse::Unknown]);
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
    let expired = events(&node, &key).await;
    assert!(expired.contains(&"task_step_lease_expired"), "{expired:?}");
}
