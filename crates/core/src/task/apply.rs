//! The reducer: `apply` turns a commit into state, live and on replay alike (law 2). Step 5 of the walk in
//! docs/architecture.md.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::sync::Arc;

pub use super::contradiction::{Contradiction, Illegal};
use super::derived::{Derived, Tally};
use super::undo::{Note, UndoLog};
use super::{
    CommandRecord, Head, Made, Mark, RestPeriods, Run, Shift, Step, StepState, Task, Written, text,
};
use crate::event::{
    Body, CancelRequested, Commit, Event, RunDispatched, RunEnded, TaskCreated, TaskProgress,
    Unlinked,
};
use crate::id::{CommitId, Millis, StepId, system_agent};
use crate::record::{CancelRequest, Edge, EdgeReason, Reason, StepSpec, TaskSpec, add_once};
use crate::rules::Rules;
use crate::status::{EdgeKind, EdgeStatus, EndReason, RunState, TaskStatus};
use crate::table::{Pos, Table};

pub(super) type Applied = Result<(), Contradiction>;

/// Where an event stands in the log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct At {
    pub(crate) seq: u64,
    pub(crate) time: Millis,
    /// How far the steady line is ahead of `time`; 0 on replay.
    pub(crate) shift: Shift,
    pub(crate) written: Written,
}

impl Commit {
    /// Where the events of this commit stand.
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
    pub(crate) fn before_first(first: &Commit) -> Result<Self, Illegal> {
        let illegal = |why: &str| Illegal { wal_seq: first.first_seq, why: why.into() };
        let Some(event @ Event { body: Body::TaskCreated(created), .. }) = first.events.first()
        else {
            return Err(illegal("a log starts with task_created"));
        };
        let mut task = Self::empty(event, created, first.commit_id, first.created_at);
        task.head.trace.clone_from(&first.trace);
        Ok(task)
    }

    /// Applies a commit that is in the log.
    pub fn replay(&mut self, commit: &Commit) -> Result<(), Illegal> {
        self.replay_with(commit, |_, _| {})
    }

    /// Applies a commit that is in the log, and calls `see` with the state after each event.
    pub(crate) fn replay_with(
        &mut self,
        commit: &Commit,
        mut see: impl FnMut(&Self, &Event),
    ) -> Result<(), Illegal> {
        debug_assert!(!self.is_ahead(), "replay works on durable state");
        let written = commit.written();
        for (seq, event) in (commit.first_seq..).zip(&commit.events) {
            let at = At { seq, time: commit.created_at, shift: 0, written };
            self.apply(event, at).map_err(|why| Illegal { wal_seq: seq, why })?;
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
            output: None,
            output_from: None,
            cancel_requested: None,
            archived_at: None,
            delivery_state: created.task.delivery_state,
            progress: Arc::default(),
            input_refs: Arc::default(),
            unread_input_refs: None,
            evidence_refs: Arc::default(),
            created_by_agent_id: event.actor.clone(),
            created_by_run_id: event.run,
            creation: created.creation,
            created_seq: 1,
            spec_version: 1,
            idempotency_key: created.idempotency_key.clone(),
            rules: created.rules,
            first_completion: created.task.completion,
            created_at: at,
            started_at: None,
            picked_up: false,
            ended_at: None,
            resumed_at: None,
            resumed_shift: 0,
            drained_at: None,
            drained_shift: 0,
            paused: RestPeriods::default(),
            resting: RestPeriods::default(),
            required_done_at: None,
            required_done_shift: 0,
            closing_shift: 0,
            trace: None,
        };
        Self {
            head,
            mark: Mark::default(),
            steps: Table::new(seed),
            attempts: Table::new(seed),
            runs: Table::new(seed),
            artifacts: Table::new(seed),
            edges: created.task.relationships.clone(),
            facts: BTreeMap::new(),
            commands: Table::new(seed),
            derived: Derived::default(),
            undo: UndoLog::default(),
            volatile: super::Volatile::default(),
            no_refs: Arc::default(),
            seed,
        }
    }

    /// Remembers the command of a commit (IDEM-05).
    pub(crate) fn remember(&mut self, commit: &Commit) {
        let Some(command_id) = commit.command_id.clone() else { return };
        if self.commands.find(&command_id).is_some() {
            return; // The last commit of a closing carries the id of the command that asked for it.
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

    /// Applies one event. After an error the state may be half changed: the replay fails with it.
    pub(crate) fn apply(&mut self, event: &Event, at: At) -> Applied {
        let step = event.step_id.as_ref();
        let known = |id: &StepId| self.find_step(id).ok_or_else(|| format!("unknown step {id}"));
        let step = step.map(known).transpose()?;
        self.apply_at(event, step, at)
    }

    /// As [`apply`](Self::apply), for a caller that knows the Step already.
    pub(crate) fn apply_at(&mut self, event: &Event, step: Option<Pos>, at: At) -> Applied {
        if at.seq != self.mark.version + 1 {
            return Err(format!("wal_seq {} follows {}", at.seq, self.mark.version).into());
        }
        if at.time < self.mark.updated_at {
            return Err(format!("created_at {} is before {}", at.time, self.mark.updated_at).into());
        }
        if self.is_terminal() && !event.body.passes_end() {
            return Err(format!("{} after the end", event.body.event_type()).into());
        }
        self.mark = Mark { version: at.seq, updated_at: at.time };
        // A failure that this commit itself makes good, by a retry, has held up nobody.
        let stands = |it: &(u64, _, _)| it.0 < at.written.first_seq;
        let was_draining = self.is_draining() && self.derived.failing.first().is_some_and(stands);
        let were_open = self.derived.tally.required_open > 0;
        match step {
            Some(pos) => self.apply_to_step(pos, event, at),
            None => self.apply_to_task(event, at),
        }?;
        if were_open && self.derived.tally.required_open == 0 {
            let head = self.head_mut();
            (head.required_done_at, head.required_done_shift) = (Some(at.time), at.shift);
        }
        if changes_spec(event) {
            self.head_mut().spec_version = at.seq;
        }
        if was_draining && !self.is_draining() && self.head.is_open() {
            self.change_resumed_at(|task| {
                let head = task.head_mut();
                (head.drained_at, head.drained_shift) = (Some(at.time), at.shift);
            });
        }
        Ok(())
    }

    /// POL-08, POL-12: notes whether the Task rests from now on.
    fn note_rest(&mut self, at: At) {
        let head = self.head_mut();
        head.paused.turn(head.status == TaskStatus::Paused, at);
        let rests = matches!(head.status, TaskStatus::Paused | TaskStatus::Blocked);
        head.resting.turn(rests, at);
    }

    /// S15, DISP-02: waits of ready Steps and of unused Runs for workers begin anew.
    fn resume_waits(&mut self, at: At) {
        self.change_resumed_at(|task| {
            let head = task.head_mut();
            (head.resumed_at, head.resumed_shift) = (Some(at.time), at.shift);
        });
    }

    fn apply_to_task(&mut self, event: &Event, at: At) -> Applied {
        match &event.body {
            Body::TaskCreated(created) if at.seq == 1 => self.create_steps(created, at),
            Body::TaskCreated(created) => {
                self.begin_anew(event, created, at)?;
                self.create_steps(created, at)
            }
            Body::TaskSubmitted(p) | Body::TaskRunning(p) => self.move_task(event, p.from, None),
            Body::TaskReopened(p) | Body::TaskResumed(p) => {
                self.move_task(event, p.from, None)?;
                self.note_rest(at);
                self.resume_waits(at);
                Ok(())
            }
            Body::TaskBlocked(p) | Body::TaskPaused(p) => {
                self.move_task(event, p.from, Some(&p.reason))?;
                self.note_rest(at);
                Ok(())
            }
            Body::TaskUpdated(p) => self.apply_patch(p, at),
            Body::TaskCancelRequested(p) => self.request_closing(p, event, at),
            Body::TaskProgress(p) => self.add_progress(p, at),
            Body::TaskLinked(p) => {
                self.note(|_| Note::EdgeAdded);
                self.edges.push(p.edge.clone());
                Ok(())
            }
            Body::TaskUnlinked(p) => self.remove_edge(p, at),
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
            Body::TaskFact(p) => {
                self.keep_fact(p, at);
                Ok(())
            }
            Body::TaskDeliveryUpdated(p) => {
                self.head_mut().delivery_state = p.delivery_state;
                Ok(())
            }
            Body::RunDispatched(p) => self.dispatch_run(p, at),
            Body::RunEnded(p) => self.end_unused_run(p, at),
            other => Err(format!("{} needs a step_id", other.event_type()).into()),
        }
    }

    fn request_closing(&mut self, p: &CancelRequested, event: &Event, at: At) -> Applied {
        if self.is_closing() || self.head.status == TaskStatus::Draft {
            return Err(format!("closing of a task that is {} or closing", self.head.status).into());
        }
        let head = self.head_mut();
        head.closing_shift = at.shift;
        head.cancel_requested = Some(Arc::new(CancelRequest {
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

    fn add_progress(&mut self, p: &TaskProgress, at: At) -> Applied {
        let head = self.head_mut();
        if let Some(delta) = &p.progress {
            Arc::make_mut(&mut head.progress).merge(delta, at.time);
        }
        let input_refs = Arc::make_mut(&mut head.input_refs);
        match head.rules {
            Rules::First => add_once(input_refs, &p.input_refs),
            Rules::Second => input_refs.extend_from_slice(&p.input_refs), // CTRL-12: a cursor counts them.
        }
        add_once(Arc::make_mut(&mut head.evidence_refs), &p.evidence_refs);
        p.artifacts.iter().try_for_each(|a| self.add_artifact(a, None, None, at.time))
    }

    fn remove_edge(&mut self, p: &Unlinked, at: At) -> Applied {
        let found = self.edges.iter().position(|e| e.edge_id == p.edge_id);
        let row = found.ok_or_else(|| format!("unknown edge {}", p.edge_id))?;
        self.note(|task| Note::Edge(row, Box::new(task.edges[row].clone())));
        let old = &self.edges[row];
        let reason = p.reason.clone().map(EdgeReason::Text).or_else(|| old.reason.clone());
        let (status, updated_at) = (EdgeStatus::Removed, at.time);
        self.edges[row] = Edge { status, reason, updated_at, ..old.clone() };
        Ok(())
    }

    fn dispatch_run(&mut self, p: &RunDispatched, at: At) -> Applied {
        if self.runs.find(&p.run_id).is_some() {
            return Err(format!("run {} exists", p.run_id).into());
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
            expires_at: p.expires_at,
            shift: at.shift,
            created_at: at.time,
            ended_at: None,
        });
        Ok(())
    }

    fn end_unused_run(&mut self, p: &RunEnded, at: At) -> Applied {
        let found = self.runs.find(&p.run_id);
        let pos = found.ok_or_else(|| format!("unknown run {}", p.run_id))?;
        if self.runs[pos].state != RunState::Dispatched {
            return Err(format!("run {} is {}", p.run_id, self.runs[pos].state).into());
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

    /// IDEM-10: another creation replaces an unfinished one, of which the log and the creation time stay.
    fn begin_anew(&mut self, event: &Event, created: &TaskCreated, at: At) -> Applied {
        if self.unfinished().is_none() {
            return Err("task_created on a task whose creation is not unfinished".into());
        }
        if created.task.task_id != self.head.spec.task_id {
            return Err(format!("task_created of {}", created.task.task_id).into());
        }
        let mut anew = Self::empty(event, created, at.written.commit_id, self.head.created_at);
        anew.head.created_seq = at.seq;
        anew.head.trace.clone_from(&self.head.trace);
        // The children of the unfinished creation become children of the new one.
        let children = self.edges.iter().filter(|edge| edge.kind == EdgeKind::Child);
        anew.edges.extend(children.cloned());
        self.facts.values().cloned().for_each(|fact| anew.put_fact(fact));
        anew.mark = self.mark;
        anew.volatile = self.volatile.clone();
        anew.undo = core::mem::take(&mut self.undo);
        let before = Box::new(core::mem::replace(self, anew));
        self.note(|_| Note::Anew(before));
        Ok(())
    }

    fn create_steps(&mut self, created: &TaskCreated, at: At) -> Applied {
        self.steps.reserve(created.task.steps.len());
        for spec in created.task.steps.iter() {
            if self.steps.find(&spec.step_id).is_some() {
                return Err(format!("step {} twice", spec.step_id).into());
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
            Some(missing) => {
                Err(format!("step {} depends on unknown {missing}", spec.step_id).into())
            }
            None => Ok(()),
        }
    }

    pub(crate) fn head_mut(&mut self) -> &mut Head {
        self.note_head();
        &mut self.head
    }

    /// The Task's status after an event (3.1).
    fn status_after(&self, event: &Event) -> Result<TaskStatus, Contradiction> {
        let (from, body) = (self.head.status, &event.body);
        let to = from.after(body);
        Ok(to.ok_or_else(|| format!("{} on a task that is {from}", body.event_type()))?)
    }

    fn move_task(&mut self, event: &Event, from: TaskStatus, reason: Option<&Reason>) -> Applied {
        let to = self.status_after(event)?;
        if from != self.head.status {
            return Err(format!("moved from {from} but it is {}", self.head.status).into());
        }
        let head = self.head_mut();
        head.status = to;
        head.status_reason = reason.cloned().map(Arc::new);
        Ok(())
    }

    fn end_task(&mut self, event: &Event, p: &crate::event::Ended, at: At) -> Applied {
        let to = self.status_after(event)?;
        if !self.derived.held.is_empty() {
            return Err(format!("task becomes {to} while steps are held").into());
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
        head.output = p.output.clone().map(Arc::new);
        head.output_from.clone_from(&p.output_from);
        if !p.unread_input_refs.is_empty() {
            head.unread_input_refs = Some(Arc::new(p.unread_input_refs.clone()));
        }
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

/// OCC-07: whether an orchestrator changes with this event what the Task is to do.
fn changes_spec(event: &Event) -> bool {
    match &event.body {
        Body::TaskCreated(_)
        | Body::TaskSubmitted(_)
        | Body::TaskUpdated(_)
        | Body::TaskBlocked(_)
        | Body::TaskReopened(_)
        | Body::TaskPaused(_)
        | Body::TaskResumed(_)
        | Body::TaskCancelRequested(_) => true,
        Body::StepCancelled(p) => p.attempt_id.is_none() && event.actor != system_agent(),
        Body::StepReopened(_) => event.actor != system_agent(),
        _ => false,
    }
}

fn without_steps(spec: &TaskSpec) -> Arc<TaskSpec> {
    let steps: Arc<[Arc<StepSpec>]> = Arc::from([]);
    Arc::new(TaskSpec { steps, ..TaskSpec::clone(spec) })
}
