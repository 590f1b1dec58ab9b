//! One writer per data directory (WAL-05): advisory locks that die with their process.
//!
//! Two things are locked: the directory itself, and the file `lock` in it, which says which process
//! holds the lock. The directory's lock is the one that counts, as nobody can remove it by mistake.
//! The file's lock takes its place where a file system cannot lock a directory, as NFS.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::regular::{open_regular, read_regular};
use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;

/// How long the lock of a process that is gone is waited for. A program that this process was
/// starting when it was killed has a copy of the locked files until it runs.
const GONE: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Why the lock could not be taken.
#[derive(Debug)]
pub(crate) enum LockError {
    /// Another process has it; with its pid if the file says it.
    Held(Option<u32>),
    Io(io::Error),
}

/// The lock, held until dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
    /// The directory, if it could be locked.
    dir: Option<File>,
    /// The path of what keeps others out: the directory, or the file if the directory could not be locked.
    path: PathBuf,
}

impl Lock {
    /// Takes the lock of a directory with the file at `path` in it, or says which process has it.
    /// It waits only where that process is gone or not known, and for no more than two seconds.
    pub(crate) fn take(data: &Path, path: &Path) -> Result<Self, LockError> {
        let deadline = Instant::now() + GONE;
        loop {
            match Self::try_take(data, path) {
                Err(LockError::Held(by)) if is_gone(by) && Instant::now() < deadline => {
                    sleep(LOOK_AGAIN);
                }
                taken => return taken,
            }
        }
    }

    fn try_take(data: &Path, path: &Path) -> Result<Self, LockError> {
        let dir = File::open(data).map_err(LockError::Io)?;
        let dir = match dir.try_lock() {
            Ok(()) => Some(dir),
            // The file may have been removed: a process that is refused does not make it again.
            Err(TryLockError::WouldBlock) => {
                return Err(LockError::Held(holder(read_regular(path))));
            }
            Err(TryLockError::Error(error)) => {
                tracing::debug!(%error, "the file system locks no directory");
                None
            }
        };
        let options = &mut OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let mut file = open_regular(path, options).map_err(LockError::Io)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(LockError::Held(holder(Ok(file)))),
            Err(TryLockError::Error(error)) => return Err(LockError::Io(error)),
        }
        sign(&mut file).map_err(LockError::Io)?;
        let path = if dir.is_some() { data } else { path };
        Ok(Self { file, dir, path: path.to_owned() })
    }

    /// Fails unless the path still names what was locked. Otherwise another process may have the
    /// directory that is there now.
    pub(crate) fn check(&self) -> io::Result<()> {
        match self.is_in_force()? {
            true => Ok(()),
            false => Err(io::Error::other(self.is_lost())),
        }
    }

    /// Whether the path still names what was locked; an error if that could not be found out.
    pub(crate) fn is_in_force(&self) -> io::Result<bool> {
        let there = is_at(self.dir.as_ref().unwrap_or(&self.file), &self.path);
        let path = self.path.display();
        let named = |error: io::Error| {
            io::Error::new(error.kind(), format!("{path} cannot be looked at: {error}"))
        };
        Ok(there.map_err(named)?.is_some())
    }

    /// The message for a lock that is not in force any more.
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

/// The metadata of the file at `path`, if it is this file.
pub(crate) fn is_at(file: &File, path: &Path) -> io::Result<Option<fs::Metadata>> {
    let there = match fs::metadata(path) {
        Ok(there) => there,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let here = file.metadata()?;
    Ok(((here.dev(), here.ino()) == (there.dev(), there.ino())).then_some(there))
}

/// Writes the pid, for people only: the lock itself is the kernel's.
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

/// Whether the process with this pid has ended. An unknown pid counts as ended: a process that has just
/// taken the lock has not written its pid yet. A killed process keeps its pid until its parent has taken
/// note; on Linux it is known before that.
fn is_gone(pid: Option<u32>) -> bool {
    let pid = pid.and_then(|pid| i32::try_from(pid).ok()).filter(|pid| *pid > 0);
    let Some(pid) = pid else { return true };
    let is_dead =
        |stat: String| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['Z', 'X']));
    kill(Pid::from_raw(pid), None) == Err(Errno::ESRCH)
        || fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(is_dead)
}

#[cfg(test)]
mod tests {
    use std::thread::spawn;

    use super::*;

    /// No process has this pid: the system gives out smaller ones.
    const NOBODY: u32 = i32::MAX.cast_unsigned();

    /// WAL-05: where the process that had the lock is gone, a copy of the locked files that a child
    /// of it still has for a moment keeps nobody out.
    #[test]
    fn a_copy_of_the_lock_of_a_process_that_is_gone_is_waited_for() {
        let data = tempfile::tempdir().unwrap();
        let path = data.path().join("lock");
        let copy = copied(data.path(), &path, NOBODY);
        let freed = spawn(move || {
            sleep(Duration::from_millis(100));
            copy.unlock().unwrap(); // Another test may be starting a child, which has a copy too.
        });
        let lock = Lock::take(data.path(), &path).unwrap();
        freed.join().unwrap();
        assert_eq!(holder(File::open(&path)), Some(std::process::id()));
        drop(lock);
    }

    /// WAL-05: a process that lives is not waited for, and one that is gone not for ever.
    #[test]
    fn a_lock_that_somebody_has_is_refused_with_their_pid() {
        for pid in [std::process::id(), NOBODY] {
            let data = tempfile::tempdir().unwrap();
            let path = data.path().join("lock");
            let copy = copied(data.path(), &path, pid);
            let refused = Lock::take(data.path(), &path);
            assert!(matches!(refused, Err(LockError::Held(Some(by))) if by == pid), "{refused:?}");
            drop(copy);
        }
    }

    /// WAL-05: a killed process is gone, even before its parent has taken note.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_process_that_was_killed_is_gone() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id();
        assert!(!is_gone(Some(pid)) && is_gone(Some(NOBODY)) && is_gone(None));
        child.kill().unwrap();
        let begun = Instant::now();
        while !is_gone(Some(pid)) {
            assert!(begun.elapsed() < Duration::from_secs(30), "it is a zombie by then");
            sleep(Duration::from_millis(1));
        }
        child.wait().unwrap();
    }

    /// The directory, locked as by the process with this pid.
    fn copied(data: &Path, path: &Path, pid: u32) -> File {
        let copy = File::open(data).unwrap();
        copy.try_lock().unwrap();
        fs::write(path, format!("{pid}\n")).unwrap();
        copy
    }
}
