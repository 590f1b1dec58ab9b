//! The files around a command of the built-in `exec`. Each Attempt has a directory of its own, so that no try
//! overwrites what an earlier one wrote. When the command has ended, empty logs are removed, and after a
//! success the inputs: a file system has a limited number of files, and most commands print nothing.
//!
//! Step 9 of the walk in docs/architecture.md.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use tenure_core::id::StepId;
use tenure_ports::journal::TaskKey;

use super::context::StepContext;
use super::exec::{ExecPaths, is_shortage};
use crate::regular::open_regular;

/// The inputs of all Steps that get none, below the directory for all files. No session has this name, as
/// names of sessions have no dot.
const NO_INPUTS: &str = "no-inputs.json";
const NO_INPUTS_TEXT: &[u8] = b"{}";

/// How often to make a directory. An earlier Attempt of the Step may remove the parent at the same moment.
const TRIES: usize = 3;

/// The directory in which the built-in `exec` keeps the files of one Attempt.
#[derive(Debug, Clone)]
pub struct AttemptDir(PathBuf);

impl AttemptDir {
    /// The directory of the Attempt with this number of a Step, below the directory for all files.
    pub fn new(files: &Path, task: &TaskKey, step: &StepId, ordinal: u32) -> Self {
        let task = files.join(task.session_id.as_str()).join(task.task_id.as_str());
        Self(task.join(step.as_str()).join(ordinal.to_string()))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The file with the standard output. A command that printed nothing leaves none.
    pub fn stdout(&self) -> PathBuf {
        self.0.join("stdout.log")
    }

    /// The file with the standard error, as with the standard output.
    pub fn stderr(&self) -> PathBuf {
        self.0.join("stderr.log")
    }
}

/// What a worker lacks for a Step.
#[derive(Debug)]
pub(super) struct Lack {
    /// What could not be done, and why.
    pub(super) what: String,
    /// Whether fewer Steps at a time would lack less.
    pub(super) is_shortage: bool,
}

impl Lack {
    fn of(what: &str, path: &Path, error: &io::Error) -> Self {
        let is_shortage = is_shortage(error);
        Self { what: format!("cannot {what} {}: {error}", path.display()), is_shortage }
    }
}

/// The files of one Attempt.
#[derive(Debug, Clone)]
pub(super) struct AttemptFiles {
    dir: PathBuf,
    has_inputs: bool,
    pub(super) paths: ExecPaths,
}

impl AttemptFiles {
    /// Makes the directory of an Attempt, and there the file with its inputs, if it has any. `Err` says what
    /// cannot be done.
    pub(super) async fn make(
        ctx: &StepContext,
        files: &Path,
        inputs: Option<Vec<u8>>,
    ) -> Result<Self, Lack> {
        let claim = ctx.claim();
        let (session_id, task_id) = (claim.session_id.clone(), claim.task_id.clone());
        let task = TaskKey { session_id, task_id };
        let place = AttemptDir::new(files, &task, ctx.step_id(), ctx.attempt());
        let own = files.join(format!("{NO_INPUTS}.{}", claim.attempt_id));
        let (files, shared) = (files.to_owned(), files.join(NO_INPUTS));
        let work = move || -> Result<Self, Lack> {
            let dir = place.path().to_owned();
            make_dir(&files, &dir)
                .map_err(|error| Lack::of("create the directory", &dir, &error))?;
            let has_inputs = inputs.is_some();
            let path = if has_inputs { dir.join("inputs.json") } else { shared };
            let written = match inputs {
                Some(inputs) => write_new(&path, &inputs, OWN_FILE),
                None => write_no_inputs(&path, &own),
            };
            written.map_err(|error| Lack::of("write", &path, &error))?;
            let paths = ExecPaths {
                stdout: place.stdout(),
                stderr: place.stderr(),
                output: dir.join("output.json"),
                inputs: path,
            };
            Ok(Self { dir, has_inputs, paths })
        };
        let made = tokio::task::spawn_blocking(work).await;
        made.unwrap_or_else(|error| {
            let what = format!("cannot make the files of the step: {error}");
            Err(Lack { what, is_shortage: false })
        })
    }

    /// Removes what nobody needs once the command has ended: empty logs, the inputs of a command that went
    /// well, and then directories with nothing in them. What cannot be removed stays.
    pub(super) async fn tidy(&self, went_well: bool) {
        let Self { dir, has_inputs, paths } = self.clone();
        let work = move || {
            for log in [&paths.stdout, &paths.stderr] {
                if fs::metadata(log).is_ok_and(|log| log.len() == 0) {
                    let _ = fs::remove_file(log);
                }
            }
            if went_well && has_inputs {
                let _ = fs::remove_file(&paths.inputs);
            }
            let is_empty = fs::remove_dir(&dir).is_ok();
            if let Some(step) = dir.parent().filter(|_| is_empty) {
                let _ = fs::remove_dir(step);
            }
        };
        let _ = tokio::task::spawn_blocking(work).await; // The runtime is shutting down.
    }
}

/// Works with files on a thread that may wait for the disk.
pub(super) async fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

/// Makes a directory below `files`, into which only its user may look, with those on the way. None of these is a link:
/// a command, or whoever made `files` elsewhere, could have put one there. `files` itself may be one.
pub(super) fn make_dir(files: &Path, dir: &Path) -> io::Result<()> {
    let mut made = Ok(());
    for _ in 0..TRIES {
        made = make_each(files, dir);
        match &made {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            _ => break,
        }
    }
    made
}

fn make_each(files: &Path, dir: &Path) -> io::Result<()> {
    if let Some(above) = files.parent() {
        fs::create_dir_all(above)?;
    }
    let mut private = DirBuilder::new();
    private.mode(0o700);
    let mut at = files.to_owned();
    match private.create(&at) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists && at.is_dir() => {}
        made => made?,
    }
    for part in dir.strip_prefix(files).map_err(io::Error::other)?.components() {
        at.push(part);
        match private.create(&at) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                if !fs::symlink_metadata(&at)?.is_dir() {
                    let message = format!("{} is no directory, or a link to one", at.display());
                    return Err(io::Error::other(message));
                }
            }
            made => made?,
        }
    }
    Ok(())
}

/// The rights to a file: its user's.
pub(super) const OWN_FILE: u32 = 0o600;

/// Writes a file in place of whatever has its name, which is not written to.
pub(super) fn write_new(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?.write_all(bytes)
}

/// Writes the shared file, unless it is there as it has to be. It is not writable, as it is that of other
/// commands too. `own` is a name that nobody else uses.
fn write_no_inputs(path: &Path, own: &Path) -> io::Result<()> {
    let found = open_regular(path, OpenOptions::new().read(true)).and_then(|file| {
        let (mut found, more) = (Vec::new(), NO_INPUTS_TEXT.len() as u64 + 1);
        file.take(more).read_to_end(&mut found)?;
        Ok(found)
    });
    if found.is_ok_and(|found| found == NO_INPUTS_TEXT) {
        return Ok(());
    }
    write_new(own, NO_INPUTS_TEXT, 0o444)?;
    fs::rename(own, path)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A test that cannot go on has failed.
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    /// Mechanisms 15: nothing that a command has put in the place of the inputs is written to, waited for or read to an
    /// end that it does not have; and nobody else may look at them.
    #[test]
    fn what_bears_the_name_of_inputs_is_replaced() {
        let place = tempfile::tempdir().unwrap();
        let (files, precious) = (place.path().join("files"), place.path().join("precious"));
        let dir = files.join("s/t/a/1");
        make_dir(&files, &dir).unwrap();
        assert_eq!([mode(&files), mode(&dir)], [0o700; 2]);
        fs::write(&precious, "mine").unwrap();
        let inputs = dir.join("inputs.json");
        symlink(&precious, &inputs).unwrap();
        write_new(&inputs, b"{1}", OWN_FILE).unwrap();
        assert_eq!((fs::read(&inputs).unwrap(), mode(&inputs)), (b"{1}".to_vec(), 0o600));
        assert_eq!(fs::read(&precious).unwrap(), b"mine");

        let (shared, own) = (files.join(NO_INPUTS), files.join("own"));
        let is_whole = || {
            fs::symlink_metadata(&shared).unwrap().is_file()
                && fs::read(&shared).unwrap() == NO_INPUTS_TEXT
        };
        mkfifo(&shared, Mode::S_IRWXU).unwrap();
        write_no_inputs(&shared, &own).unwrap();
        assert!(is_whole());
        fs::remove_file(&shared).unwrap();
        symlink("/dev/zero", &shared).unwrap();
        write_no_inputs(&shared, &own).unwrap();
        assert!(is_whole());

        symlink(place.path(), files.join("s/t/b")).unwrap();
        let refused = make_dir(&files, &files.join("s/t/b/1")).unwrap_err();
        assert!(refused.to_string().contains("a link to one"), "{refused}");
        assert!(!place.path().join("1").exists(), "nothing is made behind it");
    }
}
