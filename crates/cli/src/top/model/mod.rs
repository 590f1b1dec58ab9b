//! The model of a cluster: the last answers of its nodes, and what earlier ones add to them.
//!
//! It takes answers and gives [`TopSnapshot`]s; it reads no clock.

mod rates;
#[cfg(test)]
mod tests;
mod workers;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use smol_str::SmolStr;
use tenure_core::id::{Millis, SessionId};
use tenure_core::{Counts, Rejection};
use tenure_sdk::nats::client::Gather;
use tenure_wire::bus::operate::{LeaseRow, NodeFacts};

use self::rates::{BootCounts, ms};
use self::workers::LastWorkers;
use super::snapshot::{
    AttemptRow, LongestAttempts, NodeRow, NodeState, PoolRow, Rates, TopSnapshot,
};
use crate::pool;

/// How long to show a node that no longer answers, though others do.
const NODE_KEPT: Duration = Duration::from_secs(60);

/// How many Attempts to show.
const ATTEMPTS_MAX: usize = 200;

/// The model of a cluster.
#[derive(Debug)]
pub(super) struct Model {
    address: String,
    session: SessionId,
    /// The last answers, and when they came.
    heard: Option<(Gather<NodeFacts>, Instant)>,
    trouble: Option<String>,
    nodes: BTreeMap<SmolStr, NodeBoot>,
    workers: LastWorkers,
    leases: Option<(Gather<LeaseRow>, Instant)>,
    leases_trouble: Option<String>,
}

/// A boot of a node, with its last answer.
#[derive(Debug)]
struct NodeBoot {
    counted: BootCounts,
    owned: Vec<u32>,
    tasks: Option<u64>,
}

impl Model {
    /// The model of a cluster that has not answered yet.
    pub(super) fn new(address: impl Into<String>, session: SessionId) -> Self {
        Self {
            address: address.into(),
            session,
            heard: None,
            trouble: None,
            nodes: BTreeMap::new(),
            workers: LastWorkers::default(),
            leases: None,
            leases_trouble: None,
        }
    }

    /// Takes the answers of nodes.
    pub(super) fn note_nodes(&mut self, heard: Gather<NodeFacts>, now: Instant) {
        for facts in &heard.answers {
            let before = self.nodes.get(&facts.node).map(|node| &node.counted);
            let counted = BootCounts::after(before, facts, now);
            let (owned, tasks) = (facts.owned.clone(), facts.tasks);
            self.nodes.insert(facts.node.clone(), NodeBoot { counted, owned, tasks });
        }
        self.nodes.retain(|_, node| now - node.counted.heard < NODE_KEPT);
        self.workers.note(&heard, now);
        self.heard = Some((heard, now));
        self.trouble = None;
    }

    /// Notes why no node has answered.
    pub(super) fn note_silence(&mut self, why: String) {
        self.trouble = Some(why);
    }

    /// Takes the Attempts that were claimed first, or why there is no answer.
    pub(super) fn note_leases(
        &mut self,
        leases: Result<Gather<LeaseRow>, Rejection>,
        now: Instant,
    ) {
        match leases {
            Ok(leases) => (self.leases, self.leases_trouble) = (Some((leases, now)), None),
            Err(silence) => self.leases_trouble = Some(silence.message),
        }
    }

    /// Whether nodes have answered, and why not if they have not.
    pub(super) fn is_heard(&self) -> Result<(), &str> {
        match (&self.heard, &self.trouble) {
            (Some(_), _) => Ok(()),
            (None, trouble) => Err(trouble.as_deref().unwrap_or("no node has answered")),
        }
    }

    /// Whether everything is there: two answers, so that there are rates, and the Attempts.
    pub(super) fn is_whole(&self) -> bool {
        let has_rates = self.nodes.values().any(|node| node.counted.rates.is_some());
        let has_none = self
            .heard
            .as_ref()
            .is_some_and(|(heard, _)| heard.answers.iter().all(|node| node.counts.is_none()));
        let has_attempts = self.leases.is_some() || self.leases_trouble.is_some();
        (has_rates || has_none) && has_attempts
    }

    /// The snapshot at this moment; `clock` is the time of this machine.
    pub(super) fn snapshot(&self, now: Instant, clock: Millis) -> TopSnapshot {
        let answers = self.heard.as_ref().map_or(&[][..], |(heard, _)| &heard.answers);
        let (missing, partitions) = self.partitions();
        let rates = self.present().filter_map(|(_, node)| node.counted.rates);
        TopSnapshot {
            address: self.address.clone(),
            session: self.session.clone(),
            at: clock,
            age_ms: self.heard.as_ref().map(|(_, then)| ms(now - *then)),
            trouble: self.trouble.clone(),
            partitions,
            missing_partitions: missing,
            more_workers: answers.iter().any(|node| node.more),
            waits: self.heard.as_ref().and_then(|(heard, _)| pool::waits(heard)),
            tasks: answers.iter().filter_map(|node| node.tasks).sum(),
            counts: answers
                .iter()
                .filter_map(|node| node.counts)
                .fold(Counts::default(), Counts::plus),
            rates: rates.reduce(Rates::plus),
            nodes: self.node_rows(now),
            pools: self.pool_rows(),
            workers: self.workers.rows(now),
            attempts: self.attempts(now, clock),
        }
    }

    fn partitions(&self) -> (Vec<u32>, u32) {
        let Some((heard, _)) = &self.heard else { return (Vec::new(), 0) };
        let partitions = heard.answers.iter().map(|node| node.partitions).max().unwrap_or_default();
        (heard.missing_partitions.clone(), partitions)
    }

    /// Nodes that answered the last request.
    fn present(&self) -> impl Iterator<Item = (&SmolStr, &NodeBoot)> {
        let last = self.heard.as_ref().map(|(_, then)| *then);
        self.nodes.iter().filter(move |(_, node)| Some(node.counted.heard) == last)
    }

    /// The rows of nodes, silent ones first.
    fn node_rows(&self, now: Instant) -> Vec<NodeRow> {
        let last = self.heard.as_ref().map(|(_, then)| *then);
        let mut rows: Vec<NodeRow> = self
            .nodes
            .iter()
            .map(|(name, node)| {
                let is_here = self.trouble.is_none() && Some(node.counted.heard) == last;
                NodeRow {
                    node: name.clone(),
                    state: if is_here { NodeState::Here } else { NodeState::Silent },
                    age_ms: ms(now - node.counted.heard),
                    owned: node.owned.clone(),
                    tasks: node.tasks,
                    rates: node.counted.rates.filter(|_| is_here),
                }
            })
            .collect();
        rows.extend(self.missed());
        rows.sort_by_key(|row| row.state == NodeState::Here);
        rows
    }

    /// Nodes that have never answered here, and that other nodes call silent.
    fn missed(&self) -> Vec<NodeRow> {
        let Some((heard, _)) = &self.heard else { return Vec::new() };
        let mut missed: BTreeMap<&SmolStr, u64> = BTreeMap::new();
        for silent in heard.answers.iter().flat_map(|node| &node.silent) {
            let longest = missed.entry(&silent.node).or_default();
            *longest = silent.silent_ms.max(*longest);
        }
        let unknown = missed.into_iter().filter(|(name, _)| !self.nodes.contains_key(*name));
        let row = |(name, age_ms): (&SmolStr, u64)| NodeRow {
            node: name.clone(),
            state: NodeState::Silent,
            age_ms,
            owned: Vec::new(),
            tasks: None,
            rates: None,
        };
        unknown.map(row).collect()
    }

    /// The rows of pools, the worst first: those with waiting Steps and no worker, then those that
    /// have waited longest.
    fn pool_rows(&self) -> Vec<PoolRow> {
        let Some((heard, _)) = &self.heard else { return Vec::new() };
        let merged = pool::merged(heard);
        let mut rows: Vec<PoolRow> = merged
            .into_iter()
            .map(|(pool, facts)| {
                let steps = self.present().filter_map(|(_, node)| node.counted.steps.get(&pool));
                PoolRow {
                    steps_per_s: steps.copied().reduce(|a, b| a + b),
                    pool,
                    workers: facts.workers as u64,
                    free: facts.free,
                    waiting: facts.waiting,
                    oldest_ms: facts.oldest_ms,
                    longest: facts.longest,
                    running: facts.running,
                }
            })
            .collect();
        rows.sort_by_key(|row| {
            let is_stuck = row.waiting > 0 && row.workers == 0;
            (!is_stuck, Reverse(row.oldest_ms), Reverse(row.waiting))
        });
        rows
    }

    fn attempts(&self, now: Instant, clock: Millis) -> LongestAttempts {
        let trouble = self.leases_trouble.clone();
        let Some((leases, asked)) = &self.leases else {
            return LongestAttempts { trouble, ..LongestAttempts::default() };
        };
        let clock = self.clock_of_nodes(*asked).unwrap_or(clock);
        let mut oldest: Vec<AttemptRow> =
            leases.answers.iter().filter_map(|row| attempt(row, clock)).collect();
        oldest.sort_by_key(|row| (row.started_at, row.attempt_id));
        oldest.truncate(ATTEMPTS_MAX);
        let missing_partitions = leases.missing_partitions.clone();
        LongestAttempts { age_ms: Some(ms(now - *asked)), trouble, missing_partitions, oldest }
    }

    /// The time on the clock of the nodes, by which Attempts begin.
    fn clock_of_nodes(&self, when: Instant) -> Option<Millis> {
        let (heard, then) = self.heard.as_ref()?;
        let at = heard.answers.iter().filter_map(|node| node.at).max()?;
        let (later, sooner) = (when.duration_since(*then), then.duration_since(when));
        Some(at.saturating_add_unsigned(ms(later)).saturating_sub_unsigned(ms(sooner)))
    }
}

/// The row of an Attempt; none if it has just ended.
fn attempt(row: &LeaseRow, clock: Millis) -> Option<AttemptRow> {
    let open = row.open.as_ref()?;
    Some(AttemptRow {
        task_id: row.task_id.clone(),
        step_id: open.step_id.clone(),
        ordinal: open.ordinal,
        worker_id: open.worker_id.clone(),
        attempt_id: row.attempt_id,
        started_at: open.started_at,
        running_ms: u64::try_from(clock.saturating_sub(open.started_at)).unwrap_or_default(),
        left_ms: row.left_ms,
    })
}
