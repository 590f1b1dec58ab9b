//! Has a worker that lacks something for so many Steps at a time, such as file descriptors, run fewer of
//! them for a while (LEASE-18).

use std::sync::{Arc, Weak};

use tenure_ports::bus::WorkerPort;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::capacity::TRY_MORE;
use super::pool::PoolShared;

/// The target of the log events that say what a worker lacks. There is none while the worker runs fewer
/// Steps at a time than at its start, and at most one in five seconds.
pub const SHORTAGE: &str = "tenure_sdk::shortage";

impl PoolShared {
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
}

/// Has a worker that runs fewer Steps at a time try one more now and then, until it runs as many as at
/// its start.
async fn try_more(shared: Weak<PoolShared>) {
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
