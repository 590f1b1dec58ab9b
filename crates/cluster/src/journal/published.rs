//! How far what is in a partition's log is out: whoever watches was told of it, and whoever keeps traces
//! has taken them (RECOVER-08).
//!
//! The mark stands beside the checkpoints, as a message of its own, so that it can be set often: what
//! is behind it is told again by who takes the partition (mechanisms 11). It is as disposable.

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

/// Messages that are taken for not being out where no mark says how many are.
const BACK: u64 = 1_000;

/// How far a partition's log goes that is owned here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reached {
    /// Which.
    pub partition: u32,
    /// Since when it is owned.
    pub epoch: u64,
    /// The last message of the stream that this owner knows of.
    pub last: u64,
}

/// A commit in a partition's stream, without its events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Its Task.
    pub key: TaskKey,
    /// The event that it follows.
    pub after: u64,
    /// Its last event.
    pub last: u64,
    /// How its Task ended, if this is its end.
    pub ended: Option<TaskStatus>,
}

impl JetStreamJournal {
    /// How far the logs of the partitions go that are owned here: all of it is stored.
    pub fn reached(&self) -> Vec<Reached> {
        let reached = |(partition, found): (u32, Arc<OwnedPartition>)| Reached {
            partition,
            epoch: found.epoch,
            last: found.last_seq.load(Ordering::Acquire),
        };
        self.all().into_iter().map(reached).collect()
    }

    /// The last message of a partition's stream that is known to be out; where nothing says so, one
    /// not far before the epoch of its owner, who is this node.
    ///
    /// # Errors
    /// The partition is not owned here, or nobody answers.
    pub async fn out(&self, partition: u32, epoch: u64) -> Result<u64, ReadError> {
        let store = self.marks(partition, epoch)?;
        let mark = store.mark().await.map_err(|error| ReadError::Failed(error.to_string()))?;
        Ok(mark.unwrap_or_else(|| epoch.saturating_sub(BACK)))
    }

    /// Notes that all is out up to a message of a partition that is owned here in this epoch.
    ///
    /// # Errors
    /// It is not, or the mark could not be set: more than need be is told again.
    pub async fn note_published(
        &self,
        partition: u32,
        epoch: u64,
        last: u64,
    ) -> Result<(), ReadError> {
        let store = self.marks(partition, epoch)?;
        store.set_mark(last).await.map_err(|error| ReadError::Failed(error.to_string()))
    }

    /// The commits of the frame that ends with a message of a partition that is owned here in this
    /// epoch: none, if no frame does, or it is damaged.
    ///
    /// # Errors
    /// The partition is not owned here, or nobody answers.
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
                // The stream is not there yet, or not any more.
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
