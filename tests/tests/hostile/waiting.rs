//! An orchestrator makes thousands of tasks in the pool of the victim, and no worker there has a handler for any of
//! their steps. Each worker is asked once for each of them, and they wait.

use anyhow::Result;
use serde_json::{Value as Json, json};

use crate::common::asker::ManyRequests;
use crate::common::judge::{Attack, Going, Told};
use crate::common::stage::{LOOK, SESSION_TASKS, Stage};
use crate::common::victim::Way;

/// How many names of handlers there are.
const HANDLERS: usize = 300;

/// How many creates are under way.
const AT_ONCE: u64 = 64;

pub(crate) const ATTACK: Attack = Attack {
    name: "waiting",
    is_in_short: true,
    way: Way::Nats,
    // Its session may have no more of them.
    refused: Some("quota_exceeded"),
    memory_mib: 512,
    run,
};

fn run(stage: &Stage, going: &Going) -> Result<Told> {
    let mut asker = ManyRequests::connect(stage, "orchestrator-2")?;
    // They are there soon, and what they cost from then on is what counts.
    asker.flood(going, AT_ONCE, (0..SESSION_TASKS).map(create))?;
    for number in SESSION_TASKS.. {
        if !going.is_on() {
            break;
        }
        asker.flood(going, 1, std::iter::once(create(number)))?;
        std::thread::sleep(LOOK);
    }
    asker.told.is_too_slow = asker.told.sent <= SESSION_TASKS as u64;
    Ok(asker.told)
}

/// The creation of a task with two steps, which may begin at once.
fn create(number: usize) -> Json {
    let step = |id: &str, handler: usize| {
        json!({"step_id": id, "title": "", "summary": "", "depends_on_step_ids": [],
            "handler": format!("nobody-{}", handler % HANDLERS)})
    };
    let steps = [step("a", number), step("b", number / HANDLERS + 1)];
    let id = format!("w{number}");
    let input = json!({"task_id": id, "title": "w", "summary": "", "steps": steps,
        "default_worker_pool_id": "default"});
    json!({"v": 1, "command_id": id, "operation": "task_create", "input": input})
}
