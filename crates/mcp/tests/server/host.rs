//! A host of models: it speaks MCP as JSON, a message on each line, and knows no more of the server than that.

use std::time::Duration;

use serde_json::{Value as Json, json};
use tenure_mcp::StreamsError;
use tokio::io::{
    AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf,
    split,
};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Nothing takes so long.
const PATIENCE: Duration = Duration::from_secs(20);

/// Which versions of the protocol a host speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Era {
    /// 2026-07-28: each request says all.
    Modern,
    /// An older one: `initialize` says it once.
    Legacy(&'static str),
}

/// A host that has begun its conversation.
pub(crate) struct ModelHost {
    input: Lines<BufReader<ReadHalf<DuplexStream>>>,
    output: Option<WriteHalf<DuplexStream>>,
    served: JoinHandle<Result<(), StreamsError>>,
    _stop: CancellationToken,
    era: Era,
    next_id: u64,
    /// What `initialize` or `server/discover` has answered.
    pub(crate) server: Json,
    /// Notifications that have come meanwhile.
    pub(crate) notifications: Vec<Json>,
}

impl ModelHost {
    pub(crate) async fn begin(
        stream: DuplexStream,
        served: JoinHandle<Result<(), StreamsError>>,
        stop: CancellationToken,
        era: Era,
    ) -> Self {
        let (input, output) = split(stream);
        let input = BufReader::new(input).lines();
        let (output, notifications) = (Some(output), Vec::new());
        let mut host = Self {
            input,
            output,
            served,
            _stop: stop,
            era,
            next_id: 1,
            server: Json::Null,
            notifications,
        };
        host.server = match era {
            Era::Modern => host.ask("server/discover", json!({})).await,
            Era::Legacy(version) => {
                let client = json!({ "name": "test", "version": "1" });
                let hello =
                    json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": client });
                let server = host.ask("initialize", hello).await;
                host.send(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
                server
            }
        };
        host
    }

    pub(crate) async fn send(&mut self, message: Json) {
        let line = format!("{message}\n");
        self.output.as_mut().unwrap().write_all(line.as_bytes()).await.unwrap();
    }

    /// The next message.
    pub(crate) async fn next(&mut self) -> Json {
        let line = timeout(PATIENCE, self.input.next_line()).await.expect("the server is silent");
        let line = line.unwrap().expect("the server has ended");
        serde_json::from_str(&line).expect("each line is JSON")
    }

    /// Sends a request, and returns its id.
    pub(crate) async fn request(&mut self, method: &str, mut params: Json) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        if self.era == Era::Modern {
            let meta = &mut params["_meta"];
            meta["io.modelcontextprotocol/protocolVersion"] = "2026-07-28".into();
            meta["io.modelcontextprotocol/clientCapabilities"] = json!({});
            meta["io.modelcontextprotocol/clientInfo"] = json!({ "name": "test", "version": "1" });
        }
        self.send(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await;
        id
    }

    /// The answer to a request: `result` or `error`.
    pub(crate) async fn answer(&mut self, id: u64) -> Json {
        loop {
            let message = self.next().await;
            if message["id"] == id {
                return message;
            }
            assert!(message.get("id").is_none(), "nobody asked for {message}");
            self.notifications.push(message);
        }
    }

    /// Asks, and expects a result.
    pub(crate) async fn ask(&mut self, method: &str, params: Json) -> Json {
        let id = self.request(method, params).await;
        let answer = self.answer(id).await;
        assert!(answer.get("error").is_none(), "{method}: {answer}");
        answer["result"].clone()
    }

    /// Asks, and expects an error.
    pub(crate) async fn fail(&mut self, method: &str, params: Json) -> Json {
        let id = self.request(method, params).await;
        let answer = self.answer(id).await;
        answer.get("error").unwrap_or_else(|| panic!("{method}: {answer}")).clone()
    }

    /// Calls a tool: the whole result.
    pub(crate) async fn call(&mut self, tool: &str, arguments: Json) -> Json {
        self.ask("tools/call", json!({ "name": tool, "arguments": arguments })).await
    }

    /// Calls a tool that does what it is asked: the structured content.
    pub(crate) async fn done(&mut self, tool: &str, arguments: Json) -> Json {
        let result = self.call(tool, arguments).await;
        assert_ne!(result["isError"], true, "{tool}: {result}");
        result["structuredContent"].clone()
    }

    /// Calls a tool that refuses: the error.
    pub(crate) async fn refused(&mut self, tool: &str, arguments: Json) -> Json {
        let result = self.call(tool, arguments).await;
        assert_eq!(result["isError"], true, "{tool}: {result}");
        result["structuredContent"]["error"].clone()
    }

    /// Closes the input of the server, and waits until that has ended.
    pub(crate) async fn close(mut self) -> Result<(), StreamsError> {
        if let Some(mut output) = self.output.take() {
            output.shutdown().await.unwrap();
        }
        timeout(PATIENCE, self.served).await.expect("the server goes on").unwrap()
    }
}
