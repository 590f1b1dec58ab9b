//! A plan that is steered: Steps are given out one by one, what came back is looked at, what is left is
//! changed, a question is answered, and the Task is closed. The same over NATS and in process.
#![allow(clippy::print_stdout)]

use std::error::Error;

use futures::StreamExt as _;
use serde_json::json;
use tenure_sdk::ClientPort;
use tenure_sdk::client::{Client, Step, Task};
use tenure_sdk::command::{Complete, Dispatch};
use tenure_sdk::id::{StepId, TaskId};
use tenure_sdk::patch::Operation;
use tenure_sdk::status::StepStatus;

/// Gives one Step to a worker, which sees nothing else, and waits until it has let go of it.
async fn give<P: ClientPort>(
    client: &Client<P>,
    task: &TaskId,
    step: &str,
) -> Result<StepStatus, Box<dyn Error>> {
    let id: StepId = step.parse()?;
    let dispatch = Dispatch {
        allowed_step_ids: Some(vec![id.clone()]),
        instructions: Some("one Step, and nothing else".into()),
        wait: Some(true),
        ..Dispatch::to("default".parse()?)
    };
    client.dispatch(task, dispatch).await?;
    let view = client.get(task).await?;
    let found = view.steps.iter().find(|it| it.spec.step_id == id).ok_or("it is not there")?;
    println!("{step}: {}", found.status);
    Ok(found.status)
}

/// Carries the plan out; answers the last event of its Task.
pub(crate) async fn steer<P: ClientPort>(client: &Client<P>) -> Result<String, Box<dyn Error>> {
    // Nothing is given out by itself, and the Task ends when this program says so.
    let plan = Task::new("an experiment")
        .by_agent()
        .step(Step::new("measure").handler("measure"))
        .step(Step::new("choose").handler("choose").after("measure"))
        .step(Step::new("publish").handler("refuse").after("choose"));
    let task = client.create(plan).await?;
    let events = client.events(&task, 0).map(|event| event.map(|event| event.event));
    let events = tokio::spawn(events.collect::<Vec<_>>());

    give(client, &task, "measure").await?;
    if give(client, &task, "choose").await? == StepStatus::Blocked {
        client.answer(&task, "choose".parse()?, "2").await?;
        give(client, &task, "choose").await?;
    }
    if give(client, &task, "publish").await? == StepStatus::Failed {
        // Nobody can do that: another way, which replaces the rest of the plan.
        let patch: Vec<Operation> = serde_json::from_value(json!([
            {"op": "update_step", "step_id": "publish", "fields": {"required": false}},
            {"op": "add_step", "step": {
                "step_id": "archive", "title": "archive", "summary": "keep the chosen sample",
                "handler": "measure", "depends_on_step_ids": ["choose"],
            }},
        ]))?;
        client.update(&task, patch).await?;
        give(client, &task, "archive").await?;
    }
    let result =
        Complete { result_summary: Some("sample 2 was kept".into()), ..Complete::default() };
    client.complete(&task, result).await?;
    let ended = client.wait_for_end(&task).await?;
    println!("{task}: {}", ended.status);
    let last = events.await?.pop().ok_or("there are events")??;
    println!("the last event: {last}");
    Ok(last.to_string())
}
