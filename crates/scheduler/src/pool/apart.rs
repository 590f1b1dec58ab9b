//! Steps that were lost before run apart from each other (LEASE-19): what ended one worker must not end
//! with it, again and again, those that were only beside it. Those that were lost once do so where workers
//! have places; those that were lost twice wait for one. Other Steps go where none is that was lost, as long as
//! there is room.

use std::sync::Arc;
use std::time::Duration;

use super::{Pool, Worker};

/// The longest that a place is kept for a Step: others that were lost twice wait for it.
const KEPT_MAX: Duration = Duration::from_secs(30);

/// The one place of a worker for a Step that was lost before. It is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Apart {
    pool: Arc<Pool>,
    worker: Arc<Worker>,
}

impl Apart {
    /// Takes the place, unless another Step has it.
    pub(super) fn try_take(pool: &Arc<Pool>, worker: &Arc<Worker>) -> Option<Self> {
        let is_taken = worker.hand.try_take_apart();
        is_taken.then(|| Self { pool: Arc::clone(pool), worker: Arc::clone(worker) })
    }

    /// Keeps the place until the Step has run for so long, 30 s at most, or what is returned is dropped.
    pub(crate) fn keep_for(self, lasts: Duration) -> Kept {
        Kept(tokio::spawn(async move {
            tokio::time::sleep(lasts.min(KEPT_MAX)).await;
            drop(self);
        }))
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        self.worker.hand.leave_apart();
        self.pool.suits_again(&self.worker);
    }
}

/// A place that is kept for a Step in hand.
#[derive(Debug)]
pub(crate) struct Kept(tokio::task::JoinHandle<()>);

impl Drop for Kept {
    fn drop(&mut self) {
        self.0.abort(); // What it owns is dropped with it.
    }
}
