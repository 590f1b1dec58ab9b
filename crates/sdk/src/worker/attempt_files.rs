//! The files around a command of the built-in `exec`. Each Attempt has a directory of its own, so that no try
//! overwrites what an earlier one wrote. When the command has ended, empty logs are removed, and after a
//! success the inputs: a file system has a limited number of files, and most commands print nothing.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::context::StepContext;
use super::exec::ExecPaths;

/// The inputs of all Steps that get none, below the directory for all files. No session has this name, as
/// names of sessions have no dot.
const NO_INPUTS: &str = "no-inputs.json";
const NO_INPUTS_TEXT: &[u8] = b"{}";

/// How often to make a directory. An earlier Attempt of the Step may remove the parent at the same moment.
const TRIES: usize = 3;

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
    ) -> Result<Self, String> {
        let step = files.join(ctx.session_id()).join(ctx.task_id()).join(ctx.step_id().as_str());
        let dir = step.join(ctx.attempt().to_string());
        let own = files.join(format!("{NO_INPUTS}.{}", ctx.claim().attempt_id));
        let shared = files.join(NO_INPUTS);
        let work = move || -> Result<Self, String> {
            make_dir(&dir).map_err(|error| {
                format!("cannot create the directory {}: {error}", dir.display())
            })?;
            let has_inputs = inputs.is_some();
            let path = if has_inputs { dir.join("inputs.json") } else { shared };
            let written = match inputs {
                Some(inputs) => fs::write(&path, inputs),
                None => write_no_inputs(&path, &own),
            };
            written.map_err(|error| format!("cannot write {}: {error}", path.display()))?;
            let paths = ExecPaths {
                stdout: dir.join("stdout.log"),
                stderr: dir.join("stderr.log"),
                output: dir.join("output.json"),
                inputs: path,
            };
            Ok(Self { dir, has_inputs, paths })
        };
        let made = tokio::task::spawn_blocking(work).await;
        made.unwrap_or_else(|error| Err(format!("cannot make the files of the step: {error}")))
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
