//! A worker comes under ever new names, each with a list of sessions of its own and a handler that nobody asked for,
//! and states free slots, while thousands of tasks wait in its pool.

use std::time::Duration;

use anyhow::Result;
use serde_json::{Value as Json, json};
use tenure_tests::cluster::message::write;

use crate::common::asker::{ManyRequests, waiting};
use crate::common::judge::{Attack, Going, Told};
use crate::common::raw::frame;
use crate::common::stage::Stage;
use crate::common::victim::Way;

/// How many Tasks wait in the pool.
const TASKS: usize = 3_000;

/// How many names say hello and goodbye at a time.
const BATCH: usize = 64;

pub(crate) const ATTACK: Attack = Attack {
    name: "strangers",
    is_in_short: false,
    way: Way::Nats,
    refused: None,
    memory_mib: 512,
    run,
};

fn run(stage: &Stage, going: &Going) -> Result<Told> {
    let mut maker = ManyRequests::connect(stage, "orchestrator-2")?;
    let tasks: Vec<Json> = (0..TASKS).map(|n| waiting(&format!("s{n}"), "other")).collect();
    maker.flood(going, 32, tasks.into_iter())?;
    let (mut told, mut client) = (maker.told, stage.raw("worker-2")?);
    client.subscribe("_INBOX.worker.worker-2.>")?;
    let mut round = 0_u64;
    while going.is_on() {
        let mut bytes = Vec::new();
        for n in 0..BATCH {
            let boot = format!("tenure.v1.worker.other.worker-2.b{round}x{n}");
            let sessions: Vec<String> =
                (0..60).map(|k| format!("*o*{round}x{n}x{k}*")).chain(["*o*".into()]).collect();
            let hello = write(&json!({"v": 1, "handlers": ["unknown"], "sessions": sessions}))?;
            bytes.extend(frame(format!("{boot}.hello").as_bytes(), None, None, &hello));
            if round > 0 {
                let before = format!("tenure.v1.worker.other.worker-2.b{}x{n}.bye", round - 1);
                bytes.extend(frame(before.as_bytes(), None, None, &write(&json!({"v": 1}))?));
            }
            told.sent += 1;
        }
        client.send(&bytes)?;
        client.flush()?;
        while client.next(Duration::ZERO)?.is_some() {}
        round += 1;
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(told)
}
