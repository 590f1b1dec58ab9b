//! Closes pools that nobody needs. A pool costs its node some 11 KB, and whoever may create a Task can name one.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tenure_ports::journal::TaskKey;
use tokio::time::Instant;

use super::{Pool, PoolState};

/// How long a pool stays open that had workers and for which there is nothing to do, so that one that is used now and
/// then is not opened again and again. A pool that nobody ever served goes at once: names cost whoever makes them
/// nothing.
const IDLE_FOR: Duration = Duration::from_secs(15);

impl Pool {
    /// Whether the pool has been idle for long enough to be closed.
    pub(crate) fn has_been_idle(&self, now: Instant) -> bool {
        let mut state = self.state.lock();
        if !self.has_nothing(&state) {
            state.idle_since = None;
            return false;
        }
        let patience = if state.was_joined { IDLE_FOR } else { Duration::ZERO };
        now - *state.idle_since.get_or_insert(now) >= patience
    }

    /// Whether there is nothing for which the pool is needed.
    pub(crate) fn is_idle(&self) -> bool {
        self.has_nothing(&self.state.lock())
    }

    fn has_nothing(&self, state: &PoolState) -> bool {
        let PoolState { members, turns, records, .. } = state;
        let has_work = !turns.is_empty() || self.untaken.load(Ordering::Acquire) > 0;
        // Workers' records of what they have in hand have the counts, too.
        let is_counted = Arc::strong_count(&self.turnover) > 1;
        !has_work
            && !is_counted
            && members.count() == 0
            && !members.bounds_some()
            && records.is_empty()
    }

    /// Whether the pool knows of a Task, or may be told of it by a message that it has not taken yet.
    pub(crate) fn may_have(&self, key: &TaskKey) -> bool {
        self.untaken.load(Ordering::Acquire) > 0 || self.state.lock().turns.has(key)
    }

    /// Ends the actor of a pool that is no longer in the table.
    pub(crate) fn close(&self) {
        tracing::debug!(pool = %self.id, "pool is closed");
        if let Some(actor) = self.actor.get() {
            let _ = actor.drain(); // It may have ended.
        }
    }
}
