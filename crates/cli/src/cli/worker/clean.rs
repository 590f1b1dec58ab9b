//! `tenure worker clean`: removes what commands of old Attempts wrote, below a directory for such files.

use std::fs::{self, DirEntry};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::Args;
use serde::Serialize;

use crate::cli::answer::{Exit, Failure, Format, Shape, human, output};

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

/// What was removed, or would be.
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
            let what = human::plural(failed, "attempt");
            let message = format!("the files of {what} below {place} could not be removed");
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

/// Removes the directories of Attempts in which nothing was written since then. A missing directory is an empty one.
fn clean(files: &Path, before: SystemTime, is_dry_run: bool) -> io::Result<CleanedFiles> {
    let mut cleaned = CleanedFiles { is_dry_run, ..CleanedFiles::default() };
    match fs::metadata(files) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(cleaned),
        found => found.map(drop)?,
    }
    walk(files, DEPTH, before, &mut cleaned)?;
    Ok(cleaned)
}

fn walk(dir: &Path, depth: usize, before: SystemTime, into: &mut CleanedFiles) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        // Links are not followed: they lead elsewhere.
        if !entry.file_type()?.is_dir() {
            continue;
        }
        if depth > 1 {
            walk(&entry.path(), depth - 1, before, into)?;
            if !into.is_dry_run {
                let _ = fs::remove_dir(entry.path()); // Unless something is left in it.
            }
        } else if is_number(&entry) {
            clean_attempt(&entry.path(), before, into);
        }
    }
    Ok(())
}

/// Whether it has a name as those of Attempts have.
fn is_number(entry: &DirEntry) -> bool {
    entry.file_name().to_str().is_some_and(|name| name.parse::<u32>().is_ok())
}

fn clean_attempt(dir: &Path, before: SystemTime, into: &mut CleanedFiles) {
    // Its command may have ended just now, and the worker have removed it.
    let Ok((written, bytes)) = newest(dir) else { return };
    if written >= before {
        into.kept_attempts += 1;
        into.kept_bytes += bytes;
    } else if into.is_dry_run || fs::remove_dir_all(dir).is_ok() {
        into.attempts += 1;
        into.bytes += bytes;
    } else {
        into.failed += 1;
    }
}

/// When something was written last into a directory of files, and how long these are together.
fn newest(dir: &Path) -> io::Result<(SystemTime, u64)> {
    let mut newest = (fs::metadata(dir)?.modified()?, 0);
    for entry in fs::read_dir(dir)? {
        let found = entry?.metadata()?;
        newest = (newest.0.max(found.modified()?), newest.1 + found.len());
    }
    Ok(newest)
}

#[cfg(test)]
mod tests {
    use std::fs::FileTimes;

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
        wrote(files, "s/old/a/notes", 40 * day); // No Attempt.
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
}
