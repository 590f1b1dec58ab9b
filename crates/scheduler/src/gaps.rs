//! Tasks that could not be asked in time about a heartbeat. Their workers are alive, and the node could not find out
//! whether they still hold their Attempts. So for a while the node ends no lease of such a Task (LEASE-14). It goes on
//! judging the leases of other Tasks, also those that the same workers hold.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tenure_core::id::Millis;
use tenure_ports::journal::TaskKey;
use tenure_ports::{Journal, Leases};

use crate::node::NodeShared;

/// How many Tasks are noted at a time. More cannot be read from their logs at the same time anyway.
const TASKS_MAX: usize = 10_000;

/// For each Task, when it last could not be asked about a heartbeat, on the clock that nobody sets.
#[derive(Debug, Default)]
pub(crate) struct TaskGaps(Mutex<HashMap<TaskKey, Millis>>);

impl TaskGaps {
    fn note(&self, task: &TaskKey, now: Millis) {
        let mut all = self.0.lock();
        if all.len() < TASKS_MAX || all.contains_key(task) {
            all.insert(task.clone(), now);
        }
    }

    fn since(&self, task: &TaskKey) -> Option<Millis> {
        self.0.lock().get(task).copied()
    }

    fn drop_before(&self, then: Millis) {
        self.0.lock().retain(|_, at| *at >= then);
    }
}

impl<J: Journal, L: Leases> NodeShared<J, L> {
    /// Notes that a Task could not be asked about a heartbeat.
    pub(crate) fn note_unasked(&self, task: &TaskKey) {
        self.gaps.note(task, self.clock.passed());
        tracing::debug!(%task, "a heartbeat could not be checked in time");
    }

    /// Whether the Task could not be asked about a heartbeat at some moment of the last `time`.
    pub(crate) fn was_unasked_within(&self, task: &TaskKey, time: Duration) -> bool {
        let back = Millis::try_from(time.as_millis()).unwrap_or(Millis::MAX);
        self.gaps.since(task).is_some_and(|at| at >= self.clock.passed().saturating_sub(back))
    }

    /// Forgets what no lease can depend on any more.
    pub(crate) fn forget_gaps(&self) {
        let back = self.reachable_since() + Duration::from_millis(self.config.limits.lease_ms * 2);
        let back = Millis::try_from(back.as_millis()).unwrap_or(Millis::MAX);
        self.gaps.drop_before(self.clock.passed().saturating_sub(back));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A test that cannot go on has failed.
mod tests {
    use super::*;

    /// LEASE-14: a gap is of one Task, is forgotten after its time, and there are so many at most.
    #[test]
    fn gaps_are_of_their_tasks_and_bounded() {
        let key = |n: usize| TaskKey {
            session_id: "s".parse().unwrap(),
            task_id: format!("t{n}").parse().unwrap(),
        };
        let gaps = TaskGaps::default();
        gaps.note(&key(1), 5);
        assert_eq!((gaps.since(&key(1)), gaps.since(&key(2))), (Some(5), None));
        (0..TASKS_MAX + 5).for_each(|n| gaps.note(&key(n), 7));
        assert_eq!(gaps.0.lock().len(), TASKS_MAX);
        gaps.note(&key(1), 9);
        gaps.drop_before(8);
        assert_eq!(gaps.0.lock().len(), 1);
        assert_eq!(gaps.since(&key(1)), Some(9));
    }
}
