//! Gateways that serve MACP before one scheduler.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use futures::channel::mpsc::UnboundedReceiver;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use tenure_core::id::{AgentId, SessionId};
use tenure_core::status::{Role, TaskStatus};
use tenure_gateway::macp::MacpSettings;
use tenure_gateway::server::{HttpServer, ServerSettings};
use tenure_gateway::{Backend, EmbeddedBackend, Gateway, GatewaySettings};
use tenure_local::MemoryLeases;
use tenure_macp::MacpPolicies;
use tenure_ports::bus::Delivery;
use tenure_scheduler::{ClientLink, Config, Scheduler, WorkerLink};
use tenure_sdk::client::Client;
use tenure_testkit::{Faulty, MemoryBlobs, MemoryJournal};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::agent::{Agent, SOON, Wire};

/// The session of Tenure in which the Tasks are.
pub(crate) const SESSION: &str = "agents";

/// A client in this process.
pub(crate) type LocalClient = Client<ClientLink<Faulty<MemoryJournal>, MemoryLeases>>;

/// A worker in this process.
pub(crate) type LocalWorker = WorkerLink<Faulty<MemoryJournal>, MemoryLeases>;

/// The policies of all gateways.
const POLICIES: &str = r#"[
    {"policy_id": "reassign", "mode": "macp.mode.task.v1", "schema_version": 1,
     "rules": {"assignment": {"allow_reassignment_on_reject": true}}},
    {"policy_id": "output", "mode": "macp.mode.task.v1", "schema_version": 1,
     "rules": {"completion": {"require_output": true}}}
]"#;

/// A scheduler, and the files of the gateways before it.
pub(crate) struct Site {
    scheduler: Scheduler<Faulty<MemoryJournal>, MemoryLeases>,
    files: TempDir,
}

/// A gateway. It ends at once when this is dropped, as if it had been killed.
pub(crate) struct Served {
    pub(crate) grpc: SocketAddr,
    serving: JoinHandle<()>,
}

impl Drop for Served {
    /// Waits for the end: a scheduler does not stop well while somebody sends it something.
    fn drop(&mut self) {
        self.serving.abort();
        let ended = async { (&mut self.serving).await.is_err() };
        tokio::task::block_in_place(|| Handle::current().block_on(ended));
    }
}

impl Site {
    pub(crate) async fn open() -> Self {
        let mut config = Config::embedded("default".parse().unwrap());
        config.limits.lease_ms = 500; // Shorter than any test: a claim of a participant has its own.
        config.blobs = Some(Arc::new(MemoryBlobs::of_quota(1 << 30)));
        let (journal, leases) = (Arc::default(), Arc::new(MemoryLeases::default()));
        let scheduler = Scheduler::start(journal, leases, config).await.unwrap();
        Self { scheduler, files: tempfile::tempdir().unwrap() }
    }

    /// A gateway at which a token is the name of its sender.
    pub(crate) async fn gateway(&self) -> Served {
        self.served(settings(), None).await
    }

    /// A gateway that knows these callers: a token, which is the principal too, with its role.
    pub(crate) async fn gateway_for(&self, callers: &[(&str, &str)]) -> Served {
        let settings = MacpSettings { trusts_tokens: false, ..settings() };
        let path = self.files.path().join("who.toml");
        write_callers(&path, callers);
        self.served(settings, Some(&path)).await
    }

    pub(crate) async fn served(&self, macp: MacpSettings, callers: Option<&Path>) -> Served {
        serve(EmbeddedBackend::new(self.scheduler.clone(), None), macp, callers).await
    }

    /// A worker of a pool.
    pub(crate) fn join(
        &self,
        name: &str,
        pool: &str,
    ) -> (LocalWorker, UnboundedReceiver<Delivery>) {
        self.scheduler.join(name.parse().unwrap(), pool.parse().unwrap(), None).unwrap()
    }

    /// Somebody who steers Tasks beside the sessions.
    pub(crate) fn client(&self) -> LocalClient {
        self.client_in(SESSION)
    }

    /// How many commits were read from the logs.
    pub(crate) fn commits_read(&self) -> u64 {
        self.scheduler.journal().commits_read()
    }

    /// Waits until the Task of a session is cancelled.
    pub(crate) async fn is_cancelled(&self, session: &str) {
        let (client, task) = (self.client(), session.parse().unwrap());
        let ended = timeout(SOON, client.wait_for_end(&task)).await.expect("it ends soon");
        assert_eq!(ended.unwrap().status, TaskStatus::Cancelled);
    }

    fn client_in(&self, session: &str) -> LocalClient {
        let session = SessionId::new(session).unwrap();
        let macp = AgentId::new("macp").unwrap();
        Client::new(self.scheduler.client(Role::Orchestrator, macp, session))
    }
}

impl Served {
    /// An agent of this name.
    pub(crate) async fn agent(&self, name: &str) -> Agent {
        Agent::new(Wire::to(self.grpc).await, name)
    }
}

/// The usual settings, with tokens that are trusted.
pub(crate) fn settings() -> MacpSettings {
    MacpSettings {
        trusts_tokens: true,
        policies: MacpPolicies::parse(POLICIES).unwrap().into(),
        ..MacpSettings::new(SessionId::new(SESSION).unwrap())
    }
}

/// Serves a backend on ports of its own.
pub(crate) async fn serve<B: Backend>(
    backend: B,
    macp: MacpSettings,
    callers: Option<&Path>,
) -> Served {
    let any = "127.0.0.1:0".parse().unwrap();
    let identities = callers.map(Path::to_owned);
    let server =
        ServerSettings { tcp: vec![any], grpc: Some(any), identities, ..ServerSettings::default() };
    let server = HttpServer::bind(server).await.unwrap();
    let grpc = server.grpc_address().unwrap();
    let usual = GatewaySettings::new(SessionId::new("main").unwrap());
    let settings = GatewaySettings { macp: Some(macp), asks_for_login: callers.is_some(), ..usual };
    let gateway = Gateway::new(backend, settings);
    let serving =
        tokio::spawn(async move { server.serve(gateway, std::future::pending::<()>()).await });
    Served { grpc, serving }
}

fn write_callers(path: &Path, callers: &[(&str, &str)]) {
    let mut text = String::new();
    for (name, role) in callers {
        let digest = Sha256::digest(name);
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(text, "[[tokens]]\nsha256 = \"{hex}\"\nprincipal = \"{name}\"").unwrap();
        let lets = match *role {
            "worker" => "pools = [\"macp\"]",
            "elsewhere" => "sessions = [\"elsewhere\"]",
            _ => "sessions = [\"agents\"]",
        };
        let role = if *role == "elsewhere" { "orchestrator" } else { role };
        writeln!(text, "role = \"{role}\"\n{lets}").unwrap();
    }
    std::fs::write(path, text).unwrap();
}
