//! A2A: programs of others speak to agents, whose work is done by workers of Tenure.
//!
//! A message that begins something becomes a Task, and the log of that Task tells what A2A shows: a gateway
//! keeps nothing between two requests, so any of them answers, and one that dies costs its callers a new
//! connection (A2A-01).
//!
//! ```text
//!  JSON-RPC 1.0, 0.3 ─► rpc ──┐  types   ┌─► map::input ─► create, reopen, late input ─► Backend
//!  HTTP+JSON 1.0, 0.3 ► rest ─┴─► ops ───┤
//!                   (dialect, v03)       └◄─ map::fold ◄── commits of the log ◄───────── Backend
//! ```
//!
//! What agents there are is said by a file ([`agents`]). The Tasks of an agent are in one session, which is
//! what the rights of callers name; a label has the context of each Task. Couriers ([`push`]) send updates to the
//! addresses at which callers want to be called back. With the feature `grpc` agents speak gRPC, too, and that binding
//! comes to `ops` as `rpc` does.

mod agents;
mod card;
mod dialect;
mod error;
#[cfg(feature = "grpc")]
mod grpc;
mod map;
mod ops;
mod push;
mod rest;
mod rpc;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::request::Parts;
use axum::routing::{get, post};
use bytes::Bytes;
use tenure_a2a as wire;

pub use self::agents::{AGENTS_MAX, Agent, AgentAnswers, Agents, ServedAgents};
pub use self::card::card;
pub(crate) use self::card::is_card;
use self::dialect::A2aDialect;
#[cfg(feature = "grpc")]
pub(crate) use self::grpc::{routes as grpc_routes, with_refusals as with_grpc_refusals};
pub(crate) use self::ops::SharedFolds;
pub(crate) use self::push::{COURIERS_MAX, run_couriers};
use crate::api::json_body;
use crate::guard::BodyShare;
use crate::problem::HttpProblem;
use crate::workers::memory_of;
use crate::{Backend, Gateway};

/// The address of an agent in 1.0, below that of the gateway.
const BASE: &str = "/a2a/{agent}";

/// The address of an agent in 0.3.
const BASE_V03: &str = "/a2a/{agent}/v0.3";

/// The longest body of a request: a value of the longest that a Task may have, in base64.
const BODY_MAX: usize = 24 << 20;

/// The routes of agents.
pub(crate) fn routes<B: Backend>() -> Router<Arc<Gateway<B>>> {
    Router::new()
        .route(card::ROOT_PATH, get(card::of_only_agent))
        .route(BASE, post(rpc::v1))
        .route(&format!("{BASE}/"), post(rpc::v1))
        .route(BASE_V03, post(rpc::v03))
        .route(&format!("{BASE_V03}/"), post(rpc::v03))
        .merge(card::routes(BASE, A2aDialect::V1))
        .merge(card::routes(BASE_V03, A2aDialect::V03))
        .merge(rest::routes())
}

/// The agent of a path.
fn agent_of<B: Backend>(gateway: &Gateway<B>, name: &str) -> Result<Arc<Agent>, HttpProblem> {
    let known = gateway.settings.agents.now().find(name).cloned();
    known.ok_or_else(|| {
        let short: String = name.chars().take(80).collect();
        HttpProblem::not_found(format!("there is no agent {short:?}"))
    })
}

/// The text of a body, with memory for what it becomes once it is read.
///
/// # Errors
/// It is no JSON by its media type, too long, or the bodies of other requests take all the memory that there is.
async fn body_text(parts: &Parts, body: Body) -> Result<Bytes, HttpProblem> {
    let text = json_body(&parts.headers, body, BODY_MAX).await?;
    if let Some(share) = parts.extensions.get::<BodyShare>() {
        share.grow(memory_of(&text))?;
    }
    Ok(text)
}
