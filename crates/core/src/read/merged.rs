//! Joins what memory has with what is durable.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::table::Pos;

/// Merges two ascending sequences.
pub(super) fn merged(
    left: impl Iterator<Item = Pos>,
    right: impl Iterator<Item = Pos>,
) -> impl Iterator<Item = Pos> {
    merged_by(left, right, |pos| *pos)
}

/// Merges two sequences that ascend by a key.
pub(super) fn merged_by<T, K: Ord>(
    left: impl Iterator<Item = T>,
    right: impl Iterator<Item = T>,
    key: impl Fn(&T) -> K,
) -> impl Iterator<Item = T> {
    let (mut left, mut right) = (left.peekable(), right.peekable());
    core::iter::from_fn(move || match (left.peek(), right.peek()) {
        (Some(l), Some(r)) if key(r) < key(l) => right.next(),
        (None, Some(_)) => right.next(),
        _ => left.next(),
    })
}

/// Merges several sets into one ascending sequence. There are few: a pool has few handlers.
pub(super) fn ascending<'a>(
    sets: impl Iterator<Item = &'a BTreeSet<Pos>>,
) -> impl Iterator<Item = Pos> + 'a {
    let mut heads: Vec<_> = sets.map(|set| set.iter().copied().peekable()).collect();
    core::iter::from_fn(move || {
        let heads = heads.iter_mut().filter_map(|head| head.peek().copied().map(|at| (at, head)));
        heads.min_by_key(|(at, _)| *at).and_then(|(_, head)| head.next())
    })
}
