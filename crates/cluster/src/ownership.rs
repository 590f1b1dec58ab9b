//! Who owns which partition.
//!
//! A partition is held by a lease in Redis, renewed on a thread and a connection of its own, so that a
//! busy node does not lose what it owns. The lease only says who tries: what fences is the owner
//! record in the stream (mechanisms 3). While Redis is away everybody keeps what he has, as nobody
//! can take it.
//!
//! Which node should have a partition is decided by rendezvous hashing over the live nodes: a node
//! that joins is handed its share by those that have it, and of several that see a lease end the
//! first in that order takes it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use redis::Script;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use crate::journal::JetStreamJournal;

/// How a node keeps its partitions.
#[derive(Debug, Clone)]
pub struct Options {
    /// Address of Redis.
    pub redis: String,
    /// What begins all keys.
    pub name: String,
    /// This boot of this node: no other has the same.
    pub node: String,
    /// How long a partition stays with a node that says nothing.
    pub lease: Duration,
    /// How often a node says something.
    pub every: Duration,
}

impl Options {
    /// A lease of 1.5 s, renewed every 400 ms.
    pub fn new(redis: impl Into<String>, node: impl Into<String>) -> Self {
        Self {
            redis: redis.into(),
            name: "tenure".into(),
            node: node.into(),
            lease: Duration::from_millis(1_500),
            every: Duration::from_millis(400),
        }
    }
}

/// Polls in which a lease must be seen to have ended before the first in order takes it.
const ENDED_POLLS: usize = 2;

/// Polls in which a better owner must have been alive before it is handed a partition.
const SETTLED_POLLS: usize = 4;

/// Keeps the partitions of a node: takes those that are its, leaves those that are not.
#[derive(Debug)]
pub struct Keeper {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    stops: AtomicBool,
    /// Whether to hand everything over first.
    hands_over: AtomicBool,
    /// Until when ownership is certain: nobody can have taken anything before.
    certain_until: Mutex<Option<Instant>>,
}

impl Keeper {
    /// Starts to keep partitions for this node. The journal is told what to take and to leave.
    ///
    /// # Errors
    /// The address of Redis is none, or there is no thread to be had.
    pub fn start(options: Options, journal: Arc<JetStreamJournal>) -> Result<Self, String> {
        let client = redis::Client::open(options.redis.as_str()).map_err(|e| e.to_string())?;
        let shared = Arc::new(Shared {
            stops: AtomicBool::new(false),
            hands_over: AtomicBool::new(false),
            certain_until: Mutex::default(),
        });
        let (orders, mut ordered) = mpsc::unbounded_channel();
        let carried_out = Arc::clone(&journal);
        let taking: Arc<Mutex<BTreeSet<u32>>> = Arc::default();
        let begun = Arc::clone(&taking);
        tokio::spawn(async move {
            while let Some(partition) = ordered.recv().await {
                // Each on its own: one that is slow to be read holds up no other.
                tokio::spawn(take(Arc::clone(&carried_out), partition, Arc::clone(&begun)));
            }
        });
        let partitions = journal.owned().partitions();
        let node = options.node.clone();
        let keeping = Keeping {
            journal,
            shared: Arc::clone(&shared),
            orders,
            partitions,
            mine: BTreeSet::new(),
            taking,
            sure_since: None,
            ended: BTreeMap::new(),
            settled: BTreeMap::new(),
            options,
        };
        let thread = std::thread::Builder::new().name(format!("own-{node}"));
        let thread = thread.spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            match runtime {
                Ok(runtime) => runtime.block_on(keeping.run(client)),
                Err(error) => tracing::error!(%error, "nobody keeps the partitions of this node"),
            }
        });
        let thread = thread.map_err(|error| error.to_string())?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Whether no other node can have taken a partition of this one by now.
    pub fn is_certain(&self) -> bool {
        self.shared.certain_until.lock().is_some_and(|until| Instant::now() < until)
    }

    /// Hands every partition to the node that comes next, and ends.
    pub async fn hand_over(&self) {
        self.shared.hands_over.store(true, Ordering::Release);
        self.shared.stops.store(true, Ordering::Release);
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            let _ = tokio::task::spawn_blocking(move || thread.join()).await; // It may have panicked.
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.shared.stops.store(true, Ordering::Release);
    }
}

async fn take(journal: Arc<JetStreamJournal>, partition: u32, taking: Arc<Mutex<BTreeSet<u32>>>) {
    match journal.take(partition).await {
        Ok(epoch) => tracing::info!(partition, epoch, "partition taken"),
        Err(error) => tracing::warn!(partition, %error, "partition not taken"),
    }
    taking.lock().remove(&partition);
}

struct Keeping {
    options: Options,
    journal: Arc<JetStreamJournal>,
    shared: Arc<Shared>,
    /// Partitions that the node is to take: each is asked for once at a time.
    orders: mpsc::UnboundedSender<u32>,
    partitions: u32,
    /// Partitions whose lease is this node's, as of the last answer.
    mine: BTreeSet<u32>,
    /// Those that are being taken.
    taking: Arc<Mutex<BTreeSet<u32>>>,
    /// Since when Redis has answered without a break: what it says of others counts after a lease.
    sure_since: Option<Instant>,
    /// In how many polls the lease of a partition was seen to have ended.
    ended: BTreeMap<u32, usize>,
    /// In how many polls another node was the better owner.
    settled: BTreeMap<u32, usize>,
}

/// What a poll answers.
type Polled = (Vec<String>, Vec<String>);

impl Keeping {
    async fn run(mut self, client: redis::Client) {
        let script = Script::new(include_str!("own.lua"));
        let mut redis = None;
        let mut ticks = interval(self.options.every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut changes = Vec::new();
        loop {
            ticks.tick().await;
            if self.shared.stops.load(Ordering::Acquire) {
                break;
            }
            let begun = Instant::now();
            match self.poll(&script, &client, &mut redis, true, &changes).await {
                Ok(polled) => {
                    self.sure_since.get_or_insert(begun);
                    changes = self.judge(&polled);
                    *self.shared.certain_until.lock() = Some(begun + self.options.lease);
                }
                Err(error) => {
                    self.sure_since = None;
                    self.ended.clear();
                    tracing::warn!(%error, "redis does not say who owns what; nothing changes hands");
                    changes = Vec::new();
                }
            }
        }
        if self.shared.hands_over.load(Ordering::Acquire) {
            self.give_everything(&script, &client, &mut redis).await;
        }
    }

    async fn poll(
        &self,
        script: &Script,
        client: &redis::Client,
        redis: &mut Option<ConnectionManager>,
        lives: bool,
        changes: &[Change],
    ) -> Result<Polled, String> {
        let wait = self.options.every;
        let connection = match redis {
            Some(connection) => connection,
            none => {
                let config = ConnectionManagerConfig::new()
                    .set_number_of_retries(1)
                    .set_max_delay(Duration::from_millis(100))
                    .set_connection_timeout(Some(wait))
                    .set_response_timeout(Some(wait));
                let connected = ConnectionManager::new_with_config(client.clone(), config);
                let connected = timeout(3 * wait, connected).await.map_err(|_| "no answer")?;
                none.insert(connected.map_err(|error| error.to_string())?)
            }
        };
        let key = |what: &str| format!("{}:{{own}}:{what}", self.options.name);
        let mut call = script.prepare_invoke();
        call.key(key("nodes")).key(key("owners")).key(key("ends"));
        let lease = self.options.lease.as_millis().to_string();
        call.arg(&self.options.node).arg(lease).arg(self.partitions);
        call.arg(if lives { "lives" } else { "leaves" });
        let kept = self.mine.iter().filter(|&&p| !changes.iter().any(|change| change.of() == p));
        for &partition in kept {
            call.arg("r").arg(partition);
        }
        for change in changes {
            match change {
                Change::Take(partition) => call.arg("t").arg(partition),
                Change::LetGo(partition) => call.arg("-").arg(partition),
                Change::Give(partition, to) => call.arg("g").arg(partition).arg(to),
            };
        }
        match timeout(wait, call.invoke_async(connection)).await {
            Ok(answer) => answer.map_err(|error| error.to_string()),
            Err(_) => Err("no answer in time".into()),
        }
    }

    /// Does what the answer means, and says what to ask for in the next poll.
    fn judge(&mut self, (nodes, owners): &Polled) -> Vec<Change> {
        let me = self.options.node.clone();
        let mut changes = Vec::new();
        for (partition, pair) in (0..).zip(owners.chunks_exact(2)) {
            let (owner, left) = (&pair[0], pair[1].parse().unwrap_or(0_u64));
            if *owner == me {
                self.keep(partition);
            } else if self.mine.remove(&partition)
                || self.journal.owned().epoch(partition).is_some()
            {
                tracing::warn!(partition, owner, "another node has the partition");
                self.journal.leave(partition);
            }
            let order = by_rank(nodes, partition);
            let rank = order.iter().position(|node| **node == me).unwrap_or(order.len());
            let is_sure = self.sure_since.is_some_and(|s| s.elapsed() >= self.options.lease);
            let has_ended = is_sure && (owner.is_empty() || left == 0);
            let seen = count(&mut self.ended, partition, has_ended);
            if has_ended && seen >= ENDED_POLLS + rank {
                changes.push(Change::Take(partition));
            }
            let should_go = *owner == me && rank > 0;
            let seen = count(&mut self.settled, partition, should_go);
            let gives = changes.iter().any(|change| matches!(change, Change::Give(..)));
            if should_go && seen >= SETTLED_POLLS && !gives {
                // One at a time: each is without service for a moment.
                self.mine.remove(&partition);
                self.journal.leave(partition);
                changes.push(Change::Give(partition, order[0].clone()));
            }
        }
        changes
    }

    /// The lease is this node's: has the journal take the partition, if it has not.
    fn keep(&mut self, partition: u32) {
        self.mine.insert(partition);
        let is_taken = self.journal.owned().epoch(partition).is_some();
        if !is_taken && self.taking.lock().insert(partition) {
            let _ = self.orders.send(partition); // The node may be ending.
        }
    }

    async fn give_everything(
        &mut self,
        script: &Script,
        client: &redis::Client,
        redis: &mut Option<ConnectionManager>,
    ) {
        let polled = self.poll(script, client, redis, true, &[]).await;
        let (nodes, owners) = polled.unwrap_or_default();
        let me = &self.options.node;
        let mine = (0..).zip(owners.chunks_exact(2)).filter(|(_, pair)| pair[0] == *me);
        let mine: Vec<u32> = mine.map(|(partition, _)| partition).collect();
        let others: Vec<String> =
            nodes.into_iter().filter(|node| *node != self.options.node).collect();
        let mut changes = Vec::new();
        (0..self.partitions).for_each(|partition| self.journal.leave(partition));
        self.mine.clear();
        for partition in mine {
            changes.push(match by_rank(&others, partition).first() {
                Some(next) => Change::Give(partition, (*next).clone()),
                None => Change::LetGo(partition),
            });
        }
        if let Err(error) = self.poll(script, client, redis, false, &changes).await {
            tracing::warn!(%error, "partitions could not be handed over; their leases run out");
        }
    }
}

/// Something to ask for in a poll.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Change {
    Take(u32),
    LetGo(u32),
    Give(u32, String),
}

impl Change {
    fn of(&self) -> u32 {
        match self {
            Self::Take(partition) | Self::LetGo(partition) | Self::Give(partition, _) => *partition,
        }
    }
}

/// Counts polls in a row in which something held.
fn count(counts: &mut BTreeMap<u32, usize>, partition: u32, holds: bool) -> usize {
    let count = counts.entry(partition).or_default();
    *count = if holds { *count + 1 } else { 0 };
    *count
}

/// Nodes in the order in which they should have a partition: the highest hash of both first.
fn by_rank(nodes: &[String], partition: u32) -> Vec<&String> {
    let weight = |node: &String| {
        let bytes = node.bytes().chain([0]).chain(partition.to_le_bytes());
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        // FNV leaves neighbours alike in their high bits: mixed once more, every bit counts.
        let mixed = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        mixed ^ (mixed >> 33)
    };
    let mut order: Vec<&String> = nodes.iter().collect();
    order.sort_by_key(|node| (std::cmp::Reverse(weight(node)), *node));
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every node gets a share, and a node that goes leaves the others where they are.
    #[test]
    fn partitions_are_spread_and_stay() {
        let nodes: Vec<String> = (0..4).map(|n| format!("node-{n}")).collect();
        let first = |nodes: &[String]| -> Vec<String> {
            (0..64).map(|partition| by_rank(nodes, partition)[0].clone()).collect()
        };
        let all = first(&nodes);
        for node in &nodes {
            let share = all.iter().filter(|owner| *owner == node).count();
            assert!((6..=28).contains(&share), "{node} has {share} of 64");
        }
        let without = first(&nodes[..3]);
        for (before, after) in all.iter().zip(&without) {
            assert!(before == after || *before == nodes[3], "only what it had moves");
        }
    }
}
