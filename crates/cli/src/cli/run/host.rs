//! Scheduler and workers of this process.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tenure::embedded::{Embedded, LocalScheduler, LocalWorkers};
use tenure_core::id::PoolId;
use tenure_sdk::worker::{Handlers, Options};
use tenure_telemetry::Telemetry;

use crate::cli::answer::Failure;
use crate::cli::place::open_here;

/// Where below the data directory commands leave their output.
const FILES: &str = "files";

/// A scheduler on the data directory, and workers that have only the built-in handlers.
#[derive(Debug)]
pub(super) struct RunHost {
    pub(super) tenure: Embedded,
    files: PathBuf,
    workers: Vec<Arc<LocalWorkers>>,
}

impl RunHost {
    /// Opens the data directory, and says what an earlier crash left there.
    pub(super) async fn open(data: &Path, telemetry: Option<&Telemetry>) -> Result<Self, Failure> {
        // Commands run in directories of their own, and are told of files by name.
        let data = std::path::absolute(data)?;
        let tenure = open_here(&data, telemetry).await?;
        Ok(Self { tenure, files: data.join(FILES), workers: Vec::new() })
    }

    pub(super) fn scheduler(&self) -> &LocalScheduler {
        self.tenure.scheduler()
    }

    /// Starts workers, as many in each pool.
    pub(super) fn hire(
        &mut self,
        pools: impl IntoIterator<Item = PoolId>,
        concurrency: usize,
    ) -> Result<(), Failure> {
        let concurrency = NonZeroUsize::new(concurrency).unwrap_or(NonZeroUsize::MIN);
        for pool in pools {
            let handlers = Handlers::new().with_builtins(self.files.clone());
            let handlers = handlers.map_err(tenure::embedded::Error::from)?;
            let workers = self.tenure.work_in(pool, handlers, Options::new(concurrency))?;
            self.workers.push(Arc::new(workers));
        }
        Ok(())
    }

    /// Steps in the hands of workers.
    pub(super) fn in_hand(&self) -> usize {
        self.workers.iter().map(|workers| workers.in_hand()).sum()
    }

    /// Takes no more work, asks what runs to stop, ends it by force after the grace time and gives
    /// it back.
    pub(super) async fn interrupt(&self) {
        let mut all = tokio::task::JoinSet::new();
        for workers in self.workers.iter().map(Arc::clone) {
            all.spawn(async move { workers.interrupt().await });
        }
        all.join_all().await;
    }

    /// Ends everything; appends in flight finish.
    pub(super) async fn close(self) {
        let Self { tenure, workers, .. } = self;
        drop(workers);
        tenure.scheduler().stop().await;
    }
}
