//! Clients that never stop making Tasks, and cancel some of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
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
        let ends = Arc::new(AtomicBool::new(false));
        let number = Arc::new(AtomicU64::new(0));
        let callers = (0..CALLERS).map(|_| {
            let (client, ends, number) = (client.clone(), Arc::clone(&ends), Arc::clone(&number));
            runtime().spawn(async move {
                while !ends.load(Ordering::Acquire) {
                    make(&client, number.fetch_add(1, Ordering::Relaxed)).await?;
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

/// Most Tasks are two Steps, some run a command, and some are cancelled while they wait.
async fn make(client: &Client, number: u64) -> Result<()> {
    let id = format!("load-{number}");
    let steps = match number % 8 {
        0 => vec![exec("a", &[], "true"), noop("b", &["a"])],
        1 => vec![sleep("a", &[], 60_000), noop("b", &["a"])],
        _ => vec![noop("a", &[]), sleep("b", &["a"], 5)],
    };
    client.make(&task(&id, &steps), PATIENCE).await?;
    if number % 8 == 1 {
        client.drop_task(&id, PATIENCE).await?;
    }
    Ok(())
}
