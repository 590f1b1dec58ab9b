//! The Task actor ends Attempts whose leases ended (LEASE-07, LEASE-14).

use std::time::{Duration, Instant};

use tenure_core::Command;
use tenure_core::event::LeaseEnd;
use tenure_core::id::AttemptId;
use tenure_core::status::Outcome;
use tenure_ports::{Journal, Leases};

use super::{ActorTask, Flight, Life};

impl<J: Journal, L: Leases> ActorTask<J, L> {
    /// Ends Attempts. Those whose heartbeats may have been missed, because of a gap, end apart from the others.
    pub(super) fn end_leases(
        &mut self,
        flight: &mut Flight,
        mut attempts: Vec<AttemptId>,
        reason: LeaseEnd,
    ) {
        flight.ended.extend(self.take_those_over(&mut attempts));
        if reason == LeaseEnd::LeaseExpired {
            attempts.retain(|id| self.is_lease_over(*id));
            let (unheard, silent) = attempts.into_iter().partition(|id| self.was_in_gap(*id));
            self.expire(flight, unheard, LeaseEnd::Outage);
            attempts = silent;
        }
        self.expire(flight, attempts, reason);
    }

    fn expire(&mut self, flight: &mut Flight, attempt_ids: Vec<AttemptId>, reason: LeaseEnd) {
        let told = attempt_ids.clone();
        if self.decide_alone(flight, &Command::ExpireLeases { attempt_ids, reason }) {
            if reason.outcome() == Outcome::Lost {
                let task = &self.key;
                let (attempts, count) = (named(&told), told.len());
                tracing::warn!(%task, attempts, count, %reason, "leases ended without a word");
            }
            flight.expired.push((told, reason));
        }
    }

    /// Takes out the Attempts that are not open: those that never came to be, and those that had
    /// ended when their lease was renewed. Their leases are dropped once the append has returned.
    pub(super) fn take_those_over(&self, attempts: &mut Vec<AttemptId>) -> Vec<AttemptId> {
        let Life::Known(task) = &self.life else { return Vec::new() };
        let is_open = |id: &AttemptId| task.attempt(*id).is_some_and(|a| a.outcome.is_none());
        let (open, over) = std::mem::take(attempts).into_iter().partition(is_open);
        *attempts = open;
        over
    }

    /// Whether a lease that a scan found ended still is: its holder may have renewed it while the
    /// command waited.
    fn is_lease_over(&self, attempt: AttemptId) -> bool {
        self.node.leases.left_ms(attempt).is_none_or(|left| left == 0)
    }

    /// LEASE-14: whether this node saw a gap between the last renewal of a lease and its end. The
    /// renewal was at most the duration of a lease before the end.
    fn was_in_gap(&self, attempt: AttemptId) -> bool {
        let Life::Known(task) = &self.life else { return false };
        let lease_ms = task.attempt(attempt).map_or(0, |attempt| attempt.lease_ms);
        let since_end = self.over.get(&attempt).map_or(Duration::ZERO, Instant::elapsed);
        let since = Duration::from_millis(lease_ms) + since_end;
        self.node.saw_gap_within(since) || self.node.was_unasked_within(&self.key, since)
    }
}

/// How many Attempts a line names.
const NAMED_MAX: usize = 10;

/// The first of these Attempts, for a line of the log.
fn named(attempts: &[AttemptId]) -> String {
    let named: Vec<String> = attempts.iter().take(NAMED_MAX).map(AttemptId::to_string).collect();
    named.join(" ")
}
