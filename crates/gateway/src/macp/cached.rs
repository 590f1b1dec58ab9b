//! [`SharedSessions`]: copies of the folds of sessions, and what a gateway keeps beside them.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use prost::Message as _;
use tenure_core::id::{SessionId, TaskId};
use tenure_macp::pb::Envelope;
use tenure_macp::{
    MacpAccepted, MacpDecision, MacpEffect, MacpPoolWork, MacpRecord, MacpSession, MacpSteer,
    is_session_id,
};
use tokio::sync::{Notify, broadcast};

use super::marks::{SessionMark, SessionMarks};
use super::now_ms;
use super::shares::SenderShares;

/// How many folds a gateway holds. One that is not held is read again.
const SESSIONS_MAX: usize = 4_096;

/// How many bytes of records those folds were made from, 256 MiB: a fold is about as large as its records at most.
const BYTES_MAX: usize = 256 << 20;

/// How many signals wait for one who watches them.
const SIGNALS_MAX: usize = 256;

/// A session as far as this gateway has read it.
#[derive(Debug)]
pub(super) struct CachedSession {
    /// Its Task.
    pub(super) task: TaskId,
    /// The fold of its records; none before its start.
    pub(super) session: Option<MacpSession>,
    /// How many records were read.
    pub(super) read: usize,
    /// The place of the Task's log up to which all records were read.
    pub(super) through: u64,
    /// The version of the Task as far as is known; none: there is no Task.
    pub(super) version: Option<u64>,
    /// Places of the log from which its messages can be told.
    pub(super) marks: SessionMarks,
    /// Whether the Task is certainly at another version, or was never looked at. A session of which this does not hold
    /// may be behind, too, as other gateways write: then the Task does not take a record at this version.
    pub(super) is_behind: bool,
    /// The last record, if perhaps nobody has carried out what it means.
    pub(super) undone: Option<UndoneRecord>,
    /// Whether somebody has ended the Task who does not speak MACP.
    pub(super) is_cut_off: bool,
    /// The place of the log up to which the work of a pool's workers was read.
    pub(super) work_through: u64,
    /// The work that is not kept as a message yet, by its place.
    pub(super) untold: VecDeque<(u64, MacpPoolWork)>,
    /// When the session is to be looked at next.
    pub(super) due: Option<i64>,
    /// How many bytes its records have.
    bytes: RecordBytes,
}

/// How many bytes of records one session may have in memory, and all sessions together.
#[derive(Debug)]
struct RecordBytes {
    own: usize,
    all: Arc<AtomicUsize>,
}

impl RecordBytes {
    fn add(&mut self, bytes: usize) {
        self.own += bytes;
        self.all.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Drop for RecordBytes {
    fn drop(&mut self) {
        self.all.fetch_sub(self.own, Ordering::Relaxed);
    }
}

/// A record that may have to be carried out.
#[derive(Debug, Clone)]
pub(super) struct UndoneRecord {
    /// How many records are there with it: the commands have this in their ids.
    pub(super) place: usize,
    pub(super) record: MacpRecord,
    pub(super) effect: Option<MacpEffect>,
}

impl CachedSession {
    fn of(task: TaskId, all: Arc<AtomicUsize>) -> Self {
        Self {
            task,
            session: None,
            read: 0,
            through: 0,
            version: None,
            marks: SessionMarks::default(),
            is_behind: true,
            undone: None,
            is_cut_off: false,
            work_through: 0,
            untold: VecDeque::new(),
            due: None,
            bytes: RecordBytes { own: 0, all },
        }
    }

    /// Notes that all records were read up to this version of the Task.
    pub(super) fn note_version(&mut self, version: u64) {
        (self.version, self.through) = (Some(version), version);
        let ordinal = self.session.as_ref().map_or(0, MacpSession::ordinal);
        self.marks.note(SessionMark { ordinal, place: version });
    }

    /// The message as the session takes it as far as this gateway has read, unless it is certain that there is more.
    pub(super) fn accepts(&self, envelope: &Envelope, now: i64) -> Option<MacpAccepted> {
        let session = self.session.as_ref()?;
        if self.is_behind || self.is_cut_off || self.undone.is_some() || !self.untold.is_empty() {
            return None;
        }
        match session.decide(envelope, now) {
            Ok(MacpDecision::Accept(accepted)) => Some(*accepted),
            _ => None,
        }
    }

    /// Takes the next record.
    ///
    /// # Errors
    /// It does not fit.
    pub(super) fn take(&mut self, record: MacpRecord) -> Result<(), tenure_macp::MacpReplayError> {
        let effect = match &mut self.session {
            Some(session) => session.apply(&record)?,
            None => {
                self.session = Some(MacpSession::begin(&record)?);
                None
            }
        };
        self.read += 1;
        self.bytes.add(record.encoded_len());
        let is_done = record.carried_out;
        let place = self.read;
        self.undone = (!is_done).then_some(UndoneRecord { place, record, effect });
        Ok(())
    }

    /// The session as it is shown: one whose Task was ended from outside is cancelled, and one whose time is over has
    /// expired, though that is not kept yet.
    pub(super) fn shown(&self) -> Option<MacpSession> {
        let mut shown = self.session.clone()?;
        let now = now_ms();
        let ended = match self.is_cut_off {
            true => {
                let initiator = shown.bound().initiator.clone();
                let steered = shown.steer(MacpSteer::Cancel, &initiator, "", now);
                steered.ok().and_then(|steered| steered.record)
            }
            false => shown.expire(now),
        };
        if let Some(record) = ended
            && let Err(error) = shown.apply(&record)
        {
            tracing::debug!(%error, "the end of a session cannot be shown");
        }
        Some(shown)
    }
}

/// What all requests of a gateway share of its sessions.
#[derive(Debug)]
pub(crate) struct SharedSessions {
    cache: Mutex<SessionCache>,
    /// When sessions have to be looked at.
    due: Mutex<BTreeSet<(i64, String)>>,
    /// The sessions that go on and whose task was requested of a pool, by their Tasks.
    pooled: Mutex<HashMap<TaskId, String>>,
    /// What each sender takes.
    pub(super) shares: SenderShares,
    /// Told when a session is due earlier than all others.
    pub(super) sooner: Notify,
    /// Signals and progress, which nobody keeps.
    pub(super) signals: broadcast::Sender<Arc<Envelope>>,
    /// When the gateway began, in milliseconds since 1970.
    pub(super) begun_ms: i64,
}

/// A session that a request uses. When the last of them is dropped, the gateway holds the session if there is one: what
/// callers ask for that is not there takes no place of another.
#[derive(Debug)]
pub(super) struct UsedSession<'a> {
    of: &'a SharedSessions,
    id: String,
    session: Arc<tokio::sync::Mutex<CachedSession>>,
    /// Whether others make room for it.
    pub(super) pushes_out: bool,
}

impl UsedSession<'_> {
    /// Who has this is alone with the session in this gateway.
    pub(super) async fn lock(&self) -> tokio::sync::MutexGuard<'_, CachedSession> {
        self.session.lock().await
    }
}

impl Drop for UsedSession<'_> {
    fn drop(&mut self) {
        self.of.cache.lock().release(&self.id, self.pushes_out);
    }
}

/// The folds that a gateway holds.
#[derive(Debug, Default)]
struct SessionCache {
    sessions: HashMap<String, KnownSession>,
    /// The ids of those that are held, by when each was used last.
    by_use: BTreeMap<u64, String>,
    /// Counts each use.
    clock: u64,
    /// How many bytes the records of all have.
    bytes: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct KnownSession {
    session: Arc<tokio::sync::Mutex<CachedSession>>,
    /// How many requests use it.
    users: usize,
    /// Whether one of these would have others make room for it.
    pushes_out: bool,
    /// When it was used last, by the clock of the cache; none: it is not held yet.
    used: Option<u64>,
}

impl SessionCache {
    /// Lets go of what was not used for the longest time, or where there are too many bytes of what has most of them,
    /// until there is room for one more. What is in use stays.
    fn make_room(&mut self) {
        loop {
            let large = if self.bytes() > BYTES_MAX { self.largest() } else { None };
            let oldest = || self.by_use.values().find(|id| self.is_idle(id)).cloned();
            let is_full = self.by_use.len() >= SESSIONS_MAX;
            let Some(gone) = large.or_else(|| is_full.then(oldest).flatten()) else { return };
            self.remove(&gone);
        }
    }

    fn is_idle(&self, id: &str) -> bool {
        self.sessions.get(id).is_some_and(|it| it.users == 0)
    }

    /// Of those that nobody uses now, the one whose records have most bytes, so that it pushes out no small ones. None:
    /// what is in use has too many by itself, and the others have not.
    fn largest(&self) -> Option<String> {
        let bytes = |it: &KnownSession| it.session.try_lock().map_or(0, |it| it.bytes.own);
        let idle = self.sessions.iter().filter(|(id, _)| self.is_idle(id));
        let (mut all, mut largest) = (0, None);
        for (id, bytes) in idle.map(|(id, it)| (id, bytes(it))) {
            all += bytes;
            largest = largest.max(Some((bytes, id)));
        }
        let helps = all > BYTES_MAX || self.bytes().saturating_sub(all) <= BYTES_MAX;
        largest.filter(|_| helps).map(|(_, id)| id.clone())
    }

    /// The session, which is used now.
    fn take(
        &mut self,
        id: &str,
        task: impl FnOnce() -> TaskId,
    ) -> Arc<tokio::sync::Mutex<CachedSession>> {
        let all = &self.bytes;
        let known = self.sessions.entry(id.to_owned()).or_insert_with(|| {
            let session = CachedSession::of(task(), Arc::clone(all));
            let session = Arc::new(tokio::sync::Mutex::new(session));
            KnownSession { session, users: 0, pushes_out: false, used: None }
        });
        known.users += 1;
        let session = Arc::clone(&known.session);
        if known.used.is_some() {
            self.touch(id);
        }
        session
    }

    /// Holds the session as the one that was used last.
    fn touch(&mut self, id: &str) {
        let Some(known) = self.sessions.get_mut(id) else { return };
        self.clock += 1;
        let name = known.used.and_then(|used| self.by_use.remove(&used));
        known.used = Some(self.clock);
        self.by_use.insert(self.clock, name.unwrap_or_else(|| id.to_owned()));
    }

    /// A request does not use the session any more. The last one has it held, if it is there and has a place.
    fn release(&mut self, id: &str, pushes_out: bool) {
        let Some(known) = self.sessions.get_mut(id) else { return };
        known.pushes_out |= pushes_out;
        if known.users > 1 || known.used.is_some() {
            known.users -= 1;
            return;
        }
        let is_there = known.session.try_lock().is_ok_and(|it| it.read > 0);
        let pushes_out = known.pushes_out;
        let has_room = self.by_use.len() < SESSIONS_MAX && self.bytes() <= BYTES_MAX;
        if is_there && (has_room || pushes_out) {
            self.make_room(); // This one is in use until it has its place.
            self.touch(id);
            if let Some(known) = self.sessions.get_mut(id) {
                known.users = 0;
            }
        } else {
            self.remove(id);
        }
    }

    fn remove(&mut self, id: &str) {
        if let Some(used) = self.sessions.remove(id).and_then(|known| known.used) {
            self.by_use.remove(&used);
        }
    }

    fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl Default for SharedSessions {
    fn default() -> Self {
        let (cache, due, pooled, shares, sooner) = Default::default();
        let signals = broadcast::Sender::new(SIGNALS_MAX);
        Self { cache, due, pooled, shares, sooner, signals, begun_ms: now_ms() }
    }
}

impl SharedSessions {
    /// What is known of a session.
    pub(super) fn of(&self, tenure: &SessionId, session_id: &str) -> UsedSession<'_> {
        let session = self.cache.lock().take(session_id, || task_of(tenure, session_id));
        UsedSession { of: self, id: session_id.to_owned(), session, pushes_out: true }
    }

    /// Notes when a session has to be looked at, in place of what was noted before. One that has ended is past that,
    /// and so is one whose Task has.
    pub(super) fn note_due(&self, kept: &mut CachedSession) {
        let Some(session) = &kept.session else { return };
        let next = session.expires_at_ms().filter(|_| !kept.is_cut_off);
        let bound = session.bound();
        self.shares.note(&bound.session_id, &bound.initiator, next.is_some());
        if session.requested_pool().is_some() {
            self.note_pooled(&kept.task, &session.bound().session_id, next.is_some());
        }
        if kept.due == next {
            return;
        }
        let id = &session.bound().session_id;
        if let Some(before) = kept.due {
            self.due.lock().remove(&(before, id.clone()));
        }
        if let Some(at) = next {
            self.look_at(at, id);
        }
        kept.due = next;
    }

    fn note_pooled(&self, task: &TaskId, session_id: &str, goes_on: bool) {
        let mut pooled = self.pooled.lock();
        if !goes_on {
            pooled.remove(task);
            return;
        }
        let is_new = pooled.insert(task.clone(), session_id.to_owned()).is_none();
        drop(pooled);
        if is_new {
            self.look_at(now_ms(), session_id); // A worker may have begun before anybody listened.
        }
    }

    /// The session of a Task on which a pool works.
    pub(super) fn pooled(&self, task: &TaskId) -> Option<String> {
        self.pooled.lock().get(task).cloned()
    }

    /// Notes that a session has to be looked at then.
    pub(super) fn look_at(&self, at: i64, session_id: &str) {
        let mut due = self.due.lock();
        let is_first = due.first().is_none_or(|(first, _)| at < *first);
        due.insert((at, session_id.to_owned()));
        drop(due);
        if is_first {
            self.sooner.notify_one();
        }
    }

    /// When the next session is due.
    pub(super) fn next_due(&self) -> Option<i64> {
        self.due.lock().first().map(|(at, _)| *at)
    }

    /// The sessions that are due now. They are noted again if they go on.
    pub(super) fn take_due(&self, now: i64) -> Vec<String> {
        let mut due = self.due.lock();
        let later = due.split_off(&(now.saturating_add(1), String::new()));
        let mut taken: Vec<_> =
            std::mem::replace(&mut *due, later).into_iter().map(|(_, id)| id).collect();
        taken.sort_unstable();
        taken.dedup();
        taken
    }
}

/// The Task of a session: it has the session's id if that is an id of a Task, and else one that is made from it.
pub(super) fn task_of(tenure: &SessionId, session_id: &str) -> TaskId {
    let made = || TaskId::of_key(tenure, &format!("macp:{session_id}"));
    TaskId::new(session_id).unwrap_or_else(|_| made())
}

/// The session of a Task, if the id of the Task is its own.
pub(super) fn session_of(task: &TaskId) -> Option<&str> {
    Some(task.as_str()).filter(|id| is_session_id(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_and_its_task_have_one_id_if_they_can() {
        let tenure: SessionId = "agents".parse().unwrap();
        let plain = "0b1c2d3e-4f50-4a6b-8c7d-8e9fa0b1c2d3";
        assert_eq!(task_of(&tenure, plain).as_str(), plain);
        assert_eq!(session_of(&task_of(&tenure, plain)), Some(plain));
        let mixed = "AbCdEfGhIjKlMnOpQrStUv";
        let made = task_of(&tenure, mixed);
        assert_eq!((made.clone(), session_of(&made)), (task_of(&tenure, mixed), None));
        assert_ne!(made, task_of(&tenure, &mixed.to_lowercase()));
    }

    /// What one caller asks for does not push out what others use, by number or by bytes, and nothing is pushed out by
    /// what is not there or by what lists look at.
    #[test]
    fn the_cache_lets_go_of_what_was_not_used_for_longest() {
        let (shared, tenure) = (SharedSessions::default(), "agents".parse::<SessionId>().unwrap());
        let id = |at: usize| format!("{at:032}");
        let use_of = |id: &str| {
            let used = shared.of(&tenure, id);
            used.session.try_lock().unwrap().read = 1;
            used
        };
        drop(use_of(&id(0)));
        let held = use_of(&id(0));
        for at in 1..SESSIONS_MAX {
            use_of(&id(at));
        }
        let has = |at: usize| shared.cache.lock().sessions.contains_key(&id(at));
        for at in SESSIONS_MAX..2 * SESSIONS_MAX {
            shared.of(&tenure, &id(at)); // There is none.
            let mut listed = use_of(&id(at));
            listed.pushes_out = false;
        }
        assert!(!has(SESSIONS_MAX) && shared.cache.lock().sessions.len() == SESSIONS_MAX);

        use_of(&id(1)); // Used again: now the second is the oldest that is idle.
        use_of(&id(SESSIONS_MAX));
        assert_eq!(
            (has(0), has(1), has(2), has(3), has(SESSIONS_MAX)),
            (true, true, false, true, true)
        );
        drop(held);

        use_of(&id(3)).session.try_lock().unwrap().bytes.add(BYTES_MAX + 1);
        use_of("one more");
        assert!(!has(3) && has(1), "it was used last, and is the only one that is so large");
        assert_eq!(shared.cache.lock().bytes(), 0);

        use_of("small").session.try_lock().unwrap().bytes.add(2);
        let large = use_of("large");
        large.session.try_lock().unwrap().bytes.add(BYTES_MAX - 1);
        drop(large);
        let held = |id: &str| shared.cache.lock().by_use.values().any(|it| it == id);
        assert!(
            held("large") && shared.cache.lock().bytes() <= BYTES_MAX,
            "others make room for it"
        );
    }

    #[test]
    fn sessions_are_due_in_their_order() {
        let shared = SharedSessions::default();
        shared.due.lock().extend([(5, "b".to_owned()), (3, "a".to_owned()), (9, "c".to_owned())]);
        assert_eq!(shared.next_due(), Some(3));
        assert_eq!(shared.take_due(5), ["a", "b"]);
        assert_eq!(shared.next_due(), Some(9));
        assert!(shared.take_due(5).is_empty());
    }
}
