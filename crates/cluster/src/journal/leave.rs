//! Leaving a partition: what is in flight finishes, nothing more is accepted.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::JetStreamJournal;

/// A partition that was left, whose appends may not all have returned yet.
#[derive(Debug)]
pub struct Leaving(Option<JoinHandle<()>>);

impl Leaving {
    /// Waits until every append that was accepted has its answer, but no longer than `limit`.
    /// Whether that is so. What is still under way then either is stored before the record of the
    /// next owner, who reads it, or is refused.
    pub async fn settled(self, limit: Duration) -> bool {
        match self.0 {
            Some(writer) => timeout(limit, writer).await.is_ok(),
            None => true,
        }
    }
}

impl JetStreamJournal {
    /// Gives a partition up: what is in flight finishes, nothing more is accepted.
    pub fn leave(&self, partition: u32) -> Leaving {
        let mut partitions = self.partitions.lock();
        if let Some(place) = self.places.get(partition as usize) {
            place.left.fetch_add(1, Ordering::AcqRel);
        }
        self.owned.set(partition, None);
        let left = partitions.get_mut(partition as usize).and_then(Option::take);
        Leaving(left.and_then(|left| {
            left.closes.send_replace(true);
            left.writer.lock().take()
        }))
    }

    /// Another has written in a partition since `epoch`: it is not this node's any more.
    pub(super) fn step_down(&self, partition: u32, epoch: u64) {
        let mut partitions = self.partitions.lock();
        self.owned.lose(partition, epoch);
        if let Some(slot) = partitions.get_mut(partition as usize)
            && slot.as_ref().is_some_and(|found| found.epoch == epoch)
            && let Some(left) = slot.take()
        {
            left.closes.send_replace(true);
        }
    }
}
