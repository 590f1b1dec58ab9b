//! Reads a log from its start or from an event on: it checks line by line, and passes on commit by commit.

use std::fs::File;
use std::io::{self, Seek as _, SeekFrom};
use std::ops::ControlFlow;
use std::path::Path;

use tenure_core::event::{Body, Commit};
use tenure_core::id::WalName;
use tenure_ports::journal::{ReadError, TaskKey};
use tenure_wire::stored::{Assembler, Line, LineError, decode_line};

use super::lines::{Forward, LineFault};
use super::seek::{START, near};
use crate::regular::read_regular;

/// Why a line is not the next one of a log.
#[derive(Debug, thiserror::Error)]
enum BadLine {
    #[error("the line is too long")]
    TooLong,
    #[error(transparent)]
    Line(#[from] LineError),
    #[error("a log starts with {0}")]
    Start(&'static str),
    #[error("of task {0}")]
    OtherTask(TaskKey),
    #[error("of the log {0}")]
    OtherLog(WalName),
}

/// A log to read.
pub(crate) struct LogSource<'a> {
    pub(crate) path: &'a Path,
    pub(crate) key: &'a TaskKey,
    pub(crate) wal_name: &'a WalName,
    /// How much of it is known to be whole commits; `None`: the whole file, which may be torn.
    pub(crate) whole: Option<u64>,
}

impl LogSource<'_> {
    /// Passes every whole commit with an event after event `after` to `each`, oldest first, until
    /// `each` breaks off.
    pub(crate) fn read(
        &self,
        after: u64,
        mut each: impl FnMut(Commit) -> ControlFlow<()>,
    ) -> Result<(), ReadError> {
        let begun = self.begun_before(after).map_err(|error| self.unreadable(&error))?;
        let after = after - begun;
        let mut lines = self.open(after).map_err(|error| self.unreadable(&error))?;
        let (session, task) = (self.key.session_id.clone(), self.key.task_id.clone());
        let mut commits = Assembler::after(session, task, after);
        loop {
            let is_behind = lines.number >= after;
            let line = match lines.next() {
                Ok(Some(_)) if !is_behind => continue,
                Ok(Some(text)) => decode_line(text).map_err(BadLine::from),
                Ok(None) => return self.end(&lines, &commits),
                Err(LineFault::TooLong) => Err(BadLine::TooLong),
                Err(LineFault::Io(error)) => return Err(self.unreadable(&error)),
            };
            let commit = line.and_then(|line| {
                self.check_first(&line)?;
                Ok(commits.push(line)?)
            });
            match commit {
                Ok(Some(commit)) => {
                    if each(commit).is_break() {
                        return Ok(());
                    }
                }
                Ok(None) => {}
                Err(bad) => return Err(self.damaged(&lines, bad.to_string())),
            }
        }
    }

    /// How many events up to `after` belong to the same commit as the event after it. If that line
    /// cannot be read, the answer is 0, and the read that follows reports the damage.
    fn begun_before(&self, after: u64) -> io::Result<u64> {
        if after == 0 {
            return Ok(0);
        }
        let mut lines = self.open(after)?;
        loop {
            let is_behind = lines.number >= after;
            match lines.next() {
                Ok(Some(_)) if !is_behind => {}
                Ok(Some(text)) => {
                    let index = decode_line(text).map_or(0, |line| u64::from(line.commit_index));
                    return Ok(index.min(after));
                }
                Ok(None) | Err(_) => return Ok(0),
            }
        }
    }

    /// The lines from that of event `after`, or of an earlier one, on.
    fn open(&self, after: u64) -> io::Result<Forward<File>> {
        let mut file = read_regular(self.path)?;
        let start = match after {
            0 => START,
            seq => {
                near(&file, self.whole.map_or_else(|| file.metadata().map(|m| m.len()), Ok)?, seq)?
            }
        };
        file.seek(SeekFrom::Start(start.offset))?;
        Ok(Forward::new(file, start, self.whole.unwrap_or(u64::MAX)))
    }

    /// Checks that the log begins with the creation of its Task, under its own name (STORE-11).
    fn check_first(&self, line: &Line) -> Result<(), BadLine> {
        if line.wal_seq != 1 {
            return Ok(());
        }
        let Body::TaskCreated(created) = &line.event.body else {
            return Err(BadLine::Start(line.event.body.event_type()));
        };
        let task = &created.task;
        if task.task_id != self.key.task_id || task.session_id != self.key.session_id {
            let (session_id, task_id) = (task.session_id.clone(), task.task_id.clone());
            return Err(BadLine::OtherTask(TaskKey { session_id, task_id }));
        }
        if !task.may_have_log(self.wal_name) {
            return Err(BadLine::OtherLog(task.wal_name.clone()));
        }
        Ok(())
    }

    fn end(&self, lines: &Forward<File>, commits: &Assembler) -> Result<(), ReadError> {
        let torn = lines.is_torn() || commits.is_mid_commit() || commits.last_seq() == 0;
        if torn && self.whole.is_some() {
            return Err(self.damaged(lines, "the log ends before it should".into()));
        }
        if commits.last_seq() == 0 {
            return Err(ReadError::NotFound);
        }
        Ok(())
    }

    fn damaged(&self, lines: &Forward<File>, message: String) -> ReadError {
        ReadError::Damaged {
            file: self.path.display().to_string(),
            line: lines.number,
            offset: lines.offset,
            message,
        }
    }

    fn unreadable(&self, error: &io::Error) -> ReadError {
        ReadError::Failed(format!("{}: {error}", self.path.display()))
    }
}
