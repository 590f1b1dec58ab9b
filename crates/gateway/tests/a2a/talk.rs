//! A caller of an agent, as small as these tests need it.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::handshake;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value as Json, json};
use tokio::net::TcpStream;
use tokio::time::timeout;
use uuid::Uuid;

use crate::http::{Answer, Exchange, send};

/// Whatever a test waits for comes sooner than this.
const SOON: Duration = Duration::from_secs(30);

/// A conversation with an agent over JSON-RPC 1.0.
#[derive(Clone)]
pub(crate) struct Talk {
    pub(crate) to: SocketAddr,
    pub(crate) agent: String,
}

/// A message of one text.
pub(crate) fn message(text: &str) -> Json {
    let id = Uuid::now_v7().to_string();
    json!({"messageId": id, "role": "ROLE_USER", "parts": [{"text": text}]})
}

/// A JSON object with more fields.
pub(crate) fn with(mut object: Json, more: &Json) -> Json {
    object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    object
}

impl Talk {
    pub(crate) fn new(to: SocketAddr, agent: &str) -> Self {
        Self { to, agent: agent.to_owned() }
    }

    /// The path of the agent.
    pub(crate) fn path(&self) -> String {
        format!("/a2a/{}", self.agent)
    }

    /// Sends a body to the address of JSON-RPC.
    pub(crate) async fn post(&self, media_type: &str, body: String) -> Answer {
        let exchange = Exchange::new(self.to, Method::POST, &self.path());
        send(exchange.header("a2a-version", "1.0").body(media_type, body)).await
    }

    /// The whole answer to a request.
    pub(crate) async fn ask(&self, method: &str, params: Json) -> Json {
        let body = json!({"jsonrpc": "2.0", "id": "r1", "method": method, "params": params});
        let answer = self.post("application/json", body.to_string()).await;
        assert_eq!(answer.status, StatusCode::OK, "{:?}", answer.body);
        assert_eq!(answer.header("content-type"), "application/json");
        let answer = answer.json();
        assert_eq!((&answer["jsonrpc"], &answer["id"]), (&json!("2.0"), &json!("r1")));
        answer
    }

    /// The result of a request.
    pub(crate) async fn result(&self, method: &str, params: Json) -> Json {
        let mut answer = self.ask(method, params).await;
        assert!(answer.get("error").is_none(), "{method}: {answer}");
        answer["result"].take()
    }

    /// The code of the error of a request.
    pub(crate) async fn refusal(&self, method: &str, params: Json) -> i64 {
        let answer = self.ask(method, params).await;
        let error = &answer["error"];
        let info = &error["data"][0];
        assert_eq!(info["@type"], "type.googleapis.com/google.rpc.ErrorInfo", "{answer}");
        assert_eq!(info["domain"], "a2a-protocol.org");
        error["code"].as_i64().unwrap()
    }

    /// Sends a message, and returns the task.
    pub(crate) async fn say(&self, message: Json) -> Json {
        self.result("SendMessage", json!({"message": message})).await["task"].take()
    }

    /// Sends a message, and returns the task as it is at once.
    pub(crate) async fn tell(&self, message: Json) -> Json {
        let params = json!({"message": message, "configuration": {"returnImmediately": true}});
        self.result("SendMessage", params).await["task"].take()
    }

    /// The task of this id.
    pub(crate) async fn get(&self, id: &Json) -> Json {
        self.result("GetTask", json!({"id": id})).await
    }

    /// Waits until a task is in this state.
    pub(crate) async fn until(&self, id: &Json, state: &str) -> Json {
        let comes = async {
            loop {
                let task = self.get(id).await;
                if task["status"]["state"] == state {
                    return task;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(SOON, comes).await.expect("it comes to be so")
    }

    /// Opens a stream.
    pub(crate) async fn stream(&self, method: &str, params: Json, last: Option<&str>) -> Updates {
        let body = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
        Updates::open(self.to, &self.path(), body, last).await
    }
}

/// What a stream tells, one frame after another.
pub(crate) struct Updates {
    body: Incoming,
    text: String,
}

impl Updates {
    pub(crate) async fn open(to: SocketAddr, path: &str, body: Json, last: Option<&str>) -> Self {
        let stream = TcpStream::connect(to).await.unwrap();
        let (mut sender, connection) = handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let mut request = Request::post(path).header("host", to.to_string());
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let request =
            request.header("a2a-version", "1.0").header("content-type", "application/json");
        let request = request.body(Full::new(Bytes::from(body.to_string()))).unwrap();
        let response = timeout(SOON, sender.send_request(request)).await.unwrap().unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { body: response.into_body(), text: String::new() }
    }

    /// The next frame: its place, and what it says; none at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<(String, Json)> {
        loop {
            if let Some((frame, rest)) = self.text.split_once("\n\n") {
                let (frame, rest) = (frame.to_owned(), rest.to_owned());
                self.text = rest;
                if frame.starts_with(':') {
                    continue;
                }
                let field = |name: &str| {
                    let line = frame.lines().find_map(|line| line.strip_prefix(name));
                    line.unwrap_or_default().to_owned()
                };
                return Some((field("id: "), serde_json::from_str(&field("data: ")).unwrap()));
            }
            let more = timeout(SOON, self.body.frame()).await.unwrap()?.unwrap();
            self.text += str::from_utf8(&more.into_data().unwrap()).unwrap();
        }
    }

    /// The next update.
    pub(crate) async fn update(&mut self) -> Json {
        self.next().await.expect("the stream goes on").1["result"].take()
    }

    /// All frames to the end of the stream.
    pub(crate) async fn rest(&mut self) -> Vec<(String, Json)> {
        let mut all = Vec::new();
        while let Some(next) = self.next().await {
            all.push(next);
        }
        all
    }
}

/// An update in a word or two.
pub(crate) fn in_short(update: &Json) -> String {
    if let Some(task) = update.get("task") {
        return format!("task {}", state(&task["status"]));
    }
    if let Some(artifact) = update.get("artifactUpdate") {
        return format!("artifact {}", artifact["artifact"]["name"].as_str().unwrap());
    }
    match update.get("statusUpdate") {
        Some(told) => state(&told["status"]),
        None => "message".into(),
    }
}

fn state(status: &Json) -> String {
    status["state"].as_str().unwrap().trim_start_matches("TASK_STATE_").to_lowercase()
}
