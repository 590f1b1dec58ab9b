//! `agent.task_update_step`: execution status and results of a Step (REPORT, the matrix of 3.2).
//!
//! Step 10 of the walk in docs/architecture.md.

use alloc::boxed::Box;
use alloc::format;

use super::close::reason_or;
use super::settle::check_peer;
use super::tx::Did;
use super::{Command, Cx, Reply, StepReport, Tx, invalid_transition};
use crate::event::{
    Body, ReportFacts, StepBlocked, StepCancelled, StepCompleted, StepFailed, StepReopened,
    StepStarted, StepUpdated,
};
use crate::id::{AttemptId, Millis};
use crate::record::Reason;
use crate::reject::{Code, Rejection};
use crate::rules::Rules;
use crate::status::{
    AttemptStatus, EndReason, Outcome, Policy, Role, StepStatus, TaskStatus, WaitKind,
};
use crate::table::Pos;
use crate::task::derived::after;
use crate::task::{Attempt, Head, Made, StepState, Task};

impl Tx<'_, '_> {
    pub(super) fn report(&mut self, report: &StepReport) -> Result<Did, Rejection> {
        if let Some(attempt) = self.task.late_result(self.cx, report) {
            return self.adopt(attempt, report);
        }
        let pos = self.reported_step(report)?;
        let (from, rules) = (self.task.steps[pos].state.status, self.task.head.rules);
        match report.status {
            None if from == StepStatus::Completed && rules >= Rules::Second => {
                self.settle_facts(pos, report)?;
            }
            None => {
                check_editable(from)?;
                self.check_reported(pos, report)?;
                self.note_progress(pos, report)?;
            }
            Some(to) if self.cx.caller.role == Role::Worker => {
                check_holder_move(from, to)?;
                self.write(pos, to, report)?;
                if let Some(result) = &report.run_result
                    && let Some(attempt) = self.task.claimed_by_run(self.cx, report)
                {
                    self.hand_on(attempt.run, result);
                }
            }
            Some(to) => {
                if !(to == StepStatus::Running && self.is_held_on_behalf(pos)) {
                    check_orchestrator_move(from, to, rules)?;
                }
                self.write(pos, to, report)?;
            }
        }
        Ok(Did::DONE)
    }

    /// The reported Step: a worker must hold it, and for an orchestrator the Task must not be a
    /// draft (TASK-03).
    fn reported_step(&self, report: &StepReport) -> Result<Pos, Rejection> {
        if self.cx.caller.role == Role::Worker {
            // A Step deleted since has no current Attempt either.
            let pos = self.task.claimed_by_run(self.cx, report).ok_or_else(stale)?.step;
            self.task.check_current(pos, report.attempt_id, report.fencing_token)?;
            return Ok(pos);
        }
        let pos = self.task.step_or_reject(&report.step_id)?;
        if self.task.head.status == TaskStatus::Draft {
            let from = self.task.steps[pos].state.status;
            return Err(invalid_transition(from.as_str(), report.status.unwrap_or(from).as_str()));
        }
        Ok(pos)
    }

    fn write(&mut self, pos: Pos, to: StepStatus, report: &StepReport) -> Result<(), Rejection> {
        self.check_reported(pos, report)?;
        match to {
            StepStatus::Running => self.start(pos, report),
            StepStatus::Blocked => {
                let event = StepBlocked {
                    attempt_id: self.task.current_attempt_id(pos),
                    wait_kind: report.wait_kind.unwrap_or(WaitKind::Other),
                    reason: reason_or(report.reason.as_ref(), "blocked"),
                    report: self.facts(report),
                };
                self.emit_on(self.caller(), pos, Body::StepBlocked(event))
            }
            StepStatus::Completed => {
                self.reopen_marked(pos)?;
                if self.task.steps[pos].state.current.is_some() {
                    check_peer(report, self.task.steps[pos].state.peer())?;
                }
                let attempt_id = self.task.current_attempt_id(pos);
                let outcome = attempt_id.map(|_| Outcome::Completed);
                let event = StepCompleted { attempt_id, outcome, ..self.completion(report) };
                self.emit_on(self.caller(), pos, Body::StepCompleted(event))
            }
            StepStatus::Failed => {
                let reason = reason_or(report.reason.as_ref(), "failed");
                let floor_ms =
                    report.retry_after_ms.filter(|_| self.cx.limits.edition >= Rules::Second);
                let facts = self.facts(report);
                self.fail_step(pos, reason, Outcome::Failed, facts, self.caller(), floor_ms)
            }
            StepStatus::Cancelled => {
                let attempt_id = self.task.current_attempt_id(pos);
                let event = StepCancelled {
                    attempt_id,
                    outcome: attempt_id.map(|_| Outcome::Cancelled),
                    reason: report.reason.as_ref().map(|r| reason_or(Some(r), "cancelled")),
                    report: self.facts(report),
                };
                self.emit_on(self.caller(), pos, Body::StepCancelled(event))
            }
            StepStatus::Pending => {
                let event = StepReopened {
                    from: self.task.steps[pos].state.status,
                    reason: reason_or(report.reason.as_ref(), "reopened"),
                    not_before: None,
                    input_refs: report.input_refs.clone(),
                    counters_reset: true,
                };
                self.emit_on(self.caller(), pos, Body::StepReopened(Box::new(event)))
            }
            StepStatus::Ready | StepStatus::Claimed => {
                Err(invalid_transition(self.task.steps[pos].state.status.as_str(), to.as_str()))
            }
        }
    }

    /// REPORT-14: the Step takes over the result of its last Attempt, which was lost.
    fn adopt(&mut self, attempt: Pos, report: &StepReport) -> Result<Did, Rejection> {
        let Attempt { step, run, attempt_id, ref remote, .. } = self.task.attempts[attempt];
        check_peer(report, remote.as_deref())?;
        self.check_reported(step, report)?;
        let attempt_id = Some(attempt_id);
        let event = StepCompleted { attempt_id, adopted: true, ..self.completion(report) };
        self.emit_on(self.caller(), step, Body::StepCompleted(event))?;
        if let Some(result) = &report.run_result {
            self.hand_on(run, result);
        }
        Ok(Did::DONE)
    }

    /// What a report says of the Step that it completes.
    fn completion(&self, report: &StepReport) -> StepCompleted {
        StepCompleted {
            attempt_id: None,
            outcome: None,
            reason: report.reason.as_ref().map(|r| reason_or(Some(r), "completed")),
            output: report.output.clone(),
            reply: report.reply,
            adopted: false,
            report: self.facts(report),
        }
    }

    /// Fails a Step, for its holder, its orchestrator or the scheduler. Counts the Attempt if it
    /// counts (RETRY-03); a retry follows later in the same commit (S19).
    pub(super) fn fail_step(
        &mut self,
        pos: Pos,
        reason: Reason,
        outcome: Outcome,
        report: Option<Box<ReportFacts>>,
        by: super::tx::By,
        retry_after_ms: Option<u64>,
    ) -> Result<(), Rejection> {
        let state = &self.task.steps[pos].state;
        let attempt_id = self.task.current_attempt_id(pos);
        let counts = attempt_id.is_some()
            && matches!(outcome, Outcome::Failed | Outcome::TimedOut | Outcome::Abandoned);
        let attempt_count = attempt_id.map(|_| state.attempt_count + u32::from(counts));
        let holder = state.current.map(|at| self.task.attempts[at].run_id);
        let by_system = by.run.is_none() && by.agent == crate::id::system_agent();
        let may_retry = holder.is_some() && (by_system || by.run == holder);
        let event = StepFailed {
            attempt_id,
            outcome: attempt_id.map(|_| outcome),
            reason,
            attempt_count,
            retry_after_ms,
            report,
        };
        self.emit_on(by, pos, Body::StepFailed(event))?;
        if may_retry {
            self.failed.push((pos, retry_after_ms.unwrap_or(0)));
        }
        Ok(())
    }

    fn start(&mut self, pos: Pos, report: &StepReport) -> Result<(), Rejection> {
        if self.task.steps[pos].state.status == StepStatus::Running {
            return self.note_progress(pos, report); // S06: a repeated `running` is progress.
        }
        let Some(attempt_id) = self.task.current_attempt_id(pos) else {
            let from = self.task.steps[pos].state.status;
            return Err(invalid_transition(from.as_str(), "running"));
        };
        let lease_expires_at = self.new_expiry(pos);
        let event = StepStarted { attempt_id, lease_expires_at, report: self.facts(report) };
        self.emit_on(self.caller(), pos, Body::StepStarted(event))
    }

    pub(super) fn note_progress(&mut self, pos: Pos, report: &StepReport) -> Result<(), Rejection> {
        let by_holder = self.cx.caller.role == Role::Worker || self.is_held_on_behalf(pos);
        let attempt_id = self.task.current_attempt_id(pos).filter(|_| by_holder);
        let event = StepUpdated {
            attempt_id,
            lease_expires_at: attempt_id.map(|_| self.new_expiry(pos)),
            report: self.facts(report),
        };
        self.emit_on(self.caller(), pos, Body::StepUpdated(event))
    }

    /// LEASE-04: a report renews the lease.
    fn new_expiry(&self, pos: Pos) -> Millis {
        let attempt = self.task.steps[pos].state.current.map(|at| &self.task.attempts[at]);
        let policy = attempt.and_then(|a| a.retry_policy.as_deref());
        let asked_for = attempt.filter(|a| a.on_behalf).map(|a| a.lease_ms);
        after(self.now(), asked_for.unwrap_or_else(|| self.cx.limits.lease_ms_under(policy)))
    }

    /// CLAIM-16: whether an orchestrator holds the Step for a worker, so that its reports are the holder's.
    fn is_held_on_behalf(&self, pos: Pos) -> bool {
        self.task.steps[pos].state.current.is_some_and(|at| self.task.attempts[at].on_behalf)
    }

    /// The fields that every report may carry.
    fn facts(&self, report: &StepReport) -> Option<Box<ReportFacts>> {
        ReportFacts {
            progress: report.progress.clone(),
            result_summary: report.result_summary.clone(),
            artifact_ids: report.artifact_ids.clone(),
            artifacts: report.artifacts.clone(),
            output_refs: report.output_refs.clone(),
            checkpoint_refs: report.checkpoint_refs.clone(),
            remote: report.remote.clone(),
            input_seen: self.newly_seen(report),
        }
        .boxed()
    }
}

/// Checks that a holder may write this status change (3.2).
fn check_holder_move(from: StepStatus, to: StepStatus) -> Result<(), Rejection> {
    use StepStatus::{Blocked, Cancelled, Completed, Failed, Running};
    if from.is_held() && matches!(to, Running | Blocked | Completed | Failed | Cancelled) {
        return Ok(());
    }
    Err(invalid_transition(from.as_str(), to.as_str()))
}

/// Checks that an orchestrator may write this status change (3.2).
fn check_orchestrator_move(
    from: StepStatus,
    to: StepStatus,
    rules: Rules,
) -> Result<(), Rejection> {
    use StepStatus::{Blocked, Cancelled, Claimed, Completed, Failed, Pending, Ready, Running};
    match (from, to) {
        (Pending, Blocked | Failed | Cancelled)
        | (Ready, Blocked | Completed | Failed | Cancelled)
        | (Claimed | Running, Blocked | Completed | Failed)
        | (Blocked, Pending | Failed)
        | (Failed, Pending) => Ok(()),
        (Blocked | Failed, Completed) if rules >= Rules::Second => Ok(()), // STEP-36
        (Pending, Completed) => Err(Rejection::new(
            Code::StepNotReady,
            "the step is pending, so it cannot be completed",
        )),
        (Claimed | Running, Cancelled) => Err(in_progress("cancel")),
        (Completed, _) => Err(immutable()),
        (Pending | Ready | Claimed | Running | Blocked | Failed | Cancelled, _) => {
            Err(invalid_transition(from.as_str(), to.as_str()))
        }
    }
}

/// A report without a status may change any Step but completed and cancelled ones.
fn check_editable(from: StepStatus) -> Result<(), Rejection> {
    match from {
        StepStatus::Completed => Err(immutable()),
        StepStatus::Cancelled => Err(invalid_transition("cancelled", "cancelled")),
        _ => Ok(()),
    }
}

pub(crate) fn immutable() -> Rejection {
    Rejection::new(Code::StepHistoryImmutable, "the step is completed: its results do not change")
}

pub(crate) fn in_progress(what: &str) -> Rejection {
    let message = format!("the step is claimed or running; to {what} it, cancel its run first");
    Rejection::new(Code::StepInProgress, message)
}

pub(crate) fn stale() -> Rejection {
    Rejection::new(Code::StaleAttempt, "the attempt is not the current one of its step")
}

impl Task {
    /// REPORT-14: Attempt and token must be the Step's current ones.
    pub(crate) fn check_current(
        &self,
        pos: Pos,
        attempt_id: Option<AttemptId>,
        token: Option<u64>,
    ) -> Result<(), Rejection> {
        let current = self.steps[pos].state.current.map(|at| &self.attempts[at]);
        match current {
            Some(a) if Some(a.attempt_id) == attempt_id && Some(a.fencing_token) == token => Ok(()),
            _ => Err(stale()),
        }
    }

    /// After K7: checks the right that depends on the state: the worker's Run has claimed the Step (3.2).
    pub(super) fn check_rights(&self, cx: &Cx<'_>, command: &Command) -> Result<(), Rejection> {
        match command {
            Command::TaskUpdateStep(report) if cx.caller.role == Role::Worker => {
                self.check_worker_report(cx, report)
            }
            Command::TaskClaimStep { run_id, .. } => self.check_claimer(cx.caller, *run_id),
            Command::ReleaseStep { attempt_id, .. } => self.check_own_attempt(cx, *attempt_id),
            Command::AppendTaskProgress(_) if cx.caller.role == Role::Worker => {
                let message = "a worker reports progress on the step it holds";
                Err(Rejection::new(Code::PermissionDenied, message))
            }
            Command::EndRun(end) => self.check_own_run(cx, end.run_id),
            Command::DeclineRun(decline) => self.check_own_run(cx, decline.run_id),
            Command::CancelRun(cancel) => self.run_or_reject(cancel.run_id).map(drop),
            _ => Ok(()),
        }
    }

    fn check_worker_report(&self, cx: &Cx<'_>, report: &StepReport) -> Result<(), Rejection> {
        check_workers_status(report)?;
        self.claimed_by_run(cx, report).map(drop).ok_or_else(|| not_claimed(report))
    }

    /// The Attempt that the caller's Run has made on the reported Step.
    fn claimed_by_run(&self, cx: &Cx<'_>, report: &StepReport) -> Option<&Attempt> {
        let run = self.runs.by_key(&cx.caller.run_id?)?;
        let attempt = &self.attempts[run.attempt?];
        let own = attempt.worker_id == cx.caller.agent && attempt.step_id == report.step_id;
        own.then_some(attempt)
    }

    /// REPORT-14: the lost Attempt whose late `completed` the Step takes over.
    fn late_result(&self, cx: &Cx<'_>, report: &StepReport) -> Option<Pos> {
        if report.status != Some(StepStatus::Completed) {
            return None;
        }
        let attempt = self.claimed_by_run(cx, report).filter(|a| a.is_named_by(report))?;
        let state = &self.steps[attempt.step].state;
        attempt.may_be_adopted(&self.head, state).then_some(state.last_attempt?)
    }

    /// K6, REPORT-16: a repeated final report of an ended Attempt gets the first answer.
    pub(super) fn repeated_report(&self, cx: &Cx<'_>, command: &Command) -> Option<Reply> {
        let Command::TaskUpdateStep(report) = command else { return None };
        if cx.caller.role != Role::Worker {
            return None;
        }
        let attempt = self.claimed_by_run(cx, report)?;
        if !attempt.is_named_by(report)
            || attempt.status != AttemptStatus::Ended
            || !self.says_the_same(attempt, report)
        {
            return None;
        }
        let written = attempt.ended_in?;
        Some(Reply {
            written: Some(written),
            version: written.version(),
            spec_version: None,
            made: Made::Nothing,
            changed: alloc::vec![attempt.step],
            waits: None,
        })
    }

    fn says_the_same(&self, attempt: &Attempt, report: &StepReport) -> bool {
        let outcome = match report.status {
            Some(StepStatus::Completed) => Outcome::Completed,
            Some(StepStatus::Failed) => Outcome::Failed,
            Some(StepStatus::Blocked) => Outcome::Blocked,
            Some(StepStatus::Cancelled) => Outcome::Cancelled,
            _ => return false,
        };
        let default = report.status.map_or("", StepStatus::as_str);
        let given = report.reason.as_ref().map(|r| r.code.as_deref().unwrap_or(default));
        let needs_reason = matches!(outcome, Outcome::Failed | Outcome::Blocked);
        let given = given.or(needs_reason.then_some(default));
        let output = self.steps[attempt.step].state.facts().output.as_ref();
        let by_itself = self.runs[attempt.run].end_reason == Some(EndReason::Completed);
        let (ended_as, said) = match attempt.adopted.as_deref() {
            Some(adopted) => (Some(Outcome::Completed), adopted.reason.as_ref()),
            None => (attempt.outcome.filter(|_| by_itself), attempt.error.as_deref()),
        };
        ended_as == Some(outcome)
            && said.map(|e| e.code.as_str()) == given
            && attempt.completion_summary.as_deref() == report.result_summary.as_deref()
            && (outcome != Outcome::Completed || output == report.output.as_ref())
    }
}

impl Attempt {
    /// REPORT-14: whether `completed` would still count although this Attempt of the Step was lost: nobody
    /// else has had the Step since, and it still is the same work.
    pub(crate) fn may_be_adopted(&self, head: &Head, state: &StepState) -> bool {
        let is_last = self.outcome == Some(Outcome::Lost) && state.ordinal == self.ordinal;
        let is_free = matches!(state.status, StepStatus::Pending | StepStatus::Ready)
            && state.unmet == 0
            && !state.removed;
        let is_open = head.cancel_requested.is_none() && !head.status.is_terminal();
        let is_same = state.redefined_seq < self.fencing_token;
        let asked_for = self.retry_policy.as_ref().and_then(|policy| policy.accept_late);
        let accepts = asked_for.unwrap_or(head.first_completion == Policy::Auto);
        head.rules >= Rules::Second && is_last && is_free && is_open && is_same && accepts
    }

    fn is_named_by(&self, report: &StepReport) -> bool {
        report.attempt_id == Some(self.attempt_id)
            && report.fencing_token == Some(self.fencing_token)
    }
}

/// K4: a report must not have content fields (REPORT-04).
pub(super) fn check_content_fields(cx: &Cx<'_>, command: &Command) -> Result<(), Rejection> {
    let Command::TaskUpdateStep(report) = command else { return Ok(()) };
    let Some(field) = report.content_fields.first() else { return Ok(()) };
    let message = format!("{field} is content: agent.task_update changes it");
    let code = match cx.caller.role {
        Role::Worker => Code::PermissionDenied,
        _ => Code::ValidationError,
    };
    Err(Rejection::new(code, message).with("field", field.as_str()))
}

/// Refuses statuses that no worker may write, whatever the Step's status (3.2).
pub(super) fn check_workers_status(report: &StepReport) -> Result<(), Rejection> {
    match report.status {
        Some(StepStatus::Pending | StepStatus::Ready) => {
            let message = "only the orchestrator reopens a step";
            Err(Rejection::new(Code::PermissionDenied, message))
        }
        Some(StepStatus::Claimed) => Err(invalid_transition("claimed", "claimed")),
        _ => Ok(()),
    }
}

pub(super) fn not_claimed(report: &StepReport) -> Rejection {
    let message = "your run did not claim this step";
    Rejection::new(Code::PermissionDenied, message).with("step_id", report.step_id.as_str())
}
