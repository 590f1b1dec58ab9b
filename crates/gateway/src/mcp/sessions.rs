//! The sessions of older versions of MCP: so many at most, each for the one who began it.
//!
//! A session holds subscriptions and nothing else. If there are too many, the caller who has the most loses the one
//! that was used longest ago. The host of that session gets 404, and begins another, as it does after a restart of the
//! gateway. So a caller that begins sessions without end loses its own, and not those of others.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::{Duration, Instant};

use futures::Stream;
use parking_lot::Mutex;
use tenure_core::id::SessionId;
use tenure_core::status::Role;
use tenure_mcp::rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use tenure_mcp::rmcp::transport::streamable_http_server::SessionManager;
use tenure_mcp::rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use tenure_mcp::rmcp::transport::streamable_http_server::session::{
    ServerSseMessage, SessionId as McpSessionId,
};
use tenure_wire::bus::subject::Token;

use super::calls::ANSWERS_KEPT;

/// The most sessions: each takes some tens of kilobytes.
const SESSIONS_MAX: usize = 1_000;

/// How long a session stays without a request. Many hosts say nothing between two questions of their user, and the
/// number of sessions is bounded.
const KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// Who has begun a session. Nobody else can use it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SessionOwner {
    /// The name of the caller.
    pub(super) principal: Token,
    /// Its role.
    pub(super) role: Role,
    /// The session of Tenure.
    pub(super) session: SessionId,
}

/// What is known of a session.
#[derive(Debug)]
struct OpenSession {
    /// Not known until its first answer.
    owner: Option<SessionOwner>,
    used: Instant,
}

/// All sessions of a gateway.
pub(super) struct BoundedSessions {
    inner: LocalSessionManager,
    open: Mutex<HashMap<String, OpenSession>>,
}

impl Default for BoundedSessions {
    fn default() -> Self {
        let mut inner = LocalSessionManager::default();
        inner.session_config.keep_alive = Some(KEPT);
        inner.session_config.completed_cache_ttl = ANSWERS_KEPT;
        Self { inner, open: Mutex::default() }
    }
}

impl fmt::Debug for BoundedSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoundedSessions")
            .field("open", &self.open.lock().len())
            .finish_non_exhaustive()
    }
}

impl BoundedSessions {
    /// Whether a session is open, and somebody else has begun it.
    pub(super) fn is_of_another(&self, id: &str, who: &SessionOwner) -> bool {
        let open = self.open.lock();
        open.get(id).is_some_and(|it| it.owner.as_ref().is_some_and(|owner| owner != who))
    }

    /// Notes who has begun a session.
    pub(super) fn belongs_to(&self, id: &str, who: SessionOwner) {
        if let Some(session) = self.open.lock().get_mut(id) {
            session.owner.get_or_insert(who);
        }
    }

    fn used(&self, id: &McpSessionId) {
        if let Some(session) = self.open.lock().get_mut(id.as_ref()) {
            session.used = Instant::now();
        }
    }

    /// The session to end so that another one can begin, if there are too many: the oldest one of the caller who has
    /// the most. Those that nobody has yet count as those of one caller.
    async fn surplus(&self) -> Option<McpSessionId> {
        if self.open.lock().len() < SESSIONS_MAX {
            return None;
        }
        let live: Vec<McpSessionId> = self.inner.sessions.read().await.keys().cloned().collect();
        let live: HashSet<&str> = live.iter().map(|id| &**id).collect();
        let mut open = self.open.lock();
        open.retain(|id, _| live.contains(id.as_str())); // Some have ended by themselves.
        if open.len() < SESSIONS_MAX {
            return None;
        }
        let mut of: HashMap<_, (usize, Instant, &String)> = HashMap::new();
        for (id, session) in &*open {
            let who = session.owner.as_ref().map(|owner| (&owner.principal, owner.role));
            let (count, used, oldest) = of.entry(who).or_insert((0, session.used, id));
            *count += 1;
            if session.used < *used {
                (*used, *oldest) = (session.used, id);
            }
        }
        let most = of.into_values().max_by_key(|(count, used, _)| (*count, Reverse(*used)))?;
        let ends = most.2.clone();
        open.remove(&ends);
        Some(ends.into())
    }
}

type ManagerError = <LocalSessionManager as SessionManager>::Error;

impl SessionManager for BoundedSessions {
    type Error = ManagerError;
    type Transport = <LocalSessionManager as SessionManager>::Transport;

    async fn create_session(&self) -> Result<(McpSessionId, Self::Transport), ManagerError> {
        if let Some(oldest) = self.surplus().await {
            self.inner.close_session(&oldest).await?;
        }
        let (id, transport) = self.inner.create_session().await?;
        let session = OpenSession { owner: None, used: Instant::now() };
        self.open.lock().insert(id.to_string(), session);
        Ok((id, transport))
    }

    async fn initialize_session(
        &self,
        id: &McpSessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, ManagerError> {
        self.inner.initialize_session(id, message).await
    }

    async fn has_session(&self, id: &McpSessionId) -> Result<bool, ManagerError> {
        self.inner.has_session(id).await
    }

    async fn close_session(&self, id: &McpSessionId) -> Result<(), ManagerError> {
        self.open.lock().remove(id.as_ref());
        self.inner.close_session(id).await
    }

    async fn create_stream(
        &self,
        id: &McpSessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, ManagerError> {
        self.used(id);
        self.inner.create_stream(id, message).await
    }

    async fn accept_message(
        &self,
        id: &McpSessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<(), ManagerError> {
        self.used(id);
        self.inner.accept_message(id, message).await
    }

    async fn create_standalone_stream(
        &self,
        id: &McpSessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, ManagerError> {
        self.used(id);
        self.inner.create_standalone_stream(id).await
    }

    async fn resume(
        &self,
        id: &McpSessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, ManagerError> {
        self.used(id);
        self.inner.resume(id, last_event_id).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(principal: &str) -> SessionOwner {
        let (principal, session) = (Token::new(principal).unwrap(), "main".parse().unwrap());
        SessionOwner { principal, role: Role::Orchestrator, session }
    }

    #[tokio::test]
    async fn a_session_is_for_the_one_who_began_it() {
        let sessions = BoundedSessions::default();
        let (id, _transport) = sessions.create_session().await.unwrap();
        assert!(!sessions.is_of_another(&id, &owner("ann")), "nobody has it yet");
        sessions.belongs_to(&id, owner("ann"));
        sessions.belongs_to(&id, owner("bob"));
        assert!(!sessions.is_of_another(&id, &owner("ann")));
        assert!(sessions.is_of_another(&id, &owner("bob")));
        assert!(
            !sessions.is_of_another("unknown", &owner("bob")),
            "an unknown one is refused elsewhere"
        );
        sessions.close_session(&id).await.unwrap();
        assert!(!sessions.has_session(&id).await.unwrap());
    }

    #[tokio::test]
    async fn one_session_too_many_ends_the_one_that_was_used_longest_ago() {
        let sessions = BoundedSessions::default();
        let mut all = Vec::new();
        for _ in 0..SESSIONS_MAX {
            all.push(sessions.create_session().await.unwrap());
        }
        sessions.used(&all[0].0);
        all.push(sessions.create_session().await.unwrap());
        let has = async |at: usize| sessions.has_session(&all[at].0).await.unwrap();
        assert_eq!((has(0).await, has(1).await, has(2).await), (true, false, true));
        assert_eq!(sessions.open.lock().len(), SESSIONS_MAX);
        let kept = sessions.inner.session_config.keep_alive;
        assert!(kept >= Some(KEPT), "none ends earlier because its host is silent: {kept:?}");
    }

    /// Mechanisms 15: a caller that begins sessions without end loses its own, however old those of others are.
    #[tokio::test]
    async fn who_has_the_most_sessions_loses_one() {
        let sessions = BoundedSessions::default();
        let begin = async |who: &str| {
            let begun = sessions.create_session().await.unwrap();
            sessions.belongs_to(&begun.0, owner(who));
            begun
        };
        let of_ann = begin("ann").await;
        let mut of_eve = Vec::new();
        for _ in 0..SESSIONS_MAX + 10 {
            of_eve.push(begin("eve").await);
        }
        assert!(sessions.has_session(&of_ann.0).await.unwrap());
        assert!(!sessions.has_session(&of_eve[10].0).await.unwrap());
        assert!(sessions.has_session(&of_eve[11].0).await.unwrap());
    }
}
