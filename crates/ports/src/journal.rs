//! The log, which is the only truth (law 1): [`Journal`] is the port to it, with its index,
//! snapshots and errors.

mod sent;
mod shared;

use std::future::Future;
use std::ops::{ControlFlow, RangeInclusive};
use std::sync::Arc;

use futures::FutureExt as _;
use tenure_core::Commit;
use tenure_core::id::{Millis, SessionId, TaskId, WalName};
use tenure_core::record::Labels;
use tenure_core::status::{End, Visibility};
use tenure_core::view::list::Listed;
use tenure_core::view::snapshot::{Ends, RECENT_MAX};
use tenure_core::view::{ListInput, Snapshot, ViewsInput};
use tokio::sync::{mpsc, oneshot};

/// A Task's id together with its session: unique in the whole cluster.
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
/// After `Ok` the commits are durable, in order, and every later `read` sees them. After [`AppendError::Failed`] none
/// of them is in the log, nor ever will be. After [`AppendError::MustReread`] (embedded) the caller does not know, and
/// must read the log again before it uses the Task; the adapter makes sure that what it reads no longer changes, and
/// fails reads until then. After [`AppendError::Unsettled`] only another node may read the Task. All commits of one
/// call have one outcome, except that a crash may keep only the first few of them; each commit is stored whole or not
/// at all (WAL-08).
///
/// A write that has begun goes through even if its future is dropped.
///
/// An adapter may limit what waits to be written (mechanisms 16): above the limit it refuses
/// `create` and `append_within_capacity` with [`AppendError::AtCapacity`], and lets `append` wait.
pub trait Journal: Send + Sync + 'static {
    /// Starts the log of a new Task. The first event is its `task_created`, which carries the same
    /// ids and `wal_name`. Exactly one of several concurrent creates of a key wins (OWN-07).
    fn create(
        &self,
        key: &TaskKey,
        wal_name: &WalName,
        commits: Vec<Arc<Commit>>,
    ) -> impl Future<Output = Result<(), AppendError>> + Send;

    /// Adds commits to the log of a Task whose last event is `after`. The commits must follow it,
    /// and each other, without a gap; otherwise nothing is written.
    fn append(
        &self,
        key: &TaskKey,
        after: u64,
        commits: Vec<Arc<Commit>>,
    ) -> impl Future<Output = Result<(), AppendError>> + Send;

    /// As [`append`](Self::append), for commits that the caller can ask for again if they are refused.
    fn append_within_capacity(
        &self,
        key: &TaskKey,
        after: u64,
        commits: Vec<Arc<Commit>>,
    ) -> impl Future<Output = Result<(), AppendError>> + Send {
        self.append(key, after, commits)
    }

    /// Passes every whole commit of a Task's log after event `after` to `each`, oldest first, until
    /// `each` breaks off. `after` is 0 for the whole log; if it lies inside a commit, that commit comes
    /// whole. The part of the log before it costs next to nothing, and its damage is not noticed. An
    /// unfinished commit at the end is left out. If the log is damaged, `each` gets the commits before
    /// the damage, as far as they can be found, and then the call fails. `each` may block its thread.
    fn read<F>(
        &self,
        key: &TaskKey,
        after: u64,
        each: F,
    ) -> impl Future<Output = Result<(), ReadError>> + Send
    where
        F: FnMut(Commit) -> ControlFlow<()> + Send + 'static;

    /// As [`read`](Self::read), for the commits that have some of these events. A caller that reads
    /// a long log part by part does not pay for what lies behind each part.
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

    /// Where the log of a Task is (2.1 `wal_path`): a file, or a stream and a partition. `None` if
    /// only this process can find it.
    fn wal_path(&self, _key: &TaskKey, _wal_name: &WalName) -> Option<String> {
        None
    }

    /// One Task of the index, without reading its log.
    fn entry(&self, key: &TaskKey)
    -> impl Future<Output = Result<Option<Entry>, ReadError>> + Send;

    /// How the log of an ended, readable Task ends. `None` if the adapter cannot say so for less
    /// than the cost of reading the commits; it may read the heads of the frames. A caller that has
    /// folded such a log need not read it again as long as this value stays the same.
    fn ended(&self, _: &TaskKey) -> impl Future<Output = Option<EndedLog>> + Send {
        async { None }
    }

    /// About how many bytes the log of a live Task has, without a look into it. `None` if there is none that the
    /// adapter knows of, or if it counts no bytes.
    fn log_bytes(&self, _: &TaskKey) -> Option<u64> {
        None
    }

    /// All Tasks of a session, or of all sessions, without reading their logs; in no order.
    fn entries(
        &self,
        session: Option<&SessionId>,
    ) -> impl Future<Output = Result<Vec<Entry>, ReadError>> + Send;

    /// The Tasks that have not ended, without a look at the others, in the order in which they are
    /// best read, if the adapter knows one. In a cluster, the Tasks of each partition with the
    /// newest commits come first.
    fn live(&self) -> impl Future<Output = Result<Vec<TaskKey>, ReadError>> + Send {
        async {
            let entries = self.entries(None).await?;
            Ok(entries.into_iter().filter(|e| e.ended.is_none()).map(|e| e.key).collect())
        }
    }

    /// The Tasks whose snapshots this journal wants to store, so that nobody need read them from
    /// their first commit. The requests come one after another, on the receiver of the last call.
    /// `None` if this journal stores no snapshots.
    fn wanted(&self) -> Option<mpsc::Receiver<SnapshotRequest>> {
        None
    }

    /// Stores a snapshot of a live Task, folded from durable commits. A snapshot is derived and
    /// disposable: the journal may decline to store it, and may lose it at any time.
    fn keep(&self, _: &TaskKey, _: EncodedSnapshot) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// The newest stored snapshot of a live Task: whole, as it was given, and of an event that the log
    /// has. `None` if there is none, if it is of a later event than `until`, or if it cannot be read now.
    fn kept(
        &self,
        _: &TaskKey,
        _until: u64,
    ) -> impl Future<Output = Option<EncodedSnapshot>> + Send {
        async { None }
    }

    /// Says that this node cannot use the stored snapshot of a Task and would store another.
    fn forget_snapshot(&self, _: &TaskKey) {}

    /// Says that the caller is done with a Task for now: the journal may drop its caches of it.
    fn release(&self, key: &TaskKey);

    /// Whether the log of a Task may hold what needs a feature (EVOLVE-02): in a cluster, once all nodes have it.
    fn may_hold(&self, _: &TaskKey, _feature: &str) -> bool {
        true
    }

    /// The epoch in which this node owns a Task, for its commits: 0 where there is only one node,
    /// `None` where another node owns the Task. Commits of an older epoch are refused.
    fn epoch(&self, key: &TaskKey) -> Option<u64>;
}

/// Passes on the commits that begin at event `last` or before it, and breaks off after the one that has it.
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

/// A Task's state, folded from its log, as bytes that a journal does not interpret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedSnapshot {
    /// The last event in it: the last of a commit.
    pub version: u64,
    /// The state.
    pub bytes: Vec<u8>,
}

/// A request for the snapshot of a Task. The journal waits until this is dropped.
#[derive(Debug)]
pub struct SnapshotRequest {
    /// Which Task.
    pub key: TaskKey,
    _waits: oneshot::Sender<()>,
}

impl SnapshotRequest {
    /// A request, and a future that ends when the request is dropped.
    pub fn new(key: TaskKey) -> (Self, impl Future<Output = ()> + Send) {
        let (waits, dropped) = oneshot::channel();
        (Self { key, _waits: waits }, dropped.map(|_| ()))
    }
}

/// How many bytes of a title an index has. A Task itself has all of it.
pub const INDEX_TITLE_BYTES_MAX: usize = 256;

/// As much of a title as an index has: a longer one is cut, and ends with `…`. An index has many Tasks in memory, and
/// titles may have 64 KiB.
pub fn title_in_index(title: &str) -> String {
    const CUT: &str = "…";
    if title.len() <= INDEX_TITLE_BYTES_MAX {
        return title.to_owned();
    }
    let end = title.floor_char_boundary(INDEX_TITLE_BYTES_MAX - CUT.len());
    format!("{}{CUT}", &title[..end])
}

/// What the index knows of a Task. Derived from its log, and as fresh as its last append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Which Task.
    pub key: TaskKey,
    /// Name of its log.
    pub wal_name: WalName,
    /// The title, for people to read, as far as an index has it ([`title_in_index`]).
    pub title: String,
    /// Names and values by which listings find it (LABEL-01).
    pub labels: Labels,
    /// When it was created.
    pub created_at: Millis,
    /// Time of the last event for an ended Task; for a live one, of the last event that the index knows.
    pub updated_at: Millis,
    /// How the Task ended; `None` while it is live (RECOVER-02).
    pub ended: Option<End>,
    /// Whether it is archived.
    pub archived: bool,
    /// Whether the log cannot be read.
    pub damaged: bool,
}

impl Entry {
    /// LIST-06: live Tasks oldest first, then ended ones newest first, ties by id. Leaves out the
    /// Tasks that, by what the index knows, `asked` does not ask for.
    pub fn in_order(entries: Vec<Self>, asked: &ListInput) -> Vec<Self> {
        // Nobody knows the labels of a log that cannot be read.
        let asked_for = entries.into_iter().filter(|e| e.damaged || asked.asks_for(&e.labels));
        let (mut ended, mut live): (Vec<_>, Vec<_>) =
            asked_for.partition(|entry| entry.ended.is_some());
        ended.retain(|entry| {
            let listed = |end: End| Listed {
                status: end.status(),
                archived: entry.archived,
                visibility: Visibility::Foreground, // The index does not know.
                labels: &asked.labels,              // Asked for above.
            };
            entry.ended.is_some_and(|end| asked.admits(listed(end)))
        });
        live.sort_by(|a, b| (a.created_at, &a.key).cmp(&(b.created_at, &b.key)));
        ended.sort_by(|a, b| b.updated_at.cmp(&a.updated_at).then_with(|| a.key.cmp(&b.key)));
        live.extend(ended);
        live
    }
}

/// How the log of an ended Task ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedLog {
    /// The last event.
    pub version: u64,
    /// How the Task ended.
    pub end: End,
    /// Name of the log.
    pub wal_name: WalName,
    /// Bytes of the log, about: as many as a reader of it has to read.
    pub bytes: u64,
}

/// What an index knows of the Tasks of a session that a snapshot for viewers needs (VIEW-01).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overview {
    /// How the ended Tasks that can be read have ended, counted.
    pub ends: Ends,
    /// The Tasks that have not ended, and those that cannot be read.
    pub live: Vec<Entry>,
    /// The newest ended Tasks in the index, [`RECENT_MAX`] at most.
    pub recent: Vec<Entry>,
}

impl Overview {
    /// The overview of all Tasks of a session.
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

    /// Begins a snapshot with all that the index says, without reading a log.
    pub fn begin(&self, asked: &ViewsInput) -> Snapshot {
        let mut all = asked.begin();
        all.count_ended(&self.ends);
        let damaged = self.live.iter().filter(|entry| entry.damaged);
        damaged.for_each(|entry| all.note_unreadable(&entry.key.task_id));
        all
    }

    /// The Tasks whose logs a snapshot reads, in the order of their ids: the live ones, and the
    /// newest ended ones if the snapshot shows these.
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
    /// The log's last event is not the expected one: another writer writes to it.
    #[error("the log is at event {last}, not at {expected}")]
    Fenced {
        /// What the caller expected.
        expected: u64,
        /// What is there.
        last: u64,
    },
    /// Another node owns the Task, or this node lost it and took it again: nothing was written.
    #[error("this node does not own the task any more")]
    NotOwner,
    /// Too much waits to be written. Nothing was written; the caller may repeat the same call later.
    #[error("too much waits to be written")]
    AtCapacity,
    /// The store of the log does not answer. Nothing was written; the caller may repeat the same call soon.
    #[error("{0}")]
    Unavailable(String),
    /// Nothing was written; the log is as before.
    #[error("{0}")]
    Failed(String),
    /// Whether the commits were written is settled, but the caller has to read the log to know
    /// (mechanisms 14).
    #[error("{0}")]
    MustReread(String),
    /// This node does not own the Task any more, and does not know whether the commits were written:
    /// only the next owner learns it, from where its owner record stands in the log (mechanisms 1).
    #[error("{0}")]
    Unsettled(String),
}

/// Why a log could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// No such Task.
    #[error("the task does not exist")]
    NotFound,
    /// The log of this Task alone is damaged (RECOVER-04).
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
    /// The store of the log does not answer now: the caller may repeat the same call soon.
    #[error("{0}")]
    Unavailable(String),
    /// The log cannot be read now.
    #[error("{0}")]
    Failed(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A title is cut between characters, and says so.
    #[test]
    fn long_titles_are_cut_in_the_index() {
        assert_eq!(title_in_index("short"), "short");
        let just = "t".repeat(INDEX_TITLE_BYTES_MAX);
        assert_eq!(title_in_index(&just), just);
        for long in ["t", "ß", "…", "🦀"].map(|one| one.repeat(100_000)) {
            let cut = title_in_index(&long);
            assert!(cut.len() <= INDEX_TITLE_BYTES_MAX && cut.len() > INDEX_TITLE_BYTES_MAX - 8);
            let kept = cut.strip_suffix('…').unwrap_or_default();
            assert!(!kept.is_empty() && long.starts_with(kept), "{cut}");
            assert_eq!(title_in_index(&cut), cut);
        }
    }
}
