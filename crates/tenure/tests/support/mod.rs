//! Runs the binary as a user would: in a folder of its own, with a data directory of its own.

#![allow(dead_code, unreachable_pub)] // Each test binary uses its part.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use serde_json::Value;

/// Longest that a run may take on a machine that is busy with other things.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The binary under test.
pub const TENURE: &str = env!("CARGO_BIN_EXE_tenure");

/// A folder with task files and a data directory.
pub struct Place {
    pub dir: tempfile::TempDir,
}

/// What a finished run left behind.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Place {
    pub fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    /// Writes a task file.
    pub fn file(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// `tenure` with these arguments.
    pub fn command(&self, args: &[&str]) -> Command {
        self.program(TENURE, args)
    }

    /// A program in this place, with no settings of the tester's environment: what is left of that name
    /// says where servers are.
    pub fn program(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(args).current_dir(self.dir.path()).stdin(Stdio::null());
        let servers = ["TENURE_NATS_SERVER", "TENURE_REDIS_SERVER", "TENURE_ROTEL"];
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("TENURE_") && !servers.contains(&&*text) {
                command.env_remove(&name);
            }
        }
        command.env_remove("NO_COLOR");
        command
    }

    /// Runs it to its end.
    pub fn tenure(&self, args: &[&str]) -> Ended {
        Running::run_to_end(&mut self.command(args))
    }

    /// Runs it in a shell that was told so first, such as `ulimit -f 8`.
    pub fn limited(&self, first: &str, args: &[&str]) -> Ended {
        let mut command = Command::new("sh");
        let script = format!("{first}; exec \"$0\" \"$@\"");
        command.args(["-c", &script, TENURE]).args(args).current_dir(self.dir.path());
        Running::run_to_end(&mut command)
    }

    /// Starts it and goes on.
    pub fn start(&self, args: &[&str]) -> Running {
        Running::of(&mut self.command(args))
    }

    /// `tenure run … -o json`, whatever it ends with.
    pub fn report(&self, args: &[&str]) -> (Option<i32>, Value) {
        let ended = self.tenure(&[args, &["-o", "json"]].concat());
        (ended.code, ended.json())
    }

    /// Waits until a file of this place is there and not empty.
    pub fn wait_for(&self, name: &str) {
        let path = self.path(name);
        wait_until(|| path.metadata().is_ok_and(|m| m.len() > 0), &path);
    }
}

pub fn wait_until(condition: impl Fn() -> bool, what: &Path) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "{} did not come", what.display());
        std::thread::sleep(Duration::from_millis(2));
    }
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Ended {
    /// Fails unless it ended with this code.
    #[track_caller]
    pub fn with(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    /// Fails unless stderr says this.
    #[track_caller]
    pub fn saying(self, text: &str) -> Self {
        assert!(self.stderr.contains(text), "{text:?} is not said: {self:#?}");
        self
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }

    /// The last line of stderr, as programs read a failure.
    #[track_caller]
    pub fn refusal(&self) -> Value {
        let line = self.stderr.lines().last().unwrap_or_default();
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }

    /// stdout as one JSON value a line.
    #[track_caller]
    pub fn lines(&self) -> Vec<Value> {
        let parse =
            |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        self.stdout.lines().map(parse).collect()
    }
}

/// A process that does not outlive its test.
pub struct Running(Option<Child>);

impl Running {
    /// Starts a command.
    pub fn of(command: &mut Command) -> Self {
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Self(Some(child))
    }

    pub fn pid(&self) -> u32 {
        self.0.as_ref().unwrap().id()
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid().cast_signed()), signal).unwrap();
    }

    /// Waits until it hears Ctrl-C itself, and would not just die of it.
    pub fn listens(&self) {
        const SIGINT: u64 = 1 << 1;
        let status = format!("/proc/{}/status", self.pid());
        let catches = || {
            let status = std::fs::read_to_string(&status).unwrap();
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
            u64::from_str_radix(caught.trim(), 16).unwrap() & SIGINT != 0
        };
        wait_until(catches, Path::new("the handler of SIGINT"));
    }

    /// Stops it with Ctrl-C, which it has to answer with these words.
    #[track_caller]
    pub fn stopped_saying(self, text: &str) {
        self.listens();
        self.signal(Signal::SIGINT);
        self.end().with(130).saying(text);
    }

    /// The next line of stderr that has this in it.
    pub fn hears(&mut self, text: &str) -> String {
        let stderr = self.0.as_mut().unwrap().stderr.as_mut().unwrap();
        // One byte at a time, so that nothing is read ahead of whoever reads on.
        let mut lines = BufReader::with_capacity(1, stderr).lines();
        lines
            .by_ref()
            .map(Result::unwrap)
            .find(|line| line.contains(text))
            .unwrap_or_else(|| panic!("{text:?} is not said"))
    }

    /// Runs a command to its end, and fails if that takes too long: it and all that it has started are
    /// killed then.
    #[track_caller]
    pub fn run_to_end(command: &mut Command) -> Ended {
        let running = Self::of(command.process_group(0));
        let group = Pid::from_raw(running.pid().cast_signed());
        let (over, is_over) = mpsc::channel::<()>();
        let watchdog = std::thread::spawn(move || {
            let is_late = is_over.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout);
            if is_late {
                let _ = killpg(group, Signal::SIGKILL); // It may have ended this very moment.
            }
            is_late
        });
        let ended = running.end();
        drop(over);
        assert!(!watchdog.join().unwrap(), "no end within {PATIENCE:?}: {command:?}: {ended:#?}");
        ended
    }

    pub fn end(mut self) -> Ended {
        self.0.take().unwrap().wait_with_output().unwrap().into()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The Step of a report.
#[track_caller]
pub fn step<'a>(report: &'a Value, id: &str) -> &'a Value {
    let steps = report["steps"].as_array().unwrap();
    steps.iter().find(|step| step["step_id"] == id).unwrap_or_else(|| panic!("no step {id}"))
}
