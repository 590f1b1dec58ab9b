//! A scheduler on a directory of its own, a gateway to it, and workers.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

use axum::Extension;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tempfile::TempDir;
use tenure_core::id::{AgentId, PoolId, SessionId, TaskId};
use tenure_core::status::Role;
use tenure_gateway::identity::{Allowed, Identity};
use tenure_gateway::{EmbeddedBackend, Gateway, GatewaySettings};
use tenure_local::{JournalOptions, JsonlJournal, MemoryLeases};
use tenure_scheduler::{ClientLink, Config, Scheduler, WorkerLink};
use tenure_sdk::client::{Client, Step, Task};
use tenure_sdk::worker::{Handlers, Options, WorkerPool};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// The session of all tests.
pub(crate) const SESSION: &str = "main";

/// Everything in one process.
pub(crate) struct House {
    pub(crate) address: SocketAddr,
    pub(crate) client: Client<ClientLink<JsonlJournal, MemoryLeases>>,
    /// Lets as many Steps with the handler `hold` end as it has permits.
    pub(crate) gate: Arc<Semaphore>,
    /// Where commands leave what they write.
    pub(crate) files: PathBuf,
    _workers: WorkerPool<WorkerLink<JsonlJournal, MemoryLeases>>,
    _data: TempDir,
}

impl House {
    /// For the local user.
    pub(crate) async fn open() -> Self {
        Self::open_for(Identity::local()).await
    }

    /// For this caller.
    pub(crate) async fn open_for(who: Identity) -> Self {
        let data = tempfile::tempdir().unwrap();
        let (journal, _) = JsonlJournal::open(data.path(), JournalOptions::default()).unwrap();
        let pool: PoolId = "default".parse().unwrap();
        let leases = Arc::<MemoryLeases>::default();
        let config = Config::embedded(pool.clone());
        let scheduler = Scheduler::start(Arc::new(journal), leases, config).await.unwrap();
        let gate = Arc::new(Semaphore::new(0));
        let (link, deliveries) = scheduler.join("worker".parse().unwrap(), pool, None).unwrap();
        let options = Options::new(NonZeroUsize::new(4).unwrap());
        let workers = WorkerPool::start(link, deliveries, handlers(&gate), options);
        let caller: AgentId = "local".parse().unwrap();
        let port = scheduler.client(Role::Orchestrator, caller, session());
        let files = data.path().canonicalize().unwrap().join("files");
        let backend = EmbeddedBackend::new(scheduler, Some(files.clone()));
        let address = serve(backend, who).await;
        let client = Client::new(port);
        Self { address, client, gate, files, _workers: workers, _data: data }
    }

    /// Makes a Task with one Step.
    pub(crate) async fn create(&self, handler: &str) -> TaskId {
        let task = Task::new("a task\nwith a <b>title</b>").step(Step::new("a").handler(handler));
        self.client.create(task).await.unwrap()
    }

    /// The path of a Task.
    pub(crate) fn path(task: &TaskId, rest: &str) -> String {
        format!("/v1/sessions/{SESSION}/tasks/{task}{rest}")
    }
}

pub(crate) fn session() -> SessionId {
    SESSION.parse().unwrap()
}

/// A caller that is let into these sessions only.
pub(crate) fn observer_of(sessions: Vec<SessionId>) -> Identity {
    let sessions = Allowed::Only(sessions);
    Identity { role: Role::Observer, sessions, ..Identity::local() }
}

fn handlers(gate: &Arc<Semaphore>) -> Handlers {
    let gate = Arc::clone(gate);
    let hold = move |ctx: tenure_sdk::worker::StepContext| {
        let gate = Arc::clone(&gate);
        async move {
            gate.acquire().await?.forget();
            Ok(ctx.complete_json(&"held")?)
        }
    };
    let echo =
        |ctx: tenure_sdk::worker::StepContext| async move { Ok(ctx.complete_json(&"done")?) };
    Handlers::new().on("echo", echo).unwrap().on("hold", hold).unwrap()
}

async fn serve(backend: EmbeddedBackend<JsonlJournal, MemoryLeases>, who: Identity) -> SocketAddr {
    let gateway = Gateway::new(backend, GatewaySettings::new(session()));
    let router = tenure_gateway::routes(gateway).layer(Extension(who));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = TowerToHyperService::new(router.clone());
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            tokio::spawn(connection);
        }
    });
    address
}
