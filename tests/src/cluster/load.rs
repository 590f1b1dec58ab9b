//! Clients that never stop making Tasks, change some of them, and cancel some.

use std::time::Duration;

use anyhow::Result;
use serde_json::json;

use super::callers::Callers;
use super::client::Client;
use super::tasks::{exec, noop, sleep, task};

/// Commands that are unanswered at a time.
const CALLERS: u64 = 6;

/// How long a command is repeated before that counts as a fault.
const PATIENCE: Duration = Duration::from_secs(60);

/// A load that runs.
#[derive(Debug)]
pub struct Load(Callers);

impl Load {
    /// Begins. Each caller waits so long between two Tasks.
    pub fn start(client: &Client, pause: Duration) -> Self {
        Self::patient(client, pause, PATIENCE)
    }

    /// Begins, with callers that repeat a command for so long.
    pub fn patient(client: &Client, pause: Duration, patience: Duration) -> Self {
        Self(Callers::start(CALLERS, |caller| {
            let client = client.clone();
            async move {
                while let Some(number) = caller.next() {
                    make(&client, number, patience).await?;
                    tokio::time::sleep(pause).await;
                }
                Ok(())
            }
        }))
    }

    /// Ends: every command that was begun is answered for good.
    ///
    /// # Errors
    /// One was not, or was refused.
    pub fn finish(self) -> Result<()> {
        self.0.finish()
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
