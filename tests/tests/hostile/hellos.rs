//! A worker says hello as fast as it can, each time under another name of boot.

use std::time::Duration;

use anyhow::Result;
use tenure_tests::cluster::message::{Answer, write};

use crate::common::judge::{Attack, Going, Told};
use crate::common::raw::frame;
use crate::common::stage::Stage;
use crate::common::victim::Way;

/// Hellos that are sent at a time.
const BATCH: u64 = 500;

pub(crate) const ATTACK: Attack = Attack {
    name: "hellos",
    is_in_short: true,
    way: Way::Nats,
    refused: Some("unavailable"),
    memory_mib: 512,
    run,
};

fn run(stage: &Stage, going: &Going) -> Result<Told> {
    let (mut told, mut client) = (Told::default(), stage.raw("worker-2")?);
    let hello = write(&serde_json::json!({"v": 1}))?;
    // Whatever it is told, under whatever name, it learns.
    client.subscribe("_INBOX.worker.worker-2.>")?;
    while going.is_on() {
        let mut bytes = Vec::new();
        for _ in 0..BATCH {
            told.sent += 1;
            let name = format!("tenure.v1.worker.other.worker-2.b{}.hello", told.sent);
            bytes.extend(frame(name.as_bytes(), None, None, &hello));
        }
        client.send(&bytes)?;
        client.flush()?;
        while let Some(message) = client.next(Duration::ZERO)? {
            if let Ok(Answer::Refused(refusal)) = Answer::read(&message.payload) {
                told.note(refusal.code);
            }
        }
    }
    Ok(told)
}
