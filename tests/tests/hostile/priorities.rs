//! An orchestrator makes tasks for the victim's pool that no worker there can run, each with a priority of its own.

use anyhow::Result;
use serde_json::json;

use crate::common::asker::ManyRequests;
use crate::common::judge::{Attack, Going, Told};
use crate::common::stage::Stage;
use crate::common::victim::Way;

/// How many Tasks it makes.
const TASKS: usize = 3_000;

pub(crate) const ATTACK: Attack = Attack {
    name: "priorities",
    is_in_short: false,
    way: Way::Nats,
    refused: None,
    memory_mib: 512,
    run,
};

fn run(stage: &Stage, going: &Going) -> Result<Told> {
    let mut maker = ManyRequests::connect(stage, "orchestrator-2")?;
    let tasks: Vec<_> = (0..TASKS).map(|n| made(&format!("p{n}"), n)).collect();
    maker.flood(going, 32, tasks.into_iter())?;
    while going.is_on() {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    Ok(maker.told)
}

fn made(id: &str, priority: usize) -> serde_json::Value {
    let step = json!({"step_id": "a", "title": "", "handler": "nobody-has-this"});
    let task =
        json!({"task_id": id, "title": "", "summary": "", "priority": priority, "steps": [step]});
    tenure_tests::cluster::client::command("task_create", None, &task)
}
