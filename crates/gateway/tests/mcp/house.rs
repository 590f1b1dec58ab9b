//! A scheduler in memory, a worker, and a server for several logins.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use tenure_core::id::{AgentId, PoolId, SessionId};
use tenure_core::status::Role;
use tenure_gateway::server::{HttpServer, ServerFiles, ServerLimits, ServerSettings};
use tenure_gateway::{EmbeddedBackend, Gateway, GatewaySettings};
use tenure_local::MemoryLeases;
use tenure_mcp::McpSettings;
use tenure_mcp::file::AgentsFile;
use tenure_mcp::offers::{OfferTable, Offers};
use tenure_scheduler::{ClientLink, Config, Scheduler, WorkerLink};
use tenure_sdk::client::Client;
use tenure_sdk::worker::{Handlers, Options, StepContext, WorkerPool};
use tenure_testkit::MemoryJournal;
use tokio::sync::{Notify, Semaphore};
use tokio_util::task::AbortOnDropHandle;

type Link = ClientLink<MemoryJournal, MemoryLeases>;

/// Who may come: token, principal, role, sessions.
const LOGINS: [(&str, &str, &str, &str); 5] = [
    ("ann-token", "ann", "orchestrator", r#"["main"]"#),
    ("ada-token", "ada", "orchestrator", r#"["main", "other"]"#),
    ("eve-token", "eve", "orchestrator", r#"["other"]"#),
    ("bob-token", "bob", "observer", r#"["main"]"#),
    ("ant-token", "ant", "worker", r#"["main"]"#),
];

/// Everything in one process.
pub(crate) struct House {
    scheduler: Scheduler<MemoryJournal, MemoryLeases>,
    /// Lets as many Steps with the handler `hold` end as it has permits.
    pub(crate) gate: Arc<Semaphore>,
    dir: TempDir,
    _workers: WorkerPool<WorkerLink<MemoryJournal, MemoryLeases>>,
}

/// A gateway that answers.
pub(crate) struct Site {
    pub(crate) address: SocketAddr,
    pub(crate) files: ServerFiles,
    stop: Arc<Notify>,
    serving: AbortOnDropHandle<()>,
}

impl House {
    pub(crate) async fn open() -> Self {
        let pool: PoolId = "default".parse().unwrap();
        let (journal, leases) = (Arc::default(), Arc::new(MemoryLeases::default()));
        let config = Config::embedded(pool.clone());
        let scheduler = Scheduler::start(journal, leases, config).await.unwrap();
        let gate = Arc::new(Semaphore::new(0));
        let (link, deliveries) = scheduler.join(AgentId::new("ant").unwrap(), pool, None).unwrap();
        let options = Options::new(NonZeroUsize::new(4).unwrap());
        let workers = WorkerPool::start(link, deliveries, handlers(&gate), options);
        let dir = tempfile::tempdir().unwrap();
        Self { scheduler, gate, dir, _workers: workers }
    }

    /// A gateway to it: any number may stand side by side.
    pub(crate) async fn site(&self) -> Site {
        let identities = self.dir.path().join("who.toml");
        self.admit(&LOGINS);
        self.serve(Some(identities), Offers::none()).await
    }

    /// A gateway that has so many connections.
    pub(crate) async fn narrow_site(&self, connections: usize) -> Site {
        let identities = Some(self.dir.path().join("who.toml"));
        self.admit(&LOGINS);
        let limits = ServerLimits { connections_max: connections, ..ServerLimits::default() };
        let settings = ServerSettings { identities, limits, ..ServerSettings::default() };
        self.serve_by(settings, Offers::none()).await
    }

    /// A gateway that offers the tools of a file.
    pub(crate) async fn offering_site(&self, text: &str) -> Site {
        let path = self.dir.path().join("agents.toml");
        std::fs::write(&path, text).unwrap();
        let table =
            OfferTable::read(&AgentsFile::read(&path).unwrap(), &|_| Err("none".into())).unwrap();
        let identities = self.dir.path().join("who.toml");
        self.admit(&LOGINS);
        self.serve(Some(identities), table.into()).await
    }

    /// A gateway that asks for no login.
    pub(crate) async fn open_site(&self) -> Site {
        self.serve(None, Offers::none()).await
    }

    async fn serve(&self, identities: Option<PathBuf>, offers: Offers) -> Site {
        let settings = ServerSettings { identities, ..ServerSettings::default() };
        self.serve_by(settings, offers).await
    }

    async fn serve_by(&self, settings: ServerSettings, offers: Offers) -> Site {
        let tcp = vec!["127.0.0.1:0".parse().unwrap()];
        let settings = ServerSettings { tcp, ..settings };
        let server = HttpServer::bind(settings).await.unwrap();
        let (address, files) = (server.addresses()[0], server.files());
        let backend = EmbeddedBackend::new(self.scheduler.clone(), None);
        let usual = GatewaySettings::new("main".parse().unwrap());
        let mcp = McpSettings { offers, ..usual.mcp.clone() };
        let gateway = Gateway::new(backend, GatewaySettings { mcp, ..usual });
        let stop = Arc::new(Notify::new());
        let stopped = Arc::clone(&stop);
        let serving = tokio::spawn(async move {
            server.serve(gateway, stopped.notified()).await;
        });
        Site { address, files, stop, serving: AbortOnDropHandle::new(serving) }
    }

    fn admit(&self, logins: &[(&str, &str, &str, &str)]) {
        let mut text = String::new();
        for (token, principal, role, sessions) in logins {
            text.push_str("[[tokens]]\nsha256 = \"");
            for byte in Sha256::digest(token) {
                write!(text, "{byte:02x}").unwrap();
            }
            writeln!(text, "\"\nprincipal = \"{principal}\"\nrole = \"{role}\"").unwrap();
            match *role {
                "worker" => text.push_str("pools = [\"default\"]\n"),
                _ => writeln!(text, "sessions = {sessions}").unwrap(),
            }
        }
        std::fs::write(self.dir.path().join("who.toml"), text).unwrap();
    }

    /// Lets nobody in any more but the first.
    pub(crate) fn admit_only_the_first(&self, site: &Site) {
        self.admit(&LOGINS[..1]);
        site.files.reload().unwrap();
    }

    /// A client in a session.
    pub(crate) fn client(&self, session: &str) -> Client<Link> {
        let session: SessionId = session.parse().unwrap();
        let agent = AgentId::new("tester").unwrap();
        Client::new(self.scheduler.client(Role::Orchestrator, agent, session))
    }
}

impl Site {
    /// Stops it, and waits until it has stopped.
    pub(crate) async fn stop(self) {
        self.stop.notify_one();
        self.serving.await.unwrap();
    }
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
    Handlers::new().on("hold", hold).unwrap()
}
