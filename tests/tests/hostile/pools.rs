//! An orchestrator creates tasks whose steps name pools that nobody serves: five thousand in one create, and as many as
//! it may in many, which it cancels and makes again under other names.

use anyhow::{Result, ensure};
use serde_json::{Value as Json, json};

use crate::common::http::ask;
use crate::common::judge::{Attack, Going, Told};
use crate::common::stage::{Stage, token};
use crate::common::victim::Way;

/// The pools of one create that is refused, and of one that is taken.
const POOLS: (usize, usize) = (5_000, 400);

pub(crate) const ATTACK: Attack = Attack {
    name: "pools",
    is_in_short: true,
    way: Way::Nats,
    refused: Some("validation_error"),
    memory_mib: 512,
    run,
};

fn run(stage: &Stage, going: &Going) -> Result<Told> {
    let (mut told, token) = (Told::default(), token("attacker"));
    let mut say = |path: &str, body: &Json| -> Result<()> {
        told.sent += 1;
        let (_, answer) = ask(stage.http, Some(&token), "POST", path, Some(body))?;
        let code = serde_json::from_str::<Json>(&answer)
            .ok()
            .and_then(|it| Some(it["code"].as_str()?.to_owned()));
        told.note(code.unwrap_or_else(|| "ok".to_owned()));
        Ok(())
    };
    let mut round = 0;
    while going.is_on() {
        round += 1;
        say("/v1/sessions/other/tasks", &task(&format!("many-{round}"), POOLS.0))?;
        let id = format!("some-{round}");
        say("/v1/sessions/other/tasks", &task(&id, POOLS.1))?;
        say(&format!("/v1/sessions/other/tasks/{id}/cancel"), &json!({"wait": false}))?;
        // Whoever looks at pools gets an answer.
        let (status, pools) =
            ask(stage.http, Some(&token), "GET", "/v1/pools?session=other", None)?;
        ensure!(status == 200 && pools.contains("\"pools\""), "{status} {pools:.200}");
    }
    Ok(told)
}

/// A task with a step for each of so many pools that no other task names.
fn task(id: &str, pools: usize) -> Json {
    let step = |n: usize| {
        let name = format!("s{n}");
        json!({"step_id": name, "title": "", "handler": "noop", "worker_pool_id": format!("{id}-{n}")})
    };
    let steps: Vec<Json> = (0..pools).map(step).collect();
    json!({"task_id": id, "title": "", "summary": "", "steps": steps})
}
