//! Collects the failures of a command on several Tasks, which goes on with the others.

use serde::Serialize;
use tenure_core::id::SessionId;
use tenure_ports::journal::TaskKey;

use crate::answer::{Exit, Failure};

/// A Task that failed; the command goes on with the others.
#[derive(Debug, Serialize)]
pub(super) struct FailedTask {
    session_id: SessionId,
    task_id: String,
    /// The exit code if this were the only failure.
    exit_code: u8,
    message: String,
}

/// The failures.
#[derive(Debug, Default, Serialize)]
#[serde(transparent)]
pub(super) struct Failures {
    pub(super) all: Vec<FailedTask>,
    #[serde(skip)]
    worst: Option<Exit>,
}

impl Failures {
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Prints a failure at once, and stores it.
    pub(super) fn add(&mut self, key: &TaskKey, failure: Failure) {
        let mut told = failure.clone();
        told.message = format!("{key}: {}", failure.message);
        told.tell(false);
        let (session_id, task_id) = (key.session_id.clone(), key.task_id.to_string());
        let (exit_code, message) = (failure.exit as u8, failure.message);
        self.all.push(FailedTask { session_id, task_id, exit_code, message });
        self.worst = self.worst.max(Some(failure.exit));
    }

    /// The exit code of the command: the highest of all.
    pub(super) fn exit(&self) -> Exit {
        self.worst.unwrap_or(Exit::Ok)
    }
}
