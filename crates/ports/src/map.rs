//! Maps by ids.

use std::collections::{HashMap, HashSet};

/// The hash of [`IdMap`]. Each map has its own random seed, so a client that chooses ids cannot easily
/// aim at collisions.
pub type IdHash = foldhash::quality::RandomState;

/// A map by ids. Each Step is looked up in a dozen of them, and this hash of a short key takes a
/// quarter of the time of the standard library's.
pub type IdMap<K, V> = HashMap<K, V, IdHash>;

/// A set of ids, like [`IdMap`].
pub type IdSet<K> = HashSet<K, IdHash>;
