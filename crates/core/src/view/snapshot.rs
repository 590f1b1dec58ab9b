//! `task_views`: the snapshot of many Tasks (VIEW-01 to VIEW-06).
//!
//! It is built Task by Task and can be merged, so that each partition makes its part and the caller
//! joins them. It has the live Tasks, and the newest ended ones, [`RECENT_MAX`] per index: their
//! results may still be on the way to those who wait for them (TERM-21).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::Known;
use super::explain::Remedy;
use super::normal::{Facts, Normal};
use super::run::AttemptView;
use super::summary::{TaskSummary, current_run_id, hindered, progress, unfinished};
use crate::completion;
use crate::id::{AgentId, ArtifactId, Millis, Ref, RunId, StepId, TaskId};
use crate::read::{StepRef, View};
use crate::record::{Edge, Object, Progress, Reason};
use crate::status::{DeliveryState, EdgeKind, EdgeStatus, End, TaskStatus, WaitKind};

pub use super::view_name::ViewName;

/// How many ended Tasks and Attempts count as recent.
pub const RECENT_MAX: usize = 50;

/// The requested views; others are absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Snapshot {
    /// Counts over all Tasks, and the newest ended ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_summary: Option<Totals>,
    /// A record per Task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<Vec<TaskRecord>>,
    /// Relations between Tasks, in both directions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_graph: Option<Vec<GraphEdge>>,
    /// Open Attempts and the newest ended ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<Attempts>,
    /// Tasks that wait for somebody, with the operations that would help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_tasks: Option<Vec<BlockedTask>>,
    /// Whether results have reached those who wait for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery_state: Option<BTreeMap<TaskId, DeliveryState>>,
    /// Tasks that are in no view, because their logs cannot be read (VIEW-07).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<TaskId>,
}

/// How many Tasks have ended in each way, archived or not: what an index stores of them for VIEW-01.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Ends([[u32; 2]; End::ALL.len()]);

impl Ends {
    /// Counts one more.
    pub fn add(&mut self, end: End, archived: bool) {
        self.0[end as usize][usize::from(archived)] += 1;
    }

    /// Counts one less.
    pub fn remove(&mut self, end: End, archived: bool) {
        let count = &mut self.0[end as usize][usize::from(archived)];
        *count = count.saturating_sub(1);
    }

    fn each(&self) -> impl Iterator<Item = (Facts, u32)> {
        let of = |end: End| {
            let counts = self.0[end as usize];
            [false, true]
                .map(|archived| (Facts::ended(end, archived), counts[usize::from(archived)]))
        };
        End::ALL.iter().flat_map(move |end| of(*end))
    }
}

/// VIEW-01: counts over all Tasks, and the newest ended ones.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Totals {
    /// Live Tasks.
    pub active: u64,
    /// Ended Tasks.
    pub terminal: u64,
    /// Tasks that failed, including failures by time limit and by loss.
    pub failed: u64,
    /// Tasks with the status `lost`, live or ended.
    pub lost: u64,
    /// Live Tasks that wait for input, permission or a resource, or are blocked.
    pub waiting: u64,
    /// Tasks whose status is unknown (VIEW-07).
    pub unknown: u64,
    /// The newest ended Tasks, newest first.
    pub recent_terminal: Vec<TaskSummary>,
}

/// VIEW-02: a Task in the view `tasks`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskRecord {
    /// The Task.
    pub task_id: TaskId,
    /// For people.
    pub title: SmolStr,
    /// Normalized status.
    pub status: Normal,
    /// Native status.
    pub native_status: TaskStatus,
    /// Attribution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<AgentId>,
    /// Opaque.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<Object>,
    /// The Run whose open Attempt is newest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_run_id: Option<RunId>,
    /// Its progress.
    pub progress: Progress,
    /// Stored relations that are active.
    pub relationships: Vec<Edge>,
    /// Its artifacts.
    pub artifact_ids: Vec<ArtifactId>,
    /// Evidence.
    pub evidence_refs: Vec<Ref>,
}

/// VIEW-03: a relation between two Tasks, either stored or the inverse of a stored one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GraphEdge {
    /// The relation.
    #[serde(flatten)]
    pub edge: Edge,
    /// Whether it is not stored, but the inverse of an edge that another Task stores (REL-04).
    pub derived: bool,
}

/// VIEW-04: open Attempts, and the newest ended ones.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Attempts {
    /// Open Attempts.
    pub active: Vec<AttemptView>,
    /// The newest ended ones, newest first.
    pub recent: Vec<AttemptView>,
}

/// VIEW-05: a Task that waits for somebody.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BlockedTask {
    /// The Task.
    pub task_id: TaskId,
    /// Normalized status.
    pub status: Normal,
    /// Native status.
    pub native_status: TaskStatus,
    /// Attribution: the owner of the Task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<AgentId>,
    /// Attribution: who requested the Task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_by: Option<AgentId>,
    /// Why, from the Task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// Steps that wait for the orchestrator.
    pub blockers: Vec<Blocker>,
    /// Tasks that block it by a relation; this only informs, and stops nothing (REL-07).
    pub blocked_by_task_ids: Vec<Ref>,
    /// Operations that would let it go on.
    pub required_action_ids: Vec<SmolStr>,
}

/// A Step that waits for the orchestrator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Blocker {
    /// The Step.
    pub step_id: StepId,
    /// What it waits for; absent: it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_kind: Option<WaitKind>,
    /// The only worker that may claim it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assignee: Option<AgentId>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// The operation that would let it go on: `<operation>:<step_id>`, or one on the Task.
    pub required_action_id: SmolStr,
}

impl Snapshot {
    /// An empty snapshot of the named views; of all views if none is named.
    pub fn asking(names: &[ViewName]) -> Self {
        let asked = |name: ViewName| names.is_empty() || names.contains(&name);
        Self {
            task_summary: asked(ViewName::TaskSummary).then(Totals::default),
            tasks: asked(ViewName::Tasks).then(Vec::new),
            task_graph: asked(ViewName::TaskGraph).then(Vec::new),
            attempts: asked(ViewName::Attempts).then(Attempts::default),
            blocked_tasks: asked(ViewName::BlockedTasks).then(Vec::new),
            delivery_state: asked(ViewName::DeliveryState).then(BTreeMap::new),
            unreadable: Vec::new(),
        }
    }

    /// Whether ended Tasks are counted: only VIEW-01 counts them.
    pub const fn counts_ended(&self) -> bool {
        self.task_summary.is_some()
    }

    /// Counts Tasks that have ended, without reading them.
    pub fn count_ended(&mut self, ends: &Ends) {
        if let Some(totals) = &mut self.task_summary {
            ends.each().for_each(|(facts, count)| totals.count(&facts, u64::from(count)));
        }
    }

    /// Adds a Task whose log cannot be read.
    pub fn note_unreadable(&mut self, task: &TaskId) {
        if let Some(totals) = &mut self.task_summary {
            totals.count(&Facts::UNREADABLE, 1);
        }
        self.unreadable.push(task.clone());
    }

    /// Adds a Task.
    pub fn add(&mut self, view: &View<'_>, known: &Known<'_>) {
        self.count(view, known);
        self.show(view, known);
    }

    pub(super) fn count(&mut self, view: &View<'_>, known: &Known<'_>) {
        if let Some(totals) = &mut self.task_summary {
            totals.count(&Facts::of(view, known), 1);
        }
    }

    pub(super) fn show(&mut self, view: &View<'_>, known: &Known<'_>) {
        let status = Facts::of(view, known).status();
        if let Some(totals) = self.task_summary.as_mut().filter(|_| view.status().is_terminal()) {
            totals.show(view, known);
        }
        if let Some(tasks) = &mut self.tasks {
            tasks.push(TaskRecord::of(view, status));
        }
        if let Some(graph) = &mut self.task_graph {
            let stored = view.edges().filter(|e| joins_tasks(e.kind));
            graph.extend(stored.map(|e| GraphEdge { edge: e.clone(), derived: false }));
        }
        if let Some(attempts) = &mut self.attempts {
            attempts.add(view, known);
        }
        if let Some(blocked) = &mut self.blocked_tasks {
            blocked.extend(BlockedTask::of(view, status));
        }
        if let Some(delivery) = &mut self.delivery_state {
            delivery.insert(view.task_id().clone(), view.head().delivery_state);
        }
    }

    /// Adds another part of the same snapshot: other Tasks in the same views.
    pub fn merge(&mut self, other: Self) {
        join(&mut self.task_summary, other.task_summary, Totals::merge);
        join(&mut self.tasks, other.tasks, Vec::extend);
        join(&mut self.task_graph, other.task_graph, Vec::extend);
        join(&mut self.attempts, other.attempts, Attempts::merge);
        join(&mut self.blocked_tasks, other.blocked_tasks, Vec::extend);
        join(&mut self.delivery_state, other.delivery_state, BTreeMap::extend);
        self.unreadable.extend(other.unreadable);
    }

    /// The finished snapshot, with inverse relations, and sorted.
    #[must_use]
    pub fn finish(mut self) -> Self {
        self.unreadable.sort();
        if let Some(tasks) = &mut self.tasks {
            tasks.sort_by(|a, b| a.task_id.cmp(&b.task_id));
        }
        if let Some(blocked) = &mut self.blocked_tasks {
            blocked.sort_by(|a, b| a.task_id.cmp(&b.task_id));
        }
        if let Some(graph) = &mut self.task_graph {
            let inverse: Vec<GraphEdge> = graph.iter().filter_map(|e| inverse(&e.edge)).collect();
            let known = |new: &GraphEdge| graph.iter().any(|old| old.is_same_relation(&new.edge));
            let missing: Vec<GraphEdge> = inverse.into_iter().filter(|e| !known(e)).collect();
            graph.extend(missing);
            graph.sort_by(|a, b| a.edge.edge_id.cmp(&b.edge.edge_id));
        }
        self
    }
}

fn join<T>(ours: &mut Option<T>, theirs: Option<T>, add: impl FnOnce(&mut T, T)) {
    if let (Some(ours), Some(theirs)) = (ours, theirs) {
        add(ours, theirs);
    }
}

impl Totals {
    fn count(&mut self, facts: &Facts, tasks: u64) {
        let terminal = facts.native.is_terminal();
        if facts.readable {
            *if terminal { &mut self.terminal } else { &mut self.active } += tasks;
        }
        match facts.status() {
            Normal::Failed | Normal::TimedOut => self.failed += tasks,
            Normal::Lost => {
                self.lost += tasks;
                self.failed += if terminal { tasks } else { 0 };
            }
            Normal::Archived if facts.native == TaskStatus::Failed => self.failed += tasks,
            Normal::WaitingInput
            | Normal::WaitingPermission
            | Normal::WaitingResource
            | Normal::Blocked => self.waiting += tasks,
            Normal::Unknown | Normal::Stale => self.unknown += tasks,
            _ => {}
        }
    }

    fn show(&mut self, view: &View<'_>, known: &Known<'_>) {
        self.recent_terminal.push(TaskSummary::of(view, known));
        self.trim();
    }

    fn merge(&mut self, other: Self) {
        self.active += other.active;
        self.terminal += other.terminal;
        self.failed += other.failed;
        self.lost += other.lost;
        self.waiting += other.waiting;
        self.unknown += other.unknown;
        self.recent_terminal.extend(other.recent_terminal);
        self.trim();
    }

    fn trim(&mut self) {
        let newest = |t: &TaskSummary| core::cmp::Reverse(t.updated_at);
        self.recent_terminal.sort_by(|a, b| (newest(a), &a.task_id).cmp(&(newest(b), &b.task_id)));
        self.recent_terminal.truncate(RECENT_MAX);
    }
}

impl TaskRecord {
    fn of(view: &View<'_>, status: Normal) -> Self {
        let head = view.head();
        let spec = &head.spec;
        Self {
            task_id: spec.task_id.clone(),
            title: spec.title.clone(),
            status,
            native_status: head.status,
            owner: spec.owner.clone(),
            scope: spec.scope.clone(),
            current_run_id: current_run_id(view),
            progress: progress(view),
            relationships: active_edges(view).cloned().collect(),
            artifact_ids: view.artifacts().map(|a| a.given.artifact_id.clone()).collect(),
            evidence_refs: head.evidence_refs.to_vec(),
        }
    }
}

fn active_edges<'a>(view: &'a View<'_>) -> impl Iterator<Item = &'a Edge> {
    view.edges().filter(|e| e.status == EdgeStatus::Active)
}

/// Whether a relation is one between Tasks.
const fn joins_tasks(kind: EdgeKind) -> bool {
    matches!(
        kind,
        EdgeKind::Parent
            | EdgeKind::Child
            | EdgeKind::Blocks
            | EdgeKind::BlockedBy
            | EdgeKind::SourceTask
            | EdgeKind::RetryOf
    )
}

impl GraphEdge {
    fn is_same_relation(&self, other: &Edge) -> bool {
        self.edge.kind == other.kind && self.edge.from == other.from && self.edge.to == other.to
    }
}

/// REL-04: the relation from its other end, if there is a name for it.
fn inverse(edge: &Edge) -> Option<GraphEdge> {
    let kind = match edge.kind {
        EdgeKind::Parent => EdgeKind::Child,
        EdgeKind::Child => EdgeKind::Parent,
        EdgeKind::Blocks => EdgeKind::BlockedBy,
        EdgeKind::BlockedBy => EdgeKind::Blocks,
        _ => return None,
    };
    let edge_id = crate::command::relate::edge_id(kind, &edge.to, &edge.from).ok()?;
    let (from, to) = (edge.to.clone(), edge.from.clone());
    Some(GraphEdge { edge: Edge { edge_id, kind, from, to, ..edge.clone() }, derived: true })
}

impl Attempts {
    fn add(&mut self, view: &View<'_>, known: &Known<'_>) {
        self.active.extend(view.open_attempts().map(|a| AttemptView::of(view, a, known)));
        let ended = view.attempts().filter(|a| a.outcome.is_some());
        let mut newest: Vec<_> = ended.collect();
        newest.sort_by_key(|a| core::cmp::Reverse((a.ended_at, a.attempt_id)));
        newest.truncate(RECENT_MAX);
        self.recent.extend(newest.into_iter().map(|a| AttemptView::of(view, a, known)));
        self.trim();
    }

    fn merge(&mut self, other: Self) {
        self.active.extend(other.active);
        self.recent.extend(other.recent);
        self.trim();
    }

    fn trim(&mut self) {
        let at = |a: &AttemptView| -> (Option<Millis>, crate::id::AttemptId) {
            (a.ended_at, a.attempt_id)
        };
        self.recent.sort_by_key(|a| core::cmp::Reverse(at(a)));
        self.recent.truncate(RECENT_MAX);
        self.active.sort_by_key(|a| (a.started_at, a.attempt_id));
    }
}

impl BlockedTask {
    /// The entry of a live Task that waits for somebody; `None` if it does not.
    fn of(view: &View<'_>, status: Normal) -> Option<Self> {
        if view.status().is_terminal() {
            return None;
        }
        let again = |s: StepRef<'_>| Remedy::on_step("reopen_step", s.id());
        let blocked = view.blocked().map(|s| Blocker::of(view, s, &again(s)));
        let failed = view.failed().map(|s| Blocker::of(view, s, &again(s)));
        let cancelled = view.cancelled_required();
        let cancelled = cancelled.map(|s| Blocker::of(view, s, &completion::without(view, s)));
        let blockers: Vec<Blocker> = blocked.chain(failed).chain(cancelled).collect();
        let by = active_edges(view).filter(|e| e.kind == EdgeKind::BlockedBy);
        let blocked_by_task_ids: Vec<Ref> = by.map(|e| e.to.clone()).collect();
        let stopped =
            matches!(view.status(), TaskStatus::Draft | TaskStatus::Blocked | TaskStatus::Paused);
        let waits = matches!(
            status,
            Normal::Blocked
                | Normal::WaitingInput
                | Normal::WaitingPermission
                | Normal::WaitingResource
        );
        if !stopped && !waits && blocked_by_task_ids.is_empty() && view.blocked().next().is_none() {
            return None;
        }
        let of_steps = blockers.iter().map(|b| b.required_action_id.clone());
        let required_action_ids = task_actions(view).into_iter().chain(of_steps).collect();
        Some(Self {
            task_id: view.task_id().clone(),
            status,
            native_status: view.status(),
            owner: view.head().spec.owner.clone(),
            requested_by: view.head().spec.requested_by.clone(),
            reason: unfinished(view)
                .or_else(|| view.head().status_reason.as_deref().cloned())
                .or_else(|| hindered(view)),
            required_action_ids,
            blockers,
            blocked_by_task_ids,
        })
    }
}

/// The operations that the Task itself needs to go on.
fn task_actions(view: &View<'_>) -> Vec<SmolStr> {
    let one = |operation| Vec::from([SmolStr::new_static(operation)]);
    match view.status() {
        TaskStatus::Blocked => one("reopen_task"),
        TaskStatus::Paused => one("resume_task"),
        TaskStatus::Draft if view.unfinished().is_some() => one("task_create"),
        TaskStatus::Draft => one("submit_task"),
        _ => completion::ways(view).iter().map(Remedy::word).collect(),
    }
}

impl Blocker {
    fn of(view: &View<'_>, step: StepRef<'_>, by: &Remedy) -> Self {
        Self {
            step_id: step.id().clone(),
            wait_kind: step.state.wait_kind,
            assignee: step.spec.assignee.as_ref().or(view.head().spec.assignee.as_ref()).cloned(),
            reason: step.facts().status_reason.clone(),
            required_action_id: by.word(),
        }
    }
}
