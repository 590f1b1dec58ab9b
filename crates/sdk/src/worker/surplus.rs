//! Gives back the Steps for which the worker has no capacity: another worker may be idle
//! (mechanisms 8). A worker that lacks something for so many Steps at a time, such as file
//! descriptors, runs fewer.

use std::cmp::Reverse;
use std::pin::pin;
use std::sync::{Arc, Weak};

use tenure_core::id::AttemptId;
use tenure_ports::bus::WorkerPort;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout};

use super::capacity::{BUSY, TRY_MORE};
use super::pool::{AttemptStage, HeldAttempt, PoolShared};

/// The target of the log events that say what a worker lacks. There is none while the worker runs fewer
/// Steps at a time than at its start, and at most one in five seconds.
pub const SHORTAGE: &str = "tenure_sdk::shortage";

impl<P: WorkerPort> PoolShared<P> {
    /// Gives back Steps that would wait for long, the newest first, and none that has begun.
    pub(super) fn give_back_surplus(&self) {
        if !P::IS_REMOTE {
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
        if !P::IS_REMOTE {
            return slot.await.ok();
        }
        if let Ok(slot) = timeout(BUSY, &mut slot).await {
            return slot.ok();
        }
        self.capacity.lock().note_busy();
        self.give_back_surplus();
        slot.await.ok()
    }

    /// Takes back the slot of a handler that has ended. If the worker lacked something, nobody gets
    /// the slot for a while.
    pub(super) fn take_back(self: &Arc<Self>, slot: OwnedSemaphorePermit, lacked: Option<String>) {
        let Some(what) = lacked else { return };
        let (mut capacity, now) = (self.capacity.lock(), Instant::now());
        let before = capacity.concurrency;
        let is_news = capacity.lower(now);
        let is_fewer = capacity.concurrency < before;
        let was_full = before == capacity.concurrency_max;
        drop(capacity);
        if is_fewer {
            slot.forget();
        }
        if is_fewer && was_full {
            tokio::spawn(try_more(Arc::downgrade(self)));
        }
        if is_news {
            match is_fewer {
                true => tracing::warn!(
                    target: SHORTAGE,
                    "this worker cannot run {before} steps at a time, and runs fewer for a while: {what}"
                ),
                false => tracing::warn!(
                    target: SHORTAGE,
                    "this worker cannot run a step, and gives it back: {what}"
                ),
            }
        }
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

/// Has a worker that runs fewer Steps at a time try one more now and then, until it runs as many as at
/// its start.
async fn try_more<P: WorkerPort>(shared: Weak<PoolShared<P>>) {
    loop {
        tokio::time::sleep(TRY_MORE).await;
        let Some(shared) = shared.upgrade() else { return };
        let mut capacity = shared.capacity.lock();
        if capacity.raise(Instant::now()) {
            shared.slots.add_permits(1);
            shared.port.credit(capacity.credit());
        }
        if capacity.concurrency == capacity.concurrency_max {
            return;
        }
    }
}
