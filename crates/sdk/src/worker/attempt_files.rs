//! The files around a command of the built-in `exec`. Each Attempt has a directory of its own, so that no try
//! overwrites what an earlier one wrote. When the command has ended, empty logs are removed, and after a
//! success the inputs: a file system has a limited number of files, and most commands print nothing.
//!
//! Step 9 of the walk in docs/architecture.md.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use tenure_core::id::StepId;
use tenure_ports::journal::TaskKey;

use super::context::StepContext;
use super::exec::{ExecPaths, is_shortage};

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
        let shared = files.join(NO_INPUTS);
        let work = move || -> Result<Self, Lack> {
            let dir = place.path().to_owned();
            make_dir(&dir).map_err(|error| Lack::of("create the directory", &dir, &error))?;
            let has_inputs = inputs.is_some();
            let path = if has_inputs { dir.join("inputs.json") } else { shared };
            let written = match inputs {
                Some(inputs) => fs::write(&path, inputs),
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

fn make_dir(dir: &Path) -> io::Result<()> {
    let mut made = Ok(());
    for _ in 0..TRIES {
        made = fs::create_dir_all(dir);
        match &made {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            _ => break,
        }
    }
    made
}

/// Writes the shared file, unless it is there as it has to be. It is not writable, as it is that of other
/// commands too. `own` is a name that nobody else uses.
fn write_no_inputs(path: &Path, own: &Path) -> io::Result<()> {
    if fs::read(path).is_ok_and(|found| found == NO_INPUTS_TEXT) {
        return Ok(());
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o444).open(own)?;
    file.write_all(NO_INPUTS_TEXT)?;
    fs::rename(own, path)
}
