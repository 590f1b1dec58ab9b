//! Gives back the Steps for which the worker has no capacity: another worker may be idle
//! (mechanisms 8).

use std::cmp::Reverse;
use std::pin::pin;
use std::sync::Arc;

use tenure_core::id::AttemptId;
use tenure_ports::bus::WorkerPort;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::capacity::BUSY;
use super::pool::{AttemptStage, HeldAttempt, PoolShared};

impl PoolShared {
    /// Gives back Steps that would wait for long, the newest first, and none that has begun.
    pub(super) fn give_back_surplus(&self) {
        if !self.port.is_remote() {
            return; // There is no other worker: the Step would come again.
        }
        let mut capacity = self.capacity.lock();
        let surplus = capacity.surplus();
        if surplus == 0 {
            return;
        }
        let mut open = self.open.lock();
        let waits = |one: &&mut HeldAttempt| {
            one.stage == AttemptStage::Waits && !one.stop.cancelled.is_cancelled()
        };
        let mut waiting: Vec<&mut HeldAttempt> = open.values_mut().filter(waits).collect();
        waiting.sort_unstable_by_key(|one| Reverse(one.number));
        for one in waiting.into_iter().take(surplus) {
            capacity.give_back();
            one.stage = AttemptStage::Surplus;
            one.stop.cancelled.cancel(); // It stops waiting for a slot, and is released.
        }
    }

    /// Waits for a slot for a handler. If none is free for long, the measured time of handlers no
    /// longer holds.
    pub(super) async fn slot(&self) -> Option<OwnedSemaphorePermit> {
        let mut slot = pin!(Arc::clone(&self.slots).acquire_owned());
        if !self.port.is_remote() {
            return slot.await.ok();
        }
        if let Ok(slot) = timeout(BUSY, &mut slot).await {
            return slot.ok();
        }
        self.capacity.lock().note_busy();
        self.give_back_surplus();
        slot.await.ok()
    }

    /// Begins an Attempt that has a slot, unless it was cancelled or given back.
    pub(super) fn begins(&self, attempt: AttemptId) -> bool {
        match self.open.lock().get_mut(&attempt) {
            Some(one) if !one.stop.cancelled.is_cancelled() => {
                one.stage = AttemptStage::Kept;
                true
            }
            _ => false,
        }
    }
}
