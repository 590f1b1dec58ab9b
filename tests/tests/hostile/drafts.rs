//! An orchestrator makes drafts of nearly a megabyte as fast as it can, and never looks at them again.

use std::time::Duration;

use anyhow::Result;
use serde_json::{Value as Json, json};
use tenure_tests::cluster::message::{Answer, write};

use crate::common::judge::{Attack, Going, Told};
use crate::common::raw::frame;
use crate::common::stage::Stage;
use crate::common::victim::Way;

pub(crate) const ATTACK: Attack = Attack {
    name: "drafts",
    is_in_short: true,
    way: Way::Nats,
    // It is told `unavailable` as soon as it is over its rate of creates. Where it gets too little of the processor for
    // that, all it makes is taken.
    refused: None,
    // A gigabyte of Tasks may be in memory, and what is about to be written.
    memory_mib: 1_792,
    run,
};

/// Where answers go.
const INBOX: &str = "_INBOX.orchestrator.orchestrator-2.drafts";

/// Steps of a draft, with 60,000 bytes each.
const STEPS: usize = 15;

fn draft(number: u64) -> Json {
    let data = "x".repeat(60_000);
    let step = |n: usize| json!({"step_id": format!("s{n}"), "title": "s", "summary": data, "depends_on_step_ids": []});
    let steps: Vec<Json> = (0..STEPS).map(step).collect();
    let id = format!("draft-{number}");
    let input = json!({"task_id": id, "title": "d", "summary": "", "draft": true, "steps": steps});
    json!({"v": 1, "command_id": id, "operation": "task_create", "input": input})
}

fn run(stage: &Stage, going: &Going) -> Result<Told> {
    let (mut told, mut client) = (Told::default(), stage.raw("orchestrator-2")?);
    client.subscribe(&format!("{INBOX}.>"))?;
    while going.is_on() {
        let message = write(&draft(told.sent))?;
        let reply = format!("{INBOX}.{}", told.sent);
        let subject = b"tenure.v1.orchestrator.other.orchestrator-2.cmd.0";
        client.send(&frame(subject, Some(reply.as_bytes()), None, &message))?;
        client.flush()?;
        told.sent += 1;
        while let Some(message) = client.next(Duration::ZERO)? {
            match Answer::read(&message.payload) {
                Ok(Answer::Refused(refusal)) => told.note(refusal.code),
                Ok(_) => told.note("ok"),
                Err(_) => told.note("none"),
            }
        }
    }
    Ok(told)
}
