//! A scheduler on a directory of its own, a gateway to it, and workers that complete Steps when they may.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;

use axum::Extension;
use hyper::server::conn::http1;
use hyper::{Method, StatusCode};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use serde_json::{Value as Json, json};
use tempfile::TempDir;
use tenure_core::id::PoolId;
use tenure_core::status::Role;
use tenure_gateway::identity::{Allowed, Identity};
use tenure_gateway::{EmbeddedBackend, Gateway, GatewaySettings};
use tenure_local::{FileBlobs, JournalOptions, JsonlJournal, MemoryLeases};
use tenure_ports::blobs::SESSION_QUOTA;
use tenure_scheduler::{Config, Scheduler, WorkerLink};
use tenure_sdk::worker::{Handlers, Options, StepContext, WorkerPool};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::http::{Answer, Exchange, send};

/// The session of all tests, and one that observers are not let into.
pub(crate) const SESSION: &str = "main";
pub(crate) const OTHER_SESSION: &str = "other";

/// Everything in one process.
pub(crate) struct TestGateway {
    /// For the local user, who may do everything.
    address: SocketAddr,
    /// For an observer of the session.
    observers: SocketAddr,
    /// For a worker.
    workers: SocketAddr,
    /// Lets as many Steps with the handler `hold` end as it has permits.
    pub(crate) gate: Arc<Semaphore>,
    _pool: WorkerPool<WorkerLink<JsonlJournal, MemoryLeases>>,
    _data: TempDir,
}

impl TestGateway {
    pub(crate) async fn open() -> Self {
        let data = tempfile::tempdir().unwrap();
        let (journal, _) = JsonlJournal::open(data.path(), JournalOptions::default()).unwrap();
        let pool: PoolId = "default".parse().unwrap();
        let blobs = Arc::new(FileBlobs::open(data.path(), SESSION_QUOTA));
        let config = Config { blobs: Some(blobs), ..Config::embedded(pool.clone()) };
        let leases = Arc::<MemoryLeases>::default();
        let scheduler = Scheduler::start(Arc::new(journal), leases, config).await.unwrap();
        let gate = Arc::new(Semaphore::new(0));
        let (link, deliveries) = scheduler.join("ant.b1".parse().unwrap(), pool, None).unwrap();
        let options = Options::new(NonZeroUsize::new(4).unwrap());
        let workers = WorkerPool::start(link, deliveries, handlers(&gate), options);
        let backend = EmbeddedBackend::new(scheduler, Some(data.path().join("files")));
        let routes = tenure_gateway::routes(Gateway::new(
            backend,
            GatewaySettings::new(SESSION.parse().unwrap()),
        ));
        Self {
            address: serve(&routes, Identity::local()).await,
            observers: serve(&routes, of(Role::Observer)).await,
            workers: serve(&routes, of(Role::Worker)).await,
            gate,
            _pool: workers,
            _data: data,
        }
    }

    /// A request of the local user.
    pub(crate) fn ask(&self, method: Method, path: &str) -> Exchange {
        Exchange::new(self.address, method, path)
    }

    /// A request of an observer that is let into [`SESSION`] alone.
    pub(crate) fn observe(&self, method: Method, path: &str) -> Exchange {
        Exchange::new(self.observers, method, path)
    }

    /// A request of a worker.
    pub(crate) fn work(&self, method: Method, path: &str) -> Exchange {
        Exchange::new(self.workers, method, path)
    }

    /// Reads something that is there.
    pub(crate) async fn get(&self, path: &str) -> Answer {
        let answer = send(self.ask(Method::GET, path)).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}: {:?}", answer.body);
        answer
    }

    /// Sends JSON.
    pub(crate) async fn post(&self, path: &str, body: &Json) -> Answer {
        send(self.ask(Method::POST, path).json(body)).await
    }

    /// Makes a Task with one Step that has this handler.
    pub(crate) async fn create(&self, id: &str, handler: &str) -> Answer {
        let body = json!({
            "task_id": id,
            "title": "a task",
            "steps": [{ "step_id": "a", "title": "A", "handler": handler }],
        });
        let answer = self.post(&tasks(""), &body).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{:?}", answer.body);
        answer
    }

    /// Waits until a Task is as `is_there` says.
    pub(crate) async fn until(&self, id: &str, is_there: impl Fn(&Json) -> bool) -> Json {
        let mut since = 0;
        loop {
            let task = self.get(&tasks(&format!("/{id}?wait=20s&since={since}"))).await.json();
            if is_there(&task) {
                return task;
            }
            since = task["version"].as_u64().unwrap();
        }
    }
}

/// A path below that of the Tasks.
pub(crate) fn tasks(rest: &str) -> String {
    format!("/v1/sessions/{SESSION}/tasks{rest}")
}

/// Whether a worker holds a Step of the Task.
pub(crate) fn is_held(task: &Json) -> bool {
    let counts = &task["counts"];
    counts["claimed"] == 1 || counts["running"] == 1
}

fn of(role: Role) -> Identity {
    let sessions = Allowed::Only(vec![SESSION.parse().unwrap()]);
    Identity { role, sessions, ..Identity::local() }
}

fn handlers(gate: &Arc<Semaphore>) -> Handlers {
    let gate = Arc::clone(gate);
    let hold = move |ctx: StepContext| {
        let gate = Arc::clone(&gate);
        async move {
            gate.acquire().await?.forget();
            Ok(ctx.complete_json(&"held")?)
        }
    };
    let echo = |ctx: StepContext| async move { Ok(ctx.complete_json(&"done")?) };
    Handlers::new().on("echo", echo).unwrap().on("hold", hold).unwrap()
}

async fn serve(routes: &axum::Router, who: Identity) -> SocketAddr {
    let routes = routes.clone().layer(Extension(who));
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
