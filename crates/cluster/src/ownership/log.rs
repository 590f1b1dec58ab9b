//! For how long the log has not answered this node. Those who ask the log run on the node's
//! runtime; if that stands still, answers lie there unread, so this also knows when somebody last
//! looked.

use std::time::Duration;

use tokio::time::Instant;

/// What is known of the log's answers.
#[derive(Debug)]
pub(super) struct LogHealth {
    /// For how long the log had answered nothing at the last look.
    silent: Duration,
    /// When the last look was, or when the question was asked that it answered last.
    looked: Instant,
}

impl LogHealth {
    pub(super) fn new() -> Self {
        Self { silent: Duration::ZERO, looked: Instant::now() }
    }

    /// Notes that the log has answered a question of that time.
    pub(super) fn note_answer(&mut self, asked: Instant) {
        (self.silent, self.looked) = (Duration::ZERO, asked.max(self.looked));
    }

    /// Notes that all questions have been answered or given up. They take no longer than `most`,
    /// unless the runtime stood still.
    pub(super) fn note_look(&mut self, most: Duration) {
        self.silent = self.silent(most);
        self.looked = Instant::now();
    }

    /// For how long the log has answered nothing, counting only time in which somebody would have
    /// looked.
    pub(super) fn silent(&self, most: Duration) -> Duration {
        self.silent + self.looked.elapsed().min(most)
    }

    /// For how long nobody has looked: nothing runs on that runtime.
    pub(super) fn unlooked(&self) -> Duration {
        self.looked.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MOST: Duration = Duration::from_millis(2_500);

    /// OWN-09, mechanisms 3: all the time of unanswered questions counts as silence.
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

    /// Mechanisms 3: while the runtime stands still, the log does not count as silent.
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
