//! The index of a partition: what a node knows of its Tasks without reading their logs. The owner
//! derives it from the heads of frames; it is as fresh as the last append.
//!
//! Live Tasks and the newest ended ones have a row each. An older ended Task costs 16 bytes (and
//! half as much again while they are being sorted in): the hash of its key, and the place of its
//! newest frame ([`ended`](super::ended)). The rest is read from its frames on request. So all of
//! them fit in memory (a million takes 16 MB), and a create with a new id reads nothing. The index
//! counts for each session how many Tasks have ended, and how.

use std::cmp::Reverse;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tenure_core::features::Features;
use tenure_core::id::{Millis, SessionId, TaskId};
use tenure_core::view::snapshot::Ends;
use tenure_ports::journal::{AppendError, Entry, Overview, TaskKey, title_in_index};
use tenure_ports::map::IdMap;
use tenure_wire::stored::frame::CommitHead;

use super::ended::EndedIndex;
use super::row::{Counted, TaskRow, end_of, fallback};
use super::slots::Slots;
use super::snapshots::Stored;

/// How many commits a Task may have behind its snapshot before a newer one is wanted.
pub(super) const UNKEPT_MAX: u64 = 1_000;
/// And not before an eighth of its events lie behind it, as a snapshot costs as much as the Task is
/// long.
const UNKEPT_PART: u64 = 8;
/// How many ended Tasks have their rows in a checkpoint: the newest.
const STORED_MAX: usize = 256;

/// The newest commit of a Task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Newest {
    /// Its last event.
    pub(super) wal_seq: u64,
    /// The last message of the frame that has the commit.
    pub(super) stream_seq: u64,
}

/// The index of a partition.
#[derive(Debug)]
pub(super) struct Index {
    rows: IdMap<TaskKey, TaskRow>,
    /// Ended Tasks that have a row, in the order in which they ended.
    recent: VecDeque<TaskKey>,
    /// How many of them keep their row.
    recent_max: usize,
    /// Ended Tasks without a row.
    ended: EndedIndex,
    /// How Tasks have ended that can be read, with or without a row.
    ends: IdMap<SessionId, Ends>,
    /// The last message that has been taken in.
    covered: u64,
    /// The features that the log may hold, as its owner records say it (EVOLVE-02).
    features: Features,
    pub(super) slots: Slots,
}

/// What an index says of a Task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum IndexHit {
    Row(Box<TaskRow>),
    /// The Task may be one whose newest frame stands at one of these places. If there are none,
    /// there is no such Task.
    Among(Vec<u64>),
}

/// What was found of a Task before its request waited for the writer.
#[derive(Debug, Default)]
pub(super) struct IndexLookup {
    pub(super) row: Option<TaskRow>,
    /// Places of ended Tasks that have its hash and are other Tasks.
    pub(super) others: Vec<u64>,
}

/// The content of an index, for a checkpoint.
#[derive(Debug)]
pub(super) struct IndexParts {
    /// The last message that has been taken in.
    pub(super) covered: u64,
    /// The rows that must be stored, and those of the newest ended Tasks.
    pub(super) rows: Vec<(TaskKey, TaskRow)>,
    /// How Tasks have ended, for each session.
    pub(super) ends: Vec<(SessionId, Ends)>,
    /// All other ended Tasks.
    pub(super) pairs: Vec<(u64, u64)>,
    /// The features that the log may hold.
    pub(super) features: Features,
    /// Slots to which no row points any more.
    pub(super) left: Vec<u32>,
}

impl Index {
    /// The index of an empty partition. `recent_max`: how many ended Tasks keep their rows.
    pub(super) fn new(recent_max: usize) -> Self {
        let (rows, recent, ended) = (IdMap::default(), VecDeque::new(), EndedIndex::default());
        let (ends, slots) = (IdMap::default(), Slots::default());
        let features = Features::default();
        Self { rows, recent, recent_max, ended, ends, covered: 0, features, slots }
    }

    /// The index that a checkpoint holds.
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
        let shortened = rows.into_iter().map(|(key, row)| (key, row.with_short_title()));
        let (rows, ends) = (shortened.collect(), ends.into_iter().collect());
        let features = Features::default();
        Self { rows, recent, recent_max, ended, ends, covered, features, slots }
    }

    /// The content of the index, for a checkpoint.
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
        let (covered, left) = (self.covered, self.slots.left().to_vec());
        IndexParts { covered, rows, ends, pairs, features: self.features.clone(), left }
    }

    pub(super) fn covered(&self) -> u64 {
        self.covered
    }

    /// The features that the log may hold.
    pub(super) fn features(&self) -> &Features {
        &self.features
    }

    /// Notes that an owner record names these features: the set only grows.
    pub(super) fn note_features(&mut self, features: &Features) {
        self.features.add(features);
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

    /// Where the newest commit of a live Task is.
    pub(super) fn newest_if_live(&self, key: &TaskKey) -> Option<Newest> {
        self.rows.get(key).filter(|row| row.ended.is_none()).map(|row| row.newest)
    }

    /// How many bytes the log of a live Task has.
    pub(super) fn log_bytes(&self, key: &TaskKey) -> Option<u64> {
        self.rows.get(key).filter(|row| row.ended.is_none()).map(|row| row.bytes)
    }

    /// Where the newest commit of a Task is. A Task that ended long ago gets its row again. Fails
    /// if what was found of the Task is no longer so.
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

    /// Gives an ended Task its row again, unless it has one or stands at another place by now.
    /// Answers whether it has one then.
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

    /// Takes in a commit that is stored in the frame that ends at `stream_seq`. A commit that does
    /// not follow the known ones marks its Task as damaged, as part of its history is missing.
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
                let title = named.as_ref().map(|named| title_in_index(&named.title));
                let wal_name = named.as_ref().map(|named| named.wal_name.clone());
                let labels = named.as_ref().map(|named| named.labels.clone());
                let mut row = TaskRow {
                    newest,
                    title: title.unwrap_or_default(),
                    labels: labels.unwrap_or_default(),
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

    /// Counts how a Task has ended.
    fn count(&mut self, key: &TaskKey, before: Option<Counted>, now: Option<Counted>) {
        let ends = match self.ends.get_mut(&key.session_id) {
            Some(ends) => ends,
            None => self.ends.entry(key.session_id.clone()).or_default(),
        };
        before.into_iter().for_each(|(end, archived)| ends.remove(end, archived));
        now.into_iter().for_each(|(end, archived)| ends.add(end, archived));
    }

    /// Notes that all messages up to this one have been taken in.
    pub(super) fn cover(&mut self, stream_seq: u64) {
        self.covered = self.covered.max(stream_seq);
        self.shed();
    }

    /// Gives an ended Task its row again for the requests that follow; another Task may lose its
    /// row for that.
    pub(super) fn bring_back(&mut self, key: &TaskKey, row: &TaskRow) {
        if row.is_small() && self.adopt(key, row) {
            self.shed();
        }
    }

    /// Drops the oldest rows if there are too many.
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

    /// The live Tasks that have many commits since their snapshots. The limits keep all snapshots
    /// of a Task together to a few times the size of one, however long the Task is.
    pub(super) fn long(&self) -> Vec<TaskKey> {
        let is_long = |row: &TaskRow| {
            let events = row.newest.wal_seq; // There are not more commits than events.
            row.is_live() && row.unkept.min(events) > UNKEPT_MAX.max(events / UNKEPT_PART)
        };
        self.rows.iter().filter(|(_, row)| is_long(row)).map(|(key, _)| key.clone()).collect()
    }

    /// Notes that a snapshot of a Task is stored. The slots of the one that it replaces, or its own
    /// if it is of no use, are freed.
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

    /// Drops the snapshot of a Task, which is of no use, so that a new one is wanted.
    pub(super) fn forget_state(&mut self, key: &TaskKey) {
        let Some(row) = self.rows.get_mut(key) else { return };
        let Some(left) = row.state.take() else { return };
        row.unkept = row.newest.wal_seq;
        self.slots.leave(left.slots());
    }

    /// The snapshot of a live Task.
    pub(super) fn state(&self, key: &TaskKey) -> Option<Arc<Stored>> {
        let row = self.rows.get(key).filter(|row| row.is_live())?;
        row.state.clone().filter(|state| state.wal_seq <= row.newest.wal_seq)
    }

    /// What is in memory of the Tasks of a session.
    pub(super) fn overview(&self, session: &SessionId) -> Overview {
        let ends = self.ends.get(session).copied().unwrap_or_default();
        Overview { ends, ..Overview::of(self.rows(Some(session))) }
    }

    /// The Tasks that have a row.
    pub(super) fn rows(&self, session: Option<&SessionId>) -> Vec<Entry> {
        let of_session =
            self.rows.iter().filter(|(key, _)| session.is_none_or(|id| key.session_id == *id));
        of_session.map(|(key, row)| row.entry(key)).collect()
    }

    /// The Tasks that have a row and are asked for, of an index that is not needed any more.
    pub(super) fn into_rows(self, is_asked_for: impl Fn(&TaskKey) -> bool) -> Vec<Entry> {
        let asked_for = self.rows.into_iter().filter(|(key, _)| is_asked_for(key));
        asked_for.map(|(key, row)| row.entry(&key)).collect()
    }

    /// The oldest live Tasks of a session behind `behind`, in the order of lists (LIST-06), and
    /// whether there are more.
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

    /// The live Tasks, those with the newest commits first, as these are being worked on. Tasks
    /// that share a frame come one behind the other.
    pub(super) fn live(&self) -> Vec<TaskKey> {
        let mut live: Vec<_> = self.rows.iter().filter(|(_, row)| row.ended.is_none()).collect();
        live.sort_unstable_by_key(|(_, row)| Reverse(row.newest.stream_seq));
        live.into_iter().map(|(key, _)| key.clone()).collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A test that cannot go on has failed.
mod tests {
    use tenure_core::status::TaskStatus;
    use tenure_ports::journal::INDEX_TITLE_BYTES_MAX;
    use tenure_wire::stored::frame::Named;

    use super::*;

    /// RECOVER-01: live Tasks that are being worked on come back first.
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

    /// However long the titles of ended Tasks are, the index has a part of each, also where an older program stored
    /// more.
    #[test]
    fn an_index_has_no_long_titles() {
        let key = TaskKey { session_id: "s".parse().unwrap(), task_id: "t".parse().unwrap() };
        let (title, wal_name) = ("ß".repeat(30_000), "t".parse().unwrap());
        let named = Named { title: title.clone(), wal_name, labels: Default::default() };
        let head = CommitHead {
            session_id: key.session_id.clone(),
            task_id: key.task_id.clone(),
            first_seq: 1,
            last_seq: 1,
            created_at: 0,
            prev: 0,
            len: 0,
            named: Some(named),
            ended: Some(TaskStatus::Completed),
            failed_as: None,
            archived: false,
        };
        let mut index = Index::new(10);
        index.take(&key, &head, 1);
        let IndexHit::Row(row) = index.find(&key) else { panic!("it has a row") };
        assert!(row.title.len() <= INDEX_TITLE_BYTES_MAX && row.title.starts_with("ßß"));
        let old = vec![(key.clone(), TaskRow { title, ..*row })];
        let read = Index::restored(10, 1, old, Vec::new(), EndedIndex::default());
        assert!(read.rows(None)[0].title.ends_with("ß…"));
    }
}
