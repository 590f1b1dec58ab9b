//! Time and ids for the core, which has neither.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use tenure_core::Stamp;
use tenure_core::id::{AttemptId, CommitId, Millis, RunId};
use tokio::time::Instant;
use uuid::Uuid;

/// How far the system's clock must be ahead to be caught up with.
const BEHIND: Millis = 1_000;

/// A wall clock that follows tokio's: it stands still when a test pauses time, and never steps
/// back while the process lives.
#[derive(Debug)]
pub struct Clock {
    started: Instant,
    started_at: AtomicI64,
}

impl Clock {
    /// Starts at the system's time.
    pub fn new() -> Self {
        Self { started: Instant::now(), started_at: AtomicI64::new(system_time()) }
    }

    /// Whether a time is well ahead.
    pub(crate) fn is_behind(&self, at: Millis) -> bool {
        at.saturating_sub(self.now()) > BEHIND
    }

    /// Goes forward to a time that is well ahead. Whether it did: what is to happen at a time is to happen
    /// sooner then.
    pub(crate) fn go_forward_to(&self, at: Millis) -> bool {
        let is_behind = self.is_behind(at);
        if is_behind {
            let started_at = at.saturating_sub_unsigned(self.passed_ms());
            self.started_at.fetch_max(started_at, Ordering::Relaxed);
        }
        is_behind
    }

    /// Unix milliseconds now.
    pub fn now(&self) -> Millis {
        self.started_at.load(Ordering::Relaxed).saturating_add_unsigned(self.passed_ms())
    }

    /// Milliseconds since it was started, however often it went forward.
    pub(crate) fn passed_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// The tokio instant of a Unix time, as the clock goes now; one that has passed, if it has.
    pub fn instant_of(&self, at: Millis) -> Instant {
        let from_start = u64::try_from(at.saturating_sub(self.started_at.load(Ordering::Relaxed)));
        let from_start = from_start.unwrap_or(0);
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

pub(crate) fn system_time() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Millis::try_from(since.as_millis()).unwrap_or(Millis::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mechanisms 17: a clock that stood still goes forward, and never back.
    #[tokio::test(start_paused = true)]
    async fn it_goes_forward_and_never_back() {
        let clock = Clock::new();
        let before = clock.now();
        assert!(!clock.go_forward_to(before + BEHIND));
        assert_eq!(clock.now(), before, "so little may be the clocks' ways of counting");
        assert!(clock.go_forward_to(before + 3_600_000));
        assert_eq!(clock.now(), before + 3_600_000);
        assert!(!clock.go_forward_to(before));
        assert_eq!(clock.now(), before + 3_600_000);
        let later = clock.instant_of(clock.now() + 5_000);
        assert_eq!(later - Instant::now(), std::time::Duration::from_secs(5));
    }
}
