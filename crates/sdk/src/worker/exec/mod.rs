//! Runs one command of the built-in `exec` handler: it writes the command's output to files, and
//! leaves no process behind, whatever happens to the command or to the worker.
//!
//! # Who holds the leash
//!
//! A worker that is killed with `kill -9` runs no clean-up code, so another process has to end its
//! commands. Each command therefore gets a *guard*: a tiny process, the same executable started
//! again as `exec-guard`, that holds one end of a socket whose other end only the runner has. The
//! guard starts the command in a process group of its own. When the socket closes, because the
//! runner died, dropped the future or is done, the guard kills every descendant and ends. The
//! kernel closes the socket however the runner dies, so there is no case to forget.
//!
//! The guard is a *child subreaper*: a process that loses its parent becomes the guard's child and
//! not init's. A daemon that escaped by `setsid` and a double fork is thus still found, and the
//! guard knows from the kernel that all processes are gone (no children are left to wait for), not
//! from a scan. There is one guard per command, not one per runner, so that this holds for each
//! command by itself.
//!
//! `PR_SET_PDEATHSIG` alone would not do: it reaches the direct child only, and it fires when the
//! *thread* that started the child ends, which a pool of threads does at will. The guard uses it
//! for the reverse case, a guard that is killed, where its one thread makes it exact.
//!
//! # Programs that embed this library
//!
//! The guard needs `main` to begin with [`guard::run_if_requested`]. A program that does not call
//! it still works, with a weaker leash: a small `/bin/sh` leads the command's process group and
//! kills that group when its pipe from the runner closes. That covers the group, also on `kill -9`
//! of the runner, but not a process that left the group (`setsid`, job control), and the group gets
//! no part of the grace once its leader has ended, and killed processes may take a moment longer to
//! disappear than the call takes to return. It is also slower in a large program, which has to fork
//! itself (some 40 ms for each GiB in use). Other unixes than Linux always use it.
//!
//! # What is deliberately absent
//!
//! No copying: the command writes straight into the log files, so nothing is lost when we die and
//! a chatty command costs us nothing. No limits on memory, processor time or log size: those belong
//! to a cgroup around the worker. No sandbox: the command runs with the worker's rights and, but for
//! the [logins](withheld) of the worker, its environment, and one that kills its own guard has only
//! its process group killed.
//!
//! Step 9 of the walk in docs/architecture.md.

mod bound;
mod error;
mod group;
pub mod guard;
mod guarded;
mod launch;
mod logs;
mod output;
mod spec;
mod supervise;
mod unguarded;
mod why;
mod withheld;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub(super) use self::error::is_shortage;
pub use self::error::{ExecError, OutputError};
#[cfg(feature = "mcp")]
pub(crate) use self::group::LeashedGroup;
use self::guarded::Guarded;
use self::launch::Launch;
pub use self::launch::{INPUTS_ENV, OUTPUT_ENV};
use self::logs::OutputFiles;
pub use self::spec::{ExecFields, ExecSpec, GRACE_DEFAULT, Program, SpecError};
use self::supervise::{CommandProcess as _, ExecLimits, supervise};
use self::unguarded::Unguarded;
pub(super) use self::why::why_not_started;
pub(crate) use self::withheld::withhold;
#[cfg(feature = "mcp")]
pub(crate) use self::withheld::withhold_for_servers;

/// The size of the largest result that a command leaves in `$TENURE_OUTPUT`; larger results belong elsewhere, with a
/// reference left there.
pub const OUTPUT_BYTES_MAX: u64 = 16 << 20;

/// The files of one command. Their directories exist already.
#[derive(Debug, Clone)]
pub struct ExecPaths {
    /// Receives the standard output; emptied first. May be the same file as `stderr`.
    pub stdout: PathBuf,
    /// Receives the standard error; emptied first.
    pub stderr: PathBuf,
    /// Named in `$TENURE_OUTPUT`: where the command may write its result. Removed first, so that
    /// the result of an earlier attempt is never taken for this one's.
    pub output: PathBuf,
    /// Named in `$TENURE_INPUTS`: written by the caller before the command runs.
    pub inputs: PathBuf,
}

/// The outcome of a command that ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecOutcome {
    /// How it ended.
    pub ended: CommandEnd,
    /// Size of the standard output.
    pub stdout_bytes: u64,
    /// Size of the standard error.
    pub stderr_bytes: u64,
    /// The last lines of both, standard error last, for people to read.
    pub tail: String,
    /// The JSON value the command left in `$TENURE_OUTPUT`, without surrounding white space. After
    /// anything but exit code 0 this is a courtesy: an invalid output is `None`, never an error.
    pub output: Option<Vec<u8>>,
    /// From the call until the command ran.
    pub startup: Duration,
    /// From then until nothing of it was left.
    pub duration: Duration,
}

/// How a command ended. A command we stopped is `TimedOut` or `Cancelled`, whatever its exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandEnd {
    /// It exited with this code.
    Exited(i32),
    /// This signal, not ours, ended it.
    Signaled(i32),
    /// Its `timeout_ms` was over.
    TimedOut,
    /// The token was cancelled.
    Cancelled,
}

/// Runs the command of `spec` to its end, kills the processes that it leaves behind, and returns
/// its outcome.
///
/// The environment is the runner's without its [logins](withheld), then that of `spec`, then
/// `env_extra`, later ones winning.
/// Cancelling `cancel` asks the command to end and, after its grace, kills it; dropping the future
/// kills it at once. The command failing is an outcome; an error means that it could not be run, or
/// that it exited with 0 and left an output that breaks the rules.
///
/// Needs a tokio runtime with I/O and time enabled.
pub async fn run(
    spec: &ExecSpec,
    paths: &ExecPaths,
    env_extra: &[(String, String)],
    cancel: &CancellationToken,
) -> Result<ExecOutcome, ExecError> {
    run_known(spec, paths, env_extra, (cancel, &watch::Sender::new(None))).await
}

/// As [`run`]. Says which process is the first of the command, as soon as that has begun: all others descend from it.
pub(super) async fn run_known(
    spec: &ExecSpec,
    paths: &ExecPaths,
    env_extra: &[(String, String)],
    (cancel, first): (&CancellationToken, &watch::Sender<Option<u32>>),
) -> Result<ExecOutcome, ExecError> {
    let launch = Launch::new(spec, paths, env_extra)?;
    let called = Instant::now();
    let logs = prepare(spec, paths).await?;
    let (ended, started) = if cancel.is_cancelled() {
        (CommandEnd::Cancelled, Instant::now())
    } else {
        let ended = execute(launch, logs, ExecLimits::of(spec), (cancel, first));
        bound::bounded(paths, ended).await?
    };
    let (startup, duration) = (started - called, started.elapsed());
    conclude(paths, ended, startup, duration).await
}

/// Starts the command under the best leash there is, and supervises it to its end. Also returns
/// when it began.
async fn execute(
    launch: Launch,
    logs: OutputFiles,
    limits: ExecLimits,
    (cancel, first): (&CancellationToken, &watch::Sender<Option<u32>>),
) -> Result<(CommandEnd, Instant), ExecError> {
    if guard::is_ready() {
        let process = Guarded::start(launch, logs).await?;
        let started = Instant::now();
        first.send_replace(process.first());
        Ok((supervise(process, limits, cancel).await?, started))
    } else {
        let process = Unguarded::start(launch, logs).await?;
        let started = Instant::now();
        first.send_replace(process.first());
        Ok((supervise(process, limits, cancel).await?, started))
    }
}

/// Prepares the files, and refuses a bad `cwd`, which would look like a missing program later.
async fn prepare(spec: &ExecSpec, paths: &ExecPaths) -> Result<OutputFiles, ExecError> {
    let (cwd, paths) = (spec.cwd().map(Path::to_owned), paths.clone());
    blocking(move || {
        if let Some(path) = cwd.filter(|path| !path.is_dir()) {
            return Err(ExecError::Cwd { path });
        }
        output::clear(&paths.output)?;
        OutputFiles::create(&paths)
    })
    .await
}

async fn conclude(
    paths: &ExecPaths,
    ended: CommandEnd,
    startup: Duration,
    duration: Duration,
) -> Result<ExecOutcome, ExecError> {
    let paths = paths.clone();
    blocking(move || {
        let output = match (ended, output::read(&paths.output)) {
            (CommandEnd::Exited(0), read) => read?,
            (_, read) => read.unwrap_or_default(),
        };
        let (stdout_bytes, stderr_bytes) = logs::sizes(&paths)?;
        let tail = logs::tail(&paths)?;
        Ok(ExecOutcome { ended, stdout_bytes, stderr_bytes, tail, output, startup, duration })
    })
    .await
}

/// Runs file and process calls on a thread that may block. A panic there panics here.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ExecError> + Send + 'static,
) -> Result<T, ExecError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(ExecError::RuntimeShutDown),
        },
    }
}
