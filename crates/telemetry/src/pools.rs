//! Which pools have series of their own: there is a bound, as a pool can be named by whoever may create a Task.
//!
//! The pool that came first keeps its series for as long as it is there, whatever others come: a series that is a
//! pool's own at one time and not at another would say that its work has gone.

use std::collections::HashSet;
use std::time::Duration;

use tenure_core::id::PoolId;
use tenure_ports::observer::{PoolSample, Sample};

/// How many pools are told apart.
const POOLS_MAX: usize = 240;

/// The name for all other pools.
const OTHER: &str = "other";

/// The pools that have series of their own.
#[derive(Debug, Default)]
pub(crate) struct PoolSeries(HashSet<PoolId>);

impl PoolSeries {
    /// The sample with the pools that have no series of their own as one, the last.
    pub(crate) fn bound(&mut self, mut sample: Sample) -> Sample {
        let there: HashSet<&PoolId> = sample.pools.iter().map(|it| &it.pool).collect();
        self.0.retain(|pool| there.contains(pool));
        sample.pools.sort_unstable_by(|one, other| one.pool.cmp(&other.pool)); // Of those that come at once.
        let (mut own, others): (Vec<_>, Vec<_>) =
            sample.pools.into_iter().partition(|it| self.has(&it.pool));
        own.extend(together(others));
        sample.pools = own;
        sample
    }

    /// Whether a pool has series of its own. It gets them if there is room.
    fn has(&mut self, pool: &PoolId) -> bool {
        if self.0.contains(pool) {
            return true;
        }
        let is_new = self.0.len() < POOLS_MAX && pool.as_str() != OTHER;
        if is_new {
            self.0.insert(pool.clone());
        }
        is_new
    }
}

/// Pools as one; none if there are none.
fn together(pools: Vec<PoolSample>) -> Option<PoolSample> {
    let mut all = empty(pools.first()?.clone());
    all.pool = OTHER.parse().unwrap_or(all.pool);
    for pool in pools {
        all.waiting += pool.waiting;
        all.ready += pool.ready;
        all.running += pool.running;
        all.free += pool.free;
        all.workers += pool.workers;
        all.leaving += pool.leaving;
        all.suspended += pool.suspended;
        all.oldest = all.oldest.max(pool.oldest);
    }
    Some(all)
}

/// The sample with zeros for pools that have closed since the one before: nobody is to take their last numbers for
/// the present.
pub(crate) fn with_closed_pools(mut sample: Sample, before: Sample) -> Sample {
    let is_there = |pool: &PoolSample| sample.pools.iter().any(|it| it.pool == pool.pool);
    let is_empty = |pool: &PoolSample| *pool == empty(pool.clone());
    let closed = before.pools.into_iter().filter(|pool| !is_empty(pool) && !is_there(pool));
    let closed: Vec<_> = closed.map(empty).collect();
    sample.pools.extend(closed);
    sample
}

/// A pool without anything.
pub(crate) fn empty(pool: PoolSample) -> PoolSample {
    PoolSample {
        workers: 0,
        leaving: 0,
        suspended: 0,
        free: 0,
        waiting: 0,
        ready: 0,
        waits: Vec::new(),
        oldest: Duration::ZERO,
        running: 0,
        ..pool
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A pool in which so many Steps wait.
    pub(crate) fn pool(name: &str, waiting: u64) -> PoolSample {
        PoolSample {
            pool: name.parse().unwrap(),
            workers: 1,
            leaving: 0,
            suspended: 0,
            free: 2,
            waiting,
            ready: waiting,
            waits: Vec::new(),
            oldest: Duration::from_secs(waiting),
            running: 3,
            ended: 0,
            sessions: None,
        }
    }

    fn bound(series: &mut PoolSeries, pools: Vec<PoolSample>) -> Vec<PoolSample> {
        series.bound(Sample { pools, ..Sample::default() }).pools
    }

    #[test]
    fn pools_over_the_limit_count_together() {
        let pools = (0..POOLS_MAX as u64 + 3).map(|n| pool(&format!("p{n:04}"), n)).collect();
        let pools = bound(&mut PoolSeries::default(), pools);
        assert_eq!(pools.len(), POOLS_MAX + 1);
        let (other, last) = (&pools[POOLS_MAX], POOLS_MAX as u64 + 2);
        assert_eq!((other.pool.as_str(), other.waiting), ("other", 3 * last - 3));
        assert_eq!((other.workers, other.free, other.running), (3, 6, 9));
        assert_eq!(other.oldest, Duration::from_secs(last), "the oldest is no sum");
    }

    #[test]
    fn a_pool_keeps_its_series_though_others_with_smaller_names_come() {
        let mut series = PoolSeries::default();
        let of = |range: std::ops::Range<usize>| range.map(|n| pool(&format!("p{n:04}"), 1));
        let full: Vec<_> = of(0..POOLS_MAX).collect();
        assert_eq!(bound(&mut series, full.clone()).len(), POOLS_MAX);
        let names = |pools: &[PoolSample]| -> Vec<String> {
            pools.iter().map(|it| it.pool.to_string()).collect()
        };
        let (mut expected, late) = (names(&full), pool("a", 7));
        expected.push(OTHER.to_owned());
        let with_late: Vec<_> = [late.clone()].into_iter().chain(full).collect();
        let now = bound(&mut series, with_late);
        assert_eq!((names(&now), now[POOLS_MAX].waiting), (expected, 7));
        // One has gone, and the late one gets its place.
        let fewer: Vec<_> = [late].into_iter().chain(of(1..POOLS_MAX)).collect();
        let now = bound(&mut series, fewer.clone());
        assert_eq!(names(&now), names(&fewer));
        assert_eq!(series.0.len(), POOLS_MAX, "who has gone is forgotten");
    }

    /// It would have the same series as the rest.
    #[test]
    fn a_pool_with_the_name_of_the_rest_counts_to_the_rest() {
        let pools = (0..=POOLS_MAX).map(|n| pool(&format!("p{n:04}"), 1));
        let pools = bound(&mut PoolSeries::default(), pools.chain([pool(OTHER, 4)]).collect());
        let rest: Vec<u64> =
            pools.iter().filter(|it| it.pool.as_str() == OTHER).map(|it| it.waiting).collect();
        assert_eq!(rest, [5]);
    }
}
