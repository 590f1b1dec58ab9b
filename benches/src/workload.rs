//! What is measured, and what it has to reach.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, ensure};
use clap::ValueEnum;
use tenure::embedded::{Embedded, LocalWorkers};
use tenure_core::command::create::CreateTask;
use tenure_core::status::TaskStatus;
use tenure_ports::journal::TaskKey;
use tenure_sdk::worker::Handlers;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::dags;

/// Submits that are unanswered at a time, where many Tasks are made.
const SUBMITS: usize = 256;

/// A workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Workload {
    /// One Task of 20,000 independent Steps.
    Flat,
    /// 20,000 Tasks of one Step.
    Tasks,
    /// 200 graphs of 1 + 50 + 1 Steps at once.
    Graphs,
    /// A lone Task of one Step, create to completed.
    Lone,
    /// A chain of 1,000 Steps.
    Chain,
    /// Creating a Task of 100,000 Steps and 200,000 edges.
    Create,
    /// One Task of 1,000 independent Steps, per Step.
    Small,
    /// One Task of 100,000 independent Steps, per Step.
    Large,
}

impl Workload {
    pub(crate) const ALL: &'static [Self] = &[
        Self::Flat,
        Self::Tasks,
        Self::Graphs,
        Self::Lone,
        Self::Chain,
        Self::Create,
        Self::Small,
        Self::Large,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Flat => "flat",
            Self::Tasks => "tasks",
            Self::Graphs => "graphs",
            Self::Lone => "lone",
            Self::Chain => "chain",
            Self::Create => "create",
            Self::Small => "small",
            Self::Large => "large",
        }
    }

    /// Unit, what must be reached, and the goal.
    pub(crate) fn target(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Flat => ("steps/s", ">= 50000", "120000"),
            Self::Tasks => ("tasks/s", ">= 7000", "10000"),
            Self::Graphs => ("nodes/s", ">= 25000", "50000"),
            Self::Lone => ("ms (p50)", "<= 1.0", "0.6"),
            Self::Chain => ("ms/step", "<= 0.4", "0.28"),
            Self::Create => ("s", "< 2", "-"),
            Self::Small => ("us/step", "-", "-"),
            Self::Large => ("us/step", "<= 1.3 x small", "-"),
        }
    }

    pub(crate) async fn run(self, data: &Path, workers: usize) -> Result<f64> {
        let node = Arc::new(Embedded::open(data).await?);
        let pool = node.work(Handlers::new().with_builtins(data.join("files"))?, workers)?;
        warm_up(&node).await?;
        let figure = self.measure(&node, &pool).await?;
        drop(pool);
        node.scheduler().stop().await;
        Ok(figure)
    }

    async fn measure(self, node: &Arc<Embedded>, _: &LocalWorkers) -> Result<f64> {
        match self {
            Self::Flat => rate(20_000, one(node, dags::flat("flat", 20_000)?).await?),
            Self::Tasks => tasks(node, 20_000).await,
            Self::Graphs => graphs(node, 200).await,
            Self::Lone => lone(node, 500).await,
            Self::Chain => Ok(one(node, dags::chain("chain", 1_000)?).await?),
            Self::Create => create(node).await,
            Self::Small => Ok(one(node, dags::flat("small", 1_000)?).await? * 1e3),
            Self::Large => Ok(one(node, dags::flat("large", 100_000)?).await? * 1e3 / 100.0),
        }
    }
}

#[allow(clippy::cast_precision_loss)]
fn rate(count: usize, seconds: f64) -> Result<f64> {
    Ok(count as f64 / seconds)
}

/// Makes a Task and waits for its end, in seconds.
async fn one(node: &Embedded, input: CreateTask) -> Result<f64> {
    let started = Instant::now();
    let key = node.create("bench", input).await?;
    completed(node, &key).await?;
    Ok(started.elapsed().as_secs_f64())
}

async fn completed(node: &Embedded, key: &TaskKey) -> Result<()> {
    node.scheduler().wait_for_end(key).await?;
    Ok(())
}

/// The first Task of a process pays for files and actors that later ones find made.
async fn warm_up(node: &Embedded) -> Result<()> {
    let key = node.create("bench", dags::flat("warm-up", 200)?).await?;
    completed(node, &key).await?;
    let status = node.scheduler().read(&key, |task| task.head().status).await?;
    ensure!(status == TaskStatus::Completed, "the warm-up ended {status}");
    Ok(())
}

async fn tasks(node: &Arc<Embedded>, count: usize) -> Result<f64> {
    let started = Instant::now();
    submit_all(node, (0..count).map(|i| dags::flat(&format!("t{i}"), 1))).await?;
    rate(count, started.elapsed().as_secs_f64())
}

async fn graphs(node: &Arc<Embedded>, count: usize) -> Result<f64> {
    let inputs = (0..count).map(|i| dags::fan(&format!("g{i}"), 50)).collect::<Vec<_>>();
    let started = Instant::now();
    submit_all(node, inputs.into_iter()).await?;
    rate(count * 52, started.elapsed().as_secs_f64())
}

/// Makes Tasks, so many unanswered at a time, and waits for the end of all.
async fn submit_all(
    node: &Arc<Embedded>,
    inputs: impl Iterator<Item = Result<CreateTask>>,
) -> Result<()> {
    let unanswered = Arc::new(Semaphore::new(SUBMITS));
    let mut running = JoinSet::new();
    for input in inputs {
        let (input, permit) = (input?, Arc::clone(&unanswered).acquire_owned().await?);
        let node = Arc::clone(node);
        running.spawn(async move {
            let key = node.create("bench", input).await?;
            drop(permit);
            completed(&node, &key).await
        });
        while let Some(ended) = running.try_join_next() {
            ended??;
        }
    }
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    Ok(())
}

async fn lone(node: &Embedded, count: usize) -> Result<f64> {
    let mut times = Vec::new();
    for i in 0..count {
        times.push(one(node, dags::flat(&format!("lone{i}"), 1)?).await? * 1e3);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

async fn create(node: &Embedded) -> Result<f64> {
    let input = CreateTask { draft: Some(true), ..dags::woven("woven", 100_000)? };
    let started = Instant::now();
    node.create("bench", input).await?;
    Ok(started.elapsed().as_secs_f64())
}
