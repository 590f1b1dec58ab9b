//! What a guard does, in order: it prepares its own process, starts the command, watches it, kills
//! what is left, and reports.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Child;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal, killpg};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{Pid, setsid};

use super::super::launch::Launch;
use super::super::supervise::Status;
use super::sweep;
use super::sys::{self, Reaped};
use super::wire::{GuardReport, Inbox, Order, encode};

/// Guards one command to its end and returns the exit code of the guard. Never prints: the standard
/// outputs are the command's. A guard that fails closes the socket, and the runner takes over.
pub(super) fn serve() -> i32 {
    let served = take_post().and_then(|children| {
        let mut runner = Runner::on_stdin()?;
        match start_command(&mut runner)? {
            Some(leader) => Guard { runner, children, leader, stop: Stop::NotAsked }.watch(),
            None => Ok(()),
        }
    });
    i32::from(served.is_err())
}

/// Leaves the runner's session, becomes the parent of orphans, and turns signals into something to
/// wait for beside the socket.
fn take_post() -> io::Result<SignalFd> {
    setsid()?;
    prctl::set_child_subreaper(true)?;
    prctl::set_name(c"exec-guard")?; // Else it would be "exe", after the path it was started by.
    sys::default_signals()?; // An ignored SIGCHLD, which is inherited, would lose exit codes.
    SigSet::all().thread_block()?;
    let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
    Ok(SignalFd::with_flags(&SigSet::from(Signal::SIGCHLD), flags)?)
}

/// Starts what the runner asks for. `None` when there is nothing to guard.
fn start_command(runner: &mut Runner) -> io::Result<Option<Leader>> {
    let Some(Order::Start(launch)) = runner.first_order()? else { return Ok(None) };
    match spawn(&launch) {
        Ok(child) => {
            let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
            runner.report(&GuardReport::Started { pid });
            Ok(Some(Leader { pid: Pid::from_raw(pid), has_ended: false }))
        }
        Err(error) => {
            let (errno, message) = (error.raw_os_error(), error.to_string());
            runner.report(&GuardReport::NotStarted { errno, message });
            Ok(None)
        }
    }
}

fn spawn(launch: &Launch) -> io::Result<Child> {
    let mut command = launch.command();
    command.process_group(0);
    sys::start_clean(&mut command, Some(Pid::this()));
    command.spawn()
}

struct Guard {
    runner: Runner,
    children: SignalFd,
    leader: Leader,
    stop: Stop,
}

struct Leader {
    pid: Pid,
    has_ended: bool,
}

/// What the runner has ordered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stop {
    NotAsked,
    Asked,
    Now,
}

impl Guard {
    /// Watches the command, and clears up even when watching failed.
    fn watch(mut self) -> io::Result<()> {
        let watched = self.watch_until_over();
        self.clear_up()?;
        self.runner.report(&GuardReport::Cleared);
        watched
    }

    fn watch_until_over(&mut self) -> io::Result<()> {
        while !self.is_over() {
            let (has_order, has_child) = self.wait()?;
            if has_child {
                while let Some(_signal) = self.children.read_signal()? {}
                self.reap_ended()?;
            }
            if has_order {
                self.obey()?;
            }
        }
        Ok(())
    }

    /// When the leader has ended, the guard ends the rest, except that a group that was asked to
    /// end keeps its grace: a shell dies of SIGTERM at once, while the program it started may be
    /// saving work.
    fn is_over(&self) -> bool {
        match self.stop {
            Stop::NotAsked => self.leader.has_ended,
            Stop::Asked => self.leader.has_ended && !sweep::has_child_in_group(self.leader.pid),
            Stop::Now => true,
        }
    }

    /// Waits for the runner or for a child, and returns which of them is ready.
    fn wait(&self) -> io::Result<(bool, bool)> {
        let mut polled = [
            PollFd::new(self.runner.socket.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.children.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut polled, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let [runner, children] = polled.map(|fd| fd.any().unwrap_or_default());
        Ok((runner, children))
    }

    fn obey(&mut self) -> io::Result<()> {
        if !self.runner.receive()? {
            self.stop = Stop::Now;
        }
        while let Some(order) = self.runner.next_order()? {
            match order {
                Order::Terminate if self.stop == Stop::NotAsked => {
                    self.stop = Stop::Asked;
                    self.signal_group(Signal::SIGTERM);
                    self.signal_group(Signal::SIGCONT); // A stopped process cannot act on SIGTERM.
                }
                Order::Kill => self.stop = Stop::Now,
                Order::Terminate | Order::Start(_) => {}
            }
        }
        Ok(())
    }

    /// Signals the leader's group while its number is surely the leader's: not yet waited for.
    fn signal_group(&self, signal: Signal) {
        if !self.leader.has_ended {
            let _ = killpg(self.leader.pid, signal); // The leader may just have become another user.
        }
    }

    fn reap_ended(&mut self) -> io::Result<Reaped> {
        loop {
            match sys::reap(false)? {
                Reaped::Child(pid, status) => self.note_end(pid, status.into()),
                none => return Ok(none),
            }
        }
    }

    fn note_end(&mut self, pid: Pid, status: Status) {
        if pid == self.leader.pid {
            self.leader.has_ended = true;
            self.runner.report(&GuardReport::Ended(status));
        }
    }

    /// Kills until the kernel says that there are no children. Killing a process hands its children
    /// to us, so every round reaches one generation further; and every child of ours has been
    /// killed by the time we wait, so every wait ends and shows which processes became children
    /// after it.
    fn clear_up(&mut self) -> io::Result<()> {
        loop {
            if let Reaped::NoneLeft = self.reap_ended()? {
                return Ok(());
            }
            self.signal_group(Signal::SIGKILL);
            sweep::kill_children();
            if let Reaped::Child(pid, status) = sys::reap(true)? {
                self.note_end(pid, status.into());
            }
        }
    }
}

/// The guard's end of the socket.
struct Runner {
    socket: UnixStream,
    inbox: Inbox,
}

impl Runner {
    fn on_stdin() -> io::Result<Self> {
        let socket = io::stdin().as_fd().try_clone_to_owned()?.into();
        Ok(Self { socket, inbox: Inbox::default() })
    }

    /// A failed write needs no handling: a runner that is gone needs no report, and the next read
    /// shows that it is gone.
    fn report(&mut self, report: &GuardReport) {
        let _ = encode(report).and_then(|line| self.socket.write_all(&line));
    }

    /// Waits for the first order. `None` when the runner is gone.
    fn first_order(&mut self) -> io::Result<Option<Order>> {
        loop {
            match self.next_order()? {
                None if self.receive()? => {}
                order => return Ok(order),
            }
        }
    }

    fn next_order(&mut self) -> io::Result<Option<Order>> {
        Ok(self.inbox.take().transpose()?)
    }

    /// Reads the bytes that have arrived, or waits for some. `false` when the runner is gone.
    fn receive(&mut self) -> io::Result<bool> {
        let mut chunk = [0; 16 * 1024];
        loop {
            match self.socket.read(&mut chunk) {
                Ok(length) => {
                    self.inbox.buffer().extend_from_slice(&chunk[..length]);
                    return Ok(length > 0);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A reset means that the runner closed the socket with reports of ours unread.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }
}
