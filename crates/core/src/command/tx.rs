//! A commit under construction: each event is applied when it is emitted, so that every later check
//! and follow-up sees the state after it.

use alloc::string::ToString as _;
use alloc::vec::Vec;

use super::{Command, Cx, GiveBack, Outcome, Reply, Wait};
use crate::event::{Body, Commit, Event};
use crate::id::{AgentId, Millis, RunId, StepId, system_agent};
use crate::reject::{Code, Rejection};
use crate::runtime::{RuntimeEvent, RuntimeName};
use crate::status::Role;
use crate::table::Pos;
use crate::task::apply::At;
use crate::task::{Made, Task, Written, text};

/// How many Steps an answer names, at most (CTRL-04).
const CHANGED_MAX: usize = 50;

/// Who causes an event: a principal, and the Run under which it acts.
#[derive(Debug, Clone)]
pub(crate) struct By {
    pub(crate) agent: AgentId,
    pub(crate) run: Option<RunId>,
}

impl By {
    /// The scheduler.
    pub(crate) fn system() -> Self {
        Self { agent: system_agent(), run: None }
    }
}

/// The result of a command, beside its events.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Did {
    pub(crate) made: Made,
    pub(crate) waits: Option<Wait>,
}

impl Did {
    pub(crate) const DONE: Self = Self { made: Made::Nothing, waits: None };
}

pub(crate) struct Tx<'t, 'c> {
    pub(crate) task: &'t mut Task,
    pub(crate) cx: &'c Cx<'c>,
    pub(crate) commit: Commit,
    /// Steps that failed in this commit and may be retried (S19), with the shortest wait before it,
    /// in milliseconds (RETRY-02).
    pub(crate) failed: Vec<(Pos, u64)>,
    changed: Vec<Pos>,
    told: Vec<RuntimeEvent>,
}

impl<'t, 'c> Tx<'t, 'c> {
    pub(crate) fn begin(task: &'t mut Task, cx: &'c Cx<'c>) -> Self {
        let commit = Commit {
            commit_id: cx.stamp.commit_id,
            first_seq: task.mark.version + 1,
            created_at: cx.stamp.now.max(task.mark.updated_at),
            command_id: cx.command_id.cloned(),
            command_digest: cx.digest.filter(|_| cx.command_id.is_some()),
            epoch: cx.epoch,
            trace: cx.trace.cloned(),
            events: Vec::new(),
        };
        let (failed, changed, told) = Default::default();
        Self { task, cx, commit, failed, changed, told }
    }

    /// Time of this commit.
    pub(crate) fn now(&self) -> Millis {
        self.commit.created_at
    }

    /// This moment on the steady line.
    pub(crate) fn steady(&self) -> Millis {
        self.cx.stamp.steady
    }

    /// `wal_seq` of the next event.
    pub(crate) fn next_seq(&self) -> u64 {
        self.commit.first_seq + self.commit.events.len() as u64
    }

    /// The caller, for events that the command names. An orchestrator acts under no Run of this
    /// Task, so its reports on a Step never count as the holder's.
    pub(crate) fn caller(&self) -> By {
        let caller = self.cx.caller;
        let worker = caller.role == Role::Worker;
        let run = caller.run_id.filter(|id| worker || self.task.runs.find(id).is_none());
        By { agent: caller.agent.clone(), run }
    }

    /// Emits an event about the Task.
    pub(crate) fn emit(&mut self, by: By, body: Body) -> Result<(), Rejection> {
        self.push(by, None, None, body)
    }

    /// Reports a runtime event of a Run, which changes no Task (EVENT-07).
    pub(crate) fn tell(&mut self, what: RuntimeName, run: Pos) {
        self.told.push(RuntimeEvent::of(&self.task.live(), what, run, self.now()));
    }

    /// DISP-13: passes on a Run's final output, to its dispatcher and to observers of runtime events.
    pub(crate) fn hand_on(&mut self, run: Pos, result: &str) {
        let result = text(result);
        if self.task.keep_result(run, &result) {
            let live = self.task.live();
            let event = RuntimeEvent::of(&live, RuntimeName::RunResult, run, self.now());
            self.told.push(RuntimeEvent { result: Some(result), ..event });
        }
    }

    /// Names a Step in the answer.
    pub(crate) fn touched(&mut self, pos: Pos) {
        if self.changed.len() < CHANGED_MAX && !self.changed.contains(&pos) {
            self.changed.push(pos);
        }
    }

    /// Emits an event about a Step.
    pub(crate) fn emit_on(&mut self, by: By, pos: Pos, body: Body) -> Result<(), Rejection> {
        self.touched(pos);
        let step_id = self.task.steps[pos].spec.step_id.clone();
        self.push(by, Some(pos), Some(step_id), body)
    }

    fn push(
        &mut self,
        by: By,
        pos: Option<Pos>,
        step_id: Option<StepId>,
        body: Body,
    ) -> Result<(), Rejection> {
        let event = Event { actor: by.agent, run: by.run, step_id, body };
        // `count` is not known yet: `finish` corrects it where the state stores it.
        let written = Written {
            commit_id: self.commit.commit_id,
            first_seq: self.commit.first_seq,
            count: 0,
        };
        let shift = self.steady().saturating_sub(self.now());
        let at = At { seq: self.next_seq(), time: self.now(), shift, written };
        let applied = self.task.apply_at(&event, pos, at);
        debug_assert!(applied.is_ok(), "a decided event fits: {applied:?} {event:?}");
        applied.map_err(|why| Rejection::new(Code::InvalidTransition, why.to_string()))?;
        self.commit.events.push(event);
        Ok(())
    }

    pub(crate) fn run(&mut self, command: &Command) -> Result<Did, Rejection> {
        let did = self.act_on(command)?;
        self.check_references(command)?;
        Ok(did)
    }

    fn act_on(&mut self, command: &Command) -> Result<Did, Rejection> {
        match command {
            Command::TaskUpdate { operations } => self.update(operations),
            Command::TaskClaimStep { run_id, step_id } => self.claim(*run_id, step_id),
            Command::TaskUpdateStep(report) => self.report(report),
            Command::TaskComplete(complete) => self.complete(complete),
            Command::TaskFail(close) => self.fail(close),
            Command::TaskCancel(close) => self.cancel(close),
            Command::DispatchWorker(dispatch) => self.dispatch(dispatch),
            Command::SubmitTask(why) => self.submit(why),
            Command::PauseTask(why) => self.pause(why),
            Command::ResumeTask(why) => self.resume(why),
            Command::BlockTask(why) => self.block(why),
            Command::ReopenTask(why) => self.reopen_task(why),
            Command::AppendTaskProgress(progress) => self.append_progress(progress),
            Command::TaskFact(fact) => {
                self.keep_fact(fact)?;
                self.follow(&fact.then)
            }
            Command::RetryTask(retry) => self.retry_steps(retry),
            Command::LinkTasks(link) => self.link(link),
            Command::UnlinkTasks(unlink) => self.unlink(unlink),
            Command::ArchiveTask(why) => self.archive(why),
            Command::EndRun(end) => self.end_run(end),
            Command::DeclineRun(decline) => self.decline_run(decline),
            Command::CancelRun(cancel) => self.cancel_run(cancel),
            Command::ReleaseStep { attempt_id, fencing_token, reason, retry_after_ms } => {
                let how = GiveBack { reason: *reason, retry_after_ms: *retry_after_ms };
                self.release(*attempt_id, *fencing_token, how)
            }
            Command::GrantStep(grant) => self.grant(grant),
            Command::ExpireLeases { attempt_ids, reason } => self.expire(attempt_ids, *reason),
            Command::Unacknowledged { attempt_ids } => self.unacknowledged(attempt_ids),
            Command::Due => self.judge_due(),
        }
    }

    /// Adds the events that follow from the command's own, and closes the commit.
    pub(crate) fn finish(mut self, did: Did) -> Result<Outcome, Rejection> {
        if !self.commit.events.is_empty() {
            self.follow_up()?;
        }
        let Did { made, waits } = did;
        let spec_version = Some(self.task.head.spec_version);
        if self.commit.events.is_empty() {
            let version = self.task.mark.version;
            let reply =
                Reply { written: None, version, spec_version, made, changed: self.changed, waits };
            return Ok(Outcome { told: self.told, ..Outcome::unchanged(reply) });
        }
        self.correct_counts();
        self.task.remember(&self.commit);
        let written = self.commit.written();
        let waits = waits.filter(|w| *w != Wait::TaskEnd || !self.task.is_terminal());
        let version = written.version();
        let (written, changed) = (Some(written), self.changed);
        let reply = Reply { written, version, spec_version, made, changed, waits };
        Ok(Outcome { commit: Some(self.commit), reply, told: self.told })
    }

    /// Sets the final number of events in the Attempts that ended in this commit.
    fn correct_counts(&mut self) {
        let written = self.commit.written();
        for event in &self.commit.events {
            let ended = match &event.body {
                Body::StepBlocked(p) => p.attempt_id,
                Body::StepCompleted(p) => p.attempt_id,
                Body::StepFailed(p) => p.attempt_id,
                Body::StepCancelled(p) => p.attempt_id,
                Body::StepLeaseExpired(p) => Some(p.attempt_id),
                _ => None,
            };
            if let Some(pos) = ended.and_then(|id| self.task.attempts.find(&id)) {
                self.task.attempts[pos].ended_in = Some(written);
            }
        }
    }
}
