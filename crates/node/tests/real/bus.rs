//! The bus over NATS keeps what the ports promise, as the one in process does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::channel::mpsc::UnboundedReceiver;
use tenure_core::id::PoolId;
use tenure_core::status::Role;
use tenure_node::Node;
use tenure_ports::bus::Delivery;
use tenure_sdk::nats::{Connection, NatsClient, NatsSettings, NatsWorker};
use tenure_testkit::conformance::{Bus, absence_suite, bus_suite};
use tenure_wire::bus::subject::{ClientName, Token, WorkerName, inbox};
use tokio::sync::Mutex;

use crate::common::Servers;

/// A node that several buses share, each with names of its own.
struct Shared {
    servers: Servers,
    node: Mutex<Option<Node>>,
    /// How long clients ask again.
    patience: Duration,
    /// Buses and clients so far.
    count: AtomicU32,
}

impl Shared {
    async fn start(patience: Duration) -> Arc<Self> {
        let servers = Servers::start();
        let mut settings = servers.settings("n1");
        settings.scheduler.limits.lease_ms = 120_000;
        let node = Mutex::new(Some(servers.node_of(settings).await));
        Arc::new(Self { servers, node, patience, count: AtomicU32::new(0) })
    }

    fn count(&self) -> u32 {
        self.count.fetch_add(1, Ordering::SeqCst)
    }

    async fn connect(&self, inbox: String) -> Connection {
        let settings =
            NatsSettings { patience: self.patience, ..NatsSettings::new(self.servers.url()) };
        Connection::open(&settings, inbox).await.unwrap()
    }
}

struct OverNats {
    shared: Arc<Shared>,
    number: u32,
}

impl OverNats {
    fn new(shared: &Arc<Shared>) -> Self {
        Self { shared: Arc::clone(shared), number: shared.count() }
    }

    fn token(&self, text: &str) -> Token {
        Token::new(format!("{text}-{}", self.number)).unwrap()
    }
}

impl Bus for OverNats {
    type Worker = NatsWorker;
    type Client = NatsClient;

    fn pool(&self) -> PoolId {
        PoolId::new(format!("pool-{}", self.number)).unwrap()
    }

    async fn worker(
        &self,
        principal: &str,
        boot: &str,
    ) -> (NatsWorker, UnboundedReceiver<Delivery>) {
        let (principal, boot) = (self.token(principal), self.token(boot));
        let name = WorkerName { pool: self.pool(), principal, boot };
        let connection = self.shared.connect(name.inbox()).await;
        NatsWorker::join(connection, &name, None).await.unwrap()
    }

    async fn client(&self, role: Role, session: &str) -> NatsClient {
        let session = format!("{session}-{}", self.number).parse().unwrap();
        let name = ClientName { role, session, principal: self.token("bob") };
        let boot = Token::new(format!("c{}", self.shared.count())).unwrap();
        let connection = self.shared.connect(inbox(role, &name.principal, &boot)).await;
        NatsClient::join(connection, &name).await.unwrap()
    }

    async fn stop(&self) {
        if let Some(node) = self.shared.node.lock().await.take() {
            node.stop().await;
        }
    }
}

/// Mechanisms 7, 8, 11 and 15, on a real server.
#[tokio::test(flavor = "multi_thread")]
async fn nats_is_a_bus() {
    let shared = Shared::start(Duration::from_secs(30)).await;
    bus_suite(|| async { (OverNats::new(&shared), ()) }).await;
}

/// Mechanisms 7: the server says that nobody listens, and nobody waits for an answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_has_stopped_is_told_of() {
    let shared = Shared::start(Duration::from_secs(5)).await;
    absence_suite(|| async { (OverNats::new(&shared), ()) }).await;
}
