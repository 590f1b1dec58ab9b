//! Indexes that follow from the records: what is ready, held, due, failed beyond repair.
//!
//! They are kept up by taking a record out before it changes and putting it in again after, so no
//! change can be forgotten; `check_invariants` rebuilds them from nothing and compares.

use alloc::collections::{BTreeMap, BTreeSet};

use super::{Attempt, Run, Step, Task};
use crate::id::{Millis, PoolId};
use crate::record::{Artifact, RetryPolicy};
use crate::status::{ArtifactState, RunState, StepStatus};
use crate::table::{Pos, Table};

/// See the module's text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Derived {
    /// Counts.
    pub tally: Tally,
    /// Claimed and running Steps.
    pub held: BTreeSet<Pos>,
    /// Ready Steps by pool, in creation order.
    pub ready: BTreeMap<PoolId, BTreeSet<Pos>>,
    /// Pending Steps with all dependencies completed and no backoff: to be made ready.
    pub promotable: BTreeSet<Pos>,
    /// Required Steps that failed for good (POL-05).
    pub fatal_failed: BTreeSet<Pos>,
    /// Required Steps that are cancelled (POL-06).
    pub cancelled_required: BTreeSet<Pos>,
    /// Required Steps that can never be ready (POL-06).
    pub doomed_required: BTreeSet<Pos>,
    /// Runs that have not ended.
    pub live_runs: BTreeSet<Pos>,
    /// Moments at which something falls due.
    pub timers: BTreeSet<(Millis, Timer)>,
}

/// What falls due, in the order in which it is judged (RECOVER-09).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// A backoff ends (READY-05).
    NotBefore(Pos),
    /// A ready Step was not claimed in time (S15).
    ScheduleToStart(Pos),
    /// A held Step took too long (S14).
    StartToClose(Pos),
    /// The deadline of the Task (POL-08).
    Deadline,
    /// An unused Run ran out (R09).
    RunExpiry(Pos),
    /// Closing has waited long enough (TERM-12).
    Closing,
}

/// Counts over the Steps that were not deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    counts: [u32; 8],
    /// Required Steps.
    pub required: u32,
    /// Required Steps that are not completed.
    pub required_open: u32,
    /// Steps with a peer whose facts are not stored here (TERM-10).
    pub unreconciled: u32,
    /// Artifacts that are announced only (TERM-10).
    pub artifacts_pending: u32,
}

impl Tally {
    /// Steps in this status.
    pub const fn of(&self, status: StepStatus) -> u32 {
        self.counts[status as usize]
    }

    /// Steps claimed or running.
    pub const fn held(&self) -> u32 {
        self.of(StepStatus::Claimed) + self.of(StepStatus::Running)
    }

    /// All Steps.
    pub fn steps(&self) -> u32 {
        self.counts.iter().sum()
    }

    /// Steps that are not completed, failed or cancelled.
    pub fn unfinished(&self) -> u32 {
        let settled = StepStatus::ALL.iter().filter(|s| s.is_settled()).map(|&s| self.of(s));
        self.steps() - settled.sum::<u32>()
    }

    fn move_step(&mut self, step: &Step, by: fn(&mut u32)) {
        by(&mut self.counts[step.state.status as usize]);
        if step.spec.required {
            by(&mut self.required);
            if step.state.status != StepStatus::Completed {
                by(&mut self.required_open);
            }
        }
        if step.state.facts().remote.as_ref().is_some_and(|r| !r.reconciled) {
            by(&mut self.unreconciled);
        }
    }
}

/// What the indexes need to know of a Step beside the Step.
struct Around<'a> {
    pos: Pos,
    step: &'a Step,
    attempts: &'a Table<Attempt>,
    task_policy: Option<&'a RetryPolicy>,
}

impl Around<'_> {
    /// The one moment at which this Step falls due by itself.
    fn timer(&self) -> Option<(Millis, Timer)> {
        let state = &self.step.state;
        match state.status {
            StepStatus::Pending if state.unmet == 0 => {
                state.not_before.map(|at| (at, Timer::NotBefore(self.pos)))
            }
            StepStatus::Ready => {
                let policy = self.step.spec.retry_policy.as_deref().or(self.task_policy)?;
                let due = after(state.ready_at?, policy.schedule_to_start_ms?);
                Some((due, Timer::ScheduleToStart(self.pos)))
            }
            StepStatus::Claimed | StepStatus::Running => {
                let attempt = &self.attempts[state.current?];
                let limit = attempt.retry_policy.as_ref()?.start_to_close_ms?;
                Some((after(attempt.started_at, limit), Timer::StartToClose(self.pos)))
            }
            _ => None,
        }
    }

    fn is_promotable(&self) -> bool {
        let state = &self.step.state;
        state.status == StepStatus::Pending && state.unmet == 0 && state.not_before.is_none()
    }
}

/// `at` plus a duration, without overflow.
pub(crate) fn after(at: Millis, duration_ms: u64) -> Millis {
    at.saturating_add_unsigned(duration_ms)
}

impl Derived {
    fn put(&mut self, a: &Around<'_>) {
        let (pos, state) = (a.pos, &a.step.state);
        self.tally.move_step(a.step, |n| *n += 1);
        if state.status.is_held() {
            self.held.insert(pos);
        }
        if state.status == StepStatus::Ready {
            match self.ready.get_mut(&a.step.spec.worker_pool_id) {
                Some(set) => drop(set.insert(pos)),
                None => drop(self.ready.insert(a.step.spec.worker_pool_id.clone(), [pos].into())),
            }
        }
        if a.is_promotable() {
            self.promotable.insert(pos);
        }
        if let Some(timer) = a.timer() {
            self.timers.insert(timer);
        }
        if a.step.spec.required {
            match state.status {
                StepStatus::Failed if state.fatal_failure => drop(self.fatal_failed.insert(pos)),
                StepStatus::Cancelled => drop(self.cancelled_required.insert(pos)),
                StepStatus::Pending if state.fatal > 0 => drop(self.doomed_required.insert(pos)),
                _ => {}
            }
        }
    }

    fn take(&mut self, a: &Around<'_>) {
        let (pos, state) = (a.pos, &a.step.state);
        self.tally.move_step(a.step, |n| *n -= 1);
        if state.status.is_held() {
            self.held.remove(&pos);
        }
        if state.status == StepStatus::Ready
            && let Some(set) = self.ready.get_mut(&a.step.spec.worker_pool_id)
        {
            set.remove(&pos);
            if set.is_empty() {
                self.ready.remove(&a.step.spec.worker_pool_id);
            }
        }
        if a.is_promotable() {
            self.promotable.remove(&pos);
        }
        if let Some(timer) = a.timer() {
            self.timers.remove(&timer);
        }
        if a.step.spec.required {
            match state.status {
                StepStatus::Failed => drop(self.fatal_failed.remove(&pos)),
                StepStatus::Cancelled => drop(self.cancelled_required.remove(&pos)),
                StepStatus::Pending => drop(self.doomed_required.remove(&pos)),
                _ => {}
            }
        }
    }

    pub(crate) fn put_run(&mut self, pos: Pos, run: &Run) {
        if run.state != RunState::Ended {
            self.live_runs.insert(pos);
        }
        if let Some(timer) = run_timer(pos, run) {
            self.timers.insert(timer);
        }
    }

    pub(crate) fn take_run(&mut self, pos: Pos, run: &Run) {
        self.live_runs.remove(&pos);
        if let Some(timer) = run_timer(pos, run) {
            self.timers.remove(&timer);
        }
    }

    pub(crate) fn put_artifact(&mut self, artifact: &Artifact) {
        self.tally.artifacts_pending += u32::from(artifact.given.state == ArtifactState::Pending);
    }

    pub(crate) fn take_artifact(&mut self, artifact: &Artifact) {
        self.tally.artifacts_pending -= u32::from(artifact.given.state == ArtifactState::Pending);
    }

    /// Ready Steps of all pools.
    pub fn ready_count(&self) -> u32 {
        self.tally.of(StepStatus::Ready)
    }
}

fn run_timer(pos: Pos, run: &Run) -> Option<(Millis, Timer)> {
    let unused = run.state == RunState::Dispatched;
    run.expires_at.filter(|_| unused).map(|at| (at, Timer::RunExpiry(pos)))
}

impl Task {
    /// Takes a Step out of the indexes, before it changes.
    pub(crate) fn index_out(&mut self, pos: Pos) {
        let step = &self.steps[pos];
        if step.state.removed {
            return;
        }
        let task_policy = self.head.spec.retry_policy.as_deref();
        self.derived.take(&Around { pos, step, attempts: &self.attempts, task_policy });
    }

    /// Puts a Step into the indexes, after it changed.
    pub(crate) fn index_in(&mut self, pos: Pos) {
        let step = &self.steps[pos];
        if step.state.removed {
            return;
        }
        let task_policy = self.head.spec.retry_policy.as_deref();
        self.derived.put(&Around { pos, step, attempts: &self.attempts, task_policy });
    }

    /// The indexes made from nothing: what they must equal at any time.
    pub fn derive_again(&self) -> Derived {
        let mut fresh = Derived::default();
        let task_policy = self.head.spec.retry_policy.as_deref();
        for (pos, step) in (0..).zip(self.steps.iter()).filter(|(_, s)| !s.state.removed) {
            fresh.put(&Around { pos, step, attempts: &self.attempts, task_policy });
        }
        for (pos, run) in (0..).zip(self.runs.iter()) {
            fresh.put_run(pos, run);
        }
        self.artifacts.iter().for_each(|artifact| fresh.put_artifact(artifact));
        fresh
    }

    /// Re-enters every Step: after a change of the Task's own retry policy.
    pub(crate) fn reindex_all(&mut self, change: impl FnOnce(&mut Self)) {
        let all = 0..crate::table::next_pos(self.steps.len());
        all.clone().for_each(|pos| self.index_out(pos));
        change(self);
        all.for_each(|pos| self.index_in(pos));
    }
}
