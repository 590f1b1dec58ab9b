//! Tenure over HTTP: everything that the bus offers, for programs that speak HTTP and JSON.
//!
//! A request becomes the request that an orchestrator, an observer or a worker would send over the
//! bus; the answer comes back as JSON, and a refusal as a problem (RFC 9457). The gateway holds no
//! rule of the domain and no state that matters: any number of gateways may stand behind one
//! address, and one that dies costs its callers a new connection.
//!
//! ```text
//!  hyper ─► guard ─► identity ─► api ──────► tenure_sdk::client ──► Backend
//!  (server)                      live, workers, a2a, macp, mcp        ├─ a scheduler in process
//!                                                                     └─ a cluster over NATS
//! ```
//!
//! What the catalog of operations knows (names, fields, answers, refusals) is read from it and not
//! written again: [`api`] adds a method and a path to each operation, and the page `/openapi.json`
//! is made of the two.

pub mod a2a;
pub mod api;
pub mod backend;
mod described;
mod guard;
mod health;
pub mod identity;
mod live;
#[cfg(feature = "grpc")]
pub mod macp;
mod mcp;
mod metrics;
mod openapi;
mod pages;
mod problem;
pub mod server;
mod workers;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tenure_core::id::SessionId;
use tenure_mcp::{McpSettings, Shares};

pub use backend::{Backend, EmbeddedBackend, ErasedBackend, NatsBackend, NodeAnswers};
pub use mcp::McpEndpoint;
pub use metrics::Counters;
pub use pages::process_pages;
pub use problem::HttpProblem;

/// How the gateway answers.
#[derive(Debug, Clone)]
pub struct GatewaySettings {
    /// The session in which the gateway asks about pools, workers and nodes when a request names none.
    pub session: SessionId,
    /// The longest time that a long poll may ask for, and that a message to an agent waits for its answer.
    pub wait_max: Duration,
    /// The agents that speak A2A.
    pub agents: a2a::ServedAgents,
    /// After how long a stream of A2A ends on which nothing happens.
    pub stream_idle_max: Duration,
    /// How MACP is served over gRPC; none: it is not.
    #[cfg(feature = "grpc")]
    pub macp: Option<macp::MacpSettings>,
    /// The port at which agents speak gRPC, as their cards say; none: they do not.
    pub grpc_port: Option<u16>,
    /// Whether callers have to say who they are, as the cards of agents tell them.
    pub asks_for_login: bool,
    /// What models have at `/mcp`.
    pub mcp: McpSettings,
}

impl GatewaySettings {
    /// The longest that a long poll waits by default: proxies often close connections that are
    /// silent for a minute.
    pub const WAIT_MAX: Duration = Duration::from_secs(55);

    /// How long a stream of A2A on which nothing happens stays open by default: a task that waits for its caller may
    /// do so for days.
    pub const STREAM_IDLE_MAX: Duration = Duration::from_secs(3_600);

    /// The usual settings, with the session for requests that name none.
    pub fn new(session: SessionId) -> Self {
        Self {
            session,
            wait_max: Self::WAIT_MAX,
            agents: a2a::ServedAgents::default(),
            stream_idle_max: Self::STREAM_IDLE_MAX,
            #[cfg(feature = "grpc")]
            macp: None,
            grpc_port: None,
            asks_for_login: false,
            mcp: McpSettings::default(),
        }
    }
}

/// The state that all requests share.
#[derive(Debug)]
pub struct Gateway<B: Backend = ErasedBackend> {
    pub(crate) backend: B,
    pub(crate) settings: GatewaySettings,
    pub(crate) counters: metrics::Counters,
    pub(crate) workers: workers::HttpWorkers<B>,
    /// Whose log is folded next.
    pub(crate) folds: Arc<api::FoldTurns>,
    pub(crate) live: live::SharedStreams,
    /// The tasks of agents that streams follow.
    pub(crate) followed: Arc<a2a::SharedFolds>,
    /// The couriers of callbacks that run here, and those that are being made.
    pub(crate) couriers: Shares,
    /// The sessions of MACP.
    #[cfg(feature = "grpc")]
    pub(crate) macp: macp::SharedSessions,
    /// The server of MCP.
    pub(crate) mcp: mcp::McpService,
}

impl Gateway {
    /// A gateway to this backend.
    pub fn new(backend: impl Backend, settings: GatewaySettings) -> Arc<Self> {
        Self::over(backend.erased(), settings)
    }

    fn over(backend: ErasedBackend, settings: GatewaySettings) -> Arc<Self> {
        let (counters, workers, live, followed, folds) = Default::default();
        let of_models = McpSettings { wait_max: settings.wait_max, ..settings.mcp.clone() };
        let mcp = mcp::McpService::of_tenure(backend.clone(), of_models);
        Arc::new(Self {
            backend,
            settings,
            counters,
            workers,
            live,
            followed,
            folds,
            couriers: Shares::new(a2a::COURIERS_MAX),
            #[cfg(feature = "grpc")]
            macp: macp::SharedSessions::default(),
            mcp,
        })
    }

    /// What the gateway counts. A server that serves it counts there too.
    pub fn counters(&self) -> metrics::Counters {
        self.counters.clone()
    }

    /// Sends updates of tasks to the addresses that their callers have named, for as long as it is polled, as soon as
    /// the file of agents allows that. A server that serves the gateway does so.
    pub async fn call_back(&self) {
        let (backend, agents) = (self.backend.clone(), self.settings.agents.clone());
        let (couriers, folds) = (self.couriers.clone(), Arc::clone(&self.folds));
        a2a::run_couriers(backend, agents, couriers, folds).await;
    }

    /// Looks after the sessions of MACP, for as long as it is polled. A server that serves the gateway does so.
    pub async fn tend_sessions(self: Arc<Self>) {
        #[cfg(feature = "grpc")]
        futures::join!(macp::tend(Arc::clone(&self)), macp::run_errands(self));
        #[cfg(not(feature = "grpc"))]
        std::future::pending::<()>().await;
    }
}

/// The routes that are no operations of the catalog.
fn described_routes() -> impl Iterator<Item = described::DescribedRoute> {
    api::described().chain(live::described()).chain(workers::described())
}

/// All routes of the gateway. Each request needs an [`Identity`](identity::Identity) among its
/// extensions, which the layer of [`guard`] puts there.
pub fn routes(gateway: Arc<Gateway>) -> Router {
    Router::new()
        .merge(api::routes())
        .merge(a2a::routes())
        .merge(live::routes())
        .merge(mcp::routes())
        .merge(workers::routes())
        .merge(openapi::routes())
        .merge(health::routes())
        .merge(metrics::routes())
        .fallback(api::no_such_resource)
        .method_not_allowed_fallback(api::no_such_method)
        .with_state(gateway)
}
