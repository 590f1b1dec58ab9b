//! [`PoolJoin`]: joins a pool at one of several gateways, again and again under the same boot.

use std::sync::Arc;
use std::time::Duration;

use hyper::Method;
use serde::{Deserialize, Serialize};
use tenure_core::Rejection;
use tenure_core::id::{AgentId, HandlerName, PoolId};
use tenure_core::sessions::{Abilities, WorkerSessions};
use tenure_wire::bus::subject::Token;

use super::link::json;
use crate::http::gateways::GatewayLinks;
use crate::http::link::{GatewayLink, HttpRequest};
use crate::patience::Patience;

/// What a worker says when it joins. It states its capacity later, so that it has none now.
#[derive(Serialize)]
struct JoinMessage<'a> {
    boot: &'a str,
    concurrency: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    handlers: Option<&'a [HandlerName]>,
    #[serde(skip_serializing_if = "WorkerSessions::is_all")]
    sessions: &'a WorkerSessions,
}

/// What a gateway answers to it.
#[derive(Debug, Deserialize)]
pub(super) struct GivenLink {
    link: String,
    /// The name of the worker.
    pub(super) worker_id: AgentId,
    /// Number of the last delivery that was acknowledged on the link.
    pub(super) after: u64,
}

/// A gateway at which a worker has just joined.
#[derive(Debug)]
pub(super) struct JoinAnswer {
    /// The gateway, and its place among all.
    pub(super) at: (usize, Arc<GatewayLink>),
    /// The path of the link.
    pub(super) path: String,
    /// What the gateway has said.
    pub(super) given: GivenLink,
}

/// How a worker joins its pool.
#[derive(Debug)]
pub(super) struct PoolJoin {
    pub(super) gateways: GatewayLinks,
    /// The path of the pool's workers.
    root: String,
    request: HttpRequest,
    request_timeout: Duration,
}

impl PoolJoin {
    /// A worker of a pool that runs so many Steps at a time.
    ///
    /// # Errors
    /// `validation_error`: what it says cannot be written.
    pub(super) fn new(
        gateways: GatewayLinks,
        request_timeout: Duration,
        (pool, boot): (&PoolId, &Token),
        Abilities { handlers, sessions }: &Abilities,
    ) -> Result<Self, Rejection> {
        let root = format!("/v1/pools/{pool}/workers");
        let (boot, handlers) = (boot.as_str(), handlers.as_deref());
        let message = JoinMessage { boot, concurrency: 0, handlers, sessions };
        let request = json(Method::POST, root.clone(), &message)?;
        Ok(Self { gateways, root, request, request_timeout })
    }

    /// Joins at the gateway that is used now. If there is no final answer, the next one is used from then
    /// on.
    ///
    /// # Errors
    /// The gateway does not let this worker in, or there is no answer.
    pub(super) async fn once(&self) -> Result<JoinAnswer, Rejection> {
        let at = self.gateways.current();
        let given: GivenLink = match at.1.json(&self.request, self.request_timeout).await {
            Ok(given) => given,
            Err(refused) => {
                if refused.code.is_retryable() {
                    self.gateways.move_on(at.0);
                }
                return Err(refused);
            }
        };
        let path = format!("{}/{}", self.root, given.link);
        Ok(JoinAnswer { at, path, given })
    }

    /// The same, and asks for so long until a gateway answers.
    ///
    /// # Errors
    /// As [`once`](Self::once).
    pub(super) async fn within(&self, patience: Duration) -> Result<JoinAnswer, Rejection> {
        let mut patience = Patience::of(patience);
        loop {
            match self.once().await {
                Err(refused) if patience.outlasts(&refused).await => {}
                answer => return patience.conclude(answer),
            }
        }
    }
}
