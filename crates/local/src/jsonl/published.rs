//! How far the events of a Task have been published outside of this process (RECOVER-08).
//!
//! The mark is a file beside the log, overwritten in place and never synced: if a power loss takes a part
//! of it, events are published again. It is never ahead of the log, as only durable events are published.

use crate::regular::{bytes_of, open_regular};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Digits of the number, always as many, so that one mark overwrites another.
const DIGITS: usize = 20;

/// Bytes of a mark: its digits and a newline.
const MARK_BYTES: u64 = DIGITS as u64 + 1;

/// The mark of a Task, for the code that publishes its events.
#[derive(Debug)]
pub struct PublishedMark {
    path: PathBuf,
    file: Option<File>,
}

impl PublishedMark {
    pub(crate) fn at(path: PathBuf) -> Self {
        Self { path, file: None }
    }

    /// The last event that is known to be published, 0 for none.
    ///
    /// # Errors
    /// The mark exists and cannot be read.
    pub fn read(&self) -> io::Result<u64> {
        use io::ErrorKind::{FileTooLarge, NotFound};
        match bytes_of(&self.path, MARK_BYTES) {
            Ok(text) => Ok(String::from_utf8_lossy(&text).trim_end().parse().unwrap_or(0)),
            Err(error) if matches!(error.kind(), NotFound | FileTooLarge) => Ok(0), // It is no mark.
            Err(error) => Err(named(&self.path, &error)),
        }
    }

    /// Notes that everything up to event `seq` is published.
    ///
    /// # Errors
    /// The mark cannot be written: the events after the old mark will be published again.
    pub fn write(&mut self, seq: u64) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                let mut options = OpenOptions::new();
                let options = options.write(true).create(true).truncate(false);
                let opened = open_regular(&self.path, options);
                none.insert(opened.map_err(|error| named(&self.path, &error))?)
            }
        };
        let line = format!("{seq:0DIGITS$}\n");
        file.write_all_at(line.as_bytes(), 0).map_err(|error| named(&self.path, &error))
    }
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
