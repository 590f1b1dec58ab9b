//! Steps of Tenure that agents do who speak MACP.

use std::num::NonZeroUsize;

use prost::Message as _;
use serde_json::{Value as Json, json};
use tenure_core::command::{Close, StepReport};
use tenure_core::id::TaskId;
use tenure_core::record::Value;
use tenure_core::status::{StepStatus, TaskStatus};
use tenure_core::{Command, Context};
use tenure_macp::SessionState;
use tenure_macp::pb::stream_session_response::Response as Told;
use tenure_macp::pb::{ListSessionsRequest, SessionMetadata};
use tenure_macp::task_pb::{TaskFailPayload, TaskRequestPayload};
use tenure_ports::ClientPort;
use tenure_sdk::client::{Client, Step, Task};
use tenure_sdk::worker::{Handlers, Options, WorkerPool};
use tokio::time::timeout;
use uuid::Uuid;

use crate::agent::{Agent, accept, complete, fail, reject, update};
use crate::killed::RECOVERED;
use crate::site::Site;

/// A Task with one Step for participants, and the time that they have.
pub(crate) async fn asked<P: ClientPort>(client: &Client<P>, errand: Json) -> TaskId {
    let input = Value::json(serde_json::to_vec(&errand).unwrap());
    let step = Step::new("t1").pool("macp-steps").handler("macp").input(input);
    client.create(Task::new("a task with an errand").step(step)).await.unwrap()
}

/// The session that was started for the agent, once there is one with a request.
pub(crate) async fn found(agent: &Agent, known: usize) -> SessionMetadata {
    let look = async {
        loop {
            let asked = agent.request(ListSessionsRequest::default());
            let listed = agent.wire.0.clone().list_sessions(asked).await;
            // While no scheduler is there, nothing is listed.
            let listed = listed.map(|it| it.into_inner()).unwrap_or_default();
            let open = |it: &SessionMetadata| {
                it.state() == SessionState::Open && !it.participant_activity.is_empty()
            };
            if listed.sessions.len() > known
                && let Some(session) = listed.sessions.into_iter().find(open)
            {
                return session;
            }
            tokio::task::yield_now().await;
        }
    };
    timeout(RECOVERED, look).await.expect("a session begins soon")
}

/// How many sessions an agent may read.
pub(crate) async fn sessions_of(agent: &Agent) -> usize {
    let asked = agent.request(ListSessionsRequest::default());
    let listed = agent.wire.0.clone().list_sessions(asked).await.unwrap().into_inner();
    listed.sessions.len()
}

pub(crate) fn of_ann() -> Json {
    json!({"participants": ["ann"], "requested_assignee": "ann", "title": "Sales",
           "instructions": "Run it", "input": {"quarter": "Q4"}, "ttl_ms": 60_000})
}

/// MACP-20: a Step is done by a participant of the session that Tenure starts for it, and Tenure commits what is
/// reported.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_does_a_step() {
    let site = Site::open().await;
    let (gateway, client) = (site.gateway().await, site.client());
    let task = asked(&client, of_ann()).await;
    let ann = gateway.agent("ann").await;
    let session = found(&ann, 0).await;
    assert_eq!(
        (session.initiator.as_str(), session.context_id),
        ("tenure://steps", format!("agents/{task}/t1"))
    );
    let id = session.session_id;
    let mut told = ann.follows(&id, 1).await;
    let Told::Envelope(asks) = told.next().await.unwrap() else { panic!("an error is told") };
    let asks = TaskRequestPayload::decode(asks.payload.as_slice()).unwrap();
    assert_eq!((asks.title.as_str(), asks.instructions.as_str()), ("Sales", "Run it"));
    assert_eq!(asks.input, br#"{"quarter":"Q4"}"#);
    ann.says(&id, "TaskAccept", &accept()).await;
    ann.says(&id, "TaskUpdate", &update(0.5)).await;
    ann.says(&id, "TaskComplete", &complete(b"{\"growth\": 12}")).await;
    let ended = client.wait_for_end(&task).await.unwrap();
    assert_eq!(ended.status, TaskStatus::Completed);
    assert_eq!(ann.state(&id).await, SessionState::Resolved);
    let view = client.get(&task).await.unwrap();
    let facts = view.steps[0].facts.as_ref().unwrap();
    let output = facts.output.as_ref().unwrap();
    assert_eq!(output.data(), Some(&b"{\"growth\": 12}"[..]));
    assert_eq!(facts.result_summary.as_deref(), Some("revenue up"));
}

/// MACP-20, MACP-12: a failure that may be tried again is tried in another session, which names the one before. A
/// rejection is none of those.
#[tokio::test(flavor = "multi_thread")]
async fn a_failure_is_tried_again_and_a_rejection_is_not() {
    let site = Site::open().await;
    let (gateway, client) = (site.gateway().await, site.client());
    let task = asked(&client, of_ann()).await;
    let ann = gateway.agent("ann").await;
    let first = found(&ann, 0).await.session_id;
    ann.says(&first, "TaskAccept", &accept()).await;
    ann.says(&first, "TaskFail", &fail()).await;
    let second = found(&ann, 1).await.session_id;
    assert_ne!(first, second);
    let retried: TaskId = second.parse().unwrap();
    let view = client.get(&retried).await.unwrap();
    assert!(format!("{view:?}").contains(&format!("retry: {first}")), "{view:?}");
    ann.says(&second, "TaskReject", &reject("busy")).await;
    assert_eq!(client.wait_for_end(&task).await.unwrap().status, TaskStatus::Failed);
    assert_eq!(ann.state(&second).await, SessionState::Resolved);
}

/// MACP-20: a gateway that dies costs nothing: another takes the Step, and goes on with the same session.
#[tokio::test(flavor = "multi_thread")]
async fn another_gateway_goes_on_with_the_session() {
    let site = Site::open().await;
    let (first, client) = (site.gateway().await, site.client());
    let task = asked(&client, of_ann()).await;
    let ann = first.agent("ann").await;
    let id = found(&ann, 0).await.session_id;
    ann.says(&id, "TaskAccept", &accept()).await;
    drop(first);
    let second = site.gateway().await;
    let ann = second.agent("ann").await;
    ann.says(&id, "TaskComplete", &complete(b"1")).await;
    assert_eq!(client.wait_for_end(&task).await.unwrap().status, TaskStatus::Completed);
    assert_eq!(sessions_of(&ann).await, 1, "there was one session");
}

/// MACP-20: a gateway may die when its session has failed, and before it has said so. Another one says it, and asks
/// nobody again.
#[tokio::test(flavor = "multi_thread")]
async fn a_failure_that_nobody_has_reported_is_reported() {
    let site = Site::open().await;
    let (first, client) = (site.gateway().await, site.client());
    let task = asked(&client, of_ann()).await;
    let ann = first.agent("ann").await;
    let id = found(&ann, 0).await.session_id;
    ann.says(&id, "TaskAccept", &accept()).await;
    ann.says(&id, "TaskFail", &TaskFailPayload { retryable: false, ..fail() }).await;
    assert_eq!(client.wait_for_end(&task).await.unwrap().status, TaskStatus::Failed);
    drop(first);

    // Another Step, whose Attempt has begun that session, and has ended without a word.
    let (link, deliveries) = site.join("gone", "macp-steps");
    let mark = format!("macp-session:{id}");
    let dies = Handlers::new().on("macp", move |step| {
        let mark = mark.clone();
        async move {
            step.checkpoint(&mark).await?;
            std::future::pending().await
        }
    });
    let one = NonZeroUsize::MIN;
    let dies = WorkerPool::start(link, deliveries, dies.unwrap(), Options::new(one));
    let task = asked(&client, of_ann()).await;
    let begun = async {
        while !format!("{:?}", client.get(&task).await.unwrap().attempts).contains(&id) {
            tokio::task::yield_now().await;
        }
    };
    timeout(RECOVERED, begun).await.unwrap();
    drop(dies);
    let second = site.gateway().await;
    assert_eq!(client.wait_for_end(&task).await.unwrap().status, TaskStatus::Failed);
    let view = client.get(&task).await.unwrap();
    assert_eq!(view.attempts.len(), 2, "{:?}", view.attempts);
    let why = view.attempts[1].error.as_ref().unwrap();
    assert!(why.message.contains("no_data"), "{why:?}");
    assert_eq!(sessions_of(&second.agent("ann").await).await, 1);
}

/// MACP-20: a Step that its orchestrator settles, and one of a Task that ends at once, cancel their sessions: nobody
/// waits for the agent any more.
#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_others_settle_cancels_its_session() {
    let site = Site::open().await;
    let (gateway, client) = (site.gateway().await, site.client());
    let ann = gateway.agent("ann").await;
    let settled = Command::TaskUpdateStep(StepReport {
        status: Some(StepStatus::Completed),
        ..StepReport::on("t1".parse().unwrap())
    });
    let at_once = Close { grace_ms: Some(0), ..Close::default() };
    // Whether the handler ends by itself first is a matter of chance: several times, both happen.
    let ways = [settled, Command::TaskCancel(at_once)].into_iter().cycle().take(12);
    for (known, ends) in ways.enumerate() {
        let task = asked(&client, of_ann()).await;
        let id = found(&ann, known).await.session_id;
        ann.says(&id, "TaskAccept", &accept()).await;
        let command = Uuid::new_v4().to_string().parse().unwrap();
        client.command_as(&task, Context::new(command), ends).await.unwrap();
        site.is_cancelled(&id).await;
        assert_eq!(ann.state(&id).await, SessionState::Cancelled);
    }
}

/// MACP-20: what cannot be asked is rejected with its reason, and a Step that is cancelled cancels its session.
#[tokio::test(flavor = "multi_thread")]
async fn a_step_ends_with_its_session() {
    let site = Site::open().await;
    let (gateway, client) = (site.gateway().await, site.client());
    for (wrong, says) in [
        (json!({"participants": []}), "participants"),
        (json!({"participant": ["ann"]}), "unknown field"),
        (json!({"participants": ["ann"], "policy_version": "none"}), "there is no policy"),
    ] {
        let task = asked(&client, wrong).await;
        assert_eq!(client.wait_for_end(&task).await.unwrap().status, TaskStatus::Failed);
        let view = client.get(&task).await.unwrap();
        assert!(format!("{:?}", view.steps).contains(says), "{:?}", view.steps);
    }
    let task = asked(&client, of_ann()).await;
    let ann = gateway.agent("ann").await;
    let id = found(&ann, 0).await.session_id;
    client.cancel(&task, "not any more").await.unwrap();
    site.is_cancelled(&id).await;
    assert_eq!(ann.state(&id).await, SessionState::Cancelled);
}
