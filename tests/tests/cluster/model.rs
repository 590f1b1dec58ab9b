//! A host of models at one gateway, over MCP of 2026-07-28, written from the protocol alone.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value as Json, json};
use tenure_tests::cluster::client::SESSION;
use tenure_tests::cluster::{PATIENCE, until};

/// The version that is spoken.
const VERSION: &str = "2026-07-28";

/// What a call is named with, so that its repetition is the same call.
const COMMAND_ID: &str = "dev.tenure/command_id";

/// Somebody who speaks to Tenure's tools at one gateway.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ModelCaller {
    /// Where the gateway listens.
    pub(crate) port: u16,
    /// Whether it knows the extension Tasks.
    pub(crate) knows_tasks: bool,
}

impl ModelCaller {
    /// Sends a request, and leaves the answer to be read.
    pub(crate) fn send(self, method: &str, mut params: Json) -> Result<TcpStream> {
        let meta = &mut params["_meta"];
        meta["io.modelcontextprotocol/protocolVersion"] = VERSION.into();
        meta["io.modelcontextprotocol/clientCapabilities"] = match self.knows_tasks {
            true => json!({"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}}),
            false => json!({}),
        };
        let name = ["name", "uri", "taskId"].iter().find_map(|it| params[it].as_str());
        let name = name.map(|name| format!("Mcp-Name: {name}\r\n")).unwrap_or_default();
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let (body, port) = (body.to_string(), self.port);
        let request = format!(
            "POST /mcp?session={SESSION} HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\n{name}\
             MCP-Protocol-Version: {VERSION}\r\nMcp-Method: {method}\r\n\
             Accept: application/json, text/event-stream\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut way = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        way.set_read_timeout(Some(PATIENCE))?;
        way.write_all(request.as_bytes())?;
        Ok(way)
    }

    /// The answer to a request: it has a result or an error. An answer that is a stream has it as its last event.
    pub(crate) fn ask(self, method: &str, params: Json) -> Result<Json> {
        let mut answer = String::new();
        self.send(method, params)?.read_to_string(&mut answer)?;
        let (_, body) = answer.split_once("\r\n\r\n").context("the answer has no end of a head")?;
        let events = body.lines().filter_map(|line| line.strip_prefix("data:"));
        let mut messages = events.chain([body]).filter_map(|it| serde_json::from_str(it).ok());
        let found = messages.find(|it: &Json| it["id"] == 1);
        found.with_context(|| format!("{method}: {answer}"))
    }

    /// The result of a request.
    pub(crate) fn result(self, method: &str, params: Json) -> Result<Json> {
        let mut answer = self.ask(method, params)?;
        ensure!(answer.get("error").is_none(), "{method}: {answer}");
        Ok(answer["result"].take())
    }

    /// Calls a tool, perhaps under an id.
    pub(crate) fn call(self, tool: &str, arguments: Json, id: Option<&str>) -> Result<Json> {
        let mut params = json!({"name": tool, "arguments": arguments});
        if let Some(id) = id {
            params["_meta"] = json!({COMMAND_ID: id});
        }
        self.result("tools/call", params)
    }

    /// The structured content of a call that does what it is asked. Where the owner of a Task has just died, the call
    /// is repeated, as its refusal says: so it names its command, or changes nothing.
    pub(crate) fn done(self, tool: &str, arguments: Json) -> Result<Json> {
        let mut content = Json::Null;
        until(tool, PATIENCE, || {
            let result = self.call(tool, arguments.clone(), None)?;
            content = result["structuredContent"].clone();
            let is_refused = result["isError"] == true;
            ensure!(!is_refused || content["error"]["retryable"] == true, "{tool}: {result}");
            Ok(!is_refused)
        })?;
        Ok(content)
    }

    /// A task of the extension as it is now.
    pub(crate) fn task(self, id: &str) -> Result<Json> {
        let mut found = Json::Null;
        until("the task is read", PATIENCE, || {
            let answer = self.ask("tasks/get", json!({"taskId": id}))?;
            // An internal error passes: nobody answers for the task now.
            let passes = answer["error"]["code"] == -32603;
            ensure!(passes || answer.get("error").is_none(), "{answer}");
            found = answer["result"].clone();
            Ok(!passes)
        })?;
        Ok(found)
    }

    /// Waits until a task of the extension has this status.
    pub(crate) fn wait_for(self, id: &str, status: &str) -> Result<Json> {
        let mut found = Json::Null;
        until(status, PATIENCE, || {
            found = self.task(id)?;
            Ok(found["status"] == status)
        })
        .with_context(|| format!("{found}"))?;
        Ok(found)
    }
}
