//! One log: verified, written, synced, and brought back to a known state when a write fails.

use std::io;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;
use tenure_core::event::Commit;
use tenure_ports::journal::{AppendError, ReadError, TaskKey};
use tenure_wire::stored::encode;

use super::catalog::{CatalogEntry, Log, LogCatalog, Whole};
use super::disk::Disk;
use super::index::FileIndex;
use super::layout::Layout;
use super::lock::Lock;
use super::replay::LogSource;
use super::report::Repair;
use super::tail::{Tail, TailError, read_tail};
use crate::regular::read_regular;

/// The logs of a data directory with what the process knows of them.
#[derive(Debug)]
pub(crate) struct Logs<D: Disk> {
    pub(crate) disk: D,
    pub(crate) layout: Layout,
    pub(crate) catalog: LogCatalog,
    pub(crate) index: FileIndex,
    pub(crate) files: OpenFiles<D::File>,
    /// Torn tails cut so far, until the report of the opening takes them.
    pub(crate) repairs: Mutex<Option<Vec<Repair>>>,
    /// Nothing is written unless this lock is in force.
    pub(crate) lock: Lock,
}

/// Open log files; the least recently used is closed first.
#[derive(Debug)]
pub(crate) struct OpenFiles<F> {
    files: Mutex<LruCache<u64, Arc<F>>>,
}

impl<F> OpenFiles<F> {
    pub(crate) fn new(max: usize) -> Self {
        let max = NonZeroUsize::new(max).unwrap_or(NonZeroUsize::MIN);
        Self { files: Mutex::new(LruCache::new(max)) }
    }

    pub(crate) fn get(
        &self,
        slot: &CatalogEntry,
        open: impl FnOnce() -> io::Result<F>,
    ) -> io::Result<Arc<F>> {
        if let Some(file) = self.files.lock().get(&slot.id) {
            return Ok(file.clone());
        }
        let file = Arc::new(open()?);
        self.put(slot, file.clone());
        Ok(file)
    }

    pub(crate) fn put(&self, slot: &CatalogEntry, file: Arc<F>) {
        let evicted = self.files.lock().push(slot.id, file);
        drop(evicted); // Closes the file after the lock is released.
    }

    pub(crate) fn close(&self, slot: &CatalogEntry) {
        let closed = self.files.lock().pop(&slot.id);
        drop(closed);
    }
}

/// Why a log cannot be used.
#[derive(Debug)]
pub(crate) enum Unusable {
    Damaged,
    Other(String),
}

/// Why the journal writes nothing to a log.
#[derive(Debug)]
enum WriteBlock {
    /// Another process may have written to it.
    Changed(String),
    /// It could not be found out whether another process has.
    Unseen(String),
}

impl<D: Disk> Logs<D> {
    /// Closes the index, and marks it as complete if every log is known to be as its row says.
    pub(crate) fn close(&self) {
        let in_doubt = |slot: &Arc<CatalogEntry>| slot.is_in_doubt();
        if self.lock.check().is_err() || self.catalog.slots(None).iter().any(in_doubt) {
            self.index.doubt();
        }
        self.index.close(&self.disk);
    }

    pub(crate) fn path(&self, slot: &CatalogEntry) -> PathBuf {
        self.layout.wal(&slot.key.session_id, &slot.wal_name)
    }

    fn file(&self, slot: &CatalogEntry) -> io::Result<Arc<D::File>> {
        self.files.get(slot, || self.disk.open(&self.path(slot)))
    }

    /// How much of the log is whole and on disk. If that is not known, this reads the end of the
    /// file again and cuts its torn tail, if any.
    pub(crate) fn verify(&self, slot: &CatalogEntry, log: &mut Log) -> Result<Whole, Unusable> {
        let sync = match log {
            Log::Good(whole) => return Ok(*whole),
            Log::Closed(why) => return Err(Unusable::Other(why.to_string())),
            Log::Creating => return Err(Unusable::Other("the task is being created".into())),
            Log::Unverified { sync } => *sync,
        };
        let tail = self.settle(slot, sync).map_err(|error| match error {
            TailError::Damaged => {
                slot.facts.lock().damaged = true;
                Unusable::Damaged
            }
            TailError::Io(error) => Unusable::Other(self.failed(slot, &error)),
        })?;
        slot.facts.lock().take_tail(&tail);
        let whole = Whole { len: tail.len, last_seq: tail.last.wal_seq };
        *log = Log::Good(whole);
        Ok(whole)
    }

    fn settle(&self, slot: &CatalogEntry, sync: bool) -> Result<Tail, TailError> {
        let path = self.path(slot);
        let file = read_regular(&path).map_err(TailError::Io)?;
        let size = file.metadata().map_err(TailError::Io)?.len();
        let tail = read_tail(&file, size)?.ok_or(TailError::Damaged)?;
        if tail.len < size || sync {
            self.cut(slot, tail.len, size).map_err(TailError::Io)?;
        }
        Ok(tail)
    }

    /// Cuts a torn tail and makes the rest durable.
    fn cut(&self, slot: &CatalogEntry, len: u64, size: u64) -> io::Result<()> {
        self.lock.check()?;
        let file = self.file(slot)?;
        if len < size {
            self.disk.truncate(&file, len)?;
        }
        self.disk.sync(&file)?;
        if len < size {
            self.report(Repair { file: self.path(slot), offset: len, bytes: size - len });
        }
        Ok(())
    }

    pub(crate) fn report(&self, repair: Repair) {
        tracing::warn!(
            file = %repair.file.display(), offset = repair.offset, bytes = repair.bytes,
            "cut off a torn tail"
        );
        if let Some(repairs) = &mut *self.repairs.lock() {
            repairs.push(repair);
        }
    }

    fn failed(&self, slot: &CatalogEntry, error: &io::Error) -> String {
        format!("{}: {error}", self.path(slot).display())
    }

    /// Adds commits to a log whose last event is `after`.
    pub(crate) fn append(
        &self,
        slot: &CatalogEntry,
        after: u64,
        commits: &[Arc<Commit>],
        buffer: &mut Vec<u8>,
    ) -> Result<(), AppendError> {
        let mut log = slot.log.lock();
        let whole = self.verify(slot, &mut log).map_err(|why| match why {
            Unusable::Damaged => {
                AppendError::Failed(format!("{} is damaged", self.path(slot).display()))
            }
            Unusable::Other(message) => AppendError::Failed(message),
        })?;
        if whole.last_seq != after {
            return Err(AppendError::Fenced { expected: after, last: whole.last_seq });
        }
        let last_seq = encode_all(&slot.key, after, commits, buffer)?;
        let file =
            self.file(slot).map_err(|error| AppendError::Failed(self.failed(slot, &error)))?;
        match self.check_untouched(slot, &file, whole.len) {
            Ok(()) => {}
            // Nothing was written, and nothing is known to be wrong: the next append checks again.
            Err(WriteBlock::Unseen(why)) => return Err(AppendError::Failed(why)),
            Err(WriteBlock::Changed(why)) => {
                tracing::error!(task = %slot.key, "{why}");
                self.files.close(slot);
                *log = Log::Closed(why.as_str().into());
                return Err(AppendError::Failed(why));
            }
        }
        // If this thread dies before it is done, the log is verified again.
        *log = Log::Unverified { sync: true };
        let (state, result) = self.write(slot, &file, buffer, whole);
        *log = state;
        result?;
        let len = whole.len + buffer.len() as u64;
        *log = Log::Good(Whole { len, last_seq });
        self.written(slot, commits, len);
        Ok(())
    }

    /// Checks that no other process can have written here: the lock is in force, and the log is the
    /// same file, as long as this process left it. So nothing overwrites what others wrote.
    fn check_untouched(
        &self,
        slot: &CatalogEntry,
        file: &D::File,
        len: u64,
    ) -> Result<(), WriteBlock> {
        match self.lock.is_in_force() {
            Ok(true) => {}
            Ok(false) => return Err(WriteBlock::Changed(self.lock.is_lost())),
            Err(error) => return Err(WriteBlock::Unseen(error.to_string())),
        }
        let path = self.path(slot);
        let why = match self.disk.len_at(file, &path) {
            Ok(Some(found)) if found == len => return Ok(()),
            Ok(Some(found)) => format!("it has {found} bytes and was left with {len}"),
            Ok(None) => "it was moved, removed or replaced".into(),
            Err(error) => {
                let why = format!("{} cannot be looked at: {error}", path.display());
                return Err(WriteBlock::Unseen(why));
            }
        };
        Err(WriteBlock::Changed(format!(
            "{}: somebody else has changed this log while this process had it: {why}; this one writes \
             nothing more to it: see that nothing else writes there, and have `tenure wal verify` look \
             at it",
            path.display()
        )))
    }

    /// Writes after the whole commits and syncs. Returns also the state of the log, which a failure
    /// changes.
    fn write(
        &self,
        slot: &CatalogEntry,
        file: &D::File,
        bytes: &[u8],
        whole: Whole,
    ) -> (Log, Result<(), AppendError>) {
        if let Err(error) = self.disk.write_all_at(file, bytes, whole.len) {
            let message = self.failed(slot, &error);
            let undone = self.disk.truncate(file, whole.len).and_then(|()| self.disk.sync(file));
            return match undone {
                Ok(()) => (Log::Good(whole), Err(AppendError::Failed(message))),
                Err(error) => self.give_up(slot, &message, &error),
            };
        }
        if let Err(error) = self.disk.sync(file) {
            let message = self.failed(slot, &error);
            self.files.close(slot);
            return match self.disk.truncate(file, whole.len) {
                Ok(()) => (Log::Unverified { sync: true }, Err(AppendError::MustReread(message))),
                Err(error) => self.give_up(slot, &message, &error),
            };
        }
        (Log::Good(whole), Ok(()))
    }

    /// Closes a log that could not be brought back to its old state: nobody may use it before a restart.
    fn give_up(
        &self,
        slot: &CatalogEntry,
        message: &str,
        error: &io::Error,
    ) -> (Log, Result<(), AppendError>) {
        self.files.close(slot);
        let why = format!("{message}; the log is closed, as it could not be cut back: {error}");
        tracing::error!(task = %slot.key, "{why}");
        (Log::Closed(why.as_str().into()), Err(AppendError::MustReread(why)))
    }

    /// Updates the facts and the index with commits that are now on disk.
    fn written(&self, slot: &CatalogEntry, commits: &[Arc<Commit>], len: u64) {
        let mut facts = slot.facts.lock();
        facts.len = len;
        let has_ended = facts.take_commits(commits);
        drop(facts);
        if has_ended {
            self.files.close(slot);
            self.index.add(std::iter::once(slot.row()));
        }
    }

    /// Passes the commits of a log after event `after` to `each`.
    pub(crate) fn read(
        &self,
        slot: &CatalogEntry,
        after: u64,
        each: impl FnMut(Commit) -> ControlFlow<()>,
    ) -> Result<(), ReadError> {
        let verified = self.verify(slot, &mut slot.log.lock());
        let whole = match verified {
            Ok(whole) => Some(whole.len),
            Err(Unusable::Damaged) => None, // Reading from the start finds where.
            Err(Unusable::Other(message)) => return Err(ReadError::Failed(message)),
        };
        let path = self.path(slot);
        let source = LogSource { path: &path, key: &slot.key, wal_name: &slot.wal_name, whole };
        let result = source.read(after, each);
        match result {
            Err(ReadError::Damaged { .. }) => slot.facts.lock().damaged = true,
            Ok(()) | Err(ReadError::NotFound) if whole.is_none() => {
                return Err(ReadError::Failed(format!("{}: it cannot be read", path.display())));
            }
            _ => {}
        }
        result
    }
}

/// Bytes that an event usually takes, so that a buffer need not grow step by step.
const EVENT_BYTES: usize = 768;

/// Writes commits that follow event `after` into `buffer`. Returns the number of the last event.
pub(crate) fn encode_all(
    key: &TaskKey,
    after: u64,
    commits: &[Arc<Commit>],
    buffer: &mut Vec<u8>,
) -> Result<u64, AppendError> {
    let events: usize = commits.iter().map(|commit| commit.events.len()).sum();
    buffer.reserve(events * EVENT_BYTES);
    let mut last = after;
    for commit in commits {
        if commit.events.is_empty() || commit.first_seq != last + 1 {
            let message = format!("event {} cannot follow event {last}", commit.first_seq);
            return Err(AppendError::Failed(message));
        }
        encode(commit, &key.session_id, &key.task_id, buffer)
            .map_err(|error| AppendError::Failed(error.to_string()))?;
        last = commit.last_seq();
    }
    Ok(last)
}
