//! For how long the log has not answered this node, as far as that can be said: whoever asks it runs on the
//! node's runtime, and where that is held up, answers lie there unread.

use std::time::Duration;

use tokio::time::Instant;

/// What is known of the log.
#[derive(Debug)]
pub(super) struct LogHealth {
    /// For how long it had answered nothing when it was looked at last.
    silent: Duration,
    /// When that was, or when it was asked what it has answered.
    looked: Instant,
}

impl LogHealth {
    pub(super) fn new() -> Self {
        Self { silent: Duration::ZERO, looked: Instant::now() }
    }

    /// It has answered what it was asked then.
    pub(super) fn note_answer(&mut self, asked: Instant) {
        (self.silent, self.looked) = (Duration::ZERO, asked.max(self.looked));
    }

    /// All that it was asked is answered or given up: nothing of that takes longer than `most`, unless the
    /// runtime was held up.
    pub(super) fn note_look(&mut self, most: Duration) {
        self.silent = self.silent(most);
        self.looked = Instant::now();
    }

    /// For how long it has answered nothing that was looked at.
    pub(super) fn silent(&self, most: Duration) -> Duration {
        self.silent + self.looked.elapsed().min(most)
    }

    /// For how long nobody has looked: nothing runs there.
    pub(super) fn unlooked(&self) -> Duration {
        self.looked.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MOST: Duration = Duration::from_millis(2_500);

    /// OWN-09, mechanisms 3: what is asked and not answered is silence, all of it.
    #[tokio::test(start_paused = true)]
    async fn the_log_is_silent_from_its_last_answer_on() {
        let mut log = LogHealth::new();
        log.note_answer(Instant::now());
        for passed in 1..=4 {
            tokio::time::advance(SECOND).await;
            assert_eq!(log.silent(MOST), passed * SECOND);
            log.note_look(MOST);
            assert_eq!((log.silent(MOST), log.unlooked()), (passed * SECOND, Duration::ZERO));
        }
        log.note_answer(Instant::now());
        assert_eq!(log.silent(MOST), Duration::ZERO);
    }

    /// Mechanisms 3: a runtime that was held up has heard nothing of what the log may have answered.
    #[tokio::test(start_paused = true)]
    async fn a_runtime_that_is_held_up_is_no_silence_of_the_log() {
        let mut log = LogHealth::new();
        tokio::time::advance(60 * SECOND).await;
        assert_eq!((log.silent(MOST), log.unlooked()), (MOST, 60 * SECOND));
        log.note_look(MOST);
        assert_eq!((log.silent(MOST), log.unlooked()), (MOST, Duration::ZERO));
        log.note_answer(Instant::now());
        assert_eq!(log.silent(MOST), Duration::ZERO);
    }
}
