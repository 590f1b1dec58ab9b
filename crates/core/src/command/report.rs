//! `agent.task_update_step`: execution status and results of a Step (REPORT, the matrix of 3.2).

use alloc::boxed::Box;
use alloc::format;

use super::close::reason_or;
use super::tx::Did;
use super::{Command, Cx, Reply, StepReport, Tx, invalid_transition};
use crate::event::{
    Body, ReportFacts, StepBlocked, StepCancelled, StepCompleted, StepFailed, StepReopened,
    StepStarted, StepUpdated,
};
use crate::id::{AttemptId, Millis};
use crate::record::Reason;
use crate::reject::{Code, Rejection};
use crate::status::{AttemptStatus, Outcome, Role, StepStatus, TaskStatus, WaitKind};
use crate::table::Pos;
use crate::task::derived::after;
use crate::task::{Attempt, Made, Task};

impl Tx<'_, '_> {
    pub(super) fn report(&mut self, report: &StepReport) -> Result<Did, Rejection> {
        let pos = self.reported_step(report)?;
        let from = self.task.steps[pos].state.status;
        match report.status {
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
                check_orchestrator_move(from, to)?;
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
                let attempt_id = self.task.current_attempt_id(pos);
                let event = StepCompleted {
                    attempt_id,
                    outcome: attempt_id.map(|_| Outcome::Completed),
                    reason: report.reason.as_ref().map(|r| reason_or(Some(r), "completed")),
                    output: report.output.clone(),
                    reply: report.reply,
                    report: self.facts(report),
                };
                self.emit_on(self.caller(), pos, Body::StepCompleted(event))
            }
            StepStatus::Failed => {
                let reason = reason_or(report.reason.as_ref(), "failed");
                self.fail_step(pos, reason, Outcome::Failed, self.facts(report), self.caller())
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

    /// Fails a Step, for its holder, its orchestrator or the scheduler. Counts the Attempt if it
    /// counts (RETRY-03); a retry follows later in the same commit (S19).
    pub(super) fn fail_step(
        &mut self,
        pos: Pos,
        reason: Reason,
        outcome: Outcome,
        report: Option<Box<ReportFacts>>,
        by: super::tx::By,
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
            report,
        };
        self.emit_on(by, pos, Body::StepFailed(event))?;
        if may_retry {
            self.failed.push(pos);
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

    fn note_progress(&mut self, pos: Pos, report: &StepReport) -> Result<(), Rejection> {
        let worker = self.cx.caller.role == Role::Worker;
        let attempt_id = self.task.current_attempt_id(pos).filter(|_| worker);
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
        after(self.now(), self.cx.limits.lease_ms_under(policy))
    }

    /// The fields that every report may carry.
    #[allow(clippy::unused_self)]
    fn facts(&self, report: &StepReport) -> Option<Box<ReportFacts>> {
        ReportFacts {
            progress: report.progress.clone(),
            result_summary: report.result_summary.clone(),
            artifact_ids: report.artifact_ids.clone(),
            artifacts: report.artifacts.clone(),
            output_refs: report.output_refs.clone(),
            checkpoint_refs: report.checkpoint_refs.clone(),
            remote: report.remote.clone(),
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
pub fn check_orchestrator_move(from: StepStatus, to: StepStatus) -> Result<(), Rejection> {
    use StepStatus::{Blocked, Cancelled, Claimed, Completed, Failed, Pending, Ready, Running};
    match (from, to) {
        (Pending, Blocked | Failed | Cancelled)
        | (Ready, Blocked | Completed | Failed | Cancelled)
        | (Claimed | Running, Blocked | Completed | Failed)
        | (Blocked, Pending | Failed)
        | (Failed, Pending) => Ok(()),
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

    /// K6, REPORT-16: a repeated final report of an ended Attempt gets the first answer.
    pub(super) fn repeated_report(&self, cx: &Cx<'_>, command: &Command) -> Option<Reply> {
        let Command::TaskUpdateStep(report) = command else { return None };
        if cx.caller.role != Role::Worker {
            return None;
        }
        let attempt = self.claimed_by_run(cx, report)?;
        let same_attempt = report.attempt_id == Some(attempt.attempt_id)
            && report.fencing_token == Some(attempt.fencing_token);
        if !same_attempt
            || attempt.status != AttemptStatus::Ended
            || !self.says_the_same(attempt, report)
        {
            return None;
        }
        let written = attempt.ended_in?;
        Some(Reply {
            written: Some(written),
            version: written.version(),
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
        let run = &self.runs[attempt.run];
        attempt.outcome == Some(outcome)
            && run.end_reason == Some(crate::status::EndReason::Completed)
            && attempt.error.as_ref().map(|e| e.code.as_str()) == given
            && attempt.completion_summary.as_deref() == report.result_summary.as_deref()
            && (outcome != Outcome::Completed || output == report.output.as_ref())
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
