//! All Tasks of a data directory, in memory: `entry`, `entries` and `create` read them here, not in files.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use tenure_core::event::{Body, Commit};
use tenure_core::id::{Millis, SessionId, TaskId, WalName};
use tenure_core::record::Labels;
use tenure_core::status::End;
use tenure_ports::journal::{Entry, TaskKey, title_in_index};

use super::index::IndexRow;
use super::tail::Tail;

/// A Task and its log.
#[derive(Debug)]
pub(crate) struct CatalogEntry {
    /// Identifies the entry among open files.
    pub(crate) id: u64,
    pub(crate) key: TaskKey,
    pub(crate) wal_name: WalName,
    /// Locked while a thread writes or verifies the log, so that only one does so per Task.
    pub(crate) log: Mutex<Log>,
    /// Locked for moments only, so that no reader of facts waits for a disk.
    pub(crate) facts: Mutex<TaskFacts>,
}

/// What this process knows of a log.
#[derive(Debug)]
pub(crate) enum Log {
    /// Its creation is in flight.
    Creating,
    /// Nothing: the log must be verified before it is used.
    Unverified {
        /// Whether its content may not be on disk yet.
        sync: bool,
    },
    /// Whole and on disk.
    Good(Whole),
    /// The log could not be brought back into a known state; only a restart can help.
    Closed(Box<str>),
}

/// How much of a log is whole commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Whole {
    pub(crate) len: u64,
    pub(crate) last_seq: u64,
}

/// What the index knows of a Task.
#[derive(Debug, Clone)]
pub(crate) struct TaskFacts {
    pub(crate) title: Box<str>,
    pub(crate) labels: Labels,
    pub(crate) created_at: Millis,
    pub(crate) updated_at: Millis,
    pub(crate) ended: Option<End>,
    pub(crate) archived: bool,
    pub(crate) damaged: bool,
    /// Bytes of the log.
    pub(crate) len: u64,
    /// Whether the Task exists: false while its creation is in flight.
    pub(crate) exists: bool,
}

impl TaskFacts {
    /// The facts of a Task whose creation begins.
    pub(crate) fn creating(title: &str, labels: Labels, created_at: Millis) -> Self {
        Self {
            title: title_in_index(title).into(),
            labels,
            created_at,
            updated_at: created_at,
            ended: None,
            archived: false,
            damaged: false,
            len: 0,
            exists: false,
        }
    }

    pub(crate) fn of_row(row: &IndexRow) -> Self {
        Self {
            title: title_in_index(&row.title).into(),
            labels: row.labels.clone(),
            created_at: row.created_at,
            updated_at: row.updated_at,
            ended: row.ended,
            archived: row.archived,
            damaged: false,
            len: row.len,
            exists: true,
        }
    }

    /// Updates the facts from the end of the log.
    pub(crate) fn take_tail(&mut self, tail: &Tail) {
        self.updated_at = tail.last.created_at;
        self.ended = tail.ended;
        self.archived = tail.archived;
        self.len = tail.len;
        self.damaged = false;
    }

    /// Updates the facts from commits that were appended. Returns whether the index needs a row of
    /// them: it gets one for every append from the Task's end on.
    pub(crate) fn take_commits(&mut self, commits: &[Arc<Commit>]) -> bool {
        for commit in commits {
            self.updated_at = commit.created_at;
            for event in &commit.events {
                self.ended = self.ended.or_else(|| event.body.end());
                self.archived |= matches!(event.body, Body::TaskArchived(_));
            }
        }
        self.ended.is_some()
    }
}

impl CatalogEntry {
    /// Whether the log may hold something that is not on disk, or may differ from its facts. A
    /// damaged log does not count, since every start reads it again.
    pub(crate) fn is_in_doubt(&self) -> bool {
        let is_settled = matches!(*self.log.lock(), Log::Good(_) | Log::Unverified { sync: false });
        !is_settled && !self.facts.lock().damaged
    }

    pub(crate) fn entry(&self) -> Option<Entry> {
        let facts = self.facts.lock();
        facts.exists.then(|| Entry {
            key: self.key.clone(),
            wal_name: self.wal_name.clone(),
            title: facts.title.to_string(),
            labels: facts.labels.clone(),
            created_at: facts.created_at,
            updated_at: facts.updated_at,
            ended: facts.ended,
            archived: facts.archived,
            damaged: facts.damaged,
        })
    }

    pub(crate) fn row(&self) -> IndexRow {
        let facts = self.facts.lock();
        IndexRow {
            session_id: self.key.session_id.clone(),
            task_id: self.key.task_id.clone(),
            wal_name: self.wal_name.clone(),
            title: facts.title.to_string(),
            labels: facts.labels.clone(),
            created_at: facts.created_at,
            updated_at: facts.updated_at,
            ended: facts.ended,
            archived: facts.archived,
            len: facts.len,
        }
    }
}

/// The entries by session and Task.
#[derive(Debug, Default)]
pub(crate) struct LogCatalog {
    sessions: RwLock<HashMap<SessionId, HashMap<TaskId, Arc<CatalogEntry>>>>,
    next_id: AtomicU64,
}

impl LogCatalog {
    pub(crate) fn get(&self, key: &TaskKey) -> Option<Arc<CatalogEntry>> {
        self.sessions.read().get(&key.session_id)?.get(&key.task_id).cloned()
    }

    /// Adds a Task; `None` if there is one with this key (ID-03).
    pub(crate) fn add(
        &self,
        key: &TaskKey,
        wal_name: WalName,
        log: Log,
        facts: TaskFacts,
    ) -> Option<Arc<CatalogEntry>> {
        use std::collections::hash_map::Entry::{Occupied, Vacant};
        let mut sessions = self.sessions.write();
        if !sessions.contains_key(&key.session_id) {
            sessions.insert(key.session_id.clone(), HashMap::new());
        }
        let tasks = sessions.get_mut(&key.session_id)?;
        match tasks.entry(key.task_id.clone()) {
            Occupied(_) => None,
            Vacant(place) => {
                let id = self.next_id.fetch_add(1, Ordering::Relaxed);
                let (log, facts) = (Mutex::new(log), Mutex::new(facts));
                let slot = CatalogEntry { id, key: key.clone(), wal_name, log, facts };
                Some(place.insert(Arc::new(slot)).clone())
            }
        }
    }

    /// Removes a Task whose creation failed.
    pub(crate) fn remove(&self, key: &TaskKey) {
        if let Some(tasks) = self.sessions.write().get_mut(&key.session_id) {
            tasks.remove(&key.task_id);
        }
    }

    /// The entries of a session, or of all sessions.
    pub(crate) fn slots(&self, session: Option<&SessionId>) -> Vec<Arc<CatalogEntry>> {
        let sessions = self.sessions.read();
        match session {
            Some(id) => sessions.get(id).into_iter().flat_map(HashMap::values).cloned().collect(),
            None => sessions.values().flat_map(HashMap::values).cloned().collect(),
        }
    }
}
