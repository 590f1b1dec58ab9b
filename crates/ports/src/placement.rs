//! Which partition a Task is in (OWN-01). Whoever needs to know asks here; docs/protocol.md says it for other
//! languages.

use tenure_core::Rejection;

use crate::journal::TaskKey;

/// How Tasks are placed here. A cluster keeps the placement that it was made with, in its record. Placement 1
/// left the last mix out: ids that differ in their last three characters alone then shared a partition.
pub const PLACEMENT: u32 = 2;

/// A cluster has another placement than this version of Tenure: each would look for a Task where the other
/// does not put it. [`advice`](Self::advice) says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the cluster places tasks in partitions in another way than this version of tenure: its placement is \
     {found}, and this version's {PLACEMENT}"
)]
pub struct OtherPlacement {
    /// That of the cluster.
    pub found: u32,
}

impl OtherPlacement {
    /// What to do about it.
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
/// It is another.
pub fn check(placement: u32) -> Result<(), OtherPlacement> {
    match placement {
        PLACEMENT => Ok(()),
        found => Err(OtherPlacement { found }),
    }
}

/// Whoever asked hears all of it: it will not change.
impl From<OtherPlacement> for Rejection {
    fn from(other: OtherPlacement) -> Self {
        Self::invalid("placement", format!("{other}: {}", other.advice()))
    }
}

impl TaskKey {
    /// A hash of session and task: FNV-1a, which leaves what its last bytes say in its low bits, and a mix
    /// that carries every bit into all others.
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
