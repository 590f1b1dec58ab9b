//! The end of Runs and leases: `end_run`, `decline_run`, `cancel_run`, `release_step`, and leases
//! that ended without a final report (RUN, LEASE, S11 to S13, S26).

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;

use super::close::{reason_or, summary_only};
use super::policy::backoff_ms;
use super::report::stale;
use super::tx::{By, Did};
use super::validate::retry_after;
use super::{Command, Cx, EndRun, RunAndWhy, RunOutcome, Tx, Wait};
use crate::event::{Body, LeaseEnd, ReleaseReason, RunEnded, StepFailed, StepLeaseExpired};
use crate::id::{AgentId, AttemptId, RunId, StepId};
use crate::record::{Backoff, Reason, RetryPolicy};
use crate::reject::{Code, Rejection};
use crate::retry_policy::Limit;
use crate::rules::Rules;
use crate::runtime::RuntimeName;
use crate::status::{EndReason, Outcome, Role, RunState, TaskStatus};
use crate::table::Pos;
use crate::task::derived::after;
use crate::task::lost_with;
use crate::task::{Stopping, Task};

/// From this many unacknowledged grants of a Step in a row on, each counts as a loss.
const UNACKNOWLEDGED_MAX: u32 = 5;

/// How many Steps that were lost together are named, at most.
const LOST_WITH_MAX: usize = 16;

/// How many Attempts back the count of unfit workers in a row goes. Unless it hardly grows, any
/// backoff has reached its longest wait by then.
const UNFIT_LOOKED_AT: usize = 64;

/// How a worker gives a Step back (LEASE-18).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GiveBack {
    /// Why.
    pub reason: ReleaseReason,
    /// How many milliseconds must pass before the Step is given out again.
    pub retry_after_ms: Option<u64>,
}

impl GiveBack {
    /// The longest wait that a worker may ask for, in milliseconds.
    pub const RETRY_AFTER_MS_MAX: u64 = 3_600_000;

    /// For this reason, without a wait of its own.
    pub const fn because(reason: ReleaseReason) -> Self {
        Self { reason, retry_after_ms: None }
    }

    /// The command that gives back the Step of an Attempt.
    pub const fn of(self, attempt_id: AttemptId, fencing_token: u64) -> Command {
        let Self { reason, retry_after_ms } = self;
        Command::ReleaseStep { attempt_id, fencing_token, reason, retry_after_ms }
    }
}

impl Default for GiveBack {
    fn default() -> Self {
        Self::because(ReleaseReason::unsaid())
    }
}

impl Tx<'_, '_> {
    /// Ends a Run (RUN-03 to RUN-09, R05, DISP-13).
    pub(super) fn end_run(&mut self, end: &EndRun) -> Result<Did, Rejection> {
        let run = self.task.run_or_reject(end.run_id)?;
        match self.task.held_by(run) {
            Some(pos) => self.end_holding_run(run, pos, end.outcome)?,
            None if self.task.runs[run].is_unused() => self.end_unused_run(run)?,
            None => {} // RUN-11: its final output is passed on all the same.
        }
        if let Some(result) = &end.result {
            self.hand_on(run, result);
        }
        Ok(Did::DONE)
    }

    /// R05: ends a Run that has claimed nothing (DISP-16), so that no worker is offered it again.
    fn end_unused_run(&mut self, run: Pos) -> Result<(), Rejection> {
        let event = RunEnded {
            run_id: self.task.runs[run].run_id,
            end_reason: EndReason::NoStepClaimed,
            reason: None,
            worker_id: Some(self.cx.caller.agent.clone()),
        };
        self.emit(self.caller(), Body::RunEnded(event))
    }

    /// S13: fails the Step of a Run that ended without a final status. While the Task is closing,
    /// only the end of the Run counts (RUN-08).
    fn end_holding_run(&mut self, run: Pos, pos: Pos, how: RunOutcome) -> Result<(), Rejection> {
        let stopping = self.task.set_stopping(run, None);
        if self.task.is_closing() {
            return self.run_is_gone(run);
        }
        let (code, outcome) = match (how, stopping.is_some()) {
            (_, true) => ("worker_cancelled", Outcome::Cancelled),
            // RUN-05: nobody asked it to stop, as far as this node knows, so nobody waits for the Step.
            (RunOutcome::Cancelled, false) => {
                return self.give_back(run, pos, GiveBack::default());
            }
            (RunOutcome::TimedOut, false) => ("worker_timeout", Outcome::TimedOut),
            (RunOutcome::Finished | RunOutcome::Error, false) => {
                ("worker_finished_without_terminal_step_status", Outcome::Abandoned)
            }
        };
        self.name_after(stopping.as_ref());
        self.fail_step(pos, Reason::code(code), outcome, summary_only(code), By::system(), None)
    }

    /// 5.4: the commit with the end of a cancelled Run carries the command that asked for it.
    fn name_after(&mut self, stopping: Option<&Stopping>) {
        if let Some(Stopping { command: Some((id, digest)), .. }) = stopping
            && self.commit.command_id.is_none()
        {
            self.commit.command_id = Some(id.clone());
            self.commit.command_digest = *digest;
        }
    }

    /// RUN-08: while closing, only the end of a Run counts. Phase 2 settles its Step, and begins
    /// when the last Run has ended.
    pub(super) fn run_is_gone(&mut self, run: Pos) -> Result<(), Rejection> {
        self.task.mark_gone(run);
        self.end_closing(false)
    }

    /// Ends a Run that did not stop within the time of a `cancel_run`.
    pub(super) fn end_stopped_run(&mut self, run: Pos) -> Result<(), Rejection> {
        match self.task.held_by(run) {
            Some(pos) => {
                self.tell(RuntimeName::ChildAgentCancelTimeout, run);
                self.end_holding_run(run, pos, RunOutcome::Cancelled)
            }
            None => {
                self.task.set_stopping(run, None); // The Run ended by itself.
                Ok(())
            }
        }
    }

    /// The holder as the cause of an event: the end of a Run with a Step counts as its report.
    fn holder_of(&self, run: Pos) -> By {
        By { agent: self.cx.caller.agent.clone(), run: Some(self.task.runs[run].run_id) }
    }

    /// S26 by the holder. LEASE-18: if one worker after another, or the same one again and again,
    /// is unfit for the Step, the Step waits as after a failure.
    fn give_back(&mut self, run: Pos, pos: Pos, how: GiveBack) -> Result<(), Rejection> {
        let mut event = self.lease_end(pos, LeaseEnd::Released)?;
        let is_new = how.reason == ReleaseReason::Fenced && self.task.head.rules < Rules::Second;
        let delay = self.unfit_delay(pos, how.reason).max(how.retry_after_ms);
        event.release_reason = Some(how.reason).filter(|_| !is_new);
        event.not_before = delay.map(|ms| after(self.now(), ms));
        let by = self.holder_of(run);
        self.emit_on(by, pos, Body::StepLeaseExpired(event))
    }

    fn lease_end(&self, pos: Pos, reason: LeaseEnd) -> Result<StepLeaseExpired, Rejection> {
        let Some(at) = self.task.steps[pos].state.current else { return Err(stale()) };
        let attempt = &self.task.attempts[at];
        let lost = u32::from(reason == LeaseEnd::LeaseExpired);
        Ok(StepLeaseExpired {
            attempt_id: attempt.attempt_id,
            run_id: attempt.run_id,
            lease_expires_at: attempt.lease_expires_at,
            lost_count: self.task.steps[pos].state.lost_count + lost,
            reason,
            release_reason: None,
            not_before: None,
            lost_with: Vec::new(),
        })
    }

    /// The backoff of RETRY-06, by how often in a row a worker was unfit for the Step; `None` the
    /// first time.
    fn unfit_delay(&self, pos: Pos, reason: ReleaseReason) -> Option<u64> {
        let now = self.task.steps[pos].state.current?;
        let before = match reason {
            ReleaseReason::Unfit => self.task.unfit_in_a_row(self.task.attempts[now].previous),
            ReleaseReason::Draining | ReleaseReason::Surplus | ReleaseReason::Fenced => 0,
        };
        let policy = self.task.attempts[now].retry_policy.as_deref();
        let random = self.cx.stamp.random.wrapping_add(u64::from(pos));
        let backoff = policy.map_or_else(Backoff::default, RetryPolicy::backoff);
        (before > 0).then(|| backoff_ms(&backoff, before, random))
    }

    /// RUN-12: a worker declines a Run.
    pub(super) fn decline_run(&mut self, decline: &RunAndWhy) -> Result<Did, Rejection> {
        let pos = self.task.run_or_reject(decline.run_id)?;
        let run = &self.task.runs[pos];
        if self.task.is_terminal() {
            return Ok(Did::DONE);
        }
        if run.attempt.is_some() {
            let message = "the run has claimed a step; fail or release it instead";
            return Err(Rejection::new(Code::InvalidTransition, message)
                .with("from", run.state.as_str())
                .with("to", "declined"));
        }
        if run.state == RunState::Ended {
            return Ok(Did::DONE);
        }
        let event = RunEnded {
            run_id: decline.run_id,
            end_reason: EndReason::Declined,
            reason: decline.reason.as_ref().map(|r| reason_or(Some(r), "declined")),
            worker_id: Some(self.cx.caller.agent.clone()),
        };
        self.emit(self.caller(), Body::RunEnded(event))?;
        Ok(Did::DONE)
    }

    /// RUN-02: ends the Run at once if it holds no Step; otherwise asks it to stop, and the answer waits.
    pub(super) fn cancel_run(&mut self, cancel: &RunAndWhy) -> Result<Did, Rejection> {
        let pos = self.task.run_or_reject(cancel.run_id)?;
        if self.task.live().run_has_ended(pos) || self.task.is_terminal() {
            return Ok(Did::DONE);
        }
        let reason = cancel.reason.as_ref().map(|r| reason_or(Some(r), "cancelled"));
        if self.task.held_by(pos).is_none() {
            let run_id = cancel.run_id;
            let end_reason = EndReason::Cancelled;
            let event = RunEnded { run_id, end_reason, reason, worker_id: None };
            self.emit(self.caller(), Body::RunEnded(event))?;
            return Ok(Did::DONE);
        }
        let stopping = Stopping {
            command: self.cx.command_id.map(|id| (id.clone(), self.cx.digest)),
            reason,
            requested_at: self.now(),
            deadline_at: after(self.steady(), self.grace_ms(pos)),
        };
        if !self.task.volatile.stopping.contains_key(&pos) {
            self.task.set_stopping(pos, Some(stopping));
        }
        Ok(Did { waits: Some(Wait::RunEnd(pos)), ..Did::DONE })
    }

    /// How long a Run that holds a Step may take to stop (POL-12).
    fn grace_ms(&self, run: Pos) -> u64 {
        let attempt = self.task.runs[run].attempt.map(|at| &self.task.attempts[at]);
        self.cx.limits.grace_ms_under(attempt.and_then(|attempt| attempt.retry_policy.as_deref()))
    }

    /// S26 by the holder: gives the Step back.
    pub(super) fn release(
        &mut self,
        attempt_id: AttemptId,
        token: u64,
        how: GiveBack,
    ) -> Result<Did, Rejection> {
        let attempt = self.task.attempts.by_key(&attempt_id).ok_or_else(stale)?;
        let (pos, run) = (attempt.step, attempt.run);
        self.task.check_current(pos, Some(attempt_id), Some(token))?;
        retry_after(how.retry_after_ms)?;
        if self.task.is_closing() {
            self.run_is_gone(run)?;
        } else {
            self.give_back(run, pos, how)?;
        }
        Ok(Did::DONE)
    }

    /// LEASE-07: one commit, Steps in creation order. Skips Attempts that have ended meanwhile.
    pub(super) fn expire(&mut self, ids: &[AttemptId], reason: LeaseEnd) -> Result<Did, Rejection> {
        let ends = self.held_under(ids).into_iter();
        let ends: Vec<_> = ends.map(|pos| (pos, self.task.lease_end_of(pos, reason))).collect();
        let mut lost: BTreeMap<AgentId, Vec<StepId>> = BTreeMap::new();
        for &(pos, _) in ends.iter().filter(|(_, end)| *end == LeaseEnd::LeaseExpired) {
            let with = self.holder(pos).map(|worker| lost.entry(worker).or_default());
            with.into_iter().for_each(|with| with.push(self.task.steps[pos].spec.step_id.clone()));
        }
        for (pos, end) in ends {
            let with = self.holder(pos).filter(|_| end == LeaseEnd::LeaseExpired);
            let with = with.and_then(|worker| lost.get(&worker));
            self.expire_one(pos, end, with.map_or(&[], Vec::as_slice))?;
        }
        Ok(Did::DONE)
    }

    /// S26: ends the Attempts, so that the Steps go back. If a Step ends its worker at once, its
    /// acknowledgement is lost too, and this looks like a worker that was gone before. So from
    /// [`UNACKNOWLEDGED_MAX`] in a row on, each counts as a loss (S11, S12).
    pub(super) fn unacknowledged(&mut self, ids: &[AttemptId]) -> Result<Did, Rejection> {
        for pos in self.held_under(ids) {
            let in_a_row = self.task.note_unacknowledged(pos);
            let is_loss = in_a_row >= UNACKNOWLEDGED_MAX;
            let reason = if is_loss { LeaseEnd::LeaseExpired } else { LeaseEnd::Released };
            self.expire_one(pos, reason, &[])?;
        }
        Ok(Did::DONE)
    }

    fn holder(&self, pos: Pos) -> Option<AgentId> {
        Some(self.task.attempts[self.task.steps[pos].state.current?].worker_id.clone())
    }

    /// The Steps whose open Attempts are among these, in creation order.
    fn held_under(&self, ids: &[AttemptId]) -> Vec<Pos> {
        let open = ids.iter().filter_map(|id| self.task.attempts.by_key(id));
        let open = open.filter(|a| a.outcome.is_none()).map(|a| a.step);
        let mut steps: Vec<Pos> = open.collect();
        steps.sort_unstable();
        steps.dedup();
        steps
    }

    /// S11, or S12 if no losses are left, or too many hosts have died of it (RETRY-13); `with` are all Steps
    /// that were lost with its worker.
    fn expire_one(&mut self, pos: Pos, reason: LeaseEnd, with: &[StepId]) -> Result<(), Rejection> {
        let Some(at) = self.task.steps[pos].state.current else { return Ok(()) };
        let attempt = &self.task.attempts[at];
        if self.task.is_closing() {
            return self.run_is_gone(attempt.run);
        }
        let max_lost = attempt.retry_policy.as_ref().and_then(|p| p.max_lost?.number());
        let mut event = self.lease_end(pos, reason)?;
        let id = &self.task.steps[pos].spec.step_id;
        event.lost_with = with.iter().filter(|it| *it != id).take(LOST_WITH_MAX).cloned().collect();
        let lost_with = lost_with(&event.lost_with);
        self.emit_on(By::system(), pos, Body::StepLeaseExpired(event))?;
        let state = &self.task.steps[pos].state;
        let why = match reason {
            LeaseEnd::LeaseExpired if max_lost.is_some_and(|max| state.lost_count >= max) => {
                Reason { details: lost_with, ..Reason::code("lost") }
            }
            LeaseEnd::HostRestarted if state.host_deaths >= self.cx.limits.max_host_deaths => {
                let message = format!(
                    "its host ended {} times in a row while it ran: reopen it to try again",
                    state.host_deaths
                );
                Reason::new("lost", &message)
            }
            _ => return Ok(()),
        };
        let event = StepFailed {
            attempt_id: None,
            outcome: None,
            reason: why,
            attempt_count: None,
            retry_after_ms: None,
            report: None,
        };
        self.emit_on(By::system(), pos, Body::StepFailed(event))
    }
}

impl Task {
    /// LEASE-14: an outage counts as a loss in Tasks of the first edition, and after `max_lost` outages in a
    /// row: then it may be the Step that causes them.
    fn lease_end_of(&self, pos: Pos, reason: LeaseEnd) -> LeaseEnd {
        let state = &self.steps[pos].state;
        let policy = state.current.and_then(|at| self.attempts[at].retry_policy.as_deref());
        let max = policy.and_then(|policy| policy.max_lost).and_then(Limit::number);
        let counts = self.head.rules < Rules::Second || max.is_some_and(|max| state.outages >= max);
        if reason == LeaseEnd::Outage && counts { LeaseEnd::LeaseExpired } else { reason }
    }

    /// How many Attempts in a row, up to `last`, workers gave back as not fit for them.
    fn unfit_in_a_row(&self, last: Option<Pos>) -> u32 {
        let attempt = |pos: Pos| &self.attempts[pos];
        let back = core::iter::successors(last, |&pos| attempt(pos).previous).take(UNFIT_LOOKED_AT);
        let unfit = back.take_while(|&pos| attempt(pos).was_unfit());
        u32::try_from(unfit.count()).unwrap_or(u32::MAX)
    }

    /// The Step that a Run holds.
    pub(crate) fn held_by(&self, run: Pos) -> Option<Pos> {
        let attempt = &self.attempts[self.runs[run].attempt?];
        attempt.outcome.is_none().then_some(attempt.step)
    }

    /// K4 with state: the Attempt is the caller's own. A caller that names an Attempt that does not
    /// exist learns nothing about the Task.
    pub(super) fn check_own_attempt(&self, cx: &Cx<'_>, id: AttemptId) -> Result<(), Rejection> {
        let attempt = self.attempts.by_key(&id).ok_or_else(stale)?;
        if attempt.worker_id == cx.caller.agent {
            return Ok(());
        }
        Err(Rejection::new(Code::PermissionDenied, "the attempt is another worker's"))
    }

    /// K4 with state: the Run is the caller's own.
    pub(super) fn check_own_run(&self, cx: &Cx<'_>, run_id: RunId) -> Result<(), Rejection> {
        let pos = self.run_or_reject(run_id)?;
        if cx.caller.role != Role::Worker {
            return Ok(());
        }
        let run = &self.runs[pos];
        let holder =
            run.worker_id.as_ref().or_else(|| self.volatile.taken.get(&pos).map(|taken| &taken.by));
        let member = cx.caller.worker_pool_id.as_ref() == Some(&run.worker_pool_id);
        if member && holder.is_none_or(|who| *who == cx.caller.agent) {
            return Ok(());
        }
        Err(Rejection::new(Code::PermissionDenied, format!("run {run_id} is not yours")))
    }
}

/// The refusal `task_terminal`: no worker holds a Step of a Task that has ended with this status.
pub fn nothing_held(status: TaskStatus) -> Rejection {
    Rejection::new(Code::TaskTerminal, format!("the task is {status}"))
}
