//! The errors around a command: those of running it, not the failures of the command itself.

use std::io;
use std::path::{Path, PathBuf};

use super::OUTPUT_BYTES_MAX;
use super::spec::SpecError;

/// Why a command could not be run, or why its outcome is unknown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExecError {
    /// The extra environment breaks the rules for the environment of a spec.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The program is missing, may not be executed, or the system is out of processes.
    #[error("cannot start the program `{program}`")]
    Start {
        /// The program as the spec names it.
        program: String,
        /// What the system said.
        source: io::Error,
    },
    /// `cwd` names something else than a directory.
    #[error("the working directory `{}` is not a directory", path.display())]
    Cwd {
        /// The value of `cwd`.
        path: PathBuf,
    },
    /// One of the files around the command could not be used.
    #[error("cannot {action} `{}`", path.display())]
    File {
        /// What was tried, for the message.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The command has ended, and one of its files could not be used.
    #[error("cannot {action} `{}`, which the command left", path.display())]
    Left {
        /// What was tried, for the message.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The process that watches over the command did not start.
    #[error("cannot start the guard of the command")]
    Guard {
        /// What the system said.
        source: io::Error,
    },
    /// Somebody killed the guard. The process group of the command was killed too; how the command
    /// would have ended is unknown.
    #[error("the guard of the command was lost, so the command was killed")]
    GuardLost,
    /// The command survived SIGKILL: it hangs in the kernel, or runs as another user.
    #[error("process {pid} is still alive after SIGKILL")]
    Unkillable {
        /// The command's first process.
        pid: i32,
    },
    /// The command exited with 0 and left an invalid output.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// The tokio runtime shut down under the command.
    #[error("the runtime is shutting down")]
    RuntimeShutDown,
}

impl ExecError {
    /// Whether the same command may succeed another time, because its spec is not at fault.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Guard { .. } | Self::GuardLost | Self::RuntimeShutDown => true,
            Self::Start { source, .. } | Self::File { source, .. } => is_shortage(source),
            Self::Left { source, .. } => is_shortage(source) || is_of_disk(source),
            Self::Spec(_) | Self::Cwd { .. } | Self::Unkillable { .. } | Self::Output(_) => false,
        }
    }

    /// Whether the command has not begun because the worker lacks something: space for its files,
    /// processes, file descriptors, memory. Another worker may have it, and the command is not at
    /// fault.
    pub fn is_of_worker(&self) -> bool {
        match self {
            Self::Guard { .. } | Self::File { .. } => true,
            Self::Start { source, .. } => is_shortage(source) && !is_busy(source),
            Self::Spec(_) | Self::Cwd { .. } | Self::Left { .. } | Self::GuardLost => false,
            Self::Unkillable { .. } | Self::Output(_) | Self::RuntimeShutDown => false,
        }
    }

    /// Whether the worker lacks something that fewer commands at a time would need less of.
    pub fn is_shortage(&self) -> bool {
        match self {
            Self::Guard { source } | Self::File { source, .. } | Self::Start { source, .. } => {
                is_shortage(source) && !is_busy(source)
            }
            _ => false,
        }
    }

    /// As [`file`](Self::file), for actions after the command has ended.
    pub(super) fn left(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Left { action, path, source }
    }

    /// For `map_err`: `action` completes "cannot ... `path`".
    pub(super) fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { action, path, source }
    }
}

/// Whether it is a shortage that may pass: of processes, file descriptors, memory or disk space.
pub(crate) fn is_shortage(error: &io::Error) -> bool {
    use nix::libc::{EAGAIN, EMFILE, ENFILE, ENOMEM, ENOSPC, ETXTBSY};
    let errno = error.raw_os_error();
    [EAGAIN, EMFILE, ENFILE, ENOMEM, ENOSPC, ETXTBSY].iter().any(|short| errno == Some(*short))
}

/// Whether the disk fails, or the worker's directory is no longer a directory.
fn is_of_disk(error: &io::Error) -> bool {
    use nix::libc::{EIO, ENOTDIR, EROFS, ESTALE};
    let errno = error.raw_os_error();
    [EIO, ENOTDIR, EROFS, ESTALE].iter().any(|failed| errno == Some(*failed))
}

/// Whether another process has the program open for writing.
fn is_busy(error: &io::Error) -> bool {
    error.raw_os_error() == Some(nix::libc::ETXTBSY)
}

/// What is wrong with the file a command left in `$TENURE_OUTPUT`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutputError {
    /// It is larger than any value may be (VALUE-02).
    #[error(
        "$TENURE_OUTPUT holds more than {OUTPUT_BYTES_MAX} bytes: write large results elsewhere \
         and leave a reference to them"
    )]
    TooLarge,
    /// It is not text.
    #[error("$TENURE_OUTPUT must hold one JSON value in UTF-8")]
    NotUtf8(#[source] std::str::Utf8Error),
    /// It is not JSON, or more than one value.
    #[error("$TENURE_OUTPUT must hold one JSON value; a plain text needs double quotes")]
    NotJson(#[source] serde_json::Error),
    /// It is a directory, a pipe or the like.
    #[error("$TENURE_OUTPUT must stay a regular file")]
    NotAFile,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A command whose output cannot be read because of the worker's disk may run once more; a
    /// command that made its output unreadable itself would do so again.
    #[test]
    fn what_the_disk_has_lost_is_tried_again() {
        let left = |errno| {
            let source = io::Error::from_raw_os_error(errno);
            ExecError::left("open", Path::new("output.json"))(source).is_retryable()
        };
        assert!(left(nix::libc::ENOTDIR) && left(nix::libc::EIO) && left(nix::libc::ENOSPC));
        assert!(!left(nix::libc::EACCES) && !left(nix::libc::ELOOP));
    }
}
