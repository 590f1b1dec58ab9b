//! Runs commands in programs that cannot start a guard: a shell leads the process group ([`LeashedGroup`]).

use nix::sys::signal::Signal;
use tokio::process::{Child, Command};

use super::group::{LeashedGroup, pid_of};
use super::launch::Launch;
use super::logs::OutputFiles;
use super::supervise::{CommandProcess, Status};
use super::{ExecError, blocking};

/// A command whose group is led by a shell.
pub(super) struct Unguarded {
    leader: Child,
    pid: i32,
    status: Option<Status>,
    group: LeashedGroup,
}

impl Unguarded {
    pub(super) async fn start(launch: Launch, logs: OutputFiles) -> Result<Self, ExecError> {
        tracing::debug!("`main` does not call `run_if_requested`: the command runs without guard");
        blocking(move || Self::spawn(&launch, logs)).await
    }

    fn spawn(launch: &Launch, logs: OutputFiles) -> Result<Self, ExecError> {
        let group = LeashedGroup::start().map_err(|source| ExecError::Guard { source })?;
        let start_error = |source| ExecError::Start { program: launch.program.clone(), source };
        let mut command = launch.command();
        command.stdout(logs.stdout).stderr(logs.stderr);
        group.take_in(&mut command);
        let leader = Command::from(command).spawn().map_err(start_error)?;
        let pid = pid_of(&leader).map_err(start_error)?.as_raw();
        Ok(Self { leader, pid, status: None, group })
    }
}

impl CommandProcess for Unguarded {
    fn pid(&self) -> i32 {
        self.pid
    }

    fn first(&self) -> Option<u32> {
        u32::try_from(self.pid).ok()
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
        self.group.kill().await.map_err(|_| ExecError::GuardLost)
    }

    async fn terminate(&mut self) {
        self.group.signal(Signal::SIGTERM);
        self.group.signal(Signal::SIGCONT); // A stopped process cannot act on the first one.
    }

    async fn kill(&mut self) {
        self.group.signal(Signal::SIGKILL);
    }
}
