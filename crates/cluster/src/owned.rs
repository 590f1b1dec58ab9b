//! Which partitions a node owns, and in which epoch.

use tokio::sync::watch;

/// The partitions that this node owns. Everything that acts for the owner shares it.
#[derive(Debug)]
pub struct Owned(watch::Sender<Epochs>);

/// For each partition the epoch in which this node owns it; none if it does not.
pub type Epochs = Vec<Option<u64>>;

impl Owned {
    /// A node that owns none of `partitions` yet.
    pub fn none(partitions: u32) -> Self {
        Self(watch::Sender::new(vec![None; partitions as usize]))
    }

    /// How many partitions the cluster has.
    pub fn partitions(&self) -> u32 {
        u32::try_from(self.0.borrow().len()).unwrap_or(u32::MAX)
    }

    /// The epoch in which this node owns a partition; none if it does not.
    pub fn epoch(&self, partition: u32) -> Option<u64> {
        self.0.borrow().get(partition as usize).copied().flatten()
    }

    /// The partitions that this node owns, with their epochs.
    pub fn all(&self) -> Vec<(u32, u64)> {
        let owned = self.0.borrow();
        (0..).zip(owned.iter()).filter_map(|(at, epoch)| Some((at, (*epoch)?))).collect()
    }

    /// Sends every change: a partition that is taken has an epoch, one that is left or lost has
    /// none. A slow receiver sees only the newest state: a partition that was lost and taken again
    /// meanwhile has another epoch. A borrowed value blocks those who note a change.
    pub fn changes(&self) -> watch::Receiver<Epochs> {
        self.0.subscribe()
    }

    /// Notes that this node owns a partition from now on, or no longer.
    pub fn set(&self, partition: u32, epoch: Option<u64>) {
        self.change(partition, epoch, |_| true);
    }

    /// Notes that this node no longer owns a partition, unless it has taken it again since `epoch`.
    pub(crate) fn lose(&self, partition: u32, epoch: u64) {
        self.change(partition, None, |now| now == Some(epoch));
    }

    fn change(&self, partition: u32, to: Option<u64>, applies: impl FnOnce(Option<u64>) -> bool) {
        self.0.send_if_modified(|epochs| match epochs.get_mut(partition as usize) {
            Some(slot) if *slot != to && applies(*slot) => {
                *slot = to;
                true
            }
            _ => false,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_change_is_told_and_nothing_else_is() {
        let owned = Owned::none(2);
        let mut changes = owned.changes();
        owned.set(1, Some(7));
        changes.changed().await.unwrap();
        assert_eq!(*changes.borrow_and_update(), [None, Some(7)]);
        owned.set(1, Some(7));
        owned.set(0, None);
        owned.set(2, Some(9));
        owned.lose(1, 6);
        assert!(!changes.has_changed().unwrap());
        owned.lose(1, 7);
        changes.changed().await.unwrap();
        assert_eq!(*changes.borrow_and_update(), [None, None]);
    }
}
