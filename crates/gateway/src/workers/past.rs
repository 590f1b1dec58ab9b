//! [`EndedAttempts`]: remembers the Attempts of a link that are over, newest first to stay.

use std::collections::VecDeque;

use tenure_core::id::AttemptId;
use tenure_ports::map::IdSet;

/// How many are remembered. A grant is repeated, and a signal comes late, within seconds.
pub(super) const ENDED_MAX: usize = 1_024;

/// Attempts of a link that are over: a grant that comes again for one of them is not handed out.
#[derive(Debug, Default)]
pub(super) struct EndedAttempts {
    known: IdSet<AttemptId>,
    order: VecDeque<AttemptId>,
}

impl EndedAttempts {
    /// Notes that this Attempt is over.
    pub(super) fn note(&mut self, attempt: AttemptId) {
        if !self.known.insert(attempt) {
            return;
        }
        self.order.push_back(attempt);
        if self.order.len() > ENDED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    /// Whether this Attempt is over.
    pub(super) fn has(&self, attempt: AttemptId) -> bool {
        self.known.contains(&attempt)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn the_newest_are_remembered() {
        let mut ended = EndedAttempts::default();
        let attempt = |number: usize| AttemptId(Uuid::from_u128(number as u128));
        for number in 0..=ENDED_MAX {
            ended.note(attempt(number));
            ended.note(attempt(number));
        }
        assert!(!ended.has(attempt(0)));
        assert!((1..=ENDED_MAX).all(|number| ended.has(attempt(number))));
    }
}
