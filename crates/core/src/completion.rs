//! What keeps a Task from completing although its Steps are done: one judgement for the completing
//! command, the summary and `explain` (TERM-10, TERM-11, VIEW-15), and the commands that lead on (TERM-26).

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use smol_str::SmolStr;

use crate::id::{ArtifactId, StepId};
use crate::read::{StepRef, View};
use crate::record::{Acceptance, ArtifactInput, Object};
use crate::remedy::Remedy;
use crate::rules::Rules;
use crate::status::{AcceptanceState, ArtifactState, Policy, StepStatus, TaskStatus, names};

/// How many artifacts or Steps are named.
const NAMED_MAX: usize = 20;

names! {
    /// Why a Task whose Steps are done does not complete, in the order of the checks.
    HindranceCode {
        /// Artifacts are announced and not delivered, or facts of peers are not stored here (TERM-10).
        FactsUnreconciled = "facts_unreconciled",
        /// Acceptance criteria are neither met nor waived (TERM-11).
        AcceptanceUnmet = "acceptance_unmet",
    }
}

/// A reason why a Task whose Steps are done does not complete, with what settles it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Hindrance {
    /// Its code, which is also that of the refusal.
    pub code: HindranceCode,
    /// The reason in words, on one line.
    pub text: String,
    /// How many artifacts are announced and not delivered.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub artifacts_pending: usize,
    /// The first of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifact_ids: Vec<ArtifactId>,
    /// How many Steps have a peer whose facts are not stored here.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unreconciled_steps: usize,
    /// The first of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub step_ids: Vec<StepId>,
    /// The criteria that are neither met nor waived.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub acceptance_ids: Vec<SmolStr>,
    /// Operations that settle it, one for each artifact and each Step that is named.
    pub remedies: Vec<Remedy>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // The shape serde asks for.
const fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// What keeps a Task from completing whose required Steps are completed and of which none is held, in the
/// order of the checks of the completing command.
pub fn hindrances(view: &View<'_>) -> Vec<Hindrance> {
    let status = view.status();
    let is_open = !status.is_terminal() && status != TaskStatus::Draft && !view.is_closing();
    if !is_open || !view.is_completeable() {
        return Vec::new();
    }
    let facts = unreconciled(view, &[]);
    let acceptance = unmet(&view.head().spec.acceptance, facts.is_none());
    let mut found: Vec<Hindrance> = facts.into_iter().chain(acceptance).collect();
    if let [Hindrance { remedies, .. }] = found.as_mut_slice()
        && let [last] = remedies.as_mut_slice()
    {
        let (head, tally) = (view.head(), view.tally());
        let is_automatic = head.spec.completion == Policy::Auto && head.is_open();
        last.ends_task |= is_automatic && !head.waits_for_optional(tally);
    }
    found
}

/// What settles all that keeps such a Task from completing, or completes it (TERM-26).
pub(crate) fn ways(view: &View<'_>) -> Vec<Remedy> {
    let found = hindrances(view);
    match found.is_empty() && view.is_completeable() && !view.is_closing() {
        true => Vec::from([ending("agent.task_complete")]),
        false => found.into_iter().flat_map(|hindrance| hindrance.remedies).collect(),
    }
}

/// TERM-10: the facts that are not reconciled, once the Task has named these artifacts.
pub(crate) fn unreconciled(view: &View<'_>, given: &[ArtifactInput]) -> Option<Hindrance> {
    let given: BTreeMap<&ArtifactId, ArtifactState> =
        given.iter().map(|artifact| (&artifact.artifact_id, artifact.state)).collect();
    let stored = view.undelivered().map(|artifact| &artifact.given.artifact_id);
    let stored = stored.filter(|id| !given.contains_key(id));
    let pending = given.iter().filter(|(_, state)| **state == ArtifactState::Pending);
    let pending = stored.chain(pending.map(|(id, _)| *id)).cloned();
    let (artifact_ids, artifacts_pending) = named(pending);
    let (step_ids, unreconciled_steps) = named(view.unreconciled().map(|step| step.id().clone()));
    let first = |first: &str, count: usize| match count {
        1 => first.to_string(),
        count => format!("{first} and {} more", count - 1),
    };
    let mut words = Vec::new();
    if let Some(id) = artifact_ids.first() {
        words.push(format!("not delivered: artifact {}", first(id.as_str(), artifacts_pending)));
    }
    if let Some(id) = step_ids.first() {
        let step = first(id.as_str(), unreconciled_steps);
        words.push(format!("the facts of a peer are not stored here: step {step}"));
    }
    let deliver = artifact_ids.iter().map(|id| Remedy::on_artifact("append_task_progress", id));
    let mut remedies: Vec<Remedy> = deliver.collect();
    remedies.extend(step_ids.iter().map(|id| match view.head().rules {
        Rules::First => ending("agent.task_fail"),
        Rules::Second => Remedy::on_step("agent.task_update_step", id), // STEP-34
    }));
    (!words.is_empty()).then(|| Hindrance {
        artifacts_pending,
        artifact_ids,
        unreconciled_steps,
        step_ids,
        ..Hindrance::new(HindranceCode::FactsUnreconciled, words.join("; "), remedies)
    })
}

/// TERM-11: the criteria that are open. The completing command settles them, if nothing else hinders it.
pub(crate) fn unmet(list: &[Acceptance], is_alone: bool) -> Option<Hindrance> {
    use AcceptanceState::{Met, Waived};
    let open = list.iter().filter(|a| !matches!(a.state, Met | Waived));
    let acceptance_ids: Vec<SmolStr> = open.map(|a| a.id.clone()).collect();
    if acceptance_ids.is_empty() {
        return None;
    }
    let text = format!("neither met nor waived: {}", acceptance_ids.join(", "));
    let remedy = if is_alone { ending("agent.task_complete") } else { Remedy::new("update_task") };
    let remedies = Vec::from([remedy]);
    let hindrance = Hindrance::new(HindranceCode::AcceptanceUnmet, text, remedies);
    Some(Hindrance { acceptance_ids, ..hindrance })
}

/// TERM-26: what leads on from a state in which no Step moves by itself.
pub(crate) fn ways_on(view: &View<'_>) -> Vec<Remedy> {
    let failed = view.failed().take(NAMED_MAX).flat_map(|step| tried_again(view, step));
    let cancelled = view.cancelled_required().take(NAMED_MAX).map(|step| without(view, step));
    let in_vain = view.failing().filter(|step| step.status() == StepStatus::Pending);
    let in_vain = in_vain.take(NAMED_MAX);
    failed.chain(cancelled).chain(in_vain.filter_map(|step| detached(view, step))).collect()
}

/// How a Step that waits in vain goes on: without the first dependency that never completes.
fn detached(view: &View<'_>, step: StepRef<'_>) -> Option<Remedy> {
    let mut all = step.spec.depends_on_step_ids.iter();
    let dead = all.find(|id| view.step(id).is_some_and(|on| on.state.is_dead()))?;
    let remedy = Remedy::on_step("remove_dependency", step.id());
    Some(Remedy { depends_on_step_id: Some(dead.clone()), ..remedy })
}

/// How a failed or blocked Step goes on: it is reopened, or marked as completed (STEP-36).
pub(crate) fn tried_again(view: &View<'_>, step: StepRef<'_>) -> Vec<Remedy> {
    let can_be_marked = view.head().rules >= Rules::Second && step.state.unmet == 0;
    let mark = can_be_marked.then(|| Remedy::on_step("agent.task_update_step", step.id()));
    [Remedy::on_step("reopen_step", step.id())].into_iter().chain(mark).collect()
}

/// How a Task goes on without a required Step that is cancelled: the Step becomes optional (STEP-35).
pub(crate) fn without(view: &View<'_>, step: StepRef<'_>) -> Remedy {
    match view.head().rules {
        Rules::Second => Remedy::on_step("update_step", step.id()),
        Rules::First if view.dependents(step).next().is_some() => ending("agent.task_fail"),
        Rules::First => Remedy::on_step("delete_step", step.id()),
    }
}

/// An operation that ends the Task.
fn ending(operation: &'static str) -> Remedy {
    Remedy { ends_task: true, ..Remedy::new(operation) }
}

/// Remedies for the details of a reason.
pub(crate) fn remedies_json(remedies: &[Remedy]) -> Json {
    serde_json::to_value(remedies).unwrap_or_default()
}

impl Hindrance {
    fn new(code: HindranceCode, text: String, remedies: Vec<Remedy>) -> Self {
        let (artifact_ids, step_ids, acceptance_ids) = Default::default();
        let (artifacts_pending, unreconciled_steps) = (0, 0);
        Self {
            code,
            text,
            artifacts_pending,
            artifact_ids,
            unreconciled_steps,
            step_ids,
            acceptance_ids,
            remedies,
        }
    }

    /// All but code and text, for the details of a refusal or a reason.
    pub(crate) fn details(&self) -> Object {
        let fields = serde_json::to_value(self).unwrap_or_default();
        let fields = match fields {
            Json::Object(fields) => fields,
            _ => Object::new(),
        };
        fields.into_iter().filter(|(key, _)| key != "code" && key != "text").collect()
    }
}

/// The first of them, and how many there are.
fn named<T>(mut all: impl Iterator<Item = T>) -> (Vec<T>, usize) {
    let first: Vec<T> = all.by_ref().take(NAMED_MAX).collect();
    let count = first.len() + all.count();
    (first, count)
}
