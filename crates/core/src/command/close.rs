//! `agent.task_complete`, `agent.task_fail`, `agent.task_cancel`: the end of a Task (TERM, CANCEL).

use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::vec::Vec;

use smol_str::SmolStr;

use super::inputs::needs_second;
use super::tx::{By, Did};
use super::{Close, Complete, Tx, invalid_transition};
use crate::completion::{self, Hindrance};
use crate::event::{Body, CancelRequested, Ended, StepCancelled, StepFailed};
use crate::id::StepId;
use crate::patch::ReasonInput;
use crate::record::Reason;
use crate::reject::{Code, Rejection};
use crate::rules::Rules;
use crate::runtime::RuntimeName;
use crate::status::{Intent, Outcome, StepStatus, TaskStatus};
use crate::table::{Pos, next_pos};
use crate::task::derived::after;
use crate::task::{Attempt, CommandRecord, StepState, Task};

/// A closing: whether it cancels or fails the Task, why, and who asked for it.
pub(super) struct Closing {
    intent: Intent,
    reason: Reason,
    by: Option<By>,
    /// How long Runs may take to stop, if the command says so (POL-12).
    grace_ms: Option<u64>,
}

impl Closing {
    /// A cancellation by the scheduler.
    pub(super) fn cancel(reason: Reason) -> Self {
        Self { intent: Intent::Cancel, reason, by: None, grace_ms: None }
    }

    /// A failure by the completion policy.
    pub(super) fn fail(reason: Reason) -> Self {
        Self { intent: Intent::Fail, reason, by: None, grace_ms: None }
    }
}

impl Tx<'_, '_> {
    pub(super) fn complete(&mut self, given: &Complete) -> Result<Did, Rejection> {
        if self.task.head.status == TaskStatus::Draft {
            return Err(invalid_transition("draft", "completed"));
        }
        needs_second(self.task.head.rules, "output", given.output.is_some())?;
        self.task.check_nothing_held()?;
        self.task.check_required_completed()?;
        self.check_reported_on_task(&given.artifacts, None)?;
        self.check_facts(given)?;
        let acceptance = given.acceptance.as_ref().unwrap_or(&self.task.head.spec.acceptance);
        self.task.check_acceptance(acceptance)?;
        let ended = Ended {
            reason: None,
            result_summary: given.result_summary.clone(),
            acceptance: given.acceptance.clone(),
            artifacts: given.artifacts.clone(),
            evidence_refs: given.evidence_refs.clone(),
            output: given.output.clone(),
            output_from: None,
            unread_input_refs: self.task.unread_input_refs(),
        };
        self.drop_unfinished(|_| None)?;
        self.emit(self.caller(), Body::TaskCompleted(Box::new(ended)))?;
        Ok(Did::DONE)
    }

    /// TERM-10: names what is not reconciled, each with the command that settles it.
    fn check_facts(&self, given: &Complete) -> Result<(), Rejection> {
        let found = completion::unreconciled(&self.task.live(), &given.artifacts);
        found.map_or(Ok(()), |hindrance| Err(hindered(Code::FactsUnreconciled, hindrance)))
    }

    /// T09: cancels optional pending and ready Steps, as the Task completes.
    pub(super) fn drop_unfinished(
        &mut self,
        why: impl Fn(&StepState) -> Option<Reason>,
    ) -> Result<(), Rejection> {
        let left = self.task.positions().filter_map(|pos| {
            let state = &self.task.steps[pos].state;
            let is_left = matches!(state.status, StepStatus::Pending | StepStatus::Ready);
            (is_left && !state.removed).then(|| (pos, why(state)))
        });
        for (pos, reason) in left.collect::<Vec<_>>() {
            let event = StepCancelled { attempt_id: None, outcome: None, reason, report: None };
            self.emit_on(By::system(), pos, Body::StepCancelled(event))?;
        }
        Ok(())
    }

    pub(super) fn fail(&mut self, given: &Close) -> Result<Did, Rejection> {
        if self.task.head.status == TaskStatus::Draft {
            return Err(invalid_transition("draft", "failed"));
        }
        self.close(Intent::Fail, given, "task_failed")
    }

    pub(super) fn cancel(&mut self, given: &Close) -> Result<Did, Rejection> {
        self.close(Intent::Cancel, given, "task_cancelled")
    }

    fn close(&mut self, intent: Intent, given: &Close, code: &str) -> Result<Did, Rejection> {
        let waits = given.waits();
        let recorded = self.task.head.cancel_requested.as_ref().map(|c| c.intent);
        match recorded {
            Some(recorded) if recorded == intent => return Ok(Did { waits, ..Did::DONE }),
            Some(recorded) => {
                let message = "the task is being closed by another intent";
                return Err(
                    Rejection::new(Code::TaskCancelling, message).with("intent", recorded.as_str())
                );
            }
            None => {}
        }
        let reason = reason_or(given.reason.as_ref(), code);
        let grace_ms = given.grace_ms.filter(|_| self.task.head.rules >= Rules::Second);
        self.begin_closing(&Closing { intent, reason, by: Some(self.caller()), grace_ms })?;
        Ok(Did { waits, ..Did::DONE })
    }

    /// T10 to T13: ends the Task at once if no Step is held, and otherwise records the intent.
    pub(super) fn begin_closing(&mut self, closing: &Closing) -> Result<(), Rejection> {
        let by = closing.by.clone().unwrap_or_else(By::system);
        if self.task.derived.held.is_empty() {
            return self.end_all(closing.intent, &closing.reason, by);
        }
        let (task, limits) = (&*self.task, self.cx.limits);
        let grace = |a: &Attempt| limits.grace_ms_under(a.retry_policy.as_deref());
        let grace_ms = closing.grace_ms.or_else(|| task.open_attempts().map(grace).max());
        let event = CancelRequested {
            intent: closing.intent,
            reason: closing.reason.clone(),
            deadline_at: after(self.now(), grace_ms.unwrap_or(limits.cancel_wait_ms)),
            run_ids: task.open_attempts().map(|a| a.run_id).collect(),
        };
        self.emit(by, Body::TaskCancelRequested(event))
    }

    /// Phase 2 of a closing, when all Runs have ended or their time is up. For each Run that has
    /// not ended, it reports a `child_agent_cancel_timeout` (TERM-13).
    pub(super) fn end_closing(&mut self, time_is_up: bool) -> Result<(), Rejection> {
        let task = &*self.task;
        if !task.is_closing() || !(time_is_up || task.runs_at_work().next().is_none()) {
            return Ok(());
        }
        let Some(request) = task.head.cancel_requested.clone() else { return Ok(()) };
        let late: Vec<Pos> = task.runs_at_work().collect();
        late.into_iter().for_each(|run| self.tell(RuntimeName::ChildAgentCancelTimeout, run));
        self.name_after_request(request.seq);
        let by = By { agent: request.by.clone(), run: request.by_run };
        self.end_all(request.intent, &request.reason, by)
    }

    /// 2.5: phase 2 in a commit of its own carries the command that asked for the closing. A commit
    /// with other events carries the command that caused those.
    fn name_after_request(&mut self, seq: u64) {
        if self.commit.command_id.is_some() || !self.commit.events.is_empty() {
            return;
        }
        let asked = |c: &&CommandRecord| (c.written.first_seq..=c.written.version()).contains(&seq);
        if let Some(record) = self.task.commands.iter().find(asked) {
            self.commit.command_id = Some(record.command_id.clone());
            self.commit.command_digest = record.digest;
        }
    }

    /// TERM-14, TERM-15: ends every unfinished Step, in creation order, and then the Task.
    fn end_all(&mut self, intent: Intent, reason: &Reason, by: By) -> Result<(), Rejection> {
        for pos in self.task.positions() {
            let state = &self.task.steps[pos].state;
            if !state.removed && state.status.is_unfinished() {
                self.end_step(pos, intent)?;
            }
        }
        let ended = Box::new(Ended { reason: Some(reason.clone()), ..Ended::default() });
        match intent {
            Intent::Fail => self.emit(by, Body::TaskFailed(ended)),
            Intent::Cancel => self.emit(by, Body::TaskCancelled(ended)),
        }
    }

    fn end_step(&mut self, pos: Pos, intent: Intent) -> Result<(), Rejection> {
        let attempt_id = self.task.current_attempt_id(pos);
        let outcome = attempt_id.map(|_| Outcome::Cancelled);
        let body = match intent {
            Intent::Fail => Body::StepFailed(StepFailed {
                attempt_id,
                outcome,
                reason: Reason::code("task_failed"),
                attempt_count: None,
                retry_after_ms: None,
                report: summary_only("task_failed"),
            }),
            Intent::Cancel => Body::StepCancelled(StepCancelled {
                attempt_id,
                outcome,
                reason: Some(Reason::code("task_cancelled")),
                report: None,
            }),
        };
        self.emit_on(By::system(), pos, body)
    }
}

pub(super) fn summary_only(text: &str) -> Option<Box<crate::event::ReportFacts>> {
    let result_summary = Some(text.to_string());
    crate::event::ReportFacts { result_summary, ..Default::default() }.boxed()
}

/// The caller's reason, with a default code.
pub(super) fn reason_or(given: Option<&ReasonInput>, code: &str) -> Reason {
    let Some(given) = given else { return Reason::code(code) };
    Reason {
        code: given.code.clone().unwrap_or_else(|| SmolStr::new(code)),
        message: given.message.clone(),
        retryable: given.retryable,
        details: given.details.clone(),
    }
}

impl Task {
    /// All positions, in creation order.
    pub(crate) fn positions(&self) -> core::ops::Range<Pos> {
        0..next_pos(self.steps.len())
    }

    /// Runs that hold a Step and that are not known to have ended (RUN-08).
    fn runs_at_work(&self) -> impl Iterator<Item = Pos> {
        let holders = self.open_attempts().map(|a| a.run);
        holders.filter(|run| !self.volatile.gone.contains(run))
    }

    /// The open Attempt of a Step.
    pub(crate) fn current_attempt_id(&self, pos: Pos) -> Option<crate::id::AttemptId> {
        self.steps[pos].state.current.map(|at| self.attempts[at].attempt_id)
    }

    fn step_ids(&self, keep: impl Fn(&crate::task::Step) -> bool) -> Vec<StepId> {
        let kept = self.steps.iter().filter(|s| !s.state.removed && keep(s));
        kept.map(|s| s.spec.step_id.clone()).collect()
    }

    fn check_nothing_held(&self) -> Result<(), Rejection> {
        if self.derived.held.is_empty() {
            return Ok(());
        }
        let ids = self.step_ids(|s| s.state.status.is_held());
        let message = "steps are claimed or running";
        Err(Rejection::new(Code::StepsInProgress, message).with("step_ids", ids_json(&ids)))
    }

    fn check_required_completed(&self) -> Result<(), Rejection> {
        if self.derived.tally.required_open == 0 {
            return Ok(());
        }
        let open =
            |s: &crate::task::Step| s.spec.required && s.state.status != StepStatus::Completed;
        let ids = self.step_ids(open);
        let advice = "complete them, make them optional (update_step with required false), or end the task \
                      (agent.task_fail)";
        let message = "required steps are not completed";
        Err(Rejection::new(Code::RequiredStepsIncomplete, message)
            .with("step_ids", ids_json(&ids))
            .with("advice", advice))
    }

    fn check_acceptance(&self, list: &[crate::record::Acceptance]) -> Result<(), Rejection> {
        let found = completion::unmet(list, true);
        found.map_or(Ok(()), |hindrance| Err(hindered(Code::AcceptanceUnmet, hindrance)))
    }
}

fn hindered(code: Code, by: Hindrance) -> Rejection {
    Rejection { details: by.details(), ..Rejection::new(code, by.text) }
}

/// Ids as JSON strings, for the details of a refusal.
pub(crate) fn ids_json(ids: &[StepId]) -> Vec<serde_json::Value> {
    ids.iter().map(|id| id.as_str().into()).collect()
}
