//! Why the Steps of a Task are not running: those with the same reason together, with one of them in
//! full as an example. So the answer is short however many Steps there are.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cell::RefCell;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::frontier::{Frontier, Root};
use super::{Case, Explanation, ForWhom, find_run};
use crate::command::{Caller, Operator};
use crate::eligibility::Obstacle;
use crate::id::{AgentId, RunId, SessionId, StepId, TaskId};
use crate::limits::Limits;
use crate::operation::{Query, TaskQuery};
use crate::read::{StepRef, View};
use crate::record::Reason;
use crate::reject::{Code, Rejection};
use crate::status::{StepStatus, TaskStatus};
use crate::view::summary::StepCounts;
use crate::view::{Known, Normal, TaskSummary};

/// Steps of a group that are named.
const NAMED_MAX: usize = 20;

/// What is asked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ExplainTaskInput {
    /// Whether this Run could claim them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// Whether this worker could claim them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<AgentId>,
}

/// Why a Task's Steps are not running, in groups of one reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskExplanation {
    /// The Task.
    pub task_id: TaskId,
    /// Its session.
    pub session_id: SessionId,
    /// Its status in portable words.
    pub status: Normal,
    /// Its native status.
    pub native_status: TaskStatus,
    /// Why it stands so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_reason: Option<Reason>,
    /// Its version.
    pub version: u64,
    /// Its Steps by native status.
    pub counts: StepCounts,
    /// Most decisive reason first; none: no Step waits for anything.
    pub groups: Vec<Group>,
    /// Where no Step waits any more: some of those that failed by themselves, and not with the Task.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<EndedStep>,
}

/// Steps that one reason keeps from running.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Group {
    /// The reason.
    pub headline: Obstacle,
    /// How many Steps.
    pub count: usize,
    /// The first of them.
    pub step_ids: Vec<StepId>,
    /// Steps that are not named in `step_ids`.
    pub more: usize,
    /// The first of them, in full.
    pub example: Explanation,
    /// What their waiting comes down to, for Steps that wait for others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roots: Vec<Root>,
    /// Causes that are not named in `roots`.
    #[serde(default)]
    pub more_roots: usize,
}

/// A Step that has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EndedStep {
    /// Which.
    pub step_id: StepId,
    /// Its status.
    pub status: StepStatus,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
}

/// Why the Steps of a Task are not running, for somebody: those that somebody may ask about. In a live
/// Task failed ones are among them, as they wait for a decision. Costs the Task once.
///
/// # Errors
/// `run_not_found`.
pub fn explain_task(
    view: &View<'_>,
    whom: ForWhom<'_>,
    known: &Known<'_>,
) -> Result<TaskExplanation, Rejection> {
    let run = whom.run_id.map(|id| find_run(view, id)).transpose()?;
    let facts = RefCell::default();
    let case = |step| Case { view, step, run, whom, known, facts: &facts };
    let is_live = !view.is_terminal();
    let is_asked = |step: &StepRef<'_>| {
        step.status().is_unfinished() || (is_live && step.status() == StepStatus::Failed)
    };
    let mut found: BTreeMap<Obstacle, (usize, Vec<StepRef<'_>>)> = BTreeMap::new();
    for step in view.steps().filter(is_asked) {
        let (count, named) = found.entry(case(step).headline()).or_default();
        *count += 1;
        if named.len() < NAMED_MAX {
            named.push(step);
        }
    }
    let waits_for_others = |why: &Obstacle| {
        matches!(why, Obstacle::DependencyPending | Obstacle::DependencyUnsatisfiable)
    };
    let frontier = found.keys().any(waits_for_others).then(|| Frontier::of(view));
    let groups = found.into_iter().filter_map(|(headline, (count, named))| {
        let (roots, more_roots) = match (headline, &frontier) {
            (Obstacle::DependencyPending, Some(frontier)) => frontier.moving(),
            (Obstacle::DependencyUnsatisfiable, Some(frontier)) => frontier.dead(),
            _ => (Vec::new(), 0),
        };
        let example = case(*named.first()?).explain();
        let more = count - named.len();
        let step_ids = named.into_iter().map(|step| step.id().clone()).collect();
        Some(Group { headline, count, step_ids, more, example, roots, more_roots })
    });
    let groups: Vec<Group> = groups.collect();
    let failed = if groups.is_empty() { failed(view) } else { Vec::new() };
    let summary = TaskSummary::of(view, known);
    Ok(TaskExplanation {
        task_id: summary.task_id,
        session_id: summary.session_id,
        status: summary.status,
        native_status: summary.native_status,
        status_reason: summary.status_reason,
        version: summary.version,
        counts: summary.counts,
        groups,
        failed,
    })
}

/// Steps that failed by themselves.
fn failed(view: &View<'_>) -> Vec<EndedStep> {
    let tried = view.failed().filter(|step| step.state.last_attempt.is_some());
    let ended = |step: StepRef<'_>| EndedStep {
        step_id: step.id().clone(),
        status: step.status(),
        reason: step.facts().status_reason.clone(),
    };
    tried.take(NAMED_MAX).map(ended).collect()
}

impl Query for ExplainTaskInput {
    const NAME: &'static str = "explain_task";
    const TOOL: Operator = Operator::InspectTask;
    const REFUSALS: &'static [Code] = &[Code::RunNotFound];
    type Output = TaskExplanation;

    fn shorten(&self, told: &mut TaskExplanation) -> bool {
        told.shorten()
    }
}

impl TaskQuery for ExplainTaskInput {
    fn read(
        &self,
        task: &View<'_>,
        _: &Caller,
        known: &Known<'_>,
        _: &Limits,
    ) -> Result<TaskExplanation, Rejection> {
        let whom = ForWhom { run_id: self.run_id, worker: self.worker_id.as_ref() };
        explain_task(task, whom, known)
    }
}

impl TaskExplanation {
    /// Names half of the Steps of the group that names most. Answers whether it could (CTRL-06).
    pub fn shorten(&mut self) -> bool {
        if self.failed.len() > 1 {
            self.failed.truncate(self.failed.len() / 2);
            return true;
        }
        let longest = self.groups.iter_mut().max_by_key(|group| group.step_ids.len());
        let Some(group) = longest.filter(|group| group.step_ids.len() > 1) else { return false };
        group.step_ids.truncate(group.step_ids.len() / 2);
        group.more = group.count - group.step_ids.len();
        true
    }
}
