//! What it costs to steer: dispatched Runs, commands on small and large Tasks, onlookers, lists.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tenure_core::command::Dispatch;
use tenure_core::command::create::CreateTask;
use tenure_core::id::{CommandId, PoolId, StepId, TaskId};
use tenure_core::patch::Operation;
use tenure_core::status::Policy;
use tenure_sdk::client::Client;
use tenure_sdk::nats::NatsClient;
use uuid::Uuid;

use super::dags;
use super::processes::Cluster;
use super::workload::{Measured, TIMED, median, of};

/// Steps of a small and of a large Task.
const SMALL: usize = 100;
const LARGE: usize = 10_000;

/// Commands of a block; blocks of either kind take turns.
const BLOCK: usize = 250;
const BLOCKS: usize = 8;

/// Time for each command while somebody looks on: enough for all to be told, so that either kind of
/// command finds the machine as the other does.
const PACE: Duration = Duration::from_millis(10);

/// Who looks on.
const ONLOOKERS: usize = 1_000;

/// A Task that is live as long as nobody works in its pool.
async fn idle_task(client: &Client<NatsClient>, id: &str, steps: usize) -> Result<TaskId> {
    let mut input = dags::flat(id, steps)?;
    input.default_worker_pool_id = Some(PoolId::new("nobody")?);
    create(client, input).await
}

async fn create(client: &Client<NatsClient>, input: CreateTask) -> Result<TaskId> {
    let command = CommandId::new(Uuid::now_v7().to_string())?;
    let id = input.task_id.clone().context("it has a name")?;
    client.create_as(command, input).await?;
    Ok(id)
}

/// One Step after another, each by a dispatched Run: from the dispatch until the Run has ended.
pub(super) async fn manual(client: &Client<NatsClient>, count: usize) -> Result<Measured> {
    let mut input = dags::flat("manual", count)?;
    input.dispatch = Some(Policy::Manual);
    for step in &mut input.steps {
        step.worker_pool_id = Some(PoolId::new(TIMED)?);
    }
    let task = create(client, input).await?;
    let mut times = Vec::new();
    for at in 0..count {
        let dispatch = Dispatch {
            allowed_step_ids: Some([StepId::new(format!("s{at}"))?].into_iter().collect()),
            bindings: None,
            instructions: None,
            on_behalf: None,
            ttl_ms: None,
            wait: Some(true),
            worker_pool_id: PoolId::new(TIMED)?,
        };
        let begun = Instant::now();
        client.dispatch(&task, dispatch).await?;
        times.push(begun.elapsed());
    }
    Ok(median(times))
}

/// Changes Steps of a Task, one command after another, and none before the last one's `pace` is over.
async fn commands(
    client: &Client<NatsClient>,
    task: &TaskId,
    steps: usize,
    pace: Duration,
) -> Result<()> {
    for at in 0..BLOCK {
        let next = tokio::time::Instant::now() + pace;
        let operation = serde_json::from_value::<Operation>(serde_json::json!({
            "op": "update_step", "step_id": format!("s{}", at % steps),
            "fields": {"summary": Uuid::now_v7().to_string()},
        }))?;
        client.update(task, vec![operation]).await?;
        tokio::time::sleep_until(next).await;
    }
    Ok(())
}

/// Processor time of the node for commands on a large Task, as a multiple of that on a small one.
pub(super) async fn size(client: &Client<NatsClient>, cluster: &Cluster) -> Result<Measured> {
    let small = idle_task(client, "small", SMALL).await?;
    let large = idle_task(client, "large", LARGE).await?;
    let (mut on_small, mut on_large) = (0.0, 0.0);
    for _ in 0..BLOCKS {
        for (task, steps, spent) in [(&small, SMALL, &mut on_small), (&large, LARGE, &mut on_large)]
        {
            let before = cluster.node_ms()?;
            commands(client, task, steps, Duration::ZERO).await?;
            *spent += cluster.node_ms()? - before;
        }
    }
    Ok(of(on_large / on_small))
}

/// What a thousand onlookers add to the processor time of the node for a command, in percent.
pub(super) async fn watched(client: &Client<NatsClient>, cluster: &Cluster) -> Result<Measured> {
    let [alone, watched] = ["alone", "watched"].map(|id| idle_task(client, id, SMALL));
    let (alone, watched) = (alone.await?, watched.await?);
    let onlookers: FuturesUnordered<_> = (0..ONLOOKERS)
        .map(|_| tokio::task::spawn_local(look_on(client.clone(), watched.clone())))
        .collect();
    tokio::time::sleep(Duration::from_secs(5)).await; // All have read what there was.
    let (mut without, mut with) = (0.0, 0.0);
    for _ in 0..BLOCKS {
        for (task, spent) in [(&alone, &mut without), (&watched, &mut with)] {
            let before = cluster.node_ms()?;
            commands(client, task, SMALL, PACE).await?;
            *spent += cluster.node_ms()? - before;
        }
    }
    client.cancel(&watched, "").await?;
    let seen: Vec<_> = onlookers.collect().await;
    for events in seen {
        let events = events??;
        ensure!(events > BLOCK * BLOCKS, "somebody saw {events} events");
    }
    Ok(of((with / without - 1.0) * 100.0))
}

async fn look_on(client: Client<NatsClient>, task: TaskId) -> Result<usize> {
    let (mut events, mut seen) = (std::pin::pin!(client.events(&task, 0)), 0);
    while let Some(event) = events.next().await {
        event?;
        seen += 1;
    }
    Ok(seen)
}
