//! What clients were told: whatever was acknowledged has to be in the logs, and a log only grows.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Result, bail};

/// What is known of a Task from answers alone.
#[derive(Debug, Clone, Default)]
pub struct Record {
    /// Whether its creation was acknowledged.
    pub is_created: bool,
    /// Whether its cancel was acknowledged.
    pub is_cancelled: bool,
    /// How it may end, if not by having completed or by that cancel.
    pub ends: Vec<&'static str>,
    /// Events that answers named.
    pub events: Vec<String>,
    /// The longest copy of its log that was read.
    pub copy: Vec<u8>,
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
        self.all().entry(task.to_owned()).or_default().is_created = true;
        self.changed(task, events);
    }

    /// A cancel was acknowledged.
    pub fn cancelled(&self, task: &str, events: &[String]) {
        self.all().entry(task.to_owned()).or_default().is_cancelled = true;
        self.changed(task, events);
    }

    /// Its Steps are made so that it may end like this.
    pub fn may_end(&self, task: &str, ends: &[&'static str]) {
        self.all().entry(task.to_owned()).or_default().ends = ends.to_vec();
    }

    /// Something else was acknowledged.
    pub fn changed(&self, task: &str, events: &[String]) {
        self.all().entry(task.to_owned()).or_default().events.extend_from_slice(events);
    }

    /// A log was read. It and every copy that was read before are the beginning of one history, byte
    /// for byte. It may be the shorter one: those who read at a time may overtake each other.
    ///
    /// # Errors
    /// It is another history.
    pub fn read(&self, task: &str, lines: &[u8]) -> Result<()> {
        let mut all = self.all();
        let known = &mut all.entry(task.to_owned()).or_default().copy;
        let shared = known.len().min(lines.len());
        if known[..shared] != lines[..shared] {
            let (was, is) = (String::from_utf8_lossy(known), String::from_utf8_lossy(lines));
            bail!("the log of {task} was another before:\n{was}\nand now:\n{is}");
        }
        known.extend_from_slice(&lines[shared..]);
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::Records;

    #[test]
    fn a_log_that_was_another_before_shows() {
        let records = Records::default();
        for lines in ["one\n", "one\ntwo\n", "one\n", "one\ntwo\nthree\n"] {
            assert!(records.read("t", lines.as_bytes()).is_ok(), "{lines:?}");
        }
        assert_eq!(records.by_task()["t"].copy, b"one\ntwo\nthree\n");
        for lines in ["one\ntwo!\nthree\n", "One\n", "one\ntwo\nthreE\nfour\n"] {
            assert!(records.read("t", lines.as_bytes()).is_err(), "{lines:?}");
        }
        assert!(records.read("u", b"other\n").is_ok());
    }
}
