//! Clients that never stop making Tasks, change some of them, and cancel some.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::json;
use tokio::task::JoinHandle;

use super::client::{Client, runtime, wait};
use super::tasks::{exec, noop, sleep, task};

/// Commands that are unanswered at a time.
const CALLERS: u64 = 6;

/// How long a command is repeated before that counts as a fault.
const PATIENCE: Duration = Duration::from_secs(60);

/// A load that runs.
#[derive(Debug)]
pub struct Load {
    ends: Arc<AtomicBool>,
    callers: Vec<JoinHandle<Result<()>>>,
}

impl Load {
    /// Begins. Each caller waits so long between two Tasks.
    pub fn start(client: &Client, pause: Duration) -> Self {
        Self::patient(client, pause, PATIENCE)
    }

    /// Begins, with callers that repeat a command for so long.
    pub fn patient(client: &Client, pause: Duration, patience: Duration) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let number = Arc::new(AtomicU64::new(0));
        let callers = (0..CALLERS).map(|_| {
            let (client, ends, number) = (client.clone(), Arc::clone(&ends), Arc::clone(&number));
            runtime().spawn(async move {
                while !ends.load(Ordering::Acquire) {
                    make(&client, number.fetch_add(1, Ordering::Relaxed), patience).await?;
                    tokio::time::sleep(pause).await;
                }
                Ok(())
            })
        });
        let callers = callers.collect();
        Self { ends, callers }
    }

    /// Ends: every command that was begun is answered for good.
    ///
    /// # Errors
    /// One was not, or was refused.
    pub fn finish(self) -> Result<()> {
        self.ends.store(true, Ordering::Release);
        for caller in self.callers {
            wait(caller).context("a caller of the load")??;
        }
        Ok(())
    }
}

/// Most Tasks are two Steps. Some run a command, some get their second Step by a patch, some are
/// changed and cancelled while they wait; of some the log is read long before they end.
async fn make(client: &Client, number: u64, patience: Duration) -> Result<()> {
    let id = format!("load-{number}");
    let steps = match number % 8 {
        0 => vec![exec("a", &[], "true"), noop("b", &["a"])],
        1 => vec![sleep("a", &[], 60_000), noop("b", &["a"])],
        2 => vec![noop("a", &[])],
        _ => vec![noop("a", &[]), sleep("b", &["a"], 5)],
    };
    let mut input = task(&id, &steps);
    input["draft"] = json!(number % 8 == 2);
    client.make(&input, patience).await?;
    match number % 8 {
        1 => {
            let progress = json!({"progress": {"summary": "it waits"}});
            client.change(&id, "append_task_progress", &progress, patience).await?;
            add(client, &id, "c", patience).await?;
            client.read_log(&id, patience).await?;
            client.drop_task(&id, patience).await
        }
        2 => {
            add(client, &id, "b", patience).await?;
            client.change(&id, "submit_task", &json!({}), patience).await?;
            client.read_log(&id, patience).await.map(|_| ())
        }
        _ => Ok(()),
    }
}

/// Adds a Step behind the first by a patch.
async fn add(client: &Client, task: &str, step: &str, patience: Duration) -> Result<()> {
    let patch = json!({"operations": [{"op": "add_step", "step": noop(step, &["a"])}]});
    client.change(task, "task_update", &patch, patience).await
}
