//! What callers may ask of an agent, in the words of A2A 1.0. Every binding and version of the protocol comes
//! here with the same types, and each writes the answers in its own way.

mod cancel;
mod follow;
mod list;
mod push;
mod read;
mod send;
mod updates;

use std::sync::Arc;

use axum::http::request::Parts;
use tenure_sdk::client::Client;

use super::agents::Agent;
use super::error::{A2aError, A2aReason};
use crate::identity::Identity;
use crate::live::{EventPlace, StreamPermit};
use crate::{Backend, Gateway};

pub(crate) use self::follow::{CommitUpdates, TaskFollower};
pub(crate) use self::updates::StreamShape;

/// A caller, and the agent to which it speaks.
pub(crate) struct AgentCall<B: Backend> {
    gateway: Arc<Gateway<B>>,
    agent: Arc<Agent>,
    who: Identity,
    client: Client<B::Client>,
}

impl<B: Backend> AgentCall<B> {
    /// Lets the caller of a request in, if it may enter the session of the agent.
    ///
    /// # Errors
    /// It may not, or there is no way to the scheduler now.
    pub(crate) async fn open(
        gateway: Arc<Gateway<B>>,
        agent: Arc<Agent>,
        parts: &Parts,
    ) -> Result<Self, A2aError> {
        let who = parts.extensions.get::<Identity>().cloned();
        let nobody = || A2aError::new(A2aReason::Denied, "the caller is not known");
        let who = who.ok_or_else(nobody)?;
        if !who.sessions.admits(&agent.session) {
            let message = format!("this login is not let into session {}", agent.session);
            return Err(A2aError::new(A2aReason::Denied, message));
        }
        let client = gateway.backend.client(&who, &agent.session).await?;
        Ok(Self { gateway, agent, who, client })
    }

    /// The right to one more stream.
    ///
    /// # Errors
    /// As many are open as the caller, or the gateway, may have.
    pub(crate) fn permit(&self) -> Result<StreamPermit, A2aError> {
        Ok(self.gateway.live.open(&self.who)?)
    }

    /// The name under which the caller acts.
    fn caller(&self) -> &str {
        self.who.principal.as_str()
    }
}

/// The place of the last event that the reader of a stream got before it lost its connection.
///
/// # Errors
/// The header says something else.
pub(crate) fn last_event_id(parts: &Parts) -> Result<Option<EventPlace>, A2aError> {
    let Some(given) = parts.headers.get("last-event-id") else { return Ok(None) };
    let text = given.to_str().unwrap_or_default();
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(A2aError::from)
}
