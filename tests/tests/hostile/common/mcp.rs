//! MCP over HTTP, as little as is needed of it: sessions of an older version, in the attacker's session of Tenure.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value as Json, json};

use super::http::{exchange, posted};
use super::stage::token;

/// The version that has no sessions.
pub(crate) const NEWEST: &str = "2026-07-28";

/// One that has.
const OLDER: &str = "2025-06-18";

const PATH: &str = "/mcp?session=other";

/// What every request of it says that it reads.
pub(crate) const ACCEPTS: &str = "Accept: application/json, text/event-stream\r\n";

/// The message that begins a session.
pub(crate) fn initialize(number: u64) -> Json {
    let input = json!({"protocolVersion": OLDER, "capabilities": {},
        "clientInfo": {"name": "attacker", "version": "0"}});
    json!({"jsonrpc": "2.0", "id": number, "method": "initialize", "params": input})
}

/// A request that begins a session.
pub(crate) fn begins(number: u64) -> Vec<u8> {
    posted(PATH, ACCEPTS, &initialize(number))
}

/// Begins a session, and answers its id.
pub(crate) fn begin(port: u16) -> Result<String> {
    let token = token("attacker");
    let (status, head, body) =
        exchange(port, Some(&token), "POST", PATH, ACCEPTS, Some(&initialize(0)))?;
    ensure!(status == 200, "{status}: {body}");
    let named = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("mcp-session-id").then(|| value.trim().to_owned())
    });
    let id = named.context("no session is named")?;
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let more = headers(&id);
    let (status, _, body) = exchange(port, Some(&token), "POST", PATH, &more, Some(&ready))?;
    ensure!(status == 202, "{status}: {body}");
    Ok(id)
}

/// A request in a session, on a connection that stays.
pub(crate) fn in_session(method: &str, session: &str, body: Option<&Json>) -> Vec<u8> {
    match body {
        Some(body) => posted(PATH, &headers(session), body),
        None => format!(
            "{method} {PATH} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n{}\r\n",
            token("attacker"),
            headers(session)
        )
        .into_bytes(),
    }
}

fn headers(session: &str) -> String {
    format!("{ACCEPTS}MCP-Protocol-Version: {OLDER}\r\nMcp-Session-Id: {session}\r\n")
}
