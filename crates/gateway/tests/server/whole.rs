//! The whole of a gateway: a server before a scheduler on a directory of its own.

use std::path::Path;
use std::sync::Arc;

use serde_json::Value as Json;
use tempfile::TempDir;
use tenure_core::id::{AgentId, PoolId, SessionId, TaskId};
use tenure_core::status::Role;
use tenure_gateway::server::{HttpServer, ServerSettings};
use tenure_gateway::{EmbeddedBackend, Gateway, GatewaySettings};
use tenure_local::{FileBlobs, JournalOptions, JsonlJournal, MemoryLeases};
use tenure_ports::blobs::SESSION_QUOTA;
use tenure_scheduler::{ClientLink, Config, Scheduler};
use tenure_sdk::client::{Client, Step, Task};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::raw::{Raw, RawAnswer};
use crate::site::{request, settings};

/// Where the Tasks of all tests are.
pub(crate) const TASKS: &str = "/v1/sessions/main/tasks";

/// Where workers join the pool in which the Steps of all tests wait.
pub(crate) const WORKERS: &str = "/v1/pools/default/workers";

/// A server that answers, and the scheduler behind it.
pub(crate) struct Whole {
    address: std::net::SocketAddr,
    pub(crate) client: Client<ClientLink<JsonlJournal, MemoryLeases>>,
    stop: Arc<Notify>,
    serving: JoinHandle<()>,
    _dir: TempDir,
}

impl Whole {
    /// A server without authentication.
    pub(crate) async fn open() -> Self {
        Self::with(|_, _| {}).await
    }

    /// A server with other settings, which may have files in a directory.
    pub(crate) async fn with(change: impl FnOnce(&mut ServerSettings, &Path)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut settings = settings();
        change(&mut settings, dir.path());
        let (journal, _) = JsonlJournal::open(dir.path(), JournalOptions::default()).unwrap();
        let pool: PoolId = "default".parse().unwrap();
        let leases = Arc::<MemoryLeases>::default();
        let blobs = Arc::new(FileBlobs::open(dir.path(), SESSION_QUOTA));
        let config = Config { blobs: Some(blobs), ..Config::embedded(pool) };
        let scheduler = Scheduler::start(Arc::new(journal), leases, config).await;
        let scheduler = scheduler.unwrap();
        let (agent, session): (AgentId, SessionId) =
            ("local".parse().unwrap(), "main".parse().unwrap());
        let client = Client::new(scheduler.client(Role::Orchestrator, agent, session.clone()));
        let backend = EmbeddedBackend::new(scheduler, Some(dir.path().join("files")));
        let gateway = Gateway::new(backend, GatewaySettings::new(session));
        let server = HttpServer::bind(settings).await.unwrap();
        let (address, stop) = (server.addresses()[0], Arc::new(Notify::new()));
        let stopped = Arc::clone(&stop);
        let serving = tokio::spawn(async move { server.serve(gateway, stopped.notified()).await });
        Self { address, client, stop, serving, _dir: dir }
    }

    /// Makes a Task with one Step, which waits for a worker.
    pub(crate) async fn create(&self, title: &str) -> TaskId {
        let task = Task::new(title).step(Step::new("a").handler("echo"));
        self.client.create(task).await.unwrap()
    }

    /// Waits until so many requests are being answered.
    pub(crate) async fn is_answering(&self, requests: usize) {
        let with_this = format!("http_server_active_requests {}\n", requests + 1);
        while !self.ask("GET /metrics", &[], "").await.body.contains(&with_this) {
            tokio::task::yield_now().await;
        }
    }

    pub(crate) async fn connect(&self) -> Raw<TcpStream> {
        Raw::new(TcpStream::connect(self.address).await.unwrap())
    }

    /// Sends a request on a connection of its own.
    pub(crate) async fn ask(&self, line: &str, headers: &[(&str, &str)], body: &str) -> RawAnswer {
        let mut connection = self.connect().await;
        let length = body.len().to_string();
        let headers = [headers, &[("content-length", length.as_str())]].concat();
        connection.send(request(line, &headers) + body).await;
        connection.answer().await.unwrap()
    }

    /// The same for a request without a body; answers all that comes until the connection ends.
    pub(crate) async fn read(&self, line: &str, headers: &[(&str, &str)]) -> String {
        let mut connection = self.connect().await;
        let headers = [headers, &[("connection", "close")]].concat();
        connection.send(request(line, &headers)).await;
        connection.rest().await
    }

    /// Sends JSON on a connection of its own.
    pub(crate) async fn post(&self, path: &str, body: &str) -> RawAnswer {
        let json = [("content-type", "application/json")];
        self.ask(&format!("POST {path}"), &json, body).await
    }

    /// Joins as a worker; answers the path of its link.
    pub(crate) async fn join(&self) -> String {
        let joined = self.post(WORKERS, "{}").await;
        assert_eq!(joined.status, 201, "{}", joined.body);
        joined.header("location").to_owned()
    }

    /// What comes to a worker in some time.
    pub(crate) async fn deliveries(&self, link: &str) -> Json {
        let came = self.ask(&format!("GET {link}/deliveries?wait=20s"), &[], "").await;
        assert_eq!(came.status, 200, "{}", came.body);
        serde_json::from_str(&came.body).unwrap()
    }

    /// Tells the server to stop.
    pub(crate) fn stop(&self) {
        self.stop.notify_one();
    }

    /// Waits until it has stopped.
    pub(crate) async fn stopped(self) {
        tokio::time::timeout(crate::raw::WAITS, self.serving).await.unwrap().unwrap();
    }
}
