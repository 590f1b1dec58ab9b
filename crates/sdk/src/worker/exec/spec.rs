//! The description of a command in a step's input, and the rules for it.
//!
//! There are two types on purpose: people write [`ExecFields`], and [`ExecSpec`] is checked.
//! Deserialising gives an `ExecSpec`, or an error that says what would be right.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How long a command has between SIGTERM and SIGKILL when the spec does not say.
pub const GRACE_DEFAULT: Duration = Duration::from_secs(10);

/// A checked description of a command.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "ExecFields", into = "ExecFields")]
pub struct ExecSpec {
    program: Program,
    env: BTreeMap<String, String>,
    cwd: Option<String>,
    timeout: Option<Duration>,
    grace: Duration,
    has_run_tools: bool,
}

/// The program of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
    /// A line for `/bin/sh -c`.
    Shell(String),
    /// A program, looked up in `PATH` when its name has no slash, and its arguments.
    Direct {
        /// The name or path.
        program: String,
        /// Its arguments.
        args: Vec<String>,
    },
}

/// A description of a command as written in a Task, not yet checked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ExecFields {
    /// A shell line. Either this or `command`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// A program and its arguments. Either this or `run`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    /// Added to the environment of the worker.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Where it runs; the worker's own directory when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// How long it may run; for ever when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// How long it has from SIGTERM to SIGKILL; see [`GRACE_DEFAULT`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_ms: Option<u64>,
    /// Whether it gets the tools of a worker, at a socket (docs/mcp.md).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub run_tools: bool,
}

/// Why a description is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// There is nothing to run.
    #[error("exec needs `run` (a shell line) or `command` (a list of program and arguments)")]
    NothingToRun,
    /// There are two things to run.
    #[error("exec takes `run` or `command`, not both")]
    BothRunAndCommand,
    /// `run` is blank.
    #[error("`run` is empty: give a shell line")]
    EmptyRun,
    /// `command` has no program.
    #[error("`command` is empty: its first item names the program")]
    EmptyCommand,
    /// A text that goes to the system has a NUL byte, where the system would cut it.
    #[error("{place} contains a NUL byte")]
    Nul {
        /// Where it is.
        place: String,
    },
    /// The name of a variable is empty.
    #[error("a name in `env` is empty")]
    EmptyEnvName,
    /// The name of a variable would not be the name the command sees.
    #[error("the name `{name}` in `env` contains `=`")]
    EqualsInEnvName {
        /// The name.
        name: String,
    },
    /// `cwd` is empty.
    #[error("`cwd` is empty: leave it out to use the worker's directory")]
    EmptyCwd,
    /// No time at all.
    #[error("`timeout_ms` is 0: give at least 1, or leave it out for no limit")]
    ZeroTimeout,
}

impl ExecSpec {
    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The variables that are added to the worker's environment.
    pub fn env(&self) -> &BTreeMap<String, String> {
        &self.env
    }

    /// The working directory, if the spec has one.
    pub fn cwd(&self) -> Option<&Path> {
        self.cwd.as_deref().map(Path::new)
    }

    /// The same, with its working directory counted from this one.
    #[must_use]
    pub fn within(self, dir: &str) -> Self {
        let cwd = self.cwd().map(|cwd| Path::new(dir).join(cwd).to_string_lossy().into_owned());
        Self { cwd: cwd.or_else(|| Some(dir.to_owned())), ..self }
    }

    /// How long it may run, if limited.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// How long it has from SIGTERM to SIGKILL.
    pub fn grace(&self) -> Duration {
        self.grace
    }

    /// Whether it gets the tools of a worker.
    pub fn has_run_tools(&self) -> bool {
        self.has_run_tools
    }
}

impl TryFrom<ExecFields> for ExecSpec {
    type Error = SpecError;

    fn try_from(fields: ExecFields) -> Result<Self, SpecError> {
        let program = Program::of(fields.run, fields.command)?;
        check_env(fields.env.iter().map(|(name, value)| (name.as_str(), value.as_str())))?;
        if let Some(cwd) = &fields.cwd {
            check_cwd(cwd)?;
        }
        if fields.timeout_ms == Some(0) {
            return Err(SpecError::ZeroTimeout);
        }
        Ok(Self {
            program,
            env: fields.env,
            cwd: fields.cwd,
            timeout: fields.timeout_ms.map(Duration::from_millis),
            grace: fields.grace_ms.map_or(GRACE_DEFAULT, Duration::from_millis),
            has_run_tools: fields.run_tools,
        })
    }
}

impl From<ExecSpec> for ExecFields {
    fn from(spec: ExecSpec) -> Self {
        let (run, command) = match spec.program {
            Program::Shell(line) => (Some(line), None),
            Program::Direct { program, args } => {
                (None, Some(std::iter::once(program).chain(args).collect()))
            }
        };
        Self {
            run,
            command,
            env: spec.env,
            cwd: spec.cwd,
            timeout_ms: spec.timeout.map(millis),
            grace_ms: (spec.grace != GRACE_DEFAULT).then(|| millis(spec.grace)),
            run_tools: spec.has_run_tools,
        }
    }
}

impl Program {
    fn of(run: Option<String>, command: Option<Vec<String>>) -> Result<Self, SpecError> {
        match (run, command) {
            (None, None) => Err(SpecError::NothingToRun),
            (Some(_), Some(_)) => Err(SpecError::BothRunAndCommand),
            (Some(line), None) => Self::shell(line),
            (None, Some(words)) => Self::direct(words),
        }
    }

    fn shell(line: String) -> Result<Self, SpecError> {
        if line.trim().is_empty() {
            return Err(SpecError::EmptyRun);
        }
        refuse_nul(&line, || "`run`".to_owned())?;
        Ok(Self::Shell(line))
    }

    fn direct(words: Vec<String>) -> Result<Self, SpecError> {
        for (index, word) in words.iter().enumerate() {
            refuse_nul(word, || format!("item {index} of `command`"))?;
        }
        let mut words = words.into_iter();
        match words.next() {
            Some(program) if !program.is_empty() => {
                Ok(Self::Direct { program, args: words.collect() })
            }
            _ => Err(SpecError::EmptyCommand),
        }
    }
}

/// The rules for names and values of the environment.
pub(super) fn check_env<'a>(
    env: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<(), SpecError> {
    for (name, value) in env {
        if name.is_empty() {
            return Err(SpecError::EmptyEnvName);
        }
        if name.contains('=') {
            return Err(SpecError::EqualsInEnvName { name: name.to_owned() });
        }
        refuse_nul(name, || format!("the name {name:?} in `env`"))?;
        refuse_nul(value, || format!("the value of `{name}` in `env`"))?;
    }
    Ok(())
}

fn check_cwd(cwd: &str) -> Result<(), SpecError> {
    if cwd.is_empty() {
        return Err(SpecError::EmptyCwd);
    }
    refuse_nul(cwd, || "`cwd`".to_owned())
}

fn refuse_nul(text: &str, place: impl FnOnce() -> String) -> Result<(), SpecError> {
    if text.contains('\0') { Err(SpecError::Nul { place: place() }) } else { Ok(()) }
}

/// The inverse of `Duration::from_millis`: it loses nothing, since every value came from a `u64`.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn parse(value: Value) -> serde_json::Result<ExecSpec> {
        serde_json::from_value(value)
    }

    #[track_caller]
    fn refused(value: Value, because: &str) {
        let error = parse(value).expect_err("it should be refused").to_string();
        assert!(error.contains(because), "{error:?} does not say {because:?}");
    }

    #[test]
    fn a_shell_line_gets_the_default_grace_and_no_limit() {
        let spec = parse(json!({ "run": "echo hi" })).expect("valid");
        assert_eq!(spec.program(), &Program::Shell("echo hi".to_owned()));
        assert_eq!((spec.timeout(), spec.grace()), (None, GRACE_DEFAULT));
    }

    #[test]
    fn a_command_is_a_program_and_its_arguments() {
        let spec = parse(json!({ "command": ["echo", "", "a b"] })).expect("valid");
        let args = vec![String::new(), "a b".to_owned()];
        assert_eq!(spec.program(), &Program::Direct { program: "echo".to_owned(), args });
    }

    #[test]
    fn a_spec_survives_the_way_through_json() {
        let written = json!({
            "command": ["make", "-j2"], "env": { "A": "1" }, "cwd": "/tmp",
            "timeout_ms": 5, "grace_ms": 0, "run_tools": true,
        });
        let spec = parse(written.clone()).expect("valid");
        assert_eq!(serde_json::to_value(spec).expect("serialisable"), written);
    }

    #[test]
    fn exactly_one_of_run_and_command_is_needed() {
        refused(json!({}), "exec needs `run` (a shell line) or `command`");
        refused(json!({ "run": "a", "command": ["a"] }), "not both");
    }

    #[test]
    fn empty_commands_are_refused() {
        refused(json!({ "run": " \n" }), "`run` is empty");
        refused(json!({ "command": [] }), "`command` is empty");
        refused(json!({ "command": ["", "x"] }), "`command` is empty");
    }

    #[test]
    fn nul_bytes_are_refused_wherever_the_system_would_cut_the_text() {
        refused(json!({ "run": "a\0b" }), "`run` contains a NUL byte");
        refused(json!({ "command": ["a", "b\0"] }), "item 1 of `command` contains a NUL byte");
        refused(json!({ "run": "a", "env": { "A": "\0" } }), "the value of `A` in `env`");
        refused(json!({ "run": "a", "env": { "A\0": "" } }), "the name \"A\\0\" in `env`");
        refused(json!({ "run": "a", "cwd": "/\0" }), "`cwd` contains a NUL byte");
    }

    #[test]
    fn names_the_command_would_not_see_are_refused() {
        refused(json!({ "run": "a", "env": { "": "1" } }), "a name in `env` is empty");
        refused(json!({ "run": "a", "env": { "A=B": "1" } }), "the name `A=B` in `env`");
    }

    #[test]
    fn times_and_places_that_mean_nothing_are_refused() {
        refused(json!({ "run": "a", "timeout_ms": 0 }), "`timeout_ms` is 0");
        refused(json!({ "run": "a", "cwd": "" }), "`cwd` is empty");
    }

    #[test]
    fn a_misspelt_field_is_refused_with_the_right_names() {
        refused(json!({ "run": "a", "timeout": 5 }), "unknown field `timeout`, expected one of");
    }

    /// STORE-17: a directory of its own is counted from the Task's; without one it runs in the Task's.
    #[test]
    fn a_directory_is_counted_from_another() {
        let of = |fields: Value| {
            let spec: ExecSpec = serde_json::from_value(fields).unwrap();
            spec.within("/project").cwd().unwrap().to_owned()
        };
        assert_eq!(of(json!({ "run": "a" })), Path::new("/project"));
        assert_eq!(of(json!({ "run": "a", "cwd": "sub" })), Path::new("/project/sub"));
        assert_eq!(of(json!({ "run": "a", "cwd": "/else" })), Path::new("/else"));
    }
}
