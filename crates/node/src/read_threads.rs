//! The threads on which a node answers reads. On its own thread the node handles commands, reports and leases, and a
//! long read there would hold up all of them.

use std::io;
use std::thread::available_parallelism;

use tokio::runtime::{Builder, Runtime};

/// How many threads there are at most: reads of one node are to leave processors to the programs of Steps.
const THREADS_MAX: usize = 4;

/// A runtime for reads. Dropping it ends its work without waiting for it.
#[derive(Debug)]
pub(crate) struct ReadThreads(Option<Runtime>);

impl ReadThreads {
    /// Starts one thread for each processor but one, at least one.
    pub(crate) fn start() -> io::Result<Self> {
        let processors = available_parallelism().map_or(1, usize::from);
        let threads = processors.saturating_sub(1).clamp(1, THREADS_MAX);
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("tenure-reads")
            .enable_all()
            .build()?;
        Ok(Self(Some(runtime)))
    }

    /// Runs a future on these threads.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &self.0 {
            runtime.spawn(work);
        }
    }
}

impl Drop for ReadThreads {
    /// This may be dropped on a thread of a runtime, which may not wait.
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
