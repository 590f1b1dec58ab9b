//! A process of a cluster: it leaves a log, gets signals by its id, and does not outlive the test.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Of what Linux counts times of processes in there are so many in a second.
const TICKS: u32 = 100;

/// Lines of a log that a failing test shows.
const TAIL: usize = 60;

/// A process, and how to start it again.
#[derive(Debug)]
pub struct Process {
    name: String,
    command: Command,
    log: PathBuf,
    child: Child,
}

impl Process {
    /// Starts it in a directory; what it says goes to `<name>.log` there.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(name: &str, dir: &Path, mut command: Command) -> Result<Self> {
        let log = dir.join(format!("{name}.log"));
        command.current_dir(dir).stdin(Stdio::null());
        let child = launch(&mut command, &log)?;
        Ok(Self { name: name.to_owned(), command, log, child })
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// There is no such process.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(self.child.id().cast_signed());
        kill(pid, signal).with_context(|| format!("{} cannot be signalled", self.name))
    }

    /// How long it has been on a processor so far.
    ///
    /// # Errors
    /// There is no such process.
    pub fn on_processor(&self) -> Result<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        // Behind the name, which may have blanks in it: the state is the first, times the 12th and 13th.
        let (_, rest) = stat.rsplit_once(')').context("no name")?;
        let times = rest.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
        let ticks: u64 = times.sum::<Result<u64, _>>()?;
        Ok(Duration::from_secs(ticks) / TICKS)
    }

    /// How much memory it has, in KiB.
    ///
    /// # Errors
    /// There is no such process.
    pub fn resident_kib(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.split_whitespace().next()).context("no VmRSS")?;
        Ok(number.parse()?)
    }

    /// `kill -9`, and waits until it is gone.
    ///
    /// # Errors
    /// It cannot be signalled.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Holds it where it is.
    ///
    /// # Errors
    /// It cannot be signalled.
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::SIGSTOP)
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// It cannot be signalled.
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::SIGCONT)
    }

    /// Starts it again with the same arguments.
    ///
    /// # Errors
    /// It does not start.
    pub fn restart(&mut self) -> Result<()> {
        self.child = launch(&mut self.command, &self.log)?;
        Ok(())
    }

    /// How it has ended, if it has.
    ///
    /// # Errors
    /// It cannot be asked.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// It does not end in time.
    pub fn end(&mut self, within: Duration) -> Result<ExitStatus> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if begun.elapsed() > within {
                bail!("{} did not end within {within:?}", self.name);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// How often it has said something, by lines.
    pub fn has_said(&self, what: &str) -> usize {
        let text = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&text).lines().filter(|line| line.contains(what)).count()
    }

    /// The end of what it said.
    pub fn tail(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        let from = lines.len().saturating_sub(TAIL);
        format!("---- {}\n{}", self.name, lines[from..].join("\n"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill(); // It may have ended.
        let _ = self.child.wait();
    }
}

fn launch(command: &mut Command, log: &Path) -> Result<Child> {
    let log = File::options().create(true).append(true).open(log)?;
    command.stdout(log.try_clone()?).stderr(log);
    command.spawn().with_context(|| format!("{command:?} does not start"))
}
