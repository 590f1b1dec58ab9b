//! Converts answers from the wire into the types of the client port: commits from lines, entries,
//! hints.

use std::pin::Pin;
use std::task::{Context, Poll};

use async_nats::{Message, Subscriber};
use futures::{Stream, StreamExt as _};
use tenure_core::id::{SessionId, TaskId};
use tenure_core::status::End;
use tenure_core::{Code, Commit, Rejection};
use tenure_ports::client::{Changed, LogPage};
use tenure_ports::journal::{Entry, TaskKey};
use tenure_wire::bus::decode;
use tenure_wire::bus::event::Published;
use tenure_wire::bus::request::{Committed, Entry as SentEntry, LogPage as SentPage, RawBytes};
use tenure_wire::stored::{Assembler, LineError, decode_line};

/// Hints of changes, as they come.
#[derive(Debug)]
pub struct NatsChanges(Subscriber);

impl NatsChanges {
    pub(super) fn new(events: Subscriber) -> Self {
        Self(events)
    }
}

impl Stream for NatsChanges {
    type Item = Changed;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Changed>> {
        loop {
            match self.0.poll_next_unpin(cx) {
                Poll::Ready(Some(message)) => {
                    // A hint that cannot be decoded counts as lost.
                    if let Some(changed) = changed(&message) {
                        return Poll::Ready(Some(changed));
                    }
                }
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

fn changed(message: &Message) -> Option<Changed> {
    let task_id = TaskId::new(message.subject.rsplit('.').next()?).ok()?;
    let Committed { version, ended, .. } = decode(&message.payload).ok()?;
    Some(Changed { task_id, version, ended })
}

/// Public events of a Task, as they come.
#[derive(Debug)]
pub struct NatsEvents(Subscriber);

impl NatsEvents {
    pub(super) fn new(events: Subscriber) -> Self {
        Self(events)
    }
}

impl Stream for NatsEvents {
    type Item = Published;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Published>> {
        loop {
            match self.0.poll_next_unpin(cx) {
                Poll::Ready(Some(message)) => {
                    // The reader notices a message that cannot be decoded as a gap, and reads the
                    // log.
                    if let Ok(published) = decode(&message.payload) {
                        return Poll::Ready(Some(published));
                    }
                }
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

/// Decodes the commits of a page, which must follow event `after` without a gap.
pub(super) fn log_page(
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

/// Converts an entry to the port's type.
pub(super) fn entry(sent: SentEntry) -> Entry {
    Entry {
        key: TaskKey { session_id: sent.session_id, task_id: sent.task_id },
        wal_name: sent.wal_name,
        title: sent.title,
        labels: sent.labels,
        created_at: sent.created_at,
        updated_at: sent.updated_at,
        ended: sent.ended.and_then(|status| End::of_status(status, sent.failed_as)),
        archived: sent.archived,
        damaged: sent.damaged,
    }
}
