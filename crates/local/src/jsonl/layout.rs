//! Paths of the files and directories in a data directory.
//!
//! A data directory may come from elsewhere. Nothing is looked for behind a link in place of `tasks` or of the
//! directory of a session: it could lead to any directory of the user.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use tenure_core::id::{SessionId, WalName};

use crate::regular::{check_real_dir, read_regular};

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

    /// Opens a log for reading.
    ///
    /// # Errors
    /// Those of the system; `InvalidInput` if a link is on the way.
    pub(crate) fn open_wal(&self, session: &SessionId, name: &WalName) -> io::Result<File> {
        self.check_session(session)?;
        read_regular(&self.wal(session, name))
    }

    /// Makes sure that no link leads away from the directory of a session.
    fn check_session(&self, session: &SessionId) -> io::Result<()> {
        check_real_dir(&self.tasks())?;
        check_real_dir(&self.session(session))
    }

    /// The sessions that have a directory. Other entries go to `ignored`.
    ///
    /// # Errors
    /// Those of the system; `InvalidInput` if a link has the name of `tasks` or of a session.
    pub(crate) fn sessions(&self, ignored: &mut Vec<PathBuf>) -> io::Result<Vec<SessionId>> {
        let is_real = check_real_dir(&self.tasks());
        let mut links = Vec::new();
        let found = list(&self.tasks(), is_real, ignored, |entry| {
            let session = SessionId::new(entry.file_name().to_str()?).ok()?;
            let kind = entry.file_type().ok()?;
            if kind.is_symlink() {
                links.push(entry.path());
            }
            kind.is_dir().then_some(session)
        })?;
        links.iter().try_for_each(|link| check_real_dir(link))?;
        Ok(found)
    }

    /// The logs of a session, by name. Other files go to `ignored`.
    pub(crate) fn wals(
        &self,
        session: &SessionId,
        ignored: &mut Vec<PathBuf>,
    ) -> io::Result<Vec<WalName>> {
        let is_real = self.check_session(session);
        list(&self.session(session), is_real, ignored, |entry| {
            let name = entry.file_name();
            WalName::new(name.to_str()?.strip_suffix(SUFFIX)?).ok()
        })
        .inspect(|_| ignored.retain(|path| !is_mark(path)))
    }
}

fn is_mark(path: &Path) -> bool {
    path.to_str().is_some_and(|path| path.ends_with(MARK_SUFFIX))
}

/// The entries of a directory that has been checked. A missing one is empty.
fn list<T>(
    dir: &Path,
    checked: io::Result<()>,
    ignored: &mut Vec<PathBuf>,
    mut parse: impl FnMut(&fs::DirEntry) -> Option<T>,
) -> io::Result<Vec<T>> {
    let entries = match checked.and_then(|()| fs::read_dir(dir)) {
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
