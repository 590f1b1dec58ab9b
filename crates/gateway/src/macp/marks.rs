//! Places in the log of a session from which a stream can begin to read, so that it reads little more than the
//! messages that it sends, however long the session is.

/// How many places of a session are remembered at most. When there is one more, every other one is forgotten, and from
/// then on half as many are noted. So the places that are left lie all over the log.
const MARKS_MAX: usize = 64;

/// The end of a commit, and how many messages the session had accepted up to it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct SessionMark {
    pub(super) ordinal: u64,
    pub(super) place: u64,
}

/// The places of a session that this gateway knows, as it wrote there or read up to there.
#[derive(Debug)]
pub(super) struct SessionMarks {
    newest: SessionMark,
    /// Older ones, in their order.
    known: Vec<SessionMark>,
    /// How many messages lie between two of them at least.
    step: u64,
}

impl Default for SessionMarks {
    fn default() -> Self {
        Self { newest: SessionMark::default(), known: Vec::new(), step: 1 }
    }
}

impl SessionMarks {
    /// Notes a place behind all that were noted before.
    pub(super) fn note(&mut self, mark: SessionMark) {
        self.newest = mark;
        if self.known.last().is_some_and(|last| mark.ordinal < last.ordinal + self.step) {
            return;
        }
        self.known.push(mark);
        if self.known.len() > MARKS_MAX {
            let mut is_kept = false;
            self.known.retain(|_| {
                is_kept = !is_kept;
                is_kept
            });
            self.step *= 2;
        }
    }

    /// The last place that is known: whatever the session accepts from now on lies behind it.
    pub(super) const fn newest(&self) -> SessionMark {
        self.newest
    }

    /// The last known place behind which are all messages but the first `after`; the start of the log, if there is
    /// none.
    pub(super) fn before(&self, after: u64) -> SessionMark {
        if self.newest.ordinal <= after {
            return self.newest;
        }
        let behind = self.known.partition_point(|mark| mark.ordinal <= after);
        behind.checked_sub(1).map_or_else(SessionMark::default, |at| self.known[at])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(ordinal: u64) -> SessionMark {
        SessionMark { ordinal, place: 10 * ordinal }
    }

    /// MACP-15: a place never lies behind a message that is to be told, and lies near it however many messages there
    /// are.
    #[test]
    fn places_lie_before_what_is_to_be_told_and_near() {
        let mut marks = SessionMarks::default();
        assert_eq!((marks.before(7), marks.newest()), Default::default());
        for ordinal in 1..=10_000 {
            marks.note(mark(ordinal));
            assert!(marks.known.len() <= MARKS_MAX);
            assert_eq!((marks.before(ordinal), marks.newest()), (mark(ordinal), mark(ordinal)));
        }
        for after in 0..10_000 {
            let SessionMark { ordinal, place } = marks.before(after);
            assert!(ordinal <= after && after - ordinal <= 2 * marks.step, "{ordinal} of {after}");
            assert_eq!(place, 10 * ordinal);
        }
        assert_eq!(marks.before(u64::MAX), mark(10_000));
        let suspended = SessionMark { place: 100_001, ..mark(10_000) };
        marks.note(suspended);
        assert_eq!(marks.before(10_000), suspended, "what takes no place is behind it");
    }
}
