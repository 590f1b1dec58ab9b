//! What callers may ask of an agent, in the words of A2A 1.0. Every binding and version of the protocol comes
//! here with the same types, and each writes the answers in its own way.

mod cancel;
mod follow;
mod list;
mod perform;
mod push;
mod read;
mod send;
mod shared;
mod updates;

use std::sync::Arc;

use axum::http::HeaderMap;
use axum::http::request::Parts;
use serde_json::Value as Json;
use tenure_sdk::client::Client;

use super::agents::Agent;
use super::card::whole_card;
use super::dialect::A2aDialect;
use super::error::{A2aError, A2aReason};
use crate::identity::Identity;
use crate::live::{EventPlace, StreamPermit};
use crate::{Backend, Gateway};

pub(crate) use self::follow::{CommitUpdates, TaskFollower, TurnReader};
pub(crate) use self::perform::Performed;
pub(crate) use self::shared::SharedFolds;
pub(crate) use self::updates::StreamShape;

/// A caller, and the agent to which it speaks.
pub(crate) struct AgentCall<B: Backend> {
    gateway: Arc<Gateway<B>>,
    agent: Arc<Agent>,
    who: Identity,
    client: Client<B::Client>,
    /// The version of the protocol that the caller speaks.
    dialect: A2aDialect,
}

impl<B: Backend> AgentCall<B> {
    /// Lets the caller of a request in, if it may enter the session of the agent.
    ///
    /// # Errors
    /// It may not, it does not know an extension that the agent requires, or there is no way to the scheduler now.
    pub(crate) async fn open(
        gateway: Arc<Gateway<B>>,
        agent: Arc<Agent>,
        parts: &Parts,
        dialect: A2aDialect,
    ) -> Result<Self, A2aError> {
        let who = parts.extensions.get::<Identity>().cloned();
        let nobody = || A2aError::new(A2aReason::Denied, "the caller is not known");
        let who = who.ok_or_else(nobody)?;
        if !who.sessions.admits(&agent.session) {
            let message = format!("this login is not let into session {}", agent.session);
            return Err(A2aError::new(A2aReason::Denied, message));
        }
        check_extensions(&agent, &parts.headers)?;
        let client = gateway.backend.client(&who, &agent.session).await?;
        Ok(Self { gateway, agent, who, client, dialect })
    }

    /// The whole card of the agent, for callers that were let in.
    ///
    /// # Errors
    /// The agent has one card for all callers.
    pub(crate) fn extended_card(&self, parts: &Parts) -> Result<Json, A2aError> {
        if !self.agent.about.is_extended() {
            return Err(self.dialect.no_extended_card());
        }
        Ok(whole_card(&self.agent, &self.gateway.settings, parts, self.dialect))
    }

    /// The right to one more stream.
    ///
    /// # Errors
    /// As many are open as the caller, or the gateway, may have.
    pub(crate) fn permit(&self) -> Result<StreamPermit, A2aError> {
        Ok(self.gateway.live.open(&self.who)?)
    }

    /// Reads tasks as the caller.
    fn reader(&self) -> TurnReader<B::Client> {
        TurnReader::new(self.client.clone(), &self.gateway.folds, self.caller())
    }

    /// The name under which the caller acts.
    fn caller(&self) -> &str {
        self.who.principal.as_str()
    }
}

/// The headers in which a caller says which extensions it knows: that of 1.0, and that of 0.3.
const EXTENSIONS: [&str; 2] = ["a2a-extensions", "x-a2a-extensions"];

/// Refuses a caller that does not know an extension without which it cannot speak to the agent.
fn check_extensions(agent: &Agent, headers: &HeaderMap) -> Result<(), A2aError> {
    let named = EXTENSIONS.iter().flat_map(|name| headers.get_all(*name));
    let named = named.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    let known: Vec<&str> = named.map(str::trim).collect();
    let mut required = agent.about.extensions.iter().filter(|extension| extension.required);
    match required.find(|extension| !known.contains(&&*extension.uri)) {
        None => Ok(()),
        Some(missing) => {
            let message =
                format!("this agent needs callers that know the extension {}", missing.uri);
            Err(A2aError::new(A2aReason::ExtensionRequired, message).with("uri", &missing.uri))
        }
    }
}

/// The place of the last event that the reader of a stream got before it lost its connection.
///
/// # Errors
/// The header says something else.
pub(crate) fn last_event_id(parts: &Parts) -> Result<Option<EventPlace>, A2aError> {
    let Some(given) = parts.headers.get("last-event-id") else { return Ok(None) };
    let text = String::from_utf8_lossy(given.as_bytes()); // What is no text is refused as no place.
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(A2aError::from)
}
