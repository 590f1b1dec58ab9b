//! A caller of a gateway begins one session of MCP after another, and uses none of them.

use anyhow::Result;
use serde_json::json;

use crate::common::flood::{flood, request};
use crate::common::judge::{Attack, Going, Told};
use crate::common::stage::Stage;
use crate::common::victim::Way;

/// How many connections it has.
const CONNECTIONS: usize = 64;

pub(crate) const ATTACK: Attack = Attack {
    name: "hosts",
    is_in_short: false,
    way: Way::Gateway,
    refused: None,
    memory_mib: 768,
    run,
};

fn run(stage: &Stage, going: &Going) -> Result<Told> {
    flood(stage, going, CONNECTIONS, |number| {
        let input = json!({"protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": "attacker", "version": "0"}});
        let body = json!({"jsonrpc": "2.0", "id": number, "method": "initialize", "params": input});
        request("/mcp", "Accept: application/json, text/event-stream\r\n", &body)
    })
}
