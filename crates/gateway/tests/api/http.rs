//! A client of HTTP, as small as these tests need it.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::handshake;
use hyper::header::{CONTENT_TYPE, HOST, HeaderMap};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value as Json;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Whatever a test waits for comes sooner than this.
const SOON: Duration = Duration::from_secs(30);

/// A request, and where it goes.
pub(crate) struct Exchange {
    to: SocketAddr,
    request: hyper::http::request::Builder,
    body: Bytes,
}

/// An answer, read to its end.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Exchange {
    pub(crate) fn new(to: SocketAddr, method: Method, path: &str) -> Self {
        let request = Request::builder().method(method).uri(path).header(HOST, to.to_string());
        Self { to, request, body: Bytes::new() }
    }

    pub(crate) fn header(self, name: &str, value: &str) -> Self {
        Self { request: self.request.header(name, value), ..self }
    }

    pub(crate) fn body(self, media_type: &str, body: impl Into<Bytes>) -> Self {
        let request = self.request.header(CONTENT_TYPE, media_type);
        Self { request, body: body.into(), ..self }
    }

    pub(crate) fn json(self, body: &Json) -> Self {
        self.body("application/json", body.to_string())
    }
}

impl Answer {
    pub(crate) fn json(&self) -> Json {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The code of a problem.
    pub(crate) fn code(&self) -> String {
        assert_eq!(self.header("content-type"), "application/problem+json");
        let problem = self.json();
        assert_eq!(problem["status"], self.status.as_u16());
        problem["code"].as_str().unwrap().to_owned()
    }

    /// The field that a problem names.
    pub(crate) fn field(&self) -> String {
        self.json()["details"]["field"].as_str().unwrap_or_default().to_owned()
    }
}

/// Sends a request on a connection of its own.
pub(crate) async fn send(exchange: Exchange) -> Answer {
    let Exchange { to, request, body } = exchange;
    let stream = TcpStream::connect(to).await.unwrap();
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = request.body(Full::new(body)).unwrap();
    let response = timeout(SOON, sender.send_request(request)).await.unwrap().unwrap();
    let (parts, body) = response.into_parts();
    let body = timeout(SOON, body.collect()).await.unwrap().unwrap().to_bytes();
    Answer { status: parts.status, headers: parts.headers, body }
}
