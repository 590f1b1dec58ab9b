//! Two gateways before a cluster of real servers.

use std::time::{Duration, Instant};

use tenure_core::id::SessionId;
use tenure_core::status::TaskStatus;
use tenure_gateway::NatsBackend;
use tenure_gateway::macp::MacpSettings;
use tenure_macp::SessionState;
use tenure_node::{Nats, Node, Settings};
use tenure_sdk::nats::NatsSettings;
use tenure_wire::bus::subject::Token;

use crate::agent::{accept, commit, complete, request, start, update};
use crate::servers::{nats, redis};
use crate::site::{Served, serve, settings};

const PARTITIONS: u32 = 4;

pub(crate) fn node_settings(nats: &str, redis: &str, name: &str) -> Settings {
    let (name, pool) = (Token::new(name).unwrap(), "default".parse().unwrap());
    let mut settings = Settings::new(Nats::at(nats.to_owned()), redis.to_owned(), name, pool);
    settings.partitions = PARTITIONS;
    settings
}

async fn node(nats: &str, redis: &str, name: &str) -> Node {
    let node = Node::start(node_settings(nats, redis, name)).await.unwrap();
    owns_all(&node).await;
    node
}

/// Waits until the node serves everything.
pub(crate) async fn owns_all(node: &Node) {
    let since = Instant::now();
    while node.served().len() < PARTITIONS as usize {
        assert!(since.elapsed() < Duration::from_secs(60), "the node owns everything soon");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) async fn gateway(nats: &str) -> Served {
    gateway_with(nats, settings()).await
}

pub(crate) async fn gateway_with(nats: &str, macp: MacpSettings) -> Served {
    let name = Token::new("gateway").unwrap();
    let session = SessionId::new("main").unwrap();
    serve(NatsBackend::new(NatsSettings::new(nats), name, session).unwrap(), macp, None).await
}

/// MACP-15 and mechanisms 3: two gateways serve one session on real servers; history, duplicates and the assignee
/// outlive the node that has written them, and a gateway that dies.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_outlives_its_node_and_its_gateway() {
    let (nats, redis) = (nats(), redis(&[]));
    let (url, store) =
        (format!("nats://127.0.0.1:{}", nats.port), format!("redis://127.0.0.1:{}", redis.port));
    let first = node(&url, &store, "n1").await;
    let (one, two) = (gateway(&url).await, gateway(&url).await);
    let (planner, ann) = (one.agent("planner").await, two.agent("ann").await);
    let session = planner.starts(start(&["ann"])).await;
    let asks = planner.envelope(&session, "TaskRequest", &request("ann"));
    assert!(planner.send(asks.clone()).await.ok);
    ann.says(&session, "TaskAccept", &accept()).await;
    let mut told = planner.follows(&session, 0).await;
    assert_eq!(told.kinds(3).await, ["SessionStart", "TaskRequest", "TaskAccept"]);
    first.stop().await;
    let _second = node(&url, &store, "n2").await;
    drop(two);
    let ann = one.agent("ann").await;
    ann.says(&session, "TaskUpdate", &update(0.5)).await;
    assert_eq!(told.kinds(1).await, ["TaskUpdate"], "the stream goes on");
    let ack = planner.send(asks).await;
    assert!(ack.ok && ack.duplicate);
    ann.says(&session, "TaskComplete", &complete(b"1")).await;
    let ack = planner.says(&session, "Commitment", &commit("task.completed", true)).await;
    assert_eq!(ack.session_state(), SessionState::Resolved);
    let client = client(&url).await;
    let ended = client.wait_for_end(&session.parse().unwrap()).await.unwrap();
    assert_eq!(ended.status, TaskStatus::Completed);
}

pub(crate) async fn client(nats: &str) -> tenure_sdk::client::Client<tenure_sdk::nats::NatsClient> {
    use tenure_gateway::Backend as _;
    use tenure_gateway::identity::Identity;
    let (name, session) = (Token::new("gateway").unwrap(), SessionId::new("main").unwrap());
    let backend = NatsBackend::new(NatsSettings::new(nats), name, session).unwrap();
    let session = SessionId::new(crate::site::SESSION).unwrap();
    backend.client(&Identity::local(), &session).await.unwrap()
}
