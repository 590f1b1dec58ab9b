//! Computes how many more Steps a worker would take, which it states as its credit.

use std::time::Duration;

use tenure_ports::bus::Credit;
use tokio::time::Instant;

/// With handlers shorter than this, the worker prefetches three times its concurrency: the way to
/// the scheduler and back takes longer than they do (mechanisms 8).
const SHORT: Duration = Duration::from_millis(5);

/// With handlers longer than this, it prefetches nothing, so that no long Step waits behind another
/// while a worker idles.
const LONG: Duration = Duration::from_millis(50);

/// A Step that would not begin within this time, as measured by earlier handlers, goes to another
/// worker (mechanisms 8). It is twice `LONG`, so that Steps do not come and go when handlers take
/// about as long as `LONG`.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// When no slot is free for so long, handlers count as long, even if none has ended yet.
pub(super) const BUSY: Duration = Duration::from_millis(200);

/// A worker that runs fewer Steps at a time tries one more when it has lacked nothing for so long.
pub(super) const TRY_MORE: Duration = Duration::from_secs(5);

/// How many Steps a worker has in hand, and how many more it would take.
#[derive(Debug)]
pub(super) struct WorkerCapacity {
    /// How many Steps run at a time: as many as the worker was started with, or fewer while the
    /// worker lacks something.
    pub(super) concurrency: usize,
    pub(super) concurrency_max: usize,
    /// When the worker last lacked something, or last tried one Step more.
    changed: Option<Instant>,
    seen: u64,
    pub(super) in_hand: usize,
    /// The number of Attempts in hand on Steps that were lost before.
    pub(super) lost: u64,
    pub(super) accepting: bool,
    /// The number of statements of capacity so far.
    stated: u64,
    /// Moving average of handler times; none before the first.
    handler_time: Option<Duration>,
    /// Whether it may take more than it runs. What begins with the offer of its Run, as a command does, does not wait
    /// for a slot.
    pub(super) prefetches: bool,
}

impl WorkerCapacity {
    /// The capacity of a worker that has nothing in hand.
    pub(super) fn of(concurrency: usize) -> Self {
        let (seen, in_hand, lost, stated) = (0, 0, 0, 0);
        let (concurrency_max, changed, handler_time) = (concurrency, None, None);
        Self {
            concurrency,
            concurrency_max,
            changed,
            seen,
            in_hand,
            lost,
            accepting: true,
            stated,
            handler_time,
            prefetches: true,
        }
    }

    pub(super) fn credit(&mut self) -> Credit {
        self.stated += 1;
        let capacity = if self.accepting { self.concurrency + self.prefetch() } else { 0 };
        let free = capacity.saturating_sub(self.in_hand) as u64;
        Credit { free, seen: self.seen, lost: self.lost, number: self.stated }
    }

    fn prefetch(&self) -> usize {
        match self.handler_time.filter(|_| self.prefetches) {
            Some(time) if time < SHORT => 3 * self.concurrency,
            Some(time) if time < LONG => self.concurrency / 2,
            _ => 0,
        }
    }

    /// How many Steps are in hand beyond those that run and those that begin soon.
    pub(super) fn surplus(&self) -> usize {
        self.in_hand.saturating_sub(self.concurrency.saturating_add(self.bearable()))
    }

    /// How many Steps can wait behind those that run and still begin in time. Before the first
    /// handler has ended, none.
    fn bearable(&self) -> usize {
        let Some(time) = self.handler_time else { return 0 };
        let rounds = WAIT_MAX.as_nanos() / time.as_nanos().max(1);
        let rounds = usize::try_from(rounds).unwrap_or(usize::MAX);
        rounds.saturating_mul(self.concurrency)
    }

    /// The worker lacks something for so many Steps at a time: one fewer runs from now on, but at
    /// least one. Answers whether to tell the user: all Steps could run until now, and nothing was
    /// lacking for [`TRY_MORE`].
    pub(super) fn lower(&mut self, now: Instant) -> bool {
        let before = self.changed.replace(now);
        let is_news = before.is_none_or(|at| now.duration_since(at) >= TRY_MORE);
        let is_news = is_news && self.concurrency == self.concurrency_max;
        self.concurrency = self.concurrency.saturating_sub(1).max(1);
        is_news
    }

    /// Has one Step more run at a time, if there were fewer for a while and nothing was lacking.
    /// Answers whether it is so.
    pub(super) fn raise(&mut self, now: Instant) -> bool {
        let is_due = self.changed.is_some_and(|at| now.duration_since(at) >= TRY_MORE);
        if self.concurrency == self.concurrency_max || !is_due {
            return false;
        }
        self.changed = Some(now);
        self.concurrency += 1;
        true
    }

    /// Counts a Step that goes back before it has begun.
    pub(super) fn give_back(&mut self) {
        self.in_hand -= 1;
    }

    /// Notes that no slot was free for [`BUSY`].
    pub(super) fn note_busy(&mut self) {
        self.handler_time = self.handler_time.max(Some(BUSY));
    }

    pub(super) fn take(&mut self) {
        self.seen += 1;
        self.in_hand += 1;
    }

    /// Counts a Step that comes: statements from now on include that it came, and whether it was
    /// lost before.
    pub(super) fn take_grant(&mut self, was_lost: bool) {
        self.take();
        self.lost += u64::from(was_lost);
    }

    pub(super) fn free_up(&mut self, took: Option<Duration>) -> Credit {
        self.in_hand -= 1;
        if let Some(took) = took {
            let old = self.handler_time.unwrap_or(took);
            self.handler_time = Some(old.mul_f64(0.9) + took.mul_f64(0.1));
        }
        self.credit()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// LEASE-18: a worker that lacks something takes one Step fewer at a time, never none, and tries one more
    /// after a while, up to the number with which it was started.
    #[test]
    fn a_worker_that_lacks_something_takes_fewer_steps_for_a_while() {
        let (mut capacity, now) = (WorkerCapacity::of(3), Instant::now());
        assert!(!capacity.raise(now + TRY_MORE), "it has all");
        assert_eq!([capacity.lower(now), capacity.lower(now)], [true, false], "it is said once");
        assert!(!capacity.lower(now));
        assert_eq!(capacity.credit().free, 1, "one runs");
        let later = now + TRY_MORE;
        assert!(!capacity.raise(later - Duration::from_millis(1)));
        assert!(capacity.raise(later) && !capacity.raise(later), "one at a time");
        assert_eq!(capacity.credit().free, 2);
        assert!(capacity.raise(later + TRY_MORE));
        assert!(!capacity.raise(later + 2 * TRY_MORE), "no more than at the start");
        assert_eq!(capacity.credit().free, 3);
        assert!(capacity.lower(later + 2 * TRY_MORE), "it is news again");
        let mut single = WorkerCapacity::of(1);
        assert_eq!([single.lower(now), single.lower(now)], [true, false]);
        assert_eq!(single.credit().free, 1);
    }

    /// Two slots, so many Steps in hand, and handlers that took so long; 0 if none has ended.
    fn capacity(in_hand: usize, took_ms: u64) -> WorkerCapacity {
        let mut capacity = WorkerCapacity::of(2);
        (0..=in_hand).for_each(|_| capacity.take());
        capacity.free_up((took_ms > 0).then(|| Duration::from_millis(took_ms)));
        capacity
    }

    /// Mechanisms 8: workers with short handlers ask for more Steps than they have slots, the
    /// shorter the more; with long handlers they ask for no more than they have slots.
    #[test]
    fn short_handlers_ask_for_more_than_their_slots() {
        let asked_for = [(0, 2), (1, 8), (4, 8), (5, 3), (49, 3), (50, 2), (1_000, 2)];
        for (took_ms, free) in asked_for {
            assert_eq!(capacity(0, took_ms).credit().free, free, "two slots, at {took_ms} ms");
        }
        assert_eq!(capacity(3, 1).credit().free, 5, "what is in hand takes room");
        let mut hosts = WorkerCapacity { prefetches: false, ..capacity(0, 1) };
        assert_eq!(hosts.credit().free, 2, "what waits for no slot is not prefetched");
        let mut leaving = capacity(0, 1);
        leaving.accepting = false;
        assert_eq!(leaving.credit().free, 0);
    }

    #[test]
    fn what_does_not_begin_soon_is_surplus() {
        assert_eq!(capacity(2, 0).surplus(), 0);
        assert_eq!(capacity(5, 0).surplus(), 3, "nothing is known of handlers");
        assert_eq!(capacity(5, 101).surplus(), 3);
        assert_eq!(capacity(5, 60).surplus(), 1, "two begin when the first two have ended");
        assert_eq!(capacity(43, 5).surplus(), 1);
        for took_ms in [1, 4, 5, 49, 50, 100] {
            let mut capacity = capacity(0, took_ms);
            let asked_for = capacity.credit().free;
            (0..asked_for).for_each(|_| capacity.take());
            assert_eq!(capacity.surplus(), 0, "what it asked for it keeps, at {took_ms} ms");
        }
    }

    #[test]
    fn what_was_given_back_is_no_surplus_and_no_room() {
        let mut capacity = capacity(5, 0);
        (0..3).for_each(|_| capacity.give_back());
        assert_eq!((capacity.surplus(), capacity.credit().free), (0, 0));
    }

    #[test]
    fn handlers_that_do_not_end_are_long() {
        let mut capacity = capacity(6, 1);
        assert_eq!(capacity.surplus(), 0);
        capacity.note_busy();
        assert_eq!((capacity.surplus(), capacity.credit().free), (4, 0));
    }
}
