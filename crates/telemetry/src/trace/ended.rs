//! The facts of an ended Task that its trace is made from.

use smol_str::SmolStr;
use tenure_core::Task;
use tenure_core::event::ReleaseReason;
use tenure_core::id::{AgentId, AttemptId, HandlerName, Millis, PoolId, SessionId, StepId, TaskId};
use tenure_core::read::StepRef;
use tenure_core::status::{EndReason, Outcome, StepStatus, TaskStatus, WaitKind};
use tenure_core::task::Attempt;

use super::notes::{EventOfTask, EventsOfTask, TraceNotes};
use super::{ParentSpan, task_span, trace_of};
use crate::names;

/// A Task that has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct EndedTask {
    /// Its session.
    pub session_id: SessionId,
    /// Its id.
    pub task_id: TaskId,
    /// Its kind, as its maker wrote it.
    pub kind: Option<SmolStr>,
    /// Its title, as its maker wrote it.
    pub title: SmolStr,
    /// The events of the Task that are not of an Attempt.
    pub events: EventsOfTask,
    /// The span that the Task's maker named.
    pub parent: Option<ParentSpan>,
    /// The status with which it ended.
    pub status: TaskStatus,
    /// Why it ended so, as a code.
    pub code: Option<SmolStr>,
    /// When it was created.
    pub created_at: Millis,
    /// When it ended.
    pub ended_at: Millis,
    /// How many Steps it had.
    pub steps: usize,
    /// All its Attempts, in order of claim.
    pub attempts: Vec<EndedAttempt>,
}

/// An Attempt of an ended Task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedAttempt {
    /// Its id.
    pub attempt_id: AttemptId,
    /// Its Step.
    pub step_id: StepId,
    /// The handler of the Step.
    pub handler: HandlerName,
    /// Its pool.
    pub pool: PoolId,
    /// Its worker.
    pub worker_id: AgentId,
    /// Its number, from 1.
    pub ordinal: u32,
    /// How it ended.
    pub outcome: Option<Outcome>,
    /// Why it ended so, as a code.
    pub code: Option<SmolStr>,
    /// Whether the Step would be tried again after such an end.
    pub is_retried: bool,
    /// What the Step waited for from then on.
    pub waited_for: Option<WaitKind>,
    /// Why its worker gave the Step back, if it did.
    pub given_back: Option<ReleaseReason>,
    /// When its lease was renewed last, if it is lost and that is known.
    pub heard_at: Option<Millis>,
    /// When the Step had become ready.
    pub ready_at: Millis,
    /// When the Step was claimed.
    pub started_at: Millis,
    /// When the handler began, if the worker reported both its start and its end. Otherwise nobody
    /// knows how long it ran.
    pub handler_at: Option<Millis>,
    /// When the Attempt ended.
    pub ended_at: Millis,
    /// The index of the previous Attempt of the same Step.
    pub previous: Option<usize>,
}

impl EndedTask {
    /// The facts of a Task in its last state, and what happened to it before, as far as that is noted; none
    /// if it has not ended.
    pub(crate) fn of(task: &Task, notes: &TraceNotes) -> Option<Self> {
        let (head, view) = (task.head(), task.durable());
        let ended_at = head.ended_at?;
        let parent = head.trace.as_deref().and_then(ParentSpan::parse);
        let (session, id) = (&head.spec.session_id, &head.spec.task_id);
        let mut events = notes.take((trace_of(session, id, parent), task_span(session, id)));
        let mut steps = 0;
        for step in view.steps() {
            steps += 1;
            never_begun(step).into_iter().for_each(|event| events.push(event));
        }
        events.events.sort_by_key(|event| event.at);
        let attempts = view.attempts().map(|attempt| {
            let over_at = match attempt.outcome {
                Some(Outcome::Lost) => notes.lease_end(attempt.attempt_id),
                _ => None,
            };
            EndedAttempt::of(task, attempt, ended_at, over_at)
        });
        Some(Self {
            session_id: head.spec.session_id.clone(),
            task_id: head.spec.task_id.clone(),
            kind: head.spec.task_kind.clone(),
            title: head.spec.title.clone(),
            events,
            parent,
            status: head.status,
            code: head.status_reason.as_ref().map(|reason| reason.code.clone()),
            created_at: head.created_at,
            ended_at,
            steps,
            attempts: attempts.collect(),
        })
    }
}

impl EndedAttempt {
    /// Whether the worker gave the Step back in good order: it had no capacity for it, or was to leave. That is no
    /// error. A worker that cannot run the Step, or had to stop it, is one.
    pub(super) fn went_back_in_order(&self) -> bool {
        matches!(self.given_back, Some(ReleaseReason::Surplus | ReleaseReason::Draining))
    }
}

/// The event of a Step that is settled, and never had an Attempt.
fn never_begun(step: StepRef<'_>) -> Option<EventOfTask> {
    if step.state.last_attempt.is_some() {
        return None;
    }
    let name = match step.state.status {
        StepStatus::Cancelled => names::EVENT_STEP_CANCELLED,
        StepStatus::Failed => names::EVENT_STEP_FAILED,
        StepStatus::Completed => names::EVENT_STEP_COMPLETED,
        _ => return None,
    };
    let code = step.facts().status_reason.as_ref().map(|reason| reason.code.clone());
    let step_id = Some(step.id().clone());
    Some(EventOfTask { step_id, code, ..EventOfTask::new(name, step.state.updated_at) })
}

impl EndedAttempt {
    fn of(
        task: &Task,
        attempt: &Attempt,
        task_ended_at: Millis,
        lease_over_at: Option<Millis>,
    ) -> Self {
        let (spec, run) = (&task.step_at(attempt.step).spec, task.run_at(attempt.run));
        let is_said = run.end_reason == Some(EndReason::Completed);
        let given_back = attempt
            .was_released()
            .then(|| attempt.release_reason().unwrap_or(ReleaseReason::unsaid()));
        // The lease was renewed for its whole time.
        let heard_at =
            lease_over_at.map(|over_at| over_at.saturating_sub_unsigned(attempt.lease_ms));
        Self {
            attempt_id: attempt.attempt_id,
            step_id: attempt.step_id.clone(),
            handler: spec.handler.clone(),
            pool: run.worker_pool_id.clone(),
            worker_id: attempt.worker_id.clone(),
            ordinal: attempt.ordinal,
            outcome: attempt.outcome,
            code: attempt.error.as_ref().map(|reason| reason.code.clone()),
            is_retried: attempt.ended_badly() || given_back.is_some(),
            waited_for: attempt.waited_for,
            given_back,
            heard_at: heard_at.map(|at| at.max(attempt.started_at)),
            ready_at: attempt.ready_at,
            started_at: attempt.started_at,
            handler_at: attempt.begun_at.filter(|_| is_said),
            ended_at: attempt.ended_at.unwrap_or(task_ended_at),
            previous: attempt.previous.map(|at| at as usize),
        }
    }
}
