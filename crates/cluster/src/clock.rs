//! A clock that goes on while the machine is suspended, and a check whether two clocks run alike.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

/// How far two clocks may move apart between two readings, besides what the reading took
/// (LEASE-14).
const APART: Duration = Duration::from_secs(1);

/// The time since the machine was started, suspensions included: what was certain before a
/// suspension is not certain after it. None where the system does not tell: then nothing is
/// certain.
pub(crate) fn since_boot() -> Option<Duration> {
    clock_gettime(ClockId::CLOCK_BOOTTIME).ok().map(Duration::from)
}

/// The last reading of this node's clock and a server's.
#[derive(Debug, Default)]
pub(crate) struct TwoClocks(Option<(Instant, f64)>);

impl TwoClocks {
    /// Notes what the server's clock said, in milliseconds, when it was asked at `asked`. Answers
    /// whether the two clocks have moved apart since the last reading: one was set, or this machine
    /// was suspended and its clock stood still.
    pub(crate) fn note(&mut self, asked: Instant, there: f64) -> bool {
        let now = Instant::now();
        let Some((before, there_before)) = self.0.replace((now, there)) else { return false };
        let here = (now - before).as_secs_f64() * 1_000.0;
        let took = (now - asked).as_secs_f64() * 1_000.0;
        (there - there_before - here).abs() > APART.as_secs_f64() * 1_000.0 + took
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// LEASE-14, mechanisms 6: if one of two clocks was set, no lease is judged by them; one
    /// reading notices it.
    #[tokio::test(start_paused = true)]
    async fn clocks_that_move_apart_are_noticed_once() {
        let mut clocks = TwoClocks::default();
        let mut there = 5e12;
        assert!(!clocks.note(Instant::now(), there), "the first look says nothing");
        let passed = [1_000.0, 1_990.0, 10.0, 2_010.0, 1_000.0, -10.0, 1_000.0, 3.6e6, 1_000.0];
        let apart = passed.map(|passed| f64::abs(passed - 1_000.0) > 1_000.0);
        for (passed, apart) in passed.into_iter().zip(apart) {
            tokio::time::advance(Duration::from_secs(1)).await;
            there += passed;
            assert_eq!(clocks.note(Instant::now(), there), apart, "{passed} ms");
        }
    }

    /// A difference that a slow answer explains is no jump.
    #[tokio::test(start_paused = true)]
    async fn a_slow_answer_is_no_jump() {
        let mut clocks = TwoClocks::default();
        assert!(!clocks.note(Instant::now(), 0.0));
        let asked = Instant::now();
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(!clocks.note(asked, 100.0));
        let asked = Instant::now();
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(clocks.note(asked, 6_000.0));
    }

    #[test]
    fn it_goes_on() {
        let before = since_boot().unwrap();
        std::thread::sleep(Duration::from_millis(2));
        assert!(since_boot().unwrap() >= before + Duration::from_millis(2));
    }
}
