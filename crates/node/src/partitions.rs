//! What a node does when it takes or leaves a partition: it subscribes to the partition's subjects
//! and resumes its live Tasks, or ends both.
//!
//! Step 3 of the walk in docs/architecture.md.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::{Client, Subscriber};
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::bus::{ListenError, listen, listen_as_one};
use crate::gate::Gate;
use crate::intake::{WaitingMessages, hear};
use crate::node::spawn;
use crate::published::tell_past;
use crate::rival;

/// How long a subscription that ends may take to deliver what was sent to it before.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// The partitions that a node serves.
pub(crate) struct Partitions {
    gate: Arc<Gate>,
    /// Each with its epoch, and the guard that ends its subscriptions.
    served: HashMap<u32, (u64, DropGuard)>,
    /// Why the others cannot be served.
    unanswered: UnansweredPartitions,
}

/// Partitions to whose subjects the node cannot subscribe, each with the last reason.
#[derive(Debug, Default)]
struct UnansweredPartitions(HashMap<u32, String>);

impl UnansweredPartitions {
    /// Logs the reason, unless it was logged and has not changed.
    fn note(&mut self, partition: u32, why: &str) {
        if self.replace(partition, why) {
            tracing::warn!(
                partition,
                why,
                "a partition of this node cannot be listened to and is not served; it is tried again each \
                 second"
            );
        }
    }

    /// Stores the reason of a partition. Answers whether it has changed.
    fn replace(&mut self, partition: u32, why: &str) -> bool {
        self.0.insert(partition, why.to_owned()).as_deref() != Some(why)
    }
}

impl Partitions {
    pub(crate) fn new(gate: Arc<Gate>) -> Self {
        Self { gate, served: HashMap::new(), unanswered: UnansweredPartitions::default() }
    }

    /// Leaves the partitions that this node no longer owns, and serves the others.
    pub(crate) async fn follow(&mut self) {
        let owned: HashMap<u32, u64> = self.gate.fence.journal.owned().all().into_iter().collect();
        let is_over = |at: &u32, epoch: &u64| owned.get(at) != Some(epoch);
        let over = self.served.iter().filter(|(at, (epoch, _))| is_over(at, epoch));
        let over: Vec<(u32, u64)> = over.map(|(at, (epoch, _))| (*at, *epoch)).collect();
        for (partition, epoch) in over {
            self.served.remove(&partition);
            self.gate.served.lock().remove(&partition);
            self.gate.scheduler.leave(partition, Some(epoch)).await;
            tracing::info!(partition, "partition left");
        }
        self.unanswered.0.retain(|partition, _| owned.contains_key(partition));
        for (partition, epoch) in owned {
            if !self.served.contains_key(&partition) {
                self.serve(partition, epoch).await;
            }
        }
    }

    async fn serve(&mut self, partition: u32, epoch: u64) {
        let begun = Instant::now();
        let ends = CancellationToken::new();
        // If one subscription fails, the others end too.
        let guard = ends.clone().drop_guard();
        if let Err(error) = self.listen_to(partition, &ends).await {
            // The owner answers nothing before it receives requests: the next call tries again.
            self.unanswered.note(partition, &error.to_string());
            return;
        }
        self.unanswered.0.remove(&partition);
        self.served.insert(partition, (epoch, guard));
        self.gate.served.lock().insert(partition);
        // So that callers that wait for an owner learn of it at once.
        self.gate.announces.notify_one();
        match self.gate.scheduler.resume(partition).await {
            Ok(live) => {
                tracing::info!(partition, epoch, live, "partition served");
                if let Some(observer) = self.gate.scheduler.observer() {
                    observer.took_over(begun.elapsed());
                }
                spawn(&ends, tell_past(Arc::clone(&self.gate), partition, epoch));
            }
            Err(error) => tracing::error!(partition, %error, "live tasks cannot be found"),
        }
    }

    async fn listen_to(&self, partition: u32, ends: &CancellationToken) -> Result<(), ListenError> {
        let gate = &self.gate;
        let root = gate.cluster.root();
        for verb in ["report", "claim"] {
            let subject = format!("{root}.worker.*.*.*.{verb}.{partition}");
            attend(gate, listen(&gate.reports, subject).await?, ends);
        }
        for verb in ["query", "look", "blob"] {
            let subject = format!("{root}.worker.*.*.*.{verb}.{partition}");
            attend(gate, listen(&gate.lookups, subject).await?, ends);
        }
        for role in ["orchestrator", "observer"] {
            for verb in ["cmd", "import"] {
                let subject = format!("{root}.{role}.*.*.{verb}.{partition}");
                attend(gate, listen(&gate.intake, subject).await?, ends);
            }
        }
        let asked = listen(&gate.control, rival::subject(&gate.cluster, partition)).await?;
        spawn(ends, rival::hear(Arc::clone(gate), partition, asked));
        let nodes = format!("{root}.system.*.*.cmd.{partition}");
        attend(gate, listen(&gate.control, nodes).await?, ends);
        Ok(())
    }
}

/// Subscribes to the subjects that every node serves.
pub(crate) async fn listen_to_all(
    gate: &Arc<Gate>,
    ends: &CancellationToken,
) -> Result<(), ListenError> {
    let root = gate.cluster.root();
    let (own, output) = (format!("node.{}", gate.node), format!("output.{}", gate.node));
    for verb in ["hello", "bye", "hb", &own, &output] {
        attend(gate, listen(&gate.control, format!("{root}.worker.*.*.*.{verb}")).await?, ends);
    }
    for role in ["orchestrator", "observer"] {
        let subject = format!("{root}.{role}.*.*.hello");
        attend(gate, listen_as_one(&gate.intake, subject).await?, ends);
        for verb in ["nodes", "drain"] {
            let subject = format!("{root}.{role}.*.*.{verb}");
            attend(gate, listen(&gate.intake, subject).await?, ends);
        }
    }
    Ok(())
}

/// Handles messages; those of one sender in their order. After `ends` it still handles what had been sent here before,
/// so that these callers learn at once that another node has the partition.
fn attend(gate: &Arc<Gate>, mut messages: Subscriber, ends: &CancellationToken) {
    let (gate, ends) = (Arc::clone(gate), ends.clone());
    spawn(&CancellationToken::new(), async move {
        let mut waiting = WaitingMessages::new(Arc::clone(&gate.waiting));
        let ended = ends.run_until_cancelled(hear(&gate, &mut messages, &mut waiting)).await;
        if ended.is_none() && messages.drain().await.is_ok() {
            // The server may be gone.
            let _ = timeout(LAST_WORDS, hear(&gate, &mut messages, &mut waiting)).await;
        }
    });
}

/// Makes sure that what was sent has reached the server. Answers whether it did in time.
pub(crate) async fn settle(client: &Client) -> bool {
    matches!(timeout(Duration::from_secs(1), client.flush()).await, Ok(Ok(())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A failure to subscribe is logged once, until its reason changes.
    #[test]
    fn what_cannot_be_listened_to_is_said_once() {
        let mut unanswered = UnansweredPartitions::default();
        let said = [(1, "away"), (1, "away"), (2, "away"), (1, "refused"), (1, "refused")]
            .map(|(partition, why)| unanswered.replace(partition, why));
        assert_eq!(said, [true, false, true, true, false]);
        unanswered.0.remove(&1);
        assert!(unanswered.replace(1, "refused"), "it was listened to meanwhile");
    }
}
