//! The end of a run as one JSON object.

use serde::Serialize;
use serde_json::value::RawValue;
use tenure_core::id::{Millis, SessionId, StepId, TaskId};
use tenure_core::record::{Reason, Value};
use tenure_core::status::{StepStatus, TaskStatus};
use tenure_core::view::normal::Normal;
use tenure_core::view::summary::StepCounts;
use tenure_core::view::{Known, StepRef, TaskSummary, View};

use super::ended::{EndCauses, StepEnd, StepEndCounts, StopCause};
use crate::answer::human;

/// What `-o json` prints.
#[derive(Debug, Serialize)]
pub(super) struct RunReport<'a> {
    task_id: TaskId,
    session_id: SessionId,
    status: Normal,
    native_status: TaskStatus,
    status_reason: Option<Reason>,
    /// Why the Task ended, unless it completed.
    culprit: Option<StopCause<'a>>,
    steps: Vec<StepOutcome<'a>>,
    counts: StepCounts,
    /// Steps by what became of them.
    outcomes: StepEndCounts,
    elapsed_ms: u64,
}

/// One Step of the report.
#[derive(Debug, Serialize)]
struct StepOutcome<'a> {
    step_id: &'a StepId,
    status: StepStatus,
    /// Whether the Task needs it.
    required: bool,
    /// Attempts that failed, as retry policies count them.
    attempt_count: u32,
    /// Attempts that were not given back.
    attempts: usize,
    output: Option<Output<'a>>,
    result_summary: Option<&'a str>,
    status_reason: Option<&'a Reason>,
    /// Why it was stopped or never ran, if its status is only that of its Task.
    stopped_by: Option<StopCause<'a>>,
    started_at: Option<Millis>,
    ended_at: Option<Millis>,
}

/// An output: JSON unchanged, anything else with its media type.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Output<'a> {
    Json(&'a RawValue),
    Other(&'a Value),
}

impl<'a> RunReport<'a> {
    /// The report on a Task after this command has run for so long.
    pub(super) fn of(view: &View<'a>, elapsed_ms: u64) -> Self {
        let known = Known::new(human::now(), &|_| None);
        let task = TaskSummary::of(view, &known);
        let causes = EndCauses::of(view);
        Self {
            task_id: task.task_id,
            session_id: task.session_id,
            status: task.status,
            native_status: task.native_status,
            status_reason: task.status_reason,
            culprit: causes.cause(),
            steps: view.steps().map(|step| StepOutcome::of(view, &causes, step)).collect(),
            counts: task.counts,
            outcomes: StepEndCounts::of(view, view.steps()),
            elapsed_ms,
        }
    }
}

impl<'a> StepOutcome<'a> {
    fn of(view: &View<'a>, causes: &EndCauses<'a>, step: StepRef<'a>) -> Self {
        let has_spoken = !matches!(StepEnd::of(view, step), StepEnd::Stopped | StepEnd::NotRun);
        let (facts, times) = (step.facts(), Times::of(view, step));
        Self {
            step_id: step.id(),
            status: step.status(),
            required: step.spec.required,
            attempt_count: step.state.attempt_count,
            attempts: view.tries_of(step).count(),
            output: facts.output.as_ref().map(Output::of),
            result_summary: facts.result_summary.as_deref().filter(|_| has_spoken),
            status_reason: facts.status_reason.as_ref(),
            stopped_by: causes.stopped_by(view, step),
            started_at: times.started_at,
            ended_at: times.ended_at,
        }
    }
}

impl<'a> Output<'a> {
    fn of(value: &'a Value) -> Self {
        let json = value.data().filter(|_| value.content_type == Value::JSON);
        match json.and_then(|data| serde_json::from_slice(data).ok()) {
            Some(json) => Self::Json(json),
            None => Self::Other(value),
        }
    }
}

/// The time from the first Attempt of a Step to the end of its last, of those that were not given back.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    pub(super) started_at: Option<Millis>,
    /// None before the Step has ended.
    pub(super) ended_at: Option<Millis>,
}

impl Times {
    pub(super) fn of(view: &View<'_>, step: StepRef<'_>) -> Self {
        let newest = view.tries_of(step).next();
        let is_over = step.status().is_settled();
        Self {
            started_at: view.tries_of(step).last().map(|attempt| attempt.started_at),
            ended_at: newest.filter(|_| is_over).and_then(|attempt| attempt.ended_at),
        }
    }

    /// The length of this time.
    pub(super) fn duration(self) -> Option<Millis> {
        Some(self.ended_at? - self.started_at?)
    }
}
