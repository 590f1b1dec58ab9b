//! [`SharedSessions`]: copies of the folds of sessions, and what a gateway keeps beside them.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use tenure_core::id::{SessionId, TaskId};
use tenure_macp::pb::Envelope;
use tenure_macp::{MacpEffect, MacpRecord, MacpSession, MacpSteer, is_session_id};
use tokio::sync::{Notify, broadcast};

use super::now_ms;

/// How many folds a gateway holds. One that is not held is read again.
const SESSIONS_MAX: usize = 4_096;

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
    /// The version of the Task at which it was read; none: there is no Task.
    pub(super) version: Option<u64>,
    /// The last record, if perhaps nobody has carried out what it means.
    pub(super) undone: Option<UndoneRecord>,
    /// Whether somebody has ended the Task who does not speak MACP.
    pub(super) is_cut_off: bool,
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
    fn of(task: TaskId) -> Self {
        Self { task, session: None, read: 0, version: None, undone: None, is_cut_off: false }
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
        self.undone = Some(UndoneRecord { place: self.read, record, effect });
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
    kept: Mutex<HashMap<String, Arc<tokio::sync::Mutex<CachedSession>>>>,
    /// When sessions have to be looked at.
    due: Mutex<BTreeSet<(i64, String)>>,
    /// Told when a session is due earlier than all others.
    pub(super) sooner: Notify,
    /// Signals and progress, which nobody keeps.
    pub(super) signals: broadcast::Sender<Arc<Envelope>>,
    /// When the gateway began, in milliseconds since 1970.
    pub(super) begun_ms: i64,
}

impl Default for SharedSessions {
    fn default() -> Self {
        let (kept, due, sooner) = Default::default();
        let signals = broadcast::Sender::new(SIGNALS_MAX);
        Self { kept, due, sooner, signals, begun_ms: now_ms() }
    }
}

impl SharedSessions {
    /// What is known of a session. Who holds its lock is alone with it in this gateway.
    pub(super) fn of(
        &self,
        tenure: &SessionId,
        session_id: &str,
    ) -> Arc<tokio::sync::Mutex<CachedSession>> {
        let mut kept = self.kept.lock();
        if let Some(known) = kept.get(session_id) {
            return Arc::clone(known);
        }
        if kept.len() >= SESSIONS_MAX {
            let idle = kept.iter().find(|(_, known)| Arc::strong_count(known) == 1);
            if let Some(idle) = idle.map(|(id, _)| id.clone()) {
                kept.remove(&idle);
            }
        }
        let new = CachedSession::of(task_of(tenure, session_id));
        let new = Arc::new(tokio::sync::Mutex::new(new));
        kept.insert(session_id.to_owned(), Arc::clone(&new));
        new
    }

    /// Notes when a session has to be looked at.
    pub(super) fn note_due(&self, session: &MacpSession) {
        if let Some(at) = session.expires_at_ms() {
            self.look_at(at, &session.bound().session_id);
        }
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
