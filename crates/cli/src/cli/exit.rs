//! How the process ends: exit codes, and failures with what to do about them.

use std::error::Error as StdError;
use std::process::ExitCode;

use tenure::embedded;
use tenure::taskfile::TaskFileError;
use tenure_core::{Code, Rejection};
use tenure_local::OpenError;
use tenure_ports::journal::ReadError;

/// What the process says to whoever started it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Exit {
    /// Done; a Task that was run has completed.
    Ok = 0,
    /// The Task failed or was cancelled; a Run that was waited for was lost, cancelled or the like.
    TaskFailed = 1,
    /// The command line or the input file is wrong. (clap exits with the same code.)
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
            Code::ValidationError | Code::DependencyCycle => Self::Usage,
            Code::TaskNotFound | Code::StepNotFound | Code::RunNotFound => Self::NotFound,
            Code::ToolNotAvailable
            | Code::PermissionDenied
            | Code::StepOutOfScope
            | Code::Unauthenticated => Self::NotAllowed,
            Code::StorageError | Code::NotOwner | Code::Unavailable => Self::Unavailable,
            Code::PathConflict
            | Code::StepHasDependents
            | Code::TaskTerminal
            | Code::StepAlreadyClaimed
            | Code::StepAlreadyClaimedByRun
            | Code::VersionConflict
            | Code::IdempotencyConflict
            | Code::TaskIdConflict
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
            | Code::AcceptanceUnmet => Self::Conflict,
        }
    }
}

/// Why a command did not do what it was asked to, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// What the process ends with.
    pub(crate) exit: Exit,
    /// What is wrong, without the word "error".
    pub(crate) message: String,
    /// What to do about it.
    pub(crate) help: Option<String>,
    /// The message is laid out already and carries its own "error:".
    pub(crate) is_rendered: bool,
}

impl Failure {
    /// A failure without advice.
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), help: None, is_rendered: false }
    }

    /// Adds what to do about it.
    #[must_use]
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// An error with all its causes in one line.
    pub(crate) fn caused(exit: Exit, error: &dyn StdError) -> Self {
        Self::new(exit, chain(error))
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
    fn from(rejection: Rejection) -> Self {
        let failure = Self::new(Exit::of(rejection.code), rejection.to_string());
        match advice(rejection.code) {
            Some(help) => failure.help(help),
            None => failure,
        }
    }
}

fn advice(code: Code) -> Option<&'static str> {
    match code {
        Code::StorageError => Some("see that the disk has room and the data directory is writable"),
        Code::Unavailable => Some("try again"),
        Code::Unauthenticated => Some(super::cluster::LOGIN),
        Code::TaskTerminal => Some(
            "what has ended stays as it is; `tenure task retry TASK_ID --as NEW_ID` makes it again",
        ),
        _ => None,
    }
}

impl From<TaskFileError> for Failure {
    fn from(error: TaskFileError) -> Self {
        Self { is_rendered: true, ..Self::new(Exit::Usage, error.to_string()) }
    }
}

impl From<embedded::Error> for Failure {
    fn from(error: embedded::Error) -> Self {
        match error {
            embedded::Error::Open(error) => error.into(),
            embedded::Error::Refused(rejection) => rejection.into(),
            embedded::Error::Make { .. } => {
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
                "wait until it has ended, or name another directory with --data",
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
            ReadError::Damaged { .. } | ReadError::NotOwner | ReadError::Failed(_) => {
                Exit::Unavailable
            }
        };
        Self::caused(exit, &error)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::caused(Exit::Unavailable, &error)
    }
}
