//! A program that steers: it gives out Steps one by one, looks at what came back, changes what is
//! left, answers a question, and closes the Task.
//!
//! `TENURE_NATS_URL=nats://127.0.0.1:4222 cargo run -p tenure-sdk --example orchestrator`
//! needs a cluster and the worker of the example `worker`.
#![allow(clippy::print_stdout)]

use anyhow::{Context as _, Result, bail};
use futures::StreamExt as _;
use serde_json::json;
use tenure_core::command::{Complete, Dispatch};
use tenure_core::id::{StepId, TaskId};
use tenure_core::patch::Operation;
use tenure_core::status::{Policy, Role, StepStatus};
use tenure_sdk::client::{Client, Step, Task};
use tenure_sdk::nats::{Connection, NatsClient, Settings};
use tenure_wire::bus::subject::{ClientName, Token, inbox};

/// Gives one Step to a worker, which sees nothing else, and waits until it has let go of it.
async fn give(client: &Client<NatsClient>, task: &TaskId, step: &str) -> Result<StepStatus> {
    let id: StepId = step.parse()?;
    let dispatch = Dispatch {
        allowed_step_ids: Some([id.clone()].into_iter().collect()),
        bindings: None,
        instructions: Some("one Step, and nothing else".into()),
        wait: Some(true),
        worker_pool_id: "default".parse()?,
    };
    client.dispatch(task, dispatch).await?;
    let view = client.get(task).await?;
    let found = view.steps.iter().find(|it| it.spec.step_id == id).context("it is there")?;
    println!("{step}: {}", found.status);
    Ok(found.status)
}

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("TENURE_NATS_URL").unwrap_or_else(|_| "nats://127.0.0.1:4222".into());
    let boot = uuid::Uuid::new_v4().simple().to_string();
    let (principal, boot) = (Token::new("planner")?, Token::new(&boot[..8])?);
    let role = Role::Orchestrator;
    let at = inbox(role, &principal, &boot);
    let connection = Connection::open(&Settings::new(url), at).await?;
    let name = ClientName { role, session: "default".parse()?, principal };
    let client = Client::new(NatsClient::join(connection, &name).await?);

    // Nothing is given out by itself, and the Task ends when this program says so.
    let plan = Task::new("an experiment")
        .with(|input| {
            (input.dispatch, input.completion) = (Some(Policy::Manual), Some(Policy::Manual));
        })
        .step(Step::new("measure").handler("measure"))
        .step(Step::new("choose").handler("choose").after("measure"))
        .step(Step::new("publish").handler("refuse").after("choose"));
    let task = client.create(plan).await?;
    let events = client.events(&task, 0).map(|event| event.map(|event| event.event));
    let events = tokio::spawn(events.collect::<Vec<_>>());

    give(&client, &task, "measure").await?;
    if give(&client, &task, "choose").await? == StepStatus::Blocked {
        client.answer(&task, "choose".parse()?, "2").await?;
        give(&client, &task, "choose").await?;
    }
    if give(&client, &task, "publish").await? == StepStatus::Failed {
        // Nobody can do that: another way, which replaces the rest of the plan.
        let patch: Vec<Operation> = serde_json::from_value(json!([
            {"op": "update_step", "step_id": "publish", "fields": {"required": false}},
            {"op": "add_step", "step": {
                "step_id": "archive", "title": "archive", "summary": "keep the chosen sample",
                "handler": "measure", "depends_on_step_ids": ["choose"],
            }},
        ]))?;
        client.update(&task, patch).await?;
        give(&client, &task, "archive").await?;
    }
    let result =
        Complete { result_summary: Some("sample 2 was kept".into()), ..Complete::default() };
    client.complete(&task, result).await?;
    let ended = client.wait_for_end(&task).await?;
    println!("{task}: {}", ended.status);
    let Some(Ok(last)) = events.await?.pop() else { bail!("the events did not come to an end") };
    println!("the last event: {last}");
    Ok(())
}
