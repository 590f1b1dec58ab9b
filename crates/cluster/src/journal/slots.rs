//! The slots of a partition: the messages of the stream of checkpoints that hold the snapshots of
//! its Tasks.
//!
//! Nothing is deleted from that stream, only overwritten. So parts of snapshots lie in numbered
//! slots, each a subject. A slot whose part is no longer of use is emptied and used again; there
//! are never more slots than were needed at one time.

use std::collections::BTreeSet;

/// The slots of a partition.
#[derive(Debug, Default)]
pub(super) struct Slots {
    /// Slots from this number on were never used.
    next: u32,
    free: BTreeSet<u32>,
    /// Slots of snapshots to which no row points any more. The last checkpoint may still point to
    /// them.
    left: Vec<u32>,
}

impl Slots {
    /// The slots of a partition in which these are in use.
    pub(super) fn of_used(used: impl Iterator<Item = u32>) -> Self {
        let used: BTreeSet<u32> = used.collect();
        let next = used.last().map_or(0, |last| last.saturating_add(1));
        let free = (0..next).filter(|slot| !used.contains(slot)).collect();
        Self { next, free, left: Vec::new() }
    }

    /// Takes some that are free.
    pub(super) fn take(&mut self, count: usize) -> Vec<u32> {
        let one = |_| {
            self.free.pop_first().unwrap_or_else(|| {
                self.next += 1;
                self.next - 1
            })
        };
        (0..count).map(one).collect()
    }

    /// Notes that no row points to these any more.
    pub(super) fn leave(&mut self, slots: impl IntoIterator<Item = u32>) {
        self.left.extend(slots);
    }

    /// The slots that are free once the next checkpoint is written, in the order in which they were
    /// left.
    pub(super) fn left(&self) -> &[u32] {
        &self.left
    }

    /// Frees the first of those that were left: they are empty, and no checkpoint points to them.
    pub(super) fn free_left(&mut self, count: usize) {
        self.free.extend(self.left.drain(..count));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mechanisms 5: a slot is used again when the checkpoint that pointed to it has been replaced,
    /// and not before.
    #[test]
    fn cells_are_used_again() {
        let mut slots = Slots::of_used([1, 4].into_iter());
        assert_eq!(slots.take(4), [0, 2, 3, 5]);
        slots.leave([4, 0]);
        assert_eq!(slots.take(1), [6]);
        slots.leave([5]);
        assert_eq!(slots.left(), [4, 0, 5]);
        slots.free_left(2);
        assert_eq!(slots.left(), [5]);
        assert_eq!(slots.take(3), [0, 4, 7]);
        assert_eq!(Slots::default().take(2), [0, 1]);
    }
}
