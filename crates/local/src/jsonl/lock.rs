//! One writer per data directory (WAL-05): an advisory lock that dies with its process.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::Path;

/// Why the lock could not be taken.
#[derive(Debug)]
pub(crate) enum LockError {
    /// Another process has it; its pid if it could be read.
    Held(Option<u32>),
    Io(io::Error),
}

/// The lock, held until dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
}

impl Lock {
    /// Takes the lock or says who has it. Never waits.
    pub(crate) fn take(path: &Path) -> Result<Self, LockError> {
        let open =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let mut file = open.map_err(LockError::Io)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(LockError::Held(holder(&mut file))),
            Err(TryLockError::Error(error)) => return Err(LockError::Io(error)),
        }
        sign(&mut file).map_err(LockError::Io)?;
        Ok(Self { file })
    }
}

impl Drop for Lock {
    /// Closing the file is not enough: a process that is being started at this moment holds a copy
    /// of it until it runs its own program. Unlocking frees all copies.
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

/// The pid is for people only: the lock itself is the kernel's.
fn sign(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}

fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}
