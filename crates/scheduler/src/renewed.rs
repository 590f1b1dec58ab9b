//! Whose Attempts have been renewed on this node. So the holder of an Attempt learns that its Task has ended without a
//! look into the log, and a worker that holds nothing there learns nothing (PERM-16).

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;
use tenure_core::id::{AgentId, AttemptId};

/// How many Attempts are noted, the newest ones: they take some 6 MB. The node says nothing of an older one, so its
/// lease runs out.
const NOTED_MAX: usize = 1 << 16;

/// The holders of the Attempts that were renewed last.
#[derive(Debug, Default)]
pub(crate) struct RenewedAttempts(Mutex<RenewedTable>);

#[derive(Debug, Default)]
struct RenewedTable {
    holders: HashMap<AttemptId, AgentId>,
    /// In the order in which they were first renewed.
    order: VecDeque<AttemptId>,
}

impl RenewedAttempts {
    /// Notes that a worker has renewed these Attempts, which are its own.
    pub(crate) fn note(&self, who: &AgentId, attempts: impl IntoIterator<Item = AttemptId>) {
        let mut table = self.0.lock();
        for attempt in attempts {
            if table.holders.insert(attempt, who.clone()).is_none() {
                table.order.push_back(attempt);
            }
            if table.order.len() > NOTED_MAX
                && let Some(oldest) = table.order.pop_front()
            {
                table.holders.remove(&oldest);
            }
        }
    }

    /// Whether the worker has renewed this Attempt.
    pub(crate) fn is_of(&self, who: &AgentId, attempt: AttemptId) -> bool {
        self.0.lock().holders.get(&attempt) == Some(who)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn attempt(number: usize) -> AttemptId {
        AttemptId(Uuid::from_u128(number as u128))
    }

    /// The table has a bound, whoever renews however much.
    #[test]
    fn the_newest_attempts_are_noted() {
        let (renewed, ann) = (RenewedAttempts::default(), AgentId::new("ann").unwrap());
        renewed.note(&ann, (0..=NOTED_MAX).map(attempt));
        renewed.note(&ann, [attempt(NOTED_MAX)]);
        assert!(!renewed.is_of(&ann, attempt(0)), "the oldest had to go");
        assert!(renewed.is_of(&ann, attempt(1)) && renewed.is_of(&ann, attempt(NOTED_MAX)));
        assert!(!renewed.is_of(&AgentId::new("bob").unwrap(), attempt(1)));
        let table = renewed.0.lock();
        assert_eq!((table.holders.len(), table.order.len()), (NOTED_MAX, NOTED_MAX));
    }
}
