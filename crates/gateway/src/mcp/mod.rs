//! MCP: models speak to Tenure at `/mcp`, in all dated versions of the protocol from 2025-06-18 on.
//!
//! The server is that of [`tenure_mcp`]; here it learns who calls, and in which session of Tenure. In 2026-07-28 each
//! request stands for itself, so any gateway answers it. Older versions have sessions of their own, which hold no
//! more than subscriptions: the host of one that is gone is answered 404, as the protocol says, and begins another.
//!
//! ```text
//!  POST, GET, DELETE /mcp ─► guard ─► serve ─► rmcp ─► McpServer ─► callers ─► Backend
//!                                       └─ sessions (older versions)
//! ```

mod callers;
mod calls;
mod sessions;

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::http::{
    HeaderMap, HeaderName, HeaderValue, Method, Response as HttpResponse, StatusCode,
};
use axum::response::Response;
use axum::routing::post;
use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use serde::Deserialize;
use tenure_core::Rejection;
use tenure_core::id::SessionId;
use tenure_core::status::Role;
use tenure_mcp::offers::listening_to_tasks;
use tenure_mcp::rmcp::ServerHandler;
use tenure_mcp::rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig, StreamableHttpService,
};
use tenure_mcp::{McpServer, McpSettings};

use self::callers::{HttpCallers, McpSession};
use self::calls::RecentCalls;
use self::sessions::{BoundedSessions, SessionOwner};
use crate::api::{Parameters, json_body};
use crate::guard::BodyShare;
use crate::identity::{Allowed, Identity};
use crate::live::StreamPermit;
use crate::problem::HttpProblem;
use crate::workers::memory_of;
use crate::{Backend, Gateway};

/// The address.
const PATH: &str = "/mcp";

/// The longest body of a request: as long as the longest create, with the values in it.
const BODY_MAX: usize = 4 << 20;

/// The header that names the session of Tenure.
pub(crate) const SESSION_HEADER: HeaderName = HeaderName::from_static("tenure-session");

/// The parameter of the query string that does.
const SESSION_PARAMETER: &str = "session";

/// The header that names a session of MCP, in older versions.
const MCP_SESSION_HEADER: HeaderName = HeaderName::from_static("mcp-session-id");

/// The header that names the method of a message, in the newest version.
const MCP_METHOD_HEADER: HeaderName = HeaderName::from_static("mcp-method");

/// A server of MCP over HTTP, with the sessions of older versions.
pub struct McpEndpoint<H> {
    inner: StreamableHttpService<H, BoundedSessions>,
    sessions: Arc<BoundedSessions>,
    calls: RecentCalls,
}

/// The server of a gateway.
pub(crate) type McpService = McpEndpoint<McpServer>;

impl<H> fmt::Debug for McpEndpoint<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpEndpoint").field("sessions", &self.sessions).finish_non_exhaustive()
    }
}

impl McpService {
    /// The tools of Tenure for the callers of this backend.
    pub(crate) fn of_tenure(backend: impl Backend, settings: McpSettings) -> Self {
        let settings = Arc::new(settings);
        Self::new(move || McpServer::new(HttpCallers::new(backend.clone()), Arc::clone(&settings)))
    }
}

impl<H: ServerHandler> McpEndpoint<H> {
    /// Serves what this makes: one for each request, or for each session of an older version.
    pub fn new(handler: impl Fn() -> H + Send + Sync + 'static) -> Self {
        let sessions = Arc::new(BoundedSessions::default());
        // The guard has checked hosts and origins, with the names under which this gateway is reached. An answer of
        // which nothing is told before it is there is JSON; any other is a stream.
        let config = StreamableHttpServerConfig::default()
            .disable_allowed_hosts()
            .disable_allowed_origins()
            .with_json_response(true)
            .with_max_request_body_bytes(BODY_MAX);
        let inner =
            StreamableHttpService::new(move || Ok(handler()), Arc::clone(&sessions), config);
        Self { inner, sessions, calls: RecentCalls::default() }
    }

    /// Answers a request of this caller in this session of Tenure.
    ///
    /// # Errors
    /// It names a session of MCP that somebody else has begun, or the caller has made too many calls in such sessions
    /// of late.
    pub async fn answer(
        &self,
        who: &Identity,
        session: SessionId,
        mut parts: Parts,
        text: Bytes,
    ) -> Result<Response, HttpProblem> {
        if begins_session(&text) {
            // A host whose session is gone begins another one, whatever it still calls the old one.
            parts.headers.remove(MCP_SESSION_HEADER);
        }
        let text = match listening_to_tasks(&text) {
            Some(other) => {
                name_method(&mut parts.headers, &other);
                other.into()
            }
            None => text,
        };
        let owner = SessionOwner {
            principal: who.principal.clone(),
            role: who.role,
            session: session.clone(),
        };
        if named(&parts.headers).is_some_and(|id| self.sessions.is_of_another(id, &owner)) {
            return Err(HttpProblem::not_found("there is no such session of MCP"));
        }
        if parts.method == Method::POST && named(&parts.headers).is_some() {
            self.calls.count(&who.principal, who.role)?;
        }
        parts.extensions.insert(McpSession(session));
        let is_end = parts.method == Method::DELETE;
        let mut answer = self.inner.handle(Request::from_parts(parts, Full::new(text))).await;
        if is_end && answer.status() == StatusCode::ACCEPTED {
            *answer.status_mut() = StatusCode::NO_CONTENT; // Clients take 202 for a failure.
        }
        if let Some(id) = named(answer.headers()) {
            self.sessions.belongs_to(id, owner);
        }
        Ok(answered(answer))
    }
}

/// The route.
pub(crate) fn routes<B: Backend>() -> Router<Arc<Gateway<B>>> {
    Router::new().route(PATH, post(serve::<B>).get(serve::<B>).delete(serve::<B>))
}

async fn serve<B: Backend>(
    State(gateway): State<Arc<Gateway<B>>>,
    request: Request,
) -> Result<Response, HttpProblem> {
    let (parts, body) = request.into_parts();
    let who =
        parts.extensions.get::<Identity>().cloned().ok_or_else(HttpProblem::unauthenticated)?;
    let session = session_of(&parts, &who, &gateway.settings.session)?;
    let text = match parts.method {
        Method::POST => json_body(&parts.headers, body, BODY_MAX).await?,
        _ => Bytes::new(),
    };
    if let Some(share) = parts.extensions.get::<BodyShare>() {
        share.grow(memory_of(&text))?;
    }
    // Any answer may be a stream that goes on, and what it answers may have been done when that is known.
    let permit = match parts.method {
        Method::DELETE => None,
        _ => Some(gateway.live.open(&who)?),
    };
    let answer = gateway.mcp.answer(&who, session, parts, text).await?;
    Ok(match (permit, is_stream(&answer)) {
        (Some(permit), true) => answer.map(|body| held(body, permit)),
        _ => answer,
    })
}

fn is_stream(answer: &Response) -> bool {
    let media_type = answer.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    media_type.is_some_and(|it| it.starts_with(b"text/event-stream"))
}

/// A body that holds the right to a stream until it ends.
fn held(body: Body, permit: StreamPermit) -> Body {
    Body::new(body.map_frame(move |frame| {
        let _held = &permit;
        frame
    }))
}

/// Names the method of a message that was rewritten in the header, where that has named the method before.
fn name_method(headers: &mut HeaderMap, message: &[u8]) {
    #[derive(Deserialize)]
    struct Rewritten {
        method: String,
    }
    let Ok(Rewritten { method }) = serde_json::from_slice(message) else { return };
    let before = method.split_once('/').map(|(_, before)| before.to_owned());
    let is_named = |value: &HeaderValue| value.to_str().ok() == before.as_deref();
    if headers.get_all(MCP_METHOD_HEADER).iter().count() == 1
        && headers.get(MCP_METHOD_HEADER).is_some_and(is_named)
        && let Ok(named) = HeaderValue::from_str(&method)
    {
        headers.insert(MCP_METHOD_HEADER, named);
    }
}

/// The id of the session of MCP that headers name.
fn named(headers: &HeaderMap) -> Option<&str> {
    headers.get(MCP_SESSION_HEADER)?.to_str().ok()
}

fn answered(answer: HttpResponse<BoxBody<Bytes, Infallible>>) -> Response {
    answer.map(|body| Body::new(body.map_err(|never| match never {})))
}

/// Whether a message is `initialize`.
fn begins_session(text: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Begun<'a> {
        #[serde(borrow)]
        method: std::borrow::Cow<'a, str>,
    }
    serde_json::from_slice(text).is_ok_and(|Begun { method }| method == "initialize")
}

/// The session of Tenure in which a request is answered: the one that the query string names or, without one, the
/// header; else the only one into which the caller is let, or that of the gateway.
fn session_of(parts: &Parts, who: &Identity, usual: &SessionId) -> Result<SessionId, HttpProblem> {
    if !matches!(who.role, Role::Orchestrator | Role::Observer) {
        let message = format!("a {} has no access to tasks over MCP", who.role);
        return Err(HttpProblem::forbidden(message));
    }
    let mut query = Parameters::read(parts.uri.query())?;
    let named = match query.take(SESSION_PARAMETER)? {
        Some(name) => Some(SessionId::new(name)?),
        None => match parts.headers.get(SESSION_HEADER) {
            Some(name) => {
                let name = name.to_str().unwrap_or_default();
                Some(SessionId::new(name).map_err(Rejection::from)?)
            }
            None => None,
        },
    };
    query.end()?;
    let session = match (named, &who.sessions) {
        (Some(session), _) => session,
        (None, Allowed::Only(only)) if only.len() == 1 => only[0].clone(),
        (None, _) => usual.clone(),
    };
    match who.sessions.admits(&session) {
        true => Ok(session),
        false => {
            let message = format!(
                "this login is not let into session {session}: name one with ?{SESSION_PARAMETER}=NAME or the \
                 header {SESSION_HEADER}"
            );
            Err(HttpProblem::of_http(StatusCode::FORBIDDEN, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(uri: &str, header: Option<&str>, who: &Identity) -> Result<String, u16> {
        let mut request = Request::builder().uri(uri);
        if let Some(header) = header {
            request = request.header(SESSION_HEADER, header);
        }
        let (parts, _) = request.body(Body::empty()).unwrap().into_parts();
        let found = session_of(&parts, who, &"usual".parse().unwrap());
        found.map(|session| session.to_string()).map_err(|problem| problem.status().as_u16())
    }

    #[test]
    fn a_session_is_named_or_the_only_one() {
        let all = Identity::local();
        let only = |names: &[&str]| {
            let names = names.iter().map(|name| name.parse().unwrap()).collect();
            Identity { sessions: Allowed::Only(names), ..Identity::local() }
        };
        let of = |text: &str| Ok(text.to_owned());
        assert_eq!(session("/mcp", None, &all), of("usual"));
        assert_eq!(session("/mcp?session=a", Some("b"), &all), of("a"));
        assert_eq!(session("/mcp", Some("b"), &all), of("b"));
        assert_eq!(session("/mcp", None, &only(&["a"])), of("a"));
        assert_eq!(session("/mcp?session=b", None, &only(&["a", "b"])), of("b"));
        assert_eq!(session("/mcp", None, &only(&["a", "b"])), Err(403), "which one?");
        assert_eq!(session("/mcp?session=b", None, &only(&["a"])), Err(403));
        assert_eq!(session("/mcp?session=NOT", None, &all), Err(422));
        assert_eq!(session("/mcp", Some("é"), &all), Err(422));
        assert_eq!(session("/mcp?other=1", None, &all), Err(422));
        for role in [Role::Worker, Role::SubAgent, Role::System] {
            let who = Identity { role, ..Identity::local() };
            assert_eq!(session("/mcp", None, &who), Err(403), "{role}");
        }
    }

    #[test]
    fn only_initialize_begins_a_session() {
        assert!(begins_session(br#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#));
        for text in
            ["", "{", "[]", r#"{"method":"tools/list"}"#, r#"{"params":{"method":"initialize"}}"#]
        {
            assert!(!begins_session(text.as_bytes()), "{text}");
        }
    }
}
