//! MCP over HTTP: messages of JSON-RPC to `/mcp`, with calls of every tool.

use serde_json::{Value as Json, json};
use tenure_testkit::fuzz::{Corpus, Draw, InputForm, fuzz, instance};

use crate::site::{Site, request};

const NEWEST: &str = "2026-07-28";

/// A request of the newest version, as a sample. Its headers say what its body says.
fn newest(method: &str, mut params: Json) -> Vec<u8> {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": NEWEST,
        "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
    });
    let name =
        ["name", "uri", "taskId"].iter().find_map(|it| params[it].as_str()).map(str::to_owned);
    let name = name.unwrap_or_default();
    let mut headers = usual();
    headers.extend([("mcp-protocol-version", NEWEST), ("mcp-method", method)]);
    if !name.is_empty() {
        headers.push(("mcp-name", &name));
    }
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    request("POST", "/mcp", &headers, &body)
}

fn usual() -> Vec<(&'static str, &'static str)> {
    vec![
        ("accept", "application/json, text/event-stream"),
        ("content-type", "application/json"),
        ("host", "127.0.0.1"),
    ]
}

fn samples(site: &Site) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let mut draw = Draw::new(1);
    let listed = site.answered(&newest("tools/list", json!({})));
    let tools = listed["result"]["tools"].as_array().expect("the tools").clone();
    assert!(tools.len() > 5, "{}", tools.len());
    for tool in &tools {
        for _ in 0..3 {
            let arguments = instance(&mut draw, &tool["inputSchema"], &tool["inputSchema"]);
            all.push(newest("tools/call", json!({"name": tool["name"], "arguments": arguments})));
        }
    }
    for (method, params) in [
        ("resources/list", json!({"cursor": "x"})),
        ("resources/templates/list", json!({})),
        ("resources/read", json!({"uri": "tenure://tasks/t"})),
        ("prompts/list", json!({})),
        ("prompts/get", json!({"name": "plan", "arguments": {"goal": "x"}})),
        (
            "completion/complete",
            json!({"ref": {"type": "ref/prompt", "name": "plan"}, "argument": {"name": "a", "value": "b"}}),
        ),
        ("tasks/get", json!({"taskId": "t"})),
        ("tasks/cancel", json!({"taskId": "t"})),
        (
            "tasks/update",
            json!({"taskId": "t", "inputResponses": {"a": {"action": "accept", "content": {}}}}),
        ),
        ("ping", json!({})),
    ] {
        all.push(newest(method, params));
    }
    let begins = json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "n", "version": "1"}},
    });
    all.push(request("POST", "/mcp", &usual(), &begins));
    all.push(request("GET", "/mcp?session=main", &usual(), &Json::Null));
    all.push(request("DELETE", "/mcp", &usual(), &Json::Null));
    all
}

#[test]
fn fuzz_mcp_messages() {
    let site = Site::open();
    let tokens = [
        "\"jsonrpc\":\"2.0\",",
        "\"_meta\":{},",
        "null",
        "tenure://",
        "\"cursor\":\"",
        "\"mcp-session-id\":\"x\",",
    ];
    let corpus = Corpus::new(InputForm::Json, samples(&site)).with_tokens(&tokens);
    fuzz("MCP messages", &corpus, |bytes| site.takes(bytes));
}
