//! Reads the log that is imported, and checks it as a history.

use std::sync::Arc;

use tenure_core::event::Body;
use tenure_core::id::{AgentId, WalName};
use tenure_core::task::apply::Illegal;
use tenure_core::task::history::fold_history;
use tenure_core::{Commit, Rejection};
use tenure_ports::journal::TaskKey;
use tenure_wire::stored::{Assembler, decode_line};

/// A log that has been checked.
pub(super) struct ImportedLog {
    pub(super) wal_name: WalName,
    /// It is that of a Task that has ended.
    pub(super) has_ended: bool,
    /// Who made the Task.
    pub(super) maker: AgentId,
    pub(super) commits: Vec<Arc<Commit>>,
}

/// Reads a log by the reducer that opens Tasks, and checks that it breaks no invariant. Its commits get the epoch of
/// this owner, which writes them: an earlier owner can append nothing to it.
pub(super) fn judge(key: &TaskKey, lines: &[u8], epoch: u64) -> Result<ImportedLog, Rejection> {
    let bad = |at: usize, why: &dyn std::fmt::Display| {
        Rejection::invalid("lines", format!("line {} of the log: {why}", at + 1))
    };
    let mut log = Assembler::new(key.session_id.clone(), key.task_id.clone());
    let mut commits: Vec<Arc<Commit>> = Vec::new();
    let Some(whole) = lines.strip_suffix(b"\n") else {
        return Err(Rejection::invalid("lines", "the log does not end with a whole line"));
    };
    for (at, line) in whole.split(|byte| *byte == b'\n').enumerate() {
        let line = decode_line(line).map_err(|error| bad(at, &error))?;
        let Some(mut commit) = log.push(line).map_err(|error| bad(at, &error))? else { continue };
        commit.epoch = epoch;
        commits.push(Arc::new(commit));
    }
    if log.is_mid_commit() {
        return Err(Rejection::invalid("lines", "the log does not end with a whole commit"));
    }
    // The number of an event is that of its line.
    let line_of =
        |illegal: &Illegal| usize::try_from(illegal.wal_seq).map_or(0, |seq| seq.saturating_sub(1));
    let task = fold_history(&commits).map_err(|illegal| bad(line_of(&illegal), &illegal.why))?;
    let has_ended = task.durable().status().is_terminal();
    let maker = task.head().created_by_agent_id.clone();
    let first = commits.first().and_then(|commit| commit.events.first());
    match first.map(|event| &event.body) {
        Some(Body::TaskCreated(made))
            if made.task.task_id == key.task_id && made.task.session_id == key.session_id =>
        {
            Ok(ImportedLog { wal_name: made.task.wal_name.clone(), has_ended, maker, commits })
        }
        _ => {
            Err(Rejection::invalid("lines", "the log does not begin with the creation of its task"))
        }
    }
}
