//! An orchestrator has a long task that has ended made again and again: each request has a hundred bytes.

use anyhow::Result;
use serde_json::{Value as Json, json};
use tenure_tests::cluster::client::command;

use crate::common::asker::ManyRequests;
use crate::common::judge::{Attack, Going, Told};
use crate::common::stage::Stage;
use crate::common::victim::Way;

/// How many Steps the Task has: as many as fit into one message.
const STEPS: usize = 8_000;

/// How many requests are under way.
const AT_ONCE: u64 = 64;

pub(crate) const ATTACK: Attack = Attack {
    name: "again",
    is_in_short: false,
    way: Way::Nats,
    refused: Some("unavailable"),
    memory_mib: 1_024,
    run,
};

fn run(stage: &Stage, going: &Going) -> Result<Told> {
    let mut asker = ManyRequests::connect(stage, "orchestrator-2")?;
    let step = |n: usize| json!({"step_id": format!("s{n}"), "title": "", "handler": "noop", "worker_pool_id": "nobody"});
    let steps: Vec<Json> = (0..STEPS).map(step).collect();
    let task = json!({"task_id": "long", "title": "", "summary": "", "steps": steps});
    asker.command("task_create", None, &task)?;
    asker.command("task_cancel", Some("long"), &json!({"reason": {"message": "it is long"}}))?;
    let again = |n: usize| {
        let input = json!({"retry_of": "long", "reason": {"message": "again"}});
        command("retry_task", Some(&format!("a{n}")), &input)
    };
    let all: Vec<Json> = (0..20_000).map(again).collect();
    asker.flood(going, AT_ONCE, all.into_iter())?;
    Ok(asker.told)
}
