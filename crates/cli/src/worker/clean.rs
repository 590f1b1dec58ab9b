//! `tenure worker clean`: removes what commands of old Attempts wrote, below a directory for such files.

use std::fs::{self, DirEntry, ReadDir};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::Args;
use serde::Serialize;
use tenure_sdk::worker::remove_tree;

use crate::answer::{Exit, Failure, Format, Shape, human, output};

/// Remove from this machine what commands of old attempts wrote. Nothing of tasks themselves is lost: results,
/// errors and the last lines of output are in their logs.
#[derive(Debug, Clone, Args)]
pub(crate) struct CleanArgs {
    /// Directory below which commands left their output
    #[arg(long, value_name = "DIR", env = "TENURE_FILES", default_value = ".tenure/files")]
    files: PathBuf,

    /// Only attempts in whose files nothing was written for so long, such as 12h or 30d
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, default_value = "30d")]
    older_than: Duration,

    /// Say what would be removed, and remove nothing
    #[arg(long)]
    dry_run: bool,

    /// How to write the answer
    #[arg(long, short = 'o', value_enum, value_name = "FORMAT", default_value_t)]
    output: Format,
}

/// What this command has removed, or would remove.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct CleanedFiles {
    attempts: usize,
    bytes: u64,
    kept_attempts: usize,
    kept_bytes: u64,
    failed: usize,
    is_dry_run: bool,
}

pub(super) fn run(args: &CleanArgs) -> Result<Exit, Failure> {
    let before = SystemTime::now().checked_sub(args.older_than).unwrap_or(SystemTime::UNIX_EPOCH);
    let place = args.files.display();
    let cleaned = clean(&args.files, before, args.dry_run);
    let cleaned = cleaned.map_err(Failure::cannot(format_args!("read {place}")))?;
    args.output.answer(&cleaned, Shape::nameless(), || print(&cleaned))?;
    match cleaned.failed {
        0 => Ok(Exit::Ok),
        failed => {
            let what = human::plural(failed, "path");
            let message = format!("{what} below {place} could not be read or removed");
            Err(Failure::new(Exit::NotAllowed, message).help("run it as the user of the worker"))
        }
    }
}

fn print(cleaned: &CleanedFiles) -> Result<(), Failure> {
    let verb = if cleaned.is_dry_run { "would be removed" } else { "removed" };
    output::print(format_args!(
        "{verb}: {} with {}; kept: {} with {}\n",
        human::plural(cleaned.attempts, "attempt"),
        human::bytes(cleaned.bytes),
        human::plural(cleaned.kept_attempts, "attempt"),
        human::bytes(cleaned.kept_bytes),
    ))
}

/// How deep the directory of an Attempt is: session, Task, Step, number.
const DEPTH: usize = 4;

/// A worker makes this below its directory for files, when a Step without inputs begins.
const NO_INPUTS: &str = "no-inputs.json";

/// What a worker makes in the directory of an Attempt or of a Run. One of them is there as long as the directory.
const OWN_FILES: [&str; 4] = ["stdout.log", "stderr.log", "output.json", "inputs.json"];

/// Removes the files of old Attempts below a directory.
struct FileCleaner {
    /// Directories in which something was written since then stay.
    before: SystemTime,
    /// Whether the directory is surely one of a worker, so that empty directories in it are a worker's, too.
    is_workers: bool,
    cleaned: CleanedFiles,
}

/// Removes the directories of Attempts in which nothing was written since then. A missing directory is an empty one.
fn clean(files: &Path, before: SystemTime, is_dry_run: bool) -> io::Result<CleanedFiles> {
    let cleaned = CleanedFiles { is_dry_run, ..CleanedFiles::default() };
    let Some(entries) = present(fs::read_dir(files))? else { return Ok(cleaned) };
    let is_workers = files.join(NO_INPUTS).is_file();
    let mut cleaner = FileCleaner { before, is_workers, cleaned };
    cleaner.walk(files, entries, DEPTH);
    Ok(cleaner.cleaned)
}

/// The result of a look; none if there is nothing there any more, as workers remove what nobody needs meanwhile.
fn present<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}

impl FileCleaner {
    /// The result of a look, if there is anything. Notes a failure if the look fails, and goes on with the others.
    fn found<T>(&mut self, path: &Path, found: io::Result<T>) -> Option<T> {
        present(found).unwrap_or_else(|error| {
            self.cleaned.failed += 1;
            output::warn(format_args!("{}: {error}", path.display()));
            None
        })
    }

    /// Returns whether anything was removed.
    fn walk(&mut self, dir: &Path, entries: ReadDir, depth: usize) -> bool {
        let mut has_removed = false;
        for entry in entries {
            let Some(entry) = self.found(dir, entry) else { continue };
            let path = entry.path();
            // Links are not followed: they lead elsewhere.
            if !self.found(&path, entry.file_type()).is_some_and(|of| of.is_dir()) {
                continue;
            }
            has_removed |= match is_attempt(&entry, depth) {
                true => self.clean_attempt(&path),
                false if depth > 1 => self.clean_above(&path, depth - 1),
                false => false,
            };
        }
        has_removed
    }

    /// Cleans what is below the directory of a session, a Task or a Step, and removes that if nothing is left in it.
    fn clean_above(&mut self, dir: &Path, depth: usize) -> bool {
        let is_old = self.is_workers && self.is_old(dir);
        let Some(entries) = self.found(dir, fs::read_dir(dir)) else { return false };
        let has_removed = self.walk(dir, entries, depth);
        let may_remove = !self.cleaned.is_dry_run && (has_removed || is_old);
        let is_removed = may_remove && fs::remove_dir(dir).is_ok(); // This fails if something is left in it.
        has_removed || is_removed
    }

    fn is_old(&self, dir: &Path) -> bool {
        fs::metadata(dir).and_then(|it| it.modified()).is_ok_and(|written| written < self.before)
    }

    /// Removes an Attempt that is old enough. Returns whether it did.
    fn clean_attempt(&mut self, dir: &Path) -> bool {
        let mut own = OWN_FILES.iter().map(|name| present(fs::symlink_metadata(dir.join(name))));
        let Some(own) = own.find_map(io::Result::transpose) else {
            let may_remove = self.is_workers && !self.cleaned.is_dry_run && self.is_old(dir);
            return may_remove && fs::remove_dir(dir).is_ok(); // Unless something is left in it.
        };
        if self.found(dir, own).is_none() {
            return false;
        }
        let Some((written, bytes)) = self.found(dir, newest(dir)) else { return false };
        if written >= self.before {
            self.cleaned.kept_attempts += 1;
            self.cleaned.kept_bytes += bytes;
            return false;
        }
        let removed = if self.cleaned.is_dry_run { Ok(()) } else { remove_tree(dir) };
        let has_removed = self.found(dir, removed).is_some();
        if has_removed {
            self.cleaned.attempts += 1;
            self.cleaned.bytes += bytes;
        }
        has_removed
    }
}

/// Whether it has a name as the directories of Attempts have, or as that of a command that works for a Run: it is
/// beside the Steps of its Task.
fn is_attempt(entry: &DirEntry, depth: usize) -> bool {
    let name = entry.file_name();
    let Some(name) = name.to_str() else { return false };
    match depth {
        1 => name.parse::<u32>().is_ok(),
        2 => name.starts_with("run."), // No Step has such a name, as it has no dot.
        _ => false,
    }
}

/// When something was written last into a directory of files, and how long these are together.
fn newest(dir: &Path) -> io::Result<(SystemTime, u64)> {
    let mut newest = (fs::metadata(dir)?.modified()?, 0);
    for entry in fs::read_dir(dir)? {
        let Some(found) = present(entry?.metadata())? else { continue };
        newest = (newest.0.max(found.modified()?), newest.1 + found.len());
    }
    Ok(newest)
}

#[cfg(test)]
mod tests {
    use std::fs::FileTimes;

    use nix::fcntl::{OFlag, openat};
    use nix::sys::stat::{Mode, mkdirat};

    use super::*;

    /// An Attempt whose command wrote something that long ago.
    fn wrote(files: &Path, attempt: &str, ago: Duration) {
        let dir = files.join(attempt);
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("stdout.log"), b"12345").unwrap();
        let then = FileTimes::new().set_modified(SystemTime::now() - ago);
        for path in [dir.join("stdout.log"), dir] {
            fs::File::open(path).unwrap().set_times(then).unwrap();
        }
    }

    #[test]
    fn what_is_old_goes_and_what_is_new_or_of_others_stays() {
        let files = tempfile::tempdir().unwrap();
        let (day, files) = (Duration::from_secs(24 * 3600), files.path());
        wrote(files, "s/old/a/1", 40 * day);
        wrote(files, "s/both/a/1", 40 * day);
        wrote(files, "s/both/a/2", day);
        wrote(files, "s/old/a/notes", 40 * day); // This is no directory of an Attempt.
        fs::write(files.join("no-inputs.json"), b"{}").unwrap();
        let before = SystemTime::now() - 30 * day;
        let expected = CleanedFiles {
            attempts: 2,
            bytes: 10,
            kept_attempts: 1,
            kept_bytes: 5,
            ..CleanedFiles::default()
        };
        let dry = clean(files, before, true).unwrap();
        assert_eq!(dry, CleanedFiles { is_dry_run: true, ..expected });
        assert!(files.join("s/old/a/1/stdout.log").exists());
        let expected = CleanedFiles { is_dry_run: false, ..dry };
        assert_eq!(clean(files, before, false).unwrap(), expected);
        for (path, is_there) in [
            ("s/old/a/1", false),
            ("s/both/a/1", false),
            ("s/both/a/2/stdout.log", true),
            ("s/old/a/notes/stdout.log", true),
            ("no-inputs.json", true),
        ] {
            assert_eq!(files.join(path).exists(), is_there, "{path}");
        }
        assert_eq!(clean(files, before, false).unwrap().attempts, 0);
        assert_eq!(clean(&files.join("none"), before, false).unwrap(), CleanedFiles::default());
    }
    /// A wrong `--files` costs nobody a directory.
    #[test]
    fn directories_of_others_stay() {
        let files = tempfile::tempdir().unwrap();
        let (day, files) = (Duration::from_secs(24 * 3600), files.path());
        fs::create_dir_all(files.join("photos/2024/empty")).unwrap();
        fs::create_dir_all(files.join("photos/2024/may/2")).unwrap();
        fs::create_dir_all(files.join("photos/2024/may/1")).unwrap();
        fs::write(files.join("photos/2024/may/1/cat.jpg"), b"1").unwrap();
        wrote(files, "s/t/a/1", 40 * day);
        let then = FileTimes::new().set_modified(SystemTime::now() - 40 * day);
        let others = ["photos/2024/may/1/cat.jpg", "photos/2024/may/2", "photos/2024/empty"];
        for path in others.into_iter().chain(["photos/2024/may/1"]) {
            fs::File::open(files.join(path)).unwrap().set_times(then).unwrap();
        }
        let before = SystemTime::now() - 30 * day;
        let cleaned = clean(files, before, false).unwrap();
        assert_eq!((cleaned.attempts, cleaned.failed), (1, 0));
        assert!(!files.join("s").exists(), "what is above an attempt goes with the last one");
        assert!(others.iter().all(|path| files.join(path).exists()));
        // A worker was here, so a directory that has been empty for that long is a rest of its commands.
        fs::write(files.join(NO_INPUTS), b"{}").unwrap();
        let cleaned = clean(files, before, false).unwrap();
        assert_eq!((cleaned.attempts, cleaned.failed), (0, 0));
        assert_eq!(others.map(|path| files.join(path).exists()), [true, false, false]);
    }

    #[test]
    fn the_files_of_a_run_go_as_those_of_an_attempt() {
        let files = tempfile::tempdir().unwrap();
        let (day, files) = (Duration::from_secs(24 * 3600), files.path());
        wrote(files, "s/t/run.0198/", 40 * day);
        wrote(files, "s/t/run.0199/", day);
        let cleaned = clean(files, SystemTime::now() - 30 * day, false).unwrap();
        assert_eq!((cleaned.attempts, cleaned.kept_attempts), (1, 1));
        assert!(!files.join("s/t/run.0198").exists() && files.join("s/t/run.0199").exists());
    }

    /// A command may nest directories deeper than a stack, beside its own files.
    #[test]
    fn an_attempt_goes_however_deep_its_directories_are() {
        // A disk may take minutes for so many directories.
        let files = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let (day, files) = (Duration::from_secs(24 * 3600), files.path());
        wrote(files, "s/t/a/1", 40 * day);
        let dir = files.join("s/t/a/1");
        let mut at = fs::File::open(&dir).unwrap();
        for _ in 0..20_000 {
            mkdirat(&at, "nested", Mode::S_IRWXU).unwrap();
            at = openat(&at, "nested", OFlag::O_RDONLY, Mode::empty()).unwrap().into();
        }
        drop(at); // As long as it is open, the kernel keeps all that is above it.
        let then = FileTimes::new().set_modified(SystemTime::now() - 40 * day);
        for path in [dir.join("nested"), dir] {
            fs::File::open(path).unwrap().set_times(then).unwrap();
        }
        let cleaned = clean(files, SystemTime::now() - 30 * day, false).unwrap();
        assert_eq!((cleaned.attempts, cleaned.failed), (1, 0));
        assert!(!files.join("s").exists());
    }

    /// What goes away meanwhile is no failure; what cannot be read is one, and the others are cleaned all the same.
    #[test]
    fn one_directory_that_cannot_be_cleaned_does_not_keep_the_others() {
        let files = tempfile::tempdir().unwrap();
        let (day, files) = (Duration::from_secs(24 * 3600), files.path());
        wrote(files, "s/t/z/1", 40 * day);
        let before = SystemTime::now() - 30 * day;
        let mut cleaner =
            FileCleaner { before, is_workers: false, cleaned: CleanedFiles::default() };
        assert!(!cleaner.clean_above(&files.join("gone"), 1));
        assert!(!cleaner.clean_attempt(&files.join("gone")));
        assert_eq!(cleaner.cleaned, CleanedFiles::default());
        assert!(!cleaner.clean_above(&files.join("s/t/z/1/stdout.log"), 1), "it cannot be read");
        assert_eq!(cleaner.cleaned.failed, 1);
        let entries = fs::read_dir(files).unwrap();
        assert!(cleaner.walk(files, entries, DEPTH));
        assert_eq!((cleaner.cleaned.attempts, cleaner.cleaned.failed), (1, 1));
    }
}
