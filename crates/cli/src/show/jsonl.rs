//! Prints one JSON line on stdout for each public event (EVENT). A file beside the log marks the
//! printed events, so that a run that resumes after a crash begins with those that were not printed
//! (RECOVER-08).

use std::io;

use tenure_core::view::public_events;
use tenure_local::PublishedMark;

use super::seen::{SeenCommit, Show};
use crate::answer::{Exit, Failure, harmless, output};

/// Bytes gathered before they are written.
const BUFFER: usize = 64 * 1024;

/// Writes public events. If the reader closes the pipe, it stops writing, and the Task runs on: a
/// user of `| head` has seen enough, but still wants the work done.
#[derive(Debug)]
pub(super) struct EventWriter {
    buffer: Vec<u8>,
    has_reader: bool,
    mark: Option<PublishedMark>,
    /// The last event that it got.
    last_seq: u64,
}

impl EventWriter {
    pub(super) fn new(mark: Option<PublishedMark>) -> Self {
        Self { buffer: Vec::with_capacity(BUFFER), has_reader: true, mark, last_seq: 0 }
    }

    fn write_out(&mut self) -> Result<(), Failure> {
        let written = output::stdout(|out| out.write_all(&self.buffer).and_then(|()| out.flush()));
        self.buffer.clear();
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.has_reader = false;
                Ok(())
            }
            written => written.map_err(output::unwritten),
        }
    }
}

impl Show for EventWriter {
    fn commit(&mut self, seen: &SeenCommit<'_>) -> Result<(), Failure> {
        if !self.has_reader {
            return Ok(());
        }
        for event in public_events(&seen.view, seen.commit, seen.stages) {
            let line = serde_json::to_string(&event)
                .map_err(|error| Failure::caused(Exit::Unavailable, &error))?;
            self.buffer.extend_from_slice(harmless(&line).as_bytes());
            self.buffer.push(b'\n');
        }
        self.last_seq = seen.commit.last_seq();
        if self.buffer.len() >= BUFFER {
            self.write_out()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Failure> {
        if !self.has_reader {
            return Ok(());
        }
        self.write_out()?;
        let mark = self.mark.as_mut().filter(|_| self.has_reader && self.last_seq > 0);
        if let Some(Err(error)) = mark.map(|mark| mark.write(self.last_seq)) {
            tracing::warn!(%error, "events may be published twice");
        }
        Ok(())
    }
}
