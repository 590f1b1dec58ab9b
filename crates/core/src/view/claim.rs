//! The content of a claim for its worker (CLAIM-14). It is on the hot path, so everything is shared
//! with the Task, and nothing is serialized here.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::event::{Bindings, StepSnapshot};
use crate::id::{ArtifactId, AttemptId, Millis, Ref, RunId, SessionId, StepId, TaskId};
use crate::read::{StepRef, View, handed_on};
use crate::record::{RetryPolicy, StepSpec, Value, add_once};
use crate::status::StepStatus;
use crate::task::Attempt;

/// A claim, with everything that its worker needs.
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
    /// Whether the Step was lost before (LEASE-19): the worker counts such Attempts in its
    /// statements of capacity.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub was_lost: bool,
    /// Whether the Attempt before this one ended with its host: then the worker reports `running`
    /// before it begins, so that it counts if this host ends too (RETRY-13).
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub host_died: bool,
    /// The token that goes with every report (LEASE-13).
    pub fencing_token: u64,
    /// End of the lease by the log, on the owner's clock.
    pub lease_expires_at: Millis,
    /// How long a lease of this Attempt lasts, in milliseconds, for the worker's own clock.
    pub lease_ms: u64,
    /// The Step as it was claimed: handler, input, texts.
    pub step: Arc<StepSpec>,
    /// The policy in force for this Attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_policy: Option<Arc<RetryPolicy>>,
    /// What other Steps hand on, in the Step's order: those of its `inputs_from`, each of them, else its
    /// direct dependencies, without those that have no results. A completed `noop` without results
    /// stands for those that would hand on to it (STEP-37).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dependencies: Vec<DependencyResult>,
    /// All refs that the claim fixed (2.4), including the `input_refs` of Step and Task.
    pub input_refs: Arc<[Ref]>,
    /// How many entries of the Task's `input_refs` the Attempt has seen, at first those among them: what comes
    /// later counts on from there (CTRL-12).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub input_seen: u32,
    /// Checkpoints of earlier Attempts, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checkpoint_refs: Vec<Ref>,
    /// The instructions of the Run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<Arc<str>>,
    /// Thread and environment of the Run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bindings: Option<Arc<Bindings>>,
    /// W3C traceparent for spans of the handler: the Attempt's if its owner records traces, else
    /// that of the Task's creator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<SmolStr>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // The shape serde asks for.
const fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// The results of a dependency: all that a worker sees of other Steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DependencyResult {
    /// The dependency.
    pub step_id: StepId,
    /// Its result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// The result in prose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_summary: Option<Arc<str>>,
    /// Its artifacts, as refs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifact_ids: Vec<ArtifactId>,
}

impl DependencyResult {
    /// The results of a Step.
    pub fn of(step: StepRef<'_>) -> Self {
        let facts = step.facts();
        Self {
            step_id: step.id().clone(),
            output: facts.output.clone(),
            result_summary: facts.result_summary.clone(),
            artifact_ids: facts.artifact_ids.clone(),
        }
    }

    /// What other completed Steps hand on to these, each once, without empty ones.
    pub fn of_dependencies<'a>(
        view: &View<'a>,
        steps: impl Iterator<Item = StepRef<'a>>,
    ) -> Vec<Self> {
        let mut seen = BTreeSet::new();
        let found = steps.flat_map(|s| handed_on(view, s.spec.inputs_chosen(), &mut seen));
        let completed = found.filter(|s| s.status() == StepStatus::Completed).map(Self::of);
        let mut results: Vec<_> = completed.filter(Self::has_any).collect();
        results.sort_unstable_by(|a, b| a.step_id.cmp(&b.step_id));
        results
    }

    /// What other Steps hand on to a claim.
    fn of_claim(view: &View<'_>, claimed: &StepSnapshot) -> Vec<Self> {
        let (named, is_chosen) = claimed.inputs();
        let steps = handed_on(view, (named, is_chosen), &mut BTreeSet::new());
        let results = steps.into_iter().map(|step| match step.status() {
            StepStatus::Completed => Self::of(step),
            _ => Self::none_of(step),
        });
        results.filter(|result| is_chosen || result.has_any()).collect()
    }

    /// A Step that hands on nothing.
    fn none_of(step: StepRef<'_>) -> Self {
        let step_id = step.id().clone();
        Self { step_id, output: None, result_summary: None, artifact_ids: Vec::new() }
    }

    /// Whether there is any result. Otherwise a Step that joins many others would get a list of mere names.
    fn has_any(&self) -> bool {
        self.output.is_some() || self.result_summary.is_some() || !self.artifact_ids.is_empty()
    }
}

/// The claim of an Attempt for its worker; `None` if this view has no such Attempt.
///
/// A repeated call returns the same while the Attempt is open: the texts and dependencies of the
/// claim stay valid for the Attempt (STEP-24), and results of completed dependencies do not change.
pub fn claim_result(view: &View<'_>, attempt_id: AttemptId) -> Option<ClaimResult> {
    let attempt = view.attempt(attempt_id)?;
    let step = view.step(&attempt.step_id)?;
    let run = view.run_at(attempt.run);
    let spec = &view.head().spec;
    let before = attempt.previous.map(|at| view.attempt_at(at));
    Some(ClaimResult {
        session_id: spec.session_id.clone(),
        task_id: spec.task_id.clone(),
        run_id: attempt.run_id,
        attempt_id,
        ordinal: attempt.ordinal,
        was_lost: step.state.was_lost(),
        host_died: before.is_some_and(|before| before.died_with_host()),
        fencing_token: attempt.fencing_token,
        lease_expires_at: attempt.lease_expires_at,
        lease_ms: attempt.lease_ms,
        step: as_claimed(attempt, step.spec),
        retry_policy: attempt.retry_policy.clone(),
        dependencies: DependencyResult::of_claim(view, &attempt.step_snapshot),
        input_refs: Arc::clone(&attempt.input_refs),
        input_seen: attempt.input_seen,
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
        && spec.depends_on_step_ids == then.depends_on_step_ids
        && spec.inputs_from == then.inputs_from;
    if unchanged {
        return Arc::clone(spec);
    }
    Arc::new(StepSpec {
        title: then.title.clone(),
        summary: then.summary.clone(),
        depends_on_step_ids: then.depends_on_step_ids.clone(),
        inputs_from: then.inputs_from.clone(),
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
