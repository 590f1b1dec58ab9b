//! An observer asks for all workers and pools of a node as fast as it can, while thousands of tasks wait there.

use std::time::Duration;

use anyhow::Result;
use serde_json::{Value as Json, json};
use tenure_tests::cluster::message::{Answer, write};

use crate::common::asker::{ManyRequests, waiting};
use crate::common::judge::{Attack, Going, Told};
use crate::common::raw::frame;
use crate::common::stage::Stage;
use crate::common::victim::Way;

/// How many Tasks wait.
const TASKS: usize = 3_000;

/// How many questions are sent at a time.
const BATCH: usize = 200;

pub(crate) const ATTACK: Attack = Attack {
    name: "nodes",
    is_in_short: false,
    way: Way::Nats,
    refused: None,
    memory_mib: 512,
    run,
};

fn run(stage: &Stage, going: &Going) -> Result<Told> {
    let mut maker = ManyRequests::connect(stage, "orchestrator-2")?;
    let tasks: Vec<Json> = (0..TASKS).map(|n| waiting(&format!("n{n}"), "nobody")).collect();
    maker.flood(going, 32, tasks.into_iter())?;
    let (mut told, mut client) = (maker.told, stage.raw("observer-2")?);
    client.subscribe("_INBOX.observer.observer-2.>")?;
    let question = write(&json!({"v": 1}))?;
    let subject = b"tenure.v1.observer.other.observer-2.nodes";
    let one = frame(subject, Some(b"_INBOX.observer.observer-2.n"), None, &question);
    while going.is_on() {
        client.send(&one.repeat(BATCH))?;
        told.sent += BATCH as u64;
        client.flush()?;
        while let Some(message) = client.next(Duration::ZERO)? {
            match Answer::read(&message.payload) {
                Ok(Answer::Refused(refusal)) => told.note(refusal.code),
                Ok(_) => told.note("done"),
                Err(_) => told.note("unreadable"),
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(told)
}
