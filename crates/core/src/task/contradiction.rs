//! What does not fit the state of a Task.

use alloc::string::String;
use core::fmt;

/// An event that contradicts the state: the log is not a history of this Task (RECOVER-05).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Illegal {
    /// `wal_seq` of the event.
    pub wal_seq: u64,
    /// What does not fit.
    pub why: Contradiction,
}

impl fmt::Display for Illegal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "event {} does not fit the state: {}", self.wal_seq, self.why)
    }
}

impl core::error::Error for Illegal {}

/// What contradicts the state of a Task, in words: an event, or another of its records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contradiction(String);

impl fmt::Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for Contradiction {}

impl<T: Into<String>> From<T> for Contradiction {
    fn from(words: T) -> Self {
        Self(words.into())
    }
}
