//! One JSON line on stdout for each public event (EVENT).

use std::io;

use tenure_core::view::public_events;

use super::{Seen, Show};
use crate::cli::exit::Failure;
use crate::cli::output;

/// Bytes gathered before they are written.
const BUFFER: usize = 64 * 1024;

/// Writes public events. A reader that has left is told no more, and the Task runs on: whoever
/// says `| head` has seen enough, not changed his mind about the work.
#[derive(Debug)]
pub(super) struct Lines {
    buffer: Vec<u8>,
    has_reader: bool,
}

impl Lines {
    pub(super) fn new() -> Self {
        Self { buffer: Vec::with_capacity(BUFFER), has_reader: true }
    }

    fn write_out(&mut self) -> io::Result<()> {
        let written = output::stdout(|out| out.write_all(&self.buffer).and_then(|()| out.flush()));
        self.buffer.clear();
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.has_reader = false;
                Ok(())
            }
            written => written,
        }
    }
}

impl Show for Lines {
    fn commit(&mut self, seen: &Seen<'_>) -> Result<(), Failure> {
        if !self.has_reader {
            return Ok(());
        }
        for event in public_events(&seen.view, seen.commit, seen.stages) {
            serde_json::to_writer(&mut self.buffer, &event).map_err(io::Error::from)?;
            self.buffer.push(b'\n');
        }
        if self.buffer.len() >= BUFFER {
            self.write_out()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Failure> {
        if self.has_reader && !self.buffer.is_empty() {
            self.write_out()?;
        }
        Ok(())
    }
}
