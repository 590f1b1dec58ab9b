//! The DAG as data for a picture: nodes, edges, statuses, durations. Clients draw it.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::Known;
use super::normal::{self, Facts, Normal};
use crate::id::{AgentId, HandlerName, Millis, PoolId, StepId, TaskId};
use crate::read::{StepRef, View};
use crate::status::{StepStatus, TaskStatus, WaitKind};
use crate::table::next_pos;

/// A Task as a graph.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Graph {
    /// The Task.
    pub task_id: TaskId,
    /// For people.
    pub title: SmolStr,
    /// Normalized status.
    pub status: Normal,
    /// Native status.
    pub native_status: TaskStatus,
    /// `wal_seq` of its last event.
    pub version: u64,
    /// `wal_seq` of the event by which orchestrators last changed what it is to do (OCC-07).
    #[serde(default, skip_serializing_if = "super::is_unknown")]
    pub spec_version: u64,
    /// Steps, in creation order.
    pub nodes: Vec<GraphNode>,
    /// Dependencies, in creation order of the Step that waits.
    pub edges: Vec<Arrow>,
}

/// A Step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GraphNode {
    /// Its id.
    pub step_id: StepId,
    /// For people.
    pub title: SmolStr,
    /// Native status.
    pub status: StepStatus,
    /// The same as a portable status.
    pub normalized_status: Normal,
    /// Whether the Task needs it to complete.
    pub required: bool,
    /// The pool whose workers may claim it.
    pub worker_pool_id: PoolId,
    /// Which handler runs it.
    pub handler: HandlerName,
    /// Attempts so far that were not given back (LEASE-18).
    pub attempts: u32,
    /// The worker of its newest Attempt that was not given back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<AgentId>,
    /// What it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_kind: Option<WaitKind>,
    /// Code of its reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<SmolStr>,
    /// When its newest Attempt was claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Millis>,
    /// When its newest Attempt ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Millis>,
    /// From that claim to that end, or to now, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
}

/// A dependency.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrow {
    /// The Step that the other depends on.
    pub from: StepId,
    /// The Step that depends on it.
    pub to: StepId,
    /// Whether the dependency is completed.
    pub satisfied: bool,
}

/// The DAG of a view.
pub fn graph(view: &View<'_>, known: &Known<'_>) -> Graph {
    let spec = &view.head().spec;
    Graph {
        task_id: spec.task_id.clone(),
        title: spec.title.clone(),
        status: Facts::of(view, known).status(),
        native_status: view.status(),
        version: view.version(),
        spec_version: view.spec_version(),
        nodes: view.steps().map(|s| node(view, s, known.now)).collect(),
        edges: view.steps().flat_map(|s| arrows(view, s)).collect(),
    }
}

fn node(view: &View<'_>, step: StepRef<'_>, now: Millis) -> GraphNode {
    let newest = view.tries_of(step).next();
    let span = |a: &crate::task::Attempt| a.ended_at.unwrap_or(now).saturating_sub(a.started_at);
    GraphNode {
        step_id: step.id().clone(),
        title: step.spec.title.clone(),
        status: step.status(),
        normalized_status: normal::of_step(step.state),
        required: step.spec.required,
        worker_pool_id: step.spec.worker_pool_id.clone(),
        handler: step.spec.handler.clone(),
        attempts: next_pos(view.tries_of(step).count()),
        worker_id: newest.map(|a| a.worker_id.clone()),
        wait_kind: step.state.wait_kind,
        code: step.facts().status_reason.as_ref().map(|r| r.code.clone()),
        started_at: newest.map(|a| a.started_at),
        ended_at: newest.and_then(|a| a.ended_at),
        duration_ms: newest.map(|a| u64::try_from(span(a)).unwrap_or(0)),
    }
}

fn arrows<'a>(view: &'a View<'_>, step: StepRef<'a>) -> impl Iterator<Item = Arrow> + 'a {
    step.spec.depends_on_step_ids.iter().map(move |from| Arrow {
        from: from.clone(),
        to: step.id().clone(),
        satisfied: view.step(from).is_some_and(|s| s.status() == StepStatus::Completed),
    })
}
