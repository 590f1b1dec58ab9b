//! A server before a few routes of a test.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{any, get, post};
use axum::{Extension, Router};
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http_body_util::BodyExt as _;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use tenure_gateway::Counters;
use tenure_gateway::identity::Identity;
use tenure_gateway::server::{HttpServer, ServerFiles, ServerLimits, ServerSettings};
use tokio::net::TcpStream;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;

use crate::raw::{Raw, RawAnswer};

/// A server that answers.
pub(crate) struct Site {
    pub(crate) address: SocketAddr,
    pub(crate) files: ServerFiles,
    /// Lets as many requests for `/held` end as it has permits.
    pub(crate) gate: Arc<Semaphore>,
    /// Has a permit for each request that has come to `/held`.
    came: Arc<Semaphore>,
    stop: Arc<Notify>,
    serving: JoinHandle<()>,
    pub(crate) dir: TempDir,
}

/// Settings for a server on a port that the system chooses, with short times.
pub(crate) fn settings() -> ServerSettings {
    let limits = ServerLimits { grace: Duration::from_secs(5), ..ServerLimits::default() };
    let tcp = vec!["127.0.0.1:0".parse().unwrap()];
    ServerSettings { tcp, limits, ..ServerSettings::default() }
}

/// A file of tokens, each with its principal and its role.
pub(crate) fn tokens_in(dir: &Path, tokens: &[(&str, &str, &str)]) -> PathBuf {
    let mut text = String::new();
    for (token, principal, role) in tokens {
        text.push_str("[[tokens]]\nsha256 = \"");
        for byte in Sha256::digest(token) {
            write!(text, "{byte:02x}").unwrap();
        }
        writeln!(text, "\"\nprincipal = \"{principal}\"\nrole = \"{role}\"").unwrap();
        text.push_str("sessions = [\"main\"]\n");
    }
    let path = dir.join("who.toml");
    std::fs::write(&path, text).unwrap();
    path
}

impl Site {
    /// A server without authentication.
    pub(crate) async fn open() -> Self {
        Self::with(|_, _| {}).await
    }

    /// A server for two tokens: `ann-token` of an orchestrator and `bob-token` of an observer.
    pub(crate) async fn closed() -> Self {
        Self::with(|settings, dir| settings.identities = Some(two_tokens(dir))).await
    }

    /// A server with other settings, which may have files in a directory.
    pub(crate) async fn with(change: impl FnOnce(&mut ServerSettings, &Path)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut settings = settings();
        change(&mut settings, dir.path());
        let server = HttpServer::bind(settings).await.unwrap();
        let address = server.addresses().first().copied();
        let (files, gate) = (server.files(), Arc::new(Semaphore::new(0)));
        let came = Arc::new(Semaphore::new(0));
        let stop = Arc::new(Notify::new());
        let (routes, stopped) = (routes(&gate, &came), Arc::clone(&stop));
        let serving = tokio::spawn(async move {
            server.serve_routes(routes, Counters::default(), stopped.notified()).await;
        });
        let address = address.unwrap_or_else(|| "127.0.0.1:1".parse().unwrap());
        Self { address, files, gate, came, stop, serving, dir }
    }

    /// Waits until a request has come to `/held`.
    pub(crate) async fn is_held(&self) {
        self.came.acquire().await.unwrap().forget();
    }

    /// Tells the server to stop.
    pub(crate) fn stop(&self) {
        self.stop.notify_one();
    }

    /// Waits until it has stopped.
    pub(crate) async fn stopped(self) {
        tokio::time::timeout(crate::raw::WAITS, self.serving).await.unwrap().unwrap();
    }

    pub(crate) async fn connect(&self) -> Raw<TcpStream> {
        Raw::new(TcpStream::connect(self.address).await.unwrap())
    }

    /// Sends a request on a connection of its own.
    pub(crate) async fn ask(&self, line: &str, headers: &[(&str, &str)]) -> RawAnswer {
        let mut connection = self.connect().await;
        connection.send(request(line, headers)).await;
        connection.answer().await.unwrap()
    }

    /// Sends a request with a token.
    pub(crate) async fn ask_as(&self, token: &str, line: &str) -> RawAnswer {
        self.ask(line, &[("authorization", &format!("Bearer {token}"))]).await
    }
}

/// The file of [`Site::closed`].
pub(crate) fn two_tokens(dir: &Path) -> PathBuf {
    tokens_in(dir, &[("ann-token", "ann", "orchestrator"), ("bob-token", "bob", "observer")])
}

/// The head of a request, for a host that is this machine unless the headers name another.
pub(crate) fn request(line: &str, headers: &[(&str, &str)]) -> String {
    let mut text = format!("{line} HTTP/1.1\r\n");
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        text.push_str("host: localhost\r\n");
    }
    for (name, value) in headers {
        writeln!(text, "{name}: {value}\r").unwrap();
    }
    text + "\r\n"
}

fn routes(gate: &Arc<Semaphore>, came: &Arc<Semaphore>) -> Router {
    let (gate, came) = (Arc::clone(gate), Arc::clone(came));
    let held = any(async move || {
        came.add_permits(1);
        let Ok(permit) = gate.acquire().await else { return "the test is over" };
        permit.forget();
        "let go"
    });
    Router::new()
        .route("/who", any(who))
        .route("/count", post(count))
        .route("/events", get(events))
        .route("/flood", get(flood))
        .route("/long", any(long))
        .route("/held", held)
        .route("/livez", get(async || "live"))
}

/// Says who asks.
async fn who(Extension(who): Extension<Identity>) -> String {
    format!("{} {}", who.principal, who.role)
}

/// Says how long the body is.
async fn count(body: Body) -> Response {
    match body.collect().await {
        Ok(whole) => whole.to_bytes().len().to_string().into_response(),
        Err(_) => StatusCode::IM_A_TEAPOT.into_response(),
    }
}

/// Sends an event and then nothing.
async fn events() -> Response {
    let first = stream::iter([Ok::<_, Infallible>(Bytes::from_static(b"data: first\n\n"))]);
    let body = Body::from_stream(first.chain(stream::pending()));
    ([(header::CONTENT_TYPE, "text/event-stream")], body).into_response()
}

/// How many bytes `/long` has: more than the system takes of an answer that nobody reads.
pub(crate) const LONG: usize = 16 << 20;

async fn long() -> Vec<u8> {
    vec![b'x'; LONG]
}

/// Sends for ever.
async fn flood() -> Response {
    let piece = Bytes::from(vec![b'x'; 64 << 10]);
    Body::from_stream(stream::repeat(piece).map(Ok::<_, Infallible>)).into_response()
}
