//! [`View`]: the only way to read a Task from outside of this crate, at its last durable state.

mod inputs;
mod merged;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Bound;

pub(crate) use self::inputs::handed_on;
use self::merged::{ascending, merged, merged_by};
use crate::command::Caller;
use crate::command::report::stale;
use crate::command::run_end::nothing_held;
use crate::id::{AgentId, ArtifactId, AttemptId, Millis, PoolId, RunId, StepId, TaskId};
use crate::record::{Artifact, Edge, Fact, StepSpec, Value};
use crate::reject::Rejection;
use crate::status::{ArtifactState, LeaseDoubt, Role, RunState, StepStatus, TaskStatus};
use crate::table::{Pos, next_pos};
use crate::task::Unfinished;
use crate::task::derived::Tally;
use crate::task::undo::Before;
use crate::task::{Attempt, Head, Run, StepFacts, StepState, Stopping, Task};

/// A Task as a reader sees it. Whatever leaves the process comes from one (law 3).
///
/// Outside of this crate there are only views of the durable state. If the Task is ahead of its log, a
/// view reads through the notes of the pending changes; every access costs at most a search in those.
#[derive(Debug)]
pub struct View<'a> {
    task: &'a Task,
    before: Option<Before<'a>>,
}

/// A Step that was not deleted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepRef<'a> {
    /// Its position, in creation order.
    pub pos: Pos,
    /// What the orchestrator wrote.
    pub spec: &'a Arc<StepSpec>,
    /// Its current state.
    pub state: &'a StepState,
}

impl<'a> StepRef<'a> {
    /// Its id.
    pub fn id(&self) -> &'a StepId {
        &self.spec.step_id
    }

    /// Its native status.
    pub const fn status(&self) -> StepStatus {
        self.state.status
    }

    /// Results and reasons.
    pub fn facts(&self) -> &'a StepFacts {
        self.state.facts()
    }

    /// Whether it is a completed `noop` without results of its own (STEP-37).
    pub(crate) fn only_joins(&self) -> bool {
        self.state.only_joins(self.spec)
    }
}

/// What only the owner's memory knows of a Run (2.3), on this node. The effects of a command that
/// waits for an append of others show only when that append is durable.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RunMemory<'a> {
    /// The worker that took it and has not claimed yet.
    pub taken_by: Option<&'a AgentId>,
    /// Whether it ended with its Step while its Task is closing, which then ends its Attempt (RUN-08).
    pub gone: bool,
    /// The request to stop it, if there is one.
    pub stopping: Option<&'a Stopping>,
    /// Its final output (DISP-13).
    pub result: Option<&'a Arc<str>>,
}

impl Task {
    /// The last durable state, which readers see.
    pub fn durable(&self) -> View<'_> {
        let (task, before) = self.logged();
        View { task, before }
    }

    /// The state that decisions use, with commits in flight; readers must not see it.
    pub(crate) fn live(&self) -> View<'_> {
        View { task: self, before: None }
    }
}

impl<'a> View<'a> {
    /// The Task without its Steps.
    pub fn head(&self) -> &'a Head {
        self.before.as_ref().and_then(|b| b.head).unwrap_or(&self.task.head)
    }

    /// The Task's id.
    pub fn task_id(&self) -> &'a TaskId {
        self.task.task_id()
    }

    /// Native status of the Task.
    pub fn status(&self) -> TaskStatus {
        self.head().status
    }

    /// Whether the Task has ended.
    pub fn is_terminal(&self) -> bool {
        self.status().is_terminal()
    }

    /// `wal_seq` of the last event (OCC-01).
    pub fn version(&self) -> u64 {
        self.before.as_ref().map_or(self.task.mark, |b| b.mark).version
    }

    /// `wal_seq` of the event by which orchestrators last changed what the Task is to do (OCC-07).
    pub fn spec_version(&self) -> u64 {
        self.head().spec_version
    }

    /// Time of the last event.
    pub fn updated_at(&self) -> Millis {
        self.before.as_ref().map_or(self.task.mark, |b| b.mark).updated_at
    }

    /// Counts of the Steps.
    pub fn tally(&self) -> &'a Tally {
        self.before.as_ref().map_or(&self.task.derived.tally, |b| b.tally)
    }

    /// Whether a cancel or fail is being carried out.
    pub fn is_closing(&self) -> bool {
        self.head().cancel_requested.is_some() && !self.status().is_terminal()
    }

    /// TASK-19: every required Step completed and no Step claimed or running.
    pub fn is_completeable(&self) -> bool {
        self.tally().is_completeable()
    }

    /// What is missing of a creation in parts (IDEM-07).
    pub fn unfinished(&self) -> Option<Unfinished> {
        Unfinished::of(self.head(), self.steps_len())
    }

    /// Number of Steps ever made, including deleted ones.
    fn steps_len(&self) -> Pos {
        next_pos(self.before.as_ref().map_or(self.task.steps.len(), |b| b.steps_len))
    }

    fn state(&self, pos: Pos) -> &'a StepState {
        let noted = self.before.as_ref().and_then(|b| b.steps.get(&pos).copied());
        noted.unwrap_or(&self.task.steps[pos].state)
    }

    fn spec(&self, pos: Pos) -> &'a Arc<StepSpec> {
        let noted = self.before.as_ref().and_then(|b| b.specs.get(&pos).copied());
        noted.unwrap_or(&self.task.steps[pos].spec)
    }

    /// The Step at a position, unless there is none or it was deleted.
    pub fn step_at(&self, pos: Pos) -> Option<StepRef<'a>> {
        if pos >= self.steps_len() {
            return None;
        }
        let state = self.state(pos);
        (!state.removed).then(|| StepRef { pos, spec: self.spec(pos), state })
    }

    /// The Step with this id, unless there is none or it was deleted.
    pub fn step(&self, id: &StepId) -> Option<StepRef<'a>> {
        self.task.steps.find(id).and_then(|pos| self.step_at(pos))
    }

    /// All Steps that were not deleted, in creation order.
    pub fn steps(&self) -> impl Iterator<Item = StepRef<'a>> + '_ {
        (0..self.steps_len()).filter_map(|pos| self.step_at(pos))
    }

    /// Number of Attempts.
    pub fn attempts_len(&self) -> usize {
        self.before.as_ref().map_or(self.task.attempts.len(), |b| b.attempts_len)
    }

    /// The Attempt at a position that a record of this view names.
    pub fn attempt_at(&self, pos: Pos) -> &'a Attempt {
        let noted = self.before.as_ref().and_then(|b| b.attempts.get(&pos).copied());
        noted.unwrap_or(&self.task.attempts[pos])
    }

    /// The Attempt with this id.
    pub fn attempt(&self, id: AttemptId) -> Option<&'a Attempt> {
        let pos = self.task.attempts.find(&id)?;
        ((pos as usize) < self.attempts_len()).then(|| self.attempt_at(pos))
    }

    /// All Attempts, oldest first, including those of deleted Steps.
    pub fn attempts(&self) -> impl Iterator<Item = &'a Attempt> + '_ {
        (0..next_pos(self.attempts_len())).map(|pos| self.attempt_at(pos))
    }

    /// The open Attempt of a Step.
    pub fn current(&self, step: StepRef<'a>) -> Option<&'a Attempt> {
        step.state.current.map(|at| self.attempt_at(at))
    }

    /// The Attempts of a Step, newest first.
    pub fn attempts_of(&self, step: StepRef<'a>) -> impl Iterator<Item = &'a Attempt> + '_ {
        let newest = step.state.last_attempt.map(|at| self.attempt_at(at));
        core::iter::successors(newest, |a| a.previous.map(|at| self.attempt_at(at)))
    }

    fn runs_len(&self) -> usize {
        self.before.as_ref().map_or(self.task.runs.len(), |b| b.runs_len)
    }

    /// The Run at a position that a record of this view names.
    pub fn run_at(&self, pos: Pos) -> &'a Run {
        let noted = self.before.as_ref().and_then(|b| b.runs.get(&pos).copied());
        noted.unwrap_or(&self.task.runs[pos])
    }

    /// The position of the Run with this id.
    pub fn find_run(&self, id: RunId) -> Option<Pos> {
        self.task.runs.find(&id).filter(|&pos| (pos as usize) < self.runs_len())
    }

    /// The Run with this id.
    pub fn run(&self, id: RunId) -> Option<&'a Run> {
        self.find_run(id).map(|pos| self.run_at(pos))
    }

    /// All Runs, oldest first, with their positions.
    pub fn runs(&self) -> impl Iterator<Item = (Pos, &'a Run)> + '_ {
        (0..next_pos(self.runs_len())).map(|pos| (pos, self.run_at(pos)))
    }

    /// What the owner's memory knows of a Run.
    pub fn memory_of(&self, run: Pos) -> RunMemory<'a> {
        let memory = &self.task.volatile;
        let before = self.before.as_ref();
        let noted = before.and_then(|b| b.stopping.get(&run).copied());
        RunMemory {
            taken_by: memory.taken.get(&run).map(|taken| &taken.by),
            gone: memory.gone.contains(&run) && before.is_none_or(|b| !b.not_gone.contains(&run)),
            stopping: noted.unwrap_or_else(|| memory.stopping.get(&run)),
            result: memory
                .results
                .get(&run)
                .filter(|_| before.is_none_or(|b| !b.silent.contains(&run))),
        }
    }

    /// Whether a Run has ended, by the log or the owner's memory (RUN-08).
    pub fn run_has_ended(&self, run: Pos) -> bool {
        self.run_at(run).state == RunState::Ended || self.memory_of(run).gone
    }

    /// Whether Steps can be claimed and dispatched (TASK-12): claims, queries and explanations ask this.
    pub fn gives_out(&self) -> bool {
        self.head().is_open() && !self.head().is_draining(self.tally())
    }

    /// Checks a heartbeat: the Task must be live, the Attempt its Step's current one, and the
    /// worker its holder (PERM-13: no worker holds a Step for another).
    ///
    /// # Errors
    /// `task_terminal`, `stale_attempt`.
    pub fn check_holder(
        &self,
        who: &AgentId,
        attempt_id: AttemptId,
        token: u64,
    ) -> Result<(), Rejection> {
        let attempt = self.attempt(attempt_id).filter(|a| a.worker_id == *who).ok_or_else(stale)?;
        if self.status().is_terminal() {
            return Err(nothing_held(self.status()));
        }
        let current = self.step_at(attempt.step).and_then(|step| self.current(step));
        let is_it = |a: &Attempt| a.attempt_id == attempt_id && a.fencing_token == token;
        if current.is_some_and(is_it) { Ok(()) } else { Err(stale()) }
    }

    /// Whether the worker of a lost Attempt shall go on: its policy wants that, and its result would still
    /// count, as nobody else has had the Step (LEASE-17, REPORT-14).
    pub fn may_go_on(&self, who: &AgentId, attempt_id: AttemptId, token: u64) -> bool {
        let doubt = |a: &Attempt| a.retry_policy.as_ref().and_then(|policy| policy.on_lease_doubt);
        let doubt = self.attempt(attempt_id).and_then(doubt);
        doubt == Some(LeaseDoubt::Finish) && self.may_complete_late(who, attempt_id, token)
    }

    /// Whether the result of a worker's lost Attempt would still count (REPORT-14).
    pub fn may_complete_late(&self, who: &AgentId, attempt_id: AttemptId, token: u64) -> bool {
        let is_its_own = |a: &&Attempt| a.worker_id == *who && a.fencing_token == token;
        let found = self.attempt(attempt_id).filter(is_its_own);
        let found = found.and_then(|attempt| Some((attempt, self.step_at(attempt.step)?)));
        found.is_some_and(|(attempt, step)| attempt.may_be_adopted(self.head(), step.state))
    }

    /// Whether a fencing token shows that the log goes on after this view's version, because it is
    /// the place of a claim there. Then this view may be wrong about that Attempt (mechanisms 4).
    pub fn is_behind(&self, fencing_token: u64) -> bool {
        fencing_token > self.version()
    }

    /// Whether the holder of an Attempt was asked to stop, by its Task or by its Run (CANCEL-07).
    pub fn is_asked_to_stop(&self, attempt: &Attempt) -> bool {
        self.is_closing() || self.memory_of(attempt.run).stopping.is_some()
    }

    /// How long the holder of an Attempt has left to stop, in milliseconds; `None`: it was not asked to
    /// (POL-12).
    pub fn time_to_stop(&self, attempt: &Attempt, now: Millis) -> Option<u64> {
        let request = self.head().cancel_requested.as_ref().filter(|_| self.is_closing());
        let closing = request.map(|request| request.deadline_at.saturating_sub(now));
        let steady = now.saturating_add(self.task.volatile.steady_ahead);
        let stopping = self.memory_of(attempt.run).stopping;
        let stopping = stopping.map(|stopping| stopping.deadline_at.saturating_sub(steady));
        let left = closing.into_iter().chain(stopping).min()?;
        Some(u64::try_from(left).unwrap_or(0))
    }

    /// The same for the caller, by its Run.
    pub fn time_of_caller_to_stop(&self, caller: &Caller, now: Millis) -> Option<u64> {
        if !self.asks_to_stop(caller) {
            return None;
        }
        let run = self.find_run(caller.run_id.filter(|_| caller.role == Role::Worker)?)?;
        let attempt = self.run_at(run).attempt?;
        self.time_to_stop(self.attempt_at(attempt), now)
    }

    /// Whether the caller is asked to stop: the Task is closing, or the Run under which the caller acts.
    pub fn asks_to_stop(&self, caller: &Caller) -> bool {
        if !self.asks_some_to_stop() {
            return false;
        }
        let run = caller.run_id.filter(|_| caller.role == Role::Worker);
        let run = run.and_then(|id| self.find_run(id));
        let is_stopped = |run: Pos| {
            self.run_at(run).state != RunState::Ended && self.memory_of(run).stopping.is_some()
        };
        self.is_closing() || run.is_some_and(is_stopped)
    }

    /// Whether any holder may have been asked to stop. If not, no holder need be checked.
    pub fn asks_some_to_stop(&self) -> bool {
        let was_asked = self.before.as_ref().is_some_and(|before| !before.stopping.is_empty());
        self.is_closing() || was_asked || !self.task.volatile.stopping.is_empty()
    }

    /// A copy of the Task as this view shows it.
    pub fn to_task(&self) -> Task {
        let mut task = self.task.clone();
        if let Some(before) = &self.before {
            task.take_back(before);
        }
        task
    }

    /// All artifacts, oldest first.
    pub fn artifacts(&self) -> impl Iterator<Item = &'a Arc<Artifact>> + '_ {
        (0..next_pos(self.artifacts_len())).map(|pos| self.artifact_at(pos))
    }

    fn artifacts_len(&self) -> usize {
        self.before.as_ref().map_or(self.task.artifacts.len(), |b| b.artifacts_len)
    }

    fn artifact_at(&self, pos: Pos) -> &'a Arc<Artifact> {
        let noted = self.before.as_ref().and_then(|b| b.artifacts.get(&pos).copied());
        noted.unwrap_or(&self.task.artifacts[pos])
    }

    /// The artifact with this id.
    pub fn artifact(&self, id: &ArtifactId) -> Option<&'a Arc<Artifact>> {
        let pos = self.task.artifacts.find(id)?;
        ((pos as usize) < self.artifacts_len()).then(|| self.artifact_at(pos))
    }

    /// Stored relations, oldest first, including removed ones.
    pub fn edges(&self) -> impl Iterator<Item = &'a Edge> + '_ {
        let len = self.before.as_ref().map_or(self.task.edges.len(), |b| b.edges_len);
        let edges = &self.task.edges;
        (0..len).map(|row| {
            let noted = self.before.as_ref().and_then(|b| b.edges.get(&row).copied());
            noted.unwrap_or(&edges[row])
        })
    }

    /// Facts that gateways keep with the Task, in their order.
    pub fn facts(&self) -> impl Iterator<Item = &'a Fact> + '_ {
        self.facts_behind(0)
    }

    /// Those behind a `wal_seq`, at the cost of those alone.
    pub fn facts_behind(&self, after: u64) -> impl Iterator<Item = &'a Fact> + '_ {
        let version = self.version();
        let range = (Bound::Excluded(after.min(version)), Bound::Included(version));
        let kept = self.task.facts.range(range).map(|(_, fact)| fact);
        let mut gone: Vec<&Fact> =
            self.before.iter().flat_map(|b| b.facts.iter().copied()).collect();
        gone.retain(|fact| fact.wal_seq > after && fact.wal_seq <= version);
        gone.sort_unstable_by_key(|fact| fact.wal_seq);
        merged_by(kept, gone.into_iter(), |fact| fact.wal_seq)
    }

    /// How many facts there are.
    pub fn facts_len(&self) -> usize {
        match &self.before {
            None => self.task.facts.len(),
            Some(_) => self.facts().count(),
        }
    }

    /// The Task's result, if it has completed with one (TASK-22).
    pub fn output(&self) -> Option<&'a Value> {
        let head = self.head();
        let of_step = || self.step(head.output_from.as_ref()?)?.facts().output.as_ref();
        head.output.as_deref().or_else(of_step)
    }

    /// Claimed and running Steps, in creation order.
    pub fn held(&self) -> impl Iterator<Item = StepRef<'a>> + '_ {
        self.members(self.task.derived.held.iter().copied(), |s| s.status().is_held())
    }

    /// Failed Steps, in creation order.
    pub fn failed(&self) -> impl Iterator<Item = StepRef<'a>> + '_ {
        self.members(self.task.derived.failed.iter().copied(), |s| s.status() == StepStatus::Failed)
    }

    /// Blocked Steps, in creation order.
    pub fn blocked(&self) -> impl Iterator<Item = StepRef<'a>> + '_ {
        self.members(self.task.derived.blocked.iter().copied(), |s| {
            s.status() == StepStatus::Blocked
        })
    }

    /// Required Steps that are cancelled, in creation order.
    pub fn cancelled_required(&self) -> impl Iterator<Item = StepRef<'a>> + '_ {
        let live = self.task.derived.cancelled_required.iter().copied();
        self.members(live, |s| s.spec.required && s.status() == StepStatus::Cancelled)
    }

    /// Required Steps because of which an automatic Task is failing, in creation order (POL-05, POL-06).
    pub fn failing(&self) -> impl Iterator<Item = StepRef<'a>> + '_ {
        let live = self.task.derived.failing_steps.iter().copied();
        self.members(live, |s| s.state.failing(s.spec).is_some())
    }

    /// Steps that depend on this one, in creation order.
    pub fn dependents(&self, step: StepRef<'a>) -> impl Iterator<Item = StepRef<'a>> + '_ {
        let live = self.task.steps[step.pos].dependents.iter().copied();
        self.members(live, move |s| s.spec.depends_on_step_ids.contains(step.id()))
    }

    /// Completed Steps with a peer whose facts are not stored here, in creation order (TERM-10).
    pub fn unreconciled(&self) -> impl Iterator<Item = StepRef<'a>> + '_ {
        let live = self.task.derived.unreconciled.iter().copied();
        self.members(live, |s| s.state.is_unreconciled())
    }

    /// Artifacts that are announced, not delivered, and without which the Task is not complete, oldest
    /// first (TERM-10).
    pub fn undelivered(&self) -> impl Iterator<Item = &'a Arc<Artifact>> + '_ {
        let touched = self.before.iter().flat_map(|b| b.artifacts.keys().copied());
        let mut all: BTreeSet<Pos> = touched.collect();
        all.extend(&self.task.derived.undelivered);
        let len = next_pos(self.artifacts_len());
        let known = all.into_iter().filter(move |&pos| pos < len).map(|pos| self.artifact_at(pos));
        known.filter(|artifact| self.is_undelivered(artifact))
    }

    fn is_undelivered(&self, artifact: &Artifact) -> bool {
        let counts = artifact.named_by.is_none_or(|at| self.attempt_at(at).completed_step());
        artifact.given.state == ArtifactState::Pending && counts
    }

    /// Ready Steps of a pool, in creation order.
    pub fn ready_in_pool(&self, pool: &'a PoolId) -> impl Iterator<Item = StepRef<'a>> + '_ {
        let by_handler = self.task.derived.ready.get(pool).into_iter().flat_map(BTreeMap::values);
        self.members(ascending(by_handler), move |s| {
            s.status() == StepStatus::Ready && s.spec.worker_pool_id == *pool
        })
    }

    /// Attempts that are open, in creation order of their Steps.
    pub fn open_attempts(&self) -> impl Iterator<Item = &'a Attempt> + '_ {
        self.held().filter_map(|step| self.current(step))
    }

    /// Runs that have not ended, oldest first, with their positions.
    pub fn live_runs(&self) -> impl Iterator<Item = (Pos, &'a Run)> + '_ {
        let touched = self.before.iter().flat_map(|b| b.runs.keys().copied()).collect::<Vec<_>>();
        let untouched = self.task.derived.live_runs.iter().copied();
        let len = next_pos(self.runs_len());
        let untouched = untouched.filter(move |&p| p < len && !self.has_touched_run(p));
        let all = merged(untouched, touched.into_iter().filter(move |&p| p < len));
        all.map(|pos| (pos, self.run_at(pos))).filter(|(_, run)| run.state != RunState::Ended)
    }

    fn has_touched_run(&self, pos: Pos) -> bool {
        self.before.as_ref().is_some_and(|b| b.runs.contains_key(&pos))
    }

    fn has_touched_step(&self, pos: Pos) -> bool {
        let touched = |b: &Before<'_>| b.steps.contains_key(&pos) || b.specs.contains_key(&pos);
        self.before.as_ref().is_some_and(touched)
    }

    /// The members of an index in this view: of its current members those that no pending change
    /// has touched, and of the touched Steps those that belong to it.
    fn members(
        &self,
        live: impl Iterator<Item = Pos> + 'a,
        belongs: impl Fn(&StepRef<'a>) -> bool,
    ) -> impl Iterator<Item = StepRef<'a>> + '_ {
        let mut touched = Vec::new();
        if let Some(before) = &self.before {
            let both: BTreeSet<Pos> =
                before.steps.keys().chain(before.specs.keys()).copied().collect();
            touched
                .extend(both.into_iter().filter(|&p| self.step_at(p).is_some_and(|s| belongs(&s))));
        }
        let untouched = live.filter(|&p| !self.has_touched_step(p));
        merged(untouched, touched.into_iter()).filter_map(|pos| self.step_at(pos))
    }
}
