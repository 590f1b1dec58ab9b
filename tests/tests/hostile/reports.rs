//! A worker sends reports of nearly a megabyte as fast as it can. It holds no Step, and each is refused.

use std::time::Duration;

use anyhow::Result;
use serde_json::json;
use tenure_tests::cluster::message::{Answer, write};

use crate::common::judge::{Attack, Going, Told};
use crate::common::raw::frame;
use crate::common::stage::Stage;
use crate::common::victim::Way;

pub(crate) const ATTACK: Attack = Attack {
    name: "reports",
    is_in_short: true,
    way: Way::Nats,
    refused: Some("unavailable"),
    memory_mib: 768,
    run,
};

/// Where answers go.
const INBOX: &str = "_INBOX.worker.worker-2.reports";

/// As many of them are more than its part of the bytes, however long the attack is.
const MANY: u64 = 3_000;

/// Bytes of a report.
const BYTES: usize = 900 << 10;

fn run(stage: &Stage, going: &Going) -> Result<Told> {
    let (mut told, mut client) = (Told::default(), stage.raw("worker-2")?);
    client.subscribe(&format!("{INBOX}.>"))?;
    let nobody = "00000000-0000-7000-8000-000000000000";
    let report = json!({"session_id": "other", "task_id": "t", "run_id": nobody, "operation": "end_run",
        "input": {"outcome": "finished", "result": "x".repeat(BYTES)}});
    let message = write(&json!({"v": 1, "reports": [report]}))?;
    let subject = b"tenure.v1.worker.other.worker-2.reports.report.0";
    let reply = format!("{INBOX}.r");
    let one = frame(subject, Some(reply.as_bytes()), None, &message);
    while going.is_on() {
        client.send(&one)?;
        told.sent += 1;
        if told.sent.is_multiple_of(16) {
            client.flush()?;
        }
        while let Some(message) = client.next(Duration::ZERO)? {
            if let Ok(Answer::Refused(refusal)) = Answer::read(&message.payload) {
                told.note(refusal.code);
            }
        }
    }
    told.is_too_slow = told.sent < MANY;
    Ok(told)
}
