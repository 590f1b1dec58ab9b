//! An orchestrator makes a long Task and reads it two hundred times at once, in every way there is.

use anyhow::Result;
use serde_json::{Value as Json, json};

use crate::common::asker::{ManyRequests, query};
use crate::common::judge::{Attack, Going, Told};
use crate::common::stage::Stage;
use crate::common::victim::Way;

/// How many Steps go into a request, and how many requests there are.
const STEPS: (usize, usize) = (6_000, 5);

/// How many reads are under way.
const AT_ONCE: u64 = 200;

pub(crate) const ATTACK: Attack = Attack {
    name: "reads",
    is_in_short: true,
    way: Way::Nats,
    // Reads wait for their turn, and are answered late. Only one that has read more than its budget is refused, which
    // takes a faster machine than the tests may have.
    refused: None,
    memory_mib: 640,
    run,
};

fn run(stage: &Stage, going: &Going) -> Result<Told> {
    let mut asker = ManyRequests::connect(stage, "orchestrator-2")?;
    let steps = |part: usize| -> Vec<Json> {
        let ids = (0..STEPS.0).map(|n| format!("s{part}-{n}"));
        let step = |id: String| {
            json!({"step_id": id, "title": "", "summary": "", "depends_on_step_ids": [], "handler": "exec",
                "worker_pool_id": "other"})
        };
        ids.map(step).collect()
    };
    let first = json!({"task_id": "long", "title": "long", "summary": "", "steps": steps(0)});
    asker.command("task_create", None, &first)?;
    for part in 1..STEPS.1 {
        let add = |step| json!({"op": "add_step", "step": step});
        let operations: Vec<Json> = steps(part).into_iter().map(add).collect();
        asker.command("task_update", Some("long"), &json!({"operations": operations}))?;
    }
    let on_task = |operation, input| query(operation, Some("long"), &input);
    let asks = [
        on_task("task_get", json!({})),
        on_task("explain_task", json!({})),
        on_task("replay_task", json!({})),
        on_task("read_log", json!({"after": 0})),
        on_task("task_query_steps", json!({"limit": 500})),
        on_task("inspect_task", json!({})),
        query("task_views", None, &json!({})),
    ];
    asker.flood(going, AT_ONCE, asks.into_iter().cycle())?;
    Ok(asker.told)
}
