//! Why the Steps of a Task are not running: Steps with the same reason form a group, with one of
//! them explained as an example. So the answer is short even for a Task with many Steps.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cell::RefCell;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::frontier::{Frontier, Root};
use super::{Case, Explanation, ForWhom, find_run};
use crate::command::{Caller, Operator};
use crate::completion::{Hindrance, hindrances};
use crate::eligibility::Obstacle;
use crate::id::{AgentId, Ref, RunId, SessionId, StepId, TaskId};
use crate::limits::Limits;
use crate::operation::{Query, TaskQuery};
use crate::read::{StepRef, View};
use crate::record::Reason;
use crate::reject::{Code, Rejection};
use crate::status::{StepStatus, TaskStatus};
use crate::view::summary::StepCounts;
use crate::view::{Known, Normal, TaskSummary};

/// How many Steps of a group are named.
const NAMED_MAX: usize = 20;

/// The input of `explain` for a whole Task.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ExplainTaskInput {
    /// Ask whether this Run could claim them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// Ask whether this worker could claim them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<AgentId>,
}

/// Why a Task's Steps are not running, in groups by reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskExplanation {
    /// The Task.
    pub task_id: TaskId,
    /// Its session.
    pub session_id: SessionId,
    /// Its normalized status.
    pub status: Normal,
    /// Its native status.
    pub native_status: TaskStatus,
    /// Why it has this status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_reason: Option<Reason>,
    /// Its version.
    pub version: u64,
    /// `wal_seq` of the event by which orchestrators last changed what it is to do (OCC-07).
    #[serde(default, skip_serializing_if = "crate::view::is_unknown")]
    pub spec_version: u64,
    /// Its Steps by native status.
    pub counts: StepCounts,
    /// The groups, most decisive reason first; empty: no Step waits for anything.
    pub groups: Vec<Group>,
    /// What keeps the Task from completing although its Steps are done (VIEW-15).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hindrances: Vec<Hindrance>,
    /// Late input of the completed Task that no completed Attempt has seen (CTRL-12).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unread_input_refs: Vec<Ref>,
    /// If no Step waits any more: some of the Steps that failed by themselves, not because the Task failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<EndedStep>,
}

/// Steps that one reason keeps from running.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Group {
    /// The reason.
    pub headline: Obstacle,
    /// How many Steps the group has.
    pub count: usize,
    /// Its first Steps.
    pub step_ids: Vec<StepId>,
    /// How many Steps `step_ids` does not name.
    pub more: usize,
    /// The explanation of the first of them.
    pub example: Explanation,
    /// For Steps that wait for others: the causes of the waiting.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roots: Vec<Root>,
    /// How many causes `roots` does not name.
    #[serde(default)]
    pub more_roots: usize,
}

/// A Step that has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EndedStep {
    /// The Step.
    pub step_id: StepId,
    /// Its status.
    pub status: StepStatus,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
}

/// Why the Steps of a Task are not running, for a Run, a worker, or in general. In a live Task
/// failed Steps count too, and required ones that are cancelled, as they wait for a decision. The cost is one
/// pass over the Task, and a copy of it, on which remedies are tried.
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
    let is_asked = |step: &StepRef<'_>| match step.status() {
        StepStatus::Failed => is_live,
        StepStatus::Cancelled => is_live && step.spec.required,
        status => status.is_unfinished(),
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
        spec_version: summary.spec_version,
        counts: summary.counts,
        groups,
        hindrances: hindrances(view),
        unread_input_refs: view.head().unread_input_refs.as_deref().cloned().unwrap_or_default(),
        failed,
    })
}

/// Steps that failed by themselves, not because the Task failed.
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
    /// Removes half of the names in the group with the most. Returns whether there was such a group
    /// (CTRL-06).
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
