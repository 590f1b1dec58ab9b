//! A caller of a gateway sends an agent one message after another, on many connections, and waits for no answer. Nobody
//! works on any of them, so that the session of the agent soon has as many tasks as it may have.

use anyhow::Result;
use serde_json::json;

use crate::common::flood::flood;
use crate::common::http::posted;
use crate::common::judge::{Attack, Going, Told};
use crate::common::stage::Stage;
use crate::common::victim::Way;

/// How many connections it has.
const CONNECTIONS: usize = 128;

/// The reason of an error of A2A that says to come again.
const UNAVAILABLE: &str = "\"UNAVAILABLE\"";

pub(crate) const ATTACK: Attack = Attack {
    name: "agents",
    is_in_short: false,
    way: Way::Gateway,
    refused: Some(UNAVAILABLE),
    memory_mib: 768,
    run,
};

fn run(stage: &Stage, going: &Going) -> Result<Told> {
    flood(stage, going, CONNECTIONS, &[UNAVAILABLE], |number| {
        let message = json!({"messageId": format!("m{number}"), "role": "ROLE_USER",
            "parts": [{"text": "x".repeat(1_000)}]});
        let body = json!({"jsonrpc": "2.0", "id": number, "method": "SendMessage",
            "params": {"message": message, "configuration": {"returnImmediately": true}}});
        posted("/a2a/echo", "A2A-Version: 1.0\r\n", &body)
    })
}
