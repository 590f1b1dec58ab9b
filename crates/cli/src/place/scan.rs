//! Reads a log from its start, line by line, with the place of each line.
//!
//! The journal's own reader gives commits without their places, which commands like `wal verify`
//! need. Both readers treat the same logs as whole, torn or damaged (RECOVER-05, RECOVER-06). This
//! one has one line and one commit in memory at a time.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use tenure_core::event::Body;
use tenure_core::id::{SessionId, WalName};
use tenure_core::{Commit, Task};
use tenure_local::read_regular;
use tenure_ports::journal::{Entry, TaskKey};
use tenure_wire::stored::{Assembler, LINE_MAX, Line, decode_line};

use crate::answer::{Exit, Failure};

/// What follows a `wal_name` in the name of its file (STORE-12).
pub(crate) const SUFFIX: &str = ".wal.jsonl";

/// A log.
#[derive(Debug, Clone)]
pub(crate) struct LogFile {
    /// Its file.
    pub(crate) path: PathBuf,
    /// Its Task.
    pub(crate) key: TaskKey,
    /// Its name.
    pub(crate) wal_name: WalName,
}

/// A fault in a log, and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogFault {
    /// Number of the line, from 1.
    pub(crate) line: u64,
    /// Byte offset of the line.
    pub(crate) offset: u64,
    /// What is wrong.
    pub(crate) message: String,
}

/// The end of a commit, or the start of a log.
#[derive(Debug, Default)]
pub(crate) struct CommitBoundary {
    line: u64,
    offset: u64,
    seq: u64,
}

/// Why a log could not be read to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken {
    /// The log is damaged from here on.
    #[error("{}:{} (byte {}): {}", .0.display(), .1.line, .1.offset, .1.message)]
    Damaged(PathBuf, LogFault),
    /// The system refused.
    #[error("{}: {}", .0.display(), .1)]
    Unreadable(PathBuf, io::Error),
    /// The receiver of the commits could not go on.
    #[error("{0}")]
    Refused(io::Error),
}

/// Why a line does not begin a log.
#[derive(Debug, thiserror::Error)]
enum Foreign {
    #[error("a log starts with {0}")]
    Event(&'static str),
    #[error("of task {0}")]
    Task(TaskKey),
    #[error("of the log {0}")]
    Log(WalName),
}

/// How the reading of a log ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LogEnd {
    /// At the end of its last commit.
    Whole,
    /// Behind its last whole commit are `bytes` of a broken-off write, which was never
    /// acknowledged.
    Torn { at: LogFault, bytes: u64 },
    /// Earlier, because the receiver of the commits stopped.
    Left,
}

/// A whole commit, its place, and its lines as they are stored.
pub(crate) struct Placed<'a> {
    pub(crate) commit: Commit,
    line: u64,
    offset: u64,
    text: &'a [u8],
}

/// Why the receiver of a commit cannot go on.
pub(crate) enum ScanStop {
    /// The commit does not continue the history.
    Damaged(LogFault),
    /// Its own reason.
    Io(io::Error),
}

impl From<io::Error> for ScanStop {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Where the logs of a session are (STORE-04).
pub(crate) fn session_dir(data: &Path, session: &SessionId) -> PathBuf {
    data.join("tasks").join(session.as_str())
}

impl LogFile {
    /// The log of a Task of a data directory.
    pub(crate) fn of(data: &Path, entry: &Entry) -> Self {
        let (key, wal_name) = (entry.key.clone(), entry.wal_name.clone());
        Self {
            path: session_dir(data, &key.session_id).join(format!("{wal_name}{SUFFIX}")),
            key,
            wal_name,
        }
    }

    /// The failure for a log without a whole commit.
    pub(crate) fn empty(&self) -> Broken {
        let message = "the log has no whole commit: its creation broke off".into();
        Broken::Damaged(self.path.clone(), LogFault { line: 1, offset: 0, message })
    }

    /// Checks that the log begins with the creation of its Task, under its own name (STORE-11) or, as an
    /// exported log, under that of its Task (STORE-14).
    fn check_first(&self, line: &Line) -> Result<(), Foreign> {
        if line.wal_seq != 1 {
            return Ok(());
        }
        let Body::TaskCreated(created) = &line.event.body else {
            return Err(Foreign::Event(line.event.body.event_type()));
        };
        let task = &created.task;
        let (session_id, task_id) = (task.session_id.clone(), task.task_id.clone());
        let key = TaskKey { session_id, task_id };
        if key != self.key {
            return Err(Foreign::Task(key));
        }
        if !task.may_have_log(&self.wal_name) {
            return Err(Foreign::Log(task.wal_name.clone()));
        }
        Ok(())
    }
}

impl Placed<'_> {
    /// The stored lines of its events, in order, without their newlines.
    pub(crate) fn lines(&self) -> impl Iterator<Item = &[u8]> {
        self.text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty())
    }

    /// Applies the commit to the Task, or begins the Task with it.
    pub(crate) fn replay_onto(&self, task: &mut Option<Task>) -> Result<(), ScanStop> {
        let replayed = match task {
            Some(task) => task.replay(&self.commit),
            None => Task::restore(&self.commit).map(|made| *task = Some(made)),
        };
        replayed.map_err(|illegal| {
            let index = illegal.wal_seq.saturating_sub(self.commit.first_seq);
            let message = format!("does not go on with the history: {illegal}");
            ScanStop::Damaged(self.fault_at(index, message))
        })
    }

    /// A fault in the event at `index`.
    fn fault_at(&self, index: u64, message: String) -> LogFault {
        let before = self.lines().take(usize::try_from(index).unwrap_or(usize::MAX));
        let offset = self.offset + before.map(|line| line.len() as u64 + 1).sum::<u64>();
        LogFault { line: self.line + index, offset, message }
    }
}

/// The Task as of the commit that contains event `until`, or as of its last one.
pub(crate) fn replay(log: &LogFile, until: u64) -> Result<Task, Broken> {
    let mut task = None;
    walk(log, |commit| {
        if commit.commit.first_seq > until {
            return Ok(ControlFlow::Break(()));
        }
        commit.replay_onto(&mut task)?;
        Ok(ControlFlow::Continue(()))
    })?;
    task.ok_or_else(|| log.empty())
}

/// Gives every whole commit to `each`, oldest first, until `each` breaks off.
pub(crate) fn walk(
    log: &LogFile,
    each: impl FnMut(&Placed<'_>) -> Result<ControlFlow<()>, ScanStop>,
) -> Result<LogEnd, Broken> {
    walk_on(log, &mut CommitBoundary::default(), each)
}

/// The same from `spot` on, which is afterwards behind the last commit that `each` got.
pub(crate) fn walk_on(
    log: &LogFile,
    spot: &mut CommitBoundary,
    mut each: impl FnMut(&Placed<'_>) -> Result<ControlFlow<()>, ScanStop>,
) -> Result<LogEnd, Broken> {
    let unreadable = |error| Broken::Unreadable(log.path.clone(), error);
    let damaged = |fault| Broken::Damaged(log.path.clone(), fault);
    let mut lines = LineReader::open_at(&log.path, spot).map_err(unreadable)?;
    let (session, task) = (log.key.session_id.clone(), log.key.task_id.clone());
    let mut commits = Assembler::after(session, task, spot.seq);
    let mut open = OpenCommit::default();
    loop {
        let text = match lines.next().map_err(unreadable)? {
            NextLine::Line(text) => text,
            NextLine::TooLong => return Err(damaged(lines.fault("the line is too long".into()))),
            NextLine::Torn | NextLine::End => return Ok(open.end(&lines, &commits)),
        };
        let pushed = decode_line(text).map_err(|error| error.to_string()).and_then(|line| {
            log.check_first(&line).map_err(|foreign| foreign.to_string())?;
            commits.push(line).map_err(|error| error.to_string())
        });
        open.take(&lines);
        let commit = match pushed {
            Ok(None) => continue,
            Ok(Some(commit)) => commit,
            Err(message) => return Err(damaged(lines.fault(message))),
        };
        let flow = each(&Placed { commit, line: open.line, offset: open.offset, text: &open.text });
        open.text.clear();
        *spot = CommitBoundary { line: lines.number, offset: lines.next, seq: commits.last_seq() };
        match flow {
            Ok(ControlFlow::Continue(())) => {}
            Ok(ControlFlow::Break(())) => return Ok(LogEnd::Left),
            Err(ScanStop::Damaged(fault)) => return Err(damaged(fault)),
            Err(ScanStop::Io(error)) => return Err(Broken::Refused(error)),
        }
    }
}

/// The lines of the commit that is being read.
#[derive(Default)]
struct OpenCommit {
    line: u64,
    offset: u64,
    text: Vec<u8>,
}

impl OpenCommit {
    fn take(&mut self, lines: &LineReader) {
        if self.text.is_empty() {
            (self.line, self.offset) = (lines.number, lines.offset);
        }
        self.text.extend_from_slice(&lines.line);
        self.text.push(b'\n');
    }

    /// What follows the last whole commit.
    fn end(&self, lines: &LineReader, commits: &Assembler) -> LogEnd {
        let is_partial = !lines.line.is_empty();
        if !commits.is_mid_commit() && !is_partial {
            return LogEnd::Whole;
        }
        let mut at = lines.fault(what_is_torn(&lines.line).into());
        if commits.is_mid_commit() {
            let message = "a commit with too few lines".into();
            at = LogFault { line: self.line, offset: self.offset, message };
        }
        LogEnd::Torn { bytes: lines.offset + lines.line.len() as u64 - at.offset, at }
    }
}

fn what_is_torn(rest: &[u8]) -> &'static str {
    match rest.iter().all(|&byte| byte == 0) {
        true => "a run of NUL bytes",
        false => "a line without its newline",
    }
}

/// Lines of a file with their places.
pub(crate) struct LineReader {
    input: BufReader<File>,
    /// The line last read, without its newline.
    pub(crate) line: Vec<u8>,
    /// Its number, from 1.
    pub(crate) number: u64,
    /// Its offset.
    pub(crate) offset: u64,
    next: u64,
}

/// What comes next in a file.
pub(crate) enum NextLine<'a> {
    /// A line.
    Line(&'a [u8]),
    /// Bytes without a newline, up to the end.
    Torn,
    /// Nothing.
    End,
    /// A line that is too long.
    TooLong,
}

impl LineReader {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Self::open_at(path, &CommitBoundary::default())
    }

    fn open_at(
        path: &Path,
        &CommitBoundary { line, offset, .. }: &CommitBoundary,
    ) -> io::Result<Self> {
        let mut file = read_regular(path)?;
        file.seek(SeekFrom::Start(offset))?;
        let input = BufReader::with_capacity(64 << 10, file);
        Ok(Self { input, line: Vec::new(), number: line, offset, next: offset })
    }

    /// The next line; [`line`](Self::line) holds it too.
    pub(crate) fn next(&mut self) -> io::Result<NextLine<'_>> {
        self.line.clear();
        self.number += 1;
        self.offset = self.next;
        let mut bounded = self.input.by_ref().take(LINE_MAX as u64 + 1);
        self.next += bounded.read_until(b'\n', &mut self.line)? as u64;
        match self.line.pop() {
            None => Ok(NextLine::End),
            Some(b'\n') => Ok(NextLine::Line(&self.line)),
            Some(last) => {
                self.line.push(last);
                Ok(if self.line.len() > LINE_MAX { NextLine::TooLong } else { NextLine::Torn })
            }
        }
    }

    fn fault(&self, message: String) -> LogFault {
        LogFault { line: self.number, offset: self.offset, message }
    }
}

impl From<Broken> for Failure {
    fn from(broken: Broken) -> Self {
        let failure = Self::new(Exit::Unavailable, broken.to_string());
        match broken {
            Broken::Damaged(..) => failure.help(
                "only this task is affected; `tenure wal show --raw` prints what stands there",
            ),
            Broken::Unreadable(..) | Broken::Refused(_) => failure,
        }
    }
}
