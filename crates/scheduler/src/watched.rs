//! Reports a node's calls to its ports to the observer, and gives the numbers of the moment.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure_core::event::Body;
use tenure_core::id::{AttemptId, PoolId, SessionId};
use tenure_core::status::Outcome as AttemptEnd;
use tenure_core::view::{ClaimResult, View, claim_result};
use tenure_core::{Commit, Rejection};
use tenure_ports::journal::{AppendError, TaskKey};
use tenure_ports::leases::LeaseError;
use tenure_ports::observer::{Called, LeaseCall, Sample};
use tenure_ports::{Journal, Leases, Observer};
use tenure_wire::bus::operate::RetainedWork;
use tokio::time::Instant as Moment;

use crate::count::ClaimNeeds;
use crate::handle::Scheduler;
use crate::node::NodeShared;
use crate::pool::WaitingStep;

impl<J: Journal, L: Leases> Scheduler<J, L> {
    /// The numbers of this node at this moment.
    pub fn sample(&self) -> Sample {
        self.sample_if(true)
    }

    /// The same, for a node that knows whether it reaches the log at all: the scheduler itself learns that only from
    /// appends, and there may be none.
    pub fn sample_if(&self, reaches_log: bool) -> Sample {
        let pools = self.node.sample_pools(self.now());
        let (tasks, counts) = (self.node.directory.len() as u64, self.node.totals.now());
        let logs_away = reaches_log.then(|| self.node.logs_in_trouble());
        let needs = ClaimNeeds { logs_away, leases_away: !self.keeps_leases() };
        let waits = self.node.waits.now(&needs, &pools);
        let live = self.node.live.now();
        Sample { tasks, counts, waits, pools, live, ..Sample::default() }
    }

    /// Whether the store of leases answered when it was last asked.
    pub fn keeps_leases(&self) -> bool {
        self.node.keeps_leases()
    }

    /// What this node holds for work that is under way, as far as the scheduler itself knows.
    pub fn kept(&self) -> RetainedWork {
        RetainedWork {
            waiters: self.node.waiters.now(),
            commands: self.commands.in_use() as u64,
            reports: self.reports.in_use() as u64,
            signals: self.node.signals(),
            ..RetainedWork::default()
        }
    }

    /// Of the Steps of a session, the one that has waited longest of those next in line, for each
    /// pool.
    pub fn longest_waits(&self, session: &SessionId) -> Vec<(PoolId, WaitingStep)> {
        self.node.longest_waits(session)
    }

    /// The observer, if there is one.
    pub fn observer(&self) -> Option<&Arc<dyn Observer>> {
        self.node.config.observer.as_ref()
    }
}

impl<J: Journal, L: Leases> NodeShared<J, L> {
    /// Waits for a call to the store of leases, and reports it.
    pub(crate) async fn watch_leases<T>(
        &self,
        call: LeaseCall,
        items: usize,
        answer: impl Future<Output = Result<T, LeaseError>>,
    ) -> Result<T, LeaseError> {
        let Some(observer) = &self.config.observer else { return answer.await };
        let begun = Instant::now();
        let answered = answer.await;
        let called = Called { took: begun.elapsed(), items, is_ok: answered.is_ok() };
        observer.leased(call, called);
        answered
    }

    /// Waits for an append to the log, and reports it. Answers how long it took since `begun`, too.
    pub(crate) async fn watch_append(
        &self,
        task: &TaskKey,
        items: usize,
        begun: Moment,
        answer: Pin<&mut impl Future<Output = Result<(), AppendError>>>,
    ) -> (Result<(), AppendError>, Duration) {
        let answered = self.unless_held_up(task, answer).await;
        let took = begun.elapsed();
        let Some(observer) = &self.config.observer else { return (answered, took) };
        let is_ok = match answered {
            Ok(()) => true,
            Err(
                AppendError::Unavailable(_)
                | AppendError::Failed(_)
                | AppendError::MustReread(_)
                | AppendError::Unsettled(_),
            ) => false,
            // These say nothing of the log's health: it was not asked, or has something else.
            Err(
                AppendError::TaskExists
                | AppendError::NameTaken
                | AppendError::Fenced { .. }
                | AppendError::NotOwner
                | AppendError::AtCapacity,
            ) => return (answered, took),
        };
        observer.wrote(Called { took, items, is_ok });
        (answered, took)
    }

    /// Reports Attempts that ended because their leases were over, each with how long ago that was.
    pub(crate) fn note_expired(
        &self,
        commits: &[Arc<Commit>],
        over: &mut BTreeMap<AttemptId, Instant>,
    ) {
        if over.is_empty() {
            return;
        }
        for event in commits.iter().flat_map(|commit| &commit.events) {
            if let Body::StepLeaseExpired(ended) = &event.body
                && ended.reason.outcome() == AttemptEnd::Lost
                && let Some(since) = over.remove(&ended.attempt_id)
                && let Some(observer) = &self.config.observer
            {
                observer.expired(ended.attempt_id, since.elapsed());
            }
        }
    }

    /// Reports a command that is refused.
    pub(crate) fn note_refusal<T>(&self, result: &Result<T, Rejection>) {
        if let Err(rejection) = result {
            self.note_refused(rejection);
        }
    }

    /// As [`note_refusal`](Self::note_refusal), for a known refusal.
    pub(crate) fn note_refused(&self, rejection: &Rejection) {
        if let Some(observer) = &self.config.observer {
            observer.refused(rejection);
        }
    }

    /// The grant for the worker of an Attempt, with the trace to which its spans belong.
    pub(crate) fn claim(&self, view: &View<'_>, attempt: AttemptId) -> Option<ClaimResult> {
        let mut claim = claim_result(view, attempt)?;
        if let Some(observer) = &self.config.observer {
            claim.trace = observer.trace_of(view, attempt).or(claim.trace);
        }
        Some(claim)
    }
}
