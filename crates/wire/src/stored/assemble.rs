//! Joins the lines of a log into commits, and checks which line may follow which.

use tenure_core::event::Commit;
use tenure_core::id::{SessionId, TaskId};

use super::decode::{Line, LineError};

/// Turns the lines of one Task's log into its commits, in order (WAL-04, WAL-08).
#[derive(Debug)]
pub struct Assembler {
    session: SessionId,
    task: TaskId,
    next_seq: u64,
    open: Option<PartialCommit>,
}

/// A commit whose last line is still to come.
#[derive(Debug)]
struct PartialCommit {
    commit: Commit,
    count: u32,
}

impl Assembler {
    /// An assembler for the log of a Task from its beginning.
    pub fn new(session: SessionId, task: TaskId) -> Self {
        Self::after(session, task, 0)
    }

    /// An assembler for the lines after event `last`, which ended a commit.
    pub fn after(session: SessionId, task: TaskId, last: u64) -> Self {
        Self { session, task, next_seq: last.saturating_add(1), open: None }
    }

    /// Takes the next line. Returns the commit that it completes, if it completes one.
    ///
    /// After an error, the log is not a history from this line on.
    pub fn push(&mut self, line: Line) -> Result<Option<Commit>, LineError> {
        self.check_place(&line)?;
        let mut open = match self.open.take() {
            None => PartialCommit::begin(&line)?,
            Some(open) => open.check(&line)?,
        };
        self.next_seq += 1;
        open.commit.events.push(line.event);
        if open.commit.events.len() < open.count as usize {
            self.open = Some(open);
            return Ok(None);
        }
        Ok(Some(open.commit))
    }

    /// Whether a commit has begun and not ended.
    pub fn is_mid_commit(&self) -> bool {
        self.open.is_some()
    }

    /// The last event of the last whole commit, 0 if there is none.
    pub fn last_seq(&self) -> u64 {
        match &self.open {
            Some(open) => open.commit.first_seq - 1,
            None => self.next_seq - 1,
        }
    }

    fn check_place(&self, line: &Line) -> Result<(), LineError> {
        if line.session_id != self.session {
            return Err(LineError::ForeignSession(line.session_id.clone()));
        }
        if line.task_id != self.task {
            return Err(LineError::ForeignTask(line.task_id.clone()));
        }
        if line.wal_seq != self.next_seq {
            return Err(LineError::Sequence { expected: self.next_seq, found: line.wal_seq });
        }
        Ok(())
    }
}

/// Capacity reserved for a commit's events before they are read: the count in a line is not trusted.
const EVENTS_RESERVED_MAX: u32 = 1024;

impl PartialCommit {
    fn begin(line: &Line) -> Result<Self, LineError> {
        if line.commit_index != 0 {
            return Err(LineError::Commit("commit_index"));
        }
        if line.commit_count == 0 {
            return Err(LineError::Commit("commit_count"));
        }
        let commit = Commit {
            commit_id: line.commit_id,
            first_seq: line.wal_seq,
            created_at: line.created_at,
            command_id: line.command_id.clone(),
            command_digest: line.command_digest,
            epoch: line.epoch,
            trace: line.trace.clone(),
            events: Vec::with_capacity(line.commit_count.min(EVENTS_RESERVED_MAX) as usize),
        };
        Ok(Self { commit, count: line.commit_count })
    }

    /// Whether `line` continues the commit: all lines must agree in the fields that they share.
    fn check(self, line: &Line) -> Result<Self, LineError> {
        let commit = &self.commit;
        let same = [
            (line.commit_id == commit.commit_id, "commit_id"),
            (line.commit_index as usize == commit.events.len(), "commit_index"),
            (line.commit_count == self.count, "commit_count"),
            (line.created_at == commit.created_at, "created_at"),
            (line.command_id == commit.command_id, "command_id"),
            (line.command_digest.is_none(), "command_digest"),
            (line.epoch == commit.epoch, "epoch"),
            (line.trace == commit.trace, "trace"),
        ];
        match same.iter().find(|(is_same, _)| !is_same) {
            Some((_, what)) => Err(LineError::Commit(what)),
            None => Ok(self),
        }
    }
}
