//! A server at an address: one POST for each request, which is answered by JSON or by a stream of events.
//!
//! In the newest version a request that is given up is canceled by the end of its connection. In the older ones the
//! server is told of it, and a stream that breaks off is opened again behind its last event.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::handshake;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, LOCATION, USER_AGENT};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::{Value as Json, json};
use tenure_core::Code;
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::error::ToolError;
use super::message::{ProgressSender, ServerMessage, ToolRequest, ToolVersion, notification};
use super::settings::{ToolToken, check_url};
use crate::http::HttpConnectError;
use crate::http::connect::GatewayAddress;
use crate::http::sse::SseReader;

/// What a server sees of this program.
const PROGRAM: &str = concat!("tenure-sdk/", env!("CARGO_PKG_VERSION"));

/// The media types of an answer.
const BOTH: &str = "application/json, text/event-stream";

/// The media type of a stream.
const STREAM: &str = "text/event-stream";

/// The header that names the session in older versions.
const SESSION: &str = "Mcp-Session-Id";

/// How often in a row a stream that says nothing is opened again, and the pause before that.
const REOPENED_MAX: u32 = 10;
const REOPEN_AFTER: Duration = Duration::from_secs(1);

/// How long a message that nobody waits for may take.
const ASIDE_MAX: Duration = Duration::from_secs(5);

/// The way to a server at an address.
#[derive(Debug)]
pub(super) struct HttpToolLink {
    server: String,
    address: GatewayAddress,
    path: String,
    answer_bytes_max: usize,
    connect_max: Duration,
    /// The session, if the server has one.
    session: Mutex<Option<HeaderValue>>,
    last: Mutex<u64>,
}

/// What a request to the server carries beside its body.
struct HttpMessage<'a> {
    method: Method,
    version: Option<ToolVersion>,
    /// The method and the name of the request, in the newest version.
    names: Option<&'a ToolRequest>,
    last_event: Option<&'a str>,
    body: Option<Json>,
}

impl HttpToolLink {
    /// Reads the token and the certificates.
    pub(super) async fn new(
        server: &str,
        (url, token, ca): (&str, Option<&ToolToken>, Option<&PathBuf>),
        (answer_bytes_max, connect_max): (usize, Duration),
    ) -> Result<Self, ToolError> {
        let access = |why: String| ToolError::Access { server: server.to_owned(), why };
        let (origin, path) = check_url(url).map_err(access)?;
        let token = match token {
            Some(token) => Some(read_token(token).await.map_err(access)?),
            None => None,
        };
        let address = GatewayAddress::of(&origin, token.as_deref(), ca).await;
        let address = address.map_err(|error| match error {
            HttpConnectError::Refused(refused) => {
                ToolError::Unreachable { server: server.to_owned(), why: refused.message }
            }
            own => access(own.to_string()),
        })?;
        let (session, last) = (Mutex::default(), Mutex::new(0));
        let server = server.to_owned();
        Ok(Self { server, address, path, answer_bytes_max, connect_max, session, last })
    }

    /// Asks for something. Whoever drops the future gives the request up.
    pub(super) async fn ask(
        self: &Arc<Self>,
        version: ToolVersion,
        request: &ToolRequest,
        progress: Option<&ProgressSender>,
    ) -> Result<Json, ToolError> {
        let id = {
            let mut last = self.last.lock();
            *last += 1;
            *last
        };
        let gives_up = GivesUp { link: Arc::clone(self), version, id, is_answered: false };
        let message = HttpMessage {
            method: Method::POST,
            version: Some(version).filter(|_| request.method != "initialize"),
            names: Some(request).filter(|_| version == ToolVersion::Newest),
            last_event: None,
            body: Some(request.message(version, id, progress.is_some())),
        };
        let (response, connection) = match self.send(&message).await {
            Ok(sent) => sent,
            Err(error) => {
                gives_up.end();
                return Err(error);
            }
        };
        if request.method == "initialize" {
            *self.session.lock() = response.headers().get(SESSION).cloned();
        }
        let answered = match is_stream(&response) {
            true => self.read_stream(version, id, response, progress).await,
            false => self.read_json(id, response).await,
        };
        drop(connection);
        gives_up.end();
        answered
    }

    /// Says something that has no answer.
    pub(super) async fn tell(
        &self,
        version: ToolVersion,
        method: &str,
        params: Json,
    ) -> Result<(), ToolError> {
        self.post_aside(version, notification(method, params)).await
    }

    async fn post_aside(&self, version: ToolVersion, body: Json) -> Result<(), ToolError> {
        let (method, names, last_event) = (Method::POST, None, None);
        let message =
            HttpMessage { method, version: Some(version), names, last_event, body: Some(body) };
        let sent = timeout(ASIDE_MAX, self.send(&message)).await;
        let (response, _connection) = sent.map_err(|_| self.lost("it takes no message"))??;
        match response.status().as_u16() {
            200..=299 => Ok(()),
            status => Err(self.refused_by(status)),
        }
    }

    /// Ends the session, as a courtesy.
    pub(super) async fn end_session(&self, version: ToolVersion) {
        if self.session.lock().is_none() {
            return;
        }
        let (method, names, last_event) = (Method::DELETE, None, None);
        let message = HttpMessage { method, version: Some(version), names, last_event, body: None };
        let _ = timeout(ASIDE_MAX, self.send(&message)).await; // It ends by itself otherwise.
    }

    /// Whether the server has a session for this program.
    pub(super) fn has_session(&self) -> bool {
        self.session.lock().is_some()
    }

    /// Reads an answer that is one message.
    async fn read_json(&self, id: u64, response: Response<Incoming>) -> Result<Json, ToolError> {
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), self.answer_bytes_max).collect().await;
        let body = body.map_err(|error| match error.downcast_ref::<LengthLimitError>() {
            Some(_) => self.too_long(),
            None => self.lost(error.to_string()),
        })?;
        // Whatever comes with it.
        if status == 404 && self.has_session() {
            return Err(self.session_gone());
        }
        if status == 401 {
            return Err(self.refused_by(status));
        }
        match ServerMessage::read(&body.to_bytes()) {
            Ok(ServerMessage::Answer { id: of, result }) if of == json!(id) => result,
            _ if status == 403 => Err(self.refused_by(status)),
            // Some servers say so of a session that they have forgotten.
            Ok(ServerMessage::Answer { id: Json::Null, .. })
                if status == 400 && self.has_session() =>
            {
                Err(self.session_gone())
            }
            // A server that cannot read a request does not know its number.
            Ok(ServerMessage::Answer { id: Json::Null, result: Err(error) }) => Err(error),
            _ if status >= 400 => Err(self.refused_by(status)),
            Ok(ServerMessage::Answer { id: of, .. }) => Err(self.of_another(&of, id)),
            Ok(_) => Err(self.malformed("it answers a request with something that is no answer")),
            Err(why) => Err(self.malformed(why)),
        }
    }

    /// Reads a stream up to the answer.
    async fn read_stream(
        &self,
        version: ToolVersion,
        id: u64,
        response: Response<Incoming>,
        progress: Option<&ProgressSender>,
    ) -> Result<Json, ToolError> {
        let mut stream = EventStream { body: response.into_body(), last: None, _connection: None };
        let mut in_vain = 0;
        while in_vain <= REOPENED_MAX {
            let before = stream.last.clone();
            match self.read_events(version, id, &mut stream, progress).await? {
                Some(answer) => return answer,
                None => {
                    in_vain = if stream.last == before { in_vain + 1 } else { 0 };
                    stream = self.reopened(version, stream).await?;
                }
            }
        }
        Err(self.lost("its stream breaks off again and again"))
    }

    /// Reads events up to the answer; none: the stream has ended before that.
    async fn read_events(
        &self,
        version: ToolVersion,
        id: u64,
        stream: &mut EventStream,
        progress: Option<&ProgressSender>,
    ) -> Result<Option<Result<Json, ToolError>>, ToolError> {
        let mut reader = SseReader::of_length(self.answer_bytes_max);
        while let Some(frame) = stream.body.frame().await {
            let Ok(frame) = frame else { break };
            let Ok(bytes) = frame.into_data() else { continue };
            for event in reader.read(&bytes).map_err(|_| self.too_long())? {
                stream.last = event.id.or(stream.last.take());
                if event.data.is_empty() {
                    continue;
                }
                match ServerMessage::read(event.data.as_bytes())
                    .map_err(|why| self.malformed(why))?
                {
                    ServerMessage::Answer { id: of, result } if of == json!(id) => {
                        return Ok(Some(result));
                    }
                    ServerMessage::Answer { id: of, .. } => return Err(self.of_another(&of, id)),
                    ServerMessage::Progress { id: of, progress: now } => {
                        if let Some(to) = progress.filter(|_| of == id) {
                            to.send_replace(Some(now));
                        }
                    }
                    ServerMessage::Asks(reply) => {
                        self.post_aside(version, reply)
                            .await
                            .map_err(|error| self.lost_by(error))?;
                    }
                    ServerMessage::Other => {}
                }
            }
        }
        Ok(None)
    }

    /// The same stream behind its last event, if the server has such streams.
    async fn reopened(
        &self,
        version: ToolVersion,
        stream: EventStream,
    ) -> Result<EventStream, ToolError> {
        let last = stream.last.filter(|_| version != ToolVersion::Newest);
        let Some(last) = last else { return Err(self.lost("its stream ends before the answer")) };
        sleep(REOPEN_AFTER).await;
        let message = HttpMessage {
            method: Method::GET,
            version: Some(version),
            names: None,
            last_event: Some(&last),
            body: None,
        };
        let (response, connection) =
            self.send(&message).await.map_err(|error| self.lost_by(error))?;
        if !is_stream(&response) {
            return Err(self.lost("its stream ends before the answer, and does not go on"));
        }
        Ok(EventStream {
            body: response.into_body(),
            last: Some(last),
            _connection: Some(connection),
        })
    }

    /// Sends a request over a connection of its own, which ends with the handle. A redirect is refused.
    async fn send(
        &self,
        message: &HttpMessage<'_>,
    ) -> Result<(Response<Incoming>, AbortOnDropHandle<()>), ToolError> {
        let unreachable = |why| ToolError::Unreachable { server: self.server.clone(), why };
        let stream = self.address.open(self.connect_max).await;
        let stream = stream.map_err(|refused| match refused.code {
            Code::Unavailable => unreachable(refused.message),
            _ => self.access(refused.message),
        })?;
        let made = handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = made.map_err(|error| unreachable(error.to_string()))?;
        let connection = AbortOnDropHandle::new(tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to a server of tools ended");
            }
        }));
        let response = sender.send_request(self.dressed(message)?).await;
        let response = response.map_err(|error| self.lost(error.to_string()))?;
        if response.status().is_redirection() {
            let to = response.headers().get(LOCATION).and_then(|it| it.to_str().ok());
            let to: String = to.unwrap_or("nowhere").chars().take(200).collect();
            return Err(self.access(format!("it sends its callers to {to}, which is not followed")));
        }
        Ok((response, connection))
    }

    fn dressed(&self, message: &HttpMessage<'_>) -> Result<Request<Full<Bytes>>, ToolError> {
        let mut made = Request::builder()
            .method(message.method.clone())
            .uri(&self.path)
            .header(HOST, self.address.host())
            .header(USER_AGENT, PROGRAM)
            .header(ACCEPT, if message.method == Method::GET { STREAM } else { BOTH });
        if let Some(version) = message.version {
            made = made.header("MCP-Protocol-Version", version.name());
        }
        if let Some(request) = message.names {
            made = made.header("Mcp-Method", request.method);
            if let Some(name) = request.name() {
                made = made.header("Mcp-Name", name);
            }
        }
        if let Some(session) = self.session.lock().as_ref() {
            made = made.header(SESSION, session);
        }
        if let Some(last) = message.last_event {
            made = made.header("Last-Event-ID", last);
        }
        if let Some(bearer) = self.address.bearer() {
            made = made.header(AUTHORIZATION, bearer);
        }
        let body = message.body.as_ref().map(Json::to_string);
        if body.is_some() {
            made = made.header(CONTENT_TYPE, "application/json");
        }
        let made = made.body(Full::new(body.unwrap_or_default().into()));
        made.map_err(|error| self.access(format!("the request cannot be sent: {error}")))
    }

    fn access(&self, why: String) -> ToolError {
        ToolError::Access { server: self.server.clone(), why }
    }

    fn lost(&self, why: impl Into<String>) -> ToolError {
        ToolError::Lost { server: self.server.clone(), why: why.into() }
    }

    /// The request was sent before: what goes wrong later is no reason to send it again.
    fn lost_by(&self, error: ToolError) -> ToolError {
        self.lost(error.to_string())
    }

    fn malformed(&self, why: impl Into<String>) -> ToolError {
        ToolError::Malformed { server: self.server.clone(), why: why.into() }
    }

    fn of_another(&self, of: &Json, id: u64) -> ToolError {
        self.malformed(format!("it answers the request {of} instead of {id}"))
    }

    fn too_long(&self) -> ToolError {
        ToolError::TooLong { server: self.server.clone(), bytes_max: self.answer_bytes_max }
    }

    fn session_gone(&self) -> ToolError {
        ToolError::SessionGone { server: self.server.clone() }
    }

    fn refused_by(&self, status: u16) -> ToolError {
        ToolError::Status { server: self.server.clone(), status }
    }
}

/// Tells a server of an older version that nobody waits for an answer any more, when this is dropped before that came.
struct GivesUp {
    link: Arc<HttpToolLink>,
    version: ToolVersion,
    id: u64,
    is_answered: bool,
}

impl GivesUp {
    fn end(mut self) {
        self.is_answered = true;
    }
}

impl Drop for GivesUp {
    fn drop(&mut self) {
        // Servers of the newest version see it by the end of the connection.
        if self.is_answered || self.version == ToolVersion::Newest {
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return };
        let (link, version) = (Arc::clone(&self.link), self.version);
        let params = json!({"requestId": self.id, "reason": "nobody waits for it any more"});
        runtime.spawn(async move {
            let told = link.tell(version, "notifications/cancelled", params).await;
            if let Err(error) = told {
                tracing::debug!(%error, "a server of tools was not told of a cancellation");
            }
        });
    }
}

/// A stream that is read.
struct EventStream {
    body: Incoming,
    /// Its last event.
    last: Option<String>,
    /// The connection, if it is another one than that of the request.
    _connection: Option<AbortOnDropHandle<()>>,
}

fn is_stream(response: &Response<Incoming>) -> bool {
    let media = response.headers().get(CONTENT_TYPE).and_then(|it| it.to_str().ok());
    response.status().is_success() && media.is_some_and(|it| it.starts_with(STREAM))
}

/// The token, without what stands around it.
async fn read_token(token: &ToolToken) -> Result<String, String> {
    let text = match token {
        ToolToken::File(path) => tokio::fs::read_to_string(path)
            .await
            .map_err(|error| format!("token_file {} cannot be read: {error}", path.display()))?,
        ToolToken::Env(name) => std::env::var(name)
            .map_err(|_| format!("token_env names {name}, which is not set, or is no text"))?,
        ToolToken::Secret(name, places) => {
            places.read(name).await.map_err(|error| format!("token_secret: {error}"))?
        }
    };
    match text.trim() {
        "" => Err("the token is empty".to_owned()),
        text => Ok(text.to_owned()),
    }
}
