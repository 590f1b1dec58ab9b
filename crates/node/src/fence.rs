//! Whether a node may still refuse and read (mechanisms 4). The append fences what a node accepts;
//! but a node that has lost a partition without knowing it could refuse wrongly, or read an old
//! state.

use std::sync::Arc;

use tenure_cluster::JetStreamJournal;
use tenure_cluster::ownership::Keeper;

/// Finds out for certain whether this node owns a partition.
#[derive(Debug)]
pub(crate) struct Fence {
    pub(crate) journal: Arc<JetStreamJournal>,
    pub(crate) keeper: Arc<Keeper>,
}

impl Fence {
    /// Whether this node owns the partition: by its lease while that is certain, otherwise by the
    /// last message of the log.
    pub(crate) async fn holds(&self, partition: u32) -> bool {
        if self.journal.owned().epoch(partition).is_none() {
            return false;
        }
        self.keeper.is_certain() || self.is_owner(partition).await
    }

    /// The same by the log alone, whatever the lease says: for answers that would cost work if they
    /// were wrong.
    pub(crate) async fn is_owner(&self, partition: u32) -> bool {
        match Box::pin(self.journal.confirm(partition)).await {
            Ok(holds) => holds,
            Err(error) => {
                tracing::debug!(partition, %error, "nobody says who owns a partition");
                false
            }
        }
    }
}
