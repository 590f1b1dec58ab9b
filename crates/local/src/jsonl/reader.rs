//! Reads logs from another process than their writer's: without a lock, and without changing anything.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use tenure_core::event::Commit;
use tenure_core::id::SessionId;
use tenure_core::record::Labels;
use tenure_ports::journal::{Entry, ReadError, TaskKey};
use tokio::sync::oneshot;

use super::head::{FoundLog, identify};
use super::index::{IndexRow, IndexRows, LogPlace};
use super::layout::Layout;
use super::pool::ThreadPool;
use super::replay::LogSource;
use super::startup::{OpenError, check_dir};
use super::tail::{TailError, read_tail};
use crate::regular::read_regular;

/// Threads that read for all users of one reader.
const THREADS: usize = 2;

/// Reads the logs of a data directory while another process may be writing them.
///
/// It sees whole commits, possibly some that the writer is about to sync. It skips a torn tail:
/// only the journal that holds the lock cuts it off.
#[derive(Debug)]
pub struct JsonlReader {
    shared: Arc<ReaderShared>,
    threads: ThreadPool,
}

impl JsonlReader {
    /// Opens a data directory for reading.
    pub fn open(data: impl AsRef<Path>) -> Result<Self, OpenError> {
        let data = data.as_ref();
        check_dir(data)?;
        let io_error = |source| OpenError::Io { path: data.to_owned(), source };
        std::fs::read_dir(data).map_err(io_error)?;
        let shared = ReaderShared { layout: Layout::new(data), known: Mutex::default() };
        let threads = ThreadPool::start("wal-reader", THREADS).map_err(io_error)?;
        Ok(Self { shared: Arc::new(shared), threads })
    }

    /// Passes every whole commit of a Task's log to `each`, oldest first, until `each` breaks off.
    pub async fn read<F>(&self, key: &TaskKey, each: F) -> Result<(), ReadError>
    where
        F: FnMut(Commit) -> ControlFlow<()> + Send + 'static,
    {
        let key = key.clone();
        self.run(move |shared| shared.read(&key, each)).await
    }

    /// One Task, by its log and the index as they are now.
    pub async fn entry(&self, key: &TaskKey) -> Result<Option<Entry>, ReadError> {
        let key = key.clone();
        self.run(move |shared| shared.entry(&key).map_err(failed)).await
    }

    /// All Tasks of a session, or of all sessions; in no order.
    pub async fn entries(&self, session: Option<&SessionId>) -> Result<Vec<Entry>, ReadError> {
        let session = session.cloned();
        self.run(move |shared| shared.entries(session.as_ref()).map_err(failed)).await
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&ReaderShared) -> Result<T, ReadError> + Send + 'static,
    ) -> Result<T, ReadError> {
        let (reply, answer) = oneshot::channel();
        let shared = self.shared.clone();
        self.threads.run(move |_| {
            let _ = reply.send(work(&shared));
        });
        answer.await.unwrap_or_else(|_| Err(ReadError::Failed("the read broke off".into())))
    }
}

#[allow(clippy::needless_pass_by_value)] // The shape `map_err` asks for.
fn failed(error: io::Error) -> ReadError {
    ReadError::Failed(error.to_string())
}

#[derive(Debug)]
struct ReaderShared {
    layout: Layout,
    known: Mutex<SeenLogs>,
}

/// What the reader has seen so far.
#[derive(Debug, Default)]
struct SeenLogs {
    index: IndexRows,
    /// The index file that was read. If the path names another file, that one is read from its start.
    inode: Option<(u64, u64)>,
    logs: HashMap<LogPlace, SeenLog>,
    places: HashMap<TaskKey, LogPlace>,
}

/// A log as it was when the reader last read it.
#[derive(Debug)]
struct SeenLog {
    entry: Entry,
    len: u64,
    modified: (i64, i64),
    /// The Task has ended and its log was as the index says: from now on the reader uses only the index.
    is_settled: bool,
}

impl ReaderShared {
    fn read(
        &self,
        key: &TaskKey,
        each: impl FnMut(Commit) -> ControlFlow<()>,
    ) -> Result<(), ReadError> {
        let entry = self.entry(key).map_err(failed)?.ok_or(ReadError::NotFound)?;
        let path = self.layout.wal(&key.session_id, &entry.wal_name);
        LogSource { path: &path, key, wal_name: &entry.wal_name, whole: None }.read(0, each)
    }

    fn entry(&self, key: &TaskKey) -> io::Result<Option<Entry>> {
        let mut known = self.known.lock();
        known.read_index(&self.layout)?;
        if !known.places.contains_key(key) {
            self.list(&mut known, &key.session_id)?;
        }
        let Some(place) = known.places.get(key).cloned() else { return Ok(None) };
        known.look(&self.layout, &place)?;
        Ok(known.entry_at(&place))
    }

    fn entries(&self, session: Option<&SessionId>) -> io::Result<Vec<Entry>> {
        let mut known = self.known.lock();
        known.read_index(&self.layout)?;
        let sessions = match session {
            Some(session) => vec![session.clone()],
            None => self.layout.sessions(&mut Vec::new())?,
        };
        let mut entries = Vec::new();
        for session in sessions {
            for place in self.list(&mut known, &session)? {
                entries.extend(known.entry_at(&place));
            }
        }
        Ok(entries)
    }

    /// Reads the end of every log of a session that may have changed.
    fn list(&self, known: &mut SeenLogs, session: &SessionId) -> io::Result<Vec<LogPlace>> {
        let names = self.layout.wals(session, &mut Vec::new())?;
        let places: Vec<LogPlace> = names.into_iter().map(|name| (session.clone(), name)).collect();
        for place in &places {
            known.look(&self.layout, place)?;
        }
        Ok(places)
    }
}

impl SeenLogs {
    /// Reads the rows that were added to the index.
    fn read_index(&mut self, layout: &Layout) -> io::Result<()> {
        let file = match read_regular(&layout.index()) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        let found = file.metadata()?;
        let inode = Some((found.dev(), found.ino()));
        if self.inode != inode || found.len() < self.index.read_to {
            self.index = IndexRows::default();
            self.inode = inode;
        }
        self.index.read_on(&file)?;
        for place in &self.index.fresh {
            let row = &self.index.rows[place];
            self.places.insert(row.key(), place.clone());
            if let Some(seen) = self.logs.get_mut(place) {
                seen.is_settled = false;
            }
        }
        Ok(())
    }

    /// The Task of this log, unless the Task turned out to have another log.
    fn entry_at(&self, place: &LogPlace) -> Option<Entry> {
        let seen = self.logs.get(place)?;
        (self.places.get(&seen.entry.key) == Some(place)).then(|| seen.entry.clone())
    }

    /// Notes the log of a Task. A damaged log counts only while there is no other.
    fn place(&mut self, entry: &Entry, place: &LogPlace) {
        if !entry.damaged || !self.places.contains_key(&entry.key) {
            self.places.insert(entry.key.clone(), place.clone());
        }
    }

    /// Updates what is known of a log.
    fn look(&mut self, layout: &Layout, place: &LogPlace) -> io::Result<()> {
        if self.logs.get(place).is_some_and(|seen| seen.is_settled) {
            return Ok(());
        }
        let file = match layout.open_wal(&place.0, &place.1) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.logs.remove(place);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let found = file.metadata()?;
        let modified = (found.mtime(), found.mtime_nsec());
        let row = self.index.rows.get(place);
        let is_settled = row.is_some_and(|row| row.ended.is_some() && row.len == found.len());
        if let Some(seen) = self.logs.get_mut(place)
            && (seen.len, seen.modified) == (found.len(), modified)
        {
            seen.is_settled = is_settled;
            return Ok(());
        }
        let entry = match row {
            Some(row) if is_settled => Some(row.entry()),
            Some(row) => Some(up_to_date(&file, found.len(), row)?),
            None => new_entry(&file, place)?,
        };
        if let Some(entry) = entry {
            self.place(&entry, place);
            let seen = SeenLog { entry, len: found.len(), modified, is_settled };
            self.logs.insert(place.clone(), seen);
        }
        Ok(())
    }
}

/// A Task of the index, updated from the end of its log.
fn up_to_date(file: &File, size: u64, row: &IndexRow) -> io::Result<Entry> {
    let mut entry = row.entry();
    match read_tail(file, size) {
        Ok(Some(tail)) => {
            entry.updated_at = tail.last.created_at;
            entry.ended = tail.ended;
            entry.archived = tail.archived;
        }
        Ok(None) | Err(TailError::Damaged) => entry.damaged = true,
        Err(TailError::Io(error)) => return Err(error),
    }
    Ok(entry)
}

/// The entry of a log that is not in the index; `None` while the log has no whole commit.
fn new_entry(file: &File, place: &LogPlace) -> io::Result<Option<Entry>> {
    let wal_name = place.1.clone();
    let damaged = |key| Entry {
        key,
        wal_name: wal_name.clone(),
        title: String::new(),
        labels: Labels::new(),
        created_at: 0,
        updated_at: 0,
        ended: None,
        archived: false,
        damaged: true,
    };
    Ok(match identify(file, place)? {
        FoundLog::Unborn => None,
        FoundLog::Damaged(key) => Some(damaged(key)),
        FoundLog::Task(head) => Some(Entry {
            title: head.title,
            labels: head.labels,
            created_at: head.created_at,
            updated_at: head.tail.last.created_at,
            ended: head.tail.ended,
            archived: head.tail.archived,
            damaged: false,
            ..damaged(head.key)
        }),
    })
}

impl IndexRow {
    fn entry(&self) -> Entry {
        Entry {
            key: self.key(),
            wal_name: self.wal_name.clone(),
            title: self.title.clone(),
            labels: self.labels.clone(),
            created_at: self.created_at,
            updated_at: self.updated_at,
            ended: self.ended,
            archived: self.archived,
            damaged: false,
        }
    }
}
