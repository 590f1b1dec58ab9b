//! Indexes that follow from the records: which Steps are ready, held, due, or failed for good.
//!
//! A change takes a record out of the indexes before it and puts it in again after it, so that no
//! change can be forgotten; `check_invariants` rebuilds the indexes from nothing and compares.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use smol_str::SmolStr;

use super::{Attempt, Head, Run, Standing, Step, Task};
use crate::id::{HandlerName, Millis, PoolId};
use crate::record::{Artifact, RetryPolicy, StepSpec};
use crate::retry_policy::Limit;
use crate::rules::Rules;
use crate::status::{ArtifactState, FactKind, RunState, StepStatus, WaitKind};
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
    /// Required Steps because of which an automatic Task is failing (POL-05, POL-06), each with the
    /// `wal_seq` since which it stands so.
    pub failing: BTreeSet<(u64, Standing, Pos)>,
    /// The same Steps in creation order.
    pub failing_steps: BTreeSet<Pos>,
    /// Required Steps that are cancelled (POL-06).
    pub cancelled_required: BTreeSet<Pos>,
    /// Steps that failed, for good or not.
    pub failed: BTreeSet<Pos>,
    /// Blocked Steps.
    pub blocked: BTreeSet<Pos>,
    /// Pending Steps that were ready before.
    pub again: BTreeSet<Pos>,
    /// Completed Steps with a peer whose facts are not stored here (TERM-10).
    pub unreconciled: BTreeSet<Pos>,
    /// Artifacts that are only announced, behind the Attempt that named them last.
    pub announced: BTreeSet<(Pos, Pos)>,
    /// Those artifacts that are only announced and without which the Task is not complete (TERM-10).
    pub undelivered: BTreeSet<Pos>,
    /// Runs that have not ended.
    pub live_runs: BTreeSet<Pos>,
    /// Moments at which a time limit or a backoff ends.
    pub timers: Timers,
    /// Where the fact of a kind and key is whose last counts (FACT-01).
    pub last_facts: BTreeMap<(FactKind, SmolStr), u64>,
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
    /// A Step is blocked for too long (S27). These moments, and the next, are on the line of time in which
    /// the Task did not rest.
    pub blocked: BTreeSet<(Millis, Pos)>,
    /// All Attempts of a Step together took too long (S28).
    pub schedule_to_close: BTreeSet<(Millis, Pos)>,
}

/// Which list a Step's timer is in.
#[derive(Debug, Clone, Copy)]
enum Timer {
    NotBefore,
    ScheduleToStart,
    StartToClose,
    Blocked,
    ScheduleToClose,
}

impl Timers {
    fn of(&mut self, timer: Timer) -> &mut BTreeSet<(Millis, Pos)> {
        match timer {
            Timer::NotBefore => &mut self.not_before,
            Timer::ScheduleToStart => &mut self.schedule_to_start,
            Timer::StartToClose => &mut self.start_to_close,
            Timer::Blocked => &mut self.blocked,
            Timer::ScheduleToClose => &mut self.schedule_to_close,
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
    /// Completed Steps with a peer whose facts are not stored here (TERM-10).
    pub unreconciled: u32,
    /// Artifacts that are only announced and without which the Task is not complete (TERM-10).
    pub artifacts_pending: u32,
    /// Pending and ready Steps that will run again because their last Attempt ended badly (7.2,
    /// "awaiting retry").
    pub retrying: u32,
    /// Pending Steps with a dependency that is cancelled or failed, directly or through others.
    pub unsatisfiable: u32,
    /// Pending Steps that wait only for the end of a backoff.
    pub backing_off: u32,
    /// Pending Steps that may become ready without the orchestrator, those in backoff included.
    pub able: u32,
    /// Required Steps because of which an automatic Task is failing (POL-05, POL-06).
    pub failing: u32,
    /// Steps that name the ancestors whose results they get (STEP-37).
    pub choosing: u32,
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
        if step.spec.inputs_from.is_some() {
            by(&mut self.choosing);
        }
        if step.state.status == StepStatus::Pending {
            if step.state.dead > 0 {
                by(&mut self.unsatisfiable);
            } else if step.state.unmet == 0 && step.state.not_before.is_some() {
                by(&mut self.backing_off);
            }
        }
        if step.state.status == StepStatus::Pending && step.state.stuck == 0 {
            by(&mut self.able);
        }
        if step.spec.required {
            by(&mut self.required);
            if step.state.status != StepStatus::Completed {
                by(&mut self.required_open);
            }
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
    /// POL-12: the moment at which the Step has been blocked, or has been tried, for too long.
    fn long_timer(&self) -> Option<(Timer, Millis)> {
        let state = &self.step.state;
        let (timer, limit) = match state.status {
            StepStatus::Blocked => (Timer::Blocked, self.limit(|policy| policy.blocked_ms)?),
            StepStatus::Pending | StepStatus::Ready => {
                (Timer::ScheduleToClose, self.limit(|policy| policy.schedule_to_close_ms)?)
            }
            StepStatus::Claimed | StepStatus::Running => {
                let policy = self.attempts[state.current?].retry_policy.as_ref()?;
                (Timer::ScheduleToClose, policy.schedule_to_close_ms?.number()?)
            }
            _ => return None,
        };
        Some((timer, after(state.counts_from?.steady(), limit)))
    }

    /// The moment at which this Step, as it stands, falls due by itself, beside those of POL-12.
    fn timer(&self) -> Option<(Timer, Millis)> {
        let state = &self.step.state;
        match state.status {
            StepStatus::Pending if state.unmet == 0 => {
                let at = state.not_before?;
                Some((Timer::NotBefore, at.saturating_add(state.shift)))
            }
            StepStatus::Ready => self.schedule_to_start().map(|at| (Timer::ScheduleToStart, at)),
            StepStatus::Claimed | StepStatus::Running => {
                let attempt = &self.attempts[state.current?];
                let limit = attempt.retry_policy.as_ref()?.start_to_close_ms?.number()?;
                let started_at = attempt.started_at.saturating_add(state.shift);
                Some((Timer::StartToClose, after(started_at, limit)))
            }
            _ => None,
        }
    }

    /// S15: the limit counts from the later of `ready_at`, the Task's last reopen or resume, and the last
    /// time that it ceased to drain.
    fn schedule_to_start(&self) -> Option<Millis> {
        let limit = self.limit(|policy| policy.schedule_to_start_ms)?;
        let ready_at = self.step.state.ready_at?.saturating_add(self.step.state.shift);
        let head = self.head;
        let resumed_at = head.resumed_at.map(|at| at.saturating_add(head.resumed_shift));
        let drained_at = head.drained_at.map(|at| at.saturating_add(head.drained_shift));
        let since = resumed_at.max(drained_at).map_or(ready_at, |at| at.max(ready_at));
        Some(after(since, limit))
    }

    /// A time limit of the policy in force for the Step (RETRY-14).
    fn limit(&self, of: fn(&RetryPolicy) -> Option<Limit<u64>>) -> Option<u64> {
        let tasks = self.head.spec.retry_policy.as_deref();
        let limit = match (self.step.spec.retry_policy.as_deref(), self.head.rules) {
            (None, _) => of(tasks?),
            (Some(own), Rules::First) => of(own),
            (Some(own), Rules::Second) => of(own).or_else(|| of(tasks?)),
        };
        limit?.number()
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

    fn was_ready(&self) -> bool {
        let state = &self.step.state;
        state.status == StepStatus::Pending && state.counts_from.is_some()
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
            StepStatus::Completed if state.is_unreconciled() => {
                self.tally.unreconciled += u32::from(self.unreconciled.insert(pos));
            }
            _ => {}
        }
        if a.is_promotable() {
            self.promotable.insert(pos);
        }
        if let Some((timer, at)) = a.timer() {
            self.timers.of(timer).insert((at, pos));
        }
        if let Some((timer, at)) = a.long_timer() {
            self.timers.of(timer).insert((at, pos));
        }
        if a.was_ready() {
            self.again.insert(pos);
        }
        if a.step.spec.required {
            if let Some((since, why)) = state.failing(&a.step.spec) {
                self.failing.insert((since, why, pos));
                self.tally.failing += u32::from(self.failing_steps.insert(pos));
            }
            if state.status == StepStatus::Cancelled {
                self.cancelled_required.insert(pos);
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
            StepStatus::Completed => {
                self.tally.unreconciled -= u32::from(self.unreconciled.remove(&pos));
            }
            _ => {}
        }
        if a.is_promotable() {
            self.promotable.remove(&pos);
        }
        if let Some((timer, at)) = a.timer() {
            self.timers.of(timer).remove(&(at, pos));
        }
        if let Some((timer, at)) = a.long_timer() {
            self.timers.of(timer).remove(&(at, pos));
        }
        if a.was_ready() {
            self.again.remove(&pos);
        }
        if a.step.spec.required {
            if let Some((since, why)) = state.failing(&a.step.spec) {
                self.failing.remove(&(since, why, pos));
                self.tally.failing -= u32::from(self.failing_steps.remove(&pos));
            }
            if state.status == StepStatus::Cancelled {
                self.cancelled_required.remove(&pos);
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

    fn put_artifact(&mut self, pos: Pos, artifact: &Artifact, attempts: &Table<Attempt>) {
        if artifact.given.state != ArtifactState::Pending {
            return;
        }
        if let Some(attempt) = artifact.named_by {
            self.announced.insert((attempt, pos));
        }
        if artifact.named_by.is_none_or(|attempt| attempts[attempt].completed_step()) {
            self.expect(pos);
        }
    }

    fn take_artifact(&mut self, pos: Pos, artifact: &Artifact) {
        if let Some(attempt) = artifact.named_by {
            self.announced.remove(&(attempt, pos));
        }
        self.forget(pos);
    }

    fn expect(&mut self, artifact: Pos) {
        self.tally.artifacts_pending += u32::from(self.undelivered.insert(artifact));
    }

    fn forget(&mut self, artifact: Pos) {
        self.tally.artifacts_pending -= u32::from(self.undelivered.remove(&artifact));
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
        self.volatile.withdraw(pos, &self.runs[pos], &self.head);
    }

    /// Puts a Run into the indexes, after it changed.
    pub(crate) fn run_in(&mut self, pos: Pos) {
        self.derived.put_run(pos, &self.runs[pos]);
        self.volatile.offer(pos, &self.runs[pos], &self.head);
    }

    /// Takes an artifact out of the indexes, before it changes.
    pub(crate) fn artifact_out(&mut self, pos: Pos) {
        self.derived.take_artifact(pos, &self.artifacts[pos]);
    }

    /// Puts an artifact into the indexes, after it changed.
    pub(crate) fn artifact_in(&mut self, pos: Pos) {
        self.derived.put_artifact(pos, &self.artifacts[pos], &self.attempts);
    }

    /// Puts what an Attempt announced into the indexes anew, if it became the one that completed its
    /// Step, or ceased to be it.
    pub(crate) fn judge_announced(&mut self, attempt: Pos, before: bool) {
        let now = self.attempts[attempt].completed_step();
        if now == before {
            return;
        }
        let of_it = self.derived.announced.range((attempt, Pos::MIN)..=(attempt, Pos::MAX));
        let of_it: Vec<Pos> = of_it.map(|&(_, artifact)| artifact).collect();
        of_it.into_iter().for_each(|artifact| match now {
            true => self.derived.expect(artifact),
            false => self.derived.forget(artifact),
        });
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
        for (pos, artifact) in (0..).zip(self.artifacts.iter()) {
            fresh.put_artifact(pos, artifact, &self.attempts);
        }
        self.facts.values().for_each(|fact| fresh.put_fact(fact));
        fresh
    }

    /// Changes the Task's own retry policy. Beside the Step itself, only this enters its timers,
    /// and only while the Step is ready, was so before, or is blocked.
    pub(crate) fn change_policy(&mut self, change: impl FnOnce(&mut Self)) {
        let derived = &self.derived;
        let others = derived.again.iter().chain(&derived.blocked).copied();
        let waiting: Vec<Pos> = derived.all_ready().chain(others).collect();
        waiting.iter().for_each(|&pos| self.index_out(pos));
        change(self);
        waiting.into_iter().for_each(|pos| self.index_in(pos));
    }

    /// As [`change_policy`](Self::change_policy), for a reopen or resume: it moves only the limits
    /// of ready Steps that have such a limit (S15), and the ends of unused Runs (DISP-02).
    pub(crate) fn change_resumed_at(&mut self, change: impl FnOnce(&mut Self)) {
        let starts = self.derived.timers.schedule_to_start.iter();
        let starts: Vec<Pos> = starts.map(|&(_, pos)| pos).collect();
        let runs: Vec<Pos> = self.volatile.run_expiry.iter().map(|&(_, pos)| pos).collect();
        starts.iter().for_each(|&pos| self.index_out(pos));
        runs.iter().for_each(|&pos| self.run_out(pos));
        change(self);
        starts.into_iter().for_each(|pos| self.index_in(pos));
        runs.into_iter().for_each(|pos| self.run_in(pos));
    }
}
