//! The thread that renews a node's leases on partitions, and decides which ones it takes and gives away.

mod clock;
mod features;
mod log;
mod request;
mod silent;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::FutureExt as _;
use redis::Script;
use tenure_core::features::Features;
use tenure_core::id::Millis;
use tenure_ports::downtime::{Downtime, DowntimeEnd};
use tenure_ports::observer::{Called, LeaseCall};
use tenure_ports::supervise::guard;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use self::request::PollRequest;
pub(super) use self::silent::SilentNodes;
pub(crate) use self::silent::{SILENT, is_replaced};
use super::fitness::NodeFitness;
use super::rank::Ranking;
use super::takings::{SETTLE, Takings};
use super::{KeeperShared, OwnershipOptions};
use crate::clock::since_boot;
use crate::journal::JetStreamJournal;
use crate::redis_at::{RedisClient, RedisConnection};
use crate::request::{RequestError, within};

/// In how many polls a lease must be seen to have ended before the first node in order takes it.
const ENDED_POLLS: usize = 2;

/// In how many polls a better owner must have been alive before it is given a partition.
const SETTLED_POLLS: usize = 4;

/// After so many leases' time a node counts as cut off if no log answers it, or if it does not look at the
/// answers. The connection finds another NATS server sooner than that, if there is one; and one stream
/// without a leader does not count.
const SILENT_LEASES: u32 = 3;

/// How far the clock of a node that takes partitions may differ from Redis'.
const APART: Duration = Duration::from_secs(5);

/// How long a rehearsal of a poll may take.
const REHEARSAL: Duration = Duration::from_secs(2);

/// How many polls of a node that is ending may fail before it ends without having given its partitions
/// away.
const LAST_POLLS_FAILED: usize = 3;

/// What the script's keys are called, in its order.
const KEYS: [&str; 8] =
    ["nodes", "owners", "ends", "failures", "features", "acknowledged", "features_of_logs", SILENT];

/// The error text for a Redis that does not answer.
const LATE: &str = "no answer in time";

fn script() -> Script {
    Script::new(include_str!("own.lua"))
}

/// Whether the script may run, and write. Under keys of its own, a node `doctor` announces itself, takes a
/// partition, lets it go, and leaves.
pub(crate) async fn rehearse(redis: &mut RedisConnection, name: &str) -> Result<(), RequestError> {
    let script = script();
    for what in ["lives", "leaves"] {
        let mut call = script.prepare_invoke();
        for key in KEYS {
            call.key(format!("{name}:{{doctor}}:{key}"));
        }
        call.arg("doctor").arg(1).arg(1).arg(what).arg("").arg("");
        call.arg(0); // How far its one partition was acknowledged.
        call.arg("t").arg(0).arg("-").arg(0);
        within(REHEARSAL, LATE, call.invoke_async::<Polled>(redis)).await?;
    }
    Ok(())
}

pub(super) struct Keeping {
    options: OwnershipOptions,
    journal: Arc<JetStreamJournal>,
    shared: Arc<KeeperShared>,
    script: Script,
    redis: Option<RedisConnection>,
    partitions: u32,
    /// Partitions whose lease this node has, as of the last answer.
    mine: BTreeSet<u32>,
    takings: Takings,
    /// Partitions that are being given away, and to whom: their leases are renewed until their appends have
    /// returned.
    leaving: BTreeMap<u32, Option<String>>,
    settling: JoinSet<u32>,
    /// Since when Redis has answered without a break: after a lease's time its word on other nodes counts.
    sure_since: Option<Instant>,
    /// Whether Redis does not answer, and how often it did not. This is logged once, and once more when it answers
    /// again.
    away: Downtime,
    /// In how many polls the lease of a partition was seen to have ended.
    ended: BTreeMap<u32, usize>,
    /// In how many polls another node was the better owner.
    settled: BTreeMap<u32, usize>,
    /// In how many polls all live nodes had a feature that the log of a partition may not hold yet.
    richer: BTreeMap<u32, usize>,
    /// In how many polls this node was cut off from the log, and others were not.
    outlived: usize,
    /// The node is ending: it gives everything away, and takes nothing any more.
    ends: bool,
    /// Whether this node should have partitions.
    fitness: NodeFitness,
}

/// The answer to a poll: live nodes; owners with the rest of their leases; who could not take what; Redis'
/// time; the features of each live node; how far each partition's log was acknowledged to any node; the
/// features that logs may hold; and who was given up and had not left, each with when.
type Polled = (
    Vec<String>,
    Vec<String>,
    Vec<String>,
    Millis,
    Vec<String>,
    Vec<u64>,
    Vec<String>,
    Vec<String>,
);

/// The reason for a poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// The interval has passed. What is counted in polls counts only these.
    Tick,
    /// There is something to be said or asked at once.
    Haste,
}

impl Keeping {
    pub(super) fn new(
        options: OwnershipOptions,
        journal: Arc<JetStreamJournal>,
        shared: Arc<KeeperShared>,
    ) -> Self {
        let lease = options.lease;
        Self {
            partitions: journal.owned().partitions(),
            takings: Takings::new(Arc::clone(&journal), options.rival.clone()),
            options,
            journal,
            shared,
            script: script(),
            redis: None,
            mine: BTreeSet::new(),
            leaving: BTreeMap::new(),
            settling: JoinSet::new(),
            sure_since: None,
            away: Downtime::new(lease),
            ended: BTreeMap::new(),
            settled: BTreeMap::new(),
            richer: BTreeMap::new(),
            outlived: 0,
            ends: false,
            fitness: NodeFitness::default(),
        }
    }

    pub(super) async fn run(mut self, client: RedisClient) {
        let mut ticks = interval(self.options.every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut changes, mut failed, mut is_to_say) = (Vec::new(), 0, false);
        loop {
            let mut cause = Cause::Haste;
            tokio::select! {
                () = std::future::ready(()), if !changes.is_empty() || is_to_say => {}
                _ = ticks.tick() => cause = Cause::Tick,
                () = self.shared.poked.notified() => {}
                Some(left) = self.settling.join_next() => changes.extend(self.give(left)),
            }
            while let Some(left) = self.settling.try_join_next() {
                changes.extend(self.give(left));
            }
            if self.shared.stops() && !self.shared.hands_over.load(Ordering::Acquire) {
                return;
            }
            self.ends = self.shared.stops();
            self.note_the_log();
            let (begun, at, counts) = (Instant::now(), since_boot(), self.fitness.hears);
            let polled = self.poll(&client, &changes).await;
            if let Some(observer) = self.journal.observer() {
                let (items, is_ok) = (self.mine.len(), polled.is_ok());
                observer.leased(LeaseCall::Own, Called { took: begun.elapsed(), items, is_ok });
            }
            self.fitness.hears = polled.is_ok();
            self.note_redis(&client.place, begun, polled.as_ref().err());
            // Answered again, it says at once that it lives and keeps what is still its own.
            is_to_say = polled.is_ok() && !counts;
            match polled {
                Ok(polled) => {
                    self.compare_clocks(polled.3, begun.elapsed());
                    self.tell(&changes);
                    changes = self.judge(&polled, cause, counts);
                    if counts {
                        *self.shared.certain_until.lock() = at.map(|at| at + self.options.lease);
                    }
                    failed = 0;
                }
                Err(_) => {
                    self.ended.clear();
                    failed += 1;
                    changes.clear();
                }
            }
            if self.ends && self.leaving.is_empty() && changes.is_empty() && failed == 0 {
                return;
            }
            if self.ends && failed >= LAST_POLLS_FAILED {
                (0..self.partitions).for_each(|partition| drop(self.journal.leave(partition)));
                tracing::warn!("partitions could not be handed over; their leases run out");
                return;
            }
        }
    }

    async fn poll(
        &mut self,
        client: &RedisClient,
        changes: &[PollRequest],
    ) -> Result<Polled, RequestError> {
        let wait = self.options.every;
        let connection = match &mut self.redis {
            Some(connection) => connection,
            none => none.insert(client.connect().await.map_err(RequestError::failed)?),
        };
        let key = |what: &str| format!("{}:{{own}}:{what}", self.options.name);
        let mut call = self.script.prepare_invoke();
        for name in KEYS {
            call.key(key(name));
        }
        let lease = self.options.lease.as_millis().to_string();
        call.arg(&self.options.node).arg(lease).arg(self.partitions);
        // Redis may receive from a node to which its answers do not come: so only after an answer in time
        // the node counts as alive and keeps what it has. A node that is no candidate keeps what it has not
        // given away yet.
        call.arg(match (self.fitness.hears, self.ends || !self.fitness.is_candidate()) {
            (false, _) => "asks",
            (true, true) => "leaves",
            (true, false) => "lives",
        });
        let mut of_logs = Features::default();
        for held in (0..self.partitions).filter_map(|one| self.journal.features_of(one)) {
            of_logs.add(&held);
        }
        call.arg(self.journal.features().to_string()).arg(of_logs.to_string());
        (0..self.partitions).for_each(|partition| {
            call.arg(self.journal.acknowledged(partition));
        });
        let is_kept = |p: &&u32| !changes.iter().any(|change| change.of() == **p);
        for &partition in self.mine.iter().filter(|_| self.fitness.hears).filter(is_kept) {
            call.arg("r").arg(partition);
        }
        for change in changes {
            match change {
                PollRequest::Take(partition) => call.arg("t").arg(partition),
                PollRequest::LetGo(partition) => call.arg("-").arg(partition),
                PollRequest::Avoid(partition, long) => {
                    call.arg("x").arg(partition).arg(long.as_millis().to_string())
                }
                PollRequest::Give(partition, to) => call.arg("g").arg(partition).arg(to),
            };
        }
        within(wait, LATE, call.invoke_async(connection)).await
    }

    /// Acts on an answer, and returns what to ask for in the next poll. `counts`: the poll renewed this
    /// node's leases, and is counted.
    fn judge(&mut self, polled: &Polled, cause: Cause, counts: bool) -> Vec<PollRequest> {
        let cause = if counts { cause } else { Cause::Haste };
        let (live, owners, failures, at, features, acknowledged, of_logs, silent) = polled;
        self.note_silent(live, silent, *at);
        for (partition, seq) in (0..).zip(acknowledged) {
            self.journal.note_acknowledged(partition, *seq);
        }
        let me = self.options.node.clone();
        let of_logs = Features::of(of_logs.iter().map(String::as_str));
        self.compare_features(&of_logs);
        // A node that cannot read what logs may hold takes nothing and does not count (EVOLVE-02).
        let features = features.iter().map(|names| Features::read(names));
        let (nodes, features): (Vec<String>, Vec<Features>) =
            live.iter().cloned().zip(features).filter(|(_, has)| has.has_all(&of_logs)).unzip();
        let nodes = nodes.as_slice();
        let own = self.journal.features().clone();
        let shared = features.iter().fold(own, |shared, has| shared.shared(has));
        let is_sure = self.is_sure();
        let has_others = nodes.iter().any(|node| *node != me);
        // If the log answers nobody, all nodes leave after a moment, so this counts only while others live.
        self.outlived = match (self.fitness.is_cut_off && has_others, cause) {
            (true, Cause::Tick) => self.outlived + 1,
            (true, Cause::Haste) => self.outlived,
            (false, _) => 0,
        };
        let mut has_lost = false;
        let mut changes = Vec::new();
        for (partition, pair) in (0..).zip(owners.chunks_exact(2)) {
            let (owner, left) = (&pair[0], pair[1].parse().unwrap_or(0_u64));
            let is_mine = *owner == me;
            if owner.is_empty() && !counts && self.mine.contains(&partition) {
                continue; // A Redis that came back empty: the next poll tells it.
            }
            let has_failed = |node: &String| failures.contains(&format!("{partition} {node}"));
            let order = Ranking::of(nodes, partition, has_failed);
            let better = order.better(&me).cloned();
            if self.ends {
                match is_mine {
                    true => self.begin_leaving(partition, better),
                    false => _ = self.lose(partition, owner),
                }
                continue;
            }
            if is_mine {
                changes.extend(self.keep(partition, order.other(&me), &shared));
                if better.is_none() {
                    self.raise(partition, &shared, cause); // Else the next owner's record names them.
                }
            } else {
                has_lost |= self.lose(partition, owner);
            }
            let has_ended = is_sure && (owner.is_empty() || left == 0);
            let seen = count(&mut self.ended, partition, has_ended, cause);
            // A node that rests takes only what no other node would.
            let may_take =
                self.fitness.is_candidate() || (self.fitness.can_take() && !order.replaces(&me));
            if has_ended && may_take && seen >= ENDED_POLLS + order.rank(&me) {
                changes.push(PollRequest::Take(partition));
            }
            let keeps = self.fitness.is_cut_off || self.fitness.rests();
            let is_due = is_mine && better.is_some() && !keeps;
            let seen = count(&mut self.settled, partition, is_due, cause);
            let is_free = self.leaving.is_empty() && !self.takings.is_taking(partition);
            if cause == Cause::Tick && seen >= SETTLED_POLLS && is_free {
                // One at a time, as each is without service for a moment.
                self.begin_leaving(partition, better);
            }
        }
        let has_let_go = self.fitness.is_cut_off && !changes.is_empty();
        if has_lost || has_let_go {
            let rest = self.fitness.note_loss();
            let rest_ms = rest.as_millis();
            tracing::info!(
                rest_ms,
                "partitions were lost, not given: while it rests this node takes none"
            );
        }
        changes
    }

    /// Notes whether Redis answers in time. Logs a change, an answering Redis only after a lease's time.
    fn note_redis(&mut self, at: &str, begun: Instant, error: Option<&RequestError>) {
        if let Some(error) = error {
            self.sure_since = None;
            if self.away.note_failure(begun.into_std()) {
                tracing::warn!(%error, at, "redis does not say who owns what; this node takes nothing");
            }
            return;
        }
        self.sure_since.get_or_insert(begun);
        if let Some(DowntimeEnd { lasted, failed }) = self.away.note_answer(begun.into_std()) {
            let seconds = lasted.as_secs();
            tracing::info!(at, seconds, failed, "redis says again who owns what");
        }
    }

    /// Whether Redis has answered without a break for a lease's time.
    fn is_sure(&self) -> bool {
        self.sure_since.is_some_and(|since| since.elapsed() >= self.options.lease)
    }

    /// This node has the lease: has the journal take the partition, unless it has done so. `shared` are the
    /// features that all live nodes have. A partition that cannot be taken is let go if there is an `other` node
    /// for it; but not if its log has lost data, as nobody may write there.
    fn keep(
        &mut self,
        partition: u32,
        other: Option<&String>,
        shared: &Features,
    ) -> Option<PollRequest> {
        self.mine.insert(partition);
        if self.leaving.contains_key(&partition) {
            return None;
        }
        if self.fitness.is_cut_off {
            let other = other.filter(|_| self.outlived >= SETTLED_POLLS)?;
            self.mine.remove(&partition);
            // The record of the next owner settles what is in flight.
            self.journal.leave(partition);
            return Some(PollRequest::Give(partition, other.clone()));
        }
        let is_taken = self.journal.owned().epoch(partition).is_some();
        if is_taken || self.fitness.is_off {
            return None;
        }
        if self.fitness.lacks_features {
            let other = other?;
            self.mine.remove(&partition);
            return Some(PollRequest::Give(partition, other.clone()));
        }
        if other.is_some() && self.takings.fails(partition) {
            tracing::warn!(partition, "the partition cannot be taken here; it is let go");
            self.mine.remove(&partition);
            self.journal.leave(partition); // A taking may be under way.
            return Some(PollRequest::Avoid(partition, self.takings.let_go(partition)));
        }
        self.takings.begin(partition, shared);
        None
    }

    /// This node does not have the lease. Answers whether it had, or owned the partition.
    fn lose(&mut self, partition: u32, owner: &str) -> bool {
        let is_owned = self.journal.owned().epoch(partition).is_some();
        self.takings.forget(partition);
        let is_lost = self.mine.remove(&partition) || is_owned;
        if is_lost {
            tracing::info!(partition, owner, "another node has the partition");
            self.journal.leave(partition);
        }
        is_lost
    }

    /// Accepts nothing more for a partition, which is given away once its appends have returned.
    fn begin_leaving(&mut self, partition: u32, to: Option<String>) {
        if self.leaving.contains_key(&partition) {
            return;
        }
        self.leaving.insert(partition, to);
        self.mine.insert(partition);
        let journal = Arc::clone(&self.journal);
        let settle = async move {
            // Written while the partition is owned; the next owner reads only what lies behind it.
            match timeout(SETTLE, journal.checkpoint(partition)).await {
                Ok(Ok(())) => {}
                _ => tracing::debug!(partition, "handed over without a checkpoint"),
            }
            if !journal.leave(partition).settled(SETTLE).await {
                tracing::warn!(partition, "left with appends in flight");
            }
        };
        self.settling.spawn(guard("a hand-over", settle).map(move |()| partition));
    }

    /// The appends of a partition have returned: it goes to the chosen node.
    fn give(&mut self, left: Result<u32, tokio::task::JoinError>) -> Option<PollRequest> {
        let partition = left.ok()?;
        let to = self.leaving.remove(&partition)?;
        // Another node may have taken it meanwhile.
        let is_mine = self.mine.remove(&partition);
        let change = match to {
            Some(to) => PollRequest::Give(partition, to),
            None => PollRequest::LetGo(partition),
        };
        is_mine.then_some(change)
    }

    /// Notifies the nodes that were given partitions.
    fn tell(&self, changes: &[PollRequest]) {
        let Some(given) = &self.options.given else { return };
        let to = changes.iter().filter_map(|change| match change {
            PollRequest::Give(_, to) => Some(to.as_str()),
            _ => None,
        });
        to.collect::<BTreeSet<&str>>().into_iter().for_each(|node| given(node));
    }
}

/// Counts the ticks in a row in which a condition held.
fn count(counts: &mut BTreeMap<u32, usize>, partition: u32, holds: bool, cause: Cause) -> usize {
    let count = counts.entry(partition).or_default();
    match (holds, cause) {
        (true, Cause::Tick) => *count += 1,
        (true, Cause::Haste) => {}
        (false, _) => *count = 0,
    }
    *count
}
