//! Sends one request to an agent over a connection of its own, and reads the answer within limits.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::handshake;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, LOCATION, USER_AGENT};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value as Json;
use tenure_core::Code;
use tenure_wire::json::read_bounded;
use tokio::time::timeout;

use super::address::PeerUrl;
use super::card::PeerVersion;
use super::error::{PeerError, PeerReason};
use crate::http::HttpConnectError;
use crate::http::connect::GatewayAddress;

/// The longest answer that is read.
pub(super) const ANSWER_MAX: usize = 24 << 20;

/// The longest card that is read: a card has some kilobytes.
const CARD_MAX: usize = 256 << 10;

/// What an agent sees of this program.
const PROGRAM: &str = concat!("tenure-sdk/", env!("CARGO_PKG_VERSION"));

/// The media types of an answer that is no stream.
pub(super) const JSON: &str = "application/json, application/a2a+json";

/// The media type of a stream.
pub(super) const STREAM: &str = "text/event-stream";

/// What goes with each request.
pub(super) struct PeerAccess {
    pub(super) token: Option<String>,
    pub(super) ca: Option<PathBuf>,
}

/// A request.
#[derive(Debug, Clone)]
pub(super) struct PeerRequest {
    pub(super) method: Method,
    /// The path and the query.
    pub(super) path: String,
    pub(super) accept: &'static str,
    pub(super) version: Option<PeerVersion>,
    /// The event of a stream that came last.
    pub(super) last_event_id: Option<String>,
    pub(super) body: Option<Json>,
    /// The longest answer that is read, in bytes.
    pub(super) answer_max: usize,
}

impl PeerRequest {
    /// Asks for a card.
    pub(super) fn card(path: &str) -> Self {
        let (method, path, accept) = (Method::GET, path.to_owned(), JSON);
        let (version, last_event_id, body) = Default::default();
        Self { method, path, accept, version, last_event_id, body, answer_max: CARD_MAX }
    }
}

/// The way to a host.
#[derive(Debug)]
pub(super) struct PeerLink {
    address: GatewayAddress,
    shown: String,
}

impl PeerLink {
    pub(super) async fn new(url: &PeerUrl, access: &PeerAccess) -> Result<Self, PeerError> {
        let (token, ca) = (access.token.as_deref(), access.ca.as_ref());
        let address = GatewayAddress::of(&url.origin, token, ca).await;
        let address = address.map_err(|error| match error {
            HttpConnectError::Refused(refused) => PeerError::Unreachable(refused.message),
            HttpConnectError::Address { address, why } => PeerError::Address { address, why },
            own @ (HttpConnectError::Token
            | HttpConnectError::Certificates { .. }
            | HttpConnectError::Tls(_)) => PeerError::Access(own),
        })?;
        Ok(Self { address, shown: url.origin.clone() })
    }

    /// The answer to a request as JSON, with its status.
    pub(super) async fn json(
        &self,
        request: &PeerRequest,
        within: Duration,
    ) -> Result<(u16, Json), PeerError> {
        let whole = async {
            let response = self.send(request, within).await?;
            self.read(response, request.answer_max).await
        };
        timeout(within, whole).await.unwrap_or_else(|_| Err(self.too_late()))
    }

    /// The stream that a request opens.
    pub(super) async fn stream(
        &self,
        request: &PeerRequest,
        within: Duration,
    ) -> Result<Result<Incoming, (u16, Json)>, PeerError> {
        let opens = async {
            let response = self.send(request, within).await?;
            let media = response.headers().get(CONTENT_TYPE).and_then(|it| it.to_str().ok());
            if response.status().is_success() && media.is_some_and(|it| it.starts_with(STREAM)) {
                return Ok(Ok(response.into_body()));
            }
            Ok(Err(self.read(response, request.answer_max).await?))
        };
        timeout(within, opens).await.unwrap_or_else(|_| Err(self.too_late()))
    }

    /// Sends a request. A redirect is refused: it would lead past the list of hosts.
    async fn send(
        &self,
        request: &PeerRequest,
        within: Duration,
    ) -> Result<Response<Incoming>, PeerError> {
        let stream = self.address.open(within).await.map_err(|refused| match refused.code {
            Code::Unavailable => PeerError::Unreachable(refused.message),
            _ => PeerError::Address { address: self.shown.clone(), why: refused.message },
        })?;
        let made = handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) =
            made.map_err(|error| PeerError::Unreachable(format!("{}: {error}", self.shown)))?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to an agent ended");
            }
        });
        let response = sender.send_request(self.dressed(request)?).await;
        let response = response.map_err(|error| self.lost(error.to_string()))?;
        if response.status().is_redirection() {
            let to = response.headers().get(LOCATION).and_then(|it| it.to_str().ok());
            let to = to.unwrap_or("nowhere").chars().take(200).collect();
            return Err(PeerError::Redirect { address: self.shown.clone(), to });
        }
        Ok(response)
    }

    fn dressed(&self, request: &PeerRequest) -> Result<Request<Full<Bytes>>, PeerError> {
        let mut made = Request::builder()
            .method(request.method.clone())
            .uri(&request.path)
            .header(HOST, self.address.host())
            .header(USER_AGENT, PROGRAM)
            .header(ACCEPT, request.accept);
        if let Some(version) = request.version {
            made = made.header("A2A-Version", version.as_str());
        }
        if let Some(last) = &request.last_event_id {
            made = made.header("Last-Event-ID", last);
        }
        if let Some(bearer) = self.address.bearer() {
            made = made.header(AUTHORIZATION, bearer);
        }
        let body = request.body.as_ref().map(Json::to_string);
        if body.is_some() {
            made = made.header(CONTENT_TYPE, "application/json");
        }
        let made = made.body(Full::new(body.unwrap_or_default().into()));
        made.map_err(|error| PeerError::Address {
            address: format!("{}{}", self.shown, request.path),
            why: error.to_string(),
        })
    }

    /// The whole body of an answer. One that is no JSON counts by its status.
    async fn read(
        &self,
        response: Response<Incoming>,
        answer_max: usize,
    ) -> Result<(u16, Json), PeerError> {
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), answer_max).collect().await;
        let body = body.map_err(|error| self.lost(error.to_string()))?.to_bytes();
        match read_bounded(&body) {
            Ok(json) => Ok((status, json)),
            Err(_) if status >= 400 => Ok((status, Json::Null)),
            Err(error) => Err(self.malformed(error)),
        }
    }

    /// The refusal that a status alone says.
    pub(super) fn refused_by(&self, status: u16) -> PeerError {
        let message = format!("{} answers with status {status}", self.shown);
        PeerError::Refused { reason: PeerReason::of_status(i64::from(status)), message }
    }

    pub(super) fn malformed(&self, why: impl ToString) -> PeerError {
        PeerError::Malformed { address: self.shown.clone(), why: why.to_string() }
    }

    pub(super) fn lost(&self, why: String) -> PeerError {
        PeerError::Lost { address: self.shown.clone(), why }
    }

    fn too_late(&self) -> PeerError {
        self.lost("it comes too late".to_owned())
    }
}
