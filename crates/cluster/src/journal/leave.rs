//! Leaves a partition: appends in flight finish, and the partition accepts nothing more.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::JetStreamJournal;

/// A partition that was left. Its appends may not all have returned yet.
#[derive(Debug)]
pub struct Leaving(Option<JoinHandle<()>>);

impl Leaving {
    /// Waits until every accepted append has its answer, but no longer than `limit`. Answers
    /// whether that is so. An append that is still under way then is either stored before the
    /// record of the next owner, which reads it, or refused.
    pub async fn settled(self, limit: Duration) -> bool {
        match self.0 {
            Some(writer) => timeout(limit, writer).await.is_ok(),
            None => true,
        }
    }
}

impl JetStreamJournal {
    /// Leaves a partition: appends in flight finish, and the partition accepts nothing more.
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

    /// Another node has written in a partition since `epoch`: this node no longer owns it.
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
