//! A caller of a gateway begins one session of MCP after another. Later it asks something in the first of them: there
//! it learns that it had too many, as that one has ended in favour of the newer ones.

use anyhow::Result;
use serde_json::json;

use crate::common::flood::flood;
use crate::common::judge::{Attack, Going, Told};
use crate::common::mcp::{begin, begins, in_session};
use crate::common::stage::Stage;
use crate::common::victim::Way;

/// How many connections it has.
const CONNECTIONS: usize = 64;

/// More sessions than there may be. After these, one request in so many is in its first session.
const BEGUN: u64 = 1_100;
const ASKS: u64 = 50;

pub(crate) const ATTACK: Attack = Attack {
    name: "hosts",
    is_in_short: false,
    way: Way::Gateway,
    refused: Some("404"),
    memory_mib: 768,
    run,
};

fn run(stage: &Stage, going: &Going) -> Result<Told> {
    let first = begin(stage.http)?;
    flood(stage, going, CONNECTIONS, &[], |number| match number {
        BEGUN.. if number.is_multiple_of(ASKS) => {
            let body = json!({"jsonrpc": "2.0", "id": number, "method": "ping"});
            in_session("POST", &first, Some(&body))
        }
        _ => begins(number),
    })
}
