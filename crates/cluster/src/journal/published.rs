//! How far a partition's log is published: watchers have the events, and the collector has the
//! traces (RECOVER-08).
//!
//! The published watermark stands beside the checkpoints, as a message of its own, so that it can
//! be set often. A new owner of the partition publishes what is behind it again (mechanisms 11). It
//! is as disposable as a checkpoint.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::stream::LastRawMessageErrorKind;
use tenure_core::status::TaskStatus;
use tenure_ports::journal::{ReadError, TaskKey};
use tokio::time::timeout;

use super::checkpoint::Store;
use super::{JetStreamJournal, OwnedPartition};
use crate::request::RequestError;

/// How many messages before an owner's epoch count as unpublished where there is no mark.
const BACK: u64 = 1_000;

/// How far the log of a partition of this node goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reached {
    /// The partition.
    pub partition: u32,
    /// The epoch in which this node owns it.
    pub epoch: u64,
    /// The last message of the stream that this owner knows of.
    pub last: u64,
}

/// A commit in a partition's stream, without its events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The commit's Task.
    pub key: TaskKey,
    /// The event that the commit follows.
    pub after: u64,
    /// The commit's last event.
    pub last: u64,
    /// How the Task ended, if this commit ended it.
    pub ended: Option<TaskStatus>,
}

impl JetStreamJournal {
    /// How far the logs of the partitions of this node go: everything up to there is stored.
    pub fn reached(&self) -> Vec<Reached> {
        let reached = |(partition, found): (u32, Arc<OwnedPartition>)| Reached {
            partition,
            epoch: found.epoch,
            last: found.last_seq.load(Ordering::Acquire),
        };
        self.all().into_iter().map(reached).collect()
    }

    /// The last message of a partition's stream that is known to be published. Without a mark it is
    /// one not far before the epoch of this owner.
    ///
    /// # Errors
    /// This node does not own the partition in this epoch, or JetStream does not answer.
    pub async fn out(&self, partition: u32, epoch: u64) -> Result<u64, ReadError> {
        let store = self.marks(partition, epoch)?;
        let mark = store.mark().await.map_err(|error| ReadError::Failed(error.to_string()))?;
        Ok(mark.unwrap_or_else(|| epoch.saturating_sub(BACK)))
    }

    /// Notes that everything up to a message is published, in a partition that this node owns in
    /// this epoch.
    ///
    /// # Errors
    /// This node does not own it, or the mark could not be set: then more than necessary is
    /// published again.
    pub async fn note_published(
        &self,
        partition: u32,
        epoch: u64,
        last: u64,
    ) -> Result<(), ReadError> {
        let store = self.marks(partition, epoch)?;
        store.set_mark(last).await.map_err(|error| ReadError::Failed(error.to_string()))
    }

    /// The commits of the frame that ends with this message, in a partition that this node owns in
    /// this epoch: none if no frame ends there, or it is damaged.
    ///
    /// # Errors
    /// This node does not own the partition in this epoch, or JetStream does not answer.
    pub async fn stored_at(
        &self,
        partition: u32,
        epoch: u64,
        at: u64,
    ) -> Result<Vec<Stored>, ReadError> {
        let found = self.in_epoch(partition, epoch)?;
        let name = self.settings.stream(partition);
        let frames = self.frames(&found.stream, &name, Some(&found.frame_cache));
        let frame = match frames.opened(at).await {
            Ok(frame) => frame,
            Err(ReadError::Damaged { .. }) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let stored = frame.heads().map(|head| Stored {
            key: TaskKey { session_id: head.session_id.clone(), task_id: head.task_id.clone() },
            after: head.first_seq.saturating_sub(1),
            last: head.last_seq,
            ended: head.ended,
        });
        Ok(stored.collect())
    }

    fn in_epoch(&self, partition: u32, epoch: u64) -> Result<Arc<OwnedPartition>, ReadError> {
        let found = self.all().into_iter().find(|(at, _)| *at == partition);
        let found = found.filter(|(_, found)| found.epoch == epoch);
        found.map(|(_, found)| found).ok_or(ReadError::NotOwner)
    }

    fn marks(&self, partition: u32, epoch: u64) -> Result<Store, ReadError> {
        Ok(self.in_epoch(partition, epoch)?.checkpoints.store.clone())
    }
}

impl Store {
    fn mark_subject(&self) -> String {
        format!("{}.{}.out", self.settings.index_subject(), self.partition)
    }

    async fn mark(&self) -> Result<Option<u64>, RequestError> {
        let (stream, subject) = (self.stream().await?, self.mark_subject());
        let found = stream.get_last_raw_message_by_subject(&subject);
        match timeout(self.settings.timeout, found).await {
            Ok(Ok(found)) => Ok(serde_json::from_slice(&found.payload).ok()),
            Ok(Err(error)) => match error.kind() {
                LastRawMessageErrorKind::NoMessageFound => Ok(None),
                // There is no stream of checkpoints yet, or it was deleted.
                LastRawMessageErrorKind::JetStream(error)
                    if error.error_code() == ErrorCode::STREAM_NOT_FOUND =>
                {
                    Ok(None)
                }
                _ => Err(RequestError::failed(error)),
            },
            Err(_) => Err(RequestError::Silent("no answer".into())),
        }
    }

    async fn set_mark(&self, last: u64) -> Result<(), RequestError> {
        let payload = || last.to_string().into();
        if self.publish(self.mark_subject(), payload()).await.is_ok() {
            return Ok(());
        }
        self.ensure().await?;
        self.publish(self.mark_subject(), payload()).await
    }
}
