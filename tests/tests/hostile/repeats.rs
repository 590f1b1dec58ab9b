//! An orchestrator repeats one command that waits, as fast as it can, and listens to no answer but the refusals.

use std::time::Duration;

use anyhow::Result;
use serde_json::json;
use tenure_tests::cluster::message::{Answer, write};

use crate::common::judge::{Attack, Going, Told};
use crate::common::raw::frame;
use crate::common::stage::Stage;
use crate::common::victim::Way;

pub(crate) const ATTACK: Attack = Attack {
    name: "repeats",
    is_in_short: true,
    way: Way::Nats,
    refused: Some("unavailable"),
    memory_mib: 512,
    run,
};

/// Where answers go.
const INBOX: &str = "_INBOX.orchestrator.orchestrator-2.repeats";

/// Repetitions that are sent at a time.
const BATCH: usize = 500;

fn run(stage: &Stage, going: &Going) -> Result<Told> {
    let (mut told, mut client) = (Told::default(), stage.raw("orchestrator-2")?);
    client.subscribe(&format!("{INBOX}.>"))?;
    let subject = b"tenure.v1.orchestrator.other.orchestrator-2.cmd.0";
    let step = json!({"step_id": "a", "title": "a", "summary": "", "depends_on_step_ids": []});
    let input = json!({"task_id": "repeats", "title": "r", "summary": "", "steps": [step], "dispatch": "manual",
        "completion": "manual", "default_worker_pool_id": "nobody"});
    let create =
        write(&json!({"v": 1, "command_id": "c", "operation": "task_create", "input": input}))?;
    client.send(&frame(subject, Some(format!("{INBOX}.create").as_bytes()), None, &create))?;
    let made = client.next(Duration::from_secs(10))?;
    anyhow::ensure!(made.is_some(), "the task is not made");
    let input = json!({"worker_pool_id": "nobody", "wait": true});
    let command = json!({"v": 1, "task_id": "repeats", "command_id": "d", "operation": "dispatch_worker",
        "input": input});
    let waits = write(&command)?;
    let one = frame(subject, Some(format!("{INBOX}.wait").as_bytes()), None, &waits);
    let batch = one.repeat(BATCH);
    while going.is_on() {
        client.send(&batch)?;
        client.flush()?;
        told.sent += BATCH as u64;
        while let Some(message) = client.next(Duration::ZERO)? {
            if let Ok(Answer::Refused(refusal)) = Answer::read(&message.payload) {
                told.note(refusal.code);
            }
        }
    }
    Ok(told)
}
