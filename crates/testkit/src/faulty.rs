//! A journal that fails when a test tells it to.

use std::collections::{BTreeSet, VecDeque};
use std::future::Future;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tenure_core::event::Commit;
use tenure_core::id::{SessionId, WalName};
use tenure_ports::journal::{
    AppendError, EncodedSnapshot, EndedLog, Entry, Journal, ReadError, SnapshotRequest, TaskKey,
};
use tokio::sync::{Semaphore, mpsc};

/// The fault of one `create` or `append`.
#[derive(Debug, Clone)]
pub enum Fault {
    /// Nothing is written, and the caller gets that error.
    Fail,
    /// Nothing is written, and the caller learns that the log does not answer.
    Away,
    /// Nothing is written, and the caller learns that the fate is unknown.
    UnknownLost,
    /// Everything is written, and the caller learns that the fate is unknown.
    UnknownKept,
    /// Nothing is written, and the caller learns that the next owner will know.
    Unsettled,
    /// The write takes so much longer.
    Delay(Duration),
    /// The write waits until the gate opens.
    Hold(Gate),
    /// The write waits until the gate opens, and then nothing is written.
    HoldToFail(Gate),
}

/// Holds writes back until it is opened, which is for good.
#[derive(Debug, Clone)]
pub struct Gate(Arc<Semaphore>);

impl Default for Gate {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }
}

impl Gate {
    /// Lets everything through, now and later.
    pub fn open(&self) {
        self.0.close();
    }

    async fn pass(&self) {
        let _ = self.0.acquire().await; // Closing the semaphore opens the gate.
    }
}

/// A journal whose writes and reads fail as scripted; otherwise it calls the inner one.
#[derive(Debug, Default)]
pub struct Faulty<J> {
    inner: J,
    script: Mutex<VecDeque<(Option<TaskKey>, Fault)>>,
    is_full: AtomicBool,
    has_no_room: AtomicBool,
    reads_to_fail: AtomicU64,
    reads_held: Mutex<Option<Gate>>,
    is_silent: AtomicBool,
    writes: AtomicU64,
    read: Arc<AtomicU64>,
    /// The epoch in which this node owns every Task, if a test has set it.
    epoch: Mutex<Option<Option<u64>>>,
    elsewhere: Mutex<BTreeSet<TaskKey>>,
}

impl<J> Faulty<J> {
    /// A journal without faults yet.
    pub fn new(inner: J) -> Self {
        Self {
            inner,
            script: Mutex::default(),
            is_full: AtomicBool::new(false),
            has_no_room: AtomicBool::new(false),
            reads_to_fail: AtomicU64::new(0),
            reads_held: Mutex::default(),
            is_silent: AtomicBool::default(),
            writes: AtomicU64::new(0),
            read: Arc::default(),
            epoch: Mutex::default(),
            elsewhere: Mutex::default(),
        }
    }

    /// The inner journal.
    pub fn inner(&self) -> &J {
        &self.inner
    }

    /// The next write for which there is no earlier fault meets this one.
    pub fn next(&self, fault: Fault) {
        self.script.lock().push_back((None, fault));
    }

    /// The next write of one Task meets this fault.
    pub fn next_of(&self, key: &TaskKey, fault: Fault) {
        self.script.lock().push_back((Some(key.clone()), fault));
    }

    /// Holds the next write until the gate is opened.
    pub fn hold_next(&self) -> Gate {
        let gate = Gate::default();
        self.next(Fault::Hold(gate.clone()));
        gate
    }

    /// Holds the next write until the gate is opened; it fails then.
    pub fn hold_next_to_fail(&self) -> Gate {
        let gate = Gate::default();
        self.next(Fault::HoldToFail(gate.clone()));
        gate
    }

    /// While this is set the disk is full: every write fails, and the caller learns it.
    pub fn set_full(&self, is_full: bool) {
        self.is_full.store(is_full, Ordering::SeqCst);
    }

    /// While there is no capacity, writes that may be refused for that are refused.
    pub fn set_room(&self, has_capacity: bool) {
        self.has_no_room.store(!has_capacity, Ordering::SeqCst);
    }

    fn check_room(&self) -> Result<(), AppendError> {
        let has_no_room = self.has_no_room.load(Ordering::SeqCst);
        if has_no_room { Err(AppendError::AtCapacity) } else { Ok(()) }
    }

    /// The next `count` reads of logs fail.
    pub fn fail_reads(&self, count: u64) {
        self.reads_to_fail.store(count, Ordering::SeqCst);
    }

    /// While this is set no read of a log gets an answer.
    pub fn be_silent(&self, is_silent: bool) {
        self.is_silent.store(is_silent, Ordering::SeqCst);
    }

    /// Holds every read of a log until the gate is opened.
    pub fn hold_reads(&self) -> Gate {
        let gate = Gate::default();
        *self.reads_held.lock() = Some(gate.clone());
        gate
    }

    /// From now on this node owns every Task in this epoch; with none, another node owns them all.
    pub fn set_epoch(&self, epoch: Option<u64>) {
        *self.epoch.lock() = Some(epoch);
    }

    /// From now on another node owns this Task.
    pub fn give_away(&self, key: &TaskKey) {
        self.elsewhere.lock().insert(key.clone());
    }

    fn check_epoch(&self, commits: &[Arc<Commit>]) -> Result<(), AppendError> {
        let Some(epoch) = *self.epoch.lock() else { return Ok(()) };
        let is_of_it = commits.iter().all(|commit| Some(commit.epoch) == epoch);
        if is_of_it { Ok(()) } else { Err(AppendError::NotOwner) }
    }

    /// How many writes were requested so far.
    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::SeqCst)
    }

    /// How many commits were read so far.
    pub fn commits_read(&self) -> u64 {
        self.read.load(Ordering::SeqCst)
    }

    /// Whether every scripted fault has happened.
    pub fn is_spent(&self) -> bool {
        self.script.lock().is_empty()
    }

    fn take(&self, key: &TaskKey) -> Option<Fault> {
        let mut script = self.script.lock();
        let at = script.iter().position(|(of, _)| of.as_ref().is_none_or(|of| of == key))?;
        script.remove(at).map(|(_, fault)| fault)
    }

    async fn write(
        &self,
        key: &TaskKey,
        write: impl Future<Output = Result<(), AppendError>> + Send,
    ) -> Result<(), AppendError> {
        self.writes.fetch_add(1, Ordering::SeqCst);
        if self.is_full.load(Ordering::SeqCst) {
            return Err(AppendError::Failed("no space left on device".into()));
        }
        match self.take(key) {
            None => write.await,
            Some(Fault::Fail) => Err(not_written()),
            Some(Fault::Away) => Err(AppendError::Unavailable("injected: no answer".into())),
            Some(Fault::UnknownLost) => Err(AppendError::MustReread("injected: lost".into())),
            Some(Fault::UnknownKept) => {
                write.await?;
                Err(AppendError::MustReread("injected: kept".into()))
            }
            Some(Fault::Unsettled) => Err(AppendError::Unsettled("injected: unsettled".into())),
            Some(Fault::Delay(time)) => {
                tokio::time::sleep(time).await;
                write.await
            }
            Some(Fault::Hold(gate)) => {
                gate.pass().await;
                write.await
            }
            Some(Fault::HoldToFail(gate)) => {
                gate.pass().await;
                Err(not_written())
            }
        }
    }

    fn is_read_to_fail(&self) -> bool {
        let less = |left: u64| left.checked_sub(1);
        self.reads_to_fail.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok()
    }
}

fn not_written() -> AppendError {
    AppendError::Failed("injected: not written".into())
}

impl<J: Journal> Journal for Faulty<J> {
    async fn create(
        &self,
        key: &TaskKey,
        wal_name: &WalName,
        commits: Vec<Arc<Commit>>,
    ) -> Result<(), AppendError> {
        self.check_room()?;
        let create = async {
            self.check_epoch(&commits)?;
            self.inner.create(key, wal_name, commits).await
        };
        self.write(key, create).await
    }

    async fn append(
        &self,
        key: &TaskKey,
        after: u64,
        commits: Vec<Arc<Commit>>,
    ) -> Result<(), AppendError> {
        let append = async {
            self.check_epoch(&commits)?;
            self.inner.append(key, after, commits).await
        };
        self.write(key, append).await
    }

    async fn append_within_capacity(
        &self,
        key: &TaskKey,
        after: u64,
        commits: Vec<Arc<Commit>>,
    ) -> Result<(), AppendError> {
        self.check_room()?;
        self.append(key, after, commits).await
    }

    fn wal_path(&self, key: &TaskKey, wal_name: &WalName) -> Option<String> {
        self.inner.wal_path(key, wal_name)
    }

    async fn read<F>(&self, key: &TaskKey, after: u64, mut each: F) -> Result<(), ReadError>
    where
        F: FnMut(Commit) -> ControlFlow<()> + Send + 'static,
    {
        let read = Arc::clone(&self.read);
        let each = move |commit| {
            read.fetch_add(1, Ordering::SeqCst);
            each(commit)
        };
        let held = self.reads_held.lock().clone();
        if let Some(gate) = held {
            gate.pass().await;
        }
        if self.is_silent.load(Ordering::SeqCst) {
            return Err(ReadError::Unavailable("injected: no answer".into()));
        }
        if self.is_read_to_fail() {
            return Err(ReadError::Failed("injected: not read".into()));
        }
        self.inner.read(key, after, each).await
    }

    async fn entry(&self, key: &TaskKey) -> Result<Option<Entry>, ReadError> {
        self.inner.entry(key).await
    }

    fn log_bytes(&self, key: &TaskKey) -> Option<u64> {
        self.inner.log_bytes(key)
    }

    async fn ended(&self, key: &TaskKey) -> Option<EndedLog> {
        self.inner.ended(key).await
    }

    async fn entries(&self, session: Option<&SessionId>) -> Result<Vec<Entry>, ReadError> {
        self.inner.entries(session).await
    }

    fn wanted(&self) -> Option<mpsc::Receiver<SnapshotRequest>> {
        self.inner.wanted()
    }

    async fn keep(&self, key: &TaskKey, folded: EncodedSnapshot) {
        self.inner.keep(key, folded).await;
    }

    async fn kept(&self, key: &TaskKey, until: u64) -> Option<EncodedSnapshot> {
        self.inner.kept(key, until).await
    }

    fn forget_snapshot(&self, key: &TaskKey) {
        self.inner.forget_snapshot(key);
    }

    fn release(&self, key: &TaskKey) {
        self.inner.release(key);
    }

    fn epoch(&self, key: &TaskKey) -> Option<u64> {
        if self.elsewhere.lock().contains(key) {
            return None;
        }
        let set = *self.epoch.lock();
        set.unwrap_or_else(|| self.inner.epoch(key))
    }
}
