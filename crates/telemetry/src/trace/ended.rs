//! What is kept of an ended Task until its trace is made.

use smol_str::SmolStr;
use tenure_core::Task;
use tenure_core::id::{AgentId, AttemptId, HandlerName, Millis, PoolId, SessionId, StepId, TaskId};
use tenure_core::status::{EndReason, Outcome, TaskStatus};
use tenure_core::task::Attempt;

use super::ParentSpan;

/// A Task that has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct EndedTask {
    /// Its session.
    pub session_id: SessionId,
    /// Its id.
    pub task_id: TaskId,
    /// Its kind, as its maker wrote it.
    pub kind: Option<SmolStr>,
    /// The span of whoever made it.
    pub parent: Option<ParentSpan>,
    /// How it ended.
    pub status: TaskStatus,
    /// Why, as a code.
    pub code: Option<SmolStr>,
    /// When it was made.
    pub created_at: Millis,
    /// When it ended.
    pub ended_at: Millis,
    /// How many Steps it had.
    pub steps: usize,
    /// All its Attempts, in order of claim.
    pub attempts: Vec<EndedAttempt>,
}

/// An Attempt of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedAttempt {
    /// Its id.
    pub attempt_id: AttemptId,
    /// Its Step.
    pub step_id: StepId,
    /// What the Step runs.
    pub handler: HandlerName,
    /// Its pool.
    pub pool: PoolId,
    /// Its worker.
    pub worker_id: AgentId,
    /// Its number, from 1.
    pub ordinal: u32,
    /// How it ended.
    pub outcome: Option<Outcome>,
    /// Why, as a code.
    pub code: Option<SmolStr>,
    /// Since when the Step had been ready.
    pub ready_at: Millis,
    /// The claim.
    pub started_at: Millis,
    /// Since when its handler ran, where the worker said so, and how that ended. Of the others nobody
    /// knows how long they ran.
    pub handler_at: Option<Millis>,
    /// The end.
    pub ended_at: Millis,
    /// Where in the list the Attempt of the same Step before it is.
    pub previous: Option<usize>,
}

impl EndedTask {
    /// Of a Task in its last state; none if it has not ended.
    pub fn of(task: &Task) -> Option<Self> {
        let (head, view) = (task.head(), task.durable());
        let ended_at = head.ended_at?;
        let attempts = view.attempts().map(|attempt| EndedAttempt::of(task, attempt, ended_at));
        Some(Self {
            session_id: head.spec.session_id.clone(),
            task_id: head.spec.task_id.clone(),
            kind: head.spec.task_kind.clone(),
            parent: head.trace.as_deref().and_then(ParentSpan::parse),
            status: head.status,
            code: head.status_reason.as_ref().map(|reason| reason.code.clone()),
            created_at: head.created_at,
            ended_at,
            steps: view.steps().count(),
            attempts: attempts.collect(),
        })
    }
}

impl EndedAttempt {
    fn of(task: &Task, attempt: &Attempt, task_ended_at: Millis) -> Self {
        let (spec, run) = (&task.step_at(attempt.step).spec, task.run_at(attempt.run));
        let is_said = run.end_reason == Some(EndReason::Completed);
        Self {
            attempt_id: attempt.attempt_id,
            step_id: attempt.step_id.clone(),
            handler: spec.handler.clone(),
            pool: run.worker_pool_id.clone(),
            worker_id: attempt.worker_id.clone(),
            ordinal: attempt.ordinal,
            outcome: attempt.outcome,
            code: attempt.error.as_ref().map(|reason| reason.code.clone()),
            ready_at: attempt.ready_at,
            started_at: attempt.started_at,
            handler_at: attempt.begun_at.filter(|_| is_said),
            ended_at: attempt.ended_at.unwrap_or(task_ended_at),
            previous: attempt.previous.map(|at| at as usize),
        }
    }
}
