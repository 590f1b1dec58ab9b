//! The log: the only truth (law 1).

use std::future::Future;
use std::ops::{ControlFlow, RangeInclusive};
use std::sync::Arc;

use futures::FutureExt as _;
use tenure_core::Commit;
use tenure_core::id::{Millis, SessionId, TaskId, WalName};
use tenure_core::status::{End, Visibility};
use tenure_core::view::list::Listed;
use tenure_core::view::snapshot::{Ends, RECENT_MAX};
use tenure_core::view::{ListInput, Snapshot, ViewsInput};
use tokio::sync::{mpsc, oneshot};

/// A Task across sessions.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskKey {
    /// Its session.
    pub session_id: SessionId,
    /// Its id in the session.
    pub task_id: TaskId,
}

impl std::fmt::Display for TaskKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.session_id, self.task_id)
    }
}

/// An append-only log per Task.
///
/// The caller has at most one `create` or `append` of a Task in flight. Calls for different Tasks
/// run in parallel; reads never wait for writes of other Tasks.
///
/// After `Ok` the commits are durable, in order, and every later `read` sees them. After
/// [`AppendError::Failed`] none of them is in the log, nor ever will be. After
/// [`AppendError::MustReread`] the caller does not know, and must read the log again before it uses the
/// Task (embedded), the adapter having made sure that the answer no longer changes: until that is
/// so, reads fail. After [`AppendError::Unsettled`] the Task is another's to read. All commits of one
/// call have one fate, except that a crash may keep the first few of them; each commit is kept whole or
/// not at all (WAL-08).
///
/// A write that has begun goes through even if its future is dropped.
///
/// What waits to be written may be bounded (mechanisms 16): `create` and `append_within_capacity` are refused then
/// with [`AppendError::AtCapacity`], `append` waits.
pub trait Journal: Send + Sync + 'static {
    /// Starts the log of a new Task. The first event is its `task_created`, which carries the same
    /// ids and `wal_name`. Exactly one of several concurrent creates of a key wins (OWN-07).
    fn create(
        &self,
        key: &TaskKey,
        wal_name: &WalName,
        commits: Vec<Arc<Commit>>,
    ) -> impl Future<Output = Result<(), AppendError>> + Send;

    /// Adds commits to the log of a Task whose last event is `after`. They follow it, and each
    /// other, without a gap; otherwise nothing is written.
    fn append(
        &self,
        key: &TaskKey,
        after: u64,
        commits: Vec<Arc<Commit>>,
    ) -> impl Future<Output = Result<(), AppendError>> + Send;

    /// As [`append`](Self::append), of what can be asked for again.
    fn append_within_capacity(
        &self,
        key: &TaskKey,
        after: u64,
        commits: Vec<Arc<Commit>>,
    ) -> impl Future<Output = Result<(), AppendError>> + Send {
        self.append(key, after, commits)
    }

    /// Hands every whole commit of a Task's log behind event `after` to `each`, oldest first, until
    /// it breaks off. `after` is 0 for the whole log; a commit of which it is not the last event comes
    /// whole. What lies before it costs next to nothing and is not judged. An unfinished commit at the
    /// end is not handed out. Of a damaged log the commits before the damage are handed out, as far as
    /// they can be found, then the error is returned. `each` may block its thread.
    fn read<F>(
        &self,
        key: &TaskKey,
        after: u64,
        each: F,
    ) -> impl Future<Output = Result<(), ReadError>> + Send
    where
        F: FnMut(Commit) -> ControlFlow<()> + Send + 'static;

    /// The same for the commits that have some of these events. Whoever reads a long log part by part does
    /// not pay for what lies behind each part.
    fn read_part<F>(
        &self,
        key: &TaskKey,
        events: RangeInclusive<u64>,
        each: F,
    ) -> impl Future<Output = Result<(), ReadError>> + Send
    where
        F: FnMut(Commit) -> ControlFlow<()> + Send + 'static,
    {
        let (first, last) = events.into_inner();
        self.read(key, first.saturating_sub(1), up_to(last, each))
    }

    /// Where the log of a Task is (2.1 `wal_path`): a file, or a stream and a partition. None where nobody
    /// but this process finds it.
    fn wal_path(&self, _key: &TaskKey, _wal_name: &WalName) -> Option<String> {
        None
    }

    /// One Task of the index, without reading its log.
    fn entry(&self, key: &TaskKey)
    -> impl Future<Output = Result<Option<Entry>, ReadError>> + Send;

    /// How the log of a Task ends that has ended and can be read; none where that cannot be told for less
    /// than a reading of its commits: an adapter may look at the heads of its frames. Who has folded such a
    /// log need not read it again as long as this stays the same.
    fn ended(&self, _: &TaskKey) -> impl Future<Output = Option<EndedLog>> + Send {
        async { None }
    }

    /// All Tasks of a session, or of all sessions, without reading their logs; in no order.
    fn entries(
        &self,
        session: Option<&SessionId>,
    ) -> impl Future<Output = Result<Vec<Entry>, ReadError>> + Send;

    /// The Tasks that have not ended, without a look at the others, in the order in which they are
    /// best read, if the adapter knows one: in a cluster those of each partition with the newest
    /// commits first.
    fn live(&self) -> impl Future<Output = Result<Vec<TaskKey>, ReadError>> + Send {
        async {
            let entries = self.entries(None).await?;
            Ok(entries.into_iter().filter(|e| e.ended.is_none()).map(|e| e.key).collect())
        }
    }

    /// Tasks whose state this journal would keep, so that they need not be read from their first
    /// commit: told one after another, to whoever asked last. None where nothing is kept.
    fn wanted(&self) -> Option<mpsc::Receiver<SnapshotRequest>> {
        None
    }

    /// Keeps a state of a live Task, folded from commits that are durable. It is derived and
    /// disposable: it may not be kept, and may be lost at any time.
    fn keep(&self, _: &TaskKey, _: EncodedSnapshot) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// The newest state that is kept of a live Task: whole, as it was given, and of an event that
    /// its log has. None if there is none, it is of a later event than `until`, or it cannot be had now.
    fn kept(
        &self,
        _: &TaskKey,
        _until: u64,
    ) -> impl Future<Output = Option<EncodedSnapshot>> + Send {
        async { None }
    }

    /// The state that is kept of a Task is of no use to this node, which would keep another.
    fn forget_snapshot(&self, _: &TaskKey) {}

    /// The caller is done with a Task for now: caches of it may go.
    fn release(&self, key: &TaskKey);

    /// The epoch in which this node owns a Task, for its commits: 0 where there is one node, none
    /// where another has it. Commits of an epoch that has passed are refused.
    fn epoch(&self, key: &TaskKey) -> Option<u64>;
}

/// Hands on the commits that begin with event `last` or before it, and breaks off with the one that has it.
pub fn up_to(
    last: u64,
    mut each: impl FnMut(Commit) -> ControlFlow<()>,
) -> impl FnMut(Commit) -> ControlFlow<()> {
    move |commit: Commit| {
        let (is_behind, is_last) = (commit.first_seq > last, commit.last_seq() >= last);
        if is_behind || each(commit).is_break() || is_last {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}

/// A shared journal is a journal.
impl<J: Journal> Journal for Arc<J> {
    fn create(
        &self,
        key: &TaskKey,
        wal_name: &WalName,
        commits: Vec<Arc<Commit>>,
    ) -> impl Future<Output = Result<(), AppendError>> + Send {
        J::create(self, key, wal_name, commits)
    }

    fn append(
        &self,
        key: &TaskKey,
        after: u64,
        commits: Vec<Arc<Commit>>,
    ) -> impl Future<Output = Result<(), AppendError>> + Send {
        J::append(self, key, after, commits)
    }

    fn append_within_capacity(
        &self,
        key: &TaskKey,
        after: u64,
        commits: Vec<Arc<Commit>>,
    ) -> impl Future<Output = Result<(), AppendError>> + Send {
        J::append_within_capacity(self, key, after, commits)
    }

    fn wal_path(&self, key: &TaskKey, wal_name: &WalName) -> Option<String> {
        J::wal_path(self, key, wal_name)
    }

    fn read<F>(
        &self,
        key: &TaskKey,
        after: u64,
        each: F,
    ) -> impl Future<Output = Result<(), ReadError>> + Send
    where
        F: FnMut(Commit) -> ControlFlow<()> + Send + 'static,
    {
        J::read(self, key, after, each)
    }

    fn read_part<F>(
        &self,
        key: &TaskKey,
        events: RangeInclusive<u64>,
        each: F,
    ) -> impl Future<Output = Result<(), ReadError>> + Send
    where
        F: FnMut(Commit) -> ControlFlow<()> + Send + 'static,
    {
        J::read_part(self, key, events, each)
    }

    fn entry(
        &self,
        key: &TaskKey,
    ) -> impl Future<Output = Result<Option<Entry>, ReadError>> + Send {
        J::entry(self, key)
    }

    fn ended(&self, key: &TaskKey) -> impl Future<Output = Option<EndedLog>> + Send {
        J::ended(self, key)
    }

    fn entries(
        &self,
        session: Option<&SessionId>,
    ) -> impl Future<Output = Result<Vec<Entry>, ReadError>> + Send {
        J::entries(self, session)
    }

    fn live(&self) -> impl Future<Output = Result<Vec<TaskKey>, ReadError>> + Send {
        J::live(self)
    }

    fn wanted(&self) -> Option<mpsc::Receiver<SnapshotRequest>> {
        J::wanted(self)
    }

    fn keep(&self, key: &TaskKey, folded: EncodedSnapshot) -> impl Future<Output = ()> + Send {
        J::keep(self, key, folded)
    }

    fn kept(
        &self,
        key: &TaskKey,
        until: u64,
    ) -> impl Future<Output = Option<EncodedSnapshot>> + Send {
        J::kept(self, key, until)
    }

    fn forget_snapshot(&self, key: &TaskKey) {
        J::forget_snapshot(self, key);
    }

    fn release(&self, key: &TaskKey) {
        J::release(self, key);
    }

    fn epoch(&self, key: &TaskKey) -> Option<u64> {
        J::epoch(self, key)
    }
}

/// A Task's state, folded from its log: bytes that a journal does not look into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedSnapshot {
    /// The last event in it: the last of a commit.
    pub version: u64,
    /// The state.
    pub bytes: Vec<u8>,
}

/// A Task whose state is wanted. Who wants it waits until this is dropped.
#[derive(Debug)]
pub struct SnapshotRequest {
    /// Which Task.
    pub key: TaskKey,
    _waits: oneshot::Sender<()>,
}

impl SnapshotRequest {
    /// With what ends when it is dropped.
    pub fn new(key: TaskKey) -> (Self, impl Future<Output = ()> + Send) {
        let (waits, dropped) = oneshot::channel();
        (Self { key, _waits: waits }, dropped.map(|_| ()))
    }
}

/// What the index knows of a Task. Derived from its log, and as fresh as its last append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Which Task.
    pub key: TaskKey,
    /// Name of its log.
    pub wal_name: WalName,
    /// For people.
    pub title: String,
    /// When it was created.
    pub created_at: Millis,
    /// Time of its last event, if ended; of the last one the index knows of, if live.
    pub updated_at: Millis,
    /// How the Task ended; none while it is live (RECOVER-02).
    pub ended: Option<End>,
    /// Whether it is archived.
    pub archived: bool,
    /// Set if the log cannot be read.
    pub damaged: bool,
}

impl Entry {
    /// LIST-06: live Tasks oldest first, then ended ones newest first, ties by id. Those of which the
    /// index tells that they are not asked for are left out.
    pub fn in_order(entries: Vec<Self>, asked: &ListInput) -> Vec<Self> {
        let (mut ended, mut live): (Vec<_>, Vec<_>) =
            entries.into_iter().partition(|entry| entry.ended.is_some());
        ended.retain(|entry| {
            let listed = |end: End| Listed {
                status: end.status(),
                archived: entry.archived,
                visibility: Visibility::Foreground, // The index does not know.
            };
            entry.ended.is_some_and(|end| asked.admits(listed(end)))
        });
        live.sort_by(|a, b| (a.created_at, &a.key).cmp(&(b.created_at, &b.key)));
        ended.sort_by(|a, b| b.updated_at.cmp(&a.updated_at).then_with(|| a.key.cmp(&b.key)));
        live.extend(ended);
        live
    }
}

/// How the log of a Task ends that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedLog {
    /// The last event.
    pub version: u64,
    /// How the Task ended.
    pub end: End,
    /// Name of the log.
    pub wal_name: WalName,
    /// Bytes of the log, about: as many as whoever reads it has to.
    pub bytes: u64,
}

/// What an index knows of the Tasks of a session, as far as a snapshot asks for it (VIEW-01).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overview {
    /// How those have ended that can be read.
    pub ends: Ends,
    /// Those that have not, and those that cannot be read.
    pub live: Vec<Entry>,
    /// The newest ended ones that the index knows by heart, [`RECENT_MAX`] at most.
    pub recent: Vec<Entry>,
}

impl Overview {
    /// Of all Tasks of a session.
    pub fn of(entries: Vec<Entry>) -> Self {
        let mut ends = Ends::default();
        let is_ended = |entry: &Entry| entry.ended.is_some() && !entry.damaged;
        let (mut recent, live): (Vec<_>, Vec<_>) = entries.into_iter().partition(is_ended);
        for entry in &recent {
            entry.ended.into_iter().for_each(|end| ends.add(end, entry.archived));
        }
        let newest =
            |a: &Entry, b: &Entry| b.updated_at.cmp(&a.updated_at).then_with(|| a.key.cmp(&b.key));
        if recent.len() > RECENT_MAX {
            recent.select_nth_unstable_by(RECENT_MAX, newest);
            recent.truncate(RECENT_MAX);
        }
        Self { ends, live, recent }
    }

    /// Begins a snapshot: with all that is known without a look at any log.
    pub fn begin(&self, asked: &ViewsInput) -> Snapshot {
        let mut all = asked.begin();
        all.count_ended(&self.ends);
        let damaged = self.live.iter().filter(|entry| entry.damaged);
        damaged.for_each(|entry| all.note_unreadable(&entry.key.task_id));
        all
    }

    /// The Tasks whose logs a snapshot reads, in the order of their ids: live ones, and the newest ended
    /// ones if these are shown.
    pub fn to_read(&self, shows_ended: bool) -> Vec<&Entry> {
        let live = self.live.iter().filter(|entry| !entry.damaged);
        let recent = self.recent.iter().filter(|_| shows_ended);
        let mut all: Vec<&Entry> = live.chain(recent).collect();
        all.sort_by(|a, b| a.key.cmp(&b.key));
        all
    }
}

/// Why an append did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// A Task with this id exists in the session (ID-03).
    #[error("the task exists")]
    TaskExists,
    /// Embedded: a log with this name exists in the session (STORE-14).
    #[error("the wal_name is taken")]
    NameTaken,
    /// The log's last event is not the expected one: somebody else writes.
    #[error("the log is at event {last}, not at {expected}")]
    Fenced {
        /// What the caller expected.
        expected: u64,
        /// What is there.
        last: u64,
    },
    /// Another node owns the Task, or this one took it anew: nothing was written.
    #[error("this node does not own the task any more")]
    NotOwner,
    /// Too much waits to be written; nothing was, and the same again later is as good.
    #[error("too much waits to be written")]
    AtCapacity,
    /// Nothing was written: whoever keeps the log does not answer, and the same again in a moment is as good.
    #[error("{0}")]
    Unavailable(String),
    /// Nothing was written; the log is as before.
    #[error("{0}")]
    Failed(String),
    /// Whether it was written is settled, but the caller has to read it (mechanisms 14).
    #[error("{0}")]
    MustReread(String),
    /// Whether it was written only the next owner of the Task will know, whom its record in the log
    /// tells: this one is none any more (mechanisms 1).
    #[error("{0}")]
    Unsettled(String),
}

/// Why a log could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// No such Task.
    #[error("the task does not exist")]
    NotFound,
    /// The log is damaged, here and now for this Task alone (RECOVER-04).
    #[error("{file}:{line} (byte {offset}): {message}")]
    Damaged {
        /// The file, or what stands for it.
        file: String,
        /// Line, from 1.
        line: u64,
        /// Byte offset of that line.
        offset: u64,
        /// What is wrong with it.
        message: String,
    },
    /// Another node owns the Task.
    #[error("this node does not own the task")]
    NotOwner,
    /// Whoever keeps it does not answer now: the same again in a moment is as good.
    #[error("{0}")]
    Unavailable(String),
    /// It cannot be read now.
    #[error("{0}")]
    Failed(String),
}
