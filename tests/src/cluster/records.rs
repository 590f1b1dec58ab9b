//! What clients were told: whatever was acknowledged has to be in the logs.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What is known of a Task from answers alone.
#[derive(Debug, Clone, Default)]
pub struct Record {
    /// Whether its creation was acknowledged.
    pub is_created: bool,
    /// Whether its cancel was acknowledged.
    pub is_cancelled: bool,
    /// Events that answers named.
    pub events: Vec<String>,
}

/// The records of all clients of a cluster.
#[derive(Debug, Default)]
pub struct Records {
    tasks: Mutex<BTreeMap<String, Record>>,
    silences: AtomicU64,
}

impl Records {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Record>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A create was sent: nobody knows yet whether the Task exists.
    pub fn attempted(&self, task: &str) {
        self.all().entry(task.to_owned()).or_default();
    }

    /// A create was acknowledged.
    pub fn created(&self, task: &str, events: &[String]) {
        let mut all = self.all();
        let record = all.entry(task.to_owned()).or_default();
        record.is_created = true;
        record.events.extend_from_slice(events);
    }

    /// A cancel was acknowledged.
    pub fn cancelled(&self, task: &str, events: &[String]) {
        let mut all = self.all();
        let record = all.entry(task.to_owned()).or_default();
        record.is_cancelled = true;
        record.events.extend_from_slice(events);
    }

    /// A request was not answered at all, though somebody listened.
    pub fn silence(&self) {
        self.silences.fetch_add(1, Ordering::Relaxed);
    }

    /// Requests that were not answered at all.
    pub fn silences(&self) -> u64 {
        self.silences.load(Ordering::Relaxed)
    }

    /// The records by Task.
    pub fn by_task(&self) -> BTreeMap<String, Record> {
        self.all().clone()
    }

    /// Tasks whose creation was acknowledged.
    pub fn acknowledged(&self) -> usize {
        self.all().values().filter(|record| record.is_created).count()
    }
}
