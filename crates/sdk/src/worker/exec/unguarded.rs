//! Runs commands in programs that cannot start a guard: a shell leads the process group.
//!
//! The shell waits on a pipe from us and kills its own group, itself included, when the pipe
//! closes. It exists before the command joins its group, so there is no moment in which our death
//! would leave the command running. As the group's leader, not yet waited for, it also keeps the
//! group's number from being reused, which makes signalling the group safe at any time.

use std::os::unix::process::CommandExt;
use std::process::Stdio;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::process::{Child, ChildStdin, Command};

use super::guard::sys;
use super::launch::Launch;
use super::logs::OutputFiles;
use super::supervise::{CommandProcess, Status};
use super::{ExecError, blocking};

/// The shell ignores the signals that ask the group to end. It only reads, so it costs nothing.
const WATCHDOG: &str = "trap '' TERM INT HUP QUIT; read -r _; kill -KILL 0";

/// A command whose group is led by a shell.
pub(super) struct Unguarded {
    leader: Child,
    pid: i32,
    status: Option<Status>,
    watchdog: Child,
    group: Pid,
    /// The watchdog waits until this pipe closes: when we drop it, or the kernel closes it after
    /// our death.
    _leash: Option<ChildStdin>,
}

impl Unguarded {
    pub(super) async fn start(launch: Launch, logs: OutputFiles) -> Result<Self, ExecError> {
        tracing::debug!("`main` does not call `run_if_requested`: the command runs without guard");
        blocking(move || Self::spawn(&launch, logs)).await
    }

    fn spawn(launch: &Launch, logs: OutputFiles) -> Result<Self, ExecError> {
        let (mut watchdog, group) = spawn_watchdog()?;
        let leash = watchdog.stdin.take();
        let start_error = |source| ExecError::Start { program: launch.program.clone(), source };
        let mut command = launch.command();
        command.stdout(logs.stdout).stderr(logs.stderr).process_group(group.as_raw());
        sys::start_clean(&mut command, None);
        let leader = Command::from(command).spawn().map_err(start_error)?;
        let pid = pid_of(&leader).map_err(start_error)?.as_raw();
        Ok(Self { leader, pid, status: None, watchdog, group, _leash: leash })
    }

    /// An error means that no process is left in the group, as the signal was to achieve.
    fn signal(&self, signal: Signal) {
        let _ = killpg(self.group, signal);
    }
}

impl CommandProcess for Unguarded {
    fn pid(&self) -> i32 {
        self.pid
    }

    fn status(&self) -> Option<Status> {
        self.status
    }

    async fn ended(&mut self) -> Result<Status, ExecError> {
        let status = self.leader.wait().await.map_err(|_| ExecError::GuardLost)?;
        Ok(*self.status.insert(status.into()))
    }

    async fn cleared(&mut self) -> Result<(), ExecError> {
        self.ended().await?;
        if self.watchdog.id().is_some() {
            self.signal(Signal::SIGKILL);
        }
        self.watchdog.wait().await.map_err(|_| ExecError::GuardLost)?;
        Ok(())
    }

    async fn terminate(&mut self) {
        self.signal(Signal::SIGTERM);
        self.signal(Signal::SIGCONT); // A stopped process cannot act on the first one.
    }

    async fn kill(&mut self) {
        self.signal(Signal::SIGKILL);
    }
}

fn spawn_watchdog() -> Result<(Child, Pid), ExecError> {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", WATCHDOG]).env_clear().process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let watchdog = command.spawn().map_err(|source| ExecError::Guard { source })?;
    let group = pid_of(&watchdog).map_err(|source| ExecError::Guard { source })?;
    Ok((watchdog, group))
}

/// The id of a child that was not waited for yet.
fn pid_of(child: &Child) -> std::io::Result<Pid> {
    let id = child.id().and_then(|id| i32::try_from(id).ok());
    id.map(Pid::from_raw).ok_or_else(|| std::io::Error::other("the child has no process id"))
}
