//! The exit codes of `tenure`, and the failures of commands with advice.
//!
//! Step 11 of the walk in docs/architecture.md.

use std::error::Error as StdError;
use std::process::ExitCode;

use serde_json::{Value as Json, json};
use tenure_core::{Code, Rejection};
use tenure_local::OpenError;
use tenure_ports::journal::ReadError;
use tenure_taskfile::TaskFileError;

use super::advice::advice;
use super::log_line::{self, LogForm, Weight};
use super::output::{Paint, Stream, Tone, say_as, say_plain};

/// The exit codes of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Exit {
    /// Done; a Task that was run has completed.
    Ok = 0,
    /// The Task failed or was cancelled; a Run that was waited for was lost, cancelled or the like.
    TaskFailed = 1,
    /// The command line, the input file or a setting (an address, a credentials file, a certificate)
    /// is wrong. (clap exits with the same code.)
    Usage = 2,
    /// There is no such Task or Step.
    NotFound = 3,
    /// It contradicts what is recorded.
    Conflict = 4,
    /// Known, and not for this caller.
    NotAllowed = 5,
    /// Timeout, full disk, data directory in use: the same command may work later.
    Unavailable = 6,
    /// Stopped by Ctrl-C or SIGTERM: 128 + SIGINT, as shells have it.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}

impl Exit {
    /// The exit code of a refusal.
    pub(crate) fn of(code: Code) -> Self {
        match code {
            Code::ValidationError | Code::DependencyCycle | Code::ValueTooLarge => Self::Usage,
            Code::TaskNotFound | Code::StepNotFound | Code::RunNotFound | Code::WorkerGone => {
                Self::NotFound
            }
            Code::ToolNotAvailable
            | Code::PermissionDenied
            | Code::StepOutOfScope
            | Code::Unauthenticated => Self::NotAllowed,
            Code::StorageError | Code::StorageUnavailable | Code::NotOwner | Code::Unavailable => {
                Self::Unavailable
            }
            Code::PathConflict
            | Code::StepHasDependents
            | Code::TaskTerminal
            | Code::StepAlreadyClaimed
            | Code::StepAlreadyClaimedByRun
            | Code::VersionConflict
            | Code::IdempotencyConflict
            | Code::TaskIdConflict
            | Code::CreationUnfinished
            | Code::TaskNotDispatchable
            | Code::TaskCancelling
            | Code::StepNotReady
            | Code::StepInProgress
            | Code::StepHistoryImmutable
            | Code::InvalidTransition
            | Code::StaleAttempt
            | Code::RunEnded
            | Code::RequiredStepsIncomplete
            | Code::StepsInProgress
            | Code::FactsUnreconciled
            | Code::AcceptanceUnmet
            | Code::BlobMissing
            | Code::QuotaExceeded => Self::Conflict,
        }
    }
}

/// Why a command failed: a message for people, and the refusal for programs if it was refused.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Failure {
    /// The exit code of the process.
    pub(crate) exit: Exit,
    /// What is wrong, without the word "error".
    pub(crate) message: String,
    /// What to do about it.
    pub(crate) help: Option<String>,
    /// The message is laid out already and carries its own "error:".
    pub(crate) is_rendered: bool,
    /// The refusal behind the failure, if it is one.
    refusal: Option<Box<Rejection>>,
}

impl Failure {
    /// A failure without advice.
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), help: None, is_rendered: false, refusal: None }
    }

    /// The failure for something that does not exist, with the code of a refusal but this command's
    /// own message.
    pub(crate) fn absent(refusal: Rejection) -> Self {
        Self { message: refusal.message.clone(), ..Self::from(refusal) }
    }

    /// Adds what to do about it.
    #[must_use]
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// For `map_err`: `what` completes "cannot ...". An error of the system does not say what it is about, so
    /// none becomes a failure without such words.
    pub(crate) fn cannot(what: impl std::fmt::Display) -> impl FnOnce(std::io::Error) -> Self {
        move |error| {
            let message = format!("cannot {what}: {}", chain(&error));
            Self::new(Exit::Unavailable, message)
        }
    }

    /// An error with all its causes in one line.
    pub(crate) fn caused(exit: Exit, error: &dyn StdError) -> Self {
        Self::new(exit, chain(error))
    }

    /// An error that has the code of a refusal, with all its causes in one line.
    pub(crate) fn refused(code: Code, error: &dyn StdError) -> Self {
        Self::absent(Rejection::new(code, chain(error)))
    }

    /// The refusal behind the failure, if it is one.
    pub(crate) fn refusal(&self) -> Option<&Rejection> {
        self.refusal.as_deref()
    }

    /// Prints on stderr what is wrong and what to do: as text for people, or as one line of JSON
    /// for programs.
    pub(crate) fn tell(&self, is_json: bool) {
        match log_line::form() {
            Some(form @ LogForm::Json) => {
                let mut more = self.to_json();
                let message = more["message"].take();
                let message = message.as_str().unwrap_or(&self.message);
                if let Some(more) = more.as_object_mut() {
                    more.remove("message");
                }
                return say_as(form, Weight::Error, message, more);
            }
            _ if is_json => return say_plain(&self.to_json().to_string()),
            _ => {}
        }
        let paint = Paint::of(Stream::Stderr);
        let rendered = self.message.strip_prefix("error: ").filter(|_| self.is_rendered);
        let message = rendered.unwrap_or(&self.message);
        // A failure that ends the process stands out, even behind lines of a log.
        say_plain(&format!("{} {message}", paint.text(Tone::Bad, "error:")));
        if let Some(help) = &self.help {
            say_plain(&format!(" {} {help}", paint.text(Tone::Faint, "= help:")));
        }
    }

    /// The failure for programs (CTRL-09): the refusal unchanged, and what to do about it. A fault
    /// that this command itself found has no code; its exit code says what it is.
    pub(crate) fn to_json(&self) -> Json {
        let mut told = match self.refusal() {
            Some(refusal) => json!(refusal),
            None => json!({"message": self.message}),
        };
        if let Some(help) = &self.help {
            told["help"] = help.as_str().into();
        }
        told
    }
}

/// `error: cause: cause of that`.
fn chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}

impl From<Rejection> for Failure {
    fn from(refusal: Rejection) -> Self {
        let message = format!("{refusal}{}", evidence(&refusal));
        let failure = Self::new(Exit::of(refusal.code), message).help(advice(refusal.code));
        Self { refusal: Some(Box::new(refusal)), ..failure }
    }
}

/// How many ids a message names.
const NAMED_MAX: usize = 10;

/// The details of a refusal that its message lacks and people need: the ids of Steps or criteria,
/// and the operation of a patch.
fn evidence(refusal: &Rejection) -> String {
    let mut said = String::new();
    for ids in refusal.details.values().filter_map(Json::as_array) {
        let ids: Vec<&str> = ids.iter().filter_map(Json::as_str).collect();
        if ids.iter().all(|id| refusal.message.contains(id)) {
            continue;
        }
        said.push_str(": ");
        said.push_str(&ids[..ids.len().min(NAMED_MAX)].join(", "));
        if ids.len() > NAMED_MAX {
            said.push_str(&format!(" and {} more", ids.len() - NAMED_MAX));
        }
    }
    if let Some(at) = refusal.details.get("op_index") {
        said.push_str(&format!(" (operations[{at}])"));
    }
    said
}

impl From<TaskFileError> for Failure {
    fn from(error: TaskFileError) -> Self {
        let code = Code::from_name(error.first.code).unwrap_or(Code::ValidationError);
        let mut refusal = Rejection::new(code, error.first.message.clone());
        if let Ok(Json::Object(details)) = serde_json::to_value(&error) {
            refusal.details = details;
        }
        let failure = Self::new(Exit::Usage, error.to_string());
        Self { is_rendered: true, refusal: Some(Box::new(refusal)), ..failure }
    }
}

impl From<tenure_embedded::Error> for Failure {
    fn from(error: tenure_embedded::Error) -> Self {
        match error {
            tenure_embedded::Error::Open(error) => error.into(),
            tenure_embedded::Error::Refused(rejection) => rejection.into(),
            tenure_embedded::Error::Make { .. } => {
                Self::caused(Exit::Unavailable, &error).help(ANOTHER_DIRECTORY)
            }
            _ => Self::caused(Exit::Usage, &error),
        }
    }
}

const ANOTHER_DIRECTORY: &str = "name another directory with --data or TENURE_DATA";
const ANOTHER_PLACE: &str = "name another directory with --data or TENURE_DATA, \
     or a cluster with --nats or TENURE_NATS_URL";

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        let (exit, help) = match &error {
            OpenError::Missing(_) => (Exit::NotFound, ANOTHER_PLACE),
            OpenError::NotADirectory(_) => (Exit::Usage, ANOTHER_DIRECTORY),
            OpenError::NotWritable { .. } => (Exit::Unavailable, ANOTHER_DIRECTORY),
            OpenError::Locked { .. } => (
                Exit::Unavailable,
                "wait until it has ended, or name another directory with --data; \
                 removing the file `lock` would not free it",
            ),
            OpenError::Io { .. } => (Exit::Unavailable, ANOTHER_DIRECTORY),
        };
        Self::caused(exit, &error).help(help)
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        let exit = match error {
            ReadError::NotFound => Exit::NotFound,
            ReadError::Damaged { .. }
            | ReadError::NotOwner
            | ReadError::Unavailable(_)
            | ReadError::Failed(_) => Exit::Unavailable,
        };
        Self::caused(exit, &error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CTRL-09: people get the ids and what to do; programs get the refusal unchanged.
    #[test]
    fn a_refusal_names_what_it_is_about_and_what_to_do() {
        let ids: Vec<Json> = (0..12).map(|n| format!("s{n}").into()).collect();
        let refusal = Rejection::new(Code::RequiredStepsIncomplete, "steps are not completed")
            .with("step_ids", ids)
            .with("op_index", 3);
        let failure = Failure::from(refusal.clone());
        assert_eq!(
            failure.message,
            "required_steps_incomplete: steps are not completed: s0, s1, s2, s3, s4, s5, s6, s7, s8, s9 \
             and 2 more (operations[3])"
        );
        let mut told = failure.to_json();
        assert!(told["help"].as_str().unwrap().contains("tenure step complete"), "{told}");
        told.as_object_mut().unwrap().remove("help");
        assert_eq!(told, json!(refusal));

        let ours = Failure::new(Exit::Usage, "no such thing").help("look");
        assert_eq!(ours.to_json(), json!({"message": "no such thing", "help": "look"}));
    }
}
