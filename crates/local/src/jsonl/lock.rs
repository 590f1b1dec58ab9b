//! One writer per data directory (WAL-05): advisory locks that die with their process.
//!
//! Two things are locked: the directory itself, and the file `lock` in it, which says whose it is. The
//! lock of the directory is the one that counts, for nobody can remove it by mistake; the file's stands
//! in for it where a file system locks no directory, as NFS does.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

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
    /// The directory, if it could be locked.
    dir: Option<File>,
    /// What is locked so that nobody else can lock it: the directory, else the file.
    path: PathBuf,
}

impl Lock {
    /// Takes the lock of a directory by the file at `path` in it, or says who has it. Never waits.
    pub(crate) fn take(data: &Path, path: &Path) -> Result<Self, LockError> {
        let dir = File::open(data).map_err(LockError::Io)?;
        let dir = match dir.try_lock() {
            Ok(()) => Some(dir),
            // The file may have been removed: it is not made again for a process that is refused.
            Err(TryLockError::WouldBlock) => return Err(LockError::Held(holder(File::open(path)))),
            Err(TryLockError::Error(error)) => {
                tracing::debug!(%error, "the file system locks no directory");
                None
            }
        };
        let open =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let mut file = open.map_err(LockError::Io)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(LockError::Held(holder(Ok(file)))),
            Err(TryLockError::Error(error)) => return Err(LockError::Io(error)),
        }
        sign(&mut file).map_err(LockError::Io)?;
        let path = if dir.is_some() { data } else { path };
        Ok(Self { file, dir, path: path.to_owned() })
    }

    /// Whether what was locked still is what its path names. If not, another process may have the
    /// directory that is there now.
    pub(crate) fn check(&self) -> io::Result<()> {
        match self.is_in_force()? {
            true => Ok(()),
            false => Err(io::Error::other(self.is_lost())),
        }
    }

    /// The same; an error says that it could not be found out.
    pub(crate) fn is_in_force(&self) -> io::Result<bool> {
        let there = is_at(self.dir.as_ref().unwrap_or(&self.file), &self.path);
        let path = self.path.display();
        let named = |error: io::Error| {
            io::Error::new(error.kind(), format!("{path} cannot be looked at: {error}"))
        };
        Ok(there.map_err(named)?.is_some())
    }

    /// What is said where it is not.
    pub(crate) fn is_lost(&self) -> String {
        format!(
            "{} was moved, removed or replaced while this process had it locked, so that another \
             may write there; this one writes nothing more: put it back, then start again",
            self.path.display()
        )
    }
}

impl Drop for Lock {
    /// Closing the file is not enough: a process that is being started at this moment holds a copy
    /// of it until it runs its own program. Unlocking frees all copies.
    fn drop(&mut self) {
        let _ = self.file.unlock();
        let _ = self.dir.as_ref().map(File::unlock);
    }
}

/// What the file at `path` is like, if it is this one.
pub(crate) fn is_at(file: &File, path: &Path) -> io::Result<Option<fs::Metadata>> {
    let there = match fs::metadata(path) {
        Ok(there) => there,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let here = file.metadata()?;
    Ok(((here.dev(), here.ino()) == (there.dev(), there.ino())).then_some(there))
}

/// The pid is for people only: the lock itself is the kernel's.
fn sign(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}

fn holder(file: io::Result<File>) -> Option<u32> {
    let mut text = String::new();
    file.ok()?.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}
