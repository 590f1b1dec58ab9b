//! A conversation with a server, line by line: what stands on the wire is what a test sees.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::{Value as Json, json};
use tenure_mcp::{McpServer, serve_streams};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, Lines};
use tokio::io::{ReadHalf, WriteHalf, split};
use tokio_util::sync::CancellationToken;

/// A client and its connection.
pub(crate) struct Talk {
    write: WriteHalf<DuplexStream>,
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    ids: u64,
    /// What stands with each request; none in an older version, which says it at the beginning.
    meta: Option<Json>,
    /// Notifications that came.
    pub(crate) told: Vec<Json>,
    /// Requests of the server that came.
    pub(crate) asked: Vec<Json>,
    /// Whether it answers none of them.
    pub(crate) is_silent: bool,
    /// What the client answers to them, one after the other.
    pub(crate) replies: VecDeque<Json>,
}

impl Talk {
    /// A client of 2026-07-28, which says with each request what it can do.
    pub(crate) async fn begin(server: McpServer, capabilities: Json) -> Self {
        Self::begin_until(server, capabilities, CancellationToken::new()).await
    }

    /// The same with a server that ends when `stop` is cancelled.
    pub(crate) async fn begin_until(
        server: McpServer,
        capabilities: Json,
        stop: CancellationToken,
    ) -> Self {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": capabilities,
        });
        Self::connect(server, Some(meta), stop)
    }

    /// A client of 2025-11-25, which says at the beginning what it can do.
    pub(crate) async fn older(server: McpServer, capabilities: Json) -> Self {
        let mut talk = Self::connect(server, None, CancellationToken::new());
        let client = json!({"name": "test", "version": "1"});
        let params = json!({
            "protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": client,
        });
        assert_eq!(talk.ask("initialize", params).await["result"]["protocolVersion"], "2025-11-25");
        talk.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        talk
    }

    fn connect(server: McpServer, meta: Option<Json>, stop: CancellationToken) -> Self {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        tokio::spawn(async move {
            let (input, output) = split(theirs);
            let _ = serve_streams(server, input, output, &stop).await;
        });
        let (read, write) = split(ours);
        let lines = BufReader::new(read).lines();
        let (told, asked, is_silent, replies) = Default::default();
        Self { write, lines, ids: 0, meta, told, asked, is_silent, replies }
    }

    /// Sends a request, and returns the whole answer.
    pub(crate) async fn ask(&mut self, method: &str, params: Json) -> Json {
        let id = self.begin_request(method, params).await;
        self.answer(id).await
    }

    /// Sends a request, and returns its id.
    pub(crate) async fn begin_request(&mut self, method: &str, mut params: Json) -> u64 {
        self.ids += 1;
        if let Some(Json::Object(meta)) = &self.meta {
            let mut whole = meta.clone();
            whole.extend(params["_meta"].as_object().cloned().unwrap_or_default());
            params["_meta"] = whole.into();
        }
        let id = self.ids;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
        id
    }

    /// The answer to a request.
    pub(crate) async fn answer(&mut self, id: u64) -> Json {
        loop {
            let message = self.next().await;
            if message["id"] == id && message.get("method").is_none() {
                return message;
            }
        }
    }

    /// The next answer, to whichever request.
    pub(crate) async fn any_answer(&mut self) -> Json {
        loop {
            let message = self.next().await;
            if message.get("id").is_some() && message.get("method").is_none() {
                return message;
            }
        }
    }

    /// Waits for a notification.
    pub(crate) async fn notified(&mut self) -> Json {
        loop {
            let message = self.next().await;
            if message.get("id").is_none() {
                return message;
            }
        }
    }

    /// The next message, which is noted if it is none that the client waits for.
    async fn next(&mut self) -> Json {
        let line = self.lines.next_line().await.unwrap().expect("the server is there");
        let message: Json = serde_json::from_str(&line).unwrap();
        match (message.get("method"), message.get("id")) {
            (Some(_), Some(_)) if self.is_silent => {}
            (Some(_), Some(id)) => {
                let reply = self.replies.pop_front().expect("the client has something to say");
                self.send(&json!({"jsonrpc": "2.0", "id": id, "result": reply})).await;
                self.asked.push(message.clone());
            }
            (Some(_), None) => self.told.push(message.clone()),
            _ => {}
        }
        message
    }

    pub(crate) async fn send(&mut self, message: &Json) {
        self.write.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    /// The result of a request.
    pub(crate) async fn result(&mut self, method: &str, params: Json) -> Json {
        let mut answer = self.ask(method, params).await;
        assert!(answer.get("error").is_none(), "{answer}");
        answer["result"].take()
    }

    /// The code with which a request is refused.
    pub(crate) async fn refusal(&mut self, method: &str, params: Json) -> i64 {
        let answer = self.ask(method, params).await;
        answer["error"]["code"].as_i64().unwrap_or_else(|| panic!("{answer}"))
    }

    /// Calls the tool `act`.
    pub(crate) async fn act(&mut self, verb: &str, with: &str) -> Json {
        self.result("tools/call", call("act", verb, with)).await
    }

    /// The task of this id.
    pub(crate) async fn get(&mut self, id: &Json) -> Json {
        self.result("tasks/get", json!({"taskId": id})).await
    }

    /// Answers the questions of a task.
    pub(crate) async fn update(&mut self, id: &Json, responses: Json) -> Json {
        self.result("tasks/update", json!({"taskId": id, "inputResponses": responses})).await
    }

    /// Looks at a task until it has this status.
    pub(crate) async fn until(&mut self, id: &Json, status: &str) -> Json {
        let until = std::time::Instant::now() + Duration::from_secs(60);
        loop {
            let task = self.get(id).await;
            if task["status"] == status {
                return task;
            }
            let ended =
                ["completed", "failed", "cancelled"].map(Json::from).contains(&task["status"]);
            assert!(!ended && std::time::Instant::now() < until, "{task}");
            tokio::task::yield_now().await;
        }
    }
}

/// A call of a tool that does what it is told.
pub(crate) fn call(tool: &str, verb: &str, with: &str) -> Json {
    json!({"name": tool, "arguments": {"do": verb, "with": with}})
}

/// An answer to a question for a text.
pub(crate) fn say(text: &str) -> Json {
    json!({"action": "accept", "content": {"answer": text}})
}
