//! The scheduler embedded: one process, one data directory, no server.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use tenure_embedded::Embedded;
//! use tenure_sdk::worker::Handlers;
//!
//! let tenure = Embedded::open(".tenure").await?;
//! let greet = |ctx: tenure_sdk::worker::StepContext| async move {
//!     Ok(ctx.complete_json(&format!("hello from {}", ctx.step_id()))?)
//! };
//! let _workers = tenure.work(Handlers::new().on("greet", greet)?, 4)?;
//! let plan = tenure_taskfile::parse(b"steps: {a: {handler: greet}}", "inline.yaml", &Default::default())?;
//! let task = tenure.submit("main", plan).await?;
//! tenure.scheduler().wait_for_end(&task).await?;
//! # Ok(()) }
//! ```
//!
//! `tenure run` has this instead of steps 2, 3 and 8 of the walk in docs/architecture.md.

pub mod plan;

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::BoxFuture;
use smol_str::SmolStr;
use tenure_core::command::Write;
use tenure_core::command::create::CreateTask;
use tenure_core::id::{AgentId, BadId, CommandId, PoolId, SessionId, TaskId};
use tenure_core::sessions::Abilities;
use tenure_core::status::Role;
use tenure_core::{Caller, Context, Rejection};
use tenure_gateway::{Backend as _, EmbeddedBackend, ErasedBackend};
use tenure_local::{
    FileBlobs, JournalOptions, JsonlJournal, MemoryLeases, OpenError, OpenReport, make_private_dir,
};
use tenure_ports::blobs::SESSION_QUOTA;
use tenure_ports::journal::TaskKey;
use tenure_scheduler::{Config, Envelope, Scheduler, WorkerLink};
use tenure_sdk::client::{Client, write_with_blobs};
use tenure_sdk::worker::{Handlers, Options as WorkerOptions, WorkerPool};
use tenure_taskfile::Plan;
use uuid::Uuid;

/// The pool of Steps that name none.
pub const DEFAULT_POOL: &str = "default";

/// The scheduler of an embedded node.
pub type LocalScheduler = Scheduler<JsonlJournal, MemoryLeases>;

/// The client port of an embedded node.
pub type LocalClient = tenure_scheduler::ClientLink<JsonlJournal, MemoryLeases>;

/// The workers of an embedded node.
pub type LocalWorkers = WorkerPool<WorkerLink<JsonlJournal, MemoryLeases>>;

/// The scheduler as a gateway reaches it, with the directory in which its commands leave what they write.
pub fn backend(scheduler: LocalScheduler, files: PathBuf) -> ErasedBackend {
    EmbeddedBackend::new(scheduler, Some(files)).erased()
}

/// A scheduler with its own data directory, in this process.
#[derive(Debug)]
pub struct Embedded {
    scheduler: LocalScheduler,
    report: OpenReport,
}

/// Why an embedded scheduler did not start or take a Task.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The data directory cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The data directory cannot be made.
    #[error("the data directory {path} cannot be made")]
    Make {
        /// Which one.
        path: std::path::PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A name is malformed.
    #[error(transparent)]
    Id(#[from] BadId),
    /// The scheduler refused the command.
    #[error(transparent)]
    Refused(#[from] Rejection),
}

impl Embedded {
    /// Opens a data directory, creates it if it is missing, and starts a scheduler on it. The
    /// scheduler reads no Task before somebody asks for it.
    ///
    /// # Errors
    /// The directory cannot be created or written, or is in use.
    pub async fn open(data: impl AsRef<Path>) -> Result<Self, Error> {
        Self::open_with(data, Self::config()?).await
    }

    /// The settings that [`open`](Self::open) uses.
    ///
    /// # Errors
    /// None: the name is right.
    pub fn config() -> Result<Config, Error> {
        Ok(Config::embedded(PoolId::new(DEFAULT_POOL)?))
    }

    /// As [`open`](Self::open), with settings.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn open_with(data: impl AsRef<Path>, config: Config) -> Result<Self, Error> {
        Self::open_at(data.as_ref(), config).await
    }

    /// As [`open_with`](Self::open_with). Its future is a pointer, so that the scheduler is compiled here, and not in
    /// each crate that opens one.
    fn open_at(path: &Path, config: Config) -> BoxFuture<'_, Result<Self, Error>> {
        Box::pin(Self::started(path, config))
    }

    async fn started(path: &Path, config: Config) -> Result<Self, Error> {
        make_data_dir(path).map_err(|source| Error::Make { path: path.to_owned(), source })?;
        let (journal, report) = JsonlJournal::open(path, JournalOptions::default())?;
        let blobs = config.blobs.unwrap_or_else(|| Arc::new(FileBlobs::open(path, SESSION_QUOTA)));
        let config = Config { blobs: Some(blobs), ..config };
        let leases = Arc::new(MemoryLeases::default());
        let scheduler = Scheduler::start(Arc::new(journal), leases, config).await?;
        Ok(Self { scheduler, report })
    }

    /// The scheduler itself.
    pub fn scheduler(&self) -> &LocalScheduler {
        &self.scheduler
    }

    /// The report of opening the directory: torn tails that were cut off, and damaged logs.
    pub fn report(&self) -> &OpenReport {
        &self.report
    }

    /// The local user as an orchestrator of a session: all that a client in a cluster can do.
    ///
    /// # Errors
    /// The session's name has another form.
    pub fn client(&self, session: &str) -> Result<Client<LocalClient>, Error> {
        let caller = orchestrator(SessionId::new(session)?)?;
        Ok(Client::new(self.scheduler.client(caller.role, caller.agent, caller.session_id)))
    }

    /// Starts workers of the default pool.
    ///
    /// # Errors
    /// The node is stopping.
    pub fn work(&self, handlers: Handlers, concurrency: usize) -> Result<LocalWorkers, Error> {
        let concurrency = NonZeroUsize::new(concurrency).unwrap_or(NonZeroUsize::MIN);
        self.work_in(PoolId::new(DEFAULT_POOL)?, handlers, WorkerOptions::new(concurrency))
    }

    /// Starts workers of a pool. They take every Step of it; one whose handler they do not have
    /// fails with `unknown_handler`.
    ///
    /// # Errors
    /// The node is stopping.
    pub fn work_in(
        &self,
        pool: PoolId,
        handlers: Handlers,
        options: WorkerOptions,
    ) -> Result<LocalWorkers, Error> {
        let sessions = options.sessions.clone();
        self.hire(pool, Abilities { handlers: None, sessions }, handlers, options)
    }

    /// As [`work_in`](Self::work_in), for workers that leave Steps whose handler they do not have to other
    /// workers of the pool.
    ///
    /// # Errors
    /// As [`work_in`](Self::work_in).
    pub fn work_beside_others(
        &self,
        pool: PoolId,
        handlers: Handlers,
        options: WorkerOptions,
    ) -> Result<LocalWorkers, Error> {
        let abilities = options.abilities(&handlers);
        self.hire(pool, abilities, handlers, options)
    }

    fn hire(
        &self,
        pool: PoolId,
        abilities: Abilities,
        handlers: Handlers,
        options: WorkerOptions,
    ) -> Result<LocalWorkers, Error> {
        // Unique to this boot: so workers of earlier boots are known to be dead (LEASE-15).
        let id = AgentId::new(format!("local-{}", Uuid::now_v7()))?;
        let (link, deliveries) = self.scheduler.join(id, pool, abilities)?;
        Ok(WorkerPool::start(link, deliveries, handlers, options))
    }

    /// Makes a Task from a task file, with an id of its own if the file names none.
    ///
    /// # Errors
    /// The refusals of `create_task`.
    pub async fn submit(&self, session: &str, plan: Plan) -> Result<TaskKey, Error> {
        let mut input = plan::into_create(plan)?;
        if input.task_id.is_none() {
            input.task_id = Some(TaskId::new(Uuid::now_v7().to_string())?);
        }
        self.create(session, input).await
    }

    /// Makes a Task.
    ///
    /// # Errors
    /// The refusals of `create_task`.
    pub fn create<'a>(
        &'a self,
        session: &'a str,
        input: CreateTask,
    ) -> BoxFuture<'a, Result<TaskKey, Error>> {
        self.create_under(None, session, input)
    }

    /// Makes a Task that is to be a part of a trace: a W3C `traceparent`.
    ///
    /// # Errors
    /// The refusals of `create_task`.
    pub fn create_under<'a>(
        &'a self,
        trace: Option<SmolStr>,
        session: &'a str,
        input: CreateTask,
    ) -> BoxFuture<'a, Result<TaskKey, Error>> {
        Box::pin(self.write_new(trace, session, Box::new(input)))
    }

    async fn write_new(
        &self,
        trace: Option<SmolStr>,
        session: &str,
        input: Box<CreateTask>,
    ) -> Result<TaskKey, Error> {
        let session_id = SessionId::new(session)?;
        let task_id = input.task_id()?.clone();
        let client = self.client(session)?;
        let context =
            Context { trace, ..Context::new(CommandId::new(Uuid::now_v7().to_string())?) };
        write_with_blobs(client.port(), &task_id, context, Write::Create(input)).await?;
        Ok(TaskKey { session_id, task_id })
    }

    /// A command of the local orchestrator, with a fresh id.
    ///
    /// # Errors
    /// None: the names are right.
    pub fn envelope(&self, session: &SessionId) -> Result<Envelope, Error> {
        let command_id = CommandId::new(Uuid::now_v7().to_string())?;
        Ok(Envelope::new(orchestrator(session.clone())?, Some(command_id)))
    }
}

/// Makes a data directory, which only its user may look into: what Steps get and give may be secret. A directory that
/// is there keeps its rights.
fn make_data_dir(path: &Path) -> std::io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(above) = path.parent() {
        std::fs::create_dir_all(above)?;
    }
    match make_private_dir(path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        made => made,
    }
}

/// The local user, who may steer every Task of the data directory.
///
/// # Errors
/// None: the name is right.
pub fn orchestrator(session_id: SessionId) -> Result<Caller, BadId> {
    Ok(Caller {
        agent: AgentId::new("local")?,
        role: Role::Orchestrator,
        session_id,
        run_id: None,
        worker_pool_id: None,
        origin: None,
    })
}
