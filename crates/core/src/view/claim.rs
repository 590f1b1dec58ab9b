//! What a worker gets with its claim (CLAIM-14). On the hot path: everything is shared with the
//! Task, nothing is serialised here.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::event::Bindings;
use crate::id::{ArtifactId, AttemptId, Millis, Ref, RunId, SessionId, StepId, TaskId};
use crate::read::{StepRef, View};
use crate::record::{RetryPolicy, StepSpec, Value, add_once};
use crate::status::StepStatus;
use crate::task::Attempt;

/// A claim, with everything the work needs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClaimResult {
    /// The session.
    pub session_id: SessionId,
    /// The Task.
    pub task_id: TaskId,
    /// The Run.
    pub run_id: RunId,
    /// The Attempt.
    pub attempt_id: AttemptId,
    /// Its number among the Step's claims, from 1.
    pub ordinal: u32,
    /// The Step was lost before (LEASE-19): the worker says so of what it has in hand.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub was_lost: bool,
    /// Goes with every report (LEASE-13).
    pub fencing_token: u64,
    /// End of the lease as the log has it, by the owner's clock.
    pub lease_expires_at: Millis,
    /// How long a lease of this Attempt lasts, for a worker that has its own clock.
    pub lease_ms: u64,
    /// The Step as it was claimed: handler, input, texts.
    pub step: Arc<StepSpec>,
    /// The policy in force for this Attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_policy: Option<Arc<RetryPolicy>>,
    /// What the direct dependencies handed on, in the Step's order; those that handed on nothing are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dependencies: Vec<DependencyResult>,
    /// Everything that was fixed at the claim (2.4), `input_refs` of Step and Task included.
    pub input_refs: Arc<[Ref]>,
    /// Where earlier Attempts left off, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checkpoint_refs: Vec<Ref>,
    /// What the Run was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<Arc<str>>,
    /// Thread and environment of the Run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bindings: Option<Arc<Bindings>>,
    /// W3C traceparent that spans of the handler go below: of the Attempt where its owner keeps traces,
    /// else of whoever made the Task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<SmolStr>,
}

/// What a dependency hands on: the only facts about other Steps that a worker sees.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DependencyResult {
    /// The dependency.
    pub step_id: StepId,
    /// Its result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// In prose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_summary: Option<Arc<str>>,
    /// Its artifacts, as refs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifact_ids: Vec<ArtifactId>,
}

impl DependencyResult {
    /// What a Step hands on.
    pub fn of(step: StepRef<'_>) -> Self {
        let facts = step.facts();
        Self {
            step_id: step.id().clone(),
            output: facts.output.clone(),
            result_summary: facts.result_summary.clone(),
            artifact_ids: facts.artifact_ids.clone(),
        }
    }

    /// What the completed direct dependencies of these Steps hand on, if anything, each once.
    pub fn of_dependencies<'a>(
        view: &View<'a>,
        steps: impl Iterator<Item = StepRef<'a>>,
    ) -> Vec<Self> {
        let ids: BTreeSet<&StepId> = steps.flat_map(|s| &s.spec.depends_on_step_ids).collect();
        let found = ids.into_iter().filter_map(|id| view.step(id));
        let completed = found.filter(|s| s.status() == StepStatus::Completed).map(Self::of);
        completed.filter(Self::has_any).collect()
    }

    /// Whether there is anything: a join of many Steps is not to be too long for names alone.
    fn has_any(&self) -> bool {
        self.output.is_some() || self.result_summary.is_some() || !self.artifact_ids.is_empty()
    }
}

/// What the worker of an Attempt gets; none where this view has no such Attempt.
///
/// Asked again while the Attempt is open it gives the same: the claim-time texts and dependencies hold for
/// the Attempt (STEP-24), and what completed dependencies handed on does not change.
pub fn claim_result(view: &View<'_>, attempt_id: AttemptId) -> Option<ClaimResult> {
    let attempt = view.attempt(attempt_id)?;
    let step = view.step(&attempt.step_id)?;
    let run = view.run_at(attempt.run);
    let spec = &view.head().spec;
    let dependencies = attempt.step_snapshot.depends_on_step_ids.iter();
    Some(ClaimResult {
        session_id: spec.session_id.clone(),
        task_id: spec.task_id.clone(),
        run_id: attempt.run_id,
        attempt_id,
        ordinal: attempt.ordinal,
        was_lost: step.state.was_lost(),
        fencing_token: attempt.fencing_token,
        lease_expires_at: attempt.lease_expires_at,
        lease_ms: attempt.lease_ms,
        step: as_claimed(attempt, step.spec),
        retry_policy: attempt.retry_policy.clone(),
        dependencies: dependencies
            .filter_map(|id| view.step(id))
            .map(DependencyResult::of)
            .filter(DependencyResult::has_any)
            .collect(),
        input_refs: Arc::clone(&attempt.input_refs),
        checkpoint_refs: checkpoints_before(view, attempt),
        instructions: run.instructions.clone(),
        bindings: run.bindings.clone(),
        trace: view.head().trace.clone(),
    })
}

/// The Step with the texts and dependencies of the claim.
fn as_claimed(attempt: &Attempt, spec: &Arc<StepSpec>) -> Arc<StepSpec> {
    let then = &attempt.step_snapshot;
    let unchanged = spec.title == then.title
        && spec.summary == then.summary
        && spec.depends_on_step_ids == then.depends_on_step_ids;
    if unchanged {
        return Arc::clone(spec);
    }
    Arc::new(StepSpec {
        title: then.title.clone(),
        summary: then.summary.clone(),
        depends_on_step_ids: then.depends_on_step_ids.clone(),
        ..StepSpec::clone(spec)
    })
}

/// ATT-09: checkpoints of earlier Attempts, newest Attempt first, each once.
fn checkpoints_before(view: &View<'_>, attempt: &Attempt) -> Vec<Ref> {
    let previous = |a: &Attempt| a.previous.map(|at| view.attempt_at(at));
    let mut refs = Vec::new();
    for earlier in core::iter::successors(previous(attempt), |a| previous(a)) {
        add_once(&mut refs, &earlier.checkpoint_refs);
    }
    refs
}
