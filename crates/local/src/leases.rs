//! Leases in memory, on tokio's clock: the store of leases of a single process.

use std::collections::BTreeSet;
use std::time::Duration;

use parking_lot::Mutex;
use tenure_core::id::AttemptId;
use tenure_ports::Leases;
use tenure_ports::journal::TaskKey;
use tenure_ports::leases::{ExpiredLease, Lease, LeaseError, Scan};
use tenure_ports::map::IdMap;
use tokio::time::Instant;

/// The [`Leases`] of a single process: they live exactly as long as the process, and never fail.
///
/// Time is tokio's, so tests with a paused clock decide when a lease ends.
#[derive(Debug, Default)]
pub struct MemoryLeases {
    held: Mutex<LeaseTable>,
}

#[derive(Debug, Default)]
struct LeaseTable {
    leases: IdMap<AttemptId, LeaseEntry>,
    /// The same by their end, so that a scan costs as much as has ended, not as much as there is.
    by_end: BTreeSet<(Instant, AttemptId)>,
}

#[derive(Debug)]
struct LeaseEntry {
    task: TaskKey,
    end: Instant,
}

/// The longest lease; a longer one ends then. It keeps sums within the clock's range.
const LEASE_MS_MAX: u64 = 100 * 365 * 24 * 3600 * 1000;

impl LeaseTable {
    fn put(&mut self, lease: Lease, now: Instant) {
        self.forget(lease.attempt_id);
        let end = now + Duration::from_millis(lease.duration_ms.min(LEASE_MS_MAX));
        self.by_end.insert((end, lease.attempt_id));
        let kept = LeaseEntry { task: lease.task, end };
        self.leases.insert(lease.attempt_id, kept);
    }

    fn forget(&mut self, attempt: AttemptId) {
        if let Some(kept) = self.leases.remove(&attempt) {
            self.by_end.remove(&(kept.end, attempt));
        }
    }

    fn ended(&self, now: Instant) -> Vec<ExpiredLease> {
        let ended = self.by_end.iter().take_while(|(end, _)| *end <= now);
        let of = |(end, attempt_id): &(Instant, AttemptId)| {
            let task = self.leases.get(attempt_id)?.task.clone();
            Some(ExpiredLease { task, attempt_id: *attempt_id, late: now - *end })
        };
        ended.filter_map(of).collect()
    }
}

impl MemoryLeases {
    fn put_all(&self, leases: Vec<Lease>) {
        let now = Instant::now();
        let mut held = self.held.lock();
        leases.into_iter().for_each(|lease| held.put(lease, now));
    }
}

impl Leases for MemoryLeases {
    async fn acquire(&self, leases: Vec<Lease>) -> Result<(), LeaseError> {
        self.put_all(leases);
        Ok(())
    }

    async fn renew(&self, leases: Vec<Lease>) -> Result<(), LeaseError> {
        self.put_all(leases);
        Ok(())
    }

    async fn raise(&self, leases: Vec<Lease>) -> Result<(), LeaseError> {
        let now = Instant::now();
        let mut held = self.held.lock();
        for lease in leases {
            let all = Duration::from_millis(lease.duration_ms.min(LEASE_MS_MAX));
            let there = held.leases.get(&lease.attempt_id).map(|kept| kept.end);
            match there {
                Some(end) if end < now + all / 2 => {
                    held.put(Lease { duration_ms: lease.duration_ms / 2, ..lease }, now);
                }
                Some(end) if end <= now + all => {}
                _ => held.put(lease, now),
            }
        }
        Ok(())
    }

    async fn ensure(&self, leases: Vec<Lease>) -> Result<(), LeaseError> {
        let now = Instant::now();
        let mut held = self.held.lock();
        for lease in leases {
            if !held.leases.contains_key(&lease.attempt_id) {
                held.put(lease, now);
            }
        }
        Ok(())
    }

    async fn release(&self, attempts: Vec<AttemptId>) -> Result<(), LeaseError> {
        let mut held = self.held.lock();
        attempts.into_iter().for_each(|attempt| held.forget(attempt));
        Ok(())
    }

    async fn expired(&self) -> Result<Scan, LeaseError> {
        Ok(Scan { ended: self.held.lock().ended(Instant::now()), doubtful: false })
    }

    fn left_ms(&self, attempt: AttemptId) -> Option<u64> {
        let now = Instant::now();
        let held = self.held.lock();
        held.leases.get(&attempt).map(|kept| whole_ms(kept.end.saturating_duration_since(now)))
    }
}

/// Milliseconds, rounded up: a lease that has not ended has something left.
fn whole_ms(left: Duration) -> u64 {
    u64::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
