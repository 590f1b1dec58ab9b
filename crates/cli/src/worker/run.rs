//! Runs Steps of a pool, over NATS or through a gateway, until a signal stops it or a node asks it to leave.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::num::NonZeroUsize;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use futures::channel::mpsc::UnboundedReceiver;
use tenure_core::id::PoolId;
use tenure_core::sessions::WorkerSessions;
use tenure_core::{Code, Rejection};
use tenure_ports::bus::{Delivery, WorkerPort};
use tenure_sdk::http::HttpWorker;
use tenure_sdk::nats::{NatsWorker, boot};
use tenure_sdk::worker::{
    DelegationSettings, ExecSettings, Handlers, Options, RunCommand, WorkerPool,
};
use tenure_telemetry::Telemetry;
use tenure_wire::bus::subject::{Token, WorkerName};

use crate::a2a::DelegationArgs;
use crate::answer::{Exit, Failure, output};
use crate::metrics::{MetricsArgs, MetricsHost, ProcessReadiness};
use crate::place::{GatewayArgs, NatsArgs};
use crate::runtime::{NO_CWD, StopSignals, one_thread};
use crate::telemetry::LogArgs;
use crate::tools::{ToolArgs, with_tools};

/// Run steps of a pool.
#[derive(Debug, Clone, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    nats: NatsArgs,

    #[command(flatten)]
    gateway: GatewayArgs,

    /// Pool whose steps are run
    #[arg(long, value_name = "POOL", env = "TENURE_POOL", default_value = "default")]
    pool: PoolId,

    /// Sessions whose steps are run: names with commas between them, in which * stands for any text, such as
    /// ci-*,main
    #[arg(
        long,
        value_name = "NAMES",
        env = "TENURE_WORKER_SESSIONS",
        value_parser = WorkerSessions::read,
        default_value = "*"
    )]
    sessions: WorkerSessions,

    /// Steps that run at a time, 1 to 65536
    #[arg(
        long,
        value_name = "N",
        env = "TENURE_CONCURRENCY",
        value_parser = concurrency,
        default_value = "4"
    )]
    concurrency: NonZeroUsize,

    /// Who this is: what the NATS server lets it in as; a gateway knows that from the token
    #[arg(long, value_name = "NAME", env = "TENURE_PRINCIPAL", default_value = NAME)]
    pub(super) name: Token,

    /// Directory below which commands leave their output
    #[arg(long, value_name = "DIR", env = "TENURE_FILES", default_value = ".tenure/files")]
    files: PathBuf,

    /// A variable of this worker that commands get all the same: they do not inherit those of Tenure (TENURE_…) nor
    /// headers for telemetry, as these hold logins; repeat it, or separate names by commas
    #[arg(long, value_name = "NAME", env = "TENURE_EXEC_ENV", value_delimiter = ',')]
    exec_env: Vec<String>,

    /// Line of shell that is started for each run in place of all handlers: the host of a model, which claims a step
    /// and reports on it with the tools of `tenure mcp` (docs/mcp.md)
    #[arg(
        long,
        value_name = "LINE",
        env = "TENURE_RUN_COMMAND",
        conflicts_with_all = ["mcp_servers", "a2a_hosts", "a2a_tokens", "a2a_ca"]
    )]
    run_command: Option<String>,

    #[command(flatten)]
    delegation: DelegationArgs,

    #[command(flatten)]
    tools: ToolArgs,

    #[command(flatten)]
    pub(super) log: LogArgs,

    #[command(flatten)]
    pub(super) metrics: MetricsArgs,

    /// When told to stop: how many seconds steps may go on before they are asked to stop too
    #[arg(long, value_name = "SECONDS", env = "TENURE_DRAIN", default_value = "20")]
    drain: u64,

    /// This start of the worker: no other has the same
    #[arg(skip = boot())]
    pub(super) boot: String,
}

/// The principal of a worker whose user names none.
pub(super) const NAME: &str = "worker";

/// The most Steps that a worker runs at a time. A larger number is a mistake: nodes would send it all that waits.
const CONCURRENCY_MAX: usize = 65_536;

fn concurrency(text: &str) -> Result<NonZeroUsize, String> {
    let number = text.parse::<NonZeroUsize>().ok().filter(|it| it.get() <= CONCURRENCY_MAX);
    number.ok_or_else(|| format!("a number from 1 to {CONCURRENCY_MAX}"))
}

impl RunArgs {
    /// A worker beside a gateway of the same process.
    pub(crate) fn beside_gateway(
        nats: NatsArgs,
        (pool, concurrency): (PoolId, NonZeroUsize),
        (files, tools): (PathBuf, ToolArgs),
        drain: u64,
    ) -> Result<Self, Failure> {
        let name = Token::new("dev").map_err(Rejection::from)?;
        let (gateway, delegation) = (GatewayArgs::default(), DelegationArgs::default());
        let (log, metrics, boot) = (LogArgs::default(), MetricsArgs::default(), boot());
        let (exec_env, run_command) = (Vec::new(), None);
        Ok(Self {
            nats,
            gateway,
            pool,
            sessions: WorkerSessions::ALL,
            concurrency,
            name,
            files,
            exec_env,
            run_command,
            delegation,
            tools,
            log,
            metrics,
            drain,
            boot,
        })
    }

    /// The name of this start of the worker.
    fn token(&self) -> Result<Token, Failure> {
        Ok(Token::new(&*self.boot).map_err(Rejection::from)?)
    }
}

/// Runs a worker. It uses a runtime of one thread, because Steps are other processes or wait.
pub(super) fn run(args: &RunArgs, telemetry: Option<&Telemetry>) -> Result<Exit, Failure> {
    let runtime = one_thread()?;
    let ended = runtime.block_on(async {
        let mut stop = StopSignals::listen()?;
        match args.gateway.chosen(args.nats.named()) {
            Some(url) => {
                let begins = RunningWorker::by_gateway(args, url, telemetry);
                work_for(args, telemetry, &mut stop, begins).await
            }
            None => {
                let begins = RunningWorker::begin(args, telemetry);
                work_for(args, telemetry, &mut stop, begins).await
            }
        }
    });
    runtime.shutdown_background(); // Do not wait for a DNS look-up that hangs.
    ended
}

/// Works from when the worker has begun until it is to stop.
async fn work_for<P: ClusterPort>(
    args: &RunArgs,
    telemetry: Option<&Telemetry>,
    stop: &mut StopSignals,
    begins: impl Future<Output = Result<RunningWorker<P>, Failure>>,
) -> Result<Exit, Failure> {
    let ready = ProcessReadiness::default();
    let _pages = MetricsHost::start(&args.metrics, telemetry, &ready).await?;
    let worker = tokio::select! {
        begun = begins => begun?,
        () = stop.asked() => return Ok(Exit::Interrupted),
    };
    ready.begin(worker.readiness());
    if let Some(telemetry) = telemetry {
        telemetry.sample_worker_from(worker.pool.sampler(args.pool.clone()));
    }
    let agent = worker.pool.port().id();
    match args.sessions.is_all() {
        true => output::say(format_args!("worker {agent} runs steps of pool {}", args.pool)),
        false => output::say(format_args!(
            "worker {agent} runs steps of pool {}, of the sessions {}",
            args.pool, args.sessions
        )),
    }
    worker.work(stop).await
}

/// A worker of a cluster.
pub(crate) struct RunningWorker<P: WorkerPort> {
    pool: WorkerPool<P>,
    /// How long Steps may go on after a signal.
    patience: Duration,
}

/// The build that Attempts name (ATT-12).
const BUILD: &str = concat!("tenure ", env!("CARGO_PKG_VERSION"));

impl RunningWorker<NatsWorker> {
    /// Joins the pool, and begins to take Steps.
    pub(crate) async fn begin(
        args: &RunArgs,
        telemetry: Option<&Telemetry>,
    ) -> Result<Self, Failure> {
        let (handlers, options) = prepared(args, telemetry)?;
        let abilities = options.abilities(&handlers);
        let (pool, principal) = (args.pool.clone(), args.name.clone());
        let name = WorkerName { pool, principal, boot: args.token()? };
        let connection =
            args.nats.open(&format!("tenure-worker-{}", args.name), name.inbox()).await?;
        let joined = NatsWorker::join_as(connection, &name, abilities, Some(BUILD)).await?;
        Ok(Self::start(joined, handlers, options, args.drain))
    }
}

impl RunningWorker<HttpWorker> {
    /// The same through a gateway, which knows from the token who the worker is.
    async fn by_gateway(
        args: &RunArgs,
        url: &str,
        telemetry: Option<&Telemetry>,
    ) -> Result<Self, Failure> {
        let (handlers, options) = prepared(args, telemetry)?;
        let abilities = options.abilities(&handlers);
        let settings = args.gateway.settings(url, None);
        let joined = HttpWorker::join(&settings, &args.pool, &args.token()?, abilities).await?;
        Ok(Self::start(joined, handlers, options, args.drain))
    }
}

impl<P: ClusterPort> RunningWorker<P> {
    fn start(
        (port, deliveries): (P, UnboundedReceiver<Delivery>),
        handlers: Handlers,
        options: Options,
        drain: u64,
    ) -> Self {
        let pool = WorkerPool::start(port, deliveries, handlers, options);
        Self { pool, patience: Duration::from_secs(drain) }
    }

    /// A function that says whether the worker gets work now, or why not.
    fn readiness(&self) -> impl Fn() -> Result<(), Rejection> + Send + Sync + 'static {
        let is_linked = self.pool.port().link_state();
        move || match is_linked() {
            true => Ok(()),
            false => Err(Rejection::new(Code::Unavailable, "no node has a link with this worker")),
        }
    }

    /// Works until a signal stops it or a node asks it to leave, and leaves in good order.
    pub(crate) async fn work(self, stop: &mut StopSignals) -> Result<Exit, Failure> {
        // After a signal the worker has `--drain` seconds to finish; asked to leave, it finishes
        // what it has; refused by the server, it cannot report what it has, so it stops at once.
        let (patience, ended) = tokio::select! {
            () = stop.asked() => (self.patience, Ok(Exit::Ok)),
            () = self.pool.dismissed() => (Duration::MAX, Ok(Exit::Ok)),
            denied = self.pool.port().denied() => (Duration::ZERO, Err(denied.into())),
        };
        wind_down(&self.pool, stop, patience).await;
        if let Err(error) = self.pool.port().leave_pool().await {
            tracing::debug!(%error, "the cluster will notice by itself that the worker has left");
        }
        ended
    }
}

/// The way of a worker to a cluster.
pub(crate) trait ClusterPort: WorkerPort {
    /// Waits until it is certain that the worker gets no work, and returns the reason.
    fn denied(&self) -> impl Future<Output = Rejection> + Send;

    /// A function that says whether the worker has a link, through which work comes.
    fn link_state(&self) -> impl Fn() -> bool + Send + Sync + 'static;

    /// Leaves the pool, when nothing is in hand any more.
    fn leave_pool(&self) -> impl Future<Output = Result<(), Rejection>> + Send;
}

impl ClusterPort for NatsWorker {
    fn link_state(&self) -> impl Fn() -> bool + Send + Sync + 'static {
        Self::link_state(self)
    }

    fn denied(&self) -> impl Future<Output = Rejection> + Send {
        Self::denied(self)
    }

    fn leave_pool(&self) -> impl Future<Output = Result<(), Rejection>> + Send {
        Self::leave_pool(self)
    }
}

impl ClusterPort for HttpWorker {
    fn link_state(&self) -> impl Fn() -> bool + Send + Sync + 'static {
        Self::link_state(self)
    }

    fn denied(&self) -> impl Future<Output = Rejection> + Send {
        Self::denied(self)
    }

    fn leave_pool(&self) -> impl Future<Output = Result<(), Rejection>> + Send {
        Self::leave_pool(self)
    }
}

/// The settings of the worker's pool, without its directory and its command.
fn settings(args: &RunArgs) -> Options {
    Options { sessions: args.sessions.clone(), ..Options::new(args.concurrency) }
}

/// The handlers, or none if a command does their work, and the settings with the directory in which both write.
fn prepared(args: &RunArgs, telemetry: Option<&Telemetry>) -> Result<(Handlers, Options), Failure> {
    let files = std::path::absolute(&args.files).map_err(Failure::cannot(NO_CWD))?;
    check_files(&files, &args.boot)?;
    let (handed_on, secrets) = (args.exec_env.clone(), args.tools.secrets());
    let exec = ExecSettings { files: files.clone(), handed_on, secrets: secrets.clone() };
    let observer = telemetry.map(Telemetry::worker_observer);
    let options = Options { files: Some(files), observer, ..settings(args) };
    if let Some(line) = &args.run_command {
        let command = RunCommand::shell(line, exec);
        let command = command.map_err(|bad| Failure::caused(Exit::Usage, &bad))?;
        return Ok((Handlers::new(), Options { run_command: Some(command), ..options }));
    }
    let handlers = Handlers::new().with_builtins(exec).map_err(Rejection::from)?;
    let delegation = DelegationSettings { secrets, ..args.delegation.settings()? };
    let handlers = handlers.with_a2a(delegation).map_err(Rejection::from)?;
    Ok((with_tools(handlers, args.tools.servers()?)?, options))
}

/// Checks that commands can write their output there: otherwise each Step would go back (LEASE-18).
fn check_files(files: &Path, boot: &str) -> Result<(), Failure> {
    let probe = files.join(format!(".probe-{boot}"));
    let try_it = || -> io::Result<()> {
        fs::create_dir_all(files.parent().unwrap_or(files))?;
        if !files.is_dir() {
            DirBuilder::new().mode(0o700).create(files)?;
        }
        OpenOptions::new().write(true).create_new(true).open(&probe)?.write_all(&[0; 4_096])
    };
    let tried = try_it();
    let removed = fs::remove_file(&probe);
    let Err(error) = tried.and(removed) else { return Ok(()) };
    // A path that is no directory, or that belongs to somebody else, is a wrong option; a full or
    // broken disk may be repaired.
    let stays = matches!(
        error.kind(),
        ErrorKind::PermissionDenied
            | ErrorKind::NotADirectory
            | ErrorKind::AlreadyExists
            | ErrorKind::ReadOnlyFilesystem
            | ErrorKind::InvalidInput
    );
    let exit = if stays { Exit::Usage } else { Exit::Unavailable };
    let message = format!("commands cannot leave their output below {}: {error}", files.display());
    Err(Failure::new(exit, message).help(
        "make it a directory with room that this user may write to, or name another with --files",
    ))
}

/// Takes nothing more and lets Steps end. It asks those that take too long to stop, then ends them
/// by force, and gives them back. A second signal ends the wait.
pub(crate) async fn wind_down<P: WorkerPort>(
    pool: &WorkerPool<P>,
    stop: &mut StopSignals,
    patience: Duration,
) {
    output::say(format_args!("no more steps are taken; {} in hand", pool.in_hand()));
    let is_done = tokio::select! {
        drained = tokio::time::timeout(patience, pool.drain()) => drained.is_ok(),
        () = stop.asked() => false,
    };
    if !is_done {
        tokio::select! {
            asked = pool.interrupt() => output::say(format_args!("{asked} asked to stop")),
            () = stop.asked() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Typed {
        #[command(flatten)]
        run: RunArgs,
    }

    /// DISP-20: what is typed is what the worker says when it joins; without it, it serves all sessions.
    #[test]
    fn a_worker_serves_the_sessions_that_are_typed() {
        let said = |typed: &[&str]| {
            let args = Typed::try_parse_from([&["worker"], typed].concat());
            args.map(|args| settings(&args.run).abilities(&Handlers::new()).sessions.to_string())
        };
        assert_eq!(said(&["--sessions", "main,ci-*"]).unwrap(), "ci-*,main");
        assert_eq!(said(&[]).unwrap(), "*");
        for wrong in ["", "Main", "a b", "a/b"] {
            assert!(said(&["--sessions", wrong]).is_err(), "{wrong}");
        }
    }

    /// A worker with a command has no handlers: what only these read is refused.
    #[test]
    fn a_command_leaves_nothing_to_handlers() {
        for only in ["--mcp-servers", "--a2a-hosts", "--a2a-tokens", "--a2a-ca"] {
            let typed =
                |both: &[&str]| Typed::try_parse_from([&["worker", only, "x"], both].concat());
            assert!(typed(&[]).is_ok(), "{only}");
            let refused = typed(&["--run-command", "true"]).err().unwrap();
            assert_eq!(refused.kind(), clap::error::ErrorKind::ArgumentConflict, "{only}");
        }
    }
}
