//! Lists the Tasks of a partition: from its index, and from its stream where that is not enough.

use std::collections::HashSet;

use tenure_core::id::{Millis, SessionId, TaskId};
use tenure_ports::journal::{Entry, Overview, ReadError, TaskKey};

use super::index::Index;
use super::tail::StreamTail;
use super::{JetStreamJournal, OwnedPartition};

impl JetStreamJournal {
    /// The Tasks of a session in one partition, as [`entries`](tenure_ports::Journal::entries) has them.
    ///
    /// # Errors
    /// This node does not own the partition, or its stream cannot be read.
    pub async fn entries_in(
        &self,
        partition: u32,
        session: &SessionId,
    ) -> Result<Vec<Entry>, ReadError> {
        let found = self.all().into_iter().find(|(at, _)| *at == partition);
        let (at, found) = found.ok_or(ReadError::NotOwner)?;
        self.entries_of(at, &found, Some(session)).await
    }

    /// How many Tasks of the partitions of this node have not ended.
    pub fn live_count(&self) -> usize {
        self.all().iter().map(|(_, partition)| partition.index.read().live_count()).sum()
    }

    /// What the index alone knows of the Tasks of a session in one partition.
    ///
    /// # Errors
    /// This node does not own the partition.
    pub fn overview_in(&self, partition: u32, session: &SessionId) -> Result<Overview, ReadError> {
        let found = self.all().into_iter().find(|(at, _)| *at == partition);
        let (_, found) = found.ok_or(ReadError::NotOwner)?;
        Ok(found.index.read().overview(session))
    }

    /// The oldest live Tasks of a session in one partition, and whether there are more. With
    /// `behind` only those after this time of creation and id.
    ///
    /// # Errors
    /// This node does not own the partition.
    pub fn oldest_in(
        &self,
        partition: u32,
        session: &SessionId,
        behind: Option<(Millis, TaskId)>,
        most: usize,
    ) -> Result<(Vec<Entry>, bool), ReadError> {
        let found = self.all().into_iter().find(|(at, _)| *at == partition);
        let (_, found) = found.ok_or(ReadError::NotOwner)?;
        Ok(found.index.read().oldest(session, behind, most))
    }

    /// The Tasks of a session in one partition that the index knows without reading a log.
    ///
    /// # Errors
    /// This node does not own the partition.
    pub fn known_in(&self, partition: u32, session: &SessionId) -> Result<Vec<Entry>, ReadError> {
        let found = self.all().into_iter().find(|(at, _)| *at == partition);
        let (_, found) = found.ok_or(ReadError::NotOwner)?;
        Ok(found.index.read().rows(Some(session)))
    }

    /// The Tasks of a partition. If the index has some ended Tasks without a row, the stream is
    /// read once. That is slow, but faster than reading these Tasks one by one.
    pub(super) async fn entries_of(
        &self,
        at: u32,
        partition: &OwnedPartition,
        session: Option<&SessionId>,
    ) -> Result<Vec<Entry>, ReadError> {
        let covered = {
            let index = partition.index.read();
            match index.is_whole() {
                true => return Ok(index.rows(session)),
                false => index.covered(),
            }
        };
        let name = self.settings.stream(at);
        let mut index = Index::new(usize::MAX);
        let frames = self.frames(&partition.stream, &name, None);
        let mut tail = StreamTail::of(frames, &self.pulls).only(session);
        let read = tail.read(&mut index, 0, covered).await;
        read.map_err(|error| ReadError::Failed(error.to_string()))?;
        // The owner's index is newer, and may know of damage that heads do not show.
        let newer = partition.index.read().rows(session);
        let known: HashSet<&TaskKey> = newer.iter().map(|entry| &entry.key).collect();
        let mut entries = index.into_rows(|key| !known.contains(key));
        entries.extend(newer);
        Ok(entries)
    }
}
