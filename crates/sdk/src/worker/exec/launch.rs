//! Everything a process needs to become the command, in a form that can be sent to the guard.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use super::spec::{self, Program};
use super::withheld::withhold;
use super::{ExecError, ExecPaths, ExecSpec};

/// The variable with the path of the file in which the command may leave its result, as one JSON
/// value.
pub const OUTPUT_ENV: &str = "TENURE_OUTPUT";
/// The variable with the path of the file that has the inputs of the step.
pub const INPUTS_ENV: &str = "TENURE_INPUTS";

/// A command ready to be started. The environment is what is *added* to what it inherits.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Launch {
    pub(super) program: String,
    args: Vec<String>,
    env: Vec<(String, String)>,
    cwd: Option<PathBuf>,
}

impl Launch {
    /// Makes the launch of a `spec`. Later variables win, and ours come last, so that a step cannot
    /// redirect them. The first is `PWD`: that of the starter would name another directory than the spec.
    pub(super) fn new(
        spec: &ExecSpec,
        paths: &ExecPaths,
        env_extra: &[(String, String)],
    ) -> Result<Self, ExecError> {
        spec::check_env(env_extra.iter().map(|(name, value)| (name.as_str(), value.as_str())))?;
        let (program, args) = words(spec.program());
        let cwd = spec
            .cwd()
            .and_then(|cwd| std::path::absolute(cwd).ok()?.into_os_string().into_string().ok());
        let pwd = cwd.map(|cwd| ("PWD".to_owned(), cwd));
        let mut env: Vec<_> = pwd.into_iter().chain(spec.env().clone()).collect();
        env.extend_from_slice(env_extra);
        env.push((OUTPUT_ENV.to_owned(), absolute(&paths.output)?));
        env.push((INPUTS_ENV.to_owned(), absolute(&paths.inputs)?));
        Ok(Self { program, args, env, cwd: spec.cwd().map(Path::to_owned) })
    }

    /// The command with an empty standard input; the caller sets where its output goes.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args).stdin(Stdio::null());
        withhold(&mut command);
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        if let Some(cwd) = &self.cwd {
            command.current_dir(cwd);
        }
        command
    }
}

fn words(program: &Program) -> (String, Vec<String>) {
    match program {
        // The dashes end the options of the shell, as the line may begin with a dash.
        Program::Shell(line) => {
            ("/bin/sh".to_owned(), vec!["-c".to_owned(), "--".to_owned(), line.clone()])
        }
        Program::Direct { program, args } => (program.clone(), args.clone()),
    }
}

/// Makes a path absolute, as the command may run in another directory.
fn absolute(path: &Path) -> Result<String, ExecError> {
    std::path::absolute(path)
        .and_then(|path| {
            path.into_os_string().into_string().map_err(|_| {
                std::io::Error::new(std::io::ErrorKind::InvalidInput, "the path is not UTF-8")
            })
        })
        .map_err(ExecError::file("name to the command the file", path))
}
