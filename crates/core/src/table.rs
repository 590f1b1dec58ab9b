//! A list with an index by key, in which the Task stores its records.
//!
//! The index cannot be iterated, so no hash order ever reaches an event. Its hash is seeded per
//! Task (with a value that entered the core from outside), so ids chosen by a hostile client do
//! not collide on purpose.

use alloc::vec::Vec;
use core::hash::{BuildHasher, Hash};
use core::ops::{Index, IndexMut};

use foldhash::quality::FixedState;
use hashbrown::HashTable;

use crate::rows::Rows;

/// A record that is found by a key of its own.
pub trait Keyed {
    /// The key; never changes while the record is in a table.
    type Key: Hash + Eq + ?Sized;
    /// The record's key.
    fn key(&self) -> &Self::Key;
}

/// Position of a record in its table.
pub type Pos = u32;

/// Adds positions to an ascending list and removes others. All three lists ascend; `gained` is not
/// in the list yet, and `lost` is.
pub(crate) fn replace(list: &mut Vec<Pos>, gained: &[Pos], lost: &[Pos]) {
    if !lost.is_empty() {
        let mut lost = lost.iter().copied().peekable();
        list.retain(|pos| lost.next_if_eq(pos).is_none());
    }
    if !gained.is_empty() {
        let behind = list.last().is_none_or(|last| *last < gained[0]);
        list.extend_from_slice(gained);
        if !behind {
            list.sort(); // Two ascending runs: one merge.
        }
    }
}

/// Up to so many records are searched one after another: an index costs memory, and most Tasks are small.
const UNINDEXED_MAX: usize = 4;

/// Records in order of arrival, found by position or by key.
#[derive(Debug, Clone)]
pub struct Table<T> {
    rows: Rows<T>,
    /// Empty while there are few records. Once there are more than [`UNINDEXED_MAX`], it has all of them, until none is
    /// left.
    index: HashTable<Slot>,
    hash: FixedState,
}

/// A row's place, with half of its key's hash, so that neither a search nor the growth of the index
/// has to read other rows.
#[derive(Debug, Clone, Copy)]
struct Slot {
    hash: u32,
    at: Pos,
}

impl Slot {
    /// Doubles half of a hash to a whole one: the index takes its low bits for the place and the
    /// highest seven for the tag, and both must vary.
    fn whole(hash: u32) -> u64 {
        u64::from(hash) << 32 | u64::from(hash)
    }
}

impl<T: Keyed> Table<T> {
    /// An empty table whose index hashes keys with `seed`.
    pub fn new(seed: u64) -> Self {
        Self { rows: Rows::new(), index: HashTable::new(), hash: FixedState::with_seed(seed) }
    }

    /// A table of records with different keys, as [`into_rows`](Self::into_rows) returns them.
    pub fn of_rows(seed: u64, rows: Vec<T>) -> Self {
        let mut table = Self::new(seed);
        table.reserve(rows.len());
        for row in rows {
            table.push(row);
        }
        table
    }

    /// All records, oldest first, without the index.
    pub fn into_rows(self) -> Vec<T> {
        self.rows.into_vec()
    }

    /// Reserves capacity in the index for `more` records.
    pub fn reserve(&mut self, more: usize) {
        if self.rows.len() + more > UNINDEXED_MAX {
            let more = self.rows.len() + more - self.index.len();
            self.index.reserve(more, |slot| Slot::whole(slot.hash));
        }
    }

    /// Adds a record with a new key, and returns its position.
    pub fn push(&mut self, row: T) -> Pos {
        debug_assert!(self.find(row.key()).is_none(), "a key is added once");
        let at = next_pos(self.rows.len());
        self.rows.push(row);
        if !self.index.is_empty() {
            self.add_to_index(at);
        } else if self.rows.len() > UNINDEXED_MAX {
            (0..=at).for_each(|at| self.add_to_index(at));
        }
        at
    }

    fn add_to_index(&mut self, at: Pos) {
        let slot = Slot { hash: self.hash_of(self[at].key()), at };
        self.index.insert_unique(Slot::whole(slot.hash), slot, |slot| Slot::whole(slot.hash));
    }

    /// Removes the newest record.
    pub fn pop(&mut self) -> Option<T> {
        let row = self.rows.pop()?;
        if self.index.is_empty() {
            return Some(row);
        }
        let at = next_pos(self.rows.len());
        let whole = Slot::whole(self.hash_of(row.key()));
        if let Ok(entry) = self.index.find_entry(whole, |slot| slot.at == at) {
            entry.remove();
        }
        Some(row)
    }

    /// The position of the record with this key.
    pub fn find(&self, key: &T::Key) -> Option<Pos> {
        if self.index.is_empty() {
            return self.rows.iter().position(|row| row.key() == key).map(next_pos);
        }
        let hash = self.hash_of(key);
        let is_meant = |slot: &Slot| slot.hash == hash && self[slot.at].key() == key;
        self.index.find(Slot::whole(hash), is_meant).map(|slot| slot.at)
    }

    #[allow(clippy::cast_possible_truncation)] // The other half is not stored.
    fn hash_of(&self, key: &T::Key) -> u32 {
        self.hash.hash_one(key) as u32
    }

    /// The record with this key.
    pub fn by_key(&self, key: &T::Key) -> Option<&T> {
        self.find(key).map(|at| &self[at])
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rows.len() == 0
    }

    /// All records, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &T> + Clone {
        self.rows.iter()
    }

    /// Record at a position, if there is one.
    pub fn get(&self, at: Pos) -> Option<&T> {
        self.rows.get(at as usize)
    }
}

/// A length as a position. Tables are bounded far below `u32::MAX` by the limits on input.
#[allow(clippy::cast_possible_truncation)]
pub fn next_pos(len: usize) -> Pos {
    debug_assert!(u32::try_from(len).is_ok(), "tables stay below 2^32 records");
    len as Pos
}

impl<T> Index<Pos> for Table<T> {
    type Output = T;
    fn index(&self, at: Pos) -> &T {
        &self.rows[at as usize]
    }
}

impl<T> IndexMut<Pos> for Table<T> {
    fn index_mut(&mut self, at: Pos) -> &mut T {
        &mut self.rows[at as usize]
    }
}

impl<T: PartialEq> PartialEq for Table<T> {
    fn eq(&self, other: &Self) -> bool {
        self.rows == other.rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Keyed for Pos {
        type Key = Pos;
        fn key(&self) -> &Pos {
            self
        }
    }

    /// Records are found by key with an index and without one, whichever of them come and go.
    #[test]
    fn every_record_is_found_in_tables_of_all_sizes() {
        let (mut table, most) = (Table::new(7), 12);
        let check = |table: &Table<Pos>| {
            let len = next_pos(table.len());
            assert!((0..len).all(|key| table.find(&key) == Some(key)), "{len}");
            assert!((len..=most).all(|key| table.find(&key).is_none()), "{len}");
        };
        // Up to each size, down by half of it, and up again.
        for size in 0..=most {
            for key in next_pos(table.len())..size {
                table.push(key);
            }
            check(&table);
            for _ in 0..size.div_ceil(2) {
                table.pop();
                check(&table);
            }
        }
        while table.pop().is_some() {}
        check(&table);
        assert_eq!(Table::of_rows(7, (0..most).collect()).find(&(most - 1)), Some(most - 1));
    }
}
