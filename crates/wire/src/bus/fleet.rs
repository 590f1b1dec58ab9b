//! Adds up what all nodes say of their pools and workers. A worker has a link with every node, so several
//! answers name it: it counts once.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use tenure_core::id::PoolId;
use tenure_core::sessions::{SessionPattern, WorkerSessions};

use super::operate::{NodeFacts, PoolFacts, SuspendedFacts, WaitFacts};

/// A pool, with the sums over all nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PoolSums {
    /// Its workers.
    pub workers: usize,
    /// Steps and Runs that they would take now.
    pub free: u64,
    /// Steps and Runs that wait for one of them.
    pub waiting: u64,
    /// How long the Step that has waited longest of those next in line has been ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_ms: Option<u64>,
    /// Open Attempts; absent if no node reports them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<u64>,
    /// Of the Steps of the session the one that has waited longest of those next in line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest: Option<WaitFacts>,
    /// The sessions that its workers serve (DISP-20); absent: all, or there is no worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions: Option<Vec<SessionPattern>>,
}

/// A worker, with the sums over all nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerSums {
    /// Its pool.
    pub pool: PoolId,
    /// Its principal.
    pub principal: SmolStr,
    /// Its boot id.
    pub boot: SmolStr,
    /// Steps and Runs that it would take now.
    pub free: u64,
    /// Steps and Runs that it was sent and has not acknowledged.
    pub unheard: u64,
    /// Milliseconds since its last message to any node.
    pub silent_ms: u64,
    /// Whether an operator told it to take no more Steps.
    pub draining: bool,
    /// The sessions that it serves (DISP-20); absent: all.
    #[serde(default, skip_serializing_if = "WorkerSessions::is_all")]
    pub sessions: WorkerSessions,
    /// The suspension, if a node gives it nothing for a while because it fails what others complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended: Option<SuspendedFacts>,
    /// Open Attempts that it holds; absent if no node reports them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<u64>,
    /// The nodes with which it has a link.
    pub nodes: Vec<SmolStr>,
}

/// Every pool once.
pub fn pools(nodes: &[NodeFacts]) -> BTreeMap<PoolId, PoolSums> {
    let mut pools: BTreeMap<PoolId, PoolSums> = BTreeMap::new();
    let mut named: BTreeMap<&PoolId, BTreeSet<_>> = BTreeMap::new();
    for node in nodes {
        for pool in &node.pools {
            let sums = pools.entry(pool.pool.clone()).or_default();
            // First, as it looks whether earlier nodes have named workers.
            sums.sessions = served(sums, pool);
            // A node may know how many there are, and not their names.
            sums.workers = sums.workers.max(usize::try_from(pool.workers).unwrap_or(usize::MAX));
            sums.free += pool.free;
            sums.waiting += pool.waiting;
            sums.oldest_ms = sums.oldest_ms.max(pool.oldest_ms);
            sums.running = sum(sums.running, pool.running);
            let both = sums.longest.take().into_iter().chain(pool.longest.clone());
            sums.longest = both.max_by_key(|step| step.ready_ms);
        }
        for seen in &node.workers {
            named.entry(&seen.pool).or_default().insert((&seen.principal, &seen.boot));
        }
    }
    for (pool, of) in named {
        let sums = pools.entry(pool.clone()).or_default();
        sums.workers = sums.workers.max(of.len());
    }
    pools
}

/// The sessions that the workers of a pool serve, by this node and by those before it. A node without workers says
/// nothing of them.
fn served(before: &PoolSums, node: &PoolFacts) -> Option<Vec<SessionPattern>> {
    let (known, more) = (&before.sessions, &node.sessions);
    match (before.workers, node.workers) {
        (_, 0) => known.clone(),
        (0, _) => more.clone(),
        _ => {
            let both: BTreeSet<_> = known.as_ref()?.iter().chain(more.as_ref()?).cloned().collect();
            Some(both.into_iter().collect())
        }
    }
}

/// Every worker once, in the order of pools and names.
pub fn workers(nodes: &[NodeFacts]) -> Vec<WorkerSums> {
    let mut all: BTreeMap<(PoolId, SmolStr, SmolStr), WorkerSums> = BTreeMap::new();
    for node in nodes {
        for seen in &node.workers {
            let name = (seen.pool.clone(), seen.principal.clone(), seen.boot.clone());
            let worker = all.entry(name.clone()).or_insert_with(|| unseen(name));
            worker.free += seen.free;
            worker.unheard += seen.unheard;
            worker.silent_ms = worker.silent_ms.min(seen.silent_ms);
            worker.draining |= seen.draining;
            worker.sessions = seen.sessions.clone(); // It says the same to every node.
            let both = worker.suspended.take().into_iter().chain(seen.suspended.clone());
            worker.suspended = both.max_by_key(|it| it.again_ms);
            worker.running = sum(worker.running, seen.holds);
            worker.nodes.push(node.node.clone());
        }
    }
    let mut all: Vec<WorkerSums> = all.into_values().collect();
    all.iter_mut().for_each(|worker| worker.nodes.sort_unstable());
    all
}

/// A worker of which no node has said anything yet.
fn unseen((pool, principal, boot): (PoolId, SmolStr, SmolStr)) -> WorkerSums {
    WorkerSums {
        pool,
        principal,
        boot,
        free: 0,
        unheard: 0,
        silent_ms: u64::MAX,
        draining: false,
        sessions: WorkerSessions::ALL,
        suspended: None,
        running: None,
        nodes: Vec::new(),
    }
}

/// The sum of two optional counts; a missing one does not count.
fn sum(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one + other),
        (known, None) | (None, known) => known,
    }
}
