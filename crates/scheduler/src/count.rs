//! A node's counts of its own work: how much has become durable, and how much is in hand.
//!
//! Counting happens where the work is done, on plain atomics, without a lock and whether or not
//! anybody listens. The core says what an event counts as ([`Counts`]).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tenure_core::Counts;
use tenure_core::eligibility::Obstacle;
use tenure_core::id::{AgentId, PoolId, Ref};
use tenure_core::task::Waits;
use tenure_ports::map::IdMap;
use tenure_ports::observer::PoolSample;
use tokio::time::Instant;

use crate::pool::Reservation;

/// What has become durable since the node began.
#[derive(Debug, Default)]
pub(crate) struct NodeCounters {
    claims: AtomicU64,
    completed: AtomicU64,
    failed: AtomicU64,
    lost: AtomicU64,
    tasks_created: AtomicU64,
    tasks_ended: AtomicU64,
}

impl NodeCounters {
    pub(crate) fn add(&self, counts: Counts) {
        let Counts { claims, completed, failed, lost, tasks_created, tasks_ended } = counts;
        for (count, more) in [
            (&self.claims, claims),
            (&self.completed, completed),
            (&self.failed, failed),
            (&self.lost, lost),
            (&self.tasks_created, tasks_created),
            (&self.tasks_ended, tasks_ended),
        ] {
            if more > 0 {
                count.fetch_add(more, Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn now(&self) -> Counts {
        Counts {
            claims: self.claims.load(Ordering::Relaxed),
            completed: self.completed.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            lost: self.lost.load(Ordering::Relaxed),
            tasks_created: self.tasks_created.load(Ordering::Relaxed),
            tasks_ended: self.tasks_ended.load(Ordering::Relaxed),
        }
    }
}

/// What the Steps of all Tasks of a node wait for.
#[derive(Debug)]
pub(crate) struct WaitTotals {
    by_reason: [AtomicU64; Obstacle::ALL.len()],
    /// Those that are ready, by the partition of their Task: its log may take no writes.
    ready: Box<[AtomicU64]>,
}

/// What no claim can be made without, and what of it is away now.
#[derive(Debug)]
pub(crate) struct ClaimNeeds {
    /// Partitions whose log takes no writes; none: that of no partition does.
    pub(crate) logs_away: Option<Vec<u32>>,
    /// The store of leases does not answer.
    pub(crate) leases_away: bool,
}

impl WaitTotals {
    pub(crate) fn of(partitions: u32) -> Self {
        let by_reason = [const { AtomicU64::new(0) }; Obstacle::ALL.len()];
        Self { by_reason, ready: (0..partitions).map(|_| AtomicU64::new(0)).collect() }
    }

    /// How many Steps wait, by obstacle: each by the first in the order of [`Obstacle`] (VIEW-17). Ready Steps
    /// wait for the log, then for the leases, if these are away; else for their pool, if it has no worker
    /// for them or none with capacity.
    pub(crate) fn now(&self, needs: &ClaimNeeds, pools: &[PoolSample]) -> Vec<(Obstacle, u64)> {
        let mut counts = self.by_reason.each_ref().map(|count| count.load(Ordering::Relaxed));
        let logs = (Obstacle::LogUnavailable, self.ready_without_log(needs.logs_away.as_deref()));
        let leases = (Obstacle::LeasesUnavailable, if needs.leases_away { u64::MAX } else { 0 });
        let of_pools = pools.iter().flat_map(|pool| pool.waits.iter().copied());
        for (why, waiting) in [logs, leases].into_iter().chain(of_pools) {
            // A pool learns a moment later than this what its Tasks have ready, so its numbers may
            // be higher.
            let waiting = waiting.min(counts[Obstacle::RunnableNow as usize]);
            counts[Obstacle::RunnableNow as usize] -= waiting;
            counts[why as usize] += waiting;
        }
        let all = Waits::REASONS.iter().chain(Waits::BESIDE);
        all.map(|&why| (why, counts[why as usize])).collect()
    }

    /// How many Steps are ready whose Tasks' log takes no writes.
    fn ready_without_log(&self, away: Option<&[u32]>) -> u64 {
        let Some(away) = away else { return u64::MAX };
        let at = |partition: &u32| self.ready.get(usize::try_from(*partition).ok()?);
        away.iter().filter_map(at).map(|ready| ready.load(Ordering::Relaxed)).sum()
    }
}

/// What one Task has added to [`WaitTotals`]. Dropping this takes it out.
#[derive(Debug)]
pub(crate) struct WaitShare {
    totals: Arc<WaitTotals>,
    /// The partition of the Task.
    partition: usize,
    told: Waits,
}

impl WaitShare {
    pub(crate) fn of(totals: &Arc<WaitTotals>, partition: u32) -> Self {
        let partition = usize::try_from(partition).unwrap_or(usize::MAX);
        Self { totals: Arc::clone(totals), partition, told: Waits::default() }
    }

    /// Sets what the Steps of the Task wait for now.
    pub(crate) fn tell(&mut self, waits: Waits) {
        if waits == self.told {
            return;
        }
        let before = std::mem::replace(&mut self.told, waits);
        let totals = self.totals.by_reason.iter();
        // Wrapping arithmetic: the sum is right in whatever order threads add to it.
        let add = |total: &AtomicU64, before: u32, now: u32| {
            total.fetch_add(u64::from(now).wrapping_sub(before.into()), Ordering::Relaxed);
        };
        for (total, (before, now)) in totals.zip(before.counts().zip(waits.counts())) {
            if before != now {
                add(total, before, now);
            }
        }
        let (was_ready, is_ready) = (before.ready(), waits.ready());
        if let Some(total) = self.totals.ready.get(self.partition).filter(|_| was_ready != is_ready)
        {
            add(total, was_ready, is_ready);
        }
    }
}

impl Drop for WaitShare {
    fn drop(&mut self) {
        self.tell(Waits::default());
    }
}

/// A number of things that exist at present.
#[derive(Debug, Default)]
pub(crate) struct Gauge(Arc<AtomicU64>);

/// One of these things; dropping this counts it out.
#[derive(Debug)]
pub(crate) struct One(Arc<AtomicU64>);

impl Gauge {
    pub(crate) fn one(&self) -> One {
        self.0.fetch_add(1, Ordering::Relaxed);
        One(Arc::clone(&self.0))
    }

    pub(crate) fn now(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for One {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How many Attempts the workers of a pool have in hand, and how many have ended.
#[derive(Debug, Default)]
pub(crate) struct Turnover {
    ended: AtomicU64,
    running: AtomicU64,
}

impl Turnover {
    pub(crate) fn ended(&self) -> u64 {
        self.ended.load(Ordering::Relaxed)
    }

    pub(crate) fn running(&self) -> u64 {
        self.running.load(Ordering::Relaxed)
    }
}

/// What a worker has in hand of the Tasks of this node, on whichever link it came.
#[derive(Debug, Default)]
pub(crate) struct Hand {
    pool: Arc<Turnover>,
    holds: AtomicU64,
    /// Whether the worker's place for a Step that was lost before is taken.
    apart: AtomicBool,
    /// Open Attempts on Steps that were lost before.
    lost: AtomicU64,
    /// How many Steps that were lost before the worker says it has, of any node.
    said_lost: AtomicU64,
    /// Since when the late input counts that the worker was sent last, and how many bytes that was.
    input: Mutex<(Option<Instant>, usize)>,
}

/// How many bytes of late input a worker is sent in a second; what passes that comes with later heartbeats. A command
/// of some bytes has as many of them sent as there are Attempts, and nothing else bounds what waits for one worker.
const INPUT_A_SECOND: usize = 1 << 20;

/// What late input takes beside its refs, about.
const INPUT_BYTES: usize = 64;

impl Hand {
    /// How many open Attempts there are.
    pub(crate) fn holds(&self) -> u64 {
        self.holds.load(Ordering::Relaxed)
    }

    /// Whether the worker has nothing in hand.
    pub(crate) fn is_idle(&self) -> bool {
        self.holds() == 0
    }

    /// Whether the worker's place for a Step that was lost before is taken.
    pub(crate) fn is_isolating(&self) -> bool {
        self.apart.load(Ordering::Acquire)
    }

    /// Whether the worker has a Step in hand that was lost before, or is about to get one.
    pub(crate) fn has_lost(&self) -> bool {
        let is_some = |count: &AtomicU64| count.load(Ordering::Relaxed) > 0;
        self.is_isolating() || is_some(&self.lost) || is_some(&self.said_lost)
    }

    /// Notes how many Steps that were lost before the worker says it has.
    pub(crate) fn note_lost(&self, said: u64) {
        self.said_lost.store(said, Ordering::Relaxed);
    }

    /// Takes the place for a Step that was lost before. Answers whether it was free.
    pub(crate) fn try_isolate(&self) -> bool {
        !self.apart.swap(true, Ordering::AcqRel)
    }

    /// Whether the worker may be sent more late input in this second. If so, it counts as sent.
    pub(crate) fn may_get(&self, input: &[Ref]) -> bool {
        let (now, mut sent) = (Instant::now(), self.input.lock());
        if sent.0.is_none_or(|since| now - since >= Duration::from_secs(1)) {
            *sent = (Some(now), 0);
        }
        let may = sent.1 < INPUT_A_SECOND;
        if may {
            sent.1 += input.iter().map(|it| it.as_str().len()).sum::<usize>() + INPUT_BYTES;
        }
        may
    }

    /// Frees that place.
    pub(crate) fn end_isolation(&self) {
        self.apart.store(false, Ordering::Release);
    }
}

/// The hands of all workers that have a link or an open Attempt.
#[derive(Debug, Default)]
pub(crate) struct Hands {
    all: IdMap<(AgentId, PoolId), Weak<Hand>>,
    /// At so many entries those of workers that have gone are removed.
    swept_at: usize,
}

impl Hands {
    pub(crate) fn of(
        &mut self,
        worker: &AgentId,
        pool: &PoolId,
        turnover: Arc<Turnover>,
    ) -> Arc<Hand> {
        let key = (worker.clone(), pool.clone());
        if let Some(hand) = self.all.get(&key).and_then(Weak::upgrade) {
            return hand;
        }
        if self.all.len() >= self.swept_at {
            self.all.retain(|_, hand| hand.strong_count() > 0);
            self.swept_at = 2 * self.all.len() + 64;
        }
        let hand = Arc::new(Hand { pool: turnover, ..Hand::default() });
        self.all.insert(key, Arc::downgrade(&hand));
        hand
    }
}

/// Counts an open Attempt as in the hand of its worker; dropping this counts it out.
#[derive(Debug)]
pub(crate) struct InHand {
    hand: Arc<Hand>,
    was_lost: bool,
    #[allow(dead_code, reason = "kept until it ends")]
    apart: Option<Reservation>,
}

impl InHand {
    /// Counts an Attempt. `was_lost`: its Step was lost before. `apart`: the worker's place for
    /// such a Step, if the Attempt has it.
    pub(crate) fn new(hand: Arc<Hand>, was_lost: bool, apart: Option<Reservation>) -> Self {
        hand.holds.fetch_add(1, Ordering::Relaxed);
        hand.lost.fetch_add(u64::from(was_lost), Ordering::Relaxed);
        hand.pool.running.fetch_add(1, Ordering::Relaxed);
        Self { hand, was_lost, apart }
    }

    /// The Attempt has ended.
    pub(crate) fn note_end(&self) {
        self.hand.pool.ended.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for InHand {
    fn drop(&mut self) {
        self.hand.holds.fetch_sub(1, Ordering::Relaxed);
        self.hand.lost.fetch_sub(u64::from(self.was_lost), Ordering::Relaxed);
        self.hand.pool.running.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CTRL-12: a worker is sent so much late input in a second, and more in the next.
    #[tokio::test(start_paused = true)]
    async fn late_input_to_a_worker_is_bounded() {
        let (hand, other) = (Hand::default(), Hand::default());
        let refs = [Ref::new(format!("urn:{}", "x".repeat(4_000))).unwrap()];
        let sent = |hand: &Hand| (0..100_000).filter(|_| hand.may_get(&refs)).count();
        let first = sent(&hand);
        assert!((200..300).contains(&first), "{first}");
        assert_eq!((sent(&hand), sent(&other)), (0, first));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(sent(&hand), first);
    }

    /// VIEW-17: a ready Step waits for the log of its partition first, then for leases, then for its pool.
    #[test]
    fn ready_steps_are_counted_by_what_is_away() {
        let totals = WaitTotals::of(2);
        totals.by_reason[Obstacle::RunnableNow as usize].store(5, Ordering::Relaxed);
        totals.ready[0].store(3, Ordering::Relaxed);
        totals.ready[1].store(2, Ordering::Relaxed);
        let now = |logs_away, leases_away| -> Vec<(Obstacle, u64)> {
            let all = totals.now(&ClaimNeeds { logs_away, leases_away }, &[]);
            all.into_iter().filter(|(_, count)| *count > 0).collect()
        };
        let (log, leases) = (Obstacle::LogUnavailable, Obstacle::LeasesUnavailable);
        assert_eq!(now(Some(vec![]), false), [(Obstacle::RunnableNow, 5)]);
        assert_eq!(now(Some(vec![]), true), [(leases, 5)]);
        assert_eq!(now(Some(vec![1]), false), [(Obstacle::RunnableNow, 3), (log, 2)]);
        assert_eq!(now(Some(vec![1, 7]), true), [(log, 2), (leases, 3)]);
        assert_eq!(now(None, true), [(log, 5)]);
    }

    fn worker(id: &str) -> AgentId {
        AgentId::new(id).unwrap()
    }

    #[test]
    fn what_a_worker_holds_outlives_its_links() {
        let (pool, turnover): (PoolId, Arc<Turnover>) = ("p".parse().unwrap(), Arc::default());
        let mut hands = Hands::default();
        let mut of = |id: &str| hands.of(&worker(id), &pool, Arc::clone(&turnover));
        let [first, second, other] =
            ["w.1", "w.1", "w.2"].map(|id| InHand::new(of(id), false, None));
        assert_eq!((of("w.1").holds(), of("w.2").holds(), turnover.running()), (2, 1, 3));
        first.note_end();
        drop(first);
        assert_eq!((of("w.1").holds(), turnover.running(), turnover.ended()), (1, 2, 1));
        drop((second, other));
        assert_eq!((of("w.1").holds(), turnover.running(), turnover.ended()), (0, 0, 1));
    }

    #[test]
    fn workers_that_have_gone_are_forgotten() {
        let (pool, turnover): (PoolId, Arc<Turnover>) = ("p".parse().unwrap(), Arc::default());
        let mut hands = Hands::default();
        for n in 0..10_000 {
            hands.of(&worker(&format!("w.{n}")), &pool, Arc::clone(&turnover));
        }
        assert!(hands.all.len() <= 65, "{}", hands.all.len());
    }

    #[test]
    fn totals_are_the_sum_of_what_was_added() {
        let totals = NodeCounters::default();
        let some = Counts { claims: 2, lost: 1, ..Counts::default() };
        totals.add(some);
        totals.add(Counts { tasks_ended: 3, ..some });
        assert_eq!(
            totals.now(),
            Counts { claims: 4, lost: 2, tasks_ended: 3, ..Counts::default() }
        );
    }
}
