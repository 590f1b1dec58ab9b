//! Clients and workers over HTTP before a cluster of real servers, with two gateways to choose from.
#![allow(clippy::unwrap_used, clippy::expect_used)] // A test that cannot go on has failed.

#[allow(dead_code)] // Other tests use more of it.
#[path = "sdk/house.rs"]
mod house;
#[allow(dead_code)] // Other tests use more of it.
#[path = "../../cluster/tests/real/servers.rs"]
mod servers;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use axum::{Extension, Router};
use futures::channel::mpsc::UnboundedReceiver;
use tenure_core::id::PoolId;
use tenure_core::status::Role;
use tenure_gateway::identity::{Allowed, Identity};
use tenure_gateway::{Gateway, GatewaySettings, NatsBackend};
use tenure_node::{Nats, Node, Settings};
use tenure_ports::bus::Delivery;
use tenure_sdk::http::{HttpClient, HttpSettings, HttpWorker};
use tenure_sdk::nats::NatsSettings;
use tenure_testkit::conformance::{Bus, bus_suite};
use tenure_wire::bus::subject::Token;
use tokio::sync::Mutex;

use self::house::{Socket, connect, session};
use self::servers::{Server, nats, redis};

const PARTITIONS: u32 = 4;

/// A node and two gateways that several buses share, each with names of its own.
struct Shared {
    gateways: [Router; 2],
    /// How many buses there were so far.
    count: AtomicU32,
    _node: Node,
    _servers: [Server; 2],
}

impl Shared {
    async fn start() -> Arc<Self> {
        let (nats, redis) = (nats(), redis(&[]));
        let url = format!("nats://127.0.0.1:{}", nats.port);
        let store = format!("redis://127.0.0.1:{}", redis.port);
        let (name, pool) = (Token::new("n1").unwrap(), "default".parse().unwrap());
        let mut settings = Settings::new(Nats::at(url.clone()), store, name, pool);
        settings.partitions = PARTITIONS;
        settings.scheduler.limits.lease_ms = 120_000;
        let node = Node::start(settings).await.unwrap();
        let since = Instant::now();
        while node.served().len() < PARTITIONS as usize {
            assert!(since.elapsed() < Duration::from_secs(30), "the node owns everything soon");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let gateways = [gateway(&url), gateway(&url)];
        let servers = [nats, redis];
        Arc::new(Self { gateways, count: AtomicU32::new(0), _node: node, _servers: servers })
    }
}

/// The routes of a gateway of its own.
fn gateway(nats: &str) -> Router {
    let name = Token::new("gateway").unwrap();
    let backend = NatsBackend::new(NatsSettings::new(nats), name, session("main")).unwrap();
    tenure_gateway::routes(Gateway::new(backend, GatewaySettings::new(session("main"))))
}

/// A bus whose callers and workers all know both gateways.
struct OverGateways {
    shared: Arc<Shared>,
    number: u32,
    sockets: Mutex<Vec<Socket>>,
}

impl OverGateways {
    fn new(shared: &Arc<Shared>) -> Self {
        let number = shared.count.fetch_add(1, Ordering::SeqCst);
        Self { shared: Arc::clone(shared), number, sockets: Mutex::default() }
    }

    fn token(&self, text: &str) -> Token {
        Token::new(format!("{text}-{}", self.number)).unwrap()
    }

    /// Sockets of both gateways for somebody. Every second one finds the other gateway first.
    async fn open(&self, who: &Identity) -> HttpSettings {
        let mut sockets = self.sockets.lock().await;
        let is_turned = sockets.len() % 4 == 2;
        let mut urls = Vec::new();
        for routes in &self.shared.gateways {
            let routes = routes.clone().layer(Extension(who.clone()));
            let socket = Socket::tcp("127.0.0.1:0", routes).await;
            urls.push(socket.url.clone());
            sockets.push(socket);
        }
        if is_turned {
            urls.reverse();
        }
        HttpSettings { first_wait: Duration::from_secs(30), ..HttpSettings::new(urls.join(",")) }
    }
}

impl Bus for OverGateways {
    type Worker = HttpWorker;
    type Client = HttpClient;

    fn pool(&self) -> PoolId {
        PoolId::new(format!("pool-{}", self.number)).unwrap()
    }

    async fn worker(
        &self,
        principal: &str,
        boot: &str,
    ) -> (HttpWorker, UnboundedReceiver<Delivery>) {
        let pools = Allowed::Only(vec![self.pool()]);
        let (principal, sessions) = (self.token(principal), Allowed::Only(Vec::new()));
        let settings =
            self.open(&Identity { principal, role: Role::Worker, sessions, pools }).await;
        HttpWorker::join(&settings, &self.pool(), &self.token(boot), None).await.unwrap()
    }

    async fn client(&self, role: Role, session: &str) -> HttpClient {
        let principal = self.token("bob");
        let settings = self.open(&Identity { principal, role, ..Identity::local() }).await;
        connect(&settings, &format!("{session}-{}", self.number)).await.unwrap()
    }

    /// The node is shared: no check of this suite stops it.
    async fn stop(&self) {}
}

/// Mechanisms 7, 8, 11 and 15, over HTTP and on real servers behind it.
#[tokio::test(flavor = "multi_thread")]
async fn gateways_of_a_cluster_are_a_bus() {
    let shared = Shared::start().await;
    bus_suite(|| async { (OverGateways::new(&shared), ()) }).await;
}
