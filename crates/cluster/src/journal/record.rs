//! The record of a cluster: what was fixed when it was made. It lies in the metadata of each stream
//! of the log.
//!
//! One entry says how many partitions there are and how Tasks are placed in them, as in `8,
//! placement 2`. Without a placement it is placement 1. A node of an older version compares the
//! whole entry with its number of partitions, and so refuses a cluster whose placement it does not
//! know.
//!
//! Another entry says which store this is, as in `TENURE, store 4be1c09d7a52`: the name of the cluster,
//! and an id that is made with the first stream. Redis has the same text, so that a node notices a Redis
//! that belongs to other streams. Streams that an older version made have no such entry: together they count
//! as the store `TENURE, made by an older version`.

use std::collections::HashMap;

use tenure_ports::placement::{self, OtherPlacement, PLACEMENT};
use uuid::Uuid;

/// The name of the entry.
const KEY: &str = "tenure_partitions";

/// The name of the entry that says which store this is.
const STORE: &str = "tenure_cluster";

/// The text between the two numbers.
const PLACED: &str = ", placement ";

/// Why this node cannot use the log of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OtherCluster {
    /// The cluster was made with another number of partitions.
    #[error("the cluster has {found} partitions, not {given}: the number is fixed when it is made")]
    Partitions {
        /// The number in the record.
        found: u32,
        /// The number in this node's settings.
        given: u32,
    },
    /// There is no such cluster, and none is made with this number of partitions.
    #[error("a cluster is made with a power of two of partitions, and {given} is none")]
    Uneven {
        /// The number in this node's settings.
        given: u32,
    },
    /// The cluster was made with another placement.
    #[error(transparent)]
    Placement(#[from] OtherPlacement),
    /// The record is in no form that this version knows.
    #[error(
        "the record of the cluster cannot be read: the entry tenure_partitions of its streams is {entry:?}"
    )]
    Unreadable {
        /// The entry as it is.
        entry: String,
    },
}

impl OtherCluster {
    /// What to do about it.
    pub fn advice(&self) -> String {
        match self {
            Self::Partitions { found, .. } => format!("give --partitions {found}"),
            Self::Uneven { given } => format!("give --partitions {}", given.next_power_of_two()),
            Self::Placement(other) => other.advice().to_owned(),
            Self::Unreadable { .. } => {
                "use the version that the nodes of the cluster have; if the streams are of something else, \
                 name this cluster otherwise with --cluster"
                    .into()
            }
        }
    }
}

/// The record that a node writes when it makes a stream of a store.
pub(crate) fn write(partitions: u32, store: &str) -> HashMap<String, String> {
    let made = (KEY.to_owned(), format!("{partitions}{PLACED}{PLACEMENT}"));
    [made, (STORE.to_owned(), store.to_owned())].into()
}

/// The text for a new store, which no other store has.
pub(crate) fn new_store(cluster: &str) -> String {
    let id = Uuid::now_v7().simple().to_string().split_off(20); // The random part of the UUID.
    format!("{cluster}, store {id}")
}

/// The text for a store whose streams do not say which one it is. All such stores of a cluster's name share it.
pub(crate) fn older_store(cluster: &str) -> String {
    format!("{cluster}, made by an older version")
}

/// Which store a stream is of, if its record says that.
pub(crate) fn store(metadata: &HashMap<String, String>) -> Option<&str> {
    metadata.get(STORE).map(String::as_str)
}

/// Refuses the record of a cluster with another number of partitions, or another placement.
///
/// # Errors
/// See [`OtherCluster`].
pub(crate) fn check(metadata: &HashMap<String, String>, given: u32) -> Result<(), OtherCluster> {
    let entry = metadata.get(KEY).map(String::as_str).unwrap_or_default();
    let (found, placed) = entry.split_once(PLACED).unwrap_or((entry, "1"));
    let (Ok(partitions), Ok(placed)) = (found.parse::<u32>(), placed.parse()) else {
        return Err(OtherCluster::Unreadable { entry: entry.to_owned() });
    };
    if partitions != given {
        return Err(OtherCluster::Partitions { found: partitions, given });
    }
    Ok(placement::check(placed)?)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The record as an older or a newer version wrote it.
    pub(crate) fn entry(said: &str) -> HashMap<String, String> {
        [(KEY.to_owned(), said.to_owned())].into()
    }

    /// OWN-01: a node accepts only its own number of partitions and its own placement. The record
    /// of an older version has no placement.
    #[test]
    fn a_record_is_of_one_number_of_partitions_and_one_placement() {
        assert_eq!(write(8, "one")[KEY], "8, placement 2", "fixed: others read it");
        assert_eq!(check(&write(8, "one"), 8), Ok(()));
        let partitions = |found| OtherCluster::Partitions { found, given: 8 };
        assert_eq!(check(&write(16, "one"), 8), Err(partitions(16)));
        assert_eq!(check(&entry("8"), 8), Err(OtherPlacement { found: 1 }.into()));
        assert_eq!(check(&entry("8, placement 3"), 8), Err(OtherPlacement { found: 3 }.into()));
        for said in ["", "8, placement two", "8, placement 2, replicas 3", "eight"] {
            let unreadable = OtherCluster::Unreadable { entry: said.into() };
            assert_eq!(check(&entry(said), 8), Err(unreadable), "a number is not guessed");
        }
        assert!(matches!(check(&HashMap::new(), 8), Err(OtherCluster::Unreadable { .. })));
        // An older node compares the whole entry, and refuses it.
        assert_ne!(write(8, "one")[KEY], "8");
    }

    /// OWN-01: an older node reads the record of a store with an id as before; a record without an id is of an
    /// older version.
    #[test]
    fn a_record_says_which_store_it_is_of() {
        let (one, other) = (new_store("TENURE"), new_store("TENURE"));
        assert!(one != other && one.starts_with("TENURE, store "), "{one}");
        let record = write(8, &one);
        assert_eq!(record["tenure_partitions"], "8, placement 2", "fixed: others read it");
        assert_eq!(record["tenure_cluster"], one, "fixed: others read it");
        assert_eq!((store(&record), store(&entry("8, placement 2"))), (Some(&*one), None));
        assert_eq!(check(&record, 8), Ok(()));
        assert_eq!(older_store("b"), "b, made by an older version", "fixed: Redis keeps it");
    }
}
