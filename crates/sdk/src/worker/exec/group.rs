//! A process group that dies with this program: a shell leads it.
//!
//! The shell waits on a pipe from us and kills its own group, itself included, when the pipe
//! closes. It exists before the command joins its group, so there is no moment in which our death
//! would leave the command running. As the group's leader, not yet waited for, it also keeps the
//! group's number from being reused, which makes signalling the group safe at any time.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command as StdCommand, Stdio};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::process::{Child, ChildStdin, Command};

use super::guard::sys;

/// The shell ignores the signals that ask the group to end. It only reads, so it costs nothing.
const WATCHDOG: &str = "trap '' TERM INT HUP QUIT; read -r _; kill -KILL 0";

/// A process group whose leader kills it when this is dropped, or this program ends.
pub(crate) struct LeashedGroup {
    watchdog: Child,
    group: Pid,
    /// The watchdog waits until this pipe closes: when we drop it, or the kernel closes it after
    /// our death.
    _leash: Option<ChildStdin>,
}

impl LeashedGroup {
    /// A group with nobody in it but its leader.
    pub(crate) fn start() -> io::Result<Self> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", WATCHDOG]).env_clear().process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut watchdog = command.spawn()?;
        let group = pid_of(&watchdog)?;
        let leash = watchdog.stdin.take();
        Ok(Self { watchdog, group, _leash: leash })
    }

    /// Has a command join the group when it starts, with signals and files as a new program has them.
    pub(crate) fn take_in(&self, command: &mut StdCommand) {
        command.process_group(self.group.as_raw());
        sys::start_clean(command, None);
    }

    /// Signals all in the group. An error means that no process is left in it, as the signal was to achieve.
    pub(crate) fn signal(&self, signal: Signal) {
        let _ = killpg(self.group, signal);
    }

    /// Kills all in the group, and waits for its leader.
    pub(crate) async fn kill(&mut self) -> io::Result<()> {
        if self.watchdog.id().is_some() {
            self.signal(Signal::SIGKILL);
        }
        self.watchdog.wait().await.map(|_| ())
    }
}

/// The id of a child that was not waited for yet.
pub(super) fn pid_of(child: &Child) -> io::Result<Pid> {
    let id = child.id().and_then(|id| i32::try_from(id).ok());
    id.map(Pid::from_raw).ok_or_else(|| io::Error::other("the child has no process id"))
}
