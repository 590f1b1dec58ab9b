//! The settings of a pool of a worker.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::sessions::{Abilities, WorkerSessions};
use tenure_ports::observer::WorkerObserver;

use super::handler::Handlers;
use super::hosted::RunCommand;

/// Settings of a pool.
#[derive(Debug, Clone)]
pub struct Options {
    /// Handlers that run at a time.
    pub concurrency: NonZeroUsize,
    /// How long a handler that was asked to stop may take before it is ended by force (CTX-09), unless the
    /// scheduler tells how long it has (POL-12).
    pub grace: Duration,
    /// The directory in which outputs stay that cannot be recorded (VALUE-02).
    pub copies: PathBuf,
    /// The directory below which the built-in `exec` keeps its files, if the worker shows what commands wrote (ART-09).
    pub files: Option<PathBuf>,
    /// The sessions that the worker serves, if it joins its pool with these settings (DISP-20); all by default.
    pub sessions: WorkerSessions,
    /// The command that does all Steps, in place of handlers.
    pub run_command: Option<RunCommand>,
    /// The observer that is notified of what the worker does, if any.
    pub observer: Option<Arc<dyn WorkerObserver>>,
}

impl Options {
    /// The defaults for so many handlers at a time: ten seconds of grace, and outputs that cannot be
    /// recorded below the directory for temporary files.
    pub fn new(concurrency: NonZeroUsize) -> Self {
        let copies = std::env::temp_dir().join("tenure-outputs");
        let grace = Duration::from_secs(10);
        let sessions = WorkerSessions::ALL;
        let (files, run_command, observer) = (None, None, None);
        Self { concurrency, grace, copies, files, sessions, run_command, observer }
    }

    /// What a worker with these settings and handlers says when it joins a pool. Its command can do any Step.
    pub fn abilities(&self, handlers: &Handlers) -> Abilities {
        let known = self.run_command.is_none().then(|| handlers.names().cloned().collect());
        Abilities { handlers: known, sessions: self.sessions.clone() }
    }
}
