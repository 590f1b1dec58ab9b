//! A server that is a program: its process, and its lines.
//!
//! The program runs in a process group that dies with this one ([`LeashedGroup`]). It gets none of the variables of
//! the worker but a few harmless ones, and those that its settings name. What it prints to its standard error goes to
//! the log of the worker, at the level `debug`.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use parking_lot::Mutex;
use serde_json::{Value as Json, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::error::ToolError;
use super::message::{ProgressSender, ServerMessage, ToolRequest, ToolVersion, notification};
use crate::worker::exec::LeashedGroup;

/// Variables that each program gets, if the worker has them: where programs, files and texts are.
pub(super) const HARMLESS: [&str; 7] = ["PATH", "HOME", "USER", "LANG", "LC_ALL", "TMPDIR", "TZ"];

/// How many lines may wait until the program reads them.
const LINES_MAX: usize = 64;

/// How many requests that were given up are remembered: their answers may still come.
const ABANDONED_MAX: usize = 1_024;

/// How long a program has to end by itself, once its input has ended.
const GRACE: Duration = Duration::from_secs(2);

/// The longest line of its standard error that is logged.
const LOGGED_MAX: u64 = 4_096;

/// A program that runs, and what is said to it. Dropping it ends the program.
#[derive(Debug)]
pub(super) struct StdioLink {
    shared: Arc<StdioShared>,
    stop: CancellationToken,
}

#[derive(Debug)]
struct StdioShared {
    server: String,
    lines: mpsc::Sender<Vec<u8>>,
    calls: Mutex<StdioCalls>,
}

/// The requests whose answers are to come.
#[derive(Debug, Default)]
struct StdioCalls {
    last: u64,
    open: HashMap<u64, OpenCall>,
    /// Requests that were given up.
    abandoned: BTreeSet<u64>,
    /// Why nothing more can be asked.
    broken: Option<ToolError>,
}

#[derive(Debug)]
struct OpenCall {
    answer: oneshot::Sender<Result<Json, ToolError>>,
    progress: Option<ProgressSender>,
}

impl StdioLink {
    /// Starts the program.
    pub(super) async fn start(
        server: &str,
        (command, env, cwd): (&[String], &[String], Option<&PathBuf>),
        answer_bytes_max: usize,
    ) -> Result<Self, ToolError> {
        let unreachable = |error: io::Error| {
            let program = command.first().map_or("", |it| it.as_str());
            let why = format!("{program} cannot be started: {error}");
            ToolError::Unreachable { server: server.to_owned(), why }
        };
        let mut group = LeashedGroup::start().map_err(unreachable)?;
        let mut child = match spawn(&group, (command, env, cwd)) {
            Ok(child) => child,
            Err(error) => {
                let _ = group.kill().await; // Nobody else is in it.
                return Err(unreachable(error));
            }
        };
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err(unreachable(io::Error::other("it has no pipes")));
        };
        let (lines, waiting) = mpsc::channel(LINES_MAX);
        let calls = Mutex::default();
        let shared = Arc::new(StdioShared { server: server.to_owned(), lines, calls });
        let stop = CancellationToken::new();
        let process = StdioProcess { child, group, shared: Arc::clone(&shared), answer_bytes_max };
        tokio::spawn(process.run((stdin, waiting), stdout, stderr, stop.clone()));
        Ok(Self { shared, stop })
    }

    /// Asks for something. Whoever drops the future gives the request up, and the program learns of that.
    pub(super) async fn ask(
        &self,
        version: ToolVersion,
        request: &ToolRequest,
        progress: Option<&ProgressSender>,
    ) -> Result<Json, ToolError> {
        let (answer, answered) = oneshot::channel();
        let id = self.shared.open(OpenCall { answer, progress: progress.cloned() })?;
        let waits = GivesUp { shared: &self.shared, id };
        self.shared.send(&request.message(version, id, progress.is_some())).await?;
        let answer = answered.await;
        drop(waits);
        answer.unwrap_or_else(|_| Err(self.shared.why_broken()))
    }

    /// Says something that has no answer.
    pub(super) async fn tell(&self, method: &str) -> Result<(), ToolError> {
        self.shared.send(&notification(method, json!({}))).await
    }

    /// Whether nothing more can be asked.
    pub(super) fn is_broken(&self) -> bool {
        self.shared.calls.lock().broken.is_some()
    }
}

impl Drop for StdioLink {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Gives a request up that has no answer when this is dropped.
struct GivesUp<'a> {
    shared: &'a StdioShared,
    id: u64,
}

impl Drop for GivesUp<'_> {
    fn drop(&mut self) {
        self.shared.give_up(self.id);
    }
}

impl StdioShared {
    fn open(&self, call: OpenCall) -> Result<u64, ToolError> {
        let mut calls = self.calls.lock();
        if let Some(error) = &calls.broken {
            return Err(error.clone());
        }
        calls.last += 1;
        let id = calls.last;
        calls.open.insert(id, call);
        Ok(id)
    }

    async fn send(&self, message: &Json) -> Result<(), ToolError> {
        self.lines.send(line_of(message)).await.map_err(|_| self.why_broken())
    }

    fn give_up(&self, id: u64) {
        let is_open = {
            let mut calls = self.calls.lock();
            let is_open = calls.open.remove(&id).is_some();
            if is_open {
                calls.abandoned.insert(id);
                if calls.abandoned.len() > ABANDONED_MAX {
                    calls.abandoned.pop_first();
                }
            }
            is_open
        };
        if is_open {
            let params = json!({"requestId": id, "reason": "nobody waits for it any more"});
            // A program that reads nothing learns of it when its input ends.
            let _ = self.lines.try_send(line_of(&notification("notifications/cancelled", params)));
        }
    }

    /// Takes a message of the program. `Err`: nothing behind it can be trusted.
    fn take(&self, line: &[u8]) -> Result<(), ToolError> {
        let malformed = |why| ToolError::Malformed { server: self.server.clone(), why };
        match ServerMessage::read(line).map_err(malformed)? {
            ServerMessage::Answer { id, result } => self.answer(&id, result).map_err(malformed),
            ServerMessage::Progress { id, progress } => {
                if let Some(to) =
                    self.calls.lock().open.get(&id).and_then(|it| it.progress.as_ref())
                {
                    to.send_replace(Some(progress));
                }
                Ok(())
            }
            ServerMessage::Asks(reply) => {
                let _ = self.lines.try_send(line_of(&reply)); // It reads nothing, and so needs no answer.
                Ok(())
            }
            ServerMessage::Other => Ok(()),
        }
    }

    fn answer(&self, id: &Json, result: Result<Json, ToolError>) -> Result<(), String> {
        let mut calls = self.calls.lock();
        let number = id.as_u64();
        if let Some(open) = number.and_then(|id| calls.open.remove(&id)) {
            let _ = open.answer.send(result); // The caller may have gone.
            return Ok(());
        }
        match number.is_some_and(|id| calls.abandoned.remove(&id)) {
            true => Ok(()),
            false => Err(format!("it answers the request {id}, which is not open")),
        }
    }

    /// Ends all requests for this reason. The first reason counts.
    fn break_off(&self, error: ToolError) {
        let mut calls = self.calls.lock();
        let error = calls.broken.get_or_insert(error).clone();
        for (_, open) in calls.open.drain() {
            let _ = open.answer.send(Err(error.clone())); // The caller may have gone.
        }
    }

    fn why_broken(&self) -> ToolError {
        let why = || "the program was stopped".to_owned();
        let stopped = || ToolError::Lost { server: self.server.clone(), why: why() };
        self.calls.lock().broken.clone().unwrap_or_else(stopped)
    }
}

fn line_of(message: &Json) -> Vec<u8> {
    let mut line = message.to_string().into_bytes();
    line.push(b'\n');
    line
}

/// Starts the program in this group, with an environment of its own.
fn spawn(
    group: &LeashedGroup,
    (command, env, cwd): (&[String], &[String], Option<&PathBuf>),
) -> io::Result<Child> {
    let [program, args @ ..] = command else { return Err(io::ErrorKind::InvalidInput.into()) };
    let mut made = std::process::Command::new(program);
    made.args(args).env_clear();
    let names = HARMLESS.into_iter().chain(env.iter().map(String::as_str));
    made.envs(names.filter_map(|name| Some((name, std::env::var_os(name)?))));
    if let Some(cwd) = cwd {
        made.current_dir(cwd);
    }
    made.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    group.take_in(&mut made);
    Command::from(made).spawn()
}

/// The program, as long as it runs.
struct StdioProcess {
    child: Child,
    group: LeashedGroup,
    shared: Arc<StdioShared>,
    answer_bytes_max: usize,
}

impl StdioProcess {
    /// Carries lines until the program ends, says something wrong, or is to stop; then ends all of its group.
    async fn run(
        mut self,
        (stdin, waiting): (ChildStdin, mpsc::Receiver<Vec<u8>>),
        stdout: ChildStdout,
        stderr: ChildStderr,
        stop: CancellationToken,
    ) {
        let mut carriers = JoinSet::new();
        carriers.spawn(write_lines(stdin, waiting));
        carriers.spawn(log_lines(self.shared.server.clone(), stderr));
        let stopped = tokio::select! {
            error = self.read_lines(stdout) => Some(error),
            () = stop.cancelled() => None,
        };
        if let Some(error) = stopped {
            tracing::debug!(%error, "a server of tools is ended");
            self.shared.break_off(error);
        } else {
            let why = "the program was stopped".to_owned();
            self.shared.break_off(ToolError::Lost { server: self.shared.server.clone(), why });
        }
        carriers.shutdown().await; // Its input ends here.
        let _ = timeout(GRACE, self.child.wait()).await;
        let _ = self.group.kill().await; // The leader has ended, at the latest with its pipe.
        let _ = self.child.wait().await; // It was killed.
    }

    /// Reads messages to the end, and says what that is.
    async fn read_lines(&mut self, mut stdout: ChildStdout) -> ToolError {
        let mut buffer = BytesMut::new();
        let mut searched = 0;
        loop {
            if let Some(at) = buffer[searched..].iter().position(|byte| *byte == b'\n') {
                let line = buffer.split_to(searched + at + 1);
                searched = 0;
                let line = line.trim_ascii();
                if line.len() > self.answer_bytes_max {
                    return self.too_long();
                }
                if !line.is_empty()
                    && let Err(error) = self.shared.take(line)
                {
                    return error;
                }
                continue;
            }
            searched = buffer.len();
            if searched > self.answer_bytes_max {
                return self.too_long();
            }
            match stdout.read_buf(&mut buffer).await {
                Ok(1..) => {}
                Ok(0) => return self.ended("it has closed its standard output").await,
                Err(error) => return self.ended(&error.to_string()).await,
            }
        }
    }

    fn too_long(&self) -> ToolError {
        ToolError::TooLong { server: self.shared.server.clone(), bytes_max: self.answer_bytes_max }
    }

    async fn ended(&mut self, why: &str) -> ToolError {
        let status = timeout(GRACE, self.child.wait()).await;
        let why = match status {
            Ok(Ok(status)) => format!("the program has ended ({status})"),
            _ => why.to_owned(),
        };
        ToolError::Lost { server: self.shared.server.clone(), why }
    }
}

/// Writes whole lines, and ends the input of the program when it is dropped.
async fn write_lines(mut stdin: ChildStdin, mut waiting: mpsc::Receiver<Vec<u8>>) {
    while let Some(line) = waiting.recv().await {
        // A program that reads no more is seen by the end of its output.
        if stdin.write_all(&line).await.is_err() || stdin.flush().await.is_err() {
            return;
        }
    }
}

async fn log_lines(server: String, stderr: ChildStderr) {
    let mut reader = BufReader::new(stderr);
    loop {
        let mut line = Vec::new();
        let mut part = (&mut reader).take(LOGGED_MAX);
        match part.read_until(b'\n', &mut line).await {
            Ok(1..) => {
                let line = String::from_utf8_lossy(line.trim_ascii());
                tracing::debug!(server, "a server of tools says: {line}");
            }
            Ok(0) | Err(_) => return,
        }
    }
}
