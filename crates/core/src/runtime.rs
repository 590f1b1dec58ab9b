//! Runtime events: what happens around Runs and changes no Task (EVENT-07).
//!
//! They are hints: sent once to those who listen, stored in no log, and not available later.

use alloc::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::{AgentId, AttemptId, Millis, RunId, SessionId, StepId, TaskId};
use crate::read::View;
use crate::status::names;
use crate::table::Pos;

names! {
    /// The names of runtime events.
    RuntimeName {
        /// A Run did not stop in time (TERM-13).
        ChildAgentCancelTimeout = "child_agent_cancel_timeout",
        /// Another worker claimed the Step first (CLAIM-10).
        ClaimLost = "claim_lost",
        /// A worker took a Run that no worker had (5.4 `take_run`).
        RunTaken = "run_taken",
        /// The final output of a Run (DISP-13).
        RunResult = "run_result",
        /// A Run with a Step was asked to stop (CANCEL-07).
        CancelSignal = "cancel_signal",
    }
}

/// Something that happened to a Run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RuntimeEvent {
    /// What happened.
    pub event: RuntimeName,
    /// The session.
    pub session_id: SessionId,
    /// The Task.
    pub task_id: TaskId,
    /// The Run.
    pub run_id: RunId,
    /// The Step that the Run claimed, or that another worker claimed first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_id: Option<StepId>,
    /// The Attempt that the Run made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt_id: Option<AttemptId>,
    /// The worker, as far as it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<AgentId>,
    /// When.
    pub created_at: Millis,
    /// The final output, with `run_result` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Arc<str>>,
}

impl RuntimeEvent {
    /// An event of a Run, which is given by its position.
    pub fn of(view: &View<'_>, event: RuntimeName, run: Pos, created_at: Millis) -> Self {
        let spec = &view.head().spec;
        let (run, taken_by) = (view.run_at(run), view.memory_of(run).taken_by);
        let attempt = run.attempt.map(|at| view.attempt_at(at));
        Self {
            event,
            session_id: spec.session_id.clone(),
            task_id: spec.task_id.clone(),
            run_id: run.run_id,
            step_id: attempt.map(|a| a.step_id.clone()),
            attempt_id: attempt.map(|a| a.attempt_id),
            worker_id: run.worker_id.as_ref().or(taken_by).cloned(),
            created_at,
            result: None,
        }
    }
}
