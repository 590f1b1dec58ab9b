//! How fast a pool hands out credits.

use std::time::Duration;

use tokio::time::Instant;

/// The moment that a turn lasts where Steps are short.
const MOMENT: Duration = Duration::from_millis(5);

/// How many credits were handed out in the current and in the last moment.
#[derive(Debug)]
pub(super) struct Pace {
    since: Instant,
    now: usize,
    before: usize,
}

impl Pace {
    pub(super) fn new() -> Self {
        Self { since: Instant::now(), now: 0, before: 0 }
    }

    fn roll(&mut self) {
        let passed = self.since.elapsed();
        if passed >= 2 * MOMENT {
            *self = Self { since: Instant::now(), now: 0, before: 0 };
        } else if passed >= MOMENT {
            *self = Self { since: self.since + MOMENT, now: 0, before: self.now };
        }
    }

    pub(super) fn note(&mut self, given: usize) {
        self.roll();
        self.now += given;
    }

    pub(super) fn in_a_moment(&mut self) -> usize {
        self.roll();
        self.now.max(self.before)
    }
}
