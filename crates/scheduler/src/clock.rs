//! Time and ids for the core, which has neither.

use std::time::{SystemTime, UNIX_EPOCH};

use tenure_core::Stamp;
use tenure_core::id::{AttemptId, CommitId, Millis, RunId};
use tokio::time::Instant;
use uuid::Uuid;

/// A wall clock that follows tokio's: it stands still when a test pauses time, and never steps
/// back while the process lives.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    started: Instant,
    started_at: Millis,
}

impl Clock {
    /// Starts at the system's time.
    pub fn new() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let started_at = Millis::try_from(since.as_millis()).unwrap_or(Millis::MAX);
        Self { started: Instant::now(), started_at }
    }

    /// Unix milliseconds now.
    pub fn now(&self) -> Millis {
        let passed = Millis::try_from(self.started.elapsed().as_millis()).unwrap_or(Millis::MAX);
        self.started_at.saturating_add(passed)
    }

    /// The tokio instant of a Unix time; now if it has passed.
    pub fn instant_of(&self, at: Millis) -> Instant {
        let from_start = u64::try_from(at.saturating_sub(self.started_at)).unwrap_or(0);
        self.started + std::time::Duration::from_millis(from_start)
    }

    /// Time, fresh ids and randomness for one decision.
    pub fn stamp(&self) -> Stamp {
        let (commit, attempt) = (Uuid::now_v7(), Uuid::now_v7());
        Stamp {
            now: self.now(),
            commit_id: CommitId(commit),
            run_id: RunId(Uuid::now_v7()),
            attempt_id: AttemptId(attempt),
            random: attempt.as_u64_pair().1,
        }
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}
