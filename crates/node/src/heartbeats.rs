//! How many heartbeats are under way at a time, of all workers and of each.
//!
//! A heartbeat may wait for seconds: for a Task that is read from its log, or for the store of leases. No principal has
//! so many under way that others find no permit, and no worker so many that it costs its principal all of them.

use std::sync::Arc;

use tenure_scheduler::{FairPermit, FairPermits};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many heartbeats may be under way at a time. Each is of some 2,000 Attempts of a worker at most; a worker repeats
/// one that is not answered.
const HEARTBEATS_MAX: usize = 4_096;

/// How many of them one worker may have: it needs one for each 2,000 Attempts, and repeats it nine times in a lease.
const OF_WORKER_MAX: usize = 64;

/// The permits of all workers.
#[derive(Debug)]
pub(crate) struct HeartbeatPermits(FairPermits);

/// The permits of one worker.
#[derive(Debug)]
pub(crate) struct WorkerBeats(Arc<Semaphore>);

/// A permit for one heartbeat, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct HeartbeatPermit {
    _of_all: FairPermit,
    _of_worker: OwnedSemaphorePermit,
}

impl Default for HeartbeatPermits {
    fn default() -> Self {
        Self(FairPermits::new(HEARTBEATS_MAX))
    }
}

impl Default for WorkerBeats {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(OF_WORKER_MAX)))
    }
}

impl HeartbeatPermits {
    /// A permit for a worker of a principal. None while either has its share.
    pub(crate) fn take(&self, principal: &str, own: &WorkerBeats) -> Option<HeartbeatPermit> {
        let of_worker = Arc::clone(&own.0).try_acquire_owned().ok()?;
        let of_all = self.0.take_for(principal)?;
        Some(HeartbeatPermit { _of_all: of_all, _of_worker: of_worker })
    }

    /// How many heartbeats are under way.
    pub(crate) fn in_use(&self) -> usize {
        self.0.in_use()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mechanisms 15: however many heartbeats one worker, or all workers of one login, have under way, those of
    /// others are answered.
    #[test]
    fn no_principal_takes_the_heartbeats_of_others() {
        let permits = HeartbeatPermits::default();
        let take_all = |who: &str| -> Vec<HeartbeatPermit> {
            let own = WorkerBeats::default();
            std::iter::from_fn(|| permits.take(who, &own)).collect()
        };
        let of_one = take_all("eve");
        assert_eq!(of_one.len(), OF_WORKER_MAX);
        let mut of_eve: Vec<_> = (0..HEARTBEATS_MAX).flat_map(|_| take_all("eve")).collect();
        of_eve.extend(of_one);
        assert_eq!(of_eve.len(), HEARTBEATS_MAX / 4 * 3);
        assert_eq!(take_all("bob").len(), OF_WORKER_MAX, "another worker has all that it needs");
        drop(of_eve);
        assert_eq!(permits.in_use(), 0, "nothing is left of what is over");
    }
}
