//! MACP: agents of others delegate a task to each other in a session, over gRPC.
//!
//! A session is a Task with one Step, and what clients see of it is the fold of the facts that the Task keeps
//! (`macp_envelope`). `tenure-macp` has all rules; here they are asked, and what they say is carried out. A gateway
//! keeps nothing of its own but copies of folds ([`cached`]) and what nobody keeps: signals. So any gateway may take
//! the next message of a session.
//!
//! ```text
//!  gRPC ─► service ──► serve ──► tenure_macp: decide ──► facts: keep under the Task's version ──► Backend
//!          streams       │                                          │ durable
//!          watch         └───────────── Ack ◄──── effects: dispatch, report, complete ◄──┘
//! ```
//!
//! A message is acknowledged when its fact is durable and its effect is carried out, which is one commit (FACT-02).
//! Only if the Task refuses the effect, because somebody steers the Task beside the session, is the fact recorded
//! alone. Then whoever reads the session next carries the effect of its last fact out: the commands have ids that
//! follow from the place of the fact, so nothing happens twice.
//!
//! Two kinds of participants are Tenure's own: pools, whose workers do a task ([`pools`]), and `tenure://steps`, which
//! has agents do Steps ([`errands`]).

mod cached;
mod caller;
#[cfg(test)]
mod double;
mod effects;
mod errands;
mod facts;
mod lists;
mod marks;
mod policies;
mod pools;
mod serve;
mod service;
mod shares;
mod start;
mod status;
mod streams;
mod tend;
mod watch;

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use tenure_core::id::SessionId;
use tenure_macp::pb::macp_runtime_service_server::MacpRuntimeServiceServer;
pub use tenure_macp::{MacpPolicies, MacpPool};

pub(crate) use self::cached::SharedSessions;
pub(crate) use self::caller::with_credentials;
pub(crate) use self::errands::run_errands;
pub use self::policies::ServedPolicies;
use self::service::MacpService;
pub(crate) use self::tend::tend;
use crate::guard::FollowingAnswer;
use crate::{Backend, Gateway};

/// The service by its name.
const SERVICE: &str = "/macp.v1.MACPRuntimeService/";

/// The longest message of a client: a payload of a MiB, and what stands around it.
const MESSAGE_BYTES_MAX: usize = 1_114_112;

/// Methods whose answer goes on for as long as its reader likes.
const FOLLOWING: [&str; 5] =
    ["StreamSession", "WatchSessions", "WatchSignals", "WatchModeRegistry", "WatchRoots"];

/// The pool of the Steps, under which a worker is let in.
pub const MACP_POOL: &str = "macp";

/// How MACP is served.
#[derive(Debug, Clone)]
pub struct MacpSettings {
    /// The session of Tenure in which the Tasks are.
    pub session: SessionId,
    /// The policies that sessions may name.
    pub policies: ServedPolicies,
    /// Whether a token is the name of its sender, as it is where people try things out.
    pub trusts_tokens: bool,
    /// The longest payload of a message, in bytes.
    pub payload_bytes_max: usize,
    /// The most sessions of one initiator that are open at a time.
    pub open_max: usize,
}

/// The most open sessions of one initiator: a quarter of the live tasks that a session of Tenure may have at nodes as
/// they are shipped, so that one initiator leaves some to the others.
pub const MACP_OPEN_MAX: usize = 25_000;

impl MacpSettings {
    /// The usual settings for the Tasks of a session.
    pub fn new(session: SessionId) -> Self {
        Self {
            session,
            policies: ServedPolicies::default(),
            trusts_tokens: false,
            payload_bytes_max: tenure_macp::PAYLOAD_BYTES_MAX,
            open_max: MACP_OPEN_MAX,
        }
    }
}

/// A pool that may take part in sessions, as `POOL` or `POOL/HANDLER` names it (MACP-19).
///
/// # Errors
/// What is wrong with the name.
pub fn read_pool(text: &str) -> Result<MacpPool, String> {
    MacpPool::parse(text)
}

/// The policies that a file says.
///
/// # Errors
/// What is wrong with it.
pub fn read_policies(text: &str) -> Result<MacpPolicies, String> {
    MacpPolicies::parse(text).map_err(|error| error.to_string())
}

/// The routes of the service, if it is served.
pub(crate) fn routes<B: Backend>(gateway: &Arc<Gateway<B>>) -> Router {
    let Some(mut settings) = gateway.settings.macp.clone() else { return Router::new() };
    settings.trusts_tokens &= !gateway.settings.asks_for_login;
    let service = MacpService::new(Arc::clone(gateway), Arc::new(settings));
    let service =
        MacpRuntimeServiceServer::new(service).max_decoding_message_size(MESSAGE_BYTES_MAX);
    Router::new().route_service(&format!("{SERVICE}{{method}}"), service).layer(from_fn(mark))
}

/// Says of an answer that it goes on.
async fn mark(request: Request, next: Next) -> Response {
    let follows = is_following(request.uri().path());
    let mut response = next.run(request).await;
    if follows {
        response.extensions_mut().insert(FollowingAnswer);
    }
    response
}

/// Whether the service itself says who may do what at this path: some methods are for everybody, and one refuses in its
/// answer.
pub(crate) fn asks_itself(path: &str) -> bool {
    path.starts_with(SERVICE)
}

fn is_following(path: &str) -> bool {
    path.strip_prefix(SERVICE).is_some_and(|method| FOLLOWING.contains(&method))
}

/// Whether the body of a request goes on for as long as its sender likes. Each of its messages is bounded.
pub(crate) fn has_endless_body(path: &str) -> bool {
    path.strip_prefix(SERVICE) == Some("StreamSession")
}

/// Milliseconds since 1970.
fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
