//! The reducer: `apply` turns a commit into state, live and on replay alike (law 2).

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;

use super::derived::{Derived, Tally};
use super::undo::{Note, UndoLog};
use super::{
    Attempt, CommandRecord, Head, Made, Mark, Run, Step, StepState, Task, Written, text,
};
use crate::event::{
    Body, Commit, Event, Facts, LeaseEnd, StepClaimed, StepReopened, TaskCreated,
};
use crate::id::{ArtifactId, AttemptId, CommitId, Millis, StepId};
use crate::record::{
    Artifact, ArtifactInput, CancelRequest, Edge, Reason, StepSpec, TaskSpec, add_once,
};
use crate::status::{
    ArtifactKind, ArtifactState, AttemptStatus, EdgeStatus, EndReason, Outcome, RunState, StepStatus,
    TaskStatus, WaitKind,
};
use crate::table::{Pos, Table};
use crate::view::Stage;

/// An event that does not go with the state: the log is not a history of this Task (RECOVER-05).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Illegal {
    /// `wal_seq` of the event.
    pub wal_seq: u64,
    /// What does not fit.
    pub message: String,
}

impl fmt::Display for Illegal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "event {} does not fit the state: {}", self.wal_seq, self.message)
    }
}

impl core::error::Error for Illegal {}

pub(super) type Applied = Result<(), String>;

/// Where an event stands in the log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct At {
    pub(crate) seq: u64,
    pub(crate) time: Millis,
    pub(crate) written: Written,
}

impl Commit {
    /// Where its events stand.
    pub fn written(&self) -> Written {
        let count = crate::table::next_pos(self.events.len());
        Written { commit_id: self.commit_id, first_seq: self.first_seq, count }
    }
}

impl Task {
    /// The state after the first commit of a log.
    pub fn restore(first: &Commit) -> Result<Self, Illegal> {
        let mut task = Self::before_first(first)?;
        task.replay(first)?;
        Ok(task)
    }

    /// The Task that the first commit of a log is applied to.
    fn before_first(first: &Commit) -> Result<Self, Illegal> {
        let illegal = |message: &str| Illegal { wal_seq: first.first_seq, message: message.into() };
        let Some(event @ Event { body: Body::TaskCreated(created), .. }) = first.events.first() else {
            return Err(illegal("a log starts with task_created"));
        };
        Ok(Self::empty(event, created, first.commit_id, first.created_at))
    }

    /// Applies a commit that is in the log.
    pub fn replay(&mut self, commit: &Commit) -> Result<(), Illegal> {
        self.replay_with(commit, |_, _| {})
    }

    /// Applies a commit that is in the log, and answers what its public events say (RECOVER-08):
    /// the same as its decision did.
    pub fn replay_traced(&mut self, commit: &Commit) -> Result<alloc::vec::Vec<Stage>, Illegal> {
        let mut stages = alloc::vec::Vec::with_capacity(commit.events.len());
        self.replay_with(commit, |task, event| stages.push(Stage::after(task, event)))?;
        Ok(stages)
    }

    /// The state after the first commit of a log, and what the public events of it say.
    pub fn restore_traced(first: &Commit) -> Result<(Self, alloc::vec::Vec<Stage>), Illegal> {
        let mut task = Self::before_first(first)?;
        let stages = task.replay_traced(first)?;
        Ok((task, stages))
    }

    fn replay_with(&mut self, commit: &Commit, mut see: impl FnMut(&Self, &Event)) -> Result<(), Illegal> {
        debug_assert!(!self.is_ahead(), "replay works on durable state");
        let written = commit.written();
        for (seq, event) in (commit.first_seq..).zip(&commit.events) {
            let at = At { seq, time: commit.created_at, written };
            self.apply(event, at).map_err(|message| Illegal { wal_seq: seq, message })?;
            see(self, event);
        }
        self.remember(commit);
        Ok(())
    }

    pub(crate) fn empty(event: &Event, created: &TaskCreated, id: CommitId, at: Millis) -> Self {
        let (high, low) = id.0.as_u64_pair();
        let seed = high ^ low.rotate_left(32);
        let head = Head {
            spec: without_steps(&created.task),
            status: created.task.status,
            status_reason: None,
            last_error: None,
            result_summary: None,
            cancel_requested: None,
            archived_at: None,
            delivery_state: created.task.delivery_state,
            progress: Arc::default(),
            input_refs: Arc::default(),
            evidence_refs: Arc::default(),
            created_by_agent_id: event.actor.clone(),
            created_by_run_id: event.run,
            idempotency_key: created.idempotency_key.clone(),
            created_at: at,
            started_at: None,
            picked_up: false,
            ended_at: None,
            resumed_at: None,
        };
        Self {
            head,
            mark: Mark::default(),
            steps: Table::new(seed),
            attempts: Table::new(seed),
            runs: Table::new(seed),
            artifacts: Table::new(seed),
            edges: created.task.relationships.clone(),
            commands: Table::new(seed),
            derived: Derived::default(),
            undo: UndoLog::default(),
            volatile: super::Volatile::default(),
            no_refs: Arc::default(),
        }
    }

    /// Remembers the command of a commit (IDEM-05).
    pub(crate) fn remember(&mut self, commit: &Commit) {
        let Some(command_id) = commit.command_id.clone() else { return };
        if self.commands.find(&command_id).is_some() {
            return; // Phase 2 of a closing carries the id of the command that asked for it.
        }
        let made = commit.events.iter().find_map(|event| match &event.body {
            Body::StepClaimed(claim) => self.attempts.find(&claim.attempt_id).map(Made::Attempt),
            Body::RunDispatched(run) => self.runs.find(&run.run_id).map(Made::Run),
            _ => None,
        });
        let written = commit.written();
        let digest = commit.command_digest;
        let made = made.unwrap_or(Made::Nothing);
        self.note(|_| Note::CommandAdded);
        self.commands.push(CommandRecord { command_id, digest, written, made });
    }

    /// Applies one event. On an error the state may be half changed: a replay gives the Task up.
    pub(crate) fn apply(&mut self, event: &Event, at: At) -> Applied {
        let step = event.step_id.as_ref();
        let known = |id: &StepId| self.find_step(id).ok_or_else(|| format!("unknown step {id}"));
        let step = step.map(known).transpose()?;
        self.apply_at(event, step, at)
    }

    /// As [`apply`](Self::apply), where the Step is known already.
    pub(crate) fn apply_at(&mut self, event: &Event, step: Option<Pos>, at: At) -> Applied {
        if at.seq != self.mark.version + 1 {
            return Err(format!("wal_seq {} follows {}", at.seq, self.mark.version));
        }
        if at.time < self.mark.updated_at {
            return Err(format!("created_at {} is before {}", at.time, self.mark.updated_at));
        }
        if self.is_terminal() && !matches!(event.body, Body::TaskArchived(_) | Body::TaskDeliveryUpdated(_)) {
            return Err(format!("{} after the end", event.body.event_type()));
        }
        self.mark = Mark { version: at.seq, updated_at: at.time };
        match step {
            Some(pos) => self.apply_to_step(pos, event, at),
            None => self.apply_to_task(event, at),
        }
    }

    fn apply_to_task(&mut self, event: &Event, at: At) -> Applied {
        match &event.body {
            Body::TaskCreated(created) => self.create_steps(created, at),
            Body::TaskSubmitted(p) | Body::TaskRunning(p) => self.move_task(event, p.from, None),
            Body::TaskReopened(p) | Body::TaskResumed(p) => {
                self.move_task(event, p.from, None)?;
                self.change_resumed_at(|task| task.head.resumed_at = Some(at.time));
                Ok(())
            }
            Body::TaskBlocked(p) | Body::TaskPaused(p) => {
                self.move_task(event, p.from, Some(&p.reason))
            }
            Body::TaskUpdated(p) => self.apply_patch(p, at),
            Body::TaskCancelRequested(_) if self.is_closing() || self.head.status == TaskStatus::Draft => {
                Err(format!("closing of a task that is {} or closing", self.head.status))
            }
            Body::TaskCancelRequested(p) => {
                self.head_mut().cancel_requested = Some(Arc::new(CancelRequest {
                    intent: p.intent,
                    reason: p.reason.clone(),
                    by: event.actor.clone(),
                    by_run: event.run,
                    seq: at.seq,
                    at: at.time,
                    deadline_at: p.deadline_at,
                }));
                Ok(())
            }
            Body::TaskProgress(p) => {
                let head = self.head_mut();
                if let Some(delta) = &p.progress {
                    Arc::make_mut(&mut head.progress).merge(delta, at.time);
                }
                add_once(Arc::make_mut(&mut head.input_refs), &p.input_refs);
                add_once(Arc::make_mut(&mut head.evidence_refs), &p.evidence_refs);
                p.artifacts.iter().try_for_each(|a| self.add_artifact(a, None, None, at.time))
            }
            Body::TaskLinked(p) => {
                self.note(|_| Note::EdgeAdded);
                self.edges.push(p.edge.clone());
                Ok(())
            }
            Body::TaskUnlinked(p) => {
                let found = self.edges.iter().position(|e| e.edge_id == p.edge_id);
                let row = found.ok_or_else(|| format!("unknown edge {}", p.edge_id))?;
                self.note(|task| Note::Edge(row, Box::new(task.edges[row].clone())));
                let reason = p.reason.clone().or_else(|| self.edges[row].reason.clone());
                let edge = &mut self.edges[row];
                *edge = Edge { status: EdgeStatus::Removed, reason, updated_at: at.time, ..edge.clone() };
                Ok(())
            }
            Body::TaskCompleted(p) | Body::TaskFailed(p) | Body::TaskCancelled(p) => {
                self.end_task(event, p, at)
            }
            Body::TaskArchived(_) if !self.is_terminal() || self.head.archived_at.is_some() => {
                Err("archived while live, or twice".into())
            }
            Body::TaskArchived(_) => {
                self.head_mut().archived_at = Some(at.time);
                Ok(())
            }
            Body::TaskDeliveryUpdated(p) => {
                self.head_mut().delivery_state = p.delivery_state;
                Ok(())
            }
            Body::RunDispatched(p) => {
                if self.runs.find(&p.run_id).is_some() {
                    return Err(format!("run {} exists", p.run_id));
                }
                self.add_run(Run {
                    run_id: p.run_id,
                    worker_pool_id: p.worker_pool_id.clone(),
                    allowed_step_ids: p.allowed_step_ids.as_deref().map(Arc::from),
                    dispatched_by: p.dispatched_by.clone(),
                    worker_id: None,
                    state: RunState::Dispatched,
                    attempt: None,
                    end_reason: None,
                    ended_because: None,
                    dispatch_version: at.seq,
                    instructions: p.instructions.as_deref().map(text),
                    bindings: p.bindings.clone().map(Arc::new),
                    expires_at: Some(p.expires_at),
                    created_at: at.time,
                    ended_at: None,
                });
                Ok(())
            }
            Body::RunEnded(p) => {
                let pos = self.runs.find(&p.run_id).ok_or_else(|| format!("unknown run {}", p.run_id))?;
                if self.runs[pos].state != RunState::Dispatched {
                    return Err(format!("run {} is {}", p.run_id, self.runs[pos].state));
                }
                self.change_run(pos, |run| {
                    run.state = RunState::Ended;
                    run.end_reason = Some(p.end_reason);
                    run.ended_because = p.reason.clone().map(Arc::new);
                    run.worker_id.clone_from(&p.worker_id);
                    run.ended_at = Some(at.time);
                });
                Ok(())
            }
            other => Err(format!("{} needs a step_id", other.event_type())),
        }
    }

    fn apply_to_step(&mut self, pos: Pos, event: &Event, at: At) -> Applied {
        let from = self.steps[pos].state.status;
        let to = from.after(&event.body).ok_or_else(|| {
            format!("{} on step {} that is {from}", event.body.event_type(), self.steps[pos].spec.step_id)
        })?;
        match &event.body {
            Body::StepReady(_) if self.steps[pos].state.unmet > 0 => {
                Err(format!("step {} is ready before its dependencies", self.steps[pos].spec.step_id))
            }
            Body::StepReady(_) => {
                self.change(pos, |s| {
                    s.status = to;
                    s.ready_at = Some(at.time);
                    s.not_before = None;
                    s.updated_at = at.time;
                });
                Ok(())
            }
            Body::StepClaimed(p) => self.claim(pos, p, event, at),
            Body::StepStarted(p) => {
                let attempt = self.open_attempt(pos, p.attempt_id)?;
                self.change_attempt(attempt, |a| {
                    a.status = AttemptStatus::Running;
                    a.lease_expires_at = p.lease_expires_at;
                });
                self.change(pos, |s| {
                    s.status = to;
                    s.updated_at = at.time;
                });
                self.add_facts(pos, p.report.as_deref(), Some(attempt), at)
            }
            Body::StepUpdated(p) => {
                let attempt = p.attempt_id.map(|id| self.open_attempt(pos, id)).transpose()?;
                if let (Some(attempt), Some(until)) = (attempt, p.lease_expires_at) {
                    self.change_attempt(attempt, |a| a.lease_expires_at = until);
                }
                self.change(pos, |s| s.updated_at = at.time);
                self.add_facts(pos, p.report.as_deref(), attempt, at)
            }
            Body::StepBlocked(p) => {
                let ending = Ending::of(event, p.attempt_id, Outcome::Blocked, Some(&p.reason));
                if let Some(attempt) = self.steps[pos].state.current {
                    self.change_attempt(attempt, |a| a.waited_for = Some(p.wait_kind));
                }
                self.settle_step(pos, to, ending, p.report.as_deref(), at, |s| {
                    s.wait_kind = Some(p.wait_kind);
                    s.facts_mut().status_reason = Some(p.reason.clone());
                })
            }
            Body::StepCompleted(p) => {
                let ending = Ending::of(event, p.attempt_id, Outcome::Completed, p.reason.as_ref());
                self.settle_step(pos, to, ending, p.report.as_deref(), at, |s| {
                    if p.output.is_some() || p.reply.is_some() {
                        s.facts_mut().output.clone_from(&p.output);
                        s.facts_mut().reply = p.reply;
                    }
                })
            }
            Body::StepFailed(p) => {
                let outcome = p.outcome.unwrap_or(Outcome::Failed);
                let ending = Ending::of(event, p.attempt_id, outcome, Some(&p.reason));
                let fatal = self.is_fatal(&ending, &p.reason);
                self.settle_step(pos, to, ending, p.report.as_deref(), at, |s| {
                    s.fatal_failure = fatal;
                    s.attempt_count = p.attempt_count.unwrap_or(s.attempt_count);
                    s.facts_mut().status_reason = Some(p.reason.clone());
                })?;
                self.head_mut().last_error = Some(Arc::new(p.reason.clone()));
                Ok(())
            }
            Body::StepCancelled(p) => {
                let ending = Ending::of(event, p.attempt_id, Outcome::Cancelled, p.reason.as_ref());
                self.settle_step(pos, to, ending, p.report.as_deref(), at, |s| {
                    if p.reason.is_some() {
                        s.facts_mut().status_reason.clone_from(&p.reason);
                    }
                })
            }
            Body::StepReopened(p) => self.reopen(pos, from, p, at),
            Body::StepLeaseExpired(p) => {
                let lost = p.reason == LeaseEnd::LeaseExpired;
                let error = Reason::code(p.reason.as_str());
                let attempt = self.open_attempt(pos, p.attempt_id)?;
                let end = if lost { EndReason::Lost } else { EndReason::Released };
                self.end_attempt(attempt, p.reason.outcome(), Some(&error), None, end, at);
                self.change(pos, |s| {
                    s.status = to;
                    s.current = None;
                    s.lost_count = p.lost_count;
                    s.updated_at = at.time;
                });
                if lost {
                    self.head_mut().last_error = Some(Arc::new(error));
                }
                Ok(())
            }
            other => Err(format!("{} takes no step_id", other.event_type())),
        }
    }

    fn create_steps(&mut self, created: &TaskCreated, at: At) -> Applied {
        if at.seq != 1 {
            return Err("task_created is the first event".into());
        }
        self.steps.reserve(created.task.steps.len());
        for spec in created.task.steps.iter() {
            if self.steps.find(&spec.step_id).is_some() {
                return Err(format!("step {} twice", spec.step_id));
            }
            self.steps.push(Step {
                spec: Arc::clone(spec),
                state: StepState::new(at.time),
                dependents: alloc::vec::Vec::new(),
            });
        }
        for pos in 0..crate::table::next_pos(self.steps.len()) {
            self.check_dependencies(&self.steps[pos].spec)?;
            self.link(pos);
        }
        (0..crate::table::next_pos(self.steps.len())).for_each(|pos| self.index_in(pos));
        Ok(())
    }

    fn check_dependencies(&self, spec: &StepSpec) -> Applied {
        match spec.depends_on_step_ids.iter().find(|id| self.find_step(id).is_none()) {
            Some(missing) => Err(format!("step {} depends on unknown {missing}", spec.step_id)),
            None => Ok(()),
        }
    }

    /// Makes a Step of a new Task wait for its dependencies.
    fn link(&mut self, pos: Pos) {
        let spec = Arc::clone(&self.steps[pos].spec);
        let (mut unmet, mut dead, mut fatal) = (0, 0, 0);
        for id in &spec.depends_on_step_ids {
            let Some(dep) = self.find_step(id) else { continue };
            let on = &mut self.steps[dep];
            if let Err(place) = on.dependents.binary_search(&pos) {
                on.dependents.insert(place, pos);
            }
            unmet += u32::from(on.state.status != StepStatus::Completed);
            dead += u32::from(on.state.is_dead());
            fatal += u32::from(on.state.is_fatal());
        }
        let state = &mut self.steps[pos].state;
        (state.unmet, state.dead, state.fatal) = (unmet, dead, fatal);
    }

    /// Changes a Step's state, keeps the indexes, and carries what it means to its dependents.
    pub(crate) fn change(&mut self, pos: Pos, change: impl FnOnce(&mut StepState)) {
        let before = Signals::of(&self.steps[pos].state);
        self.change_alone(pos, change);
        self.spread(pos, before);
    }

    pub(crate) fn change_alone(&mut self, pos: Pos, change: impl FnOnce(&mut StepState)) {
        self.note_step(pos);
        self.index_out(pos);
        change(&mut self.steps[pos].state);
        self.index_in(pos);
    }

    /// Tells dependents that a Step became (or ceased to be) completed, dead or fatal.
    fn spread(&mut self, pos: Pos, before: Signals) {
        let now = Signals::of(&self.steps[pos].state);
        if now == before || self.steps[pos].dependents.is_empty() {
            return;
        }
        self.spread_all(alloc::vec![Turn { pos, before, now }]);
    }

    /// Tells dependents of turned Steps, and theirs, as far as it changes them. A worklist, not
    /// recursion: chains may be long. The last one in `work` goes first, with all that it leads to.
    pub(crate) fn spread_all(&mut self, mut work: alloc::vec::Vec<Turn>) {
        while let Some(Turn { pos, before, now }) = work.pop() {
            if now == before {
                continue;
            }
            for i in 0..self.steps[pos].dependents.len() {
                let dependent = self.steps[pos].dependents[i];
                let then = Signals::of(&self.steps[dependent].state);
                self.change_alone(dependent, |s| {
                    s.unmet = shift(s.unmet, !before.completed, !now.completed);
                    s.dead = shift(s.dead, before.dead, now.dead);
                    s.fatal = shift(s.fatal, before.fatal, now.fatal);
                });
                let now = Signals::of(&self.steps[dependent].state);
                work.push(Turn { pos: dependent, before: then, now });
            }
        }
    }

    fn claim(&mut self, pos: Pos, p: &StepClaimed, event: &Event, at: At) -> Applied {
        let step = &self.steps[pos];
        if p.fencing_token != at.seq || p.ordinal != step.state.ordinal + 1 {
            return Err(format!("claim of {} with wrong token or ordinal", step.spec.step_id));
        }
        if self.attempts.find(&p.attempt_id).is_some() {
            return Err(format!("attempt {} exists", p.attempt_id));
        }
        let attempt_pos = crate::table::next_pos(self.attempts.len());
        let run = self.run_of_claim(p, attempt_pos, at)?;
        let attempt = Attempt {
            attempt_id: p.attempt_id,
            step: pos,
            step_id: self.steps[pos].spec.step_id.clone(),
            run,
            run_id: p.run_id,
            worker_id: event.actor.clone(),
            ordinal: p.ordinal,
            fencing_token: p.fencing_token,
            status: AttemptStatus::Claimed,
            outcome: None,
            waited_for: None,
            error: None,
            input_refs: match p.input_refs.as_slice() {
                [] => Arc::default(), // Takes no memory, unlike a list of nothing.
                refs => Arc::from(refs),
            },
            output_refs: Arc::clone(&self.no_refs),
            checkpoint_refs: Arc::clone(&self.no_refs),
            completion_summary: None,
            retry_policy: p.retry_policy.clone(),
            step_snapshot: Arc::new(p.step_snapshot.clone()),
            updated_after_dispatch: false,
            remote: None,
            started_at: at.time,
            ended_at: None,
            lease_ms: u64::try_from(p.lease_expires_at.saturating_sub(at.time)).unwrap_or(0),
            lease_expires_at: p.lease_expires_at,
            progress_at: None,
            previous: self.steps[pos].state.last_attempt,
            ended_in: None,
        };
        self.note(|_| Note::AttemptAdded);
        self.attempts.push(attempt);
        self.change(pos, |s| {
            s.status = StepStatus::Claimed;
            s.ordinal = p.ordinal;
            s.current = Some(attempt_pos);
            s.last_attempt = Some(attempt_pos);
            s.ready_at = None;
            s.updated_at = at.time;
            if s.facts.as_ref().is_some_and(|f| f.progress.is_some()) {
                s.facts_mut().progress = None;
            }
        });
        if !self.head.picked_up {
            let head = self.head_mut();
            head.started_at.get_or_insert(at.time);
            head.picked_up = true;
        }
        Ok(())
    }

    fn run_of_claim(&mut self, p: &StepClaimed, attempt: Pos, at: At) -> Result<Pos, String> {
        if let Some(pos) = self.runs.find(&p.run_id) {
            if self.runs[pos].state != RunState::Dispatched || self.runs[pos].attempt.is_some() {
                return Err(format!("run {} cannot claim", p.run_id));
            }
            self.change_run(pos, |run| {
                run.state = RunState::Active;
                run.worker_id = Some(p.worker_id.clone());
                run.attempt = Some(attempt);
            });
            return Ok(pos);
        }
        Ok(self.add_run(Run {
            run_id: p.run_id,
            worker_pool_id: p.worker_pool_id.clone(),
            allowed_step_ids: p.allowed_step_ids.as_deref().map(Arc::from),
            dispatched_by: p.dispatched_by.clone(),
            worker_id: Some(p.worker_id.clone()),
            state: RunState::Active,
            attempt: Some(attempt),
            end_reason: None,
            ended_because: None,
            dispatch_version: at.seq,
            instructions: None,
            bindings: None,
            expires_at: None,
            created_at: at.time,
            ended_at: None,
        }))
    }

    fn open_attempt(&self, pos: Pos, id: AttemptId) -> Result<Pos, String> {
        let current = self.steps[pos].state.current;
        current.filter(|&at| self.attempts[at].attempt_id == id).ok_or_else(|| {
            format!("attempt {id} is not the current one of step {}", self.steps[pos].spec.step_id)
        })
    }

    /// Moves a Step to blocked, completed, failed or cancelled, with what else the event says of it,
    /// and ends its Attempt if one is open.
    fn settle_step(
        &mut self,
        pos: Pos,
        to: StepStatus,
        ending: Ending<'_>,
        report: Option<&Facts>,
        at: At,
        also: impl FnOnce(&mut StepState),
    ) -> Applied {
        let attempt = ending.attempt_id.map(|id| self.open_attempt(pos, id)).transpose()?;
        if attempt.is_none() && self.steps[pos].state.status.is_held() {
            return Err(format!("step {} has an open attempt", self.steps[pos].spec.step_id));
        }
        self.add_facts(pos, report, attempt, at)?;
        if let Some(attempt) = attempt {
            let end = self.end_reason(attempt, &ending);
            let summary = report.and_then(|r| r.result_summary.as_deref());
            self.end_attempt(attempt, ending.outcome, ending.error, summary, end, at);
        }
        self.change(pos, |s| {
            s.status = to;
            s.current = None;
            s.ready_at = None;
            s.not_before = None;
            s.wait_kind = None;
            s.updated_at = at.time;
            also(s);
        });
        Ok(())
    }

    /// Who ended an Attempt decides how its Run ended (3.4).
    fn end_reason(&self, attempt: Pos, ending: &Ending<'_>) -> EndReason {
        let code = ending.error.map_or("", |e| e.code.as_str());
        match (ending.by_system, code) {
            (true, "task_failed" | "task_cancelled") => EndReason::TaskTerminal,
            (true, "worker_cancelled") => EndReason::Cancelled,
            (true, "worker_timeout") => EndReason::TimedOut,
            (true, _) => EndReason::FinishedWithoutTerminalStepStatus,
            (false, _) if ending.run == Some(self.attempts[attempt].run_id) => EndReason::Completed,
            (false, _) => EndReason::Revoked,
        }
    }

    /// Whether a failure fails an automatic Task: not one that an orchestrator wrote or asked for
    /// (POL-05).
    fn is_fatal(&self, ending: &Ending<'_>, reason: &Reason) -> bool {
        let by_holder = ending.run.is_some()
            && ending.attempt_id.and_then(|id| self.attempt(id)).map(|a| a.run_id) == ending.run;
        (ending.by_system || by_holder) && reason.code != "worker_cancelled"
    }

    fn end_attempt(
        &mut self,
        attempt: Pos,
        outcome: Outcome,
        error: Option<&Reason>,
        summary: Option<&str>,
        end: EndReason,
        at: At,
    ) {
        self.change_attempt(attempt, |a| {
            a.status = AttemptStatus::Ended;
            a.outcome = Some(outcome);
            a.error = error.cloned().map(Arc::new);
            a.completion_summary = summary.map(text);
            a.ended_at = Some(at.time);
            a.ended_in = Some(at.written);
        });
        self.change_run(self.attempts[attempt].run, |run| {
            run.state = RunState::Ended;
            run.end_reason = Some(end);
            run.ended_at = Some(at.time);
        });
    }

    fn reopen(&mut self, pos: Pos, from: StepStatus, p: &StepReopened, at: At) -> Applied {
        if p.from != from {
            return Err(format!("reopened from {} but it is {from}", p.from));
        }
        let answers = self.steps[pos].state.wait_kind;
        if matches!(answers, Some(WaitKind::Input | WaitKind::Permission)) && self.head.picked_up {
            self.head_mut().picked_up = false;
        }
        self.change(pos, |s| {
            s.status = StepStatus::Pending;
            s.fatal_failure = false;
            s.wait_kind = None;
            s.not_before = p.not_before;
            s.updated_at = at.time;
            if p.counters_reset {
                (s.attempt_count, s.lost_count) = (0, 0);
            }
            if s.facts.is_some() || !p.input_refs.is_empty() {
                let facts = s.facts_mut();
                facts.result_summary = None;
                facts.artifact_ids.clear();
                facts.status_reason = None;
                facts.progress = None;
                add_once(&mut facts.input_refs, &p.input_refs);
            }
        });
        Ok(())
    }

    fn add_facts(&mut self, pos: Pos, report: Option<&Facts>, attempt: Option<Pos>, at: At) -> Applied {
        if let Some(attempt) = attempt {
            self.change_attempt(attempt, |a| {
                a.progress_at = Some(at.time);
                let Some(report) = report else { return };
                if !report.output_refs.is_empty() {
                    add_once(Arc::make_mut(&mut a.output_refs), &report.output_refs);
                }
                if !report.checkpoint_refs.is_empty() {
                    add_once(Arc::make_mut(&mut a.checkpoint_refs), &report.checkpoint_refs);
                }
                if let Some(remote) = &report.remote {
                    a.remote = Some(Arc::new(remote.clone()));
                }
            });
        }
        let Some(report) = report else { return Ok(()) };
        let ids = self.add_artifacts(pos, report, attempt, at)?;
        self.change(pos, |s| {
            let facts = s.facts_mut();
            if let Some(summary) = &report.result_summary {
                facts.result_summary = Some(text(summary));
            }
            if let Some(delta) = &report.progress {
                facts.progress.get_or_insert_default().merge(delta, at.time);
            }
            if report.remote.is_some() {
                facts.remote.clone_from(&report.remote);
            }
            add_once(&mut facts.artifact_ids, &ids);
        });
        Ok(())
    }

    fn add_artifacts(
        &mut self,
        pos: Pos,
        report: &Facts,
        attempt: Option<Pos>,
        at: At,
    ) -> Result<alloc::vec::Vec<ArtifactId>, String> {
        let step_id = self.steps[pos].spec.step_id.clone();
        let attempt_id = attempt.map(|a| self.attempts[a].attempt_id);
        for artifact in &report.artifacts {
            self.add_artifact(artifact, Some(&step_id), attempt_id, at.time)?;
        }
        for id in &report.artifact_ids {
            if self.artifacts.find(id).is_none() {
                self.add_artifact(&external(id), Some(&step_id), attempt_id, at.time)?;
            }
        }
        let named = report.artifacts.iter().map(|a| &a.artifact_id);
        Ok(named.chain(&report.artifact_ids).cloned().collect())
    }

    /// A new artifact, or another state, place, size or digest of a known one (ART-01).
    fn add_artifact(
        &mut self,
        given: &ArtifactInput,
        step_id: Option<&StepId>,
        attempt_id: Option<AttemptId>,
        at: Millis,
    ) -> Applied {
        if let Some(pos) = self.artifacts.find(&given.artifact_id) {
            let old = Arc::clone(&self.artifacts[pos]);
            let mut new = Artifact::clone(&old);
            new.given.state = given.state;
            new.given.uri = given.uri.clone().or(new.given.uri);
            new.given.size_bytes = given.size_bytes.or(new.given.size_bytes);
            new.given.digest = given.digest.clone().or(new.given.digest);
            self.note(|_| Note::Artifact(pos, Arc::clone(&old)));
            self.derived.take_artifact(&old);
            self.derived.put_artifact(&new);
            self.artifacts[pos] = Arc::new(new);
            return Ok(());
        }
        let artifact =
            Artifact { given: given.clone(), step_id: step_id.cloned(), attempt_id, created_at: at };
        self.note(|_| Note::ArtifactAdded);
        self.derived.put_artifact(&artifact);
        self.artifacts.push(Arc::new(artifact));
        Ok(())
    }

    pub(crate) fn head_mut(&mut self) -> &mut Head {
        self.note_head();
        &mut self.head
    }

    pub(crate) fn change_attempt(&mut self, pos: Pos, change: impl FnOnce(&mut Attempt)) {
        self.note_attempt(pos);
        change(&mut self.attempts[pos]);
    }

    fn change_run(&mut self, pos: Pos, change: impl FnOnce(&mut Run)) {
        self.note(|task| Note::Run(pos, Box::new(task.runs[pos].clone())));
        self.derived.take_run(pos, &self.runs[pos]);
        change(&mut self.runs[pos]);
        self.derived.put_run(pos, &self.runs[pos]);
    }

    fn add_run(&mut self, run: Run) -> Pos {
        self.note(|_| Note::RunAdded);
        self.derived.put_run(crate::table::next_pos(self.runs.len()), &run);
        self.runs.push(run)
    }

    /// The Task's status after an event (3.1).
    fn status_after(&self, event: &Event) -> Result<TaskStatus, String> {
        let (from, body) = (self.head.status, &event.body);
        from.after(body).ok_or_else(|| format!("{} on a task that is {from}", body.event_type()))
    }

    fn move_task(&mut self, event: &Event, from: TaskStatus, reason: Option<&Reason>) -> Applied {
        let to = self.status_after(event)?;
        if from != self.head.status {
            return Err(format!("moved from {from} but it is {}", self.head.status));
        }
        let head = self.head_mut();
        head.status = to;
        head.status_reason = reason.cloned().map(Arc::new);
        Ok(())
    }

    fn end_task(&mut self, event: &Event, p: &crate::event::Ended, at: At) -> Applied {
        let to = self.status_after(event)?;
        if !self.derived.held.is_empty() {
            return Err(format!("task becomes {to} while steps are held"));
        }
        p.artifacts.iter().try_for_each(|a| self.add_artifact(a, None, None, at.time))?;
        let live: alloc::vec::Vec<Pos> = self.derived.live_runs.iter().copied().collect();
        for run in live {
            self.change_run(run, |run| {
                run.state = RunState::Ended;
                run.end_reason = Some(EndReason::TaskTerminal);
                run.ended_at = Some(at.time);
            });
        }
        let reason = p.reason.clone().map(Arc::new);
        let head = self.head_mut();
        head.status = to;
        head.ended_at = Some(at.time);
        head.result_summary = p.result_summary.as_deref().map(text);
        add_once(Arc::make_mut(&mut head.evidence_refs), &p.evidence_refs);
        if to == TaskStatus::Failed {
            head.last_error.clone_from(&reason);
        }
        head.status_reason = reason;
        if let Some(acceptance) = &p.acceptance {
            Arc::make_mut(&mut head.spec).acceptance.clone_from(acceptance);
        }
        Ok(())
    }

    /// Counts of the Steps, commits in flight included.
    pub fn tally(&self) -> &Tally {
        &self.derived.tally
    }
}

/// How and by whom an Attempt ends.
struct Ending<'a> {
    attempt_id: Option<AttemptId>,
    outcome: Outcome,
    error: Option<&'a Reason>,
    run: Option<crate::id::RunId>,
    by_system: bool,
}

impl<'a> Ending<'a> {
    fn of(
        event: &Event,
        attempt_id: Option<AttemptId>,
        outcome: Outcome,
        error: Option<&'a Reason>,
    ) -> Self {
        let by_system = event.run.is_none() && event.actor == crate::id::system_agent();
        Self { attempt_id, outcome, error, run: event.run, by_system }
    }
}

/// What a Step means to its dependents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Signals {
    pub(crate) completed: bool,
    pub(crate) dead: bool,
    /// Never without `dead`.
    pub(crate) fatal: bool,
}

/// A Step that means something else to its dependents than they know.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turn {
    pub(crate) pos: Pos,
    /// What they know.
    pub(crate) before: Signals,
    pub(crate) now: Signals,
}

impl Signals {
    pub(crate) fn of(state: &StepState) -> Self {
        let completed = state.status == StepStatus::Completed;
        Self { completed, dead: state.is_dead(), fatal: state.is_fatal() }
    }
}

fn shift(count: u32, was: bool, is: bool) -> u32 {
    count + u32::from(is) - u32::from(was)
}

fn external(id: &ArtifactId) -> ArtifactInput {
    ArtifactInput {
        artifact_id: id.clone(),
        name: id.as_str().into(),
        description: None,
        media_type: None,
        kind: ArtifactKind::External,
        uri: None,
        data: None,
        size_bytes: None,
        digest: None,
        state: ArtifactState::Available,
    }
}

fn without_steps(spec: &TaskSpec) -> Arc<TaskSpec> {
    let steps: Arc<[Arc<StepSpec>]> = Arc::from([]);
    Arc::new(TaskSpec { steps, ..TaskSpec::clone(spec) })
}

impl StepStatus {
    /// The status after an event, or `None` where the two do not go together (3.2).
    ///
    /// Guards that need more than the status (dependencies, Attempts) are the caller's.
    pub fn after(self, event: &Body) -> Option<Self> {
        use StepStatus::{Blocked, Cancelled, Claimed, Completed, Failed, Pending, Ready, Running};
        let to = match (self, event) {
            (Pending, Body::StepReady(_)) => Ready,
            (Ready, Body::StepClaimed(_)) => Claimed,
            (Claimed, Body::StepStarted(_)) => Running,
            (Claimed | Running, Body::StepLeaseExpired(_)) => Pending,
            (Pending | Ready | Claimed | Running, Body::StepBlocked(_)) => Blocked,
            (Ready | Claimed | Running, Body::StepCompleted(_)) => Completed,
            (Pending | Ready | Claimed | Running | Blocked, Body::StepFailed(_)) => Failed,
            (Pending | Ready | Claimed | Running | Blocked, Body::StepCancelled(_)) => Cancelled,
            (Blocked | Failed, Body::StepReopened(_)) => Pending,
            (Pending | Ready | Claimed | Running | Blocked | Failed, Body::StepUpdated(_)) => self,
            (Pending | Ready | Claimed | Running | Blocked | Completed | Failed | Cancelled, _) => {
                return None;
            }
        };
        Some(to)
    }
}

impl TaskStatus {
    /// The status after an event, or `None` where the two do not go together (3.1).
    pub const fn after(self, event: &Body) -> Option<Self> {
        use TaskStatus::{Blocked, Cancelled, Completed, Draft, Failed, Paused, Pending, Running};
        let to = match (self, event) {
            (Draft, Body::TaskSubmitted(_)) => Pending,
            (Pending, Body::TaskRunning(_)) => Running,
            (Pending | Running, Body::TaskBlocked(_)) => Blocked,
            (Blocked, Body::TaskReopened(_)) => Pending,
            (Pending | Running, Body::TaskPaused(_)) => Paused,
            (Paused, Body::TaskResumed(_)) => Pending,
            (Pending | Running | Blocked | Paused, Body::TaskCompleted(_)) => Completed,
            (Pending | Running | Blocked | Paused, Body::TaskFailed(_)) => Failed,
            (Draft | Pending | Running | Blocked | Paused, Body::TaskCancelled(_)) => Cancelled,
            (Draft | Pending | Running | Blocked | Paused | Completed | Failed | Cancelled, _) => {
                return None;
            }
        };
        Some(to)
    }
}
