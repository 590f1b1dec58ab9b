//! Which partitions a node owns, and in which epoch.

use parking_lot::RwLock;

/// The partitions of a cluster as this node has them. Shared by what acts for the owner.
#[derive(Debug)]
pub struct Owned(RwLock<Vec<Option<u64>>>);

impl Owned {
    /// None of `partitions` yet.
    pub fn none(partitions: u32) -> Self {
        Self(RwLock::new(vec![None; partitions as usize]))
    }

    /// How many partitions the cluster has.
    pub fn partitions(&self) -> u32 {
        u32::try_from(self.0.read().len()).unwrap_or(u32::MAX)
    }

    /// The epoch in which a partition is owned here; none if it is not.
    pub fn epoch(&self, partition: u32) -> Option<u64> {
        self.0.read().get(partition as usize).copied().flatten()
    }

    /// Those that are owned here, with their epochs.
    pub fn all(&self) -> Vec<(u32, u64)> {
        let owned = self.0.read();
        (0..).zip(owned.iter()).filter_map(|(at, epoch)| Some((at, (*epoch)?))).collect()
    }

    /// Notes that a partition is owned here from now on, or is not any more.
    pub fn set(&self, partition: u32, epoch: Option<u64>) {
        if let Some(slot) = self.0.write().get_mut(partition as usize) {
            *slot = epoch;
        }
    }

    /// Notes that a partition is no longer owned, unless it was taken again since `epoch`.
    pub(crate) fn lose(&self, partition: u32, epoch: u64) {
        if let Some(slot) = self.0.write().get_mut(partition as usize)
            && *slot == Some(epoch)
        {
            *slot = None;
        }
    }
}
