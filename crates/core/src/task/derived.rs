//! Indexes that follow from the records: which Steps are ready, held, due, or failed for good.
//!
//! A change takes a record out of the indexes before it and puts it in again after it, so that no
//! change can be forgotten; `check_invariants` rebuilds the indexes from nothing and compares.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::{Attempt, Head, Run, Step, Task};
use crate::id::{HandlerName, Millis, PoolId};
use crate::record::{Artifact, StepSpec};
use crate::status::{ArtifactState, RunState, StepStatus, WaitKind};
use crate::table::{Pos, Table};

/// The indexes of a Task.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Derived {
    /// Counts of the Steps.
    pub tally: Tally,
    /// Claimed and running Steps.
    pub held: BTreeSet<Pos>,
    /// Ready Steps by pool and handler, in creation order, so that the search for a Step that a
    /// worker can run does not pass over Steps that it cannot run.
    pub ready: BTreeMap<PoolId, BTreeMap<HandlerName, BTreeSet<Pos>>>,
    /// Pending Steps with all dependencies completed and no backoff: to be made ready.
    pub promotable: BTreeSet<Pos>,
    /// Required Steps that failed for good (POL-05).
    pub fatal_failed: BTreeSet<Pos>,
    /// Required Steps that are cancelled (POL-06).
    pub cancelled_required: BTreeSet<Pos>,
    /// Required Steps that can never be ready (POL-06).
    pub doomed_required: BTreeSet<Pos>,
    /// Steps that failed, for good or not.
    pub failed: BTreeSet<Pos>,
    /// Blocked Steps.
    pub blocked: BTreeSet<Pos>,
    /// Runs that have not ended.
    pub live_runs: BTreeSet<Pos>,
    /// Moments at which a time limit or a backoff ends.
    pub timers: Timers,
}

/// Moments on the steady line at which something falls due, one list per kind. Some kinds do not
/// count while the Task is blocked or closing; then their whole list is skipped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Timers {
    /// A backoff ends (READY-05).
    pub not_before: BTreeSet<(Millis, Pos)>,
    /// A ready Step was not claimed in time (S15).
    pub schedule_to_start: BTreeSet<(Millis, Pos)>,
    /// A held Step took too long (S14).
    pub start_to_close: BTreeSet<(Millis, Pos)>,
}

/// Which list a Step's timer is in.
#[derive(Debug, Clone, Copy)]
enum Limit {
    NotBefore,
    ScheduleToStart,
    StartToClose,
}

impl Timers {
    fn of(&mut self, limit: Limit) -> &mut BTreeSet<(Millis, Pos)> {
        match limit {
            Limit::NotBefore => &mut self.not_before,
            Limit::ScheduleToStart => &mut self.schedule_to_start,
            Limit::StartToClose => &mut self.start_to_close,
        }
    }
}

/// Counts over the Steps that were not deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    counts: [u32; 8],
    waits: [u32; 5],
    /// Required Steps.
    pub required: u32,
    /// Required Steps that are not completed.
    pub required_open: u32,
    /// Steps with a remote peer whose facts are not stored here (TERM-10).
    pub unreconciled: u32,
    /// Artifacts that are only announced (TERM-10).
    pub artifacts_pending: u32,
    /// Pending and ready Steps that will run again because their last Attempt ended badly (7.2,
    /// "awaiting retry").
    pub retrying: u32,
    /// Pending Steps with a dependency that is cancelled or failed, directly or through others.
    pub unsatisfiable: u32,
    /// Pending Steps that wait only for the end of a backoff.
    pub backing_off: u32,
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

    /// Blocked Steps that wait for this.
    pub const fn waiting_for(&self, kind: WaitKind) -> u32 {
        self.waits[kind as usize]
    }

    /// TASK-19: every required Step completed and no Step claimed or running.
    pub fn is_completeable(&self) -> bool {
        self.required_open == 0 && self.held() == 0 && self.steps() > 0
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

    fn move_step(&mut self, a: &Around<'_>, by: fn(&mut u32)) {
        let step = a.step;
        by(&mut self.counts[step.state.status as usize]);
        if let Some(kind) = step.state.wait_kind {
            by(&mut self.waits[kind as usize]);
        }
        if a.awaits_retry() {
            by(&mut self.retrying);
        }
        if step.state.status == StepStatus::Pending {
            if step.state.dead > 0 {
                by(&mut self.unsatisfiable);
            } else if step.state.unmet == 0 && step.state.not_before.is_some() {
                by(&mut self.backing_off);
            }
        }
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

/// A Step, and the records beside it that the indexes need.
struct Around<'a> {
    pos: Pos,
    step: &'a Step,
    attempts: &'a Table<Attempt>,
    head: &'a Head,
}

impl Around<'_> {
    /// The one moment at which this Step falls due by itself.
    fn timer(&self) -> Option<(Limit, Millis)> {
        let state = &self.step.state;
        match state.status {
            StepStatus::Pending if state.unmet == 0 => {
                let at = state.not_before?;
                Some((Limit::NotBefore, at.saturating_add(state.shift)))
            }
            StepStatus::Ready => self.schedule_to_start().map(|at| (Limit::ScheduleToStart, at)),
            StepStatus::Claimed | StepStatus::Running => {
                let attempt = &self.attempts[state.current?];
                let limit = attempt.retry_policy.as_ref()?.start_to_close_ms?;
                let started_at = attempt.started_at.saturating_add(state.shift);
                Some((Limit::StartToClose, after(started_at, limit)))
            }
            _ => None,
        }
    }

    /// S15: the limit counts from the later of `ready_at` and the Task's last reopen or resume.
    fn schedule_to_start(&self) -> Option<Millis> {
        let own = self.step.spec.retry_policy.as_deref();
        let policy = own.or(self.head.spec.retry_policy.as_deref())?;
        let limit = policy.schedule_to_start_ms?;
        let ready_at = self.step.state.ready_at?.saturating_add(self.step.state.shift);
        let resumed_at = self.head.resumed_at.map(|at| at.saturating_add(self.head.resumed_shift));
        Some(after(ready_at.max(resumed_at.unwrap_or(Millis::MIN)), limit))
    }

    /// Whether the Step starts again after an Attempt that ended badly. That Attempt has ended, so the
    /// answer for a pending or ready Step changes only with the Step itself, and the index stays right.
    fn awaits_retry(&self) -> bool {
        let state = &self.step.state;
        match state.status {
            StepStatus::Pending if state.not_before.is_some() => true,
            StepStatus::Pending | StepStatus::Ready => {
                state.last_attempt.is_some_and(|at| self.attempts[at].ended_badly())
            }
            _ => false,
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
        self.tally.move_step(a, |n| *n += 1);
        if state.status.is_held() {
            self.held.insert(pos);
        }
        if state.status == StepStatus::Ready {
            self.offer(&a.step.spec, pos);
        }
        match state.status {
            StepStatus::Failed => drop(self.failed.insert(pos)),
            StepStatus::Blocked => drop(self.blocked.insert(pos)),
            _ => {}
        }
        if a.is_promotable() {
            self.promotable.insert(pos);
        }
        if let Some((limit, at)) = a.timer() {
            self.timers.of(limit).insert((at, pos));
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
        self.tally.move_step(a, |n| *n -= 1);
        if state.status.is_held() {
            self.held.remove(&pos);
        }
        if state.status == StepStatus::Ready {
            self.withdraw(&a.step.spec, pos);
        }
        match state.status {
            StepStatus::Failed => drop(self.failed.remove(&pos)),
            StepStatus::Blocked => drop(self.blocked.remove(&pos)),
            _ => {}
        }
        if a.is_promotable() {
            self.promotable.remove(&pos);
        }
        if let Some((limit, at)) = a.timer() {
            self.timers.of(limit).remove(&(at, pos));
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

    fn offer(&mut self, spec: &StepSpec, pos: Pos) {
        let known = self.ready.get_mut(&spec.worker_pool_id);
        if let Some(set) = known.and_then(|pool| pool.get_mut(&spec.handler)) {
            set.insert(pos);
            return;
        }
        let pool = self.ready.entry(spec.worker_pool_id.clone()).or_default();
        pool.insert(spec.handler.clone(), [pos].into());
    }

    fn withdraw(&mut self, spec: &StepSpec, pos: Pos) {
        let Some(pool) = self.ready.get_mut(&spec.worker_pool_id) else { return };
        let Some(set) = pool.get_mut(&spec.handler) else { return };
        set.remove(&pos);
        if set.is_empty() {
            pool.remove(&spec.handler);
        }
        if pool.is_empty() {
            self.ready.remove(&spec.worker_pool_id);
        }
    }

    /// Ready Steps of all pools, by pool and handler.
    pub(crate) fn all_ready(&self) -> impl Iterator<Item = Pos> {
        self.ready.values().flat_map(BTreeMap::values).flatten().copied()
    }

    fn put_run(&mut self, pos: Pos, run: &Run) {
        if run.state != RunState::Ended {
            self.live_runs.insert(pos);
        }
    }

    fn take_run(&mut self, pos: Pos, run: &Run) {
        if run.state != RunState::Ended {
            self.live_runs.remove(&pos);
        }
    }

    pub(crate) fn put_artifact(&mut self, artifact: &Artifact) {
        self.tally.artifacts_pending += u32::from(artifact.given.state == ArtifactState::Pending);
    }

    pub(crate) fn take_artifact(&mut self, artifact: &Artifact) {
        self.tally.artifacts_pending -= u32::from(artifact.given.state == ArtifactState::Pending);
    }
}

impl Task {
    /// Takes a Step out of the indexes, before it changes.
    pub(crate) fn index_out(&mut self, pos: Pos) {
        let step = &self.steps[pos];
        if step.state.removed {
            return;
        }
        self.derived.take(&Around { pos, step, attempts: &self.attempts, head: &self.head });
    }

    /// Puts a Step into the indexes, after it changed.
    pub(crate) fn index_in(&mut self, pos: Pos) {
        let step = &self.steps[pos];
        if step.state.removed {
            return;
        }
        self.derived.put(&Around { pos, step, attempts: &self.attempts, head: &self.head });
    }

    /// Takes a Run out of the indexes, before it or what memory knows of it changes.
    pub(crate) fn run_out(&mut self, pos: Pos) {
        self.derived.take_run(pos, &self.runs[pos]);
        self.volatile.withdraw(pos, &self.runs[pos]);
    }

    /// Puts a Run into the indexes, after it changed.
    pub(crate) fn run_in(&mut self, pos: Pos) {
        self.derived.put_run(pos, &self.runs[pos]);
        self.volatile.offer(pos, &self.runs[pos]);
    }

    /// The indexes, built from nothing; [`Derived`] must equal them at any time.
    pub fn derive_again(&self) -> Derived {
        let mut fresh = Derived::default();
        for (pos, step) in (0..).zip(self.steps.iter()).filter(|(_, s)| !s.state.removed) {
            fresh.put(&Around { pos, step, attempts: &self.attempts, head: &self.head });
        }
        for (pos, run) in (0..).zip(self.runs.iter()) {
            fresh.put_run(pos, run);
        }
        self.artifacts.iter().for_each(|artifact| fresh.put_artifact(artifact));
        fresh
    }

    /// Changes the Task's own retry policy. Beside the Step itself, only this enters its timers,
    /// and only while the Step is ready.
    pub(crate) fn change_policy(&mut self, change: impl FnOnce(&mut Self)) {
        let ready: Vec<Pos> = self.derived.all_ready().collect();
        ready.iter().for_each(|&pos| self.index_out(pos));
        change(self);
        ready.into_iter().for_each(|pos| self.index_in(pos));
    }

    /// As [`change_policy`](Self::change_policy), for a reopen or resume: it moves only the limits
    /// of ready Steps that have such a limit (S15).
    pub(crate) fn change_resumed_at(&mut self, change: impl FnOnce(&mut Self)) {
        let starts = self.derived.timers.schedule_to_start.iter();
        let starts: Vec<Pos> = starts.map(|&(_, pos)| pos).collect();
        starts.iter().for_each(|&pos| self.index_out(pos));
        change(self);
        starts.into_iter().for_each(|pos| self.index_in(pos));
    }
}
