//! [`JetStreamBlobs`], the blobs of a cluster, in a stream of their own that only schedulers touch.
//!
//! A blob is cut into messages, each with a subject of its own, and a last one, its head, says how many
//! there are: a blob without a head is not there. Nothing is deleted from the stream, as no scheduler has
//! the right to: a blob goes by being overwritten with empty messages.

use std::collections::HashMap;
use std::error::Error as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_nats::jetstream::stream::{InfoError, LastRawMessageErrorKind, Stream};
use async_nats::jetstream::{self, ErrorCode, stream};
use async_nats::{Client, jetstream::message::StreamMessage};
use bytes::Bytes;
use futures::future::{BoxFuture, ready};
use futures::{StreamExt as _, TryStreamExt as _};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tenure_core::id::{BlobHash, Millis, SessionId, TaskId};
use tenure_core::record::Blob;
use tenure_ports::blobs::{BlobError, BlobStore, StoredBlob, TaskFilter, every_task, quota_bytes};
use tenure_ports::journal::TaskKey;
use tokio::time::{Instant, timeout};

use crate::journal::LogSettings;
use crate::request::{RequestError, within};

/// How many parts are read or written at a time.
const PARTS_AT_ONCE: usize = 4;

/// How many heads, which are short, a list reads at a time.
const HEADS_AT_ONCE: usize = 8;

/// How long a node trusts its own count of what a session has, as other nodes put blobs there, too.
const COUNTED_FOR: Duration = Duration::from_secs(600);

/// For how many sessions the node knows how many bytes of blobs they have. It counts those of another session when its
/// next blob comes.
const COUNTED_MAX: usize = 4_096;

/// Blobs in JetStream.
#[derive(Debug, Clone)]
pub struct JetStreamBlobs {
    context: jetstream::Context,
    /// How the log is stored: blobs have as many replicas.
    settings: LogSettings,
    /// How many bytes the blobs of a session may have, as [`quota_bytes`] counts them.
    quota: u64,
    used: Arc<Mutex<HashMap<SessionId, Counted>>>,
    /// Whether the stream is known to be there.
    is_made: Arc<AtomicBool>,
}

/// How many bytes the blobs of a session have, as this node counts them.
#[derive(Debug, Clone, Copy)]
struct Counted {
    bytes: u64,
    since: Instant,
}

/// The head of a blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct BlobHead {
    size_bytes: u64,
    parts: usize,
}

impl JetStreamBlobs {
    /// The blobs of a cluster, of which each session may have so many bytes. The first blob makes the
    /// stream.
    pub fn new(client: Client, settings: LogSettings, quota: u64) -> Self {
        let (used, is_made) = Default::default();
        Self { context: jetstream::new(client), settings, quota, used, is_made }
    }

    /// Makes the stream, if it is missing.
    async fn ensure(&self) -> Result<(), BlobError> {
        if self.is_made.load(Ordering::Acquire) {
            return Ok(());
        }
        let config = stream::Config {
            name: self.settings.blob_stream(),
            subjects: vec![format!("{}.>", self.settings.blob_subject())],
            storage: stream::StorageType::File,
            num_replicas: self.settings.replicas,
            max_messages_per_subject: 1,
            // A full stream refuses blobs: it must never drop one to gain space.
            discard: stream::DiscardPolicy::New,
            ..stream::Config::default()
        };
        let made = self.context.get_or_create_stream(config);
        within(self.settings.timeout, "no answer", made).await.map_err(failed)?;
        self.is_made.store(true, Ordering::Release);
        Ok(())
    }

    /// The subject of a part, from 1, or of the head, which is 0.
    fn subject(&self, task: &TaskKey, hash: BlobHash, part: usize) -> String {
        format!(
            "{}.{}.{}.{hash}.{part}",
            self.settings.blob_subject(),
            task.session_id,
            task.task_id
        )
    }

    async fn stream(&self) -> Result<Stream<()>, BlobError> {
        self.context.get_stream_no_info(self.settings.blob_stream()).await.map_err(failed)
    }

    async fn publish(&self, subject: String, payload: Bytes) -> Result<(), BlobError> {
        let acknowledged = async { self.context.publish(subject, payload).await?.await };
        within(self.settings.timeout, "no answer in time", acknowledged).await.map_err(failed)?;
        Ok(())
    }

    /// The message of a subject. The leader is asked, as a follower may not have it yet. An empty message
    /// stands for none.
    async fn message(
        &self,
        stream: &Stream<()>,
        subject: String,
    ) -> Result<Option<StreamMessage>, BlobError> {
        let asked = stream.get_last_raw_message_by_subject(&subject);
        let asked = timeout(self.settings.timeout, asked);
        match asked.await.map_err(|_| BlobError::Failed("no answer in time".into()))? {
            Ok(found) => Ok(Some(found).filter(|found| !found.payload.is_empty())),
            Err(error) => match error.kind() {
                LastRawMessageErrorKind::NoMessageFound => Ok(None),
                LastRawMessageErrorKind::JetStream(said)
                    if [ErrorCode::NO_MESSAGE_FOUND, ErrorCode::STREAM_NOT_FOUND]
                        .contains(&said.error_code()) =>
                {
                    Ok(None) // Without a stream nobody has put anything yet.
                }
                _ => Err(failed(error)),
            },
        }
    }

    /// The head of a blob, and when it was written.
    async fn head(
        &self,
        stream: &Stream<()>,
        task: &TaskKey,
        hash: BlobHash,
    ) -> Result<Option<(BlobHead, Millis)>, BlobError> {
        let found = self.message(stream, self.subject(task, hash, 0)).await?;
        let Some(found) = found else { return Ok(None) };
        let at = found.time.unix_timestamp_nanos() / 1_000_000;
        let head = serde_json::from_slice(&found.payload).map_err(failed)?;
        Ok(Some((head, Millis::try_from(at).unwrap_or(0))))
    }

    async fn write(&self, task: &TaskKey, blob: Blob, bytes: Arc<[u8]>) -> Result<(), BlobError> {
        BlobError::check(blob, &bytes)?;
        self.ensure().await?;
        let stream = self.stream().await?;
        let old = self.head(&stream, task, blob.hash).await?;
        let grows = if old.is_some() { 0 } else { quota_bytes(blob.size_bytes) };
        self.reserve(&task.session_id, grows).await?;
        let written = self.write_parts(task, blob, Bytes::from_owner(bytes)).await;
        if written.is_err() {
            self.free(&task.session_id, grows);
        }
        written
    }

    async fn write_parts(&self, task: &TaskKey, blob: Blob, bytes: Bytes) -> Result<(), BlobError> {
        let length = self.settings.message_bytes;
        let parts: Vec<Bytes> = (0..bytes.len())
            .step_by(length)
            .map(|at| bytes.slice(at..bytes.len().min(at + length)))
            .collect();
        let head = BlobHead { size_bytes: blob.size_bytes, parts: parts.len() };
        let parts = parts.into_iter().enumerate();
        let sent =
            parts.map(|(at, part)| self.publish(self.subject(task, blob.hash, at + 1), part));
        let sent = futures::stream::iter(sent).buffer_unordered(PARTS_AT_ONCE);
        sent.try_collect::<Vec<()>>().await?;
        let head = serde_json::to_vec(&head).map_err(failed)?;
        self.publish(self.subject(task, blob.hash, 0), head.into()).await
    }

    async fn read(&self, task: &TaskKey, hash: BlobHash) -> Result<Option<Arc<[u8]>>, BlobError> {
        let stream = self.stream().await?;
        let Some((head, _)) = self.head(&stream, task, hash).await? else { return Ok(None) };
        let parts =
            (1..=head.parts).map(|part| self.message(&stream, self.subject(task, hash, part)));
        let parts = futures::stream::iter(parts).buffered(PARTS_AT_ONCE);
        let parts: Vec<Option<StreamMessage>> = parts.try_collect().await?;
        let parts: Vec<Bytes> = parts.into_iter().flatten().map(|part| part.payload).collect();
        let bytes = parts.concat();
        if Blob::of(&bytes).hash == hash {
            return Ok(Some(bytes.into()));
        }
        let reference = Blob::reference_to(hash);
        tracing::error!(%task, %reference, "a blob is damaged: it has another hash");
        Ok(None)
    }

    async fn listed(
        &self,
        session: Option<&SessionId>,
        is_asked: &TaskFilter,
    ) -> Result<Vec<StoredBlob>, BlobError> {
        let stream = self.stream().await?;
        let session = session.map_or("*", SessionId::as_str);
        let filter = format!("{}.{session}.*.*.0", self.settings.blob_subject());
        let heads = within(self.settings.timeout, "no answer", stream.info_with_subjects(filter));
        let heads = match heads.await {
            Ok(heads) => heads,
            Err(error) if is_missing(&error) => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let asked = heads.map_err(failed).try_filter_map(|(subject, _)| {
            ready(Ok(self.named(&subject).filter(|(task, _)| is_asked(task))))
        });
        let read = asked.map_ok(|(task, hash)| self.stored(&stream, task, hash));
        read.try_buffer_unordered(HEADS_AT_ONCE)
            .try_filter_map(|one| ready(Ok(one)))
            .try_collect()
            .await
    }

    async fn stored(
        &self,
        stream: &Stream<()>,
        task: TaskKey,
        hash: BlobHash,
    ) -> Result<Option<StoredBlob>, BlobError> {
        let found = self.head(stream, &task, hash).await?;
        Ok(found.map(|(head, put_at)| {
            let blob = Blob { hash, size_bytes: head.size_bytes };
            StoredBlob { task, blob, put_at }
        }))
    }

    /// The Task and the hash in the subject of a head.
    fn named(&self, subject: &str) -> Option<(TaskKey, BlobHash)> {
        let rest = subject.strip_prefix(&self.settings.blob_subject())?.strip_prefix('.')?;
        let [session, task, hash, "0"] = rest.split('.').collect::<Vec<_>>()[..] else {
            return None;
        };
        let session_id = SessionId::new(session).ok()?;
        let task_id = TaskId::new(task).ok()?;
        Some((TaskKey { session_id, task_id }, BlobHash::from_hex(hash)?))
    }

    async fn remove(&self, task: &TaskKey, hash: BlobHash) -> Result<(), BlobError> {
        let stream = self.stream().await?;
        let Some((head, _)) = self.head(&stream, task, hash).await? else { return Ok(()) };
        // The head first: without it the blob is gone, however many parts are left.
        for part in 0..=head.parts {
            self.publish(self.subject(task, hash, part), Bytes::new()).await?;
        }
        self.free(&task.session_id, quota_bytes(head.size_bytes));
        Ok(())
    }

    /// Counts bytes that come, unless they are too many. Nodes count by themselves, so that together they
    /// may pass the quota by what they put between two counts.
    async fn reserve(&self, session: &SessionId, bytes: u64) -> Result<(), BlobError> {
        let known = self.used.lock().get(session).copied();
        let known = known.filter(|counted| counted.since.elapsed() < COUNTED_FOR);
        if known.is_none() {
            let stored = self.listed(Some(session), &every_task()).await?;
            let bytes = stored.iter().map(|one| quota_bytes(one.blob.size_bytes)).sum();
            let counted = Counted { bytes, since: Instant::now() };
            let mut used = self.used.lock();
            if used.len() >= COUNTED_MAX {
                used.retain(|_, counted| counted.since.elapsed() < COUNTED_FOR);
            }
            if used.len() >= COUNTED_MAX
                && let Some(oldest) = used.iter().min_by_key(|(_, counted)| counted.since)
            {
                let oldest = oldest.0.clone();
                used.remove(&oldest);
            }
            used.insert(session.clone(), counted);
        }
        let mut used = self.used.lock();
        let fresh = Counted { bytes: 0, since: Instant::now() };
        let counted = used.entry(session.clone()).or_insert(fresh);
        let would_be = counted.bytes.saturating_add(bytes);
        if bytes > 0 && would_be > self.quota {
            let (session, used, most) = (session.clone(), counted.bytes, self.quota);
            return Err(BlobError::Quota { session, used, most });
        }
        counted.bytes = would_be;
        Ok(())
    }

    fn free(&self, session: &SessionId, bytes: u64) {
        if let Some(counted) = self.used.lock().get_mut(session) {
            counted.bytes = counted.bytes.saturating_sub(bytes);
        }
    }
}

impl BlobStore for JetStreamBlobs {
    fn put(
        &self,
        task: &TaskKey,
        blob: Blob,
        bytes: Arc<[u8]>,
    ) -> BoxFuture<'_, Result<(), BlobError>> {
        let task = task.clone();
        Box::pin(async move { self.write(&task, blob, bytes).await })
    }

    fn get(
        &self,
        task: &TaskKey,
        hash: BlobHash,
    ) -> BoxFuture<'_, Result<Option<Arc<[u8]>>, BlobError>> {
        let task = task.clone();
        Box::pin(async move { self.read(&task, hash).await })
    }

    fn stat(
        &self,
        task: &TaskKey,
        hash: BlobHash,
    ) -> BoxFuture<'_, Result<Option<u64>, BlobError>> {
        let task = task.clone();
        Box::pin(async move {
            let stream = self.stream().await?;
            Ok(self.head(&stream, &task, hash).await?.map(|(head, _)| head.size_bytes))
        })
    }

    fn list(
        &self,
        session: Option<&SessionId>,
        is_asked: TaskFilter,
    ) -> BoxFuture<'_, Result<Vec<StoredBlob>, BlobError>> {
        let session = session.cloned();
        Box::pin(async move { self.listed(session.as_ref(), &is_asked).await })
    }

    fn delete(&self, task: &TaskKey, hash: BlobHash) -> BoxFuture<'_, Result<(), BlobError>> {
        let task = task.clone();
        Box::pin(async move { self.remove(&task, hash).await })
    }
}

/// Whether there is no stream: nobody has put anything yet.
fn is_missing(error: &RequestError) -> bool {
    let RequestError::Failed(error) = error else { return false };
    let said = error.downcast_ref::<InfoError>().and_then(|error| error.source());
    let said = said.and_then(|said| said.downcast_ref::<jetstream::Error>());
    said.is_some_and(|said| said.error_code() == ErrorCode::STREAM_NOT_FOUND)
}

fn failed(error: impl std::fmt::Display) -> BlobError {
    BlobError::Failed(error.to_string())
}
