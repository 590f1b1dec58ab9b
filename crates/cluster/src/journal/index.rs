//! What a node knows of the Tasks of a partition without reading their logs: derived from the heads
//! of frames, as fresh as the last append.

use std::collections::HashMap;

use tenure_core::id::{Millis, SessionId, WalName};
use tenure_core::status::TaskStatus;
use tenure_ports::journal::{Entry, TaskKey};
use tenure_wire::stored::frame::CommitHead;

/// The newest commit of a Task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Newest {
    /// Its last event.
    pub(super) wal_seq: u64,
    /// The last message of the frame it is in.
    pub(super) stream_seq: u64,
}

#[derive(Debug)]
struct Row {
    newest: Newest,
    title: String,
    wal_name: WalName,
    created_at: Millis,
    updated_at: Millis,
    ended: Option<TaskStatus>,
    archived: bool,
    damaged: bool,
}

/// The Tasks of a partition.
#[derive(Debug, Default)]
pub(super) struct Index {
    rows: HashMap<TaskKey, Row>,
}

impl Index {
    pub(super) fn newest(&self, key: &TaskKey) -> Option<Newest> {
        self.rows.get(key).map(|row| row.newest)
    }

    /// Takes in a commit that is stored in the frame that ends at `stream_seq`. One that does not
    /// follow what is known marks its Task as damaged: part of its history is missing.
    pub(super) fn take(&mut self, key: &TaskKey, head: &CommitHead, stream_seq: u64) {
        let newest = Newest { wal_seq: head.last_seq, stream_seq };
        match (self.rows.get_mut(key), &head.named) {
            (Some(row), _) => {
                row.damaged |= row.newest.wal_seq + 1 != head.first_seq;
                row.newest = newest;
                row.updated_at = head.created_at;
                row.ended = head.ended.or(row.ended);
                row.archived |= head.archived;
            }
            (None, named) => {
                let title = named.as_ref().map_or_else(String::new, |named| named.title.clone());
                let wal_name = named.as_ref().map(|named| named.wal_name.clone());
                let row = Row {
                    newest,
                    title,
                    wal_name: wal_name.unwrap_or_else(|| fallback(key)),
                    created_at: head.created_at,
                    updated_at: head.created_at,
                    ended: head.ended,
                    archived: head.archived,
                    damaged: head.first_seq != 1,
                };
                self.rows.insert(key.clone(), row);
            }
        }
    }

    pub(super) fn note_damage(&mut self, key: &TaskKey) {
        if let Some(row) = self.rows.get_mut(key) {
            row.damaged = true;
        }
    }

    pub(super) fn entry(&self, key: &TaskKey) -> Option<Entry> {
        self.rows.get(key).map(|row| row.entry(key))
    }

    pub(super) fn entries(&self, session: Option<&SessionId>) -> Vec<Entry> {
        let of_session =
            self.rows.iter().filter(|(key, _)| session.is_none_or(|id| key.session_id == *id));
        of_session.map(|(key, row)| row.entry(key)).collect()
    }
}

/// The name of a log whose first commit cannot be found: that of its Task, as far as it is one.
fn fallback(key: &TaskKey) -> WalName {
    let named = WalName::new(key.task_id.as_str());
    named.or_else(|_| WalName::new("unknown")).unwrap_or_else(|_| unreachable!("it is a name"))
}

impl Row {
    fn entry(&self, key: &TaskKey) -> Entry {
        Entry {
            key: key.clone(),
            wal_name: self.wal_name.clone(),
            title: self.title.clone(),
            created_at: self.created_at,
            updated_at: self.updated_at,
            ended: self.ended,
            archived: self.archived,
            damaged: self.damaged,
        }
    }
}
