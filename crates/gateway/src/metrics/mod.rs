//! `/metrics`: what the gateway and the schedulers behind it count, for Prometheus.

mod counters;
mod nodes;
mod text;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use axum::routing::get;
use axum::{Extension, Router};
use tenure_core::status::Role;

pub(crate) use self::counters::CountedIn;
pub use self::counters::Counters;
use self::text::{Exposition, MEDIA_TYPE, MetricKind};
use crate::Gateway;
use crate::a2a::Agents;
use crate::api::bytes_reply;
use crate::backend::{Backend, NodeAnswers};
use crate::health::ShortCache;
use crate::identity::Identity;
use crate::problem::HttpProblem;

/// The path of the page.
pub(crate) const PATH: &str = "/metrics";

/// For how long what the nodes said is used again: scrapers come every few seconds, and there may be
/// several.
const FRESH: Duration = Duration::from_secs(1);

/// How long the nodes have to answer: a scraper waits for ten seconds.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the nodes said last; `None` if they said nothing.
type NodesCache = Arc<ShortCache<Option<Arc<NodeAnswers>>>>;

/// The route of the page.
pub(crate) fn routes<B: Backend>() -> Router<Arc<Gateway<B>>> {
    let cache: NodesCache = Arc::new(ShortCache::new(FRESH));
    let page = move |State(gateway): State<Arc<Gateway<B>>>,
                     Extension(who): Extension<Identity>| {
        let cache = Arc::clone(&cache);
        async move { page(&gateway, &who, &cache).await }
    };
    Router::new().route(PATH, get(page))
}

async fn page<B: Backend>(
    gateway: &Gateway<B>,
    who: &Identity,
    cache: &NodesCache,
) -> Result<Response, HttpProblem> {
    check_reader(who)?;
    let heard = cache.get(|| hear(gateway, who)).await;
    let mut out = Exposition::default();
    gateway.counters.write(&mut out);
    write_agents(&gateway.settings.agents.now(), &mut out);
    write_backend(heard.as_deref(), &mut out);
    if let Some(heard) = &heard {
        nodes::write(&heard.nodes, &mut out);
    }
    write_build(&mut out);
    Ok(page_reply(MEDIA_TYPE, out.into_text()))
}

/// Checks that a caller may read metrics.
pub(crate) fn check_reader(who: &Identity) -> Result<(), HttpProblem> {
    match who.role {
        Role::Orchestrator | Role::Observer => Ok(()),
        _ => Err(HttpProblem::forbidden("metrics are for orchestrators and observers")),
    }
}

/// The answer with a page of metrics.
pub(crate) fn page_reply(media_type: &'static str, text: String) -> Response {
    bytes_reply(StatusCode::OK, HeaderValue::from_static(media_type), text)
}

/// Asks the nodes. Without an answer the page still has the gateway's own numbers.
async fn hear<B: Backend>(gateway: &Gateway<B>, who: &Identity) -> Option<Arc<NodeAnswers>> {
    let asked = gateway.backend.nodes(who, &gateway.settings.session);
    let heard = tokio::time::timeout(PATIENCE, asked).await.ok()?;
    heard.ok().map(Arc::new)
}

/// Gateways of a cluster that do not say the same have other files of agents. Without a file there is nothing to say.
fn write_agents(agents: &Agents, out: &mut Exposition) {
    const AGENTS: &str = "tenure_gateway_agents";
    if !agents.digest().is_empty() {
        out.family(
            AGENTS,
            MetricKind::Gauge,
            "How many agents speak A2A, by the file that says so.",
        );
        out.sample(AGENTS, &[("digest", agents.digest())], agents.names().count());
    }
}

fn write_build(out: &mut Exposition) {
    const BUILD: &str = "tenure_build_info";
    out.family(BUILD, MetricKind::Gauge, "Which version of Tenure is the gateway? The value is 1.");
    out.sample(BUILD, &[("service_version", env!("CARGO_PKG_VERSION"))], 1);
}

fn write_backend(heard: Option<&NodeAnswers>, out: &mut Exposition) {
    const UP: &str = "tenure_gateway_backend_up";
    out.family(UP, MetricKind::Gauge, "Whether the schedulers answered (1) or not (0).");
    out.sample(UP, &[], u8::from(heard.is_some()));
    const MISSING: &str = "tenure_gateway_partitions_missing";
    out.family(MISSING, MetricKind::Gauge, "For how many partitions did nobody answer?");
    if let Some(heard) = heard {
        out.sample(MISSING, &[], heard.missing_partitions.len());
    }
}
