//! Artifacts and relations as readers get them (2.7, REL-08).

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::command::relate::edge_id;
use crate::id::{ArtifactId, AttemptId, Millis, Ref, StepId, TaskId};
use crate::read::{StepRef, View, handed_on};
use crate::record::{Artifact, Edge};
use crate::status::{ArtifactKind, ArtifactState, EdgeKind, EdgeStatus, StepStatus};
use crate::task::Attempt;

/// An artifact of a Task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ArtifactView {
    /// New for every emitted version.
    pub artifact_id: ArtifactId,
    /// The same for all versions.
    pub name: String,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Media type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<SmolStr>,
    /// What it is.
    pub kind: ArtifactKind,
    /// Where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
    /// Small data inline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// Size in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// Digest of the content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Whether it can be read.
    pub state: ArtifactState,
    /// The Task.
    pub task_id: TaskId,
    /// The Step that produced it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_id: Option<StepId>,
    /// The Attempt that produced it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt_id: Option<AttemptId>,
    /// When it was first reported.
    pub created_at: Millis,
}

impl ArtifactView {
    /// The reader's form of an artifact.
    pub fn of(view: &View<'_>, artifact: &Artifact) -> Self {
        let given = &artifact.given;
        let gave_up = artifact.named_by.is_some_and(|at| view.attempt_at(at).gave_up());
        let state = match given.state {
            ArtifactState::Pending if gave_up => ArtifactState::Missing, // ART-08
            state => state,
        };
        Self {
            artifact_id: given.artifact_id.clone(),
            name: given.name.clone(),
            description: given.description.clone(),
            media_type: given.media_type.clone(),
            kind: given.kind,
            uri: given.uri.clone(),
            data: given.data.clone(),
            size_bytes: given.size_bytes,
            digest: given.digest.clone(),
            state,
            task_id: view.task_id().clone(),
            step_id: artifact.step_id.clone(),
            attempt_id: artifact.attempt_id,
            created_at: artifact.created_at,
        }
    }
}

/// Stored and derived relations of a Task, stored ones first.
///
/// The cost grows with the artifacts, the Attempts, and what their claims gave them.
pub fn relationships(view: &View<'_>) -> Vec<Edge> {
    let mut edges: Vec<Edge> = view.edges().cloned().collect();
    for artifact in view.artifacts() {
        edges.extend(produced(artifact));
    }
    for attempt in view.attempts() {
        edges.extend(further_outputs(view, attempt));
        edges.extend(consumed(attempt));
        edges.extend(sources(view, attempt));
    }
    edges
}

/// The relation from an Attempt to an artifact that it reported.
fn produced(artifact: &Artifact) -> Option<Edge> {
    let to = Ref::new(artifact.given.artifact_id.as_str()).ok()?;
    derived(EdgeKind::ProducedArtifact, artifact.attempt_id?, to, artifact.created_at)
}

/// Relations from an Attempt to outputs that it named without an artifact record of their own.
fn further_outputs<'a>(view: &View<'a>, attempt: &'a Attempt) -> impl Iterator<Item = Edge> {
    let until = attempt.ended_at.unwrap_or_else(|| view.updated_at());
    let unrecorded = |r: &&Ref| artifact_of(view, r).is_none_or(|a| a.attempt_id.is_none());
    let outputs = attempt.output_refs.iter().filter(|r| names_artifact(r)).filter(unrecorded);
    let edge = |r: &Ref| derived(EdgeKind::ProducedArtifact, attempt.attempt_id, r.clone(), until);
    outputs.filter_map(edge).collect::<Vec<_>>().into_iter()
}

/// Artifacts that the claim gave to an Attempt (ART-04).
fn consumed(attempt: &Attempt) -> impl Iterator<Item = Edge> + '_ {
    let (id, at) = (attempt.attempt_id, attempt.started_at);
    let given = attempt.input_refs.iter().filter(|r| names_artifact(r));
    given.filter_map(move |r| derived(EdgeKind::ConsumedArtifact, id, r.clone(), at))
}

/// Attempts whose results the claim passed on: those that had completed the dependencies at that
/// time, and those that produced the artifacts in its input.
fn sources<'a>(view: &'a View<'a>, attempt: &'a Attempt) -> impl Iterator<Item = Edge> + 'a {
    let handed_on = handed_on(view, attempt.step_snapshot.inputs(), &mut BTreeSet::new());
    let completed = handed_on.into_iter().filter_map(|step| completing_attempt(view, step));
    let makers = attempt.input_refs.iter().filter_map(|r| artifact_of(view, r)?.attempt_id);
    let all: BTreeSet<AttemptId> = completed.chain(makers).collect();
    let (own, at) = (attempt.attempt_id, attempt.started_at);
    all.into_iter()
        .filter(move |id| *id != own)
        .filter_map(move |id| derived(EdgeKind::SourceAttempt, own, attempt_ref(id)?, at))
}

/// The Attempt that completed a Step; `None` if the orchestrator completed it.
fn completing_attempt(view: &View<'_>, step: StepRef<'_>) -> Option<AttemptId> {
    if step.status() != StepStatus::Completed {
        return None;
    }
    let last = view.attempts_of(step).next()?;
    last.completed_step().then_some(last.attempt_id)
}

fn artifact_of<'a>(view: &View<'a>, reference: &Ref) -> Option<&'a Arc<Artifact>> {
    view.artifact(&ArtifactId::new(reference.as_str()).ok()?)
}

fn derived(kind: EdgeKind, from: AttemptId, to: Ref, at: Millis) -> Option<Edge> {
    Some(Edge {
        edge_id: edge_id(kind, &from, &to).ok()?,
        kind,
        from: attempt_ref(from)?,
        to,
        status: EdgeStatus::Active,
        reason: None,
        created_at: at,
        updated_at: at,
    })
}

/// An Attempt as an end of a relation.
fn attempt_ref(id: AttemptId) -> Option<Ref> {
    Ref::new(format!("attempt:{id}")).ok()
}

/// Whether a reference names an artifact of this or another Task, and not a URI.
pub fn names_artifact(reference: &Ref) -> bool {
    !reference.as_str().contains(':')
}
