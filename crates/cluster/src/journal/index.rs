//! What a node knows of the Tasks of a partition without reading their logs: derived from the heads
//! of frames, as fresh as the last append.
//!
//! A live Task has a row, and so have the newest ended ones. An older ended Task costs 16 bytes (and
//! half as much again while they are being sorted in): the hash of its key, and where its newest
//! frame stands ([`ended`](super::ended)); the rest is read from its frames when it is asked for. That
//! is little enough to be in memory for all of them (a million takes 16 MB), and a create with a new
//! id reads nothing. How many have ended, and how, is counted for each session.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tenure_core::id::{Millis, SessionId, TaskId};
use tenure_core::view::snapshot::Ends;
use tenure_ports::journal::{AppendError, Entry, Overview, TaskKey};
use tenure_wire::stored::frame::CommitHead;

use super::ended::EndedIndex;
use super::row::{Counted, TaskRow, end_of, fallback};
use super::slots::Slots;
use super::snapshots::Stored;

/// Commits of a Task behind its state from which on a newer one is kept.
pub(super) const UNKEPT_MAX: u64 = 1_000;
/// And not before there is a part of its events behind it: a state costs as much as the Task is long.
const UNKEPT_PART: u64 = 8;
/// Ended Tasks whose rows a checkpoint has: the newest.
const STORED_MAX: usize = 256;

/// The newest commit of a Task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Newest {
    /// Its last event.
    pub(super) wal_seq: u64,
    /// The last message of the frame it is in.
    pub(super) stream_seq: u64,
}

/// The Tasks of a partition.
#[derive(Debug)]
pub(super) struct Index {
    rows: HashMap<TaskKey, TaskRow>,
    /// Ended Tasks that have a row, in the order in which they ended.
    recent: VecDeque<TaskKey>,
    /// How many of them keep it.
    recent_max: usize,
    /// Ended Tasks without a row.
    ended: EndedIndex,
    /// How those have ended that can be read, with a row and without.
    ends: HashMap<SessionId, Ends>,
    /// The last message that is taken in.
    covered: u64,
    /// The newest version in which the partition is written, as owners have said; 0: none has.
    level: u32,
    pub(super) slots: Slots,
}

/// What an index says of a Task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum IndexHit {
    Row(Box<TaskRow>),
    /// It may be the one whose newest frame stands at one of these; there is none if they are none.
    Among(Vec<u64>),
}

/// What was found of a Task before its request waited for the writer.
#[derive(Debug, Default)]
pub(super) struct IndexLookup {
    pub(super) row: Option<TaskRow>,
    /// Places of ended Tasks with its hash that are others.
    pub(super) others: Vec<u64>,
}

/// An index to be stored.
#[derive(Debug)]
pub(super) struct IndexParts {
    /// The last message that is taken in.
    pub(super) covered: u64,
    /// The rows that must be kept, and those of the newest ended Tasks.
    pub(super) rows: Vec<(TaskKey, TaskRow)>,
    /// How Tasks have ended, for each session.
    pub(super) ends: Vec<(SessionId, Ends)>,
    /// All other ended Tasks.
    pub(super) pairs: Vec<(u64, u64)>,
    /// The newest version in which the partition is written.
    pub(super) level: u32,
    /// Cells that no row points to any more.
    pub(super) left: Vec<u32>,
}

impl Index {
    /// Of an empty partition, in which so many ended Tasks keep their rows.
    pub(super) fn new(recent_max: usize) -> Self {
        let (rows, recent, ended) = (HashMap::new(), VecDeque::new(), EndedIndex::default());
        let (ends, slots) = (HashMap::new(), Slots::default());
        Self { rows, recent, recent_max, ended, ends, covered: 0, level: 0, slots }
    }

    /// As a checkpoint has it.
    pub(super) fn restored(
        recent_max: usize,
        covered: u64,
        rows: Vec<(TaskKey, TaskRow)>,
        ends: Vec<(SessionId, Ends)>,
        ended: EndedIndex,
    ) -> Self {
        let mut recent: Vec<_> = rows.iter().filter(|(_, row)| row.is_small()).collect();
        recent.sort_by_key(|(_, row)| row.newest.stream_seq);
        let recent = recent.into_iter().map(|(key, _)| key.clone()).collect();
        let states = rows.iter().filter_map(|(_, row)| row.state.as_ref());
        let slots = Slots::of_used(states.flat_map(|state| state.slots()));
        let (rows, ends) = (rows.into_iter().collect(), ends.into_iter().collect());
        Self { rows, recent, recent_max, ended, ends, covered, level: 0, slots }
    }

    /// For a checkpoint.
    pub(super) fn parts(&self) -> IndexParts {
        let mut pairs = self.ended.all();
        let mut rows = Vec::new();
        let newest: HashSet<&TaskKey> = self.recent.iter().rev().take(STORED_MAX).collect();
        for (key, row) in &self.rows {
            match row.is_small() && !newest.contains(key) {
                true => pairs.push((key.hash64(), row.newest.stream_seq)),
                false => rows.push((key.clone(), row.clone())),
            }
        }
        let ends = self.ends.iter().map(|(session, ends)| (session.clone(), *ends)).collect();
        let (covered, level, left) = (self.covered, self.level, self.slots.left().to_vec());
        IndexParts { covered, rows, ends, pairs, level, left }
    }

    pub(super) fn covered(&self) -> u64 {
        self.covered
    }

    pub(super) fn level(&self) -> u32 {
        self.level
    }

    /// An owner writes in this version.
    pub(super) fn note_level(&mut self, level: u32) {
        self.level = self.level.max(level);
    }

    /// Whether every Task has a row.
    pub(super) fn is_whole(&self) -> bool {
        self.ended.is_empty()
    }

    pub(super) fn find(&self, key: &TaskKey) -> IndexHit {
        match self.rows.get(key) {
            Some(row) => IndexHit::Row(Box::new(row.clone())),
            None => IndexHit::Among(self.ended.of(key.hash64())),
        }
    }

    /// Where the newest commit of a Task that goes on is.
    pub(super) fn newest_if_live(&self, key: &TaskKey) -> Option<Newest> {
        self.rows.get(key).filter(|row| row.ended.is_none()).map(|row| row.newest)
    }

    /// Where the newest commit of a Task is, which gets its row again if it had ended long ago. An
    /// error where what was found of it is not so any more.
    pub(super) fn newest(
        &mut self,
        key: &TaskKey,
        known: &IndexLookup,
    ) -> Result<Option<Newest>, AppendError> {
        if let Some(row) = &known.row {
            self.adopt(key, row);
        }
        match self.rows.get(key) {
            Some(row) => Ok(Some(row.newest)),
            None if self.ended.of(key.hash64()) == known.others => Ok(None),
            None => {
                let why = "what is known of the task has changed; ask again";
                Err(AppendError::Failed(why.into()))
            }
        }
    }

    /// Gives an ended Task its row again, unless it has one or is at another place by now. Whether it
    /// has one then.
    pub(super) fn adopt(&mut self, key: &TaskKey, row: &TaskRow) -> bool {
        if self.rows.contains_key(key) {
            return true;
        }
        if !self.ended.remove(key.hash64(), row.newest.stream_seq) {
            return false;
        }
        self.rows.insert(key.clone(), row.clone());
        if row.is_small() {
            self.recent.push_back(key.clone());
        }
        true
    }

    /// Takes in a commit that is stored in the frame that ends at `stream_seq`. One that does not
    /// follow what is known marks its Task as damaged: part of its history is missing.
    pub(super) fn take(&mut self, key: &TaskKey, head: &CommitHead, stream_seq: u64) {
        let newest = Newest { wal_seq: head.last_seq, stream_seq };
        let (before, now) = match (self.rows.get_mut(key), &head.named) {
            (Some(row), _) => {
                let before = row.counts_as();
                row.damaged |= row.newest.wal_seq + 1 != head.first_seq;
                row.newest = newest;
                row.updated_at = head.created_at;
                row.ended = end_of(head).or(row.ended);
                row.archived |= head.archived;
                row.unkept += 1;
                row.note_mark(newest, head.len);
                if let Some(state) = row.state.take_if(|_| row.ended.is_some()) {
                    self.slots.leave(state.slots());
                }
                if before.is_none() && row.is_small() {
                    self.recent.push_back(key.clone());
                }
                (before, row.counts_as())
            }
            (None, named) => {
                let title = named.as_ref().map_or_else(String::new, |named| named.title.clone());
                let wal_name = named.as_ref().map(|named| named.wal_name.clone());
                let mut row = TaskRow {
                    newest,
                    title,
                    wal_name: wal_name.unwrap_or_else(|| fallback(key)),
                    created_at: head.created_at,
                    updated_at: head.created_at,
                    ended: end_of(head),
                    archived: head.archived,
                    damaged: head.first_seq != 1,
                    unkept: 1,
                    state: None,
                    marks: Arc::default(),
                    unmarked: 0,
                    bytes: 0,
                };
                row.note_mark(newest, head.len);
                if row.is_small() {
                    self.recent.push_back(key.clone());
                }
                let now = row.counts_as();
                self.rows.insert(key.clone(), row);
                (None, now)
            }
        };
        if now != before {
            self.count(key, before, now);
        }
    }

    /// Counts what a Task has become.
    fn count(&mut self, key: &TaskKey, before: Option<Counted>, now: Option<Counted>) {
        let ends = match self.ends.get_mut(&key.session_id) {
            Some(ends) => ends,
            None => self.ends.entry(key.session_id.clone()).or_default(),
        };
        before.into_iter().for_each(|(end, archived)| ends.remove(end, archived));
        now.into_iter().for_each(|(end, archived)| ends.add(end, archived));
    }

    /// All messages up to this one are taken in.
    pub(super) fn cover(&mut self, stream_seq: u64) {
        self.covered = self.covered.max(stream_seq);
        self.shed();
    }

    /// Gives an ended Task its row again for those who ask next; another's goes for it.
    pub(super) fn bring_back(&mut self, key: &TaskKey, row: &TaskRow) {
        if row.is_small() && self.adopt(key, row) {
            self.shed();
        }
    }

    /// The oldest of too many rows go.
    fn shed(&mut self) {
        while self.recent.len() > self.recent_max {
            let Some(key) = self.recent.pop_front() else { break };
            if self.rows.get(&key).is_some_and(TaskRow::is_small)
                && let Some(row) = self.rows.remove(&key)
            {
                self.ended.insert(key.hash64(), row.newest.stream_seq);
            }
        }
    }

    pub(super) fn note_damage(&mut self, key: &TaskKey) {
        let Some(row) = self.rows.get_mut(key) else { return };
        let before = row.counts_as();
        row.damaged = true;
        self.count(key, before, None);
    }

    pub(super) fn is_live(&self, key: &TaskKey) -> bool {
        self.rows.get(key).is_some_and(TaskRow::is_live)
    }

    /// The live Tasks with many commits since their states: so many that what is written of a Task in
    /// all its life is some times its state and no more, however long it is.
    pub(super) fn long(&self) -> Vec<TaskKey> {
        let is_long = |row: &TaskRow| {
            let events = row.newest.wal_seq; // There are not more commits.
            row.is_live() && row.unkept.min(events) > UNKEPT_MAX.max(events / UNKEPT_PART)
        };
        self.rows.iter().filter(|(_, row)| is_long(row)).map(|(key, _)| key.clone()).collect()
    }

    /// A state of a Task is stored, and stands for an older one; one that is of no use is left.
    pub(super) fn point_to(&mut self, key: &TaskKey, stored: Stored) {
        let row = self.rows.get_mut(key);
        let left = match row.filter(|row| row.goes_on_from(stored.wal_seq)) {
            Some(row) => {
                row.unkept = row.unkept.min(row.newest.wal_seq - stored.wal_seq);
                row.state.replace(Arc::new(stored))
            }
            None => Some(Arc::new(stored)),
        };
        self.slots.leave(left.iter().flat_map(|left| left.slots()));
    }

    /// The state of a Task is of no use: it is kept anew.
    pub(super) fn forget_state(&mut self, key: &TaskKey) {
        let Some(row) = self.rows.get_mut(key) else { return };
        let Some(left) = row.state.take() else { return };
        row.unkept = row.newest.wal_seq;
        self.slots.leave(left.slots());
    }

    /// The state of a live Task.
    pub(super) fn state(&self, key: &TaskKey) -> Option<Arc<Stored>> {
        let row = self.rows.get(key).filter(|row| row.is_live())?;
        row.state.clone().filter(|state| state.wal_seq <= row.newest.wal_seq)
    }

    /// What is known by heart of the Tasks of a session.
    pub(super) fn overview(&self, session: &SessionId) -> Overview {
        let ends = self.ends.get(session).copied().unwrap_or_default();
        Overview { ends, ..Overview::of(self.rows(Some(session))) }
    }

    /// Those that have a row.
    pub(super) fn rows(&self, session: Option<&SessionId>) -> Vec<Entry> {
        let of_session =
            self.rows.iter().filter(|(key, _)| session.is_none_or(|id| key.session_id == *id));
        of_session.map(|(key, row)| row.entry(key)).collect()
    }

    /// The oldest Tasks of a session that have not ended, behind this one in the order of lists (LIST-06),
    /// and whether there are more.
    pub(super) fn oldest(
        &self,
        session: &SessionId,
        behind: Option<(Millis, TaskId)>,
        most: usize,
    ) -> (Vec<Entry>, bool) {
        let is_behind = |key: &TaskKey, row: &TaskRow| {
            let place = (row.created_at, &key.task_id);
            behind.as_ref().is_none_or(|(at, id)| place > (*at, id))
        };
        let is_live = |(key, row): &(&TaskKey, &TaskRow)| {
            row.ended.is_none() && key.session_id == *session && is_behind(key, row)
        };
        let mut live: Vec<(&TaskKey, &TaskRow)> = self.rows.iter().filter(is_live).collect();
        let age = |(key, row): &(&TaskKey, &TaskRow)| (row.created_at, (*key).clone());
        let has_more = live.len() > most;
        if has_more {
            live.select_nth_unstable_by(most, |a, b| {
                (a.1.created_at, a.0).cmp(&(b.1.created_at, b.0))
            });
            live.truncate(most);
        }
        live.sort_by_cached_key(age);
        (live.into_iter().map(|(key, row)| row.entry(key)).collect(), has_more)
    }

    /// How many Tasks have not ended.
    pub(super) fn live_count(&self) -> usize {
        self.rows.values().filter(|row| row.ended.is_none()).count()
    }

    /// The Tasks that have not ended, those with the newest commits first, as work is under way there:
    /// those that share a frame are read one behind the other.
    pub(super) fn live(&self) -> Vec<TaskKey> {
        let mut live: Vec<_> = self.rows.iter().filter(|(_, row)| row.ended.is_none()).collect();
        live.sort_unstable_by_key(|(_, row)| Reverse(row.newest.stream_seq));
        live.into_iter().map(|(key, _)| key.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::status::TaskStatus;

    use super::*;

    /// RECOVER-01: the live Tasks where work is under way are brought back first.
    #[test]
    fn live_tasks_with_the_newest_commits_come_first() {
        let mut index = Index::new(10);
        let commits = [("a", 1), ("b", 1), ("c", 1), ("a", 2), ("d", 1), ("d", 2)];
        for (at, (task, seq)) in (1..).zip(commits) {
            let session_id = SessionId::new("s").unwrap();
            let key = TaskKey { session_id, task_id: TaskId::new(task).unwrap() };
            let head = CommitHead {
                session_id: key.session_id.clone(),
                task_id: key.task_id.clone(),
                first_seq: seq,
                last_seq: seq,
                created_at: 0,
                prev: 0,
                len: 0,
                named: None,
                ended: ((task, seq) == ("d", 2)).then_some(TaskStatus::Completed),
                failed_as: None,
                archived: false,
            };
            index.take(&key, &head, at);
        }
        let live = index.live();
        let live: Vec<&str> = live.iter().map(|key| key.task_id.as_str()).collect();
        assert_eq!(live, ["a", "c", "b"]);
    }
}
