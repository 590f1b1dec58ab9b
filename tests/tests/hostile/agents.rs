//! A caller of a gateway sends an agent one message after another, on many connections, and waits for no answer.

use anyhow::Result;
use serde_json::json;

use crate::common::flood::{flood, request};
use crate::common::judge::{Attack, Going, Told};
use crate::common::stage::Stage;
use crate::common::victim::Way;

/// How many connections it has.
const CONNECTIONS: usize = 128;

pub(crate) const ATTACK: Attack = Attack {
    name: "agents",
    is_in_short: false,
    way: Way::Gateway,
    refused: None,
    memory_mib: 768,
    run,
};

fn run(stage: &Stage, going: &Going) -> Result<Told> {
    flood(stage, going, CONNECTIONS, |number| {
        let message = json!({"messageId": format!("m{number}"), "role": "ROLE_USER",
            "parts": [{"text": "x".repeat(1_000)}]});
        let body = json!({"jsonrpc": "2.0", "id": number, "method": "SendMessage",
            "params": {"message": message, "configuration": {"returnImmediately": true}}});
        request("/a2a/echo", "A2A-Version: 1.0\r\n", &body)
    })
}
