//! A client of HTTP, as small as these tests need it, and a reader of streams.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1::handshake;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value as Json;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The longest that a test waits for anything.
const WAITS: Duration = Duration::from_secs(30);

/// Sends a GET on a connection of its own.
pub(crate) async fn get(
    address: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
) -> Response<Incoming> {
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let mut request = Request::get(path).header("host", address.to_string());
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Empty::<Bytes>::new()).unwrap();
    timeout(WAITS, sender.send_request(request)).await.unwrap().unwrap()
}

/// The whole body; none if it was broken off.
pub(crate) async fn bytes(response: Response<Incoming>) -> Option<Bytes> {
    timeout(WAITS, response.into_body().collect()).await.unwrap().ok().map(|body| body.to_bytes())
}

/// The status and the body as JSON.
pub(crate) async fn json(response: Response<Incoming>) -> (StatusCode, Json) {
    let status = response.status();
    (status, serde_json::from_slice(&bytes(response).await.unwrap()).unwrap())
}

/// A frame of a stream.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Received {
    pub(crate) event: Option<String>,
    pub(crate) id: Option<String>,
    pub(crate) data: Json,
}

/// Reads a stream frame by frame.
pub(crate) struct StreamReader {
    body: Incoming,
    text: String,
}

impl StreamReader {
    /// Opens a stream.
    pub(crate) async fn open(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Self {
        let accept = [("accept", "text/event-stream")];
        let response = get(address, path, &[&accept, headers].concat()).await;
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        assert_eq!(response.headers()["cache-control"], "no-store");
        assert_eq!(response.headers()["x-accel-buffering"], "no");
        let mut reader = Self { body: response.into_body(), text: String::new() };
        let start = reader.frame().await.unwrap();
        assert!(start.starts_with("retry: 2000\n"), "{start}");
        reader
    }

    /// The next frame that is no comment, as text; none at the end of the stream.
    async fn frame(&mut self) -> Option<String> {
        loop {
            if let Some((frame, rest)) = self.text.split_once("\n\n") {
                let (frame, rest) = (frame.to_owned(), rest.to_owned());
                self.text = rest;
                if frame.starts_with(':') {
                    continue;
                }
                return Some(frame + "\n");
            }
            let more = timeout(WAITS, self.body.frame()).await.unwrap()?.unwrap();
            self.text += str::from_utf8(&more.into_data().unwrap()).unwrap();
        }
    }

    /// The next event; none at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<Received> {
        let frame = self.frame().await?;
        let mut received = Received::default();
        for line in frame.lines() {
            match line.split_once(": ").unwrap() {
                ("event", name) => received.event = Some(name.to_owned()),
                ("id", id) => received.id = Some(id.to_owned()),
                ("data", data) => received.data = serde_json::from_str(data).unwrap(),
                other => panic!("{other:?}"),
            }
        }
        Some(received)
    }

    /// All events to the end of the stream.
    pub(crate) async fn rest(&mut self) -> Vec<Received> {
        let mut all = Vec::new();
        while let Some(received) = self.next().await {
            all.push(received);
        }
        all
    }
}
