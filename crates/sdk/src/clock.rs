//! The time by which leases run, which includes the time when the machine is suspended.

use std::time::Duration;

use tokio::time::Instant;

/// A moment, by two clocks: the runtime's, which tests can steer, and on Linux `CLOCK_BOOTTIME`,
/// which goes on while the machine is suspended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    runtime: Instant,
    boot: Option<Duration>,
}

impl Moment {
    /// This moment.
    pub(crate) fn now() -> Self {
        Self { runtime: Instant::now(), boot: since_boot() }
    }

    /// The time from an earlier moment to this one, by the clock that counted more: it is safer to
    /// give up a lease too early than too late.
    pub(crate) fn since(&self, earlier: &Self) -> Duration {
        let by_runtime = self.runtime.saturating_duration_since(earlier.runtime);
        let by_boot = self.boot.zip(earlier.boot).map(|(now, then)| now.saturating_sub(then));
        by_runtime.max(by_boot.unwrap_or_default())
    }
}

#[cfg(test)]
impl std::ops::Add<Duration> for Moment {
    type Output = Self;

    fn add(self, more: Duration) -> Self {
        Self { runtime: self.runtime + more, boot: self.boot }
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn since_boot() -> Option<Duration> {
    nix::time::ClockId::CLOCK_BOOTTIME.now().ok().map(Duration::from)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn since_boot() -> Option<Duration> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_that_saw_more_counts() {
        let then = Moment { runtime: Instant::now(), boot: Some(Duration::from_secs(5)) };
        let suspended = Moment { boot: Some(Duration::from_secs(65)), ..then };
        assert_eq!(suspended.since(&then), Duration::from_secs(60));
        let steered = Moment { runtime: then.runtime + Duration::from_secs(9), ..then };
        assert_eq!(steered.since(&then), Duration::from_secs(9));
        assert_eq!(then.since(&steered), Duration::ZERO, "a clock never says less than nothing");
    }
}
