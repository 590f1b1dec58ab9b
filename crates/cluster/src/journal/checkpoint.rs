//! Checkpoints of a partition's index, so that a new owner reads only the tail of its stream.
//!
//! An owner writes checkpoints beside the commits into the stream `TENURE_INDEX`; no commit waits
//! for them. A checkpoint covers only what was acknowledged, up to a message that it names. It is
//! derived and disposable: a new owner that finds none, or only a damaged one, reads the whole
//! stream.
//!
//! A checkpoint consists of parts and a manifest, each the newest message of its subject. The
//! manifest is written last and has the checksum of every part, so that a checkpoint that was
//! overwritten or half written is recognised as unsound. A partition has two slots, written in
//! turn, so that the previous checkpoint stays whole meanwhile. The parts hold the rows of Tasks,
//! and how the Tasks of each session have ended, as JSON lines; then the ended Tasks without a row,
//! sorted by the hash of the key, each as hash and place of the newest frame, 8 bytes little endian
//! each. Rows of long Tasks point to their [`snapshots`](super::snapshots).

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_nats::jetstream::stream::LastRawMessageErrorKind;
use async_nats::jetstream::{self, ErrorCode, stream};
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream as futures_stream};
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use tenure_core::features::Features;
use tenure_core::id::{SessionId, TaskId};
use tenure_core::view::snapshot::Ends;
use tenure_ports::journal::{ReadError, SnapshotRequest, TaskKey};
use tokio::sync::{Mutex, Notify, Semaphore, mpsc, watch};
use tokio::task::{JoinError, spawn_blocking};
use tokio::time::{Instant, sleep, timeout};

use super::LogSettings;
use super::ended::EndedIndex;
use super::index::{Index, IndexParts};
use super::read::Frames;
use super::row::TaskRow;
use crate::request::{RequestError, within};

/// Version of the format; a checkpoint of another version is not used.
const VERSION: u32 = 2;
/// How many parts are asked for at a time.
pub(super) const PARTS_AT_ONCE: usize = 4;
/// How many bytes a hash and a place take.
const PAIR: usize = 16;
/// The slots that a partition may have: with the shortest parts they hold 256 GiB of states.
const SLOTS_MAX: u32 = 1 << 22;
/// How many bytes a part has at least, even if messages of logs are smaller.
const PART_BYTES_MIN: usize = 64 << 10;

/// The manifest of a checkpoint.
#[derive(Debug, Serialize, Deserialize)]
struct Manifest {
    version: u32,
    /// The last message that it covers, and that message's checksum: the stream may be another by
    /// now.
    covered: u64,
    checksum: u32,
    /// Checksums of the parts with rows, and of the parts with ended Tasks, which follow them.
    rows: Vec<u32>,
    ended: Vec<u32>,
    /// The features that the log may hold; older programs leave them out.
    #[serde(default)]
    features: Features,
}

/// A line of a part.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum CheckpointLine {
    Task { session_id: SessionId, task_id: TaskId, row: TaskRow },
    Session { session_id: SessionId, ends: Ends },
}

/// Why something beside the log could not be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unread {
    /// JetStream did not answer.
    #[error("{0}")]
    Unanswered(String),
    /// It is missing, or not what was stored.
    #[error("{0}")]
    Unsound(String),
}

impl From<RequestError> for Unread {
    fn from(error: RequestError) -> Self {
        Self::Unanswered(error.to_string())
    }
}

/// Why a checkpoint was not written. Nothing is lost, but a new owner has to read more of the
/// stream.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// JetStream does not answer, or refuses.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The last message that it covers could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// It could not be encoded.
    #[error(transparent)]
    Encode(#[from] serde_json::Error),
    /// The thread that encodes it ended early.
    #[error(transparent)]
    Thread(#[from] JoinError),
}

/// A checkpoint that has been written.
struct WrittenCheckpoint {
    /// The last message that it covers.
    covered: u64,
    /// Slots to which it points no more.
    left: Vec<u32>,
}

/// The place where the checkpoints of a partition are stored.
#[derive(Debug, Clone)]
pub(super) struct Store {
    pub(super) context: jetstream::Context,
    pub(super) settings: LogSettings,
    pub(super) partition: u32,
    pub(super) part_bytes: usize,
    /// Permits to read a part of a snapshot, shared by all partitions.
    pub(super) turns: Arc<Semaphore>,
}

impl Store {
    /// The subject of a part: `place` is a checkpoint's slot, or the name of the snapshots.
    pub(super) fn subject(&self, place: impl Display, what: impl Display) -> String {
        format!("{}.{}.{place}.{what}", self.settings.index_subject(), self.partition)
    }

    pub(super) async fn stream(&self) -> Result<stream::Stream<()>, RequestError> {
        let stream = self.context.get_stream_no_info(self.settings.index_stream());
        within(self.settings.timeout, "no answer", stream).await
    }

    /// The index of the newest sound checkpoint, and the checkpoint's slot.
    pub(super) async fn load(&self, wal: Frames<'_>) -> Option<(Index, u32)> {
        let stream = self.stream().await.ok()?;
        let mut found = Vec::new();
        for slot in [0, 1] {
            let manifest = self.message(&stream, self.subject(slot, "manifest"), None).await;
            let manifest = manifest.ok().and_then(|m| serde_json::from_slice::<Manifest>(&m).ok());
            found.extend(manifest.filter(|m| m.version == VERSION).map(|m| (m.covered, slot, m)));
        }
        found.sort_by_key(|(covered, ..)| std::cmp::Reverse(*covered));
        for (covered, slot, manifest) in found {
            match self.restore(&stream, wal, slot, &manifest).await {
                Ok(index) => return Some((index, slot)),
                Err(why) => {
                    let partition = self.partition;
                    tracing::warn!(partition, covered, %why, "a checkpoint is not used");
                }
            }
        }
        None
    }

    async fn restore(
        &self,
        stream: &stream::Stream<()>,
        wal: Frames<'_>,
        slot: u32,
        manifest: &Manifest,
    ) -> Result<Index, Unread> {
        // If the stream ends before that message, the taking decides what that means.
        match wal.message(manifest.covered).await {
            Ok(message) if crc32fast::hash(&message) != manifest.checksum => {
                return Err(Unread::Unsound("it is of another stream".into()));
            }
            Ok(_) | Err(ReadError::Damaged { .. } | ReadError::NotFound) => {}
            Err(error) => {
                let why = format!("nobody says whether it is of this stream: {error}");
                return Err(Unread::Unanswered(why));
            }
        }
        let checksums: Vec<u32> = manifest.rows.iter().chain(&manifest.ended).copied().collect();
        let parts = checksums.into_iter().enumerate().map(|(number, checksum)| {
            self.message(stream, self.subject(slot, number), Some(checksum))
        });
        let parts = futures_stream::iter(parts).buffered(PARTS_AT_ONCE);
        let parts: Vec<Bytes> = parts.try_collect().await?;
        let (rows, ended) = parts.split_at(manifest.rows.len());
        let (rows, ends, ended) = decoded(rows, ended)?;
        let mut index =
            Index::restored(self.settings.ended_rows, manifest.covered, rows, ends, ended);
        index.note_features(&manifest.features);
        Ok(index)
    }

    /// The newest message of a subject. A follower may lag behind, so the leader is asked if a
    /// follower's message does not have the checksum.
    pub(super) async fn message(
        &self,
        stream: &stream::Stream<()>,
        subject: String,
        checksum: Option<u32>,
    ) -> Result<Bytes, Unread> {
        let wait = self.settings.timeout;
        let is_it = |bytes: &Bytes| checksum.is_none_or(|sum| crc32fast::hash(bytes) == sum);
        if checksum.is_some()
            && let Ok(Ok(found)) =
                timeout(wait, stream.direct_get_last_for_subject(subject.as_str())).await
            && is_it(&found.payload)
        {
            return Ok(found.payload);
        }
        let found = timeout(wait, stream.get_last_raw_message_by_subject(&subject)).await;
        let found = found.map_err(|_| Unread::Unanswered("no answer".into()))?;
        match found {
            Ok(found) if is_it(&found.payload) => Ok(found.payload),
            Ok(_) => Err(Unread::Unsound(format!("{subject} is not what the manifest says"))),
            Err(error) => Err(match error.kind() {
                LastRawMessageErrorKind::NoMessageFound => Unread::Unsound(error.to_string()),
                LastRawMessageErrorKind::JetStream(said)
                    if said.error_code() == ErrorCode::STREAM_NOT_FOUND =>
                {
                    Unread::Unsound(error.to_string())
                }
                _ => Unread::Unanswered(error.to_string()),
            }),
        }
    }

    async fn write(
        &self,
        index: &RwLock<Index>,
        wal: Frames<'_>,
        slot: u32,
    ) -> Result<WrittenCheckpoint, CheckpointError> {
        self.ensure().await?;
        let IndexParts { covered, rows, ends, pairs, features, left } = index.read().parts();
        let message = wal.message(covered).await?;
        let checksum = crc32fast::hash(&message);
        let (rows, ended) = spawn_blocking(move || encoded(rows, ends, pairs)).await??;
        let (rows, ended) = (self.cut(&rows), self.cut(&ended));
        let checksums = |parts: &[Bytes]| parts.iter().map(|part| crc32fast::hash(part)).collect();
        let manifest = Manifest {
            version: VERSION,
            covered,
            checksum,
            rows: checksums(&rows),
            ended: checksums(&ended),
            features,
        };
        for (number, part) in rows.into_iter().chain(ended).enumerate() {
            self.publish(self.subject(slot, number), part).await?;
        }
        let manifest = serde_json::to_vec(&manifest)?;
        self.publish(self.subject(slot, "manifest"), manifest.into()).await?;
        Ok(WrittenCheckpoint { covered, left })
    }

    /// Cuts bytes into parts of a message each, none of which ends within a pair.
    pub(super) fn cut(&self, bytes: &Bytes) -> Vec<Bytes> {
        let part_bytes = self.part_bytes.max(PART_BYTES_MIN) / PAIR * PAIR;
        let starts = (0..bytes.len()).step_by(part_bytes);
        starts.map(|at| bytes.slice(at..bytes.len().min(at + part_bytes))).collect()
    }

    pub(super) async fn publish(
        &self,
        subject: String,
        payload: Bytes,
    ) -> Result<(), RequestError> {
        let acknowledged = async { self.context.publish(subject, payload).await?.await };
        within(self.settings.timeout, "no answer in time", acknowledged).await.map(|_| ())
    }

    /// Makes the stream of checkpoints, if it is missing.
    pub(super) async fn ensure(&self) -> Result<(), RequestError> {
        let config = stream::Config {
            name: self.settings.index_stream(),
            subjects: vec![format!("{}.>", self.settings.index_subject())],
            storage: stream::StorageType::File,
            num_replicas: self.settings.replicas,
            max_messages_per_subject: 1,
            allow_direct: true,
            ..stream::Config::default()
        };
        let made = self.context.get_or_create_stream(config);
        within(self.settings.timeout, "no answer", made).await.map(|_| ())
    }
}

/// Rows of Tasks, how the Tasks of sessions have ended, and all other ended Tasks.
type CheckpointParts = (Vec<(TaskKey, TaskRow)>, Vec<(SessionId, Ends)>, EndedIndex);

/// Reads the parts with lines, and the parts with ended Tasks.
fn decoded(rows: &[Bytes], ended: &[Bytes]) -> Result<CheckpointParts, Unread> {
    let lines = rows.concat();
    let lines = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let (mut rows, mut ends) = (Vec::new(), Vec::new());
    for line in lines {
        let line = serde_json::from_slice(line);
        match line.map_err(|error| Unread::Unsound(error.to_string()))? {
            CheckpointLine::Task { session_id, task_id, row } => {
                check_slots(&row)?;
                rows.push((TaskKey { session_id, task_id }, row));
            }
            CheckpointLine::Session { session_id, ends: of_session } => {
                ends.push((session_id, of_session));
            }
        }
    }
    let mut pairs = Vec::with_capacity(ended.iter().map(|part| part.len() / PAIR).sum());
    for part in ended {
        let numbers = |pair: &[u8; PAIR]| {
            let (hash, at) = pair.split_at(PAIR / 2);
            Some((le(hash)?, le(at)?))
        };
        pairs.extend(part.as_chunks::<PAIR>().0.iter().filter_map(numbers));
    }
    Ok((rows, ends, EndedIndex::of_pairs(pairs)))
}

/// Refuses slots with a number that no owner would use: the index holds each free slot below the highest one.
fn check_slots(row: &TaskRow) -> Result<(), Unread> {
    let mut slots = row.state.iter().flat_map(|state| state.slots());
    match slots.find(|slot| *slot >= SLOTS_MAX) {
        Some(slot) => Err(Unread::Unsound(format!(
            "a state is in slot {slot}, and there are {SLOTS_MAX} at most"
        ))),
        None => Ok(()),
    }
}

fn le(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

/// The bytes of all lines, and the bytes of all ended Tasks.
fn encoded(
    rows: Vec<(TaskKey, TaskRow)>,
    ends: Vec<(SessionId, Ends)>,
    mut pairs: Vec<(u64, u64)>,
) -> serde_json::Result<(Bytes, Bytes)> {
    let (mut lines, mut ended) = (Vec::new(), Vec::with_capacity(pairs.len() * PAIR));
    let of_tasks = rows.into_iter().map(|(TaskKey { session_id, task_id }, row)| {
        CheckpointLine::Task { session_id, task_id, row }
    });
    let of_sessions =
        ends.into_iter().map(|(session_id, ends)| CheckpointLine::Session { session_id, ends });
    for line in of_tasks.chain(of_sessions) {
        serde_json::to_writer(&mut lines, &line)?;
        lines.push(b'\n');
    }
    pairs.sort_unstable();
    for (hash, at) in pairs {
        ended.extend_from_slice(&hash.to_le_bytes());
        ended.extend_from_slice(&at.to_le_bytes());
    }
    Ok((lines.into(), ended.into()))
}

/// The checkpoints of a partition that this node owns.
#[derive(Debug)]
pub(super) struct Checkpoints {
    pub(super) store: Store,
    pub(super) index: Arc<RwLock<Index>>,
    pub(super) wal: stream::Stream<()>,
    /// The slot to be written next; locked while it is written.
    pub(super) slot: Mutex<u32>,
    /// How many commits were stored since the last checkpoint.
    pub(super) commits: AtomicU64,
    pub(super) due: Notify,
    /// The channel to the task that makes snapshots, if there is one.
    pub(super) wants: Arc<Wants>,
}

/// The sender of requests for snapshots.
pub(super) type Wants = parking_lot::Mutex<Option<mpsc::Sender<SnapshotRequest>>>;

impl Checkpoints {
    /// Notes that commits were stored.
    pub(super) fn count(&self, commits: usize) {
        let commits = commits as u64;
        let all = self.commits.fetch_add(commits, Ordering::AcqRel) + commits;
        if all >= self.store.settings.checkpoint_commits {
            self.due.notify_one();
        }
    }

    /// Writes a checkpoint, if there is anything new.
    pub(super) async fn write(&self) -> Result<(), CheckpointError> {
        let mut slot = self.slot.lock().await;
        let commits = self.commits.load(Ordering::Acquire);
        if commits == 0 {
            return Ok(());
        }
        let name = self.store.settings.stream(self.store.partition);
        let timeout = self.store.settings.timeout;
        let client = self.store.context.client();
        let (client, stream, name) = (&client, &self.wal, name.as_str());
        let wal = Frames { client, stream, name, timeout, asks_leader: true, frame_cache: None };
        let WrittenCheckpoint { covered, left } = self.store.write(&self.index, wal, *slot).await?;
        self.commits.fetch_sub(commits, Ordering::AcqRel);
        *slot = 1 - *slot;
        tracing::debug!(stream = name, covered, "checkpoint written");
        if let Err(error) = self.store.empty(&self.index, &left).await {
            tracing::debug!(stream = name, %error, "states that have gone are emptied another time");
        }
        Ok(())
    }

    /// Writes checkpoints until the partition is left.
    pub(super) async fn run(self: Arc<Self>, mut closes: watch::Receiver<bool>) {
        let every = self.store.settings.checkpoint_every;
        let mut states_at = Instant::now();
        loop {
            tokio::select! {
                _ = closes.wait_for(|closes| *closes) => return,
                () = self.due.notified() => {}
                () = sleep(every) => {}
            }
            if states_at.elapsed() >= every {
                states_at = Instant::now();
                tokio::select! {
                    _ = closes.wait_for(|closes| *closes) => return,
                    // A snapshot that takes longer is left to the next round.
                    _ = timeout(every, self.store_snapshots()) => {}
                }
            }
            if let Err(error) = self.write().await {
                let partition = self.store.partition;
                tracing::warn!(partition, %error, "a checkpoint was not written");
                sleep(AFTER_FAILURE.min(every)).await;
            }
        }
    }
}

/// How long a checkpoint that failed is not tried again.
const AFTER_FAILURE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests;
