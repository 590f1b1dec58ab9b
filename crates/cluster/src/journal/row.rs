//! The row of a Task: what a node knows of it from the heads of its frames. It stands in the index,
//! or is made from the frames on request.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tenure_core::id::{Millis, WalName};
use tenure_core::record::Labels;
use tenure_core::status::End;
use tenure_ports::journal::{EndedLog, Entry, ReadError, TaskKey, title_in_index};
use tenure_wire::stored::frame::CommitHead;

use super::ahead::Ahead;
use super::index::{IndexHit, IndexLookup, Newest};
use super::marks::Marks;
use super::read::Frames;
use super::snapshots::Stored;
use super::{JetStreamJournal, OwnedPartition};

/// What is known of a Task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TaskRow {
    pub(super) newest: Newest,
    pub(super) title: String,
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub(super) labels: Labels,
    pub(super) wal_name: WalName,
    pub(super) created_at: Millis,
    pub(super) updated_at: Millis,
    pub(super) ended: Option<End>,
    pub(super) archived: bool,
    pub(super) damaged: bool,
    /// How many commits were stored since its snapshot, or since it was created.
    pub(super) unkept: u64,
    /// Where its snapshot is, while it is live.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) state: Option<Arc<Stored>>,
    /// The marks in its log, between its parts.
    pub(super) marks: Arc<Marks>,
    /// How many bytes its commits behind the last mark have.
    pub(super) unmarked: u64,
    /// How many bytes its log has.
    pub(super) bytes: u64,
}

/// How a Task ended, and whether it is archived.
pub(super) type Counted = (End, bool);

impl TaskRow {
    /// Whether the Task has ended and its row can be made again from its frames. A damaged Task keeps
    /// its row, as its heads may not show the damage.
    pub(super) fn is_small(&self) -> bool {
        self.ended.is_some() && !self.damaged
    }

    /// Notes that the Task's next commit, of so many bytes, ends there.
    pub(super) fn note_mark(&mut self, end: Newest, bytes: u32) {
        self.bytes += u64::from(bytes);
        self.unmarked += u64::from(bytes);
        if self.marks.is_due(self.unmarked) {
            // A waiting request may hold the marks as they were, so now and then this copies them.
            Arc::make_mut(&mut self.marks).add(end);
            self.unmarked = 0;
        }
    }

    /// Whether the Task has not ended and can be read.
    pub(super) fn is_live(&self) -> bool {
        self.ended.is_none() && !self.damaged
    }

    /// Whether a snapshot up to this event is of use.
    pub(super) fn goes_on_from(&self, wal_seq: u64) -> bool {
        let is_newer = self.state.as_ref().is_none_or(|state| state.wal_seq < wal_seq);
        self.is_live() && is_newer && wal_seq <= self.newest.wal_seq
    }

    /// Under which end it is counted, if it has ended and can be read.
    pub(super) fn counts_as(&self) -> Option<Counted> {
        self.ended.filter(|_| !self.damaged).map(|end| (end, self.archived))
    }

    /// What the journal says of an ended log, if the Task has ended and can be read.
    pub(super) fn ended(self) -> Option<EndedLog> {
        let (end, _) = self.counts_as()?;
        let (version, bytes) = (self.newest.wal_seq, self.bytes);
        Some(EndedLog { version, end, wal_name: self.wal_name, bytes })
    }

    pub(super) fn entry(&self, key: &TaskKey) -> Entry {
        Entry {
            key: key.clone(),
            wal_name: self.wal_name.clone(),
            title: self.title.clone(),
            labels: self.labels.clone(),
            created_at: self.created_at,
            updated_at: self.updated_at,
            ended: self.ended,
            archived: self.archived,
            damaged: self.damaged,
        }
    }

    /// The same with as much of its title as an index has: a checkpoint of an older program may have all of it.
    pub(super) fn with_short_title(mut self) -> Self {
        self.title = title_in_index(&self.title);
        self
    }

    /// Takes in the commit before those taken in so far.
    fn take_older(&mut self, head: &CommitHead) {
        self.ended = self.ended.or(end_of(head));
        self.archived |= head.archived;
        self.created_at = head.created_at;
        self.unkept += 1;
        if let Some(named) = &head.named {
            (self.title, self.wal_name) = (title_in_index(&named.title), named.wal_name.clone());
            self.labels.clone_from(&named.labels);
        }
    }
}

/// How the Task ended, if this commit ended it.
pub(super) fn end_of(head: &CommitHead) -> Option<End> {
    End::of_status(head.ended?, head.failed_as)
}

/// The name of a log whose first commit cannot be found: that of its Task, if it is a valid name.
pub(super) fn fallback(key: &TaskKey) -> WalName {
    let named = WalName::new(key.task_id.as_str());
    named.or_else(|_| WalName::new("unknown")).unwrap_or_else(|_| unreachable!("it is a name"))
}

impl JetStreamJournal {
    /// What is known of a Task. If it ended long ago, its row is read from its frames.
    pub(super) async fn known(
        &self,
        key: &TaskKey,
        partition: &OwnedPartition,
    ) -> Result<IndexLookup, ReadError> {
        let among = match partition.index.read().find(key) {
            IndexHit::Row(row) => return Ok(IndexLookup { row: Some(*row), others: Vec::new() }),
            IndexHit::Among(among) if among.is_empty() => return Ok(IndexLookup::default()),
            IndexHit::Among(among) => among,
        };
        // Boxed, as it is rare and would make the future of every append as large.
        Box::pin(self.known_among(key, partition, among)).await
    }

    async fn known_among(
        &self,
        key: &TaskKey,
        partition: &OwnedPartition,
        among: Vec<u64>,
    ) -> Result<IndexLookup, ReadError> {
        let name = self.settings.stream(key.partition(self.settings.partitions));
        let frames = self.frames(&partition.stream, &name, Some(&partition.frame_cache));
        let _reading = partition.frame_cache.reading();
        Ok(match frames.row(key, &among).await? {
            None => IndexLookup { row: None, others: among },
            Some(row) => {
                partition.index.write().bring_back(key, &row);
                IndexLookup { row: Some(row), others: Vec::new() }
            }
        })
    }
}

impl Frames<'_> {
    /// The row of the Task whose newest frame stands at one of these places; none if all are other
    /// Tasks'. Reads every head of the Task's chain, but not its lines.
    pub(super) async fn row(
        self,
        key: &TaskKey,
        among: &[u64],
    ) -> Result<Option<TaskRow>, ReadError> {
        for &at in among.iter().rev() {
            match self.heads(key, at).await {
                Ok(heads) if heads.is_empty() => {}
                Ok(heads) => return self.row_of(key, at, heads).await,
                // As a rule no other Task has the hash, so it is this Task that cannot be read.
                Err(ReadError::Damaged { .. }) => return Ok(Some(unreadable(key, at))),
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    async fn row_of(
        self,
        key: &TaskKey,
        stream_seq: u64,
        heads: Vec<CommitHead>,
    ) -> Result<Option<TaskRow>, ReadError> {
        let Some(newest) = heads.last() else { return Ok(None) };
        let mut row = TaskRow {
            newest: Newest { wal_seq: newest.last_seq, stream_seq },
            updated_at: newest.created_at,
            damaged: false,
            ..unreadable(key, stream_seq)
        };
        let (mut ahead, mut ends, mut next) = (Ahead::new(), Vec::new(), newest.last_seq + 1);
        let (mut at, mut heads) = (stream_seq, heads);
        loop {
            for head in heads.iter().rev() {
                row.damaged |= head.last_seq + 1 != next;
                row.take_older(head);
                let end = Newest { wal_seq: head.last_seq, stream_seq: at };
                ends.push((end, head.len));
                next = head.first_seq;
            }
            let prev = heads.first().map(|head| head.prev).filter(|prev| (1..at).contains(prev));
            let Some(prev) = prev else {
                break;
            };
            ahead.reach(self, prev, 1).await;
            heads = match self.heads(key, prev).await {
                Ok(heads) => heads,
                Err(ReadError::Damaged { .. }) => break,
                Err(error) => return Err(error),
            };
            at = prev;
        }
        row.damaged |= next != 1;
        ends.into_iter().rev().for_each(|(end, bytes)| row.note_mark(end, bytes));
        Ok(Some(row))
    }

    /// The heads of a Task's commits in a frame.
    async fn heads(self, key: &TaskKey, at: u64) -> Result<Vec<CommitHead>, ReadError> {
        let frame = self.opened(at).await?;
        Ok(frame.commits_of(key).map(|(head, _)| head.clone()).collect())
    }
}

/// The last event of a Task that cannot be known: nothing can follow it, and a read finds the
/// damage.
const UNKNOWN: u64 = u64::MAX - 1;

/// The row of a Task whose newest frame is damaged.
fn unreadable(key: &TaskKey, stream_seq: u64) -> TaskRow {
    TaskRow {
        newest: Newest { wal_seq: UNKNOWN, stream_seq },
        title: String::new(),
        labels: Labels::new(),
        wal_name: fallback(key),
        created_at: 0,
        updated_at: 0,
        ended: None,
        archived: false,
        damaged: true,
        unkept: 0,
        state: None,
        marks: Arc::default(),
        unmarked: 0,
        bytes: 0,
    }
}
