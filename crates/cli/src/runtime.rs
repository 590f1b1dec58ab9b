//! The runtime of commands that wait, and the signals that ask them to stop.

use tenure_ports::supervise;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::answer::{Exit, Failure, output};

/// What a system without threads or file descriptors does not allow: completes "cannot ...".
pub(crate) const START: &str = "start the runtime of this command";

/// What cannot be done in a working directory that was removed: completes "cannot ...".
pub(crate) const NO_CWD: &str = "find the working directory (was it removed?)";

/// A runtime of one thread: a command mostly waits, for others or for a disk, and computes little.
#[derive(Debug)]
pub(crate) struct CommandRuntime(Runtime);

/// Makes a runtime of one thread.
pub(crate) fn one_thread() -> Result<CommandRuntime, Failure> {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.map(CommandRuntime).map_err(Failure::cannot(START))
}

impl CommandRuntime {
    /// Runs work until it ends.
    pub(crate) fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        supervise::run(&self.0, work)
    }

    /// Ends the runtime without waiting for its work.
    pub(crate) fn shutdown_background(self) {
        self.0.shutdown_background();
    }
}

impl From<Runtime> for CommandRuntime {
    fn from(runtime: Runtime) -> Self {
        Self(runtime)
    }
}

/// Keeps other processes of this user from reading the environment and the memory of this one: both hold its logins,
/// and the commands of steps run as the same user. A crash leaves no core dump then. It comes before all else, as a
/// command could be reading at that moment.
///
/// # Errors
/// The system refuses it.
pub(crate) fn hide_environment() -> Result<(), nix::Error> {
    #[cfg(target_os = "linux")]
    nix::sys::prctl::set_dumpable(false)?;
    Ok(())
}

/// Waits for something that goes on without this process. If a signal stops the wait, the message
/// says so, made at that moment.
pub(crate) async fn unless_stopped(
    said: impl FnOnce() -> String,
    work: impl Future<Output = Result<Exit, Failure>>,
) -> Result<Exit, Failure> {
    let mut stop = StopSignals::listen()?;
    tokio::select! {
        ended = work => ended,
        () = stop.asked() => {
            output::say(said());
            Ok(Exit::Interrupted)
        }
    }
}

/// Listens for Ctrl-C and SIGTERM. Not for SIGHUP: a user of `nohup` wants it ignored, and one who
/// closes the terminal can resume.
#[derive(Debug)]
pub(crate) struct StopSignals {
    signals: [Signal; 2],
    /// Catching SIGXFSZ turns a write beyond the file size limit from death into an error.
    _size: Signal,
}

impl StopSignals {
    /// Starts listening: from here on none of them ends the process by itself.
    pub(crate) fn listen() -> Result<Self, Failure> {
        const SIGXFSZ: i32 = 25;
        let listen = |kind| signal(kind).map_err(Failure::cannot("listen for signals"));
        Ok(Self {
            signals: [listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?],
            _size: listen(SignalKind::from_raw(SIGXFSZ))?,
        })
    }

    /// Waits for the next signal. May be dropped at any time.
    pub(crate) async fn asked(&mut self) {
        let [interrupt, terminate] = &mut self.signals;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    }
}

/// Makes the kernel give memory in pages of 4 KiB. A scheduler's memory comes and goes in small
/// pieces; with huge pages the kernel clears two MiB for the first of them, which on a virtual
/// machine whose host has that memory elsewhere takes milliseconds. A gateway has thousands of
/// connections, each with buffers of which some hundred bytes are used; in huge pages they would
/// take all of their room.
pub(crate) fn take_small_pages() {
    #[cfg(target_os = "linux")]
    if let Err(error) = nix::sys::prctl::set_thp_disable(true) {
        tracing::debug!(%error, "memory comes in huge pages");
    }
}
