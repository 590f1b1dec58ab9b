//! Counts what is below the directory where commands write, for whoever watches this worker.
//!
//! There may be millions of files. So nobody counts them while somebody waits: a thread of its own walks through them
//! now and then, rests most of the time, and whoever asks gets what the last walk has found. If nobody asks, nobody
//! walks.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tenure_ports::observer::FileTotals;

/// The least time between two walks.
const AGAIN: Duration = Duration::from_secs(60);

/// Between two walks lies so many times what a walk takes, too.
const SPARSE: u32 = 10;

/// After so many entries a walk rests.
const BATCH: usize = 256;

/// A walk rests so many times as long as it has worked.
const REST: u32 = 19;

/// How deep files are: session, Task, Step, number, file.
const DEPTH: usize = 5;

/// What is below a directory.
#[derive(Debug)]
pub(super) struct WrittenFiles {
    dir: PathBuf,
    walks: Mutex<Walks>,
}

#[derive(Debug, Default)]
struct Walks {
    /// What the last one has found.
    found: Option<FileTotals>,
    is_under_way: bool,
    /// When the next one may begin; none: now.
    next: Option<Instant>,
}

impl WrittenFiles {
    pub(super) fn new(dir: PathBuf) -> Arc<Self> {
        Arc::new(Self { dir, walks: Mutex::default() })
    }

    /// What the last walk has found, if one has ended. Has another one begin if it is time.
    pub(super) fn now(self: &Arc<Self>) -> Option<FileTotals> {
        let mut walks = self.walks.lock();
        let is_due = walks.next.is_none_or(|at| Instant::now() >= at);
        if is_due && !walks.is_under_way {
            let (dir, this) = (self.dir.clone(), Arc::downgrade(self));
            let walk = move || walk_for(&dir, &this);
            let begun = thread::Builder::new().name("files".into()).spawn(walk);
            walks.is_under_way = begun.is_ok();
            walks.next = Some(Instant::now() + AGAIN);
        }
        walks.found
    }
}

/// Walks, rests, and notes what it has found, unless nobody is there any more.
fn walk_for(dir: &Path, counted: &Weak<WrittenFiles>) {
    let begun = Instant::now();
    let mut worked = begun;
    let found = count(dir, || {
        thread::sleep(worked.elapsed() * REST);
        worked = Instant::now();
        counted.strong_count() > 0
    });
    if let (Some(found), Some(counted)) = (found, counted.upgrade()) {
        let mut walks = counted.walks.lock();
        walks.found = Some(found);
        walks.is_under_way = false;
        walks.next = Some(Instant::now() + AGAIN.max(begun.elapsed() * SPARSE));
    }
}

/// Counts the files below a directory. After each batch of entries it asks whether it is to go on; none: it is not.
fn count(dir: &Path, goes_on: impl FnMut() -> bool) -> Option<FileTotals> {
    let mut walk = Walk { found: FileTotals::default(), left: BATCH, goes_on };
    walk.add(dir, DEPTH).then_some(walk.found)
}

struct Walk<F> {
    found: FileTotals,
    /// How many entries are left of the batch.
    left: usize,
    goes_on: F,
}

impl<F: FnMut() -> bool> Walk<F> {
    /// Adds what is in a directory. Answers whether to go on. What cannot be read, or goes away meanwhile, is not
    /// there; links lead elsewhere.
    fn add(&mut self, dir: &Path, depth: usize) -> bool {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            self.left -= 1;
            if self.left == 0 {
                self.left = BATCH;
                if !(self.goes_on)() {
                    return false;
                }
            }
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() && depth > 1 && !self.add(&entry.path(), depth - 1) {
                return false;
            }
            if let Some(file) = entry.metadata().ok().filter(|_| kind.is_file()) {
                self.found.files += 1;
                self.found.bytes += file.len();
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn wrote(files: &Path, path: &str, bytes: usize) {
        let path = files.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, vec![b'.'; bytes]).unwrap();
    }

    #[test]
    fn files_of_all_attempts_are_counted_and_nothing_elsewhere() {
        let (files, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        wrote(files.path(), "no-inputs.json", 2);
        wrote(files.path(), "s/t/a/1/stdout.log", 10);
        wrote(files.path(), "s/t/a/2/stderr.log", 30);
        wrote(files.path(), "s/t/a/2/stdout.log", 0);
        wrote(files.path(), "s/t/a/2/data/of/the/command", 1_000);
        wrote(other.path(), "large", 5_000);
        symlink(other.path(), files.path().join("s/link")).unwrap();
        symlink(other.path().join("large"), files.path().join("s/t/a/1/stderr.log")).unwrap();
        let found = FileTotals { files: 4, bytes: 42 };
        assert_eq!(count(files.path(), || true), Some(found));
        assert_eq!(count(&files.path().join("none"), || true), Some(FileTotals::default()));
    }

    /// Nobody waits for a directory with a million files, and no processor is taken for it.
    #[test]
    fn a_walk_rests_and_ends_when_nobody_wants_it() {
        let files = tempfile::tempdir().unwrap();
        for number in 0..3 * BATCH {
            wrote(files.path(), &format!("s/{number}"), 1);
        }
        let mut rests = 0;
        let all = count(files.path(), || {
            rests += 1;
            true
        });
        assert_eq!((all.map(|all| all.files), rests), (Some(3 * BATCH as u64), 3));
        assert_eq!(count(files.path(), || false), None);
    }

    #[test]
    fn who_asks_gets_what_the_last_walk_has_found() {
        let files = tempfile::tempdir().unwrap();
        wrote(files.path(), "s/t/a/1/stdout.log", 10);
        let kept = WrittenFiles::new(files.path().to_owned());
        assert_eq!(kept.now(), None, "the first has just begun");
        while kept.now().is_none() {
            thread::yield_now();
        }
        let found = Some(FileTotals { files: 1, bytes: 10 });
        wrote(files.path(), "s/t/a/2/stdout.log", 10);
        assert_eq!((kept.now(), kept.walks.lock().is_under_way), (found, false), "not each time");
        kept.walks.lock().next = Some(Instant::now());
        while kept.now() == found {
            thread::yield_now();
        }
        assert_eq!(kept.now(), Some(FileTotals { files: 2, bytes: 20 }));
    }
}
