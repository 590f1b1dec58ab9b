//! Hints of changes, for whoever watches: they may get lost, and say where to read (mechanisms 11).
//!
//! The end of a Task is told at once. What happens before is gathered: a Task that changes often is
//! told of ten times a second.

use std::collections::HashMap;
use std::time::Duration;

use async_nats::Client;
use tenure_ports::client::Changed;
use tenure_ports::journal::TaskKey;
use tenure_scheduler::Appended;
use tenure_wire::bus::V;
use tenure_wire::bus::request::Committed;
use tenure_wire::bus::subject::event;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{MissedTickBehavior, interval};

use crate::bus::say;

/// How long changes of a Task are gathered.
const GATHER: Duration = Duration::from_millis(100);

/// Publishes what becomes durable, until the scheduler is gone.
pub(crate) async fn publish(client: Client, mut commits: broadcast::Receiver<Appended>) {
    let mut ticks = interval(GATHER);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut changed: HashMap<TaskKey, u64> = HashMap::new();
    loop {
        tokio::select! {
            appended = commits.recv() => match appended {
                Ok(Appended { task, commit }) => {
                    let change = Changed::of(&task.task_id, &commit);
                    if change.ended.is_some() {
                        changed.remove(&task);
                        tell(&client, &task, change).await;
                    } else {
                        changed.insert(task, change.version);
                    }
                }
                Err(RecvError::Lagged(missed)) => {
                    tracing::debug!(missed, "watchers are told of fewer changes");
                }
                Err(RecvError::Closed) => return,
            },
            _ = ticks.tick(), if !changed.is_empty() => {
                for (task, version) in std::mem::take(&mut changed) {
                    let task_id = task.task_id.clone();
                    tell(&client, &task, Changed { task_id, version, ended: None }).await;
                }
            }
        }
    }
}

async fn tell(client: &Client, task: &TaskKey, change: Changed) {
    let subject = event(&task.session_id, &task.task_id);
    let Changed { version, ended, .. } = change;
    say(client, &subject, &Committed { v: V, version, ended }).await;
}
