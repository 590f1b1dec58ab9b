//! The journal of the process that holds the data directory: it queues creates, appends and reads
//! for threads.
//!
//! `tenure run` has this instead of step 6 of the walk in docs/architecture.md.

use std::collections::HashMap;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use nix::sys::resource::{Resource, getrlimit};
use parking_lot::Mutex;
use tenure_core::event::{Body, Commit, Event};
use tenure_core::id::{SessionId, WalName};
use tenure_ports::Journal;
use tenure_ports::journal::{AppendError, EndedLog, Entry, ReadError, TaskKey};
use tokio::sync::oneshot;

use super::catalog::{CatalogEntry, Log, TaskFacts, Whole};
use super::disk::{Disk, Files};
use super::group::{Barrier, WaiterGroup};
use super::log::{Logs, encode_all};
use super::pool::ThreadPool;
use super::published::PublishedMark;
use super::report::OpenReport;
use super::startup::{self, OpenError, Opened};

/// How many threads and open files a journal may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalOptions {
    /// Threads that write and sync, at most. Syncs of different files overlap, so more threads mean
    /// more appends a second, until the disk or the processors are busy: at about 12 where there
    /// are two processors and a sync takes 0.15 ms.
    pub sync_threads: usize,
    /// Threads that read logs, at most.
    pub read_threads: usize,
    /// Log files kept open; `None`: half of what the process may open.
    pub open_files: Option<usize>,
}

impl Default for JournalOptions {
    fn default() -> Self {
        Self { sync_threads: 16, read_threads: 4, open_files: None }
    }
}

/// The most log files kept open, whatever the process may open.
const OPEN_FILES_MAX: usize = 8192;
/// The fewest log files kept open, however little the process may open.
const OPEN_FILES_MIN: usize = 16;

impl JournalOptions {
    fn open_files(&self) -> usize {
        self.open_files.unwrap_or_else(|| {
            let soft = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _)| soft);
            let half = usize::try_from(soft / 2).unwrap_or(OPEN_FILES_MAX);
            half.clamp(OPEN_FILES_MIN, OPEN_FILES_MAX)
        })
    }
}

/// The [`Journal`] of a single process: a file per Task, in a data directory of its own.
///
/// An append is one write and one sync of the Task's file. A create also waits for a sync of its
/// directory, which it shares with other creates of the same moment. Once begun, a write goes
/// through even if its future is dropped.
///
/// Dropping the journal finishes the queued work and blocks until that is on disk.
#[derive(Debug)]
pub struct JsonlJournal<D: Disk = Files> {
    shared: Arc<JournalShared<D>>,
    writers: ThreadPool,
    readers: ThreadPool,
}

impl JsonlJournal {
    /// Opens a data directory, which must exist and to which no other process may write.
    pub fn open(
        data: impl AsRef<Path>,
        options: JournalOptions,
    ) -> Result<(Self, OpenReport), OpenError> {
        Self::open_on(data, options, Files)
    }
}

impl<D: Disk> JsonlJournal<D> {
    /// Opens a data directory, and changes logs through `disk`.
    pub fn open_on(
        data: impl AsRef<Path>,
        options: JournalOptions,
        disk: D,
    ) -> Result<(Self, OpenReport), OpenError> {
        let data = data.as_ref();
        let Opened { logs, report } =
            startup::open(data, disk, options.open_files(), options.sync_threads)?;
        let io_error = |source| OpenError::Io { path: data.to_owned(), source };
        let shared = JournalShared { logs, dirs: Mutex::default(), dirs_made: Barrier::default() };
        let journal = Self {
            shared: Arc::new(shared),
            writers: ThreadPool::start("wal-sync", options.sync_threads).map_err(io_error)?,
            readers: ThreadPool::start("wal-read", options.read_threads).map_err(io_error)?,
        };
        Ok((journal, report))
    }

    /// The mark of how far the events of a Task have been published, for the code that publishes
    /// them; `None` if there is no such Task.
    pub fn published(&self, key: &TaskKey) -> Option<PublishedMark> {
        let slot = self.shared.logs.catalog.get(key)?;
        Some(PublishedMark::at(self.shared.logs.layout.mark(&key.session_id, &slot.wal_name)))
    }
}

impl<D: Disk> Drop for JsonlJournal<D> {
    fn drop(&mut self) {
        self.readers.close();
        self.writers.close();
        self.shared.logs.close();
    }
}

impl<D: Disk> Journal for JsonlJournal<D> {
    async fn create(
        &self,
        key: &TaskKey,
        wal_name: &WalName,
        commits: Vec<Arc<Commit>>,
    ) -> Result<(), AppendError> {
        let facts = check_creation(key, wal_name, &commits)?;
        let logs = &self.shared.logs;
        let Some(slot) = logs.catalog.add(key, wal_name.clone(), Log::Creating, facts) else {
            return Err(logs.refuse_second(key));
        };
        let (reply, answer) = oneshot::channel();
        let shared = self.shared.clone();
        self.writers.run(move |buffer| shared.create(slot, commits, buffer, reply));
        answer.await.unwrap_or_else(|_| Err(lost()))
    }

    async fn append(
        &self,
        key: &TaskKey,
        after: u64,
        commits: Vec<Arc<Commit>>,
    ) -> Result<(), AppendError> {
        let Some(slot) = self.shared.logs.catalog.get(key) else {
            return Err(AppendError::Failed(format!("task {key} does not exist")));
        };
        let (reply, answer) = oneshot::channel();
        let shared = self.shared.clone();
        self.writers.run(move |buffer| {
            // The caller may have gone; the commits stay.
            let _ = reply.send(shared.logs.append(&slot, after, &commits, buffer));
        });
        answer.await.unwrap_or_else(|_| Err(lost()))
    }

    async fn read<F>(&self, key: &TaskKey, after: u64, each: F) -> Result<(), ReadError>
    where
        F: FnMut(Commit) -> ControlFlow<()> + Send + 'static,
    {
        let slot = self.shared.logs.catalog.get(key).filter(|slot| slot.facts.lock().exists);
        let slot = slot.ok_or(ReadError::NotFound)?;
        let (reply, answer) = oneshot::channel();
        let shared = self.shared.clone();
        self.readers.run(move |_| {
            let _ = reply.send(shared.logs.read(&slot, after, each));
        });
        answer.await.unwrap_or_else(|_| Err(ReadError::Failed("the read broke off".into())))
    }

    fn log_bytes(&self, key: &TaskKey) -> Option<u64> {
        let slot = self.shared.logs.catalog.get(key)?;
        let facts = slot.facts.lock();
        facts.ended.is_none().then_some(facts.len)
    }

    fn wal_path(&self, key: &TaskKey, wal_name: &WalName) -> Option<String> {
        let logs = &self.shared.logs;
        let slot = logs.catalog.get(key); // A log that was exported has the name of its Task (STORE-14).
        let name = slot.as_ref().map_or(wal_name, |slot| &slot.wal_name);
        Some(logs.layout.wal(&key.session_id, name).display().to_string())
    }

    async fn entry(&self, key: &TaskKey) -> Result<Option<Entry>, ReadError> {
        Ok(self.shared.logs.catalog.get(key).and_then(|slot| slot.entry()))
    }

    /// From the end of the file, unless it is known already: whoever reads the log page by page need not fold it
    /// for each.
    async fn ended(&self, key: &TaskKey) -> Option<EndedLog> {
        let slot = self.shared.logs.catalog.get(key)?;
        let end = {
            let facts = slot.facts.lock();
            facts.ended.filter(|_| facts.exists && !facts.damaged)?
        };
        let wal_name = slot.wal_name.clone();
        let known = match slot.log.try_lock().as_deref() {
            Some(Log::Good(whole)) => Some(*whole),
            _ => None,
        };
        let whole = match known {
            Some(whole) => whole,
            None => {
                let (reply, answer) = oneshot::channel();
                let shared = self.shared.clone();
                self.readers.run(move |_| {
                    let verified = shared.logs.verify(&slot, &mut slot.log.lock());
                    let _ = reply.send(verified.ok()); // Whoever asked may have gone.
                });
                answer.await.ok().flatten()?
            }
        };
        Some(EndedLog { version: whole.last_seq, end, wal_name, bytes: whole.len })
    }

    async fn entries(&self, session: Option<&SessionId>) -> Result<Vec<Entry>, ReadError> {
        let slots = self.shared.logs.catalog.slots(session);
        Ok(slots.iter().filter_map(|slot| slot.entry()).collect())
    }

    fn release(&self, key: &TaskKey) {
        if let Some(slot) = self.shared.logs.catalog.get(key) {
            self.shared.logs.files.close(&slot);
        }
    }

    fn epoch(&self, _: &TaskKey) -> Option<u64> {
        Some(0)
    }
}

/// The thread that wrote did not answer: the caller has to read the log to learn what it did.
fn lost() -> AppendError {
    AppendError::MustReread("the journal did not answer".into())
}

/// Checks that the first commits of a Task are its creation, under the key and name of its log.
fn check_creation(
    key: &TaskKey,
    wal_name: &WalName,
    commits: &[Arc<Commit>],
) -> Result<TaskFacts, AppendError> {
    let first = commits.first().and_then(|commit| Some((commit, commit.events.first()?)));
    let Some((commit, Event { body: Body::TaskCreated(created), .. })) = first else {
        return Err(AppendError::Failed("a log starts with task_created".into()));
    };
    let task = &created.task;
    let is_own = task.task_id == key.task_id
        && task.session_id == key.session_id
        && task.wal_name == *wal_name;
    if !is_own {
        return Err(AppendError::Failed(format!("task_created is not of task {key}")));
    }
    Ok(TaskFacts::creating(&task.title, task.labels.clone(), commit.created_at))
}

impl<D: Disk> Logs<D> {
    /// Why a key cannot be used for a new Task.
    fn refuse_second(&self, key: &TaskKey) -> AppendError {
        let slot = self.catalog.get(key);
        let closed = slot.and_then(|slot| match &*slot.log.try_lock()? {
            Log::Closed(why) if !slot.facts.lock().exists => Some(why.to_string()),
            _ => None,
        });
        closed.map_or(AppendError::TaskExists, AppendError::Failed)
    }
}

/// The state that the threads share.
#[derive(Debug)]
struct JournalShared<D: Disk> {
    logs: Logs<D>,
    dirs: Mutex<HashMap<SessionId, Arc<SessionDir<D>>>>,
    /// Syncs of the directory that contains the session directories.
    dirs_made: Barrier,
}

/// The directory of a session.
#[derive(Debug)]
struct SessionDir<D: Disk> {
    /// Whether the directory itself is durable.
    is_made: Mutex<bool>,
    /// Creations whose files are synced and whose names are not.
    creations: WaiterGroup<PendingCreate<D>>,
}

/// A creation whose file is on disk.
#[derive(Debug)]
struct PendingCreate<D: Disk> {
    slot: Arc<CatalogEntry>,
    file: Arc<D::File>,
    whole: Whole,
    commits: Vec<Arc<Commit>>,
    reply: oneshot::Sender<Result<(), AppendError>>,
}

impl<D: Disk> JournalShared<D> {
    fn create(
        &self,
        slot: Arc<CatalogEntry>,
        commits: Vec<Arc<Commit>>,
        buffer: &mut Vec<u8>,
        reply: oneshot::Sender<Result<(), AppendError>>,
    ) {
        let session = slot.key.session_id.clone();
        let dir = self.dirs.lock().entry(session).or_insert_with(SessionDir::new).clone();
        match self.write_new(&slot, &dir, &commits, buffer) {
            Ok((file, whole)) => {
                let creation = PendingCreate { slot, file, whole, commits, reply };
                self.name(&dir, creation);
            }
            Err(error) => {
                let _ = reply.send(Err(error));
            }
        }
    }

    /// Makes the file of a Task, with its first commits on disk. If this fails, there is no Task.
    fn write_new(
        &self,
        slot: &CatalogEntry,
        dir: &SessionDir<D>,
        commits: &[Arc<Commit>],
        buffer: &mut Vec<u8>,
    ) -> Result<(Arc<D::File>, Whole), AppendError> {
        let logs = &self.logs;
        let path = logs.path(slot);
        let begun = encode_all(&slot.key, 0, commits, buffer).and_then(|last_seq| {
            logs.lock.check().map_err(|error| AppendError::Failed(error.to_string()))?;
            self.make_dir(slot, dir).map_err(|error| failed(&path, &error))?;
            let file = logs.disk.create_new(&path).map_err(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => AppendError::NameTaken,
                _ => failed(&path, &error),
            })?;
            Ok((Arc::new(file), last_seq))
        });
        let (file, last_seq) = begun.inspect_err(|_| logs.catalog.remove(&slot.key))?;
        let written = logs.disk.write_all_at(&file, buffer, 0).and_then(|()| logs.disk.sync(&file));
        match written {
            Ok(()) => Ok((file, Whole { len: buffer.len() as u64, last_seq })),
            Err(error) => Err(self.undo(slot, &file, &error)),
        }
    }

    /// Makes the directory of a session and waits until it is durable.
    fn make_dir(&self, slot: &CatalogEntry, dir: &SessionDir<D>) -> io::Result<()> {
        let mut is_made = dir.is_made.lock();
        if *is_made {
            return Ok(());
        }
        self.logs.disk.create_dir(&self.logs.layout.session(&slot.key.session_id))?;
        // Also if the directory exists: an earlier try may have failed just here.
        self.dirs_made.wait(|| self.logs.disk.sync_dir(&self.logs.layout.tasks()))?;
        *is_made = true;
        Ok(())
    }

    /// Makes the name of a new file durable, together with others, and answers.
    fn name(&self, dir: &SessionDir<D>, creation: PendingCreate<D>) {
        let path = self.logs.layout.session(&creation.slot.key.session_id);
        let sync = || self.logs.disk.sync_dir(&path);
        dir.creations.join(creation, sync, |group, synced| match synced {
            Ok(()) => self.created(group),
            Err(error) => {
                for PendingCreate { slot, file, reply, .. } in group {
                    let _ = reply.send(Err(self.undo(&slot, &file, &error)));
                }
            }
        });
    }

    fn created(&self, group: Vec<PendingCreate<D>>) {
        let logs = &self.logs;
        for PendingCreate { slot, file, whole, commits, .. } in &group {
            let mut facts = slot.facts.lock();
            let has_ended = facts.take_commits(commits);
            facts.len = whole.len;
            facts.exists = true;
            drop(facts);
            *slot.log.lock() = Log::Good(*whole);
            if !has_ended {
                logs.files.put(slot, file.clone());
            }
        }
        logs.index.add(group.iter().map(|creation| creation.slot.row()));
        for creation in group {
            let _ = creation.reply.send(Ok(()));
        }
    }

    /// Removes a new file that could not be made durable.
    fn undo(&self, slot: &CatalogEntry, file: &D::File, error: &io::Error) -> AppendError {
        let logs = &self.logs;
        let path = logs.path(slot);
        let _ = logs.disk.truncate(file, 0); // If its name comes back, it is empty: no Task.
        let removed = logs
            .disk
            .remove(&path)
            .and_then(|()| logs.disk.sync_dir(&logs.layout.session(&slot.key.session_id)));
        match removed {
            Ok(()) => {
                logs.catalog.remove(&slot.key);
                failed(&path, error)
            }
            Err(second) => {
                let why = format!("{}: {error}; it could not be removed: {second}", path.display());
                tracing::error!(task = %slot.key, "{why}");
                *slot.log.lock() = Log::Closed(why.as_str().into());
                AppendError::MustReread(why)
            }
        }
    }
}

impl<D: Disk> SessionDir<D> {
    fn new() -> Arc<Self> {
        Arc::new(Self { is_made: Mutex::new(false), creations: WaiterGroup::default() })
    }
}

fn failed(path: &Path, error: &io::Error) -> AppendError {
    AppendError::Failed(format!("{}: {error}", path.display()))
}
