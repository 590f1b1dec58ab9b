//! Marks in a long log. With them it can be read forward, although its frames name only those
//! before them: from each mark backwards to the previous one, part by part. So a reader holds only
//! a part in memory, and finds an old part at once.

use serde::{Deserialize, Serialize};

use super::index::Newest;

/// How many bytes of commits lie between two marks, as long as there are not too many marks.
const APART: u64 = 256 << 10;
/// How many marks a Task may have. If there are more, every other one is dropped, and later marks
/// are as far apart.
const MARKS_MAX: usize = 256;

/// The marks of a Task, in the order of its log. Each is a frame, by its last message, and the
/// event with which one of the Task's commits ends there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Marks {
    /// How many bytes of commits lie between two marks.
    apart: u64,
    places: Vec<Newest>,
}

impl Default for Marks {
    fn default() -> Self {
        Self { apart: APART, places: Vec::new() }
    }
}

impl Marks {
    /// Whether a mark is due with so many bytes behind the last one.
    pub(super) fn is_due(&self, bytes: u64) -> bool {
        bytes >= self.apart
    }

    /// Adds a mark.
    pub(super) fn add(&mut self, end: Newest) {
        self.places.push(end);
        if self.places.len() > MARKS_MAX {
            // The newest mark stays: the next is counted from it.
            let mut is_kept = false;
            self.places.retain(|_| {
                is_kept = !is_kept;
                is_kept
            });
            self.apart *= 2;
        }
    }

    /// The parts of a log up to `newest` that have any of these events, in order. A part is what
    /// lies behind its first place, up to its second.
    pub(super) fn parts(&self, after: u64, until: u64, newest: Newest) -> Vec<(Newest, Newest)> {
        let inner = self.places.iter().filter(|place| place.wal_seq < newest.wal_seq);
        let ends = inner.copied().chain([newest]);
        let mut start = Newest { wal_seq: 0, stream_seq: 0 };
        let parts = ends.map(|end| (std::mem::replace(&mut start, end), end));
        parts.filter(|(start, end)| end.wal_seq > after && start.wal_seq < until).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The marks of a log with a frame for each commit, of ten events and `bytes` bytes.
    fn marked(commits: u64, bytes: u64) -> Marks {
        let (mut marks, mut behind) = (Marks::default(), 0);
        for commit in 1..=commits {
            behind += bytes;
            if marks.is_due(behind) {
                marks.add(place(commit));
                behind = 0;
            }
        }
        marks
    }

    fn place(commit: u64) -> Newest {
        Newest { wal_seq: commit * 10, stream_seq: commit }
    }

    #[test]
    fn parts_of_a_log_are_near_each_other_and_leave_nothing_out() {
        let (marks, newest) = (marked(10_000, 1 << 10), place(10_000));
        let parts = marks.parts(0, u64::MAX, newest);
        assert!((39..=41).contains(&parts.len()), "{}", parts.len());
        assert_eq!((parts[0].0.wal_seq, parts.last().unwrap().1), (0, newest));
        assert!(parts.windows(2).all(|two| two[0].1 == two[1].0));
        for (first, last) in [(1, 10), (2_560, 2_561), (50_000, 60_000), (99_999, 100_000)] {
            let some = marks.parts(first - 1, last, newest);
            assert!(some[0].0.wal_seq < first && some.last().unwrap().1.wal_seq >= last);
            assert!(some.len() <= 6, "{first}: {}", some.len());
        }
    }

    #[test]
    fn a_very_long_log_has_no_more_marks() {
        for commits in [100_000, 1_000_000] {
            let marks = marked(commits, 1 << 10);
            let parts = marks.parts(0, u64::MAX, place(commits));
            assert!((MARKS_MAX / 2..=MARKS_MAX + 1).contains(&parts.len()), "{}", parts.len());
            let longest = parts.iter().map(|(start, end)| end.wal_seq - start.wal_seq).max();
            assert_eq!(
                longest,
                Some(marks.apart / (1 << 10) * 10),
                "each part is as long, at most"
            );
        }
    }

    #[test]
    fn a_short_log_is_one_part() {
        let marks = marked(20, 1 << 10);
        let start = Newest { wal_seq: 0, stream_seq: 0 };
        assert_eq!(marks.parts(0, u64::MAX, place(20)), [(start, place(20))]);
    }
}
