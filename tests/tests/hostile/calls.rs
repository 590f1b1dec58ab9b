//! A caller of a gateway begins a session of MCP, and calls it as fast as it can, on many connections: it keeps answers
//! for hosts that have lost theirs.

use anyhow::Result;
use serde_json::json;

use crate::common::flood::flood;
use crate::common::judge::{Attack, Going, Told};
use crate::common::mcp::{begin, in_session};
use crate::common::stage::Stage;
use crate::common::victim::Way;

/// How many connections it has.
const CONNECTIONS: usize = 32;

/// One answer in so many is a long one.
const LONG: u64 = 10;

pub(crate) const ATTACK: Attack = Attack {
    name: "calls",
    is_in_short: false,
    way: Way::Gateway,
    refused: Some("429"),
    memory_mib: 512,
    run,
};

fn run(stage: &Stage, going: &Going) -> Result<Told> {
    let session = begin(stage.http)?;
    flood(stage, going, CONNECTIONS, &[], |number| {
        let method = if number.is_multiple_of(LONG) { "tools/list" } else { "ping" };
        let body = json!({"jsonrpc": "2.0", "id": number, "method": method, "params": {}});
        in_session("POST", &session, Some(&body))
    })
}
