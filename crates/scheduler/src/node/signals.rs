//! Signals for workers that have no link: each is sent on the worker's next link, or dropped after a while. One that is
//! dropped is only late, as the answer to the worker's next heartbeat says the same (CANCEL-07, LEASE-13).

use tenure_core::id::AgentId;
use tenure_ports::bus::Delivery;
use tenure_ports::map::IdMap;
use tokio::time::Instant;

/// How many signals wait for all workers of a node, and for one of them. While so many do, no more are kept.
const KEPT_MAX: usize = 65_536;
const OF_WORKER_MAX: usize = 16_384;

/// The signals that wait, by worker, each with the instant at which it is dropped.
#[derive(Debug, Default)]
pub(super) struct WaitingSignals {
    by_worker: IdMap<AgentId, Vec<(Instant, Delivery)>>,
    count: usize,
}

impl WaitingSignals {
    /// Keeps a signal until then. Late input is not kept: the worker's first heartbeat brings all that it lacks.
    pub(super) fn keep(&mut self, worker: &AgentId, what: Delivery, until: Instant) {
        if matches!(what, Delivery::Input(_)) || self.count >= KEPT_MAX {
            return;
        }
        let kept = self.by_worker.entry(worker.clone()).or_default();
        if kept.len() < OF_WORKER_MAX {
            kept.push((until, what));
            self.count += 1;
        }
    }

    /// Takes out those of a worker, oldest first.
    pub(super) fn take(&mut self, worker: &AgentId) -> impl Iterator<Item = Delivery> + use<> {
        let kept = self.by_worker.remove(worker).unwrap_or_default();
        self.count -= kept.len();
        kept.into_iter().map(|(_, what)| what)
    }

    /// How many wait.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Drops those whose workers have not come in time.
    pub(super) fn forget(&mut self, now: Instant) {
        self.by_worker.retain(|_, kept| {
            kept.retain(|(until, _)| *until > now);
            !kept.is_empty()
        });
        self.count = self.by_worker.values().map(Vec::len).sum();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A test that cannot go on has failed.
mod tests {
    use std::time::Duration;

    use tenure_core::id::AttemptId;
    use tenure_wire::bus::worker::LateInput;
    use uuid::Uuid;

    use super::*;

    fn lost(number: usize) -> Delivery {
        Delivery::Lost(AttemptId(Uuid::from_u128(number as u128)))
    }

    /// CANCEL-07: of one worker, and of all together, so many signals wait; the first of them, and no late input.
    #[tokio::test(start_paused = true)]
    async fn so_many_signals_wait_and_no_more() {
        let mut kept = WaitingSignals::default();
        let (now, until) = (Instant::now(), Instant::now() + Duration::from_secs(30));
        let name = |number: usize| AgentId::new(format!("w{number}")).unwrap();
        let input = LateInput { attempt_id: AttemptId(Uuid::nil()), after: 0, input_refs: vec![] };
        kept.keep(&name(0), Delivery::Input(input.into()), until);
        assert_eq!(kept.count(), 0);
        for number in 0..OF_WORKER_MAX + 1 {
            kept.keep(&name(0), lost(number), until);
        }
        assert_eq!(kept.count(), OF_WORKER_MAX);
        for number in 0..KEPT_MAX {
            kept.keep(&name(1 + number % 16), lost(number), until);
        }
        assert_eq!(kept.count(), KEPT_MAX);
        let taken: Vec<_> = kept.take(&name(0)).collect();
        assert_eq!(taken.len(), OF_WORKER_MAX);
        assert!(
            matches!(taken[0], Delivery::Lost(AttemptId(id)) if id.is_nil()),
            "the oldest first"
        );
        assert_eq!(kept.count(), KEPT_MAX - OF_WORKER_MAX);
        kept.forget(now);
        assert_eq!(kept.count(), KEPT_MAX - OF_WORKER_MAX);
        kept.forget(until);
        assert_eq!((kept.count(), kept.by_worker.len()), (0, 0));
        kept.keep(&name(0), lost(1), until);
        assert_eq!(kept.count(), 1);
    }
}
