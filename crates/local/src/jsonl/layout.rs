//! Paths of the files and directories in a data directory.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tenure_core::id::{SessionId, WalName};

/// What follows a `wal_name` in the name of its file (STORE-12).
const SUFFIX: &str = ".wal.jsonl";

/// What follows it in the name of the file that marks how far events are published (RECOVER-08).
const MARK_SUFFIX: &str = ".published";

/// A data directory.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    data: PathBuf,
}

impl Layout {
    pub(crate) fn new(data: &Path) -> Self {
        Self { data: data.to_owned() }
    }

    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    pub(crate) fn lock(&self) -> PathBuf {
        self.data.join("lock")
    }

    pub(crate) fn index(&self) -> PathBuf {
        self.data.join("index.jsonl")
    }

    pub(crate) fn index_draft(&self) -> PathBuf {
        self.data.join("index.jsonl.new")
    }

    pub(crate) fn tasks(&self) -> PathBuf {
        self.data.join("tasks")
    }

    pub(crate) fn session(&self, session: &SessionId) -> PathBuf {
        self.tasks().join(session.as_str())
    }

    pub(crate) fn wal(&self, session: &SessionId, name: &WalName) -> PathBuf {
        let mut path = self.session(session);
        path.push(format!("{name}{SUFFIX}"));
        path
    }

    pub(crate) fn mark(&self, session: &SessionId, name: &WalName) -> PathBuf {
        let mut path = self.session(session);
        path.push(format!("{name}{MARK_SUFFIX}"));
        path
    }

    /// The sessions that have a directory. Other entries go to `ignored`.
    pub(crate) fn sessions(&self, ignored: &mut Vec<PathBuf>) -> io::Result<Vec<SessionId>> {
        list(&self.tasks(), ignored, |entry| {
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let name = entry.file_name();
            is_dir.then_some(())?;
            SessionId::new(name.to_str()?).ok()
        })
    }

    /// The logs of a session, by name. Other files go to `ignored`.
    pub(crate) fn wals(
        &self,
        session: &SessionId,
        ignored: &mut Vec<PathBuf>,
    ) -> io::Result<Vec<WalName>> {
        list(&self.session(session), ignored, |entry| {
            let name = entry.file_name();
            WalName::new(name.to_str()?.strip_suffix(SUFFIX)?).ok()
        })
        .inspect(|_| ignored.retain(|path| !is_mark(path)))
    }
}

fn is_mark(path: &Path) -> bool {
    path.to_str().is_some_and(|path| path.ends_with(MARK_SUFFIX))
}

fn list<T>(
    dir: &Path,
    ignored: &mut Vec<PathBuf>,
    parse: impl Fn(&fs::DirEntry) -> Option<T>,
) -> io::Result<Vec<T>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        match parse(&entry) {
            Some(item) => found.push(item),
            None => ignored.push(entry.path()),
        }
    }
    Ok(found)
}
