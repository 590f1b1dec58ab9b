//! What the tests of the journal share.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tempfile::TempDir;
use tenure_core::Commit;
use tenure_local::{Disk, Files, JournalOptions, JsonlJournal, JsonlReader, OpenReport};
use tenure_ports::Journal;
use tenure_ports::journal::{AppendError, ReadError, TaskKey};
use tenure_testkit::conformance::History;

/// As few threads as there can be: tests open journals by the thousand.
pub(crate) const SMALL: JournalOptions =
    JournalOptions { sync_threads: 1, read_threads: 1, open_files: None };

/// A fresh data directory, in memory where that is possible.
pub(crate) fn data_dir() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() }.unwrap()
}

pub(crate) fn open(dir: &Path) -> (JsonlJournal, OpenReport) {
    JsonlJournal::open(dir, SMALL).unwrap()
}

pub(crate) fn wal(dir: &Path, history: &History) -> PathBuf {
    let session = dir.join("tasks").join(history.key.session_id.as_str());
    session.join(format!("{}.wal.jsonl", history.wal_name))
}

pub(crate) async fn create<J: Journal>(journal: &J, history: &mut History) {
    let commit = history.create();
    journal.create(&history.key, &history.wal_name, vec![commit]).await.unwrap();
}

/// Appends what `make` adds to the history, and takes it back from there if that fails.
pub(crate) async fn append<J: Journal>(
    journal: &J,
    history: &mut History,
    make: impl FnOnce(&mut History),
) -> Result<(), AppendError> {
    let (after, known) = (history.last_seq(), history.commits.len());
    make(history);
    let commits = history.commits[known..].to_vec();
    let result = journal.append(&history.key, after, commits).await;
    if result.is_err() {
        history.commits.truncate(known);
    }
    result
}

pub(crate) async fn work<J: Journal>(
    journal: &J,
    history: &mut History,
) -> Result<(), AppendError> {
    append(journal, history, |history| drop(history.work(2))).await
}

pub(crate) fn equals(read: &[Commit], written: &[Arc<Commit>]) -> bool {
    read.iter().eq(written.iter().map(|commit| &**commit))
}

pub(crate) async fn assert_holds<J: Journal>(journal: &J, history: &History) {
    let read = tenure_testkit::conformance::read_all(journal, &history.key).await.unwrap();
    assert!(equals(&read, &history.commits), "{read:#?}");
}

/// The commits that a reader is handed, and how the read ends.
pub(crate) async fn read_with(
    reader: &JsonlReader,
    key: &TaskKey,
) -> (Vec<Commit>, Result<(), ReadError>) {
    let commits = Arc::new(Mutex::new(Vec::new()));
    let into = commits.clone();
    let each = move |commit| {
        into.lock().push(commit);
        std::ops::ControlFlow::Continue(())
    };
    let result = reader.read(key, each).await;
    let commits = std::mem::take(&mut *commits.lock());
    (commits, result)
}

/// The same of a journal.
pub(crate) async fn read_from<J: Journal>(
    journal: &J,
    key: &TaskKey,
) -> (Vec<Commit>, Result<(), ReadError>) {
    let commits = Arc::new(Mutex::new(Vec::new()));
    let into = commits.clone();
    let each = move |commit| {
        into.lock().push(commit);
        std::ops::ControlFlow::Continue(())
    };
    let result = journal.read(key, 0, each).await;
    let commits = std::mem::take(&mut *commits.lock());
    (commits, result)
}

/// Line number, offset and text of every line of a file.
pub(crate) fn lines_of(bytes: &[u8]) -> Vec<(u64, u64, &[u8])> {
    let mut offset = 0;
    let mut lines = Vec::new();
    for (number, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        lines.push((number as u64 + 1, offset, line));
        offset += line.len() as u64;
    }
    lines
}

/// What was done to a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Did {
    Create(PathBuf),
    Open(PathBuf),
    Write(PathBuf, u64, usize),
    Truncate(PathBuf, u64),
    Sync(PathBuf),
    /// It began.
    SyncDir(PathBuf),
    /// It ended.
    SyncedDir(PathBuf),
    /// The index, which was so long.
    SyncIndex(u64),
    Remove(PathBuf),
}

/// What may fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Create,
    /// After so many bytes, with a full disk.
    Write(usize),
    Truncate,
    Sync,
    SyncDir,
    Remove,
    Look,
}

/// The file system, which fails when told to and remembers what was done.
#[derive(Debug, Clone, Default)]
pub(crate) struct TestDisk {
    pub(crate) did: Arc<Mutex<Vec<Did>>>,
    pub(crate) script: Arc<Mutex<VecDeque<Op>>>,
    pub(crate) dir_sync_takes: Duration,
}

#[derive(Debug)]
pub(crate) struct TestFile {
    path: PathBuf,
    file: File,
}

impl TestDisk {
    /// These fail next, each once, in this order; what comes between succeeds.
    pub(crate) fn fail(&self, ops: impl IntoIterator<Item = Op>) {
        self.script.lock().extend(ops);
    }

    pub(crate) fn is_spent(&self) -> bool {
        self.script.lock().is_empty()
    }

    /// What was done since the last call.
    pub(crate) fn take(&self) -> Vec<Did> {
        std::mem::take(&mut self.did.lock())
    }

    fn note(&self, did: Did) {
        self.did.lock().push(did);
    }

    fn meets(&self, is: impl Fn(&Op) -> bool) -> Option<Op> {
        let mut script = self.script.lock();
        script.front().is_some_and(is).then(|| script.pop_front()).flatten()
    }

    fn check(&self, op: Op) -> io::Result<()> {
        match self.meets(|next| *next == op) {
            Some(_) => Err(io::Error::other("injected")),
            None => Ok(()),
        }
    }
}

impl Disk for TestDisk {
    type File = TestFile;

    fn create_new(&self, path: &Path) -> io::Result<TestFile> {
        self.note(Did::Create(path.to_owned()));
        self.check(Op::Create)?;
        Ok(TestFile { path: path.to_owned(), file: Files.create_new(path)? })
    }

    fn open(&self, path: &Path) -> io::Result<TestFile> {
        self.note(Did::Open(path.to_owned()));
        Ok(TestFile { path: path.to_owned(), file: Files.open(path)? })
    }

    fn write_at(&self, file: &TestFile, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.note(Did::Write(file.path.clone(), offset, bytes.len()));
        match self.meets(|next| matches!(next, Op::Write(_))) {
            Some(Op::Write(0)) => Err(io::ErrorKind::StorageFull.into()),
            Some(Op::Write(kept)) => {
                self.script.lock().push_front(Op::Write(0));
                Files.write_at(&file.file, &bytes[..kept.min(bytes.len())], offset)
            }
            _ => Files.write_at(&file.file, bytes, offset),
        }
    }

    fn truncate(&self, file: &TestFile, len: u64) -> io::Result<()> {
        self.note(Did::Truncate(file.path.clone(), len));
        self.check(Op::Truncate)?;
        Files.truncate(&file.file, len)
    }

    fn sync(&self, file: &TestFile) -> io::Result<()> {
        self.note(Did::Sync(file.path.clone()));
        self.check(Op::Sync)?;
        Files.sync(&file.file)
    }

    fn len_at(&self, file: &TestFile, path: &Path) -> io::Result<Option<u64>> {
        self.check(Op::Look)?;
        Files.len_at(&file.file, path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        Files.create_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.note(Did::SyncDir(path.to_owned()));
        std::thread::sleep(self.dir_sync_takes);
        self.check(Op::SyncDir)?;
        Files.sync_dir(path)?;
        self.note(Did::SyncedDir(path.to_owned()));
        Ok(())
    }

    fn sync_index(&self, index: &File) -> io::Result<()> {
        self.note(Did::SyncIndex(index.metadata()?.len()));
        Files.sync_index(index)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.note(Did::Remove(path.to_owned()));
        self.check(Op::Remove)?;
        Files.remove(path)
    }
}

/// Copies a data directory as it is now, as if its process had died.
pub(crate) fn crashed(from: &Path) -> TempDir {
    let to = data_dir();
    copy(from, to.path());
    to
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            fs::create_dir(&to).unwrap();
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}
