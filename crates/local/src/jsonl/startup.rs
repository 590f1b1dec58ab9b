//! Opens a data directory: finds its logs, repairs what a crash left, and reports it.

use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tenure_core::record::Labels;
use tenure_ports::journal::{ReadError, TaskKey};

use super::catalog::{CatalogEntry, Log, LogCatalog, TaskFacts};
use super::disk::Disk;
use super::head::{FoundLog, identify, key_by_name};
use super::index::{FileIndex, IndexRow, IndexRows, LogPlace};
use super::layout::Layout;
use super::lock::{Lock, LockError};
use super::log::{Logs, OpenFiles, Unusable};
use super::replay::LogSource;
use super::report::{Damage, OpenReport, Repair};
use crate::regular::read_regular;

/// Why a data directory could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no such directory.
    #[error("the data directory {0} does not exist")]
    Missing(PathBuf),
    /// The path names something other than a directory.
    #[error("{0} is not a directory")]
    NotADirectory(PathBuf),
    /// The process cannot write there.
    #[error("the data directory {path} is not writable")]
    NotWritable {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another process writes there.
    #[error("the data directory {path} is in use by {}", by(.pid.as_ref()))]
    Locked {
        /// The directory.
        path: PathBuf,
        /// The other process, if the lock file names it.
        pid: Option<u32>,
    },
    /// Anything else.
    #[error("the data directory {path} cannot be opened")]
    Io {
        /// The directory or file that the error is about.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

fn by(pid: Option<&u32>) -> String {
    pid.map_or_else(|| "another process".into(), |pid| format!("process {pid}"))
}

/// An opened data directory.
pub(crate) struct Opened<D: Disk> {
    pub(crate) logs: Logs<D>,
    pub(crate) report: OpenReport,
}

/// Opens a data directory for writing.
pub(crate) fn open<D: Disk>(
    data: &Path,
    disk: D,
    open_files: usize,
    threads: usize,
) -> Result<Opened<D>, OpenError> {
    let layout = Layout::new(data);
    check_dir(data)?;
    let lock = Lock::take(data, &layout.lock()).map_err(|error| lock_error(data, error))?;
    let io_error = |source| OpenError::Io { path: data.to_owned(), source };
    make_durable(&disk, &layout).map_err(|source| not_writable(data, source))?;
    let rows = load_rows(&layout).map_err(io_error)?;
    let index =
        FileIndex::resume(&disk, &layout.index()).map_err(|error| not_writable(data, error))?;
    let logs = Logs {
        disk,
        layout,
        catalog: LogCatalog::default(),
        index,
        files: OpenFiles::new(open_files),
        repairs: Mutex::new(Some(Vec::new())),
        lock,
    };
    let report = StartupScan::new(&logs, &rows, threads).run().map_err(io_error)?;
    Ok(Opened { logs, report })
}

/// Whether there is a directory to open.
pub(crate) fn check_dir(data: &Path) -> Result<(), OpenError> {
    match std::fs::metadata(data) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(OpenError::NotADirectory(data.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(OpenError::Missing(data.to_owned()))
        }
        Err(source) => Err(OpenError::Io { path: data.to_owned(), source }),
    }
}

fn lock_error(data: &Path, error: LockError) -> OpenError {
    match error {
        LockError::Held(pid) => OpenError::Locked { path: data.to_owned(), pid },
        LockError::Io(source) => not_writable(data, source),
    }
}

fn not_writable(data: &Path, source: io::Error) -> OpenError {
    use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem, StorageFull};
    let path = data.to_owned();
    match source.kind() {
        PermissionDenied | ReadOnlyFilesystem | StorageFull => {
            OpenError::NotWritable { path, source }
        }
        _ => OpenError::Io { path, source },
    }
}

/// Makes the directory for sessions, and makes its existing names durable.
fn make_durable(disk: &impl Disk, layout: &Layout) -> io::Result<()> {
    disk.create_dir(&layout.tasks())?;
    disk.sync_dir(&layout.tasks())?;
    disk.sync_dir(layout.data())
}

pub(crate) fn load_rows(layout: &Layout) -> io::Result<IndexRows> {
    let mut rows = IndexRows::default();
    match read_regular(&layout.index()) {
        Ok(file) => rows.read_on(&file)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    Ok(rows)
}

/// How many stale lines the index may have per row that counts before opening writes it anew.
const STALE_PER_ROW_MAX: usize = 2;

/// The check of all logs when a data directory is opened.
struct StartupScan<'a, D: Disk> {
    logs: &'a Logs<D>,
    rows: &'a IndexRows,
    threads: usize,
    found: Mutex<OpenReport>,
    /// Tasks that are not in the index, or whose rows lag behind.
    unindexed: Mutex<Vec<Arc<CatalogEntry>>>,
    /// Logs that may belong to another Task than it seems.
    strays: Mutex<Vec<(LogPlace, TaskKey)>>,
}

impl<'a, D: Disk> StartupScan<'a, D> {
    fn new(logs: &'a Logs<D>, rows: &'a IndexRows, threads: usize) -> Self {
        let (found, unindexed, strays) = Default::default();
        Self { logs, rows, threads, found, unindexed, strays }
    }

    fn run(self) -> io::Result<OpenReport> {
        let mut ignored = Vec::new();
        let mut places = Vec::new();
        for session in self.logs.layout.sessions(&mut ignored)? {
            let names = self.logs.layout.wals(&session, &mut ignored)?;
            if names.iter().any(|name| !self.knows(&(session.clone(), name.clone()))) {
                self.logs.disk.sync_dir(&self.logs.layout.session(&session))?;
            }
            places.extend(names.into_iter().map(|name| (session.clone(), name)));
        }
        in_parallel(self.threads, &places, |place| self.look(place));
        self.place_strays();
        Ok(self.finish(&places, ignored))
    }

    fn knows(&self, place: &LogPlace) -> bool {
        self.rows.rows.contains_key(place)
    }

    fn look(&self, place: &LogPlace) {
        let looked = match self.rows.rows.get(place) {
            Some(row) => self.look_at_known(place, row),
            None => self.look_into(place),
        };
        if looked.is_err() {
            // For the report the log is read once more; its Task exists and cannot be used.
            let row = self.rows.rows.get(place).map(IndexRow::key);
            let key = row.or_else(|| key_by_name(place).ok());
            self.strays.lock().extend(key.map(|key| (place.clone(), key)));
        }
    }

    /// A log that is in the index. An ended Task counts as ended as long as nothing was written since.
    fn look_at_known(&self, place: &LogPlace, row: &IndexRow) -> io::Result<()> {
        let key = row.key();
        let is_settled =
            row.ended.is_some() && (self.rows.is_clean || self.size(place)? == row.len);
        let slot =
            self.add(&key, place, TaskFacts::of_row(row), !is_settled && !self.rows.is_clean);
        if let (Some(slot), false) = (slot, is_settled) {
            self.verify(&slot);
            let has_ended = slot.facts.lock().ended.is_some();
            if has_ended {
                self.unindexed.lock().push(slot); // Its row lags behind.
            }
        }
        Ok(())
    }

    fn size(&self, place: &LogPlace) -> io::Result<u64> {
        Ok(std::fs::symlink_metadata(self.logs.layout.wal(&place.0, &place.1))?.len())
    }

    /// A log that is not in the index.
    fn look_into(&self, place: &LogPlace) -> io::Result<()> {
        let path = self.logs.layout.wal(&place.0, &place.1);
        match identify(&read_regular(&path)?, place)? {
            FoundLog::Unborn => self.remove(&path, place),
            FoundLog::Damaged(key) => {
                self.strays.lock().push((place.clone(), key));
                Ok(())
            }
            FoundLog::Task(head) => {
                let mut facts = TaskFacts::creating(&head.title, head.labels, head.created_at);
                facts.exists = true;
                facts.take_tail(&head.tail);
                if let Some(slot) = self.add(&head.key, place, facts, true) {
                    self.verify(&slot);
                    self.unindexed.lock().push(slot);
                }
                Ok(())
            }
        }
    }

    fn add(
        &self,
        key: &TaskKey,
        place: &LogPlace,
        facts: TaskFacts,
        sync: bool,
    ) -> Option<Arc<CatalogEntry>> {
        self.logs.catalog.add(key, place.1.clone(), Log::Unverified { sync }, facts)
    }

    /// Enters damaged logs for their Tasks, unless a sound log of the same Task was found.
    fn place_strays(&self) {
        for (place, key) in self.strays.lock().iter() {
            let mut facts = TaskFacts::creating("", Labels::new(), 0);
            facts.exists = true;
            match self.add(key, place, facts, true) {
                Some(slot) => self.damaged(&slot),
                None => self.tell(key, self.first_damage(key, place)),
            }
        }
    }

    fn first_damage(&self, key: &TaskKey, (session, wal_name): &LogPlace) -> ReadError {
        let path = self.logs.layout.wal(session, wal_name);
        let source = LogSource { path: &path, key, wal_name, whole: None };
        let sound = || ReadError::Failed(format!("{} is a second log", path.display()));
        source.read(0, |_| ControlFlow::Continue(())).err().unwrap_or_else(sound)
    }

    fn verify(&self, slot: &CatalogEntry) {
        self.found.lock().looked_into += 1;
        let verified = self.logs.verify(slot, &mut slot.log.lock());
        match verified {
            Ok(_) => {}
            Err(Unusable::Damaged) => self.damaged(slot),
            Err(Unusable::Other(message)) => self.unusable(slot, ReadError::Failed(message)),
        }
        self.logs.files.close(slot);
    }

    /// Finds the first place that is damaged.
    fn damaged(&self, slot: &CatalogEntry) {
        if let Err(error) = self.logs.read(slot, 0, |_| ControlFlow::Continue(())) {
            self.unusable(slot, error);
        }
    }

    fn unusable(&self, slot: &CatalogEntry, error: ReadError) {
        slot.facts.lock().damaged = true;
        self.tell(&slot.key, error);
    }

    fn tell(&self, key: &TaskKey, error: ReadError) {
        tracing::error!(task = %key, %error, "a log cannot be used");
        self.found.lock().damaged.push(Damage { task: key.clone(), error });
    }

    /// Removes the rest of a creation that nobody was told had succeeded, so that its name is free again.
    fn remove(&self, path: &Path, place: &LogPlace) -> io::Result<()> {
        let bytes = self.size(place)?;
        self.logs.disk.remove(path)?;
        self.logs.disk.sync_dir(&self.logs.layout.session(&place.0))?;
        self.logs.report(Repair { file: path.to_owned(), offset: 0, bytes });
        Ok(())
    }

    fn finish(self, places: &[LogPlace], ignored: Vec<PathBuf>) -> OpenReport {
        let slots = self.logs.catalog.slots(None);
        let is_stale = self.rows.stale > STALE_PER_ROW_MAX * slots.len();
        if is_stale || self.rows.rows.len() > places.len() {
            self.logs.rewrite_index(&slots);
        } else {
            self.logs.index.add(self.unindexed.into_inner().iter().map(|slot| slot.row()));
        }
        let mut report = self.found.into_inner();
        report.tasks = slots.len();
        report.live = slots.iter().filter(|slot| slot.facts.lock().ended.is_none()).count();
        report.ignored.extend(ignored);
        report.repairs.extend(self.logs.repairs.lock().take().into_iter().flatten());
        report
    }
}

impl<D: Disk> Logs<D> {
    /// Writes the index anew. A failure leaves the old one, which only costs time at the next start.
    fn rewrite_index(&self, slots: &[Arc<CatalogEntry>]) {
        let sound = slots.iter().filter(|slot| !slot.facts.lock().damaged);
        let rows = sound.map(|slot| slot.row());
        let (path, draft) = (self.layout.index(), self.layout.index_draft());
        if let Err(error) = self.index.rewrite(&self.disk, (&path, &draft), rows) {
            tracing::warn!(%error, "the index could not be written anew");
        }
    }
}

/// Calls `work` for every item, on several threads.
fn in_parallel<T: Sync>(threads: usize, items: &[T], work: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    let run = || {
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            work(item);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(items.len()) {
            scope.spawn(run);
        }
        run();
    });
}
