//! The start of a log, which says to which Task it belongs.

use std::fs::File;
use std::io;

use tenure_core::event::Body;
use tenure_core::id::{Millis, TaskId};
use tenure_core::record::Labels;
use tenure_ports::journal::TaskKey;
use tenure_wire::stored::{Line, decode_line};

use super::index::LogPlace;
use super::lines::{Forward, LineFault};
use super::seek::START;
use super::tail::{Tail, TailError, read_tail};

/// What [`identify`] finds in a log that is not in the index.
#[derive(Debug)]
pub(crate) enum FoundLog {
    /// The log of a Task.
    Task(LogHead),
    /// A creation that was never finished: the log has no whole commit.
    Unborn,
    /// A damaged log, with the Task that it seems to belong to.
    Damaged(TaskKey),
}

/// What the first line says of a Task.
#[derive(Debug)]
pub(crate) struct LogHead {
    pub(crate) key: TaskKey,
    pub(crate) title: String,
    pub(crate) labels: Labels,
    pub(crate) created_at: Millis,
    pub(crate) tail: Tail,
}

/// Reads the first and the last lines of a log.
pub(crate) fn identify(file: &File, place: &LogPlace) -> io::Result<FoundLog> {
    let size = file.metadata()?.len();
    let first = first_line(file)?;
    let tail = match read_tail(file, size) {
        Ok(None) if !matches!(first, First::Damaged) => return Ok(FoundLog::Unborn),
        Ok(tail) => tail,
        Err(TailError::Damaged) => None,
        Err(TailError::Io(error)) => return Err(error),
    };
    let named = match (&first, &tail) {
        (First::Line(line), _) => Some(line.task_id.clone()),
        (_, Some(tail)) => Some(tail.last.task_id.clone()),
        _ => None,
    };
    let key = match named {
        Some(task_id) => TaskKey { session_id: place.0.clone(), task_id },
        None => key_by_name(place)?,
    };
    match (first, tail) {
        (First::Line(line), Some(tail)) => Ok(head(key, &line, tail, place)),
        _ => Ok(FoundLog::Damaged(key)),
    }
}

/// The Task of a log that does not say it: the one with the log's name, the default for a log's name.
///
/// Names and Task ids have the same form, so there always is such a Task.
pub(crate) fn key_by_name((session, name): &LogPlace) -> io::Result<TaskKey> {
    let task_id = TaskId::new(name.as_str()).map_err(|bad| io::Error::other(bad.to_string()))?;
    Ok(TaskKey { session_id: session.clone(), task_id })
}

fn head(key: TaskKey, line: &Line, tail: Tail, (session, name): &LogPlace) -> FoundLog {
    let Body::TaskCreated(created) = &line.event.body else { return FoundLog::Damaged(key) };
    let is_own = line.session_id == *session
        && created.task.may_have_log(name)
        && tail.last.session_id == *session
        && tail.last.task_id == key.task_id;
    if !is_own {
        return FoundLog::Damaged(key);
    }
    let (title, labels) = (created.task.title.to_string(), created.task.labels.clone());
    FoundLog::Task(LogHead { key, title, labels, created_at: line.created_at, tail })
}

enum First {
    Line(Box<Line>),
    /// There is no complete line.
    Missing,
    Damaged,
}

fn first_line(file: &File) -> io::Result<First> {
    match Forward::new(file, START, u64::MAX).next() {
        Ok(Some(text)) => {
            Ok(decode_line(text).map_or(First::Damaged, |l| First::Line(Box::new(l))))
        }
        Ok(None) => Ok(First::Missing),
        Err(LineFault::TooLong) => Ok(First::Damaged),
        Err(LineFault::Io(error)) => Err(error),
    }
}
