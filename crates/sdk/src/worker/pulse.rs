//! The heartbeats of a worker: renews leases on a schedule of its own, and handles the answers.
//!
//! Step 9 of the walk in docs/architecture.md.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tenure_core::id::AttemptId;
use tenure_core::{Code, Rejection};
use tenure_ports::bus::{Holding, Pulse, WorkerPort};
use tenure_ports::observer::Called;
use tokio::time::{Instant, sleep, sleep_until};

use super::pool::{AttemptStage, HeldAttempt, Loss, PoolShared};
use super::runs::EarlySignal;
use crate::clock::Moment;

/// The time between heartbeats is a lease's duration divided by this.
const INTERVALS: u64 = 3;

/// While nobody answers heartbeats, the worker sends them at least so often.
const UNANSWERED: Duration = Duration::from_secs(1);

/// The worker first renews a new Attempt when it has run for so long, or for this part of the
/// shortest lease: short Attempts end without it.
const EARLY: (Duration, u64) = (Duration::from_millis(200), 30);

/// The worker checks leases so often within the shortest one; at worst it stops a handler late by
/// this part of the lease.
const LOOKS: u64 = 60;

/// CTX-11: renews leases each third of their duration, whatever handlers do.
pub(super) async fn heartbeat(shared: Arc<PoolShared>) {
    let mut last = None;
    let mut is_answered = true;
    loop {
        let due = match shared.plan() {
            Some(every) => {
                let every = if is_answered { every } else { every.min(UNANSWERED) };
                Some(*last.get_or_insert_with(Instant::now) + every)
            }
            None => {
                last = None;
                None
            }
        };
        let pause = async {
            match due {
                Some(due) => sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased; // The regular heartbeat first, however many new Attempts come.
            () = pause => {
                is_answered = shared.renew(|_| true).await;
                last = Some(Instant::now());
            }
            () = shared.fresh.notified() => {
                let early = shared.early_after();
                sleep(early).await;
                let now = Moment::now();
                let is_due = |open: &HeldAttempt| !open.heard && now.since(&open.renewed) >= early;
                is_answered &= shared.renew(is_due).await;
            }
            () = shared.sooner.notified() => {}
        }
    }
}

/// Stops handlers whose leases the worker could not renew, also when no node answers.
pub(super) async fn watch_leases(shared: Arc<PoolShared>) {
    if !shared.port.is_remote() {
        return;
    }
    loop {
        let shortest = shared.shortest.load(Ordering::Acquire);
        let look = Duration::from_millis((shortest / LOOKS).clamp(5, 1000));
        tokio::select! {
            () = sleep(look) => shared.fence(),
            () = shared.shorter.notified() => {}
        }
    }
}

impl PoolShared {
    /// Stores the shortest lease in hand, which sets the time between heartbeats. An Attempt that
    /// comes meanwhile is either seen here or notifies the loop.
    fn plan(&self) -> Option<Duration> {
        let open = self.open.lock();
        let shortest = open.values().map(|open| open.holding.lease_ms).min();
        self.shortest.store(shortest.unwrap_or(u64::MAX), Ordering::Release);
        shortest.map(|lease_ms| Duration::from_millis((lease_ms / INTERVALS).max(1)))
    }

    /// How long a new Attempt runs before it is renewed for the first time.
    fn early_after(&self) -> Duration {
        let shortest = self.shortest.load(Ordering::Acquire);
        EARLY.0.min(Duration::from_millis(shortest / EARLY.1))
    }

    /// Renews some of the Attempts in hand, and returns whether the answers mentioned all of them.
    async fn renew(self: &Arc<Self>, which: impl Fn(&HeldAttempt) -> bool) -> bool {
        let asked = Moment::now(); // A lease counts from before the request.
        let holdings: Vec<Holding> = {
            let open = self.open.lock();
            let wanted = open.values().filter(|open| open.lost.is_none() && which(open));
            let held = |open: &HeldAttempt| Holding {
                input_seen: open.inputs.seen(),
                ..open.holding.clone()
            };
            wanted.map(held).collect()
        };
        if holdings.is_empty() {
            return true;
        }
        let begun = Instant::now();
        let pulses = self.port.heartbeat(&holdings).await;
        let took = begun.elapsed();
        let mut is_answered = true;
        for (held, pulse) in holdings.iter().zip(pulses) {
            match pulse {
                Pulse::Renewed { cancel_requested, time_left_ms } => {
                    if let Some(open) = self.open.lock().get_mut(&held.attempt_id) {
                        open.renewed = asked;
                        open.heard = true;
                    }
                    if cancel_requested {
                        self.ask_to_stop(held.attempt_id, time_left_ms);
                    }
                }
                Pulse::Lost(refused) => {
                    if self.lose(held.attempt_id, Loss::Told) {
                        say_lost(held, &refused);
                    }
                }
                Pulse::Unknown => is_answered = false,
            }
        }
        if let Some(observer) = &self.options.observer {
            let items = holdings.len();
            observer.heartbeat(Called { took, items, is_ok: is_answered });
        }
        if !is_answered {
            self.fence();
        }
        is_answered
    }

    /// Notes that an Attempt is over, and stops its handler. Answers whether the worker had not ended
    /// the Attempt itself, and does not know of its end yet.
    pub(super) fn lose(&self, attempt: AttemptId, loss: Loss) -> bool {
        let mut open = self.open.lock();
        let Some(open) = open.get_mut(&attempt) else {
            self.early.lock().note(attempt, EarlySignal::Lost);
            return false;
        };
        if open.stage == AttemptStage::Said && loss == Loss::Told {
            return false;
        }
        let is_news = open.lost.is_none() && !open.is_reported;
        open.lost.get_or_insert(loss);
        open.stop.cancelled.cancel();
        open.stop.forced.cancel();
        is_news
    }

    /// Fences Attempts whose leases the worker could not renew: stops their handlers before the
    /// leases end. Those that go on anyway are fenced when they were to end by force.
    fn fence(&self) {
        let (now, is_remote) = (Moment::now(), self.port.is_remote());
        let late: Vec<_> = {
            let open = self.open.lock();
            let open = open.values().filter(|open| open.lost.is_none());
            let late = open
                .filter(|open| open.is_fenced())
                .filter(|open| now.since(&open.renewed) >= limit(open, is_remote));
            late.map(|open| open.holding.clone()).collect()
        };
        for Holding { task, attempt_id: attempt, .. } in late {
            tracing::warn!(%task, %attempt, "the lease could not be renewed; stopping");
            let _ = self.lose(attempt, Loss::Fenced); // Said above.
        }
    }
}

/// Logs that an Attempt is over which the worker has not ended. If somebody ended its Task, this is nothing unusual.
fn say_lost(held: &Holding, refused: &Rejection) {
    let (task, attempt) = (&held.task, held.attempt_id);
    match refused.code {
        Code::TaskTerminal => {
            tracing::info!(%task, %attempt, %refused, "the attempt is over: its task has ended");
        }
        _ => tracing::warn!(%task, %attempt, %refused, "the attempt is lost"),
    }
}

/// How long an Attempt may go on without a renewal. A lease that no node has confirmed may have
/// begun some time before its grant came.
fn limit(open: &HeldAttempt, is_remote: bool) -> Duration {
    stops_after(open.holding.lease_ms, open.heard || !is_remote)
}

/// When to stop, at nine tenths of the certain part of a lease: so the handler has the time to end
/// before another worker may claim the Step.
fn stops_after(lease_ms: u64, is_confirmed: bool) -> Duration {
    let counted = if is_confirmed { lease_ms } else { lease_ms / INTERVALS };
    Duration::from_millis(counted * 9 / 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// LEASE-05: a worker that cannot renew stops before its lease ends, and not much before; if no
    /// node has confirmed the lease, before its first heartbeat interval ends.
    #[test]
    fn a_worker_stops_a_tenth_of_its_lease_early() {
        assert_eq!(stops_after(30_000, true), Duration::from_secs(27));
        assert_eq!(stops_after(30_000, false), Duration::from_secs(9));
    }
}
