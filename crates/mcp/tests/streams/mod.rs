//! The streams of a server, and a program at their other end that sends lines of JSON, as any host does.

use std::time::Duration;

use serde_json::{Value as Json, json};
use tenure_mcp::McpServer;
use tokio::io::{
    AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, ReadHalf, WriteHalf,
};
use tokio::time::timeout;

/// Whatever is waited for comes sooner.
const SOON: Duration = Duration::from_secs(30);

pub(crate) struct Streams {
    read: BufReader<ReadHalf<DuplexStream>>,
    write: WriteHalf<DuplexStream>,
    sent: u64,
}

impl Streams {
    /// Those of this server, which ends with them.
    pub(crate) fn of(server: McpServer) -> Self {
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        tokio::spawn(async move {
            let running = tenure_mcp::rmcp::serve_server(server, theirs).await.unwrap();
            running.waiting().await.unwrap();
        });
        let (read, write) = tokio::io::split(ours);
        Self { read: BufReader::new(read), write, sent: 0 }
    }

    /// Calls a tool. Whether it says that it failed, and its structured answer.
    pub(crate) async fn call(&mut self, tool: &str, arguments: Json) -> (bool, Json) {
        let params = json!({"name": tool, "arguments": arguments});
        let result = self.request("tools/call", params).await;
        (result["isError"] == true, result["structuredContent"].clone())
    }

    /// The result of a request.
    pub(crate) async fn request(&mut self, method: &str, mut params: Json) -> Json {
        self.sent += 1;
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let request =
            json!({"jsonrpc": "2.0", "id": self.sent, "method": method, "params": params});
        self.write.write_all(format!("{request}\n").as_bytes()).await.unwrap();
        loop {
            let mut line = String::new();
            timeout(SOON, self.read.read_line(&mut line)).await.unwrap().unwrap();
            let answer: Json = serde_json::from_str(&line).unwrap();
            if answer["id"] == self.sent {
                assert_eq!(answer["error"], Json::Null, "{method} {params}");
                return answer["result"].clone();
            }
        }
    }
}
