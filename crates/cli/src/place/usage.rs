//! How much the logs of a directory take, and how much more its file system has.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::statvfs::statvfs;
use parking_lot::Mutex;
use tenure_ports::observer::{LogCapacity, LogSample};

/// For how long an answer is used again: adding up the lengths of all logs takes a look at each file.
const FRESH: Duration = Duration::from_secs(60);

/// The logs of a directory, as their metrics show them.
#[derive(Debug)]
pub(super) struct DirectoryUsage {
    logs: PathBuf,
    last: Mutex<Option<(Instant, LogSample)>>,
}

impl DirectoryUsage {
    /// The logs below a data directory.
    pub(super) fn of(data: &Path) -> Self {
        Self { logs: data.join("tasks"), last: Mutex::default() }
    }

    /// How much the logs take, as of a minute ago at most.
    pub(super) fn now(&self) -> Option<LogSample> {
        let mut last = self.last.lock();
        if let Some((at, known)) = &*last
            && at.elapsed() < FRESH
        {
            return Some(*known);
        }
        let tightest = capacity(&self.logs);
        let now = LogSample { bytes: bytes_below(&self.logs), tightest };
        *last = Some((Instant::now(), now));
        Some(now)
    }
}

/// How many bytes the file system has, and how many a process without rights of its own may still use.
fn capacity(dir: &Path) -> Option<LogCapacity> {
    let stat = statvfs(dir).ok()?;
    #[allow(clippy::useless_conversion)] // Not every platform counts in 64 bits.
    let to_u64 = |count| u64::try_from(count).unwrap_or(u64::MAX);
    let block = stat.fragment_size();
    let bytes = |blocks: u64| to_u64(block).saturating_mul(blocks);
    Some(LogCapacity {
        limit: bytes(to_u64(stat.blocks())),
        free: bytes(to_u64(stat.blocks_available())),
    })
}

/// The lengths of all files below a directory. What cannot be read counts for nothing.
fn bytes_below(dir: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    let each = entries.flatten().map(|entry| match entry.metadata() {
        Ok(found) if found.is_dir() => bytes_below(&entry.path()),
        Ok(found) => found.len(),
        Err(_) => 0,
    });
    each.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_the_bytes_of_its_logs_and_the_room_of_its_disk() {
        let dir = tempfile::tempdir().unwrap();
        let session = dir.path().join("tasks/main");
        fs::create_dir_all(&session).unwrap();
        fs::write(session.join("a.wal.jsonl"), [0; 700]).unwrap();
        fs::write(dir.path().join("elsewhere"), [0; 9]).unwrap();
        let logs = DirectoryUsage::of(dir.path());
        let first = logs.now().unwrap();
        assert_eq!(first.bytes, 700);
        let LogCapacity { limit, free } = first.tightest.unwrap();
        assert!(limit >= free && free > 0, "{free} of {limit}");
        fs::write(session.join("b.wal.jsonl"), [0; 50]).unwrap();
        assert_eq!(logs.now(), Some(first), "not all files are looked at each time");
        assert_eq!(DirectoryUsage::of(dir.path()).now().unwrap().bytes, 750);
    }
}
