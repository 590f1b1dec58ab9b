//! [`RecentUses`]: a map with a limited number of entries, which forgets the one that was used longest ago.

use std::collections::HashMap;
use std::hash::Hash;

/// A bounded map. Adding to a full one costs a look at all of its entries, so it is for hundreds of them.
#[derive(Debug)]
pub(super) struct RecentUses<K, V> {
    entries: HashMap<K, RecentEntry<V>>,
    most: usize,
    /// Counts uses, so that entries can be ordered by their last one.
    uses: u64,
}

#[derive(Debug)]
struct RecentEntry<V> {
    value: V,
    used: u64,
}

impl<K: Clone + Eq + Hash, V: Clone> RecentUses<K, V> {
    /// An empty map for at most so many entries.
    pub(super) fn new(most: usize) -> Self {
        Self { entries: HashMap::new(), most, uses: 0 }
    }

    /// The value of this key, which is made if it is not there.
    pub(super) fn get_or_make(&mut self, key: &K, make: impl FnOnce() -> V) -> V {
        self.uses += 1;
        if let Some(entry) = self.entries.get_mut(key) {
            entry.used = self.uses;
            return entry.value.clone();
        }
        if self.entries.len() >= self.most {
            self.forget_one();
        }
        let value = make();
        self.entries.insert(key.clone(), RecentEntry { value: value.clone(), used: self.uses });
        value
    }

    fn forget_one(&mut self) {
        let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.used);
        if let Some(key) = oldest.map(|(key, _)| key.clone()) {
            self.entries.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entry_that_was_used_longest_ago_is_forgotten() {
        let mut recent = RecentUses::new(2);
        for (key, expected) in [("a", 1), ("b", 2), ("a", 1), ("c", 3), ("a", 1), ("b", 4)] {
            assert_eq!(recent.get_or_make(&key, || expected), expected, "{key}");
            assert!(recent.entries.len() <= 2);
        }
    }
}
