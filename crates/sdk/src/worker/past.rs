//! Remembers the Attempts that a worker had and gave up, though in the log they may still be open.

use std::collections::VecDeque;

use tenure_core::id::AttemptId;
use tenure_ports::map::IdSet;

/// How many are remembered. Attempts are given up when a worker cannot renew their leases, few at a
/// time.
const KEPT: usize = 16_384;

/// Attempts that must not begin again: every new owner of their partition repeats their grants
/// until the log has ended them.
#[derive(Debug, Default)]
pub(super) struct PastAttempts {
    known: IdSet<AttemptId>,
    order: VecDeque<AttemptId>,
}

impl PastAttempts {
    /// Notes that this Attempt was given up.
    pub(super) fn note(&mut self, attempt: AttemptId) {
        if !self.known.insert(attempt) {
            return;
        }
        self.order.push_back(attempt);
        if self.order.len() > KEPT
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    /// Whether this Attempt was given up.
    pub(super) fn has(&self, attempt: AttemptId) -> bool {
        self.known.contains(&attempt)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn the_newest_are_kept() {
        let mut past = PastAttempts::default();
        let attempt = |number: usize| AttemptId(Uuid::from_u128(number as u128));
        for number in 0..=KEPT {
            past.note(attempt(number));
            past.note(attempt(number));
        }
        assert!(!past.has(attempt(0)));
        assert!((1..=KEPT).all(|number| past.has(attempt(number))));
    }
}
