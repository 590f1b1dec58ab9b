//! The few system calls that have no safe wrapper, each behind a safe function.

use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, sigprocmask};
use nix::unistd::Pid;

/// Gives the command a defined start, whatever this process did to its own signals and files: all
/// signals at their defaults and none blocked, no file open but the standard three, and, with
/// `parent`, death by SIGKILL when that process, which must be the one that spawns, ends.
#[allow(unsafe_code)]
pub(in super::super) fn start_clean(command: &mut Command, parent: Option<Pid>) {
    let prepare = move || {
        default_signals()?;
        close_other_files_on_exec();
        parent.map_or(Ok(()), die_with)
    };
    // SAFETY: between fork and exec of a process that may have threads, only async-signal-safe
    // calls are allowed. `prepare` captures one integer and makes only such calls: sigaction,
    // sigprocmask, prctl, getppid and close_range; its errors are plain numbers. It does not
    // allocate, lock or panic.
    unsafe { command.pre_exec(prepare) };
}

/// All signals at their default action and unblocked.
#[allow(unsafe_code)]
pub(in super::super) fn default_signals() -> io::Result<()> {
    for signal in Signal::iterator() {
        // SAFETY: the default action runs no code of ours. Refused for SIGKILL and SIGSTOP only,
        // which cannot have another action.
        let _ = unsafe { nix::sys::signal::signal(signal, SigHandler::SigDfl) };
    }
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
    Ok(())
}

/// Files that Rust opens close themselves on exec; this is for those that other libraries opened.
/// Not possible before Linux 5.11, where those files stay open.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn close_other_files_on_exec() {
    let (first, last): (libc::c_uint, libc::c_uint) = (3, libc::c_uint::MAX);
    // SAFETY: takes numbers only, and closes nothing in this program: it marks.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, libc::CLOSE_RANGE_CLOEXEC) };
}

#[cfg(not(target_os = "linux"))]
fn close_other_files_on_exec() {}

/// Asks the kernel to kill this process when its parent ends, unless that has happened already.
#[cfg(target_os = "linux")]
fn die_with(parent: Pid) -> io::Result<()> {
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    if Pid::parent() == parent { Ok(()) } else { Err(Errno::ESRCH.into()) }
}

#[cfg(not(target_os = "linux"))]
fn die_with(_: Pid) -> io::Result<()> {
    Ok(())
}

/// The result of waiting for children.
#[derive(Debug)]
pub(in super::super) enum Reaped {
    /// This child ended and is gone now.
    Child(Pid, ExitStatus),
    /// There are children, and none has ended.
    NoneEnded,
    /// There are no children.
    NoneLeft,
}

/// Waits for any child. A plain call because the safe wrapper loses the child, and with it the
/// status, when it was killed by a real-time signal.
#[allow(unsafe_code)]
pub(in super::super) fn reap(block: bool) -> io::Result<Reaped> {
    let flags = if block { 0 } else { libc::WNOHANG };
    loop {
        let mut status = 0;
        // SAFETY: `status` is a valid place for the one integer the kernel writes.
        let pid = unsafe { libc::waitpid(-1, &raw mut status, flags) };
        match Errno::result(pid) {
            Ok(0) => return Ok(Reaped::NoneEnded),
            Ok(pid) => return Ok(Reaped::Child(Pid::from_raw(pid), ExitStatus::from_raw(status))),
            Err(Errno::ECHILD) => return Ok(Reaped::NoneLeft),
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
