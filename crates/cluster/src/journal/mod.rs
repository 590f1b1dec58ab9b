//! The log in JetStream: a stream per partition, fenced by its own sequence numbers.
//!
//! Tasks know nothing of partitions: they give their commits to the [`Journal`] port. A partition has one
//! [`writer`] at a time, which gathers into one frame the commits of all Tasks that wait while an append is
//! in flight; [`capacity`] bounds what waits. The [`index`] holds in memory where each Task's newest commit
//! is and whether it has ended; a Task is read along its own chain ([`read`]), part by part ([`marks`]). A
//! new owner gets the index from a [`checkpoint`] and the [`tail`] of the stream behind it. A long Task is
//! read from its [`snapshot`](snapshots) on, which lies beside the checkpoints.

mod ahead;
mod capacity;
mod checkpoint;
mod confirm;
mod ended;
mod ensure;
mod frame_cache;
mod gathered;
mod index;
mod leave;
mod lists;
mod marks;
mod published;
mod read;
pub(crate) mod record;
mod row;
mod settings;
mod slots;
mod snapshots;
mod tail;
mod take;
mod usage;
mod writer;
mod written;

use std::ops::{ControlFlow, RangeInclusive};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use async_nats::Client;
use async_nats::jetstream::{self, stream};
use parking_lot::{Mutex, RwLock};
use tenure_core::Commit;
use tenure_core::id::{SessionId, WalName};
use tenure_ports::journal::{
    AppendError, EncodedSnapshot, EndedLog, Entry, ReadError, SnapshotRequest, TaskKey, up_to,
};
use tenure_ports::{Journal, Observer};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use self::capacity::{Asks, ByteCapacity};
pub use self::checkpoint::CheckpointError;
use self::checkpoint::{Checkpoints, Wants};
use self::frame_cache::FrameCache;
use self::index::{Index, IndexLookup};
pub use self::leave::Leaving;
pub use self::published::{Reached, Stored};
use self::read::Frames;
pub use self::record::OtherCluster;
pub use self::settings::LogSettings;
pub use self::tail::StreamError;
use self::writer::{AppendRequest, AppendWaiter, encoded};
use crate::owned::Owned;

/// Why the log cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StreamOpenError {
    /// JetStream does not answer, or cannot yet: its servers elect a leader, or are still to come.
    #[error("stream {stream}: {message}")]
    Unavailable {
        /// Which stream.
        stream: String,
        /// What is the matter.
        message: String,
    },
    /// JetStream is off, or refuses the stream.
    #[error("stream {stream}: {message}")]
    Refused {
        /// Which stream.
        stream: String,
        /// What went wrong.
        message: String,
    },
    /// The cluster's record does not fit this node.
    #[error(transparent)]
    Other(#[from] OtherCluster),
}

impl StreamOpenError {
    /// Whether trying again may succeed, with nobody's help.
    pub fn passes(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }

    /// What to do about it.
    pub fn advice(&self) -> String {
        match self {
            Self::Unavailable { .. } => {
                "an election ends by itself; where it stays so, `tenure doctor` says what is wrong"
                    .into()
            }
            Self::Refused { .. } => {
                "JetStream must be on, with room for the log and servers for its replicas; its subjects must be \
                 of no other stream, so names of clusters differ in more than the size of their letters"
                    .into()
            }
            Self::Other(other) => other.advice(),
        }
    }
}

/// Why a partition could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum TakeError {
    /// There is no such partition.
    #[error("there is no partition {0}")]
    Unknown(u32),
    /// JetStream does not answer, or refuses.
    #[error("partition {partition}: {message}")]
    Stream {
        /// The partition.
        partition: u32,
        /// What went wrong.
        message: String,
    },
    /// The stream ends before an acknowledged message. Nobody may write there: new messages would take the
    /// places of lost ones, which may come back (mechanisms 1).
    #[error("partition {partition}: {message}")]
    Lost {
        /// The partition.
        partition: u32,
        /// How much was lost.
        message: String,
    },
}

/// A partition that this node owns.
#[derive(Debug)]
struct OwnedPartition {
    epoch: u64,
    requests: mpsc::Sender<AppendRequest>,
    capacity: ByteCapacity,
    index: Arc<RwLock<Index>>,
    stream: stream::Stream<()>,
    /// The last message of the stream that its writer knows of.
    last_seq: Arc<AtomicU64>,
    /// Tells the writer to accept nothing more.
    closes: watch::Sender<bool>,
    /// The writer, which ends when all accepted requests have their answers.
    writer: Mutex<Option<JoinHandle<()>>>,
    checkpoints: Arc<Checkpoints>,
    frame_cache: FrameCache,
}

/// How many requests may wait for the writer of a partition.
const REQUESTS_MAX: usize = 4_096;

/// The log of a cluster, in those partitions that this node owns.
///
/// A Task whose partition this node does not own can be neither read nor written: both fail until the
/// partition is [taken](Self::take).
#[derive(Debug)]
pub struct JetStreamJournal {
    client: Client,
    context: jetstream::Context,
    settings: LogSettings,
    store: String,
    owned: Arc<Owned>,
    partitions: Mutex<Vec<Option<Arc<OwnedPartition>>>>,
    places: Vec<PartitionSlot>,
    /// Permits to append, for all partitions.
    turns: Arc<Semaphore>,
    /// Permits to read a stream.
    pulls: Semaphore,
    /// Permits to fetch a frame, besides one of each partition.
    fetches: Arc<Semaphore>,
    /// Permits to read a part of a snapshot.
    parts: Arc<Semaphore>,
    /// The channel to the task that makes snapshots.
    wants: Arc<Wants>,
}

/// The state of a partition that outlives its owners on this node.
#[derive(Debug, Default)]
struct PartitionSlot {
    /// Held while the partition is taken.
    taking: tokio::sync::Mutex<()>,
    /// Rises when the node leaves the partition: a taking that began before does not count.
    left: AtomicU64,
    /// The last message that was acknowledged to any node, as far as this node knows.
    acknowledged: Arc<AtomicU64>,
}

impl JetStreamJournal {
    /// The observer, which gets the times of calls.
    pub(crate) fn observer(&self) -> Option<&Arc<dyn Observer>> {
        self.settings.observer.as_ref()
    }

    /// Makes the streams that are missing, and checks the existing ones. Takes no partition yet.
    ///
    /// # Errors
    /// See [`StreamOpenError`].
    pub async fn open(client: Client, settings: LogSettings) -> Result<Self, StreamOpenError> {
        let context =
            jetstream::ContextBuilder::new().timeout(settings.timeout).build(client.clone());
        let mut store = ensure::store(&context, &settings).await?;
        for partition in 0..settings.partitions {
            let named = ensure::stream(&context, &settings, partition, &store).await?;
            store = named.unwrap_or(store);
        }
        let owned = Arc::new(Owned::none(settings.partitions));
        let partitions = Mutex::new((0..settings.partitions).map(|_| None).collect());
        let places = (0..settings.partitions).map(|_| PartitionSlot::default()).collect();
        let turns = Arc::new(Semaphore::new(writer::APPENDS_AT_ONCE));
        let pulls = Semaphore::new(tail::PULLS_AT_ONCE);
        let fetches = Arc::new(Semaphore::new(frame_cache::FETCHES));
        Ok(Self {
            client,
            context,
            settings,
            store,
            owned,
            partitions,
            places,
            turns,
            pulls,
            fetches,
            parts: Arc::new(Semaphore::new(checkpoint::PARTS_AT_ONCE)),
            wants: Arc::default(),
        })
    }

    /// Which store this is: the name of its cluster and an id, or that an older version made it.
    pub fn store(&self) -> &str {
        &self.store
    }

    /// The partitions that this node owns.
    pub fn owned(&self) -> &Arc<Owned> {
        &self.owned
    }

    fn message_bytes(&self) -> usize {
        // Headers need some bytes of what the server allows.
        let most = self.client.server_info().max_payload.saturating_sub(4 << 10).max(1 << 10);
        self.settings.message_bytes.min(most)
    }

    fn frames<'a>(
        &'a self,
        stream: &'a stream::Stream<()>,
        name: &'a str,
        frame_cache: Option<&'a FrameCache>,
    ) -> Frames<'a> {
        let (client, timeout) = (&self.client, self.settings.timeout);
        Frames { client, stream, name, timeout, asks_leader: false, frame_cache }
    }

    /// Writes a checkpoint now, not when it is time, of a partition that this node owns.
    ///
    /// # Errors
    /// It could not be written. Nothing is lost, but a new owner has to read more.
    pub async fn checkpoint(&self, partition: u32) -> Result<(), CheckpointError> {
        let found = self.partitions.lock().get(partition as usize).cloned().flatten();
        match found {
            Some(found) => found.checkpoints.write().await,
            None => Ok(()),
        }
    }

    /// The partition of a Task, if this node owns it.
    fn of(&self, key: &TaskKey) -> Option<Arc<OwnedPartition>> {
        let at = key.partition(self.settings.partitions);
        self.owned.epoch(at)?;
        self.partitions.lock().get(at as usize)?.clone()
    }

    fn all(&self) -> Vec<(u32, Arc<OwnedPartition>)> {
        let partitions = self.partitions.lock();
        let owned = self.owned.all().into_iter();
        owned.filter_map(|(at, _)| Some((at, partitions.get(at as usize)?.clone()?))).collect()
    }

    /// As [`create`](Journal::create), for a whole log at once: it waits for capacity instead of being
    /// refused.
    ///
    /// # Errors
    /// As `create`.
    pub async fn import(
        &self,
        key: &TaskKey,
        wal_name: &WalName,
        commits: Vec<Arc<Commit>>,
    ) -> Result<(), AppendError> {
        self.write(key, Where::New(wal_name), commits, Asks::Waits).await
    }

    async fn write(
        &self,
        key: &TaskKey,
        at: Where<'_>,
        commits: Vec<Arc<Commit>>,
        asks: Asks,
    ) -> Result<(), AppendError> {
        let (after, created) = match at {
            Where::New(wal_name) => (0, Some(wal_name)),
            Where::After(seq) => (seq, None),
        };
        let partition = self.of(key).ok_or(AppendError::NotOwner)?;
        // Commits of an earlier epoch were decided on a state that may have changed since.
        if commits.iter().any(|commit| commit.epoch != partition.epoch) {
            return Err(AppendError::NotOwner);
        }
        // A live Task stays in the index, where the writer finds it.
        let live = partition.index.read().newest_if_live(key);
        let (newest, known) = match live {
            Some(newest) => (Some(newest), IndexLookup::default()),
            None => {
                let known = self.known(key, &partition).await;
                let known = known.map_err(|error| self.unknown(key, error))?;
                (known.row.as_ref().map(|row| row.newest), known)
            }
        };
        if let Some(newest) = newest.filter(|n| created.is_none() && n.wal_seq != after) {
            return Err(AppendError::Fenced { expected: after, last: newest.wal_seq });
        }
        let (lines, heads) = match commits.len() {
            ..MANY => encoded(key, after, created, &commits)?,
            // An imported log may have many: meanwhile this thread serves others.
            _ => {
                let (key, created) = (key.clone(), created.cloned());
                let encode = move || encoded(&key, after, created.as_ref(), &commits);
                let encoded = tokio::task::spawn_blocking(encode).await;
                encoded.map_err(|error| AppendError::Failed(error.to_string()))??
            }
        };
        let capacity =
            partition.capacity.take(lines.len(), asks).await.ok_or(AppendError::AtCapacity)?;
        let (to, answer) = oneshot::channel();
        let reply = AppendWaiter { to, capacity };
        let request = AppendRequest { key: key.clone(), after, known, heads, lines, reply };
        let gone = || AppendError::NotOwner;
        partition.requests.send(request).await.map_err(|_| gone())?;
        // A writer answers every request that it gets, unless the process ends.
        answer.await.unwrap_or_else(|_| Err(AppendError::Unsettled("the writer has gone".into())))
    }
}

impl JetStreamJournal {
    /// The error if it cannot be found out whether the Task exists and has ended: then nothing is written.
    fn unknown(&self, key: &TaskKey, error: ReadError) -> AppendError {
        let stream = self.settings.stream(key.partition(self.settings.partitions));
        match error {
            ReadError::NotOwner => AppendError::NotOwner,
            ReadError::Unavailable(why) => AppendError::Unavailable(format!("{stream}: {why}")),
            error @ (ReadError::NotFound | ReadError::Damaged { .. } | ReadError::Failed(_)) => {
                AppendError::Failed(format!(
                    "whether {key} ended earlier cannot be read from stream {stream}: {error}; `tenure \
                     doctor` looks at the stream"
                ))
            }
        }
    }
}

/// From so many commits on they are encoded on another thread, as that takes milliseconds.
const MANY: usize = 1_000;

/// Where commits are to be written.
#[derive(Debug, Clone, Copy)]
enum Where<'a> {
    /// In a new log of this name.
    New(&'a WalName),
    /// Behind this event.
    After(u64),
}

impl Journal for JetStreamJournal {
    async fn create(
        &self,
        key: &TaskKey,
        wal_name: &WalName,
        commits: Vec<Arc<Commit>>,
    ) -> Result<(), AppendError> {
        self.write(key, Where::New(wal_name), commits, Asks::Create).await
    }

    async fn append(
        &self,
        key: &TaskKey,
        after: u64,
        commits: Vec<Arc<Commit>>,
    ) -> Result<(), AppendError> {
        self.write(key, Where::After(after), commits, Asks::Waits).await
    }

    async fn append_within_capacity(
        &self,
        key: &TaskKey,
        after: u64,
        commits: Vec<Arc<Commit>>,
    ) -> Result<(), AppendError> {
        self.write(key, Where::After(after), commits, Asks::Again).await
    }

    async fn read<F>(&self, key: &TaskKey, after: u64, each: F) -> Result<(), ReadError>
    where
        F: FnMut(Commit) -> ControlFlow<()> + Send + 'static,
    {
        self.read_chain(key, after, u64::MAX, each).await
    }

    async fn read_part<F>(
        &self,
        key: &TaskKey,
        events: RangeInclusive<u64>,
        each: F,
    ) -> Result<(), ReadError>
    where
        F: FnMut(Commit) -> ControlFlow<()> + Send + 'static,
    {
        let (first, last) = events.into_inner();
        self.read_chain(key, first.saturating_sub(1), last, up_to(last, each)).await
    }

    fn log_bytes(&self, key: &TaskKey) -> Option<u64> {
        self.of(key)?.index.read().log_bytes(key)
    }

    fn wal_path(&self, key: &TaskKey, _: &WalName) -> Option<String> {
        let partition = key.partition(self.settings.partitions);
        Some(format!("{}/{partition}", self.settings.stream(partition)))
    }

    async fn entry(&self, key: &TaskKey) -> Result<Option<Entry>, ReadError> {
        let partition = self.of(key).ok_or(ReadError::NotOwner)?;
        Ok(self.known(key, &partition).await?.row.map(|row| row.entry(key)))
    }

    async fn ended(&self, key: &TaskKey) -> Option<EndedLog> {
        let partition = self.of(key)?;
        self.known(key, &partition).await.ok()?.row?.ended()
    }

    async fn entries(&self, session: Option<&SessionId>) -> Result<Vec<Entry>, ReadError> {
        let mut entries = Vec::new();
        for (at, partition) in self.all() {
            entries.extend(self.entries_of(at, &partition, session).await?);
        }
        Ok(entries)
    }

    async fn live(&self) -> Result<Vec<TaskKey>, ReadError> {
        Ok(self.all().iter().flat_map(|(_, partition)| partition.index.read().live()).collect())
    }

    fn wanted(&self) -> Option<mpsc::Receiver<SnapshotRequest>> {
        let (wants, wanted) = mpsc::channel(1);
        *self.wants.lock() = Some(wants);
        Some(wanted)
    }

    async fn keep(&self, key: &TaskKey, folded: EncodedSnapshot) {
        let Some(partition) = self.of(key) else { return };
        if let Err(error) = partition.checkpoints.keep(key, folded).await {
            tracing::warn!(task = %key, %error, "its state was not kept");
        }
    }

    async fn kept(&self, key: &TaskKey, until: u64) -> Option<EncodedSnapshot> {
        self.of(key)?.checkpoints.kept(key, until).await
    }

    fn forget_snapshot(&self, key: &TaskKey) {
        if let Some(partition) = self.of(key) {
            partition.checkpoints.forget(key);
        }
    }

    fn release(&self, _: &TaskKey) {}

    fn may_hold(&self, key: &TaskKey, feature: &str) -> bool {
        let partition = key.partition(self.settings.partitions) as usize;
        let found = self.partitions.lock().get(partition).and_then(Option::clone);
        found.is_some_and(|it| it.index.read().features().has(feature))
    }

    fn epoch(&self, key: &TaskKey) -> Option<u64> {
        self.owned.epoch(key.partition(self.settings.partitions))
    }
}
