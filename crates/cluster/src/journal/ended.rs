//! The places of the newest frames of ended Tasks, by the hashes of their keys: 16 bytes for each.

use std::collections::BTreeSet;

/// Pairs of a hash and a place in the stream. Keys of the same hash are told apart by reading the
/// frames at their places.
#[derive(Debug, Default)]
pub(super) struct EndedIndex {
    sorted: Vec<(u64, u64)>,
    /// Newer pairs, which are sorted in once they are many.
    newer: BTreeSet<(u64, u64)>,
}

/// How many newer pairs there may be: this number, plus this part of the sorted ones. Sorting in
/// costs a copy.
const NEWER_MIN: usize = 4_096;
const NEWER_PART: usize = 8;

impl EndedIndex {
    /// Made of pairs in any order.
    pub(super) fn of_pairs(mut sorted: Vec<(u64, u64)>) -> Self {
        sorted.sort_unstable();
        sorted.dedup();
        Self { sorted, newer: BTreeSet::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sorted.is_empty() && self.newer.is_empty()
    }

    /// All pairs, in no order.
    pub(super) fn all(&self) -> Vec<(u64, u64)> {
        self.sorted.iter().chain(&self.newer).copied().collect()
    }

    /// The places of a hash.
    pub(super) fn of(&self, hash: u64) -> Vec<u64> {
        let from = self.sorted.partition_point(|(found, _)| *found < hash);
        let sorted = self.sorted[from..].iter().take_while(|(found, _)| *found == hash);
        let newer = self.newer.range((hash, 0)..=(hash, u64::MAX));
        sorted.chain(newer).map(|(_, at)| *at).collect()
    }

    pub(super) fn insert(&mut self, hash: u64, at: u64) {
        self.newer.insert((hash, at));
        if self.newer.len() > NEWER_MIN + self.sorted.len() / NEWER_PART {
            self.sorted.reserve_exact(self.newer.len());
            self.sorted.extend(std::mem::take(&mut self.newer));
            self.sorted.sort(); // Two sorted runs: merged in one pass.
        }
    }

    /// Takes a pair out. Answers whether it was there.
    pub(super) fn remove(&mut self, hash: u64, at: u64) -> bool {
        if self.newer.remove(&(hash, at)) {
            return true;
        }
        let found = self.sorted.binary_search(&(hash, at));
        found.map(|place| self.sorted.remove(place)).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_in_is_found_until_it_is_taken_out() {
        let mut ended = EndedIndex::of_pairs(vec![(7, 3), (5, 1), (7, 2)]);
        let many = NEWER_MIN as u64 + 2;
        (0..many).for_each(|n| ended.insert(n << 32, n));
        assert!(ended.newer.len() < NEWER_MIN, "they are sorted in");
        ended.insert(7, 9);
        assert_eq!(ended.of(7), [2, 3, 9]);
        assert!((0..many).all(|n| ended.of(n << 32) == [n]));
        assert!(ended.of(6).is_empty());
        assert!(ended.remove(7, 9) && ended.remove(7, 2) && !ended.remove(7, 2));
        assert_eq!(ended.of(7), [3]);
        assert_eq!(ended.all().len() as u64, many + 2);
    }
}
