//! The thread that renews what a node owns, and decides what it takes and gives.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::FutureExt as _;
use redis::Script;
use tenure_core::id::Millis;
use tenure_ports::observer::{Called, LeaseCall};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::rank::by_rank;
use super::takings::Takings;
use super::{Options, Shared};
use crate::clock::since_boot;
use crate::journal::JetStreamJournal;
use crate::redis_at::{Client, Connection};
use crate::supervise::guard;

/// Polls in which a lease must be seen to have ended before the first in order takes it.
const ENDED_POLLS: usize = 2;

/// Polls in which a better owner must have been alive before it is handed a partition.
const SETTLED_POLLS: usize = 4;

/// How long a hand-over waits for appends in flight. The next owner's record settles what is left.
const SETTLE: Duration = Duration::from_secs(2);

/// How far the clocks of a node that takes partitions and of Redis may be apart.
const APART: Duration = Duration::from_secs(5);

/// How long a rehearsal of a poll may take.
const REHEARSAL: Duration = Duration::from_secs(2);

/// Polls of a node that ends which may fail before it ends without having handed over.
const LAST_POLLS_FAILED: usize = 3;

fn script() -> Script {
    Script::new(include_str!("own.lua"))
}

/// Whether the script may run, and write: a node of nobody lives, takes a partition and lets it go, and
/// leaves, all beside what is owned.
pub(crate) async fn rehearse(redis: &mut Connection, name: &str) -> Result<(), String> {
    let script = script();
    for what in ["lives", "leaves"] {
        let mut call = script.prepare_invoke();
        for key in ["nodes", "owners", "ends", "failures", "reads", "acknowledged"] {
            call.key(format!("{name}:{{doctor}}:{key}"));
        }
        call.arg("doctor").arg(1).arg(1).arg(what).arg(1);
        call.arg(0); // How far its one partition was acknowledged.
        call.arg("t").arg(0).arg("-").arg(0);
        let ran = timeout(REHEARSAL, call.invoke_async::<Polled>(redis)).await;
        ran.map_err(|_| "no answer in time")?.map_err(|error| error.to_string())?;
    }
    Ok(())
}

pub(super) struct Keeping {
    options: Options,
    journal: Arc<JetStreamJournal>,
    shared: Arc<Shared>,
    script: Script,
    redis: Option<Connection>,
    partitions: u32,
    /// Partitions whose lease is this node's, as of the last answer.
    mine: BTreeSet<u32>,
    takings: Takings,
    /// Partitions that are being handed over, and to whom: their leases are renewed until their
    /// appends have returned.
    leaving: BTreeMap<u32, Option<String>>,
    settling: JoinSet<u32>,
    /// Since when Redis has answered without a break: what it says of others counts after a lease.
    sure_since: Option<Instant>,
    /// In how many polls the lease of a partition was seen to have ended.
    ended: BTreeMap<u32, usize>,
    /// In how many polls another node was the better owner.
    settled: BTreeMap<u32, usize>,
    /// Whether everything is handed over, and nothing taken any more.
    ends: bool,
    /// Whether this node's clock was off Redis' at the last answer.
    is_off: bool,
}

/// What a poll answers: live nodes, owners with the rest of their leases, who could not take what,
/// Redis' time, the newest version of what is stored that each of the live nodes reads, and how far
/// each partition's log was acknowledged to anybody.
type Polled = (Vec<String>, Vec<String>, Vec<String>, Millis, Vec<u32>, Vec<u64>);

/// Something to ask for in a poll.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Change {
    Take(u32),
    LetGo(u32),
    /// Let it go, for it cannot be taken: for so long others come first.
    Avoid(u32, Duration),
    Give(u32, String),
}

impl Change {
    fn of(&self) -> u32 {
        match self {
            Self::Take(at) | Self::LetGo(at) | Self::Avoid(at, _) | Self::Give(at, _) => *at,
        }
    }
}

/// Why there is a poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// It was time: what is counted in polls counts these alone.
    Tick,
    /// There is something to be said or learned at once.
    Haste,
}

impl Keeping {
    pub(super) fn new(
        options: Options,
        journal: Arc<JetStreamJournal>,
        shared: Arc<Shared>,
    ) -> Self {
        Self {
            partitions: journal.owned().partitions(),
            takings: Takings::new(Arc::clone(&journal)),
            options,
            journal,
            shared,
            script: script(),
            redis: None,
            mine: BTreeSet::new(),
            leaving: BTreeMap::new(),
            settling: JoinSet::new(),
            sure_since: None,
            ended: BTreeMap::new(),
            settled: BTreeMap::new(),
            ends: false,
            is_off: false,
        }
    }

    pub(super) async fn run(mut self, client: Client) {
        let mut ticks = interval(self.options.every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut changes, mut failed) = (Vec::new(), 0);
        loop {
            let mut cause = Cause::Haste;
            tokio::select! {
                () = std::future::ready(()), if !changes.is_empty() => {}
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
            let (begun, at) = (Instant::now(), since_boot());
            let polled = self.poll(&client, &changes).await;
            if let Some(observer) = self.journal.observer() {
                let (items, is_ok) = (self.mine.len(), polled.is_ok());
                observer.leased(LeaseCall::Own, Called { took: begun.elapsed(), items, is_ok });
            }
            match polled {
                Ok(polled) => {
                    self.sure_since.get_or_insert(begun);
                    self.compare_clocks(polled.3, begun.elapsed());
                    self.tell(&changes);
                    changes = self.judge(&polled, cause);
                    *self.shared.certain_until.lock() = at.map(|at| at + self.options.lease);
                    failed = 0;
                }
                Err(error) => {
                    self.sure_since = None;
                    self.ended.clear();
                    failed += 1;
                    tracing::warn!(%error, "redis does not say who owns what; nothing changes hands");
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

    async fn poll(&mut self, client: &Client, changes: &[Change]) -> Result<Polled, String> {
        let wait = self.options.every;
        let connection = match &mut self.redis {
            Some(connection) => connection,
            none => none.insert(client.connect().await.map_err(|error| error.to_string())?),
        };
        let key = |what: &str| format!("{}:{{own}}:{what}", self.options.name);
        let mut call = self.script.prepare_invoke();
        call.key(key("nodes")).key(key("owners")).key(key("ends")).key(key("failures"));
        call.key(key("reads")).key(key("acknowledged"));
        let lease = self.options.lease.as_millis().to_string();
        call.arg(&self.options.node).arg(lease).arg(self.partitions);
        // One that ends, or whose clock is off, is no candidate, but keeps what it has not given yet.
        call.arg(if self.ends || self.is_off { "leaves" } else { "lives" });
        call.arg(self.journal.reads());
        (0..self.partitions).for_each(|partition| {
            call.arg(self.journal.acknowledged(partition));
        });
        let kept = self.mine.iter().filter(|&&p| !changes.iter().any(|change| change.of() == p));
        for &partition in kept {
            call.arg("r").arg(partition);
        }
        for change in changes {
            match change {
                Change::Take(partition) => call.arg("t").arg(partition),
                Change::LetGo(partition) => call.arg("-").arg(partition),
                Change::Avoid(partition, long) => {
                    call.arg("x").arg(partition).arg(long.as_millis().to_string())
                }
                Change::Give(partition, to) => call.arg("g").arg(partition).arg(to),
            };
        }
        match timeout(wait, call.invoke_async(connection)).await {
            Ok(answer) => answer.map_err(|error| error.to_string()),
            Err(_) => Err("no answer in time".into()),
        }
    }

    /// Does what the answer means, and says what to ask for in the next poll.
    fn judge(&mut self, polled: &Polled, cause: Cause) -> Vec<Change> {
        let (nodes, owners, failures, _, reads, acknowledged) = polled;
        for (partition, seq) in (0..).zip(acknowledged) {
            self.journal.note_acknowledged(partition, *seq);
        }
        let me = self.options.node.clone();
        let lowest = reads.iter().copied().min().unwrap_or(self.journal.reads());
        let reads: BTreeMap<&String, u32> = nodes.iter().zip(reads.iter().copied()).collect();
        let is_sure = self.sure_since.is_some_and(|s| s.elapsed() >= self.options.lease);
        let mut changes = Vec::new();
        for (partition, pair) in (0..).zip(owners.chunks_exact(2)) {
            let (owner, left) = (&pair[0], pair[1].parse().unwrap_or(0_u64));
            let is_mine = *owner == me;
            let mut order = by_rank(nodes, partition);
            if let Some(level) = self.journal.level(partition) {
                order.retain(|node| reads.get(node).is_some_and(|reads| *reads >= level));
            }
            // Those that could not take it come last.
            order.sort_by_key(|node| failures.contains(&format!("{partition} {node}")));
            let rank = order.iter().position(|node| **node == me).unwrap_or(order.len());
            let better = order.first().filter(|_| rank > 0).map(|node| (*node).clone());
            if self.ends {
                match is_mine {
                    true => self.begin_leaving(partition, better),
                    false => self.lose(partition, owner),
                }
                continue;
            }
            if is_mine {
                changes.extend(self.keep(partition, order.iter().any(|n| **n != me), lowest));
            } else {
                self.lose(partition, owner);
            }
            let has_ended = is_sure && (owner.is_empty() || left == 0);
            let seen = count(&mut self.ended, partition, has_ended, cause);
            if has_ended && !self.is_off && seen >= ENDED_POLLS + rank {
                changes.push(Change::Take(partition));
            }
            let seen = count(&mut self.settled, partition, is_mine && better.is_some(), cause);
            if cause == Cause::Tick && seen >= SETTLED_POLLS && self.leaving.is_empty() {
                // One at a time: each is without service for a moment.
                self.begin_leaving(partition, better);
            }
        }
        changes
    }

    /// Notes whether this node's clock is off Redis', which answered within `took`.
    fn compare_clocks(&mut self, there: Millis, took: Duration) {
        let apart = (self.options.clock)().abs_diff(there);
        let is_off = Duration::from_millis(apart) > APART + took;
        if is_off != self.is_off {
            match is_off {
                true => tracing::error!(
                    apart_ms = apart,
                    "this node's clock and Redis' are apart: it takes no partition and gives its own \
                     away until they agree; \
                     set the clocks right, and start it anew if its own was ahead"
                ),
                false => tracing::info!("this node's clock and Redis' agree again"),
            }
        }
        self.is_off = is_off;
    }

    /// The lease is this node's: has the journal take the partition, if it has not, and write what nodes
    /// that read up to `lowest` can read. One that cannot be taken is let go where there is another who
    /// may; not where its log has lost data: nobody may write there.
    fn keep(&mut self, partition: u32, has_others: bool, lowest: u32) -> Option<Change> {
        self.mine.insert(partition);
        let is_taken = self.journal.owned().epoch(partition).is_some();
        if is_taken || self.is_off || self.leaving.contains_key(&partition) {
            return None;
        }
        if has_others && self.takings.fails(partition) {
            tracing::error!(partition, "the partition cannot be taken here; it is let go");
            self.mine.remove(&partition);
            self.journal.leave(partition); // A taking may be under way.
            return Some(Change::Avoid(partition, self.takings.let_go(partition)));
        }
        self.takings.begin(partition, lowest);
        None
    }

    /// The lease is not this node's.
    fn lose(&mut self, partition: u32, owner: &str) {
        let is_owned = self.journal.owned().epoch(partition).is_some();
        self.takings.forget(partition);
        if self.mine.remove(&partition) || is_owned {
            tracing::warn!(partition, owner, "another node has the partition");
            self.journal.leave(partition);
        }
    }

    /// Accepts nothing more for a partition; it is given when its appends have returned.
    fn begin_leaving(&mut self, partition: u32, to: Option<String>) {
        if self.leaving.contains_key(&partition) {
            return;
        }
        self.leaving.insert(partition, to);
        self.mine.insert(partition);
        let journal = Arc::clone(&self.journal);
        let settle = async move {
            // The next owner reads what lies behind it: it is owned while it is written.
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

    /// The appends of a partition have returned: it goes to whom it was meant for.
    fn give(&mut self, left: Result<u32, tokio::task::JoinError>) -> Option<Change> {
        let partition = left.ok()?;
        let to = self.leaving.remove(&partition)?;
        // It may have gone to another meanwhile.
        let is_mine = self.mine.remove(&partition);
        let change = match to {
            Some(to) => Change::Give(partition, to),
            None => Change::LetGo(partition),
        };
        is_mine.then_some(change)
    }

    /// Tells of what was given.
    fn tell(&self, changes: &[Change]) {
        let Some(given) = &self.options.given else { return };
        let to = changes.iter().filter_map(|change| match change {
            Change::Give(_, to) => Some(to.as_str()),
            _ => None,
        });
        to.collect::<BTreeSet<&str>>().into_iter().for_each(|node| given(node));
    }
}

/// Counts ticks in a row in which something held.
fn count(counts: &mut BTreeMap<u32, usize>, partition: u32, holds: bool, cause: Cause) -> usize {
    let count = counts.entry(partition).or_default();
    match (holds, cause) {
        (true, Cause::Tick) => *count += 1,
        (true, Cause::Haste) => {}
        (false, _) => *count = 0,
    }
    *count
}
