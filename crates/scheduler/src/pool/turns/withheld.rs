//! Tasks with ready Steps that begin nothing for now, as the log or the store of leases does not answer.
//!
//! They want no credits, so they are in no line. Their Steps wait all the same, and are counted among what waits for a
//! pool, however long the log or the store is away.

use tenure_ports::journal::TaskKey;
use tenure_ports::map::IdMap;

use super::super::Left;

/// What such Tasks have.
#[derive(Debug, Default)]
pub(super) struct WithheldTasks {
    tasks: IdMap<TaskKey, Left>,
    ready: u64,
}

impl WithheldTasks {
    /// Notes what a Task has.
    pub(super) fn put(&mut self, key: TaskKey, has: Left) {
        self.ready += has.ready as u64;
        if let Some(before) = self.tasks.insert(key, has) {
            self.ready -= before.ready as u64;
        }
    }

    /// Notes that a Task takes credits again, or waits no longer.
    pub(super) fn remove(&mut self, key: &TaskKey) {
        if let Some(before) = self.tasks.remove(key) {
            self.ready -= before.ready as u64;
        }
    }

    /// How many Steps and Runs are ready in them.
    pub(super) fn ready(&self) -> u64 {
        self.ready
    }

    pub(super) fn has(&self, key: &TaskKey) -> bool {
        self.tasks.contains_key(key)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// What each has.
    pub(super) fn all(&self) -> impl Iterator<Item = &Left> {
        self.tasks.values()
    }

    /// What each has, by Task.
    pub(super) fn by_key(&self) -> impl Iterator<Item = (&TaskKey, &Left)> {
        self.tasks.iter()
    }
}
