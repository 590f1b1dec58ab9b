//! An entry of the index on its way over the bus.

use tenure_core::status::End;
use tenure_wire::bus::request::Entry as SentEntry;

use super::{Entry, TaskKey};

impl From<Entry> for SentEntry {
    fn from(entry: Entry) -> Self {
        let Entry {
            key,
            wal_name,
            title,
            labels,
            created_at,
            updated_at,
            ended,
            archived,
            damaged,
        } = entry;
        let TaskKey { session_id, task_id } = key;
        Self {
            session_id,
            task_id,
            wal_name,
            title,
            labels,
            created_at,
            updated_at,
            ended: ended.map(End::status),
            failed_as: ended.and_then(End::failed_as),
            archived,
            damaged,
        }
    }
}

impl From<SentEntry> for Entry {
    fn from(sent: SentEntry) -> Self {
        Self {
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
}
