//! A client of one agent.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Value as Json, json};
use tenure_a2a::{
    A2aCancel, A2aGet, A2aList, A2aReply, A2aSend, A2aSubscribe, A2aTask, A2aTaskPage, A2aUpdate,
    v03,
};
use tenure_wire::json::read_bounded;
use uuid::Uuid;

use super::address::PeerUrl;
use super::ask::PeerAsk;
use super::card::{PeerBinding, PeerCard, PeerInterface, PeerVersion};
use super::error::{PeerError, PeerReason as R};
use super::exchange::{ANSWER_MAX, JSON, PeerAccess, PeerLink, PeerRequest, STREAM};
use super::follow::PeerUpdates;

/// How many tasks of a context are looked through for one, and how many messages of each.
const LOOKED_THROUGH: u32 = 100;

/// How to reach an agent.
#[derive(Clone)]
pub struct PeerSettings {
    /// The address of the agent or of its card.
    pub url: String,
    /// The token that says who the caller is. It is sent to the host of `url`, and to one of `hosts` if the card leads
    /// there.
    pub token: Option<String>,
    /// The tokens of hosts, by their names in lower case. A host that has one here is sent this one, and not `token`.
    /// A name stands for what is reached there over TLS, or on this machine; `http://NAME`, with a port or without, for
    /// what is reached without.
    pub tokens: BTreeMap<String, String>,
    /// The certificate of the authority that signed the agent's own, if the machine does not know it.
    pub ca: Option<PathBuf>,
    /// The version to speak; none: the latest one that both know.
    pub version: Option<PeerVersion>,
    /// Hosts to which the card may lead, beside its own.
    pub hosts: Vec<String>,
    /// How long one request waits for its answer.
    pub request_timeout: Duration,
}

impl PeerSettings {
    /// The defaults for this agent: no token, and 90 s for a request, as an agent may answer only when it has done
    /// what it was asked for.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            token: None,
            tokens: BTreeMap::new(),
            ca: None,
            version: None,
            hosts: Vec::new(),
            request_timeout: Duration::from_secs(90),
        }
    }

    /// The host of the agent, in lower case.
    ///
    /// # Errors
    /// The address is none.
    pub fn host(&self) -> Result<String, PeerError> {
        Ok(PeerUrl::read(&self.url)?.host)
    }

    /// What goes with each request to this address.
    fn access(&self, url: &PeerUrl) -> Result<PeerAccess, PeerError> {
        let own = url.token_keys().iter().find_map(|key| self.tokens.get(key));
        if own.is_none() && self.tokens.contains_key(&url.host) {
            let why = format!(
                "the token for {0} is sent over TLS alone: write https://, or give the token for http://{0}",
                url.host
            );
            return Err(PeerError::Address { address: url.origin.clone(), why });
        }
        let token = own.or(self.token.as_ref()).cloned();
        Ok(PeerAccess { token, ca: self.ca.clone() })
    }
}

impl fmt::Debug for PeerSettings {
    /// Names the hosts that have tokens, and shows no token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerSettings")
            .field("url", &self.url)
            .field("has_token", &self.token.is_some())
            .field("tokens", &self.tokens.keys())
            .field("ca", &self.ca)
            .field("version", &self.version)
            .field("hosts", &self.hosts)
            .field("request_timeout", &self.request_timeout)
            .finish()
    }
}

/// A client of one agent. Cheap to clone.
#[derive(Debug, Clone)]
pub struct PeerClient {
    shared: Arc<PeerShared>,
}

#[derive(Debug)]
struct PeerShared {
    card: PeerCard,
    /// The address of the interface.
    url: PeerUrl,
    link: PeerLink,
    request_timeout: Duration,
}

impl PeerClient {
    /// Reads the card of an agent, and chooses how to speak to it.
    ///
    /// # Errors
    /// There is no card, nothing in it is spoken here, or it leads to a host that is not its own and not among
    /// those in the settings.
    pub async fn connect(settings: &PeerSettings) -> Result<Self, PeerError> {
        let card = find_card(settings).await?;
        let url = PeerUrl::read(&card.interface.url)?;
        let own = PeerUrl::read(&settings.url)?.host;
        if url.host != own && !settings.hosts.iter().any(|it| it.eq_ignore_ascii_case(&url.host)) {
            return Err(PeerError::Host(url.host));
        }
        let link = PeerLink::new(&url, &settings.access(&url)?).await?;
        let request_timeout = settings.request_timeout;
        Ok(Self { shared: Arc::new(PeerShared { card, url, link, request_timeout }) })
    }

    /// The card of the agent.
    pub fn card(&self) -> &PeerCard {
        &self.shared.card
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The agent refuses it, cannot be reached, or its answer is lost.
    pub async fn send(&self, asked: &A2aSend) -> Result<A2aReply, PeerError> {
        let answer = self.ask(&PeerAsk::Send(asked)).await?;
        match self.interface().version {
            PeerVersion::V1 => self.read(answer),
            PeerVersion::V03 => v03::reply_in(answer).map_err(|error| self.malformed(error)),
        }
    }

    /// A task, with so much of its history.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn get(&self, id: &str, history: Option<u32>) -> Result<A2aTask, PeerError> {
        let asked = A2aGet { id: id.to_owned(), history_length: history };
        self.task(&PeerAsk::Get(&asked)).await
    }

    /// Asks that a task be canceled.
    ///
    /// # Errors
    /// As [`send`](Self::send); the task has ended.
    pub async fn cancel(&self, id: &str) -> Result<A2aTask, PeerError> {
        self.task(&PeerAsk::Cancel(&A2aCancel { id: id.to_owned() })).await
    }

    /// The task of a context that this message has begun, or to which it has come. Version 0.3 has no lists, so
    /// nothing is found there.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn find(&self, context: &str, message: &str) -> Result<Option<A2aTask>, PeerError> {
        if self.interface().version == PeerVersion::V03 {
            return Ok(None);
        }
        let asked = A2aList {
            context_id: Some(context.to_owned()),
            page_size: Some(LOOKED_THROUGH),
            history_length: Some(LOOKED_THROUGH),
            ..A2aList::default()
        };
        let page: A2aTaskPage = match self.ask(&PeerAsk::List(&asked)).await {
            Ok(page) => self.read(page)?,
            // An agent that keeps no lists refuses this, or fails at it.
            Err(error) if matches!(error.reason(), Some(R::Unsupported | R::Other | R::Broken)) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let has_it = |task: &A2aTask| task.history.iter().any(|said| said.message_id == message);
        Ok(page.tasks.into_iter().find(has_it))
    }

    /// Tells what happens to a task, from this event of an earlier stream on if there was one.
    ///
    /// # Errors
    /// As [`send`](Self::send); the task has ended, or the agent has no streams.
    pub async fn subscribe(&self, id: &str, last: Option<&str>) -> Result<PeerUpdates, PeerError> {
        let asked = A2aSubscribe { id: id.to_owned() };
        let mut request = self.request(&PeerAsk::Subscribe(&asked));
        request.accept = STREAM;
        request.last_event_id = last.map(str::to_owned);
        let opened = self.shared.link.stream(&request, self.shared.request_timeout).await?;
        match opened {
            Ok(body) => Ok(PeerUpdates::new(self.clone(), body)),
            Err((status, answer)) => {
                let result = self.result(status, answer);
                Err(result.err().unwrap_or_else(|| self.malformed("it is no stream")))
            }
        }
    }

    fn interface(&self) -> &PeerInterface {
        &self.card().interface
    }

    async fn task(&self, asked: &PeerAsk<'_>) -> Result<A2aTask, PeerError> {
        let answer = self.ask(asked).await?;
        match self.interface().version {
            PeerVersion::V1 => self.read(answer),
            PeerVersion::V03 => v03::task_in(answer).map_err(|error| self.malformed(error)),
        }
    }

    async fn ask(&self, asked: &PeerAsk<'_>) -> Result<Json, PeerError> {
        let request = self.request(asked);
        let (status, answer) = self.shared.link.json(&request, self.shared.request_timeout).await?;
        self.result(status, answer)
    }

    fn request(&self, asked: &PeerAsk<'_>) -> PeerRequest {
        let PeerInterface { binding, version, tenant, .. } = self.interface();
        let tenant = tenant.as_deref();
        match binding {
            PeerBinding::JsonRpc => PeerRequest {
                method: hyper::Method::POST,
                path: self.shared.url.path.clone(),
                body: Some(json!({
                    "jsonrpc": "2.0",
                    "id": Uuid::now_v7().to_string(),
                    "method": asked.method(*version),
                    "params": asked.params(*version, tenant),
                })),
                accept: JSON,
                version: Some(*version),
                last_event_id: None,
                answer_max: ANSWER_MAX,
            },
            PeerBinding::HttpJson => {
                let (method, path, body) = asked.rest(tenant);
                let path = self.shared.url.below(&path);
                let (accept, version, last_event_id) = (JSON, Some(*version), None);
                let answer_max = ANSWER_MAX;
                PeerRequest { method, path, accept, version, last_event_id, body, answer_max }
            }
        }
    }

    /// What an answer says, whichever binding it comes over.
    fn result(&self, status: u16, mut answer: Json) -> Result<Json, PeerError> {
        if let Some(error) = answer.get("error").filter(|error| !error.is_null()) {
            return Err(PeerError::refused(error));
        }
        if status >= 400 {
            return Err(self.shared.link.refused_by(status));
        }
        match self.interface().binding {
            PeerBinding::HttpJson => Ok(answer),
            PeerBinding::JsonRpc => match answer.get_mut("result") {
                Some(result) => Ok(result.take()),
                None => Err(self.malformed("an answer of JSON-RPC has a result or an error")),
            },
        }
    }

    /// What an event of a stream says.
    pub(super) fn update(&self, data: &str) -> Result<A2aUpdate, PeerError> {
        let event = read_bounded(data.as_bytes()).map_err(|error| self.malformed(error))?;
        let event = self.result(200, event)?;
        match self.interface().version {
            PeerVersion::V1 => self.read(event),
            PeerVersion::V03 => v03::update_in(event).map_err(|error| self.malformed(error)),
        }
    }

    pub(super) fn lost(&self, why: String) -> PeerError {
        self.shared.link.lost(why)
    }

    fn read<T: DeserializeOwned>(&self, answer: Json) -> Result<T, PeerError> {
        serde_json::from_value(answer).map_err(|error| self.malformed(error))
    }

    fn malformed(&self, why: impl ToString) -> PeerError {
        self.shared.link.malformed(why)
    }
}

/// The card of an agent: the first that is found at the places where it may be.
async fn find_card(settings: &PeerSettings) -> Result<PeerCard, PeerError> {
    let url = PeerUrl::read(&settings.url)?;
    let link = PeerLink::new(&url, &settings.access(&url)?).await?;
    let mut last = 0;
    for place in url.cards() {
        let found = link.json(&PeerRequest::card(&place.path), settings.request_timeout).await;
        let (status, text) = found?;
        match status {
            200..=299 => {
                let at = format!("{}{}", place.origin, place.path);
                return PeerCard::read(&at, text, settings.version);
            }
            404 | 405 | 410 => last = status,
            status => return Err(link.refused_by(status)),
        }
    }
    Err(PeerError::Card { address: settings.url.clone(), why: format!("its host answers {last}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever names the address does not choose how the token of a host travels.
    #[test]
    fn the_token_of_a_host_is_not_sent_in_the_clear() {
        let tokens = [("one", "a"), ("http://two", "b"), ("http://three:80", "c"), ("three", "d")];
        let tokens = tokens.map(|(key, token)| (key.to_owned(), token.to_owned()));
        let settings = PeerSettings { tokens: tokens.into(), ..PeerSettings::new("http://four") };
        let sent = |url: &str| settings.access(&PeerUrl::read(url).unwrap()).map(|it| it.token);
        for (url, token) in [
            ("https://one:8443/x", Some("a")),
            ("http://two:8080", Some("b")),
            ("http://three:80", Some("c")),
            ("https://three", Some("d")),
            ("http://four", None),
        ] {
            assert_eq!(sent(url).ok(), Some(token.map(str::to_owned)), "{url}");
        }
        for url in ["http://one", "http://three:81"] {
            let refused = sent(url).unwrap_err().to_string();
            assert!(refused.contains("TLS alone") && refused.contains("http://"), "{refused}");
        }
    }
}
