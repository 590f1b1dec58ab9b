//! Decides when a running command is asked to end and when it is killed, in the same way for both
//! leashes.

use std::future::Future;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{CommandEnd, ExecError, ExecSpec};

/// How long killed processes may take to be gone. The kernel needs milliseconds, except for a
/// process that hangs in a broken file system or device, which may take any time.
const CLEAR_MAX: Duration = Duration::from_secs(10);

/// The limits a command runs under.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExecLimits {
    timeout: Option<Duration>,
    grace: Duration,
}

impl ExecLimits {
    pub(super) fn of(spec: &ExecSpec) -> Self {
        Self { timeout: spec.timeout(), grace: spec.grace() }
    }
}

/// How the command's first process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Status {
    Exited(i32),
    Signaled(i32),
}

impl From<std::process::ExitStatus> for Status {
    fn from(status: std::process::ExitStatus) -> Self {
        use std::os::unix::process::ExitStatusExt;
        match status.code() {
            Some(code) => Self::Exited(code),
            None => Self::Signaled(status.signal().unwrap_or_default()),
        }
    }
}

impl From<Status> for CommandEnd {
    fn from(status: Status) -> Self {
        match status {
            Status::Exited(code) => Self::Exited(code),
            Status::Signaled(signal) => Self::Signaled(signal),
        }
    }
}

/// A started command. Dropping this kills the command; every wait may be dropped and begun again.
pub(super) trait CommandProcess {
    /// The process id of the command's first process, its leader.
    fn pid(&self) -> i32;
    /// The process from which all of the command descend.
    fn first(&self) -> Option<u32>;
    /// How the leader ended, if that is known yet.
    fn status(&self) -> Option<Status>;
    /// Waits for the leader's end.
    fn ended(&mut self) -> impl Future<Output = Result<Status, ExecError>> + Send;
    /// Waits until nothing of the command is left. Once the leader has ended, the rest is killed;
    /// after `terminate`, the rest of its group keeps the grace if this kind of leash can give it.
    fn cleared(&mut self) -> impl Future<Output = Result<(), ExecError>> + Send;
    /// Asks the group to end.
    fn terminate(&mut self) -> impl Future<Output = ()> + Send;
    /// Kills all of it.
    fn kill(&mut self) -> impl Future<Output = ()> + Send;
}

/// Supervises a command until no process of it is left.
pub(super) async fn supervise<P: CommandProcess>(
    mut process: P,
    limits: ExecLimits,
    cancel: &CancellationToken,
) -> Result<CommandEnd, ExecError> {
    let ended = end_or_stop(&mut process, limits, cancel).await?;
    if matches!(ended, CommandEnd::TimedOut | CommandEnd::Cancelled) {
        stop(&mut process, limits.grace).await?;
    }
    clear(&mut process).await?;
    Ok(ended)
}

/// Waits for the leader's own end, or for a reason to stop it. If the leader has ended already,
/// that counts.
async fn end_or_stop<P: CommandProcess>(
    process: &mut P,
    limits: ExecLimits,
    cancel: &CancellationToken,
) -> Result<CommandEnd, ExecError> {
    let time_is_over = async {
        match limits.timeout {
            Some(timeout) => sleep(timeout).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        status = process.ended() => Ok(status?.into()),
        () = cancel.cancelled() => Ok(CommandEnd::Cancelled),
        () = time_is_over => Ok(CommandEnd::TimedOut),
    }
}

/// Asks the command to end, waits for the grace, and kills it.
async fn stop<P: CommandProcess>(process: &mut P, grace: Duration) -> Result<(), ExecError> {
    if !grace.is_zero() {
        process.terminate().await;
        if let Ok(cleared) = timeout(grace, process.cleared()).await {
            return cleared;
        }
    }
    process.kill().await;
    Ok(())
}

/// Waits until all processes are gone. A leader that does not end is an error. Leftovers of a
/// leader that ended are not, since its outcome is known: they are still being killed when this
/// stops waiting.
async fn clear<P: CommandProcess>(process: &mut P) -> Result<(), ExecError> {
    if let Ok(cleared) = timeout(CLEAR_MAX, process.cleared()).await {
        return cleared;
    }
    let pid = process.pid();
    match process.status() {
        None => Err(ExecError::Unkillable { pid }),
        Some(_) => {
            tracing::warn!(pid, "a process the command left behind survives SIGKILL");
            Ok(())
        }
    }
}
