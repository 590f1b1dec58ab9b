//! Takes a partition: reads its stream to the end, from the newest sound checkpoint on if there is
//! one, and then writes an owner record there. The record's place in the stream is the epoch;
//! behind it the server accepts nothing of an earlier owner (mechanisms 3).
//!
//! A stream that ends before an acknowledged message has lost data. Nobody writes there until an
//! operator has restored the store. A node knows the last acknowledged message by itself, from the
//! newest checkpoint, and from other nodes, which share it in Redis (mechanisms 1).
//!
//! The record names the features that the log may hold from there on: those that it may hold already, and
//! those that all live nodes have. So the newest record tells whether a node can read the partition; a node
//! that cannot must not take it (EVOLVE-02, mechanisms 17).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use tenure_core::features::{EDITION_2, Features};
use tenure_ports::supervise::spawn;
use tenure_wire::stored::frame::{FRAME_VERSION, FrameError, Header, encode_header};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::timeout;

use super::capacity::ByteCapacity;
use super::checkpoint::{Checkpoints, Store};
use super::frame_cache::FrameCache;
use super::index::Index;
use super::read::silence;
use super::tail::StreamTail;
use super::writer::Writing;
use super::written::WrittenFrames;
use super::{JetStreamJournal, LogSettings, OwnedPartition, REQUESTS_MAX, TakeError};
use crate::append::{AppendOutcome, Appender};
use crate::request::within;

/// For how many timeouts to wait for the outcome of an owner record.
const RECORD: u32 = 4;

impl JetStreamJournal {
    /// As [`take_with`](Self::take_with), assuming that all nodes have the features of this one.
    ///
    /// # Errors
    /// See [`TakeError`].
    pub async fn take(&self, partition: u32) -> Result<u64, TakeError> {
        self.take_with(partition, &self.settings.features).await
    }

    /// Takes a partition: reads its stream to the end, and writes an owner record there, which
    /// fences every earlier owner. Answers the new epoch. `shared` are the features that all live nodes
    /// have: the log may hold them from then on.
    ///
    /// # Errors
    /// See [`TakeError`].
    pub async fn take_with(&self, partition: u32, shared: &Features) -> Result<u64, TakeError> {
        let failed = |message: String| TakeError::Stream { partition, message };
        let Some(place) = self.places.get(partition as usize) else {
            return Err(TakeError::Unknown(partition));
        };
        let left = place.left.load(Ordering::Acquire);
        let _alone = place.taking.lock().await;
        let is_wanted = || place.left.load(Ordering::Acquire) == left;
        let name = self.settings.stream(partition);
        let wait = self.settings.timeout;
        let stream = within(wait, silence(&name), self.context.get_stream_no_info(&name)).await;
        let stream = stream.map_err(|error| failed(error.to_string()))?;
        let subject = self.settings.subject(partition);
        let appender = Appender::new(self.client.clone(), stream.clone(), subject, wait).await;
        let appender = appender.map_err(|error| failed(error.to_string()))?;
        let frames = self.frames(&stream, &name, None);
        let store = Store {
            context: self.context.clone(),
            settings: self.settings.clone(),
            partition,
            part_bytes: self.message_bytes(),
            turns: Arc::clone(&self.parts),
        };
        let (index, slot) = match store.load(frames).await {
            Some((index, slot)) => (index, 1 - slot),
            None => (Index::new(self.settings.ended_rows), 0),
        };
        let taking = Taking {
            tail: StreamTail::of(frames, &self.pulls),
            settings: &self.settings,
            index,
            acknowledged: place.acknowledged.load(Ordering::Acquire),
            shared,
            taking: self.client.new_inbox(),
        };
        let taken = taking.take(appender, is_wanted).await;
        let (index, appender, epoch) = taken.map_err(|failure| match failure {
            TakeFailure::Passing(message) => failed(message),
            TakeFailure::Lost(message) => TakeError::Lost { partition, message },
        })?;
        place.acknowledged.fetch_max(epoch, Ordering::AcqRel);
        let (requests, waiting) = mpsc::channel(REQUESTS_MAX);
        let index = Arc::new(RwLock::new(index));
        let checkpoints = Arc::new(Checkpoints {
            store,
            index: Arc::clone(&index),
            wal: stream.clone(),
            slot: tokio::sync::Mutex::new(slot),
            commits: AtomicU64::new(1), // For what was read behind the last checkpoint.
            due: Notify::new(),
            wants: Arc::clone(&self.wants),
        });
        let last_seq = Arc::new(AtomicU64::new(epoch));
        let written = Arc::<WrittenFrames>::default();
        let writing = Writing {
            appender,
            epoch,
            index: Arc::clone(&index),
            last_seq: Arc::clone(&last_seq),
            written: Arc::clone(&written),
            message_bytes: self.message_bytes(),
            name,
            owned: Arc::clone(&self.owned),
            partition,
            acknowledged: Arc::clone(&place.acknowledged),
            checkpoints: Arc::clone(&checkpoints),
            turns: Arc::clone(&self.turns),
            observer: self.settings.observer.clone(),
        };
        let mut partitions = self.partitions.lock();
        if !is_wanted() {
            return Err(failed("it was left meanwhile".into()));
        }
        let (closes, closed) = watch::channel(false);
        spawn("checkpoints of a partition", Arc::clone(&checkpoints).run(closed.clone()));
        let writer =
            Mutex::new(Some(spawn("the writer of a partition", writing.run(waiting, closed))));
        if let Some(slot) = partitions.get_mut(partition as usize) {
            *slot = Some(Arc::new(OwnedPartition {
                epoch,
                requests,
                capacity: ByteCapacity::of(self.settings.in_flight_bytes),
                index,
                stream,
                last_seq,
                closes,
                writer,
                checkpoints,
                frame_cache: FrameCache::new(Arc::clone(&self.fetches), written),
            }));
        }
        self.owned.set(partition, Some(epoch));
        Ok(epoch)
    }

    /// The last message of a partition that was acknowledged to any node, as far as this node
    /// knows.
    pub(crate) fn acknowledged(&self, partition: u32) -> u64 {
        let place = self.places.get(partition as usize);
        place.map_or(0, |place| place.acknowledged.load(Ordering::Acquire))
    }

    /// Notes that a message of a partition was acknowledged to some node.
    pub(crate) fn note_acknowledged(&self, partition: u32, seq: u64) {
        if let Some(place) = self.places.get(partition as usize) {
            place.acknowledged.fetch_max(seq, Ordering::AcqRel);
        }
    }

    /// The features of logs that this node has.
    pub fn features(&self) -> &Features {
        &self.settings.features
    }

    /// The features that the log of a partition of this node may hold.
    pub fn features_of(&self, partition: u32) -> Option<Features> {
        let found = self.partitions.lock().get(partition as usize)?.clone()?;
        let features = found.index.read().features().clone();
        Some(features)
    }
}

/// Why a taking failed.
enum TakeFailure {
    /// Another attempt may succeed.
    Passing(String),
    /// The store has lost data.
    Lost(String),
}

impl<E: std::error::Error> From<E> for TakeFailure {
    fn from(error: E) -> Self {
        Self::Passing(error.to_string())
    }
}

struct Taking<'a> {
    tail: StreamTail<'a>,
    settings: &'a LogSettings,
    /// The index that a checkpoint holds; empty without one.
    index: Index,
    /// The last message that was ever acknowledged to any node, as far as this node knows.
    acknowledged: u64,
    /// The features that all live nodes have.
    shared: &'a Features,
    /// A unique name of this taking.
    taking: String,
}

impl Taking<'_> {
    /// Answers with the index of everything that is stored, and the epoch.
    async fn take(
        mut self,
        mut appender: Appender,
        is_wanted: impl Fn() -> bool,
    ) -> Result<(Index, Appender, u64), TakeFailure> {
        let mut read_to = self.index.covered();
        // A checkpoint covers only what was acknowledged, to this node or another.
        let known = self.acknowledged.max(read_to);
        loop {
            let last = self.tail.frames.last_seq().await?;
            if last < known {
                let name = self.tail.frames.name;
                return Err(TakeFailure::Lost(format!(
                    "{name} ends at {last}, and {known} was acknowledged: the store has lost data",
                )));
            }
            self.tail.read(&mut self.index, read_to, last).await?;
            read_to = last;
            if !is_wanted() {
                return Err(TakeFailure::Passing("it was left meanwhile".into()));
            }
            let features = self.features()?;
            let record = self.record(&features)?;
            // This does not wait for ever for the outcome of the record: a record that is stored late only fences an
            // owner, who then takes the partition again.
            let record = std::slice::from_ref(&record);
            let outcome = timeout(RECORD * self.settings.timeout, appender.append(read_to, record));
            let Ok(outcome) = outcome.await else {
                return Err(TakeFailure::Passing(
                    "the fate of the owner record is not known".into(),
                ));
            };
            match outcome {
                AppendOutcome::Stored(epoch) => {
                    self.index.note_features(&features);
                    self.index.cover(epoch);
                    return Ok((self.index, appender, epoch));
                }
                AppendOutcome::Superseded => {} // Another node has written meanwhile: read on.
                AppendOutcome::Refused(why) | AppendOutcome::Unsettled(why) => {
                    return Err(TakeFailure::Passing(why));
                }
                AppendOutcome::Lost { last } => {
                    let why = format!("the stream ends at {last}, after {read_to} was read");
                    return Err(TakeFailure::Lost(why));
                }
            }
        }
    }

    /// The features that the log may hold under this owner.
    fn features(&self) -> Result<Features, TakeFailure> {
        let (held, own) = (self.index.features(), &self.settings.features);
        let lacking = own.lacking(held);
        if !lacking.is_empty() {
            return Err(TakeFailure::Passing(format!(
                "its log may hold {lacking}, which this node cannot read: start a newer version of it"
            )));
        }
        let mut features = own.shared(self.shared);
        features.add(held);
        Ok(features)
    }

    fn record(&self, features: &Features) -> Result<Bytes, FrameError> {
        let record = Header::Owner {
            version: FRAME_VERSION,
            node: self.settings.node.clone(),
            taking: self.taking.clone(),
            write_level: if features.has(EDITION_2) { 2 } else { 1 },
            features: features.clone(),
        };
        Ok(encode_header(&record, 0)?.into())
    }
}
