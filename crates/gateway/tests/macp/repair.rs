//! Gateways that die between a fact and its effect, and several gateways at one session.

use tenure_core::Event;
use tenure_core::command::KeepFact;
use tenure_core::record::Value;
use tenure_core::status::{FactKind, StepStatus, TaskStatus};
use tenure_macp::pb::Envelope;
use tenure_macp::{MacpDecision, MacpRecord, MacpSession, MacpSteer, SessionState, replay};
use tenure_ports::ClientPort as _;

use crate::agent::{Agent, accept, commit, complete, now_ms, request, start, update};
use crate::site::{LocalClient, Site};

/// The records of a session.
async fn records(client: &LocalClient, session: &str) -> Vec<MacpRecord> {
    let facts = client.facts(&session.parse().unwrap(), Default::default()).await.unwrap().facts;
    let read = facts.iter().map(|fact| MacpRecord::from_bytes(fact.payload.data().unwrap()));
    read.collect::<Result<_, _>>().unwrap()
}

async fn fold(client: &LocalClient, session: &str) -> MacpSession {
    replay(&records(client, session).await).unwrap().unwrap()
}

async fn keep(client: &LocalClient, session: &str, record: &MacpRecord) {
    let payload = Value::inline("application/x-protobuf", record.to_bytes());
    let fact = KeepFact::alone(FactKind::MacpEnvelope, "x".into(), payload);
    client.keep_fact(&session.parse().unwrap(), fact).await.unwrap();
}

/// A message whose gateway has kept it, and has died before it did anything else.
async fn half_sent(client: &LocalClient, who: &Agent, envelope: Envelope) {
    let envelope = Envelope { sender: who.name.clone(), ..envelope };
    let session = fold(client, &envelope.session_id).await;
    let Ok(MacpDecision::Accept(accepted)) = session.decide(&envelope, now_ms()) else {
        panic!("it is accepted")
    };
    keep(client, &envelope.session_id, &accepted.record).await;
}

/// What a gateway has kept and not carried out, the next message carries out first, at any gateway, and once.
#[tokio::test(flavor = "multi_thread")]
async fn the_next_message_carries_out_what_was_kept() {
    let site = Site::open().await;
    let (client, gateway) = (site.client(), site.gateway().await);
    let (planner, ann) = (gateway.agent("planner").await, gateway.agent("ann").await);
    let session = planner.starts(start(&["ann"])).await;
    let task = session.parse().unwrap();
    let asks = planner.envelope(&session, "TaskRequest", &request("ann"));
    half_sent(&client, &planner, asks.clone()).await;
    assert_eq!(client.get(&task).await.unwrap().steps.len(), 0, "nothing has come of it");
    let ack = planner.send(asks).await;
    assert!(ack.ok && ack.duplicate, "the client asks again");
    assert_eq!(client.get(&task).await.unwrap().steps[0].status, StepStatus::Ready);

    let takes = ann.envelope(&session, "TaskAccept", &accept());
    half_sent(&client, &ann, takes).await;
    for _ in 0..2 {
        let second = site.gateway().await;
        let ann = second.agent("ann").await;
        ann.says(&session, "TaskUpdate", &update(0.5)).await;
    }
    let view = client.get(&task).await.unwrap();
    assert_eq!((view.steps[0].status, view.attempts.len()), (StepStatus::Running, 1));

    ann.says(&session, "TaskComplete", &complete(b"1")).await;
    let ends = planner.envelope(&session, "Commitment", &commit("task.completed", true));
    half_sent(&client, &planner, ends.clone()).await;
    let ack = planner.send(ends).await;
    assert_eq!((ack.duplicate, ack.session_state()), (true, SessionState::Resolved));
    assert_eq!(client.get(&task).await.unwrap().task.native_status, TaskStatus::Completed);
}

/// FACT-02, MACP-15: a message and what it means for the Task are one commit, so no gateway dies between them; and a
/// gateway that knows the session asks for nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_one_commit() {
    let site = Site::open().await;
    let (client, gateway) = (site.client(), site.gateway().await);
    let (planner, ann) = (gateway.agent("planner").await, gateway.agent("ann").await);
    let session = planner.starts(start(&["ann"])).await;
    planner.says(&session, "TaskRequest", &request("ann")).await;
    ann.says(&session, "TaskAccept", &accept()).await;
    ann.says(&session, "TaskUpdate", &update(0.5)).await;
    ann.says(&session, "TaskComplete", &complete(b"1")).await;
    planner.says(&session, "Commitment", &commit("task.completed", true)).await;
    let commits = client.port().log(&session.parse().unwrap(), 0).await.unwrap().commits;
    let is_fact = |event: &Event| event.body.event_type() == "task_fact";
    let facts = commits.iter().map(|it| it.events.iter().filter(|e| is_fact(e)).count());
    assert_eq!(facts.collect::<Vec<_>>(), [1, 1, 1, 1, 1, 1]);
    let done = records(&client, &session).await.iter().map(|it| it.carried_out).collect::<Vec<_>>();
    assert_eq!(done, [false, true, true, true, true, true]);
}

/// MACP-15: a message that the Task refuses to follow, as somebody steers it beside the session, is accepted all the
/// same.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_counts_whoever_steers_beside() {
    let site = Site::open().await;
    let (client, gateway) = (site.client(), site.gateway().await);
    let (planner, ann) = (gateway.agent("planner").await, gateway.agent("ann").await);
    let session = planner.starts(start(&["ann"])).await;
    let task = session.parse().unwrap();
    planner.says(&session, "TaskRequest", &request("ann")).await;
    client.pause(&task, "beside").await.unwrap();
    ann.says(&session, "TaskAccept", &accept()).await;
    assert_eq!(fold(&client, &session).await.assignee(), Some("ann"));
    assert!(!records(&client, &session).await[2].carried_out);
    assert_eq!(client.get(&task).await.unwrap().attempts.len(), 0);

    // The next gateway finds it, and carries it out before the next message.
    client.resume(&task, "beside").await.unwrap();
    let second = site.gateway().await;
    second.agent("ann").await.says(&session, "TaskUpdate", &update(0.5)).await;
    assert_eq!(client.get(&task).await.unwrap().attempts.len(), 1);
}

/// A gateway that begins carries out what another one has left, though nobody sends anything.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_gateway_carries_out_what_was_left() {
    let site = Site::open().await;
    let (client, first) = (site.client(), site.gateway().await);
    let planner = first.agent("planner").await;
    let session = planner.starts(start(&["ann"])).await;
    drop(first);
    let kept = fold(&client, &session).await;
    let steered = kept.steer(MacpSteer::Cancel, "planner", "", now_ms()).unwrap();
    keep(&client, &session, &steered.record.unwrap()).await;
    let _second = site.gateway().await;
    site.is_cancelled(&session).await;
}

/// Two gateways serve one session in turn: what one has accepted, the other knows. The records alone tell the same
/// again (MACP-15).
#[tokio::test(flavor = "multi_thread")]
async fn two_gateways_serve_one_session() {
    let site = Site::open().await;
    let gateways = [site.gateway().await, site.gateway().await];
    let planner = [gateways[0].agent("planner").await, gateways[1].agent("planner").await];
    let ann = [gateways[0].agent("ann").await, gateways[1].agent("ann").await];
    let session = planner[0].starts(start(&["ann"])).await;
    planner[1].says(&session, "TaskRequest", &request("ann")).await;
    ann[0].says(&session, "TaskAccept", &accept()).await;
    let mut updates = Vec::new();
    for at in 0..8 {
        let ann = ann[at % 2].clone();
        let session = session.clone();
        updates.push(tokio::spawn(async move {
            ann.says(&session, "TaskUpdate", &update(0.1)).await;
        }));
    }
    for update in updates {
        update.await.unwrap();
    }
    ann[1].says(&session, "TaskComplete", &complete(b"1")).await;
    planner[0].says(&session, "Commitment", &commit("task.completed", true)).await;
    assert_eq!(planner[1].state(&session).await, SessionState::Resolved);
    let told = fold(&site.client(), &session).await;
    assert_eq!((told.ordinal(), told.updates(), told.state()), (13, 8, SessionState::Resolved));
    assert_eq!(told.phase().as_str(), "Committed");
}
