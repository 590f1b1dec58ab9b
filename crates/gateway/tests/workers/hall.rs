//! A scheduler in memory, and gateways to it for several callers.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Extension;
use futures::StreamExt as _;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures::stream::select;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use tenure_core::Rejection;
use tenure_core::id::{AgentId, PoolId, SessionId, TaskId};
use tenure_core::sessions::Abilities;
use tenure_core::status::Role;
use tenure_core::view::TaskView;
use tenure_gateway::identity::{Allowed, Identity};
use tenure_gateway::{Backend, EmbeddedBackend, Gateway, GatewaySettings, NodeAnswers};
use tenure_local::MemoryLeases;
use tenure_ports::bus::Delivery;
use tenure_scheduler::{ClientLink, Config, Scheduler, WorkerLink};
use tenure_sdk::client::Client;
use tenure_testkit::{MemoryBlobs, MemoryJournal};
use tenure_wire::bus::operate::LeaseRow;
use tenure_wire::bus::output::{OutputPage, ReadOutput};
use tenure_wire::bus::subject::Token;
use tokio::net::TcpListener;
use tokio::time::{Duration, sleep, timeout};

/// Whatever a test waits for comes sooner than this.
const SOON: Duration = Duration::from_secs(30);

type Port = EmbeddedBackend<MemoryJournal, MemoryLeases>;

/// A scheduler in this process, of which a test can say that an operator drains its workers: only nodes of
/// a cluster do that.
#[derive(Clone, Debug)]
pub(crate) struct Drained {
    inner: Port,
    /// The ways to the workers that have joined.
    joined: Arc<Mutex<Vec<UnboundedSender<Delivery>>>>,
}

impl Drained {
    /// Tells all workers to leave.
    pub(crate) fn drain(&self, time_left_ms: Option<u64>) {
        for worker in &*self.joined.lock() {
            worker.unbounded_send(Delivery::Drain(time_left_ms)).unwrap();
        }
    }
}

impl Backend for Drained {
    type Client = ClientLink<MemoryJournal, MemoryLeases>;
    type Worker = WorkerLink<MemoryJournal, MemoryLeases>;

    fn client(
        &self,
        who: &Identity,
        session: &SessionId,
    ) -> impl Future<Output = Result<Client<Self::Client>, Rejection>> + Send {
        self.inner.client(who, session)
    }

    fn nodes(
        &self,
        who: &Identity,
        session: &SessionId,
    ) -> impl Future<Output = Result<NodeAnswers, Rejection>> + Send {
        self.inner.nodes(who, session)
    }

    fn read_output(
        &self,
        who: &Identity,
        session: &SessionId,
        task: &TaskId,
        asked: ReadOutput,
    ) -> impl Future<Output = Result<OutputPage, Rejection>> + Send {
        self.inner.read_output(who, session, task, asked)
    }

    fn leases(
        &self,
        who: &Identity,
        session: &SessionId,
    ) -> impl Future<Output = Result<Vec<LeaseRow>, Rejection>> + Send {
        self.inner.leases(who, session)
    }

    async fn join(
        &self,
        who: &Identity,
        pool: PoolId,
        boot: Token,
        abilities: Abilities,
    ) -> Result<(Self::Worker, UnboundedReceiver<Delivery>), Rejection> {
        let (port, from_scheduler) = self.inner.join(who, pool, boot, abilities).await?;
        let (by_test, from_test) = unbounded();
        let (to_worker, deliveries) = unbounded();
        self.joined.lock().push(by_test);
        tokio::spawn(select(from_scheduler, from_test).map(Ok).forward(to_worker));
        Ok((port, deliveries))
    }

    fn ready(&self) -> impl Future<Output = Result<(), Rejection>> + Send {
        self.inner.ready()
    }
}

/// A scheduler, and what leads to it.
pub(crate) struct Hall {
    pub(crate) backend: Drained,
    pub(crate) client: Client<ClientLink<MemoryJournal, MemoryLeases>>,
}

impl Hall {
    pub(crate) async fn open() -> Self {
        Self::with_leases_of(60_000).await
    }

    /// With leases of so many milliseconds.
    pub(crate) async fn with_leases_of(lease_ms: u64) -> Self {
        let mut config = Config::embedded("default".parse().unwrap());
        config.limits.lease_ms = lease_ms;
        config.tick = Duration::from_millis(100);
        config.blobs = Some(Arc::new(MemoryBlobs::of_quota(1 << 30)));
        let (journal, leases) = (Arc::default(), Arc::new(MemoryLeases::default()));
        let scheduler = Scheduler::start(journal, leases, config).await.unwrap();
        let agent = AgentId::new("local").unwrap();
        let port = scheduler.client(Role::Orchestrator, agent, session());
        let inner = EmbeddedBackend::new(scheduler, None);
        let backend = Drained { inner, joined: Arc::default() };
        Self { backend, client: Client::new(port) }
    }

    /// A gateway of its own for this caller.
    pub(crate) async fn gateway(&self, who: Identity) -> SocketAddr {
        self.gateway_for(vec![who]).await.remove(0)
    }

    /// One gateway, at an address for each of these callers.
    pub(crate) async fn gateway_for(&self, callers: Vec<Identity>) -> Vec<SocketAddr> {
        let settings = GatewaySettings::new(session());
        let routes = tenure_gateway::routes(Gateway::new(self.backend.clone(), settings));
        let mut addresses = Vec::new();
        for who in callers {
            addresses.push(serve(routes.clone().layer(Extension(who))).await);
        }
        addresses
    }

    /// Waits until a Task is as `is_so` says.
    pub(crate) async fn until(&self, task: &TaskId, is_so: impl Fn(&TaskView) -> bool) -> TaskView {
        let comes = async {
            loop {
                let now = self.client.get(task).await.unwrap();
                if is_so(&now) {
                    return now;
                }
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(SOON, comes).await.expect("it comes to be so")
    }
}

fn session() -> SessionId {
    "main".parse().unwrap()
}

/// A worker with this name, for the pool `default`.
pub(crate) fn worker(principal: &str) -> Identity {
    let pools = Allowed::Only(vec!["default".parse().unwrap()]);
    let principal = principal.parse().unwrap();
    Identity { principal, role: Role::Worker, sessions: Allowed::Only(Vec::new()), pools }
}

async fn serve(routes: axum::Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = TowerToHyperService::new(routes.clone());
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    address
}
