//! How the reducer applies an event to its Step, and to the Step's Attempt and Run.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use serde_json::Value as Json;

use super::apply::{Applied, At, Contradiction};
use super::undo::Note;
use super::{Adopted, Attempt, RELEASE_REASON, Run, StepState, Task, text};
use crate::event::{
    Body, Event, LeaseEnd, ReportFacts, StepClaimed, StepCompleted, StepLeaseExpired, StepReopened,
};
use crate::id::{AttemptId, StepId};
use crate::record::{Object, Reason, WorkerOrigin, add_once};
use crate::status::{AttemptStatus, EndReason, Outcome, RunState, StepStatus, WaitKind};
use crate::table::Pos;

impl Task {
    pub(super) fn apply_to_step(&mut self, pos: Pos, event: &Event, at: At) -> Applied {
        let from = self.steps[pos].state.status;
        let to = from.after(&event.body).ok_or_else(|| {
            format!(
                "{} on step {} that is {from}",
                event.body.event_type(),
                self.steps[pos].spec.step_id
            )
        })?;
        match &event.body {
            Body::StepReady(_) if self.steps[pos].state.unmet > 0 => Err(format!(
                "step {} is ready before its dependencies",
                self.steps[pos].spec.step_id
            )
            .into()),
            Body::StepCompleted(_) if self.steps[pos].state.unmet > 0 && !from.is_held() => {
                Err(format!(
                    "step {} is completed before its dependencies",
                    self.steps[pos].spec.step_id
                )
                .into())
            }
            Body::StepReady(_) => {
                let awake = self.head.resting.awake(at);
                self.change(pos, |s| {
                    s.status = to;
                    s.counts_from.get_or_insert(awake);
                    s.ready_at = Some(at.time);
                    s.not_before = None;
                    s.shift = at.shift;
                    s.updated_at = at.time;
                });
                Ok(())
            }
            Body::StepClaimed(p) => self.claim(pos, p, event, at),
            Body::StepStarted(p) => {
                let attempt = self.open_attempt(pos, p.attempt_id)?;
                self.change_attempt(attempt, |a| {
                    a.status = AttemptStatus::Running;
                    a.begun_at = Some(at.time);
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
                self.add_facts(pos, p.report.as_deref(), attempt, at)?;
                self.reconcile_attempt(pos);
                Ok(())
            }
            Body::StepBlocked(p) => {
                let ending = Ending::of(event, p.attempt_id, Outcome::Blocked, Some(&p.reason));
                if let Some(attempt) = self.steps[pos].state.current {
                    self.change_attempt(attempt, |a| a.waited_for = Some(p.wait_kind));
                }
                let awake = self.head.resting.awake(at);
                self.settle_step(pos, to, ending, p.report.as_deref(), at, |s| {
                    s.counts_from = Some(awake);
                    s.wait_kind = Some(p.wait_kind);
                    s.facts_mut().status_reason = Some(p.reason.clone());
                })
            }
            Body::StepCompleted(p) if p.adopted => {
                let ending = Ending::of(event, None, Outcome::Completed, None);
                self.adopt(pos, to, ending, p, at)
            }
            Body::StepCompleted(p) => {
                let ending = Ending::of(event, p.attempt_id, Outcome::Completed, p.reason.as_ref());
                self.settle_step(pos, to, ending, p.report.as_deref(), at, |s| take_output(s, p))?;
                self.note_join(pos);
                Ok(())
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
            Body::StepTakenOver(p) => self.take_over(pos, p, at),
            Body::StepLeaseExpired(p) => {
                let lost = p.reason.outcome() == Outcome::Lost;
                let error = error_of(p);
                let attempt = self.open_attempt(pos, p.attempt_id)?;
                let had_begun = self.attempts[attempt].begun_at.is_some();
                let end = if lost { EndReason::Lost } else { EndReason::Released };
                self.end_attempt(attempt, p.reason.outcome(), Some(&error), None, end, at);
                self.change(pos, |s| {
                    s.status = to;
                    s.current = None;
                    s.leave_peer();
                    s.lost_count = p.lost_count;
                    s.outages = match p.reason {
                        LeaseEnd::Outage => s.outages + 1,
                        LeaseEnd::LeaseExpired => s.outages,
                        LeaseEnd::Released | LeaseEnd::HostRestarted => 0,
                    };
                    s.host_deaths = match p.reason {
                        LeaseEnd::HostRestarted if had_begun => s.host_deaths + 1,
                        _ => 0,
                    };
                    if p.not_before.is_some() {
                        s.not_before = p.not_before;
                        s.shift = at.shift;
                    }
                    s.updated_at = at.time;
                });
                if lost {
                    self.head_mut().last_error = Some(Arc::new(error));
                }
                Ok(())
            }
            other => Err(format!("{} takes no step_id", other.event_type()).into()),
        }
    }

    fn claim(&mut self, pos: Pos, p: &StepClaimed, event: &Event, at: At) -> Applied {
        let step = &self.steps[pos];
        if p.fencing_token != at.seq || p.ordinal != step.state.ordinal + 1 {
            return Err(
                format!("claim of {} with wrong token or ordinal", step.spec.step_id).into()
            );
        }
        if self.attempts.find(&p.attempt_id).is_some() {
            return Err(format!("attempt {} exists", p.attempt_id).into());
        }
        let attempt_pos = crate::table::next_pos(self.attempts.len());
        let run = self.run_of_claim(p, attempt_pos, at)?;
        let attempt = Attempt {
            attempt_id: p.attempt_id,
            step: pos,
            step_id: self.steps[pos].spec.step_id.clone(),
            run,
            run_id: p.run_id,
            worker_id: if p.on_behalf { &p.worker_id } else { &event.actor }.clone(),
            origin: WorkerOrigin::of(p.worker_host.as_deref(), p.worker_build.as_deref())
                .map(Arc::new),
            ordinal: p.ordinal,
            fencing_token: p.fencing_token,
            status: AttemptStatus::Claimed,
            outcome: None,
            waited_for: None,
            error: None,
            input_refs: match p.input_refs.as_slice() {
                [] => Arc::default(), // Takes no memory, unlike an empty list made by `from`.
                refs => Arc::from(refs),
            },
            input_seen: self.head.input_count(),
            output_refs: Arc::clone(&self.no_refs),
            checkpoint_refs: Arc::clone(&self.no_refs),
            completion_summary: None,
            retry_policy: p.retry_policy.clone(),
            ready_at: self.steps[pos].state.ready_at.unwrap_or(at.time),
            step_snapshot: Arc::new(p.step_snapshot.clone()),
            updated_after_dispatch: false,
            remote: None,
            started_at: at.time,
            begun_at: None,
            ended_at: None,
            lease_ms: u64::try_from(p.lease_expires_at.saturating_sub(at.time)).unwrap_or(0),
            on_behalf: p.on_behalf,
            lease_expires_at: p.lease_expires_at,
            progress_at: None,
            previous: self.steps[pos].state.last_attempt,
            ended_in: None,
            adopted: None,
        };
        self.note(|_| Note::AttemptAdded);
        self.attempts.push(attempt);
        self.change(pos, |s| {
            s.status = StepStatus::Claimed;
            s.ordinal = p.ordinal;
            s.current = Some(attempt_pos);
            s.last_attempt = Some(attempt_pos);
            s.ready_at = None;
            s.shift = at.shift;
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

    fn run_of_claim(
        &mut self,
        p: &StepClaimed,
        attempt: Pos,
        at: At,
    ) -> Result<Pos, Contradiction> {
        if let Some(pos) = self.runs.find(&p.run_id) {
            if self.runs[pos].state != RunState::Dispatched || self.runs[pos].attempt.is_some() {
                return Err(format!("run {} cannot claim", p.run_id).into());
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
            shift: at.shift,
            created_at: at.time,
            ended_at: None,
        }))
    }

    fn open_attempt(&self, pos: Pos, id: AttemptId) -> Result<Pos, Contradiction> {
        let current = self.steps[pos].state.current;
        let found = current.filter(|&at| self.attempts[at].attempt_id == id);
        Ok(found.ok_or_else(|| {
            format!("attempt {id} is not the current one of step {}", self.steps[pos].spec.step_id)
        })?)
    }

    /// Moves a Step to blocked, completed, failed or cancelled, with the other facts of the event,
    /// and ends the Attempt if one is open.
    fn settle_step(
        &mut self,
        pos: Pos,
        to: StepStatus,
        ending: Ending<'_>,
        report: Option<&ReportFacts>,
        at: At,
        also: impl FnOnce(&mut StepState),
    ) -> Applied {
        let attempt = ending.attempt_id.map(|id| self.open_attempt(pos, id)).transpose()?;
        if attempt.is_none() && self.steps[pos].state.status.is_held() {
            return Err(format!("step {} has an open attempt", self.steps[pos].spec.step_id).into());
        }
        self.add_facts(pos, report, attempt, at)?;
        if let Some(attempt) = attempt {
            let end = self.end_reason(attempt, &ending);
            let summary = report.and_then(|r| r.result_summary.as_deref());
            self.end_attempt(attempt, ending.outcome, ending.error, summary, end, at);
        }
        self.change(pos, |s| {
            if attempt.is_some() {
                (s.outages, s.host_deaths) = (0, 0);
            }
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

    /// REPORT-14: takes over the result of the Step's last Attempt, which stays lost.
    fn adopt(
        &mut self,
        pos: Pos,
        to: StepStatus,
        ending: Ending<'_>,
        p: &StepCompleted,
        at: At,
    ) -> Applied {
        let state = &self.steps[pos].state;
        let last = state.last_attempt.filter(|&last| {
            let attempt = &self.attempts[last];
            p.attempt_id == Some(attempt.attempt_id) && attempt.outcome == Some(Outcome::Lost)
        });
        let attempt =
            last.filter(|_| state.unmet == 0 && p.outcome.is_none()).ok_or_else(|| {
                format!("step {} cannot adopt what was reported", self.steps[pos].spec.step_id)
            })?;
        let report = p.report.as_deref();
        self.add_facts(pos, report, Some(attempt), at)?;
        self.change_attempt(attempt, |a| {
            a.adopted = Some(Arc::new(Adopted { at: at.time, reason: p.reason.clone() }));
            a.completion_summary = report.and_then(|r| r.result_summary.as_deref()).map(text);
            a.ended_in = Some(at.written);
        });
        let peer = self.attempts[attempt].remote.clone();
        self.settle_step(pos, to, ending, None, at, |s| {
            if let Some(peer) = peer {
                s.facts_mut().remote = Some((*peer).clone());
                s.remote_left = false;
            }
            take_output(s, p);
        })?;
        self.note_join(pos);
        Ok(())
    }

    /// Why a Run ended (3.4): it depends on who ended its Attempt.
    fn end_reason(&self, attempt: Pos, ending: &Ending<'_>) -> EndReason {
        let code = ending.error.map_or("", |e| e.code.as_str());
        match (ending.by_system, code) {
            (true, "task_failed" | "task_cancelled") => EndReason::TaskTerminal,
            (true, "worker_cancelled") => EndReason::Cancelled,
            (true, "worker_timeout" | "schedule_to_close_timeout") => EndReason::TimedOut,
            (true, _) => EndReason::FinishedWithoutTerminalStepStatus,
            (false, _) if self.attempts[attempt].on_behalf => EndReason::Completed,
            (false, _) if ending.run == Some(self.attempts[attempt].run_id) => EndReason::Completed,
            (false, _) => EndReason::Revoked,
        }
    }

    /// Whether a failure fails an automatic Task (POL-05): not if an orchestrator wrote it or asked for it.
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
            return Err(format!("reopened from {} but it is {from}", p.from).into());
        }
        let answers = self.steps[pos].state.wait_kind;
        if matches!(answers, Some(WaitKind::Input | WaitKind::Permission)) && self.head.picked_up {
            self.head_mut().picked_up = false;
        }
        self.change(pos, |s| {
            s.status = StepStatus::Pending;
            s.leave_peer();
            s.fatal_failure = false;
            s.wait_kind = None;
            s.not_before = p.not_before;
            s.shift = at.shift;
            s.updated_at = at.time;
            s.redefined_seq = at.seq;
            if p.counters_reset {
                (s.attempt_count, s.lost_count) = (0, 0);
                (s.outages, s.host_deaths) = (0, 0);
                s.counts_from = None;
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

    /// STEP-34: what is recorded of the peer of a completed Step counts for the Attempt that completed it.
    fn reconcile_attempt(&mut self, pos: Pos) {
        let state = &self.steps[pos].state;
        let attempt = state.last_attempt.filter(|&at| self.attempts[at].completed_step());
        let Some(attempt) = attempt.filter(|_| state.status == StepStatus::Completed) else {
            return;
        };
        let remote = state.peer().cloned().map(Arc::new);
        if self.attempts[attempt].remote != remote {
            self.change_attempt(attempt, |a| a.remote = remote);
        }
    }

    fn add_facts(
        &mut self,
        pos: Pos,
        report: Option<&ReportFacts>,
        attempt: Option<Pos>,
        at: At,
    ) -> Applied {
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
                let seen = report.input_seen.and_then(|seen| u32::try_from(seen).ok());
                a.input_seen = a.input_seen.max(seen.unwrap_or(0));
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
            s.remote_left &= report.remote.is_none();
        });
        Ok(())
    }
}

fn take_output(s: &mut StepState, p: &StepCompleted) {
    if p.output.is_some() || p.reply.is_some() {
        s.facts_mut().output.clone_from(&p.output);
        s.facts_mut().reply = p.reply;
    }
}

/// The error of an Attempt that ended without a report.
fn error_of(end: &StepLeaseExpired) -> Reason {
    let mut error = Reason::code(end.reason.as_str());
    let given_back = end
        .release_reason
        .map(|why| Object::from_iter([(RELEASE_REASON.to_owned(), why.as_str().into())]));
    error.details = given_back.or_else(|| lost_with(&end.lost_with));
    error
}

/// The details that name the Steps lost together with one; `None` if no others were.
pub(crate) fn lost_with(steps: &[StepId]) -> Option<Object> {
    let names: Vec<Json> = steps.iter().map(|id| id.as_str().into()).collect();
    (!steps.is_empty()).then(|| Object::from_iter([("lost_with".to_owned(), names.into())]))
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
