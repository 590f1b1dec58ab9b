//! Finds the files in which the commands of Attempts have left what they wrote.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Component, Path, PathBuf};

use tenure_core::id::AttemptId;
use tenure_core::record::Artifact;
use tenure_core::status::{ArtifactKind, Outcome};
use tenure_core::task::Attempt;
use tenure_core::view::View;
use tenure_local::check_real_dir;
use tenure_ports::journal::TaskKey;
use tenure_sdk::worker::builtin::EXEC;
use tenure_sdk::worker::{AttemptDir, open_log};

use crate::answer::Stream;
use crate::place::TaskReader;

/// How many directories an Attempt has below that for all files: of its session, Task and Step, and its own.
const DIRS: usize = 4;

/// What one command wrote to one stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommandLog {
    pub(crate) stream: Stream,
    pub(crate) path: PathBuf,
}

impl CommandLog {
    /// The kind of artifact as which its worker records it.
    pub(crate) const fn kind(&self) -> ArtifactKind {
        kind_of(self.stream)
    }

    /// Its size in bytes; none if there is no such file, or a link leads to it.
    pub(crate) fn size(&self) -> Option<u64> {
        let found = self.check_dirs().and_then(|()| fs::symlink_metadata(&self.path)).ok()?;
        found.is_file().then_some(found.len())
    }

    /// Opens it; none if there is no such file.
    ///
    /// # Errors
    /// The system refuses, it is no regular file, or a link is on the way.
    pub(super) fn open(&self) -> io::Result<Option<File>> {
        match self.check_dirs() {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            checked => checked.and_then(|()| open_log(&self.path)),
        }
    }

    /// Makes sure that no link is among the directories of the Attempt: in a data directory from elsewhere one could
    /// lead to any other.
    fn check_dirs(&self) -> io::Result<()> {
        self.path.ancestors().skip(1).take(DIRS).try_for_each(check_real_dir)
    }
}

/// A log that this machine has not.
#[derive(Debug)]
pub(crate) struct AwayLog {
    /// The log, with its place as far as that is known.
    pub(crate) log: CommandLog,
    /// Whether its worker has recorded it, so that there is one, or was.
    pub(crate) is_recorded: bool,
}

/// The logs of one Attempt.
#[derive(Debug)]
pub(crate) struct FoundLogs {
    /// Those that this machine has.
    pub(crate) here: Vec<CommandLog>,
    /// The others.
    pub(crate) away: Vec<AwayLog>,
}

/// Knows where the logs of a Task are.
pub(crate) struct LogFinder<'a> {
    key: TaskKey,
    /// Where the commands of a data directory leave their files.
    files: Option<PathBuf>,
    /// The logs that workers have recorded.
    recorded: BTreeMap<AttemptId, Vec<&'a Artifact>>,
}

impl<'a> LogFinder<'a> {
    /// A finder that knows only the data directory.
    pub(crate) fn of_directory(data: &TaskReader, key: &TaskKey) -> Self {
        Self { key: key.clone(), files: data.files(), recorded: BTreeMap::new() }
    }

    /// A finder that also knows what the Task has recorded.
    pub(crate) fn new(data: &TaskReader, key: &TaskKey, view: &View<'a>) -> Self {
        Self::of_directory(data, key).with_recorded(view)
    }

    /// A finder that knows only what a Task of a cluster has recorded.
    pub(crate) fn of_cluster(key: &TaskKey, view: &View<'a>) -> Self {
        let finder = Self { key: key.clone(), files: None, recorded: BTreeMap::new() };
        finder.with_recorded(view)
    }

    fn with_recorded(mut self, view: &View<'a>) -> Self {
        for artifact in view.artifacts() {
            let is_log = matches!(artifact.given.kind, ArtifactKind::Stdout | ArtifactKind::Stderr);
            if let Some(attempt) = artifact.attempt_id.filter(|_| is_log) {
                self.recorded.entry(attempt).or_default().push(artifact);
            }
        }
        self
    }

    /// The logs that an Attempt has or will have in the data directory; none of a cluster.
    pub(crate) fn expected(&self, attempt: &Attempt) -> Vec<CommandLog> {
        self.files.as_deref().map(|files| self.below(files, attempt)).unwrap_or_default()
    }

    /// The logs of an Attempt below a directory for all files.
    fn below(&self, files: &Path, attempt: &Attempt) -> Vec<CommandLog> {
        let dir = AttemptDir::new(files, &self.key, &attempt.step_id, attempt.ordinal);
        vec![
            CommandLog { stream: Stream::Stdout, path: dir.stdout() },
            CommandLog { stream: Stream::Stderr, path: dir.stderr() },
        ]
    }

    /// The logs of an Attempt: those in the data directory, or else those that its worker has recorded.
    pub(crate) fn find(&self, view: &View<'_>, attempt: &Attempt) -> FoundLogs {
        let mut found = FoundLogs { here: self.expected(attempt), away: Vec::new() };
        found.here.retain(|log| log.size().is_some());
        let recorded = self.recorded.get(&attempt.attempt_id);
        for stream in [Stream::Stdout, Stream::Stderr] {
            if found.here.iter().any(|log| log.stream == stream) {
                continue;
            }
            let of_kind = |artifact: &&&Artifact| artifact.given.kind == kind_of(stream);
            let Some(artifact) = recorded.and_then(|all| all.iter().rfind(of_kind)) else {
                continue;
            };
            let (uri, size) = (artifact.given.uri.as_deref(), artifact.given.size_bytes);
            let Some(uri) = uri.filter(|_| size != Some(0)) else { continue };
            let named = local(uri).map(|path| CommandLog { stream, path: path.to_owned() });
            // A worker could name any file of this machine. Only one is read that lies where the log of
            // this Attempt would lie, and has its size.
            let place =
                self.below(Path::new(""), attempt).into_iter().find(|log| log.stream == stream);
            let is_it = |log: &CommandLog| {
                let may_be = place.as_ref().is_some_and(|place| is_below(&log.path, &place.path));
                may_be && size.is_some() && log.size() == size
            };
            match named.filter(is_it) {
                Some(log) => found.here.push(log),
                None => found.away.push(AwayLog {
                    log: CommandLog { stream, path: uri.into() },
                    is_recorded: true,
                }),
            }
        }
        let is_nowhere = found.here.is_empty() && found.away.is_empty();
        if is_nowhere && self.files.is_none() && has_unrecorded(view, attempt) {
            // Only the worker knows the rest of the path.
            let all = self.below(Path::new(""), attempt).into_iter();
            found.away.extend(all.map(|log| AwayLog { log, is_recorded: false }));
        }
        found
    }
}

const fn kind_of(stream: Stream) -> ArtifactKind {
    match stream {
        Stream::Stdout => ArtifactKind::Stdout,
        Stream::Stderr => ArtifactKind::Stderr,
    }
}

/// The path of a file on this machine.
fn local(uri: &str) -> Option<&Path> {
    let path = match uri.strip_prefix("file://") {
        Some(rest) => rest.strip_prefix("localhost").unwrap_or(rest),
        None => uri,
    };
    Some(Path::new(path)).filter(|path| path.is_absolute())
}

/// Whether a path ends with this place, and goes down only.
fn is_below(path: &Path, place: &Path) -> bool {
    let goes_down = |part| matches!(part, Component::RootDir | Component::Normal(_));
    path.ends_with(place) && path.components().all(goes_down)
}

/// Whether an Attempt may have logs of which its worker has not told: workers tell of them at the end.
fn has_unrecorded(view: &View<'_>, attempt: &Attempt) -> bool {
    let is_command =
        view.step_at(attempt.step).is_some_and(|step| step.spec.handler.as_str() == EXEC);
    let has_told = matches!(attempt.outcome, Some(Outcome::Completed | Outcome::Failed));
    let never_ran = attempt.was_released() && attempt.begun_at.is_none();
    is_command && !has_told && !never_ran
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A data directory from elsewhere may have a link at any level.
    #[test]
    fn no_link_leads_to_a_log() {
        for level in ["s", "s/t", "s/t/a", "s/t/a/1", "s/t/a/1/stdout.log"] {
            let (files, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            let theirs = elsewhere.path().join("s/t/a/1");
            fs::create_dir_all(&theirs).unwrap();
            fs::write(theirs.join("stdout.log"), "theirs").unwrap();
            let log = |files: &Path| CommandLog {
                stream: Stream::Stdout,
                path: files.join("s/t/a/1/stdout.log"),
            };
            let real = log(elsewhere.path());
            assert!(real.size() == Some(6) && real.open().unwrap().is_some());
            let missing = log(files.path());
            assert!(missing.size().is_none() && missing.open().unwrap().is_none());
            let link = files.path().join(level);
            fs::create_dir_all(link.parent().unwrap()).unwrap();
            symlink(elsewhere.path().join(level), link).unwrap();
            assert_eq!(missing.size(), None, "{level}");
            let error = missing.open().unwrap_err().to_string();
            assert!(error.contains(level) || level.ends_with("log"), "{error}");
        }
    }

    /// A worker could record any file of the machine on which somebody asks for logs.
    #[test]
    fn only_files_at_the_place_of_a_log_are_read() {
        let place = Path::new("s/t/a/1/stdout.log");
        assert!(is_below(Path::new("/files/s/t/a/1/stdout.log"), place));
        for other in [
            "/etc/passwd",
            "/files/s/t/a/1/stdout.log/../../../../../etc/passwd",
            "/files/../s/t/a/1/stdout.log",
            "/files/s/t/a/2/stdout.log",
            "/files/xs/t/a/1/stdout.log",
        ] {
            assert!(!is_below(Path::new(other), place), "{other}");
        }
    }

    #[test]
    fn only_files_of_this_machine_are_looked_for() {
        assert_eq!(local("/a/b.log"), Some(Path::new("/a/b.log")));
        assert_eq!(local("file:///a/b.log"), Some(Path::new("/a/b.log")));
        assert_eq!(local("file://localhost/a/b.log"), Some(Path::new("/a/b.log")));
        assert_eq!(local("file://elsewhere/a/b.log"), None);
        assert_eq!(local("s3://bucket/b.log"), None);
    }
}
