//! A session on real servers, of which one is killed again and again while messages are under way. Clients send a
//! message again until it is acknowledged: nothing is lost, nothing is accepted twice.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use prost::Message as _;
use tenure_core::status::TaskStatus;
use tenure_macp::SessionState;
use tenure_macp::pb::stream_session_response::Response as Told;
use tenure_macp::pb::{Ack, Envelope};
use tokio::runtime::Runtime;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use crate::agent::{Agent, Wire, accept, commit, complete, request, start, update};
use crate::cluster::{client, gateway, node_settings, owns_all};
use crate::servers::{Server, nats, redis};
use crate::site::Served;
use tenure_node::Node;

/// Until then a message is acknowledged, whatever was killed.
pub(crate) const RECOVERED: Duration = Duration::from_secs(90);

/// A node on a runtime of its own, which ends without a word when this is killed.
pub(crate) struct MortalNode(Option<Runtime>);

impl MortalNode {
    pub(crate) async fn start(nats: &str, redis: &str, name: &str) -> Self {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build().unwrap();
        let settings = node_settings(nats, redis, name);
        let running = runtime.spawn(async move {
            let node = Node::start(settings).await.unwrap();
            owns_all(&node).await;
            std::mem::forget(node); // It lives as long as the runtime.
        });
        running.await.unwrap();
        Self(Some(runtime))
    }

    /// Kills it, and starts another in its place.
    pub(crate) async fn replaced(mut self, nats: &str, redis: &str, name: &str) -> Self {
        self.kill();
        Self::start(nats, redis, name).await
    }

    fn kill(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for MortalNode {
    fn drop(&mut self) {
        self.kill();
    }
}

#[derive(Clone, Copy)]
enum Victim {
    Scheduler,
    Gateway,
    Redis,
    Nats,
}

/// Servers, a node and a gateway.
struct Place {
    nats: Server,
    redis: Server,
    node: MortalNode,
    gateway: Option<Served>,
    /// Where the gateway is now.
    address: Arc<Mutex<SocketAddr>>,
    nodes: usize,
}

impl Place {
    async fn open() -> Self {
        let (nats, redis) = (nats(), redis(&[]));
        let (url, store) = urls(&nats, &redis);
        let node = MortalNode::start(&url, &store, "n0").await;
        let gateway = gateway(&url).await;
        let address = Arc::new(Mutex::new(gateway.grpc));
        Self { nats, redis, node, gateway: Some(gateway), address, nodes: 1 }
    }

    /// Kills one, and starts it again, or another in its place.
    async fn lose(&mut self, victim: Victim) {
        let (url, store) = urls(&self.nats, &self.redis);
        match victim {
            Victim::Scheduler => {
                self.node.kill();
                let name = format!("n{}", self.nodes);
                self.nodes += 1;
                self.node = MortalNode::start(&url, &store, &name).await;
            }
            Victim::Gateway => {
                drop(self.gateway.take());
                let next = gateway(&url).await;
                *self.address.lock().unwrap() = next.grpc;
                self.gateway = Some(next);
            }
            Victim::Redis => {
                self.redis.kill();
                self.redis.restart();
            }
            Victim::Nats => {
                self.nats.kill();
                self.nats.restart();
            }
        }
    }
}

pub(crate) fn urls(nats: &Server, redis: &Server) -> (String, String) {
    (format!("nats://127.0.0.1:{}", nats.port), format!("redis://127.0.0.1:{}", redis.port))
}

/// An agent at the gateway that is there now; none while there is none.
async fn agent(at: &Mutex<SocketAddr>, name: &str) -> Option<Agent> {
    let address = *at.lock().unwrap();
    Some(Agent::new(Wire::try_to(address).await?, name))
}

/// Sends a message until it is acknowledged.
pub(crate) async fn send(at: Arc<Mutex<SocketAddr>>, envelope: Envelope) -> Ack {
    let sent = async {
        loop {
            if let Some(agent) = agent(&at, &envelope.sender).await
                && let Ok(ack) = agent.try_send(envelope.clone()).await
            {
                return ack;
            }
            sleep(Duration::from_millis(50)).await; // As clients do before they come back.
        }
    };
    let kind = &envelope.message_type;
    let ack = timeout(RECOVERED, sent).await.unwrap_or_else(|_| panic!("no Ack of {kind}"));
    assert!(ack.ok, "{kind}: {ack:?}");
    ack
}

/// The messages of a session, from its start to its end.
fn messages(session: &str) -> Vec<Envelope> {
    let message = |sender: &str, kind: &str, payload: Vec<u8>| Envelope {
        macp_version: "1.0".into(),
        mode: tenure_macp::TASK_MODE.into(),
        message_type: kind.into(),
        message_id: Uuid::new_v4().to_string(),
        session_id: session.into(),
        sender: sender.into(),
        timestamp_unix_ms: crate::agent::now_ms(),
        payload,
    };
    vec![
        message("planner", "SessionStart", start(&["ann"]).encode_to_vec()),
        message("planner", "TaskRequest", request("ann").encode_to_vec()),
        message("ann", "TaskAccept", accept().encode_to_vec()),
        message("ann", "TaskUpdate", update(0.5).encode_to_vec()),
        message("ann", "TaskComplete", complete(b"1").encode_to_vec()),
        message("planner", "Commitment", commit("task.completed", true).encode_to_vec()),
    ]
}

/// Plays a session, and kills the victim while each of these messages is under way.
async fn survives(victim: Victim, at: &[usize]) {
    let mut place = Place::open().await;
    let session = Uuid::new_v4().to_string();
    let sent = messages(&session);
    let mut states = Vec::new();
    for (place_of, envelope) in sent.iter().enumerate() {
        let sending = tokio::spawn(send(Arc::clone(&place.address), envelope.clone()));
        if at.contains(&place_of) {
            place.lose(victim).await;
        }
        states.push(sending.await.unwrap().session_state());
    }
    assert_eq!(states[5], SessionState::Resolved);
    assert!(states[..5].iter().all(|state| *state == SessionState::Open), "{states:?}");

    // What was accepted is there once, in its order, and each repetition is answered alike.
    let planner = agent(&place.address, "planner").await.unwrap();
    let mut told = planner.follows(&session, 0).await;
    for envelope in &sent {
        let Told::Envelope(kept) = told.next().await.unwrap() else { panic!("an error is told") };
        assert_eq!(kept, *envelope);
    }
    for envelope in sent.clone() {
        let ack = send(Arc::clone(&place.address), envelope).await;
        assert!(ack.duplicate && ack.session_state() == SessionState::Resolved, "{ack:?}");
    }
    let (url, _) = urls(&place.nats, &place.redis);
    let (client, task) = (client(&url).await, session.parse().unwrap());
    let facts = client.facts(&task, Default::default()).await.unwrap().facts;
    assert_eq!(facts.len(), sent.len());
    let view = client.get(&task).await.unwrap();
    assert_eq!((view.task.native_status, view.attempts.len()), (TaskStatus::Completed, 1));
}

/// MACP-15: a node that dies with a message under way.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_survives_its_schedulers() {
    survives(Victim::Scheduler, &[2, 4]).await;
}

/// MACP-15: a gateway that dies with a message under way.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_survives_its_gateways() {
    survives(Victim::Gateway, &[0, 1, 2, 3, 4, 5]).await;
}

/// MACP-15: Redis, which forgets everything when it dies.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_survives_redis() {
    survives(Victim::Redis, &[1, 2, 4]).await;
}

/// MACP-15: NATS, which keeps what it has acknowledged.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_survives_nats() {
    survives(Victim::Nats, &[1, 2, 5]).await;
}

/// MACP-15: an agent that dies before it has its Ack. The one that comes after it sends the same again.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_survives_its_agents() {
    let place = Place::open().await;
    let session = Uuid::new_v4().to_string();
    let sent = messages(&session);
    for envelope in &sent {
        let lost = tokio::spawn(send(Arc::clone(&place.address), envelope.clone()));
        tokio::task::yield_now().await;
        lost.abort(); // Somewhere between the first byte and the Ack.
        send(Arc::clone(&place.address), envelope.clone()).await;
    }
    let planner = agent(&place.address, "planner").await.unwrap();
    let mut told = planner.follows(&session, 0).await;
    let kinds = told.kinds(6).await;
    assert_eq!(kinds.last().map(String::as_str), Some("Commitment"));
    assert_eq!(planner.metadata(&session).await.participant_activity.len(), 2);
    let (url, _) = urls(&place.nats, &place.redis);
    let facts = client(&url).await.facts(&session.parse().unwrap(), Default::default()).await;
    assert_eq!(facts.unwrap().facts.len(), sent.len());
}
