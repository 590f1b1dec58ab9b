//! Reads pages of a log, and converts them from the wire into the type of the client port.

use std::future::Future;

use tenure_core::id::{SessionId, TaskId};
use tenure_core::{Code, Commit, Rejection};
use tenure_ports::client::LogPage;
use tenure_wire::bus::request::{LogPage as SentPage, RawBytes, ReadLog};
use tenure_wire::stored::{Assembler, LineError, decode_line};

/// Reads a page of the log of a Task.
///
/// # Errors
/// Those of `ask`, or the commits do not follow the event behind which they should begin.
pub(crate) async fn read<F: Future<Output = Result<SentPage, Rejection>>>(
    session: &SessionId,
    task: &TaskId,
    which: ReadLog,
    ask: impl Fn(ReadLog) -> F,
) -> Result<LogPage, Rejection> {
    let page = whole_page(which, ask).await?;
    log_page(session, task, which.after, page)
}

/// Reads a page. If a commit comes in parts, this puts them together.
async fn whole_page<F: Future<Output = Result<SentPage, Rejection>>>(
    mut which: ReadLog,
    ask: impl Fn(ReadLog) -> F,
) -> Result<SentPage, Rejection> {
    let mut parts = RawBytes(Vec::new());
    let mut from = 0;
    loop {
        let mut page = ask(which).await?;
        if let Some(first) = page.commits.first_mut().filter(|_| from > 0 || page.cut.is_some()) {
            parts.0.append(&mut first.0);
            std::mem::swap(&mut parts, first);
        }
        match (page.cut, page.commits.first_mut()) {
            (Some(next), Some(first)) if next > from => {
                (from, parts) = (next, RawBytes(std::mem::take(&mut first.0)));
                which = ReadLog { from, ..which.at_once() };
            }
            _ => return Ok(page),
        }
    }
}

/// Decodes the commits of a page, which must follow event `after` without a gap.
fn log_page(
    session: &SessionId,
    task: &TaskId,
    after: u64,
    page: SentPage,
) -> Result<LogPage, Rejection> {
    let SentPage { commits, cut: _, more, version, status, now, leases, wal_path, steps_max } =
        page;
    let commits = match commits.is_empty() {
        true => Vec::new(),
        false => decoded(Assembler::after(session.clone(), task.clone(), after), &commits)
            .map_err(|error| damaged(task, &error))?,
    };
    let leases = leases.into_iter().map(|lease| (lease.attempt_id, lease.left_ms)).collect();
    Ok(LogPage { commits, more, version, status, now, leases, wal_path, steps_max })
}

fn decoded(mut log: Assembler, commits: &[RawBytes]) -> Result<Vec<Commit>, LineError> {
    let mut found = Vec::with_capacity(commits.len());
    for RawBytes(lines) in commits {
        for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            found.extend(log.push(decode_line(line)?)?);
        }
    }
    Ok(found)
}

fn damaged(task: &TaskId, error: &LineError) -> Rejection {
    let message = format!("the log that was sent cannot be read: {error}");
    Rejection::new(Code::StorageError, message).with("task_id", task.as_str())
}
