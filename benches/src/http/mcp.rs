//! What a call of a tool over MCP takes, one after another on a connection that stays open.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value as Json, json};

use super::house::House;
use super::line::{Line, post_with};
use super::visitor::{Figure, fresh, percentiles};

/// Calls that are measured, and calls before them, which pay for what later ones find made.
const CALLS: usize = 1_000;
const FIRST: usize = 50;

/// The version that needs no session.
const VERSION: &str = "2026-07-28";

/// Reads a Task of one Step, again and again.
pub(super) async fn reads(house: &House) -> Result<Vec<Figure>> {
    let mut line = Line::open(house.port).await?;
    let id = fresh("mcp-read");
    call(&mut line, "task_create", &task(&id)).await?;
    let request = json!({ "task_id": id });
    let mut times = Vec::new();
    for _ in 0..FIRST + CALLS {
        times.push(call(&mut line, "task_get", &request).await?);
    }
    Ok(percentiles(["mcp read", "mcp read p99"], times.split_off(FIRST), "must 2"))
}

/// Makes one Task after another, of which nothing runs.
pub(super) async fn writes(house: &House) -> Result<Vec<Figure>> {
    let mut line = Line::open(house.port).await?;
    let mut times = Vec::new();
    for _ in 0..FIRST + CALLS {
        times.push(call(&mut line, "task_create", &task(&fresh("mcp-write"))).await?);
    }
    Ok(percentiles(["mcp write", "mcp write p99"], times.split_off(FIRST), "must 3"))
}

fn task(id: &str) -> Json {
    let step = json!({"step_id": "s0", "title": "s0", "summary": "s0", "handler": "noop"});
    json!({"task_id": id, "title": id, "dispatch": "manual", "steps": [step]})
}

/// Calls a tool, and fails unless it has done what it is for.
async fn call(line: &mut Line, tool: &str, arguments: &Json) -> Result<Duration> {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
    });
    let params = json!({"name": tool, "arguments": arguments, "_meta": meta});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let headers = format!(
        "accept: application/json, text/event-stream\r\nmcp-protocol-version: {VERSION}\r\n\
         mcp-method: tools/call\r\nmcp-name: {tool}\r\n"
    );
    let request = post_with("/mcp", &headers, body.to_string().as_bytes());
    let begun = Instant::now();
    let answer = line.ask(&request).await?;
    let took = begun.elapsed();
    let text = String::from_utf8_lossy(&answer.body);
    let is_done = text.contains("\"structuredContent\"") && !text.contains("\"isError\":true");
    ensure!(answer.status == 200 && is_done, "status {}: {text}", answer.status);
    Ok(took)
}
