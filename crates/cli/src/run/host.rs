//! Starts the scheduler and the workers of `tenure run` in this process.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tenure_core::id::PoolId;
use tenure_embedded::{Embedded, LocalScheduler, LocalWorkers};
use tenure_ports::observer::WorkerObserver;
use tenure_sdk::mcp::ToolServers;
use tenure_sdk::secrets::SecretSources;
use tenure_sdk::worker::{DelegationSettings, ExecSettings, Handlers, Options};
use tenure_telemetry::Telemetry;

use crate::answer::Failure;
use crate::place::{files_of, open_here};
use crate::request::handlers;
use crate::runtime::NO_CWD;
use crate::tools::with_tools;

/// A scheduler on the data directory, and workers that have only the built-in handlers.
#[derive(Debug)]
pub(super) struct RunHost {
    pub(super) tenure: Embedded,
    /// The data directory.
    pub(super) data: PathBuf,
    /// Where commands run, if not in the directory of this process (STORE-17).
    pub(super) cwd: Option<String>,
    /// The servers of tools that Steps may call, if there are some.
    servers: Option<ToolServers>,
    /// Where the secrets are that Steps may name.
    secrets: SecretSources,
    /// The observer of the workers.
    observer: Option<Arc<dyn WorkerObserver>>,
    workers: Vec<Arc<LocalWorkers>>,
}

impl RunHost {
    /// Opens the data directory, and reports what an earlier crash left there.
    pub(super) async fn open(
        data: &Path,
        (servers, secrets): (Option<ToolServers>, SecretSources),
        telemetry: Option<&Telemetry>,
    ) -> Result<Self, Failure> {
        // Absolute, because commands run in other directories.
        let data = std::path::absolute(data).map_err(Failure::cannot(NO_CWD))?;
        let tenure = open_here(&data, telemetry).await?;
        let observer = telemetry.map(Telemetry::worker_observer);
        Ok(Self { tenure, data, cwd: None, servers, secrets, observer, workers: Vec::new() })
    }

    /// The handlers of its workers.
    pub(super) fn handlers(&self) -> &'static [&'static str] {
        handlers(self.servers.is_some())
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
            let (cwd, files) = (self.cwd.clone(), files_of(&self.data)?);
            let secrets = self.secrets.clone();
            let exec = ExecSettings { secrets: secrets.clone(), ..files.into() };
            let handlers = Handlers::new().with_builtins_in(cwd, exec);
            let delegation = DelegationSettings { secrets, ..DelegationSettings::default() };
            let handlers = handlers.and_then(|it| it.with_a2a(delegation));
            let handlers = handlers.map_err(tenure_embedded::Error::from)?;
            let handlers = with_tools(handlers, self.servers.clone())?;
            let observer = self.observer.clone();
            let options = Options { observer, ..Options::new(concurrency) };
            let workers = self.tenure.work_in(pool, handlers, options)?;
            self.workers.push(Arc::new(workers));
        }
        Ok(())
    }

    /// The number of Attempts that workers have in hand.
    pub(super) fn in_hand(&self) -> usize {
        self.workers.iter().map(|workers| workers.in_hand()).sum()
    }

    /// Takes no more work, asks running handlers to stop, ends them by force after the grace time,
    /// and gives their Steps back.
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
