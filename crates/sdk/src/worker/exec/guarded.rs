//! The runner's side of the guard: starts it, sends it the command, and reads its reports.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command as StdCommand, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::guard::ARGV0;
use super::guard::wire::{GuardReport, Inbox, Order, encode};
use super::launch::Launch;
use super::logs::OutputFiles;
use super::supervise::{CommandProcess, Status};
use super::withheld::withhold;
use super::{ExecError, blocking};

/// The path at which the kernel gives the running executable, even if an upgrade has replaced or
/// removed its file: so guard and runner are always of one build.
const OWN_EXECUTABLE: &str = "/proc/self/exe";

/// How long guard and command may take to start. It is milliseconds, or seconds on a machine that
/// is out of memory; longer than this, the executable does not speak our protocol.
const START_MAX: Duration = Duration::from_secs(30);

/// A command under a guard. Dropping it closes the socket, on which the guard kills everything;
/// tokio then reaps the guard.
pub(super) struct Guarded {
    guard: Child,
    socket: UnixStream,
    inbox: Inbox,
    pid: i32,
    status: Option<Status>,
    is_cleared: bool,
}

impl Guarded {
    pub(super) async fn start(launch: Launch, logs: OutputFiles) -> Result<Self, ExecError> {
        let (guard, socket) =
            blocking(|| spawn(logs).map_err(|source| ExecError::Guard { source })).await?;
        let inbox = Inbox::default();
        let mut this = Self { guard, socket, inbox, pid: 0, status: None, is_cleared: false };
        match timeout(START_MAX, this.launch(launch)).await {
            Ok(started) => started.map(|()| this),
            Err(_) => Err(ExecError::Guard { source: io::ErrorKind::TimedOut.into() }),
        }
    }

    async fn launch(&mut self, launch: Launch) -> Result<(), ExecError> {
        let program = launch.program.clone();
        self.send(&Order::Start(launch)).await.map_err(|source| ExecError::Guard { source })?;
        match self.next_report().await? {
            GuardReport::Started { pid } => {
                self.pid = pid;
                Ok(())
            }
            GuardReport::NotStarted { errno, message } => {
                let source = errno.map_or_else(|| io::Error::other(message), os_error);
                Err(ExecError::Start { program, source })
            }
            GuardReport::Ended(_) | GuardReport::Cleared => Err(ExecError::GuardLost),
        }
    }

    async fn send(&mut self, order: &Order) -> io::Result<()> {
        self.socket.write_all(&encode(order)?).await
    }

    /// The next report. The future may be dropped and made again: no bytes that were read are lost.
    async fn next_report(&mut self) -> Result<GuardReport, ExecError> {
        loop {
            match self.inbox.take() {
                Some(Ok(report)) => return Ok(report),
                Some(Err(_)) => return Err(self.guard_lost()),
                None => {}
            }
            match self.socket.read_buf(self.inbox.buffer()).await {
                Ok(1..) => {}
                Ok(0) | Err(_) => return Err(self.guard_lost()),
            }
        }
    }

    /// The kernel has killed the leader along with its guard; this kills the rest of the group.
    fn guard_lost(&mut self) -> ExecError {
        if self.pid > 0 && !self.is_cleared {
            let _ = killpg(Pid::from_raw(self.pid), Signal::SIGKILL); // An empty group is fine.
        }
        ExecError::GuardLost
    }

    async fn note_next_report(&mut self) -> Result<(), ExecError> {
        match self.next_report().await? {
            GuardReport::Ended(status) => self.status = Some(status),
            GuardReport::Cleared => self.is_cleared = true,
            GuardReport::Started { .. } | GuardReport::NotStarted { .. } => {
                return Err(self.guard_lost());
            }
        }
        Ok(())
    }
}

impl CommandProcess for Guarded {
    fn pid(&self) -> i32 {
        self.pid
    }

    fn first(&self) -> Option<u32> {
        self.guard.id()
    }

    fn status(&self) -> Option<Status> {
        self.status
    }

    async fn ended(&mut self) -> Result<Status, ExecError> {
        loop {
            if let Some(status) = self.status {
                return Ok(status);
            }
            self.note_next_report().await?;
        }
    }

    async fn cleared(&mut self) -> Result<(), ExecError> {
        while !self.is_cleared {
            self.note_next_report().await?;
        }
        self.guard.wait().await.map_err(|_| ExecError::GuardLost)?;
        Ok(())
    }

    // An order that cannot be sent needs no handling: the guard is gone, and the next read shows
    // that.

    async fn terminate(&mut self) {
        let _ = self.send(&Order::Terminate).await;
    }

    async fn kill(&mut self) {
        let _ = self.send(&Order::Kill).await;
    }
}

/// Starts this executable once more as a guard. The socket is its standard input, the logs are its
/// outputs, for the command to inherit. Nothing here needs a hook between fork and exec, so the
/// start costs the same however much memory the runner has.
fn spawn(logs: OutputFiles) -> io::Result<(Child, UnixStream)> {
    let (ours, theirs) = StdUnixStream::pair()?;
    let mut command = StdCommand::new(OWN_EXECUTABLE);
    withhold(&mut command); // A command can read the environment of its guard.
    command.arg0(ARGV0).stdin(Stdio::from(OwnedFd::from(theirs)));
    command.stdout(logs.stdout).stderr(logs.stderr);
    let guard = Command::from(command).spawn()?;
    ours.set_nonblocking(true)?;
    Ok((guard, UnixStream::from_std(ours)?))
}

fn os_error(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}
