//! Stores snapshots of long Tasks beside the checkpoints, so that a new owner of the partition
//! reads only the commits behind them.
//!
//! A checkpoint points to a snapshot only once all its parts are stored; the pointer has each
//! part's checksum. Snapshots are as disposable as checkpoints: without one a Task's log is read
//! whole. The journal wants a snapshot of a Task that has many commits since the last one, and at
//! most once between two checkpoints, however many commits there are.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_nats::jetstream::stream::Stream;
use bytes::Bytes;
use crc32fast::hash;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use tenure_ports::journal::{EncodedSnapshot, SnapshotRequest, TaskKey};

use super::JetStreamJournal;
use super::checkpoint::{Checkpoints, PARTS_AT_ONCE, Store, Unread};
use super::index::Index;
use crate::request::RequestError;

/// Where the snapshot of a Task is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stored {
    /// The last event in it.
    pub(super) wal_seq: u64,
    /// The slots with its parts, each with the part's checksum.
    parts: Vec<(u32, u32)>,
}

impl Stored {
    pub(super) fn slots(&self) -> impl Iterator<Item = u32> {
        self.parts.iter().map(|(slot, _)| *slot)
    }
}

impl Store {
    fn slot(&self, slot: u32) -> String {
        self.subject("state", slot)
    }

    async fn keep(
        &self,
        index: &RwLock<Index>,
        key: &TaskKey,
        folded: EncodedSnapshot,
    ) -> Result<(), RequestError> {
        self.ensure().await?;
        let parts = self.cut(&folded.bytes.into());
        let slots = index.write().slots.take(parts.len());
        let placed = slots.into_iter().zip(parts.iter().map(|part| hash(part)));
        let stored = Stored { wal_seq: folded.version, parts: placed.collect() };
        for (slot, part) in stored.slots().zip(parts) {
            if let Err(error) = self.publish(self.slot(slot), part).await {
                index.write().slots.leave(stored.slots());
                return Err(error);
            }
        }
        index.write().point_to(key, stored);
        Ok(())
    }

    async fn state(&self, stored: &Stored) -> Result<Vec<u8>, Unread> {
        let stream = self.stream().await?;
        let parts = stored.parts.clone().into_iter();
        let parts = parts.map(|(slot, checksum)| self.part(&stream, slot, checksum));
        let parts: Vec<Bytes> = stream::iter(parts).buffered(PARTS_AT_ONCE).try_collect().await?;
        Ok(parts.concat())
    }

    /// A new owner reads many snapshots, so it asks the server for a few parts at a time.
    async fn part(&self, stream: &Stream<()>, slot: u32, checksum: u32) -> Result<Bytes, Unread> {
        let _turn = self.turns.acquire().await; // It is never closed.
        self.message(stream, self.slot(slot), Some(checksum)).await
    }

    /// Empties slots to which no checkpoint points any more.
    pub(super) async fn empty(
        &self,
        index: &RwLock<Index>,
        left: &[u32],
    ) -> Result<(), RequestError> {
        for &slot in left {
            self.publish(self.slot(slot), Bytes::new()).await?;
        }
        index.write().slots.free_left(left.len());
        Ok(())
    }
}

impl Checkpoints {
    /// Asks for snapshots of Tasks that have many commits since their last ones, if anybody makes
    /// them.
    pub(super) async fn store_snapshots(&self) {
        let Some(wants) = self.wants.lock().clone() else { return };
        let long = self.index.read().long();
        for key in long {
            let (wanted, dropped) = SnapshotRequest::new(key);
            if wants.send(wanted).await.is_err() {
                return;
            }
            dropped.await;
        }
    }

    /// Stores a snapshot, to which the next checkpoint points.
    pub(super) async fn keep(
        &self,
        key: &TaskKey,
        folded: EncodedSnapshot,
    ) -> Result<(), RequestError> {
        if !self.index.read().is_live(key) {
            return Ok(());
        }
        self.store.keep(&self.index, key, folded).await?;
        self.commits.fetch_add(1, Ordering::AcqRel); // Now there is something new for a checkpoint.
        Ok(())
    }

    /// The snapshot of a Task, if it is sound and of an event up to `until`.
    pub(super) async fn kept(&self, key: &TaskKey, until: u64) -> Option<EncodedSnapshot> {
        let stored: Arc<Stored> = self.index.read().state(key)?;
        if stored.wal_seq > until {
            return None;
        }
        match self.store.state(&stored).await {
            Ok(bytes) => Some(EncodedSnapshot { version: stored.wal_seq, bytes }),
            Err(Unread::Unsound(why)) => {
                tracing::warn!(task = %key, why, "its snapshot is not used");
                self.forget(key);
                None
            }
            // The snapshot may be sound; it is tried again another time.
            Err(Unread::Unanswered(why)) => {
                tracing::warn!(task = %key, why, "its snapshot is not used now");
                None
            }
        }
    }

    /// Has a new snapshot of the Task stored, as this one is of no use.
    pub(super) fn forget(&self, key: &TaskKey) {
        self.index.write().forget_state(key);
    }
}

impl JetStreamJournal {
    /// Asks now, not when it is time, for snapshots of long Tasks of a partition, if this node owns
    /// it. The next [checkpoint](Self::checkpoint) points to them.
    pub async fn store_snapshots(&self, partition: u32) {
        let found = self.partitions.lock().get(partition as usize).cloned().flatten();
        if let Some(found) = found {
            found.checkpoints.store_snapshots().await;
        }
    }
}
