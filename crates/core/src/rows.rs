//! A list that never moves its records, so that adding one costs the same whatever the length.

use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

/// Number of records in a block.
const BLOCK: usize = 256;

/// Records in order of arrival, in blocks of [`BLOCK`]. Every block but the last is full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rows<T> {
    blocks: Vec<Vec<T>>,
    len: usize,
}

impl<T> Rows<T> {
    /// An empty list.
    pub(crate) const fn new() -> Self {
        Self { blocks: Vec::new(), len: 0 }
    }

    /// Number of records.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Adds a record at the end.
    pub(crate) fn push(&mut self, row: T) {
        if self.len.is_multiple_of(BLOCK) {
            // A Task with few records has one small block; in a large one each new block is made
            // whole at once.
            let room = if self.len == 0 { 1 } else { BLOCK };
            self.blocks.push(Vec::with_capacity(room));
        }
        if let Some(block) = self.blocks.last_mut() {
            block.push(row);
            self.len += 1;
        }
    }

    /// Removes the newest record.
    pub(crate) fn pop(&mut self) -> Option<T> {
        let row = self.blocks.last_mut()?.pop()?;
        self.len -= 1;
        if self.len.is_multiple_of(BLOCK) {
            self.blocks.pop();
        }
        Some(row)
    }

    /// The record at a position, if there is one.
    pub(crate) fn get(&self, at: usize) -> Option<&T> {
        self.blocks.get(at / BLOCK)?.get(at % BLOCK)
    }

    /// All records, as one vector.
    pub(crate) fn into_vec(self) -> Vec<T> {
        let mut all = Vec::with_capacity(self.len);
        self.blocks.into_iter().for_each(|block| all.extend(block));
        all
    }

    /// All records, oldest first.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &T> + Clone {
        self.blocks.iter().flatten()
    }
}

impl<T> Index<usize> for Rows<T> {
    type Output = T;
    fn index(&self, at: usize) -> &T {
        &self.blocks[at / BLOCK][at % BLOCK]
    }
}

impl<T> IndexMut<usize> for Rows<T> {
    fn index_mut(&mut self, at: usize) -> &mut T {
        &mut self.blocks[at / BLOCK][at % BLOCK]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It behaves as a list, also across the edges of blocks, when it grows and when it shrinks.
    #[test]
    fn it_is_a_list() {
        let (mut rows, mut list) = (Rows::new(), Vec::new());
        for n in 0..3 * BLOCK + 2 {
            rows.push(n);
            list.push(n);
            assert_eq!((rows.len(), rows.get(n), rows.get(n + 1)), (list.len(), Some(&n), None));
        }
        rows[BLOCK] = 7;
        list[BLOCK] = 7;
        assert!(rows.iter().eq(&list) && rows.iter().rev().eq(list.iter().rev()));
        assert_eq!(rows.clone().into_vec(), list);
        while let Some(row) = rows.pop() {
            assert_eq!(list.pop(), Some(row));
            assert!(rows.len() == list.len() && rows.iter().eq(&list));
        }
        assert_eq!((list.len(), rows), (0, Rows::new()));
    }
}
