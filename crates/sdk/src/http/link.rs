//! Sends requests to a gateway over connections that it keeps open, and reads what comes back.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, RETRY_AFTER, USER_AGENT,
};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json};
use tenure_core::{Code, Rejection};
use tenure_wire::bus::call::{CALL_MAX, CallAnswer};
use tenure_wire::bus::decode_within;
use tenure_wire::bus::fault::why;
use tokio::time::timeout;

use super::connect::GatewayAddress;
use crate::patience::{ambiguous, unavailable};

/// How long an unused connection is kept: less than a gateway or a proxy keeps it.
const IDLE_MAX: Duration = Duration::from_secs(20);

/// The longest refusal that is read.
const REFUSAL_MAX: usize = 64 << 10;

/// Why an answer is lost that did not come in time.
const TOO_LATE: &str = "it comes too late";

/// The detail of a refusal that says when to come back.
const RETRY_AFTER_MS: &str = "retry_after_ms";

/// What the gateway sees of this program.
const PROGRAM: &str = concat!("tenure-sdk/", env!("CARGO_PKG_VERSION"));

type Sender = SendRequest<Full<Bytes>>;

/// The media type of JSON.
pub(super) const JSON: &str = "application/json";

/// The media type of bytes as they are.
pub(super) const BYTES: &str = "application/octet-stream";

/// A request, as far as requests differ.
#[derive(Debug, Clone)]
pub(super) struct HttpRequest {
    pub(super) method: Method,
    /// The path and the query.
    pub(super) path: String,
    /// The wanted media type.
    pub(super) accept: &'static str,
    /// The media type of the body.
    pub(super) sends: &'static str,
    /// The body; empty: none.
    pub(super) body: Bytes,
}

impl HttpRequest {
    /// A request without a body.
    pub(super) fn bare(method: Method, path: String, accept: &'static str) -> Self {
        Self { method, path, accept, sends: accept, body: Bytes::new() }
    }
}

/// The way to one gateway: its address and its open connections.
#[derive(Debug)]
pub(super) struct GatewayLink {
    address: GatewayAddress,
    /// Connections without a request, the one that was used last at the end.
    idle: Mutex<Vec<(Sender, Instant)>>,
}

impl GatewayLink {
    pub(super) fn new(address: GatewayAddress) -> Self {
        Self { address, idle: Mutex::default() }
    }

    pub(super) fn address(&self) -> &GatewayAddress {
        &self.address
    }

    /// Sends a request of the bus once, and reads its answer.
    pub(super) async fn call<T: DeserializeOwned>(
        &self,
        request: &HttpRequest,
        within: Duration,
    ) -> Result<(T, Vec<u32>), Rejection> {
        let bytes = self.bytes(request, within).await?;
        let answer = decode_within::<CallAnswer<T>>(CALL_MAX, &bytes);
        // An answer that cannot be decoded does not say whether the request took effect.
        answer.map_err(|bad| self.lost(&bad.to_string()))?.into_result()
    }

    /// Sends a request for JSON once, and reads its answer.
    pub(super) async fn json<T: DeserializeOwned>(
        &self,
        request: &HttpRequest,
        within: Duration,
    ) -> Result<T, Rejection> {
        let bytes = self.bytes(request, within).await?;
        serde_json::from_slice(&bytes).map_err(|bad| self.lost(&bad.to_string()))
    }

    /// Sends a request once, and reads its answer, whatever it is.
    pub(super) async fn bytes(
        &self,
        request: &HttpRequest,
        within: Duration,
    ) -> Result<Bytes, Rejection> {
        let bytes = timeout(within, self.answer(request, within)).await;
        bytes.unwrap_or_else(|_| Err(self.lost(TOO_LATE)))
    }

    /// Sends a request on a connection of its own, which is closed with the body of the answer.
    pub(super) async fn open(
        &self,
        request: &HttpRequest,
        within: Duration,
    ) -> Result<Incoming, Rejection> {
        let begun = async {
            let mut sender = self.connect(within).await?;
            let response = self.send(&mut sender, request, within).await?;
            if is_wanted(&response, request) {
                return Ok(response.into_body());
            }
            Err(self.refusal(response).await?)
        };
        timeout(within, begun).await.unwrap_or_else(|_| Err(self.lost(TOO_LATE)))
    }

    /// The answer to a request, in the media type that it asks for. The connection is kept.
    async fn answer(&self, request: &HttpRequest, within: Duration) -> Result<Bytes, Rejection> {
        let mut sender = self.connection(within).await?;
        let response = self.send(&mut sender, request, within).await?;
        let answer = match is_wanted(&response, request) {
            true => Ok(self.whole(response.into_body(), CALL_MAX).await?),
            false => Err(self.refusal(response).await?),
        };
        self.idle.lock().push((sender, Instant::now()));
        answer
    }

    async fn whole(&self, body: Incoming, most: usize) -> Result<Bytes, Rejection> {
        match Limited::new(body, most).collect().await {
            Ok(whole) => Ok(whole.to_bytes()),
            Err(error) => Err(self.lost(&error.to_string())),
        }
    }

    /// A connection that is open, or a new one.
    async fn connection(&self, within: Duration) -> Result<Sender, Rejection> {
        loop {
            let kept = self.idle.lock().pop();
            match kept {
                Some((mut sender, since)) if since.elapsed() < IDLE_MAX => {
                    if sender.ready().await.is_ok() {
                        return Ok(sender);
                    }
                }
                // All others have waited even longer.
                Some(_) => self.idle.lock().clear(),
                None => return self.connect(within).await,
            }
        }
    }

    async fn connect(&self, within: Duration) -> Result<Sender, Rejection> {
        let stream = self.address.open(within).await?;
        let made = handshake(TokioIo::new(stream)).await;
        let (sender, connection) =
            made.map_err(|error| self.address.unreachable(&error.to_string()))?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to the gateway ended");
            }
        });
        Ok(sender)
    }

    /// Sends a request. If the connection has been closed meanwhile, and the request has not gone out,
    /// this sends it over a new one.
    async fn send(
        &self,
        sender: &mut Sender,
        request: &HttpRequest,
        within: Duration,
    ) -> Result<Response<Incoming>, Rejection> {
        match sender.try_send_request(self.dressed(request)?).await {
            Ok(response) => Ok(response),
            Err(mut failed) => match failed.take_message() {
                Some(unsent) => {
                    *sender = self.connect(within).await?;
                    let sent = sender.send_request(unsent).await;
                    sent.map_err(|error| self.lost(&why(&error)))
                }
                None => Err(self.lost(&why(failed.error()))),
            },
        }
    }

    /// The request with all its headers.
    fn dressed(&self, request: &HttpRequest) -> Result<Request<Full<Bytes>>, Rejection> {
        let mut made = Request::builder()
            .method(request.method.clone())
            .uri(self.address.path(&request.path))
            .header(HOST, self.address.host())
            .header(USER_AGENT, PROGRAM)
            .header(ACCEPT, request.accept);
        if let Some(bearer) = self.address.bearer() {
            made = made.header(AUTHORIZATION, bearer);
        }
        if !request.body.is_empty() {
            made = made.header(CONTENT_TYPE, request.sends);
        }
        let made = made.body(Full::new(request.body.clone()));
        made.map_err(|error| Rejection::invalid("url", error.to_string()))
    }

    /// The refusal when the answer is lost, or is none: the request may have taken effect.
    fn lost(&self, why: &str) -> Rejection {
        ambiguous(format!("the answer of {} is lost: {why}", self.address.shown()))
    }

    /// What an answer of another kind than the wanted one says.
    async fn refusal(&self, response: Response<Incoming>) -> Result<Rejection, Rejection> {
        let (parts, body) = response.into_parts();
        let body = self.whole(body, REFUSAL_MAX).await?;
        let refused = match serde_json::from_slice::<GivenProblem>(&body) {
            Ok(GivenProblem { code, detail, details }) => {
                let message = match code {
                    Code::Unauthenticated => {
                        format!("{} does not let this caller in: {detail}", self.address.shown())
                    }
                    _ => detail,
                };
                Rejection { code, message, details }
            }
            Err(_) => self.unknown(parts.status),
        };
        Ok(match retry_after(&parts.headers) {
            Some(ms) if !refused.details.contains_key(RETRY_AFTER_MS) => {
                refused.with(RETRY_AFTER_MS, ms)
            }
            _ => refused,
        })
    }

    /// What an answer says that no gateway gives: something else listens there, or stands between.
    fn unknown(&self, status: StatusCode) -> Rejection {
        let message =
            format!("{} answers {status}, and not as a gateway does", self.address.shown());
        match status {
            StatusCode::UNAUTHORIZED => Rejection::new(Code::Unauthenticated, message),
            StatusCode::FORBIDDEN => Rejection::new(Code::PermissionDenied, message),
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => unavailable(message),
            _ if status.is_server_error() => ambiguous(message),
            _ => Rejection::invalid("url", message),
        }
    }
}

/// A refusal as the gateway writes it (RFC 9457).
#[derive(Deserialize)]
struct GivenProblem {
    code: Code,
    detail: String,
    #[serde(default)]
    details: Map<String, Json>,
}

/// Whether the answer is what the request asks for, or says that all is done.
fn is_wanted(response: &Response<Incoming>, request: &HttpRequest) -> bool {
    if response.status() == StatusCode::NO_CONTENT {
        return true;
    }
    let given = response.headers().get(CONTENT_TYPE).and_then(|it| it.to_str().ok());
    let given = given.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    response.status().is_success() && given.eq_ignore_ascii_case(request.accept)
}

/// In how many milliseconds to come back, if the answer says so in seconds.
fn retry_after(headers: &HeaderMap) -> Option<u64> {
    let seconds: u64 = headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(seconds.saturating_mul(1_000))
}
