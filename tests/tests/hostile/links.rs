//! A worker is as many workers as it can be: it says hello under ever more names of boot, and speaks often enough
//! that no link of it ends.

use std::time::Duration;

use anyhow::Result;
use tenure_tests::cluster::message::{Answer, write};

use crate::common::judge::{Attack, Going, Told};
use crate::common::raw::frame;
use crate::common::stage::Stage;
use crate::common::victim::Way;

/// More than one principal may have.
const BOOTS: usize = 20_000;

/// Hellos that are sent at a time.
const BATCH: usize = 250;

pub(crate) const ATTACK: Attack = Attack {
    name: "links",
    is_in_short: true,
    way: Way::Nats,
    refused: Some("unavailable"),
    memory_mib: 1_024,
    run,
};

fn run(stage: &Stage, going: &Going) -> Result<Told> {
    let (mut told, mut client) = (Told::default(), stage.raw("worker-2")?);
    client.subscribe("_INBOX.worker.worker-2.>")?;
    let hello = write(&serde_json::json!({"v": 1}))?;
    let mut boots = (0..BOOTS).cycle();
    while going.is_on() {
        let mut bytes = Vec::new();
        for boot in boots.by_ref().take(BATCH) {
            told.sent += 1;
            let subject = format!("tenure.v1.worker.other.worker-2.b{boot}.hello");
            bytes.extend(frame(subject.as_bytes(), None, None, &hello));
        }
        client.send(&bytes)?;
        client.flush()?;
        while let Some(message) = client.next(Duration::ZERO)? {
            if let Ok(Answer::Refused(refusal)) = Answer::read(&message.payload) {
                told.note(refusal.code);
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(told)
}
