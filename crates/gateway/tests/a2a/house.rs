//! A scheduler in memory, a worker, and gateways for several callers.

use std::future::pending;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tenure_core::id::{AgentId, PoolId, SessionId};
use tenure_core::status::Role;
use tenure_gateway::a2a::{Agents, ServedAgents};
use tenure_gateway::identity::{Allowed, Identity};
use tenure_gateway::{EmbeddedBackend, Gateway, GatewaySettings};
use tenure_local::MemoryLeases;
use tenure_scheduler::{ClientLink, Config, Scheduler};
use tenure_sdk::client::Client;
use tenure_sdk::worker::{DelegationSettings, Options, WorkerPool};
use tenure_testkit::{MemoryBlobs, MemoryJournal};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::task::AbortOnDropHandle;

use crate::agents::{agents, agents_that_call_back, handlers};
use crate::talk::Talk;

/// A client in this process.
pub(crate) type LocalClient = Client<ClientLink<MemoryJournal, MemoryLeases>>;

/// Everything in one process. The worker and the gateways go on to the end of the test, also without this.
pub(crate) struct House {
    scheduler: Scheduler<MemoryJournal, MemoryLeases>,
    /// Lets as many Steps end that were told `hold` as it has permits.
    pub(crate) gate: Arc<Semaphore>,
}

impl House {
    pub(crate) async fn open() -> Self {
        let pool: PoolId = "default".parse().unwrap();
        let mut config = Config::embedded(pool.clone());
        config.limits.lease_ms = 120_000;
        config.blobs = Some(Arc::new(MemoryBlobs::of_quota(1 << 30)));
        let (journal, leases) = (Arc::default(), Arc::new(MemoryLeases::default()));
        let scheduler = Scheduler::start(journal, leases, config).await.unwrap();
        let gate = Arc::new(Semaphore::new(0));
        let id = AgentId::new("ant.b1").unwrap();
        let (link, deliveries) = scheduler.join(id, pool, None).unwrap();
        let options = Options::new(NonZeroUsize::new(8).unwrap());
        let handlers = handlers(&gate).with_a2a(DelegationSettings::default()).unwrap();
        let workers = WorkerPool::start(link, deliveries, handlers, options);
        tokio::spawn(async move {
            let _works_on = workers;
            pending::<()>().await;
        });
        Self { scheduler, gate }
    }

    /// A gateway of its own for this caller, and a conversation with an agent there.
    pub(crate) async fn talk_as(&self, who: Identity, agent: &str) -> Talk {
        Talk::new(self.gateway(who, GatewaySettings::WAIT_MAX).await, agent)
    }

    /// The same for the local user.
    pub(crate) async fn talk(&self, agent: &str) -> Talk {
        self.talk_as(Identity::local(), agent).await
    }

    /// A gateway at which a message waits so long for its answer.
    pub(crate) async fn gateway(&self, who: Identity, wait_max: Duration) -> SocketAddr {
        let settings = GatewaySettings { wait_max, ..settings(agents()) };
        let backend = self.backend();
        serve(tenure_gateway::routes(Gateway::new(backend, settings)).layer(Extension(who))).await
    }

    /// A gateway that serves these agents, and on which a stream ends when it is quiet for so long.
    pub(crate) async fn gateway_of(
        &self,
        served: ServedAgents,
        stream_idle_max: Duration,
    ) -> SocketAddr {
        let usual = settings(Agents::default());
        let settings = GatewaySettings { agents: served, stream_idle_max, ..usual };
        let backend = self.backend();
        let routes = tenure_gateway::routes(Gateway::new(backend, settings));
        serve(routes.layer(Extension(Identity::local()))).await
    }

    /// A gateway that calls back for as long as the handle is kept, and a conversation with an agent there.
    pub(crate) async fn talk_with_calls(&self, agent: &str) -> (Talk, AbortOnDropHandle<()>) {
        let backend = self.backend();
        let gateway = Gateway::new(backend, settings(agents_that_call_back()));
        let routes =
            tenure_gateway::routes(Arc::clone(&gateway)).layer(Extension(Identity::local()));
        let calls = tokio::spawn(async move { gateway.call_back().await });
        (Talk::new(serve(routes).await, agent), AbortOnDropHandle::new(calls))
    }

    /// The way to the scheduler for a gateway.
    pub(crate) fn backend(&self) -> EmbeddedBackend<MemoryJournal, MemoryLeases> {
        EmbeddedBackend::new(self.scheduler.clone(), None)
    }

    /// The local user, in the session of an agent.
    pub(crate) fn client(&self, agent: &str) -> LocalClient {
        let session = SessionId::new(format!("a2a-{agent}")).unwrap();
        let local = AgentId::new("local").unwrap();
        Client::new(self.scheduler.client(Role::Orchestrator, local, session))
    }
}

/// The usual settings of a gateway with these agents.
pub(crate) fn settings(agents: Agents) -> GatewaySettings {
    GatewaySettings {
        agents: agents.into(),
        ..GatewaySettings::new(SessionId::new("main").unwrap())
    }
}

/// A caller of this name that is let into the session of one agent.
pub(crate) fn caller(principal: &str, agent: &str) -> Identity {
    let sessions = Allowed::Only(vec![format!("a2a-{agent}").parse().unwrap()]);
    Identity { principal: principal.parse().unwrap(), sessions, ..Identity::local() }
}

/// Serves routes on a port of its own.
pub(crate) async fn serve(routes: Router) -> SocketAddr {
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
