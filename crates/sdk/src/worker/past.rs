//! [`PastAttempts`]: remembers Attempts that must not begin again.

use std::collections::VecDeque;

use tenure_core::id::AttemptId;
use tenure_ports::map::IdSet;

/// Attempts that a worker had and that are over for it: the newest `MAX` of them.
///
/// In the log such an Attempt may still be open. Then every new owner of its partition repeats its grant, until
/// the log has ended it.
#[derive(Debug, Default)]
pub struct PastAttempts<const MAX: usize> {
    known: IdSet<AttemptId>,
    order: VecDeque<AttemptId>,
}

impl<const MAX: usize> PastAttempts<MAX> {
    /// Notes that this Attempt is over.
    pub fn note(&mut self, attempt: AttemptId) {
        if !self.known.insert(attempt) {
            return;
        }
        self.order.push_back(attempt);
        if self.order.len() > MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    /// Whether this Attempt is over.
    pub fn has(&self, attempt: AttemptId) -> bool {
        self.known.contains(&attempt)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn the_newest_are_remembered() {
        const MAX: usize = 100;
        let mut past = PastAttempts::<MAX>::default();
        let attempt = |number: usize| AttemptId(Uuid::from_u128(number as u128));
        for number in 0..=MAX {
            past.note(attempt(number));
            past.note(attempt(number));
        }
        assert!(!past.has(attempt(0)));
        assert!((1..=MAX).all(|number| past.has(attempt(number))));
    }
}
