//! An observer asks for lists of all Tasks, forty at a time, of which many have ended and have titles of 60 KB.

use anyhow::Result;
use serde_json::json;
use tenure_tests::cluster::tasks::noop;

use crate::common::asker::{ManyRequests, query};
use crate::common::judge::{Attack, Going, Told};
use crate::common::stage::Stage;
use crate::common::victim::Way;

/// How many Tasks there are.
const TASKS: usize = 200;

/// How many lists are under way.
const AT_ONCE: u64 = 40;

pub(crate) const ATTACK: Attack = Attack {
    name: "lists",
    is_in_short: true,
    way: Way::Nats,
    // As with `reads`: it is served in its turns.
    refused: None,
    memory_mib: 512,
    run,
};

fn run(stage: &Stage, going: &Going) -> Result<Told> {
    let mut maker = ManyRequests::connect(stage, "orchestrator-2")?;
    let title = "t".repeat(60_000);
    for n in 0..TASKS {
        if !going.is_on() {
            break;
        }
        let id = format!("t{n}");
        let task = json!({"task_id": id, "title": title, "summary": "", "steps": [noop("a", &[])]});
        maker.command("task_create", None, &task)?;
    }
    let mut asker = ManyRequests::connect(stage, "observer-2")?;
    let asks = [
        query("list_index", None, &json!({"include_terminal": true})),
        query("task_list", None, &json!({"include_terminal": true, "limit": 500})),
        query("task_views", None, &json!({})),
        query("task_get", Some("t-that-does-not-exist"), &json!({})),
    ];
    asker.flood(going, AT_ONCE, asks.into_iter().cycle())?;
    asker.told.sent += maker.told.sent;
    Ok(asker.told)
}
