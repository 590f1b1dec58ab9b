//! Waits for the end of a Task whose log is in a directory, while another process writes it.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use tenure_core::view::{Known, TaskSummary};
use tenure_local::JsonlReader;
use tenure_ports::journal::{ReadError, TaskKey};

use super::scan::{self, CommitBoundary, LogFile};
use crate::answer::{Failure, human};

/// The pause before reading on in a file that was read to its end.
pub(crate) const LOOK: Duration = Duration::from_millis(100);

/// Waits until the log has the end of its Task. It reads without a pause what is there: so for an ended Task it
/// returns without waiting, however long the log is.
pub(crate) async fn until_ended(log: &LogFile) -> Result<(), Failure> {
    let (mut spot, mut has_ended) = (CommitBoundary::default(), false);
    loop {
        scan::walk_on(log, &mut spot, |placed| {
            has_ended |= placed.commit.events.iter().any(|event| event.body.end().is_some());
            Ok(ControlFlow::Continue(()))
        })?;
        if has_ended {
            return Ok(());
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Waits for the end of a Task of a directory, and returns the Task in short.
pub(super) async fn ended_in(data: &Path, key: &TaskKey) -> Result<TaskSummary, Failure> {
    let entry = JsonlReader::open(data)?.entry(key).await?.ok_or(ReadError::NotFound)?;
    let log = LogFile::of(data, &entry);
    until_ended(&log).await?;
    let task = scan::replay(&log, u64::MAX)?;
    // No lease outlives its Task.
    Ok(TaskSummary::of(&task.durable(), &Known::new(human::now(), &|_| None)))
}
