//! The facts of an ended Task that its trace is made from.

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
    /// The facts of a Task in its last state; none if it has not ended.
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
