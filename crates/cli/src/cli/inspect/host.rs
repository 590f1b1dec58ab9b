//! Whether a process is at work on a data directory.
//!
//! The lock of the directory says so, and it is the kernel's: asking for it would keep a starting
//! process away for a moment. So it is not asked for; the kernel's own list of locks is read.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use tenure_core::eligibility::PoolFacts;
use tenure_core::id::Millis;

/// Who runs Tasks of a data directory now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Host {
    /// A process does, of this id if it could be told.
    AtWork(Option<u32>),
    /// Nobody: what the log has as claimed or running is left over from an earlier process.
    Nobody,
    /// This system does not say.
    Unknown,
}

impl Host {
    /// Looks for the process at work on the directory.
    pub(super) fn of(data: &Path) -> Self {
        let path = data.join("lock");
        let Ok(lock) = fs::metadata(&path) else { return Self::Nobody };
        let signed = fs::read_to_string(&path).ok().and_then(|text| text.trim().parse().ok());
        match fs::read_to_string("/proc/locks") {
            Ok(locks) if holds(&locks, lock.ino(), signed) => Self::AtWork(signed),
            Ok(_) => Self::Nobody,
            Err(_) => Self::Unknown,
        }
    }

    /// Whether a lease that the log has as ending at `expires_at` is in force. Renewals are not in
    /// the log: in one process, who holds a Step lives as long as the process does.
    pub(super) fn vouches(self, expires_at: Millis, now: Millis) -> bool {
        match self {
            Self::AtWork(_) => true,
            Self::Nobody => false,
            Self::Unknown => expires_at > now,
        }
    }

    /// What is known of the workers of any pool: nothing, unless nobody is there.
    pub(super) fn pool(self) -> Option<PoolFacts> {
        (self == Self::Nobody).then_some(PoolFacts { workers: 0, free: 0 })
    }

    /// One phrase for people.
    pub(super) fn describe(self) -> String {
        match self {
            Self::AtWork(Some(pid)) => format!("process {pid} is at work here"),
            Self::AtWork(None) => "a process is at work here".into(),
            Self::Nobody => "no process is at work here".into(),
            Self::Unknown => "whether a process is at work here is not known".into(),
        }
    }
}

/// Whether a line of `/proc/locks` is the lock: of this file, or, where file systems are stacked
/// and inode numbers differ, an exclusive lock of the process that signed the file.
///
/// `7: FLOCK  ADVISORY  WRITE 12590 fe:00:10010714 0 EOF`
fn holds(locks: &str, inode: u64, signed: Option<u32>) -> bool {
    locks.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, "WRITE", pid, file, ..] = fields[..] else { return false };
        let locked = file.rsplit(':').next().and_then(|number| number.parse().ok());
        locked == Some(inode) || (signed.is_some() && pid.parse().ok() == signed)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCKS: &str = "\
1: FLOCK  ADVISORY  WRITE 808 fe:00:77 0 EOF
2: POSIX  ADVISORY  WRITE 900 fe:00:78 0 EOF
3: FLOCK  ADVISORY  READ 901 fe:00:79 0 EOF
3: -> FLOCK  ADVISORY  WRITE 902 fe:00:80 0 EOF
";

    #[test]
    fn only_an_exclusive_lock_of_the_file_or_of_its_signer_counts() {
        assert!(holds(LOCKS, 77, None), "the file itself");
        assert!(holds(LOCKS, 1, Some(808)), "its signer, on a stacked file system");
        assert!(!holds(LOCKS, 78, None), "another kind of lock");
        assert!(!holds(LOCKS, 79, None), "a shared lock");
        assert!(!holds(LOCKS, 80, None), "one that only waits");
        assert!(!holds(LOCKS, 1, None), "nothing known");
        assert!(!holds("", 77, Some(808)));
    }
}
