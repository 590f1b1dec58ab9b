//! Which partition a Task is in (OWN-01): the one place in the code that computes it.
//! docs/protocol.md describes it for other languages.
//!
//! Step 2 of the walk in docs/architecture.md.

use tenure_core::Rejection;

use crate::journal::TaskKey;

/// The version of the placement of Tasks. A cluster's record names the placement with which it was
/// created, and the cluster keeps it. Placement 1 lacked the last mixing step: ids that differ only
/// in their last three characters then shared a partition.
pub const PLACEMENT: u32 = 2;

/// A cluster has another placement than this version of Tenure, so each would look for a Task where
/// the other does not store it. [`advice`](Self::advice) says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the cluster places tasks in partitions in another way than this version of tenure: its placement is \
     {found}, and this version's {PLACEMENT}"
)]
pub struct OtherPlacement {
    /// The placement of the cluster.
    pub found: u32,
}

impl OtherPlacement {
    /// What an operator can do about it.
    pub fn advice(&self) -> &'static str {
        match self.found < PLACEMENT {
            true => {
                "go on with the version that made the cluster, or move: with that version `tenure wal \
                 export --all --to DIR --session SESSION` for each session; then an empty store of NATS, no \
                 keys of the cluster in Redis, nodes, workers and clients of this version, and `tenure wal \
                 import DIR --all --session SESSION`"
            }
            false => "use the version that the nodes of the cluster have",
        }
    }
}

/// Refuses the placement of a cluster if it is not [`PLACEMENT`].
///
/// # Errors
/// The placement is another.
pub fn check(placement: u32) -> Result<(), OtherPlacement> {
    match placement {
        PLACEMENT => Ok(()),
        found => Err(OtherPlacement { found }),
    }
}

/// The caller gets the whole message, with the advice, in a refusal that no retry changes.
impl From<OtherPlacement> for Rejection {
    fn from(other: OtherPlacement) -> Self {
        Self::invalid("placement", format!("{other}: {}", other.advice()))
    }
}

impl TaskKey {
    /// A hash of session and task: FNV-1a, which leaves its last bytes mostly in the low bits, and
    /// then a mixing step that carries every bit into all others.
    pub fn hash64(&self) -> u64 {
        let (session, task) = (self.session_id.as_str(), self.task_id.as_str());
        let bytes = session.bytes().chain([0]).chain(task.bytes());
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        let hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        hash ^ (hash >> 33)
    }

    /// The partition of the Task among `count`, from 0.
    pub fn partition(&self, count: u32) -> u32 {
        u32::try_from((self.hash64() >> 32) % u64::from(count.max(1))).unwrap_or(0)
    }
}
