//! How many bytes of commits of a partition may wait to be written or be in flight (mechanisms 16).
//!
//! Where capacity is short, requests that can be repeated are refused: creates first, as they leave
//! a part of the capacity to commands on existing Tasks. What ends work is never refused: it waits,
//! and gets the bytes that become free before others.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The kind of a request for capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asks {
    /// The creation of a Task: refused first.
    Create,
    /// A command that the caller can repeat.
    Again,
    /// A command that must not be refused.
    Waits,
}

/// Creates leave one part in so many to other commands.
const LEFT_BY_CREATES: u32 = 4;

/// The bytes of commits of a partition that may wait or be in flight at a time.
#[derive(Debug)]
pub(super) struct ByteCapacity {
    free: Arc<Semaphore>,
    all: u32,
}

impl ByteCapacity {
    pub(super) fn of(bytes: u32) -> Self {
        Self { free: Arc::new(Semaphore::new(bytes as usize)), all: bytes }
    }

    /// Takes capacity for so many bytes; none if there is too little for this kind. A request that
    /// is longer than all the capacity of its kind waits until nothing else does, as it would be
    /// refused again and again.
    pub(super) async fn take(&self, bytes: usize, asks: Asks) -> Option<OwnedSemaphorePermit> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(self.all);
        let free = Arc::clone(&self.free);
        let left = match asks {
            Asks::Create => self.all / LEFT_BY_CREATES,
            Asks::Again => 0,
            Asks::Waits => return free.acquire_many_owned(bytes).await.ok(),
        };
        let wanted = bytes.saturating_add(left);
        if wanted > self.all {
            return free.acquire_many_owned(bytes).await.ok();
        }
        if self.free.available_permits() < wanted as usize {
            return None;
        }
        free.try_acquire_many_owned(bytes).ok()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    /// The capacity, if it is given at once.
    fn take(capacity: &ByteCapacity, bytes: usize, asks: Asks) -> Option<OwnedSemaphorePermit> {
        capacity.take(bytes, asks).now_or_never().flatten()
    }

    /// Mechanisms 16: requests are accepted up to the last byte, and not beyond.
    #[test]
    fn there_is_room_up_to_the_last_byte() {
        let capacity = ByteCapacity::of(100);
        let first = take(&capacity, 60, Asks::Again).unwrap();
        assert!(take(&capacity, 41, Asks::Again).is_none());
        let second = take(&capacity, 40, Asks::Again).unwrap();
        assert!(take(&capacity, 1, Asks::Again).is_none());
        drop(second);
        assert!(take(&capacity, 40, Asks::Again).is_some());
        drop(first);
        assert_eq!(capacity.free.available_permits(), 100);
    }

    /// Mechanisms 16: creates are refused first.
    #[test]
    fn creates_leave_room_to_others() {
        let capacity = ByteCapacity::of(100);
        let create = take(&capacity, 75, Asks::Create).unwrap();
        assert!(take(&capacity, 1, Asks::Create).is_none());
        let command = take(&capacity, 25, Asks::Again).unwrap();
        assert!(take(&capacity, 1, Asks::Again).is_none());
        drop((create, command));
        assert!(take(&capacity, 76, Asks::Create).is_some(), "it is alone");
    }

    /// Mechanisms 16: what ends work is not refused, and gets capacity first.
    #[test]
    fn who_waits_has_what_becomes_free_before_others() {
        let capacity = ByteCapacity::of(100);
        let (first, second) = (take(&capacity, 50, Asks::Again), take(&capacity, 50, Asks::Again));
        let mut waits = Box::pin(capacity.take(60, Asks::Waits));
        assert!(waits.as_mut().now_or_never().is_none());
        drop(first);
        assert!(take(&capacity, 1, Asks::Again).is_none(), "what is free is meant for another");
        assert!(waits.as_mut().now_or_never().is_none());
        drop(second);
        assert!(waits.now_or_never().flatten().is_some());
    }

    /// A commit that is longer than all the capacity is written once nothing else waits.
    #[test]
    fn what_is_longer_than_all_goes_alone() {
        for asks in [Asks::Create, Asks::Again, Asks::Waits] {
            let capacity = ByteCapacity::of(100);
            let other = take(&capacity, 1, Asks::Again).unwrap();
            assert!(take(&capacity, 1_000, asks).is_none(), "{asks:?}");
            drop(other);
            let alone = take(&capacity, 1_000, asks).unwrap();
            assert!(take(&capacity, 1, Asks::Again).is_none(), "{asks:?}");
            drop(alone);
            assert_eq!(capacity.free.available_permits(), 100);
        }
    }
}
