//! Where events of long logs stand. A log is read from its newest end back, and whoever reads an old part
//! of it goes all that way. What is passed there is marked, so that the next part is near.

use std::collections::{BTreeMap, VecDeque};

use parking_lot::Mutex;
use tenure_ports::journal::TaskKey;

use super::index::Newest;

/// Events between two marks.
const APART: u64 = 1_024;
/// Marks of a Task: beyond so many a part is farther from one.
const MARKS_MAX: usize = 16 << 10;
/// Tasks of a partition that have any: those that were read last.
const TASKS_MAX: usize = 16;

/// Marks of the Tasks of a partition: the last message of a frame by the last event there.
#[derive(Debug, Default)]
pub(super) struct Marks(Mutex<VecDeque<(TaskKey, BTreeMap<u64, u64>)>>);

impl Marks {
    /// From where an event is reached best.
    pub(super) fn near(&self, key: &TaskKey, seq: u64, newest: Newest) -> Newest {
        let all = self.0.lock();
        let marks = all.iter().find(|(of, _)| of == key).map(|(_, marks)| marks);
        match marks.and_then(|marks| marks.range(seq..).next()) {
            Some((&wal_seq, &stream_seq)) => Newest { wal_seq, stream_seq },
            None => newest,
        }
    }

    /// Remembers a place that was passed, if it is far from the newest one and from others.
    pub(super) fn note(&self, key: &TaskKey, place: Newest, newest: Newest) {
        let seq = place.wal_seq;
        if seq + APART > newest.wal_seq {
            return;
        }
        let mut all = self.0.lock();
        let at = all.iter().position(|(of, _)| of == key);
        let known = at.and_then(|at| all.remove(at));
        let (key, mut marks) = known.unwrap_or_else(|| (key.clone(), BTreeMap::new()));
        let is_far = marks.range((seq + 1).saturating_sub(APART)..seq + APART).next().is_none();
        if is_far && marks.len() < MARKS_MAX {
            marks.insert(seq, place.stream_seq);
        }
        all.push_back((key, marks));
        if all.len() > TASKS_MAX {
            all.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(task: usize) -> TaskKey {
        let task_id = format!("t{task}").parse().unwrap();
        TaskKey { session_id: "s".parse().unwrap(), task_id }
    }

    /// Ten events a frame.
    fn place(frame: u64) -> Newest {
        Newest { wal_seq: frame * 10, stream_seq: frame }
    }

    #[test]
    fn a_part_is_reached_from_the_nearest_mark_behind_it() {
        let (marks, newest) = (Marks::default(), place(1_000));
        for frame in (1..=1_000).rev() {
            marks.note(&key(1), place(frame), newest);
        }
        for seq in [1, 2_000, 5_000, 8_000] {
            let near = marks.near(&key(1), seq, newest);
            assert!((seq..seq + 2 * APART).contains(&near.wal_seq), "{seq}: {near:?}");
            assert_eq!(near.stream_seq * 10, near.wal_seq);
        }
        assert_eq!(marks.near(&key(1), 9_990, newest), newest, "there is nothing nearer");
        assert_eq!(marks.near(&key(2), 1, newest), newest, "of another task");
        let count = marks.0.lock()[0].1.len();
        assert!((8..=10).contains(&count), "{count}");
    }

    #[test]
    fn tasks_that_nobody_reads_any_more_lose_their_marks() {
        let (marks, newest) = (Marks::default(), place(1_000));
        for task in 0..=TASKS_MAX {
            marks.note(&key(task), place(1), newest);
        }
        assert_eq!(marks.near(&key(0), 1, newest), newest);
        assert_eq!(marks.near(&key(TASKS_MAX), 1, newest), place(1));
        assert_eq!(marks.0.lock().len(), TASKS_MAX);
    }
}
