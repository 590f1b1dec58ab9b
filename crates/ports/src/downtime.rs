//! Counts what fails while a server is away, so that a log names the downtime once, and its end once.

use std::time::{Duration, Instant};

/// Whether a server is away, and how often it was tried in vain.
///
/// A server may refuse some calls and answer others. So the downtime is over only once nothing has failed for a
/// while: otherwise its beginning and its end would be logged in turn.
#[derive(Debug)]
pub struct Downtime {
    quiet: Duration,
    open: Option<OpenDowntime>,
}

#[derive(Debug)]
struct OpenDowntime {
    since: Instant,
    failed: u64,
    /// When the server first answered after the last failure.
    answered: Option<Instant>,
}

/// A downtime that is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DowntimeEnd {
    /// From the first failure to the first answer after the last.
    pub lasted: Duration,
    /// How many calls failed.
    pub failed: u64,
}

impl Downtime {
    /// A server that answers. A later downtime is over when nothing has failed for as long as `quiet`.
    pub const fn new(quiet: Duration) -> Self {
        Self { quiet, open: None }
    }

    /// Notes a failure. Answers whether a downtime begins with it.
    pub fn note_failure(&mut self, now: Instant) -> bool {
        let begins = self.open.is_none();
        let open = self.open.get_or_insert(OpenDowntime { since: now, failed: 0, answered: None });
        open.failed += 1;
        open.answered = None;
        begins
    }

    /// Notes an answer. Answers with the downtime that it ends.
    pub fn note_answer(&mut self, now: Instant) -> Option<DowntimeEnd> {
        let open = self.open.as_mut()?;
        let answered = *open.answered.get_or_insert(now);
        if now.saturating_duration_since(answered) < self.quiet {
            return None;
        }
        let end = DowntimeEnd { lasted: answered - open.since, failed: open.failed };
        self.open = None;
        Some(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_downtime_begins_once_and_ends_once_with_its_length_and_its_failures() {
        let (mut downtime, begun) = (Downtime::new(Duration::from_secs(5)), Instant::now());
        let at = |seconds| begun + Duration::from_secs(seconds);
        assert_eq!(downtime.note_answer(at(0)), None, "nothing has failed");
        assert!(downtime.note_failure(at(0)));
        for _ in 0..339 {
            assert!(!downtime.note_failure(at(11)));
        }
        assert_eq!(downtime.note_answer(at(12)), None);
        assert_eq!(downtime.note_answer(at(16)), None);
        let end = DowntimeEnd { lasted: Duration::from_secs(12), failed: 340 };
        assert_eq!(downtime.note_answer(at(17)), Some(end));
        assert_eq!(downtime.note_answer(at(18)), None);
        assert!(downtime.note_failure(at(19)), "the next is new");
    }

    /// A store that takes no lease and answers every scan would have a line for its end and one for its begin every
    /// second otherwise: thousands an hour.
    #[test]
    fn a_server_that_answers_only_some_calls_stays_away() {
        let (mut downtime, begun) = (Downtime::new(Duration::from_secs(5)), Instant::now());
        assert!(downtime.note_failure(begun));
        for second in 1..100 {
            let now = begun + Duration::from_secs(second);
            assert_eq!(downtime.note_answer(now), None);
            assert!(!downtime.note_failure(now));
        }
    }
}
