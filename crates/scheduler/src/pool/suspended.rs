//! Suspends workers: the pool gives nothing for a while to a worker that fails what others complete
//! (DISP-19).

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tenure_core::id::{AgentId, HandlerName, Millis, PoolId};
use tenure_core::suspension::{Suspension, Went, WorkerVerdict, can_replace};

use super::members::Allowance;
use super::{Pool, PoolState, Worker};

impl Pool {
    /// Notes how an Attempt of one of the pool's workers went; none: the end says nothing of the
    /// worker. `now` is on the steady line.
    pub(crate) fn note_end(
        self: &Arc<Self>,
        worker: &AgentId,
        handler: &HandlerName,
        went: Option<Went>,
        now: Millis,
    ) {
        if went != Some(Went::Badly) && !self.has_records.load(Ordering::Acquire) {
            return; // There are no failures on record, so nobody is suspended.
        }
        let mut state = self.state.lock();
        let PoolState { members, records, .. } = &mut *state;
        let is_there = |id: &AgentId| members.is_trusted(id);
        let verdict = went.and_then(|went| records.note(worker, handler, went, now, is_there));
        self.has_records.store(!records.is_empty(), Ordering::Release);
        match verdict {
            Some(WorkerVerdict::Suspend(_)) if state.is_needed(worker) => {
                state.records.trust(worker);
                state.members.give(worker, Allowance::All);
            }
            Some(WorkerVerdict::Suspend(suspension)) => {
                state.members.give(worker, Allowance::Nothing);
                tracing::warn!(
                    pool = %self.id, %worker, %handler, seconds = suspension.pause_ms / 1_000,
                    "the worker is given no steps for a while: it fails what others complete"
                );
                self.try_later(worker.clone(), suspension);
                state.trust_who_is_needed(&self.id);
            }
            Some(WorkerVerdict::Trust) => state.trust(&self.id, worker, "it completed a step"),
            // The trial Step was cancelled, for example.
            None if went.is_none() => state.members.try_again(worker),
            None => return,
        }
        drop(state);
        self.wake();
    }

    /// Gives a suspended worker one Step as a trial when its pause is over, and another after each
    /// further pause, if this node does not learn how the trial went.
    fn try_later(self: &Arc<Self>, worker: AgentId, suspension: Suspension) {
        let pool: Weak<Self> = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_millis(suspension.pause_ms)).await;
                let Some(pool) = pool.upgrade() else { return };
                let mut state = pool.state.lock();
                let PoolState { members, records, .. } = &mut *state;
                if records.suspension(&worker) != Some(&suspension) {
                    return; // The worker has completed something since, or failed again.
                }
                if !members.try_one(&worker) {
                    records.forget(&worker);
                    members.give(&worker, Allowance::All); // The worker has left.
                    return;
                }
                drop(state);
                pool.wake();
            }
        });
    }

    /// The suspension of a worker, if it is suspended.
    pub(crate) fn suspension(&self, worker: &Worker) -> Option<Suspension> {
        self.state.lock().records.suspension(&worker.id).cloned()
    }
}

impl PoolState {
    /// A worker has left: a suspended worker may now be the only one that can run something.
    pub(super) fn note_left(&mut self, pool: &PoolId, worker: &AgentId) {
        self.records.note_left(worker);
        self.trust_who_is_needed(pool);
    }

    /// Ends the suspension of workers that can run what no other can.
    pub(super) fn trust_who_is_needed(&mut self, pool: &PoolId) {
        while self.members.bounds_some() {
            let needed = self.members.suspended().find(|it| !self.can_do_without(it));
            let Some(worker) = needed.map(|it| it.id.clone()) else { return };
            self.trust(pool, &worker, "no other can run all that it can");
        }
    }

    /// Whether a worker can run something that no other can.
    fn is_needed(&self, id: &AgentId) -> bool {
        self.members.links_of(id).iter().any(|link| !self.can_do_without(link))
    }

    fn can_do_without(&self, worker: &Worker) -> bool {
        let others = self.members.trusted().filter(|other| other.id != worker.id);
        let others = others.filter(|other| other.sessions.include(&worker.sessions));
        let others = others.map(|other| other.handlers.as_deref());
        can_replace(worker.handlers.as_deref(), others)
    }

    fn trust(&mut self, pool: &PoolId, worker: &AgentId, why: &str) {
        self.records.trust(worker);
        self.members.give(worker, Allowance::All);
        tracing::info!(%pool, %worker, "the worker is given steps again: {why}");
    }
}
