//! A host of models over HTTP: it posts a message and reads an answer that is JSON or a stream of events.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::handshake;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value as Json, json};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Nothing takes so long.
const PATIENCE: Duration = Duration::from_secs(20);

/// The newest version.
pub(crate) const NEWEST: &str = "2026-07-28";

/// A caller of a gateway.
#[derive(Clone)]
pub(crate) struct Talk {
    address: SocketAddr,
    token: &'static str,
    /// Sent with every request.
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) path: &'static str,
}

/// An answer, of which the body may still come.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    body: Incoming,
    text: String,
}

impl Talk {
    pub(crate) fn of(address: SocketAddr, token: &'static str) -> Self {
        Self { address, token, headers: Vec::new(), path: "/mcp" }
    }

    /// The same at another path.
    pub(crate) fn at(&self, path: &'static str) -> Self {
        Self { path, ..self.clone() }
    }

    /// The same with another header.
    pub(crate) fn with(&self, name: &'static str, value: impl Into<String>) -> Self {
        let mut it = self.clone();
        it.headers.retain(|(known, _)| *known != name);
        it.headers.push((name, value.into()));
        it
    }

    pub(crate) async fn send(&self, method: &str, body: impl Into<Bytes>) -> Answer {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (mut sender, connection) = handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let mut request = Request::builder().method(method).uri(self.path);
        let usual = [
            ("host", self.address.to_string()),
            ("connection", "close".to_owned()),
            ("accept", "application/json, text/event-stream".to_owned()),
            ("content-type", "application/json".to_owned()),
            ("authorization", format!("Bearer {}", self.token)),
        ];
        let own = usual.iter().filter(|(name, _)| !self.headers.iter().any(|(it, _)| it == name));
        for (name, value) in own.chain(&self.headers) {
            request = request.header(*name, value);
        }
        let request = request.body(Full::new(body.into())).unwrap();
        let response = timeout(PATIENCE, sender.send_request(request)).await.unwrap().unwrap();
        Answer::of(response)
    }

    /// Posts a request of the newest version.
    pub(crate) async fn post(&self, method: &str, mut params: Json) -> Answer {
        let meta = &mut params["_meta"];
        meta["io.modelcontextprotocol/protocolVersion"] = NEWEST.into();
        let can = &mut meta["io.modelcontextprotocol/clientCapabilities"];
        if can.is_null() {
            *can = json!({});
        }
        let name =
            ["name", "uri", "taskId"].iter().find_map(|it| params[it].as_str()).map(str::to_owned);
        let mut talk = self.with("mcp-protocol-version", NEWEST).with("mcp-method", method);
        if let Some(name) = name {
            talk = talk.with("mcp-name", name);
        }
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        talk.send("POST", message.to_string()).await
    }

    /// The result of a request of the newest version.
    pub(crate) async fn ask(&self, method: &str, params: Json) -> Json {
        let mut answer = self.post(method, params).await;
        let message = answer.message_with_id().await;
        assert_eq!(answer.status, 200, "{message}");
        assert!(message.get("error").is_none(), "{method}: {message}");
        message["result"].clone()
    }

    /// The structured content of a tool that does what it is asked.
    pub(crate) async fn done(&self, tool: &str, arguments: Json) -> Json {
        let result = self.ask("tools/call", json!({ "name": tool, "arguments": arguments })).await;
        assert_ne!(result["isError"], true, "{tool}: {result}");
        result["structuredContent"].clone()
    }
}

impl Answer {
    fn of(response: Response<Incoming>) -> Self {
        let (parts, body) = response.into_parts();
        let (status, headers) = (parts.status.as_u16(), parts.headers);
        Self { status, headers, body, text: String::new() }
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    fn is_stream(&self) -> bool {
        self.header("content-type").starts_with("text/event-stream")
    }

    /// The next message; none at the end.
    pub(crate) async fn message(&mut self) -> Option<Json> {
        loop {
            if self.is_stream() {
                while let Some((frame, rest)) = self.text.split_once("\n\n") {
                    let lines = frame.lines().filter_map(|line| line.strip_prefix("data:"));
                    let data = lines.map(str::trim).collect::<String>();
                    self.text = rest.to_owned();
                    if !data.is_empty() {
                        return Some(serde_json::from_str(&data).unwrap());
                    }
                }
            }
            match timeout(PATIENCE, self.body.frame()).await.expect("the server is silent") {
                Some(Ok(frame)) => {
                    let data = frame.into_data().unwrap_or_default();
                    self.text.push_str(std::str::from_utf8(&data).unwrap());
                }
                Some(Err(_)) | None if self.is_stream() || self.text.is_empty() => return None,
                Some(Err(_)) | None => {
                    let whole = std::mem::take(&mut self.text);
                    return Some(serde_json::from_str(&whole).unwrap_or(Json::String(whole)));
                }
            }
        }
    }

    /// The next message that answers a request.
    pub(crate) async fn message_with_id(&mut self) -> Json {
        loop {
            let message = self.message().await.expect("there is an answer");
            if message.get("method").is_none() {
                return message;
            }
        }
    }
}
