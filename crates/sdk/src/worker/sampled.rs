//! The numbers of a worker at one moment.

use std::sync::Arc;

use tenure_core::id::PoolId;
use tenure_ports::bus::WorkerPort;
use tenure_ports::observer::WorkerSample;

use super::pool::WorkerPool;
use super::written_files::WrittenFiles;

impl<P: WorkerPort> WorkerPool<P> {
    /// A function that gives the numbers of this worker at the moment of the call; `None` once it has ended. The
    /// worker serves this pool.
    pub fn sampler(
        &self,
        pool: PoolId,
    ) -> impl Fn() -> Option<WorkerSample> + Send + Sync + 'static {
        let shared = Arc::downgrade(&self.shared);
        let kept = self.shared.options.files.clone().map(WrittenFiles::new);
        move || {
            let shared = shared.upgrade()?;
            let (slots, held) = {
                let capacity = shared.capacity.lock();
                (capacity.concurrency, capacity.in_hand)
            };
            let running = slots.saturating_sub(shared.slots.available_permits());
            let (slots, running, held) = (slots as u64, running as u64, held as u64);
            let files = kept.as_ref().and_then(WrittenFiles::now);
            Some(WorkerSample { pool: pool.clone(), slots, running, held, files })
        }
    }
}
