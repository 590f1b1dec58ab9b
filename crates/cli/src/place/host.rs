//! Finds out whether a process is at work on a data directory.
//!
//! Such a process has the directory's lock. To try the lock would keep a starting process out for a
//! moment, so this reads the kernel's list of locks instead.

use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use tenure_core::eligibility::{Wanted, WorkerCounts};
use tenure_core::id::Millis;
use tenure_core::view::Means;
use tenure_local::read_regular;
use tokio::time::{Instant, sleep};

/// How often to look whether a process is still at work.
const LOOK: Duration = Duration::from_millis(500);

/// How long nobody has to be at work before a directory counts as left: a process that is started anew comes back.
const LEFT_AFTER: Duration = Duration::from_secs(5);

/// What runs the Tasks now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Host {
    /// A process, with its id if that is known.
    AtWork(Option<u32>),
    /// Nothing: Steps that are claimed or running in the log are left over from an earlier process.
    Nobody,
    /// Unknown, as this system has no such list.
    Unknown,
    /// The nodes of this cluster, or those behind this gateway.
    Cluster(String),
}

/// Who has written itself into a file `lock`. In a directory from elsewhere it may be a pipe, or have no end.
fn signed_by(path: &Path) -> Option<u32> {
    let mut text = String::new();
    read_regular(path).ok()?.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

impl Host {
    /// Finds the process at work on the directory.
    pub(crate) fn of(data: &Path) -> Self {
        // Both the directory and the file `lock` in it are locked; the file may have been removed.
        let path = data.join("lock");
        let inode = |found: io::Result<fs::Metadata>| found.ok().map(|found| found.ino());
        let inodes = [inode(fs::metadata(data)), inode(fs::symlink_metadata(&path))];
        if inodes == [None; 2] {
            return Self::Nobody;
        }
        let Ok(locks) = fs::read_to_string("/proc/locks") else { return Self::Unknown };
        let signed = signed_by(&path);
        let is_it = |held: &FileLock| {
            held.inode.is_some() && inodes.contains(&held.inode)
                || signed.is_some_and(|pid| held.pid == Some(pid) && has_open(pid, &path))
        };
        match locks.lines().filter_map(FileLock::of).find(is_it) {
            Some(held) => Self::AtWork(signed.or(held.pid)),
            None => Self::Nobody,
        }
    }

    /// Waits until nobody has been at work on the directory for a while. Never returns unless this is a process
    /// that was seen there: one that cannot be seen, such as that of another container, may be at work unseen.
    pub(super) async fn until_left(&self, data: &Path) {
        if !matches!(self, Self::AtWork(_)) {
            return std::future::pending().await;
        }
        let mut seen_at = Instant::now();
        while seen_at.elapsed() < LEFT_AFTER {
            sleep(LOOK).await;
            if Self::of(data) != Self::Nobody {
                seen_at = Instant::now();
            }
        }
    }

    /// Whether a lease is in force that ends at `expires_at` by the log. Renewals are not in the
    /// log: in one process, a worker lives as long as the process does.
    pub(crate) const fn vouches(&self, expires_at: Millis, now: Millis) -> bool {
        match self {
            Self::AtWork(_) => true,
            Self::Nobody => false,
            Self::Unknown | Self::Cluster(_) => expires_at > now,
        }
    }

    /// What is known of workers, leases and log for a claim: nothing, except that without a process
    /// there is no worker.
    pub(crate) fn means(&self) -> Option<Means<'static>> {
        let workers = &|_: Wanted<'_>| WorkerCounts::default();
        (*self == Self::Nobody).then_some(Means { workers, log_trouble: None, lacks_leases: false })
    }

    /// One phrase for people.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::AtWork(Some(pid)) => format!("process {pid} is at work here"),
            Self::AtWork(None) => "a process is at work here".into(),
            Self::Nobody => "no process is at work here".into(),
            Self::Cluster(place) => format!("a {place} runs it"),
            Self::Unknown => "whether a process is at work here is not known".into(),
        }
    }
}

/// An exclusive lock of a file, as a line of `/proc/locks` has it:
///
/// `7: FLOCK  ADVISORY  WRITE 12590 fe:00:10010714 0 EOF`
#[derive(Debug, PartialEq, Eq)]
struct FileLock {
    pid: Option<u32>,
    inode: Option<u64>,
}

impl FileLock {
    fn of(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, "WRITE", pid, file, ..] = fields[..] else { return None };
        let inode = file.rsplit(':').next().and_then(|number| number.parse().ok());
        Some(Self { pid: pid.parse().ok(), inode })
    }
}

/// Whether a process has a file open: where file systems are stacked, the inode of a lock is not
/// the one that others see.
fn has_open(pid: u32, path: &Path) -> bool {
    let Ok(path) = path.canonicalize() else { return false };
    let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    open.flatten().any(|file| fs::read_link(file.path()).is_ok_and(|target| target == path))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file `lock` may come from elsewhere: a pipe is not waited for, and what has no end is not read to it.
    #[test]
    fn nothing_but_a_file_says_who_is_at_work() {
        let place = tempfile::tempdir().unwrap();
        let lock = place.path().join("lock");
        nix::unistd::mkfifo(&lock, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(signed_by(&lock), None);
        fs::remove_file(&lock).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &lock).unwrap();
        assert_eq!(signed_by(&lock), None);
        fs::remove_file(&lock).unwrap();
        fs::write(&lock, "4711\n").unwrap();
        assert_eq!(signed_by(&lock), Some(4_711));
    }

    #[test]
    fn only_exclusive_locks_that_are_held_count() {
        let held = |line| FileLock::of(line).map(|held| (held.pid, held.inode));
        assert_eq!(
            held("1: FLOCK  ADVISORY  WRITE 808 fe:00:77 0 EOF"),
            Some((Some(808), Some(77)))
        );
        assert_eq!(held("2: POSIX  ADVISORY  WRITE 900 fe:00:78 0 EOF"), None, "of another kind");
        assert_eq!(held("3: FLOCK  ADVISORY  READ 901 fe:00:79 0 EOF"), None, "shared");
        assert_eq!(held("3: -> FLOCK  ADVISORY  WRITE 902 fe:00:80 0 EOF"), None, "waits");
        assert_eq!(held(""), None);
    }

    #[test]
    fn a_process_is_known_by_the_files_it_has_open() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let file = fs::File::create(&path).unwrap();
        assert!(has_open(std::process::id(), &path));
        drop(file);
        assert!(!has_open(std::process::id(), &path));
    }

    #[test]
    fn a_directory_is_worked_on_while_its_lock_is_held() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Host::of(dir.path()), Host::Nobody, "no lock file");
        let lock = fs::File::create(dir.path().join("lock")).unwrap();
        fs::write(dir.path().join("lock"), format!("{}\n", std::process::id())).unwrap();
        assert_eq!(Host::of(dir.path()), Host::Nobody, "nobody has it");
        lock.lock().unwrap();
        assert_eq!(Host::of(dir.path()), Host::AtWork(Some(std::process::id())));
        lock.unlock().unwrap();
        assert_eq!(Host::of(dir.path()), Host::Nobody);
        fs::remove_file(dir.path().join("lock")).unwrap();
        let dir_lock = fs::File::open(dir.path()).unwrap();
        dir_lock.lock().unwrap();
        assert_eq!(
            Host::of(dir.path()),
            Host::AtWork(Some(std::process::id())),
            "by the directory"
        );
    }
}
