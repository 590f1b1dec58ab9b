//! The end of a log: where it is whole, and whether its Task has ended (RECOVER-02, RECOVER-06).
//!
//! It reads only the last lines. It tells apart what a crash may leave after the last whole commit
//! from damage: a line without a newline, a run of NULs and a commit with too few lines are torn; a
//! complete line that is not an event is damage.

use std::fs::File;
use std::io;

use tenure_core::event::Body;
use tenure_core::status::End;
use tenure_wire::stored::{Line, LineError, decode_line};

use super::lines::{Backward, LineFault};

/// Why the end of a log could not be read.
#[derive(Debug)]
pub(crate) enum TailError {
    /// The log is damaged; a read from its start finds the first damage.
    Damaged,
    Io(io::Error),
}

impl From<LineFault> for TailError {
    fn from(fault: LineFault) -> Self {
        match fault {
            LineFault::TooLong => Self::Damaged,
            LineFault::Io(error) => Self::Io(error),
        }
    }
}

impl From<LineError> for TailError {
    fn from(_: LineError) -> Self {
        Self::Damaged
    }
}

/// The end of a log with at least one whole commit.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tail {
    /// Bytes of whole commits; what follows them is torn.
    pub(crate) len: u64,
    /// The last whole line.
    pub(crate) last: Line,
    /// How the Task ended, if it has.
    pub(crate) ended: Option<End>,
    /// Whether the Task was archived after that.
    pub(crate) archived: bool,
}

/// Reads the end of a log of `size` bytes; `None` if it has no whole commit.
pub(crate) fn read_tail(file: &File, size: u64) -> Result<Option<Tail>, TailError> {
    let mut lines = Backward::new(file, size).map_err(TailError::Io)?;
    let mut len = lines.end();
    let Some(mut last) = previous(&mut lines)? else { return Ok(None) };
    if !ends_commit(&last) {
        skip_commit(&mut lines, last)?;
        len = lines.end();
        match previous(&mut lines)? {
            None => return Ok(None),
            Some(line) if ends_commit(&line) => last = line,
            Some(_) => return Err(TailError::Damaged),
        }
    }
    let (ended, archived) = ending(&mut lines, &last)?;
    Ok(Some(Tail { len, last, ended, archived: archived && ended.is_some() }))
}

fn previous(lines: &mut Backward<'_>) -> Result<Option<Line>, TailError> {
    match lines.next()? {
        Some((_, text)) => Ok(Some(decode_line(text)?)),
        None => Ok(None),
    }
}

fn ends_commit(line: &Line) -> bool {
    line.commit_index.checked_add(1) == Some(line.commit_count)
}

/// Goes back past the lines of an unfinished commit.
fn skip_commit(lines: &mut Backward<'_>, mut line: Line) -> Result<(), TailError> {
    if line.commit_index >= line.commit_count {
        return Err(TailError::Damaged);
    }
    while line.commit_index > 0 {
        let before = previous(lines)?.ok_or(TailError::Damaged)?;
        let follows = before.commit_id == line.commit_id
            && before.commit_index + 1 == line.commit_index
            && before.wal_seq + 1 == line.wal_seq;
        if !follows {
            return Err(TailError::Damaged);
        }
        line = before;
    }
    Ok(())
}

/// How the Task ended, and whether it was archived. After its end a Task may only be archived, have its
/// delivery noted or get facts, so the last event of another kind decides.
fn ending(lines: &mut Backward<'_>, last: &Line) -> Result<(Option<End>, bool), TailError> {
    let mut archived = false;
    let mut line = Some(last.clone());
    while let Some(at) = line {
        match &at.event.body {
            Body::TaskArchived(_) => archived = true,
            Body::TaskDeliveryUpdated(_) | Body::TaskFact(_) => {}
            other => return Ok((other.end(), archived)),
        }
        line = previous(lines)?;
    }
    Err(TailError::Damaged)
}
