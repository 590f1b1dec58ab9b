//! Operations of a patch (`agent.task_update`, PATCH-04, PATCH-05).

mod change;
mod read;

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::id::{AgentId, HandlerName, PoolId, Ref, StepId};
use crate::record::{Acceptance, Object, RetryPolicy, StepSpec, TaskSpec, Value};
use crate::status::{OnFailure, Policy, Visibility};

pub use change::Change;

/// A Step as `agent.task_create` and `add_step` take it (PATCH-08), without defaults.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StepInput {
    /// Attribution (CLAIM-13).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assignee: Option<AgentId>,
    /// The only principal whose workers may claim it, default the Task's (CLAIM-13).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim_only_by: Option<AgentId>,
    /// Steps that must be completed first, default none.
    #[serde(default)]
    pub depends_on_step_ids: Vec<StepId>,
    /// What other software keeps with it: opaque, at most 4 KiB, not for workers (EVOLVE-03).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ext: Option<Object>,
    /// Which of the worker's handlers runs it, default `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handler: Option<HandlerName>,
    /// The input of the handler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// Ancestors whose results a claim hands on, default the Steps in `depends_on_step_ids`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs_from: Option<Vec<StepId>>,
    /// Whether the Task needs it to complete, default true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required: Option<bool>,
    /// Retry policy instead of the Task's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_policy: Option<Arc<RetryPolicy>>,
    /// Unique in the Task for ever.
    pub step_id: StepId,
    /// For people, default empty.
    #[serde(default)]
    pub summary: SmolStr,
    /// For people.
    pub title: SmolStr,
    /// The pool whose workers may claim it, default the Task's pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_pool_id: Option<PoolId>,
}

impl StepInput {
    /// A Step with nothing but an id, which is its title, too.
    pub fn bare(step_id: StepId) -> Self {
        Self {
            assignee: None,
            claim_only_by: None,
            depends_on_step_ids: Vec::new(),
            ext: None,
            handler: None,
            input: None,
            inputs_from: None,
            required: None,
            retry_policy: None,
            summary: SmolStr::default(),
            title: step_id.as_str().into(),
            step_id,
            worker_pool_id: None,
        }
    }

    /// The Step as it is stored, with defaults filled in (DAG-08, DAG-09, DAG-14).
    pub fn filled_in(&self, default_pool: &PoolId) -> StepSpec {
        StepSpec {
            step_id: self.step_id.clone(),
            title: self.title.clone(),
            summary: self.summary.clone(),
            depends_on_step_ids: deduplicated(&self.depends_on_step_ids),
            inputs_from: self.inputs_from.as_deref().map(deduplicated),
            required: self.required.unwrap_or(true),
            worker_pool_id: self.worker_pool_id.clone().unwrap_or_else(|| default_pool.clone()),
            handler: self.handler.clone().unwrap_or_else(HandlerName::default_handler),
            input: self.input.clone(),
            retry_policy: self.retry_policy.clone(),
            assignee: self.assignee.clone(),
            claim_only_by: self.claim_only_by.clone(),
            ext: self.ext.clone(),
        }
    }
}

/// DISP-07, DAG-14: each id once, at its first place.
pub(crate) fn deduplicated(ids: &[StepId]) -> Vec<StepId> {
    let mut seen = BTreeSet::new();
    ids.iter().filter(|id| seen.insert(*id)).cloned().collect()
}

/// Fields of a Step that `update_step` may name (PATCH-09).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StepFields {
    /// Null clears.
    #[serde(skip_serializing_if = "Change::is_keep")]
    pub assignee: Change<AgentId>,
    /// Null clears.
    #[serde(skip_serializing_if = "Change::is_keep")]
    pub claim_only_by: Change<AgentId>,
    /// The whole new set.
    #[serde(skip_serializing_if = "Change::is_keep")]
    pub depends_on_step_ids: Change<Vec<StepId>>,
    /// The whole new map; null clears.
    #[serde(skip_serializing_if = "Change::is_keep")]
    pub ext: Change<Object>,
    /// New handler.
    #[serde(skip_serializing_if = "Change::is_keep")]
    pub handler: Change<HandlerName>,
    /// Null clears.
    #[serde(skip_serializing_if = "Change::is_keep")]
    pub input: Change<Value>,
    /// The whole new list; null: the direct dependencies again.
    #[serde(skip_serializing_if = "Change::is_keep")]
    pub inputs_from: Change<Vec<StepId>>,
    /// Whether the Task needs it to complete.
    #[serde(skip_serializing_if = "Change::is_keep")]
    pub required: Change<bool>,
    /// Null clears.
    #[serde(skip_serializing_if = "Change::is_keep")]
    pub retry_policy: Change<Arc<RetryPolicy>>,
    /// New text.
    #[serde(skip_serializing_if = "Change::is_keep")]
    pub summary: Change<SmolStr>,
    /// New text.
    #[serde(skip_serializing_if = "Change::is_keep")]
    pub title: Change<SmolStr>,
    /// New pool.
    #[serde(skip_serializing_if = "Change::is_keep")]
    pub worker_pool_id: Change<PoolId>,
}

impl StepFields {
    /// The first field that the patch clears although it always has a value.
    pub(crate) fn wrongly_cleared(&self) -> Option<&'static str> {
        first_cleared(&[
            ("depends_on_step_ids", self.depends_on_step_ids == Change::Clear),
            ("handler", self.handler == Change::Clear),
            ("required", self.required == Change::Clear),
            ("summary", self.summary == Change::Clear),
            ("title", self.title == Change::Clear),
            ("worker_pool_id", self.worker_pool_id == Change::Clear),
        ])
    }

    /// Applies the fields, except `depends_on_step_ids`: the reducer changes edges.
    pub(crate) fn apply(&self, spec: &mut StepSpec) {
        self.title.replace(&mut spec.title);
        self.summary.replace(&mut spec.summary);
        self.required.replace(&mut spec.required);
        self.worker_pool_id.replace(&mut spec.worker_pool_id);
        self.handler.replace(&mut spec.handler);
        self.input.apply(&mut spec.input);
        match &self.inputs_from {
            Change::Keep => {}
            Change::Clear => spec.inputs_from = None,
            Change::Set(ids) => spec.inputs_from = Some(deduplicated(ids)),
        }
        self.retry_policy.apply(&mut spec.retry_policy);
        self.assignee.apply(&mut spec.assignee);
        self.claim_only_by.apply(&mut spec.claim_only_by);
        self.ext.apply(&mut spec.ext);
    }

    /// Whether the patch names more than title and summary (STEP-14, STEP-22).
    pub(crate) fn name_more_than_texts(&self) -> bool {
        let Self {
            title: _,
            summary: _,
            assignee,
            claim_only_by,
            depends_on_step_ids,
            ext,
            handler,
            input,
            inputs_from,
            required,
            retry_policy,
            worker_pool_id,
        } = self;
        !(assignee.is_keep()
            && claim_only_by.is_keep()
            && depends_on_step_ids.is_keep()
            && ext.is_keep()
            && handler.is_keep()
            && input.is_keep()
            && inputs_from.is_keep()
            && required.is_keep()
            && retry_policy.is_keep()
            && worker_pool_id.is_keep())
    }

    /// Whether the patch makes the Step optional, and names nothing else but title and summary (STEP-35).
    pub(crate) fn only_make_optional(&self) -> bool {
        let others = Self { required: Change::Keep, ..self.clone() };
        self.required == Change::Set(false) && !others.name_more_than_texts()
    }
}

/// Fields of a Task that `update_task` may name (PATCH-07).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TaskFields {
    /// The whole new list; null clears it.
    #[serde(skip_serializing_if = "Change::is_keep")]
    pub acceptance: Change<Vec<Acceptance>>,
    /// Null clears.
    #[serde(skip_serializing_if = "Change::is_keep")]
    pub assignee: Change<AgentId>,
    /// Null clears.
    #[serde(skip_serializing_if = "Change::is_keep")]
    pub claim_only_by: Change<AgentId>,
    /// In force from the next evaluation on (POL-10).
    #[serde(skip_serializing_if = "Change::is_keep")]
    pub completion: Change<Policy>,
    /// Null clears.
    #[serde(skip_serializing_if = "Change::is_keep")]
    pub constraints: Change<Object>,
    /// In force from the next evaluation on (POL-10).
    #[serde(skip_serializing_if = "Change::is_keep")]
    pub dispatch: Change<Policy>,
    /// The whole new map; null clears.
    #[serde(skip_serializing_if = "Change::is_keep")]
    pub ext: Change<Object>,
    /// Null clears.
    #[serde(skip_serializing_if = "Change::is_keep")]
    pub metadata: Change<Object>,
    /// Null clears.
    #[serde(skip_serializing_if = "Change::is_keep")]
    pub objective: Change<String>,
    /// In force from the next evaluation on (POL-05). Null clears.
    #[serde(skip_serializing_if = "Change::is_keep")]
    pub on_failure: Change<OnFailure>,
    /// In force from the next evaluation on (POL-06). Null clears.
    #[serde(skip_serializing_if = "Change::is_keep")]
    pub optional_wait_ms: Change<u64>,
    /// Null clears.
    #[serde(skip_serializing_if = "Change::is_keep")]
    pub owner: Change<AgentId>,
    /// Null clears to 0.
    #[serde(skip_serializing_if = "Change::is_keep")]
    pub priority: Change<i32>,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<ReasonInput>,
    /// Null clears.
    #[serde(skip_serializing_if = "Change::is_keep")]
    pub requested_by: Change<AgentId>,
    /// Null clears.
    #[serde(skip_serializing_if = "Change::is_keep")]
    pub retry_policy: Change<Arc<RetryPolicy>>,
    /// New text.
    #[serde(skip_serializing_if = "Change::is_keep")]
    pub summary: Change<SmolStr>,
    /// Null clears.
    #[serde(skip_serializing_if = "Change::is_keep")]
    pub task_profile: Change<Object>,
    /// New text.
    #[serde(skip_serializing_if = "Change::is_keep")]
    pub title: Change<SmolStr>,
    /// New visibility.
    #[serde(skip_serializing_if = "Change::is_keep")]
    pub visibility: Change<Visibility>,
}

/// The first of these fields that is cleared.
fn first_cleared(fields: &[(&'static str, bool)]) -> Option<&'static str> {
    fields.iter().find(|(_, is_cleared)| *is_cleared).map(|(name, _)| *name)
}

impl TaskFields {
    /// The first field that the patch clears although it always has a value.
    pub(crate) fn wrongly_cleared(&self) -> Option<&'static str> {
        first_cleared(&[
            ("completion", self.completion == Change::Clear),
            ("dispatch", self.dispatch == Change::Clear),
            ("summary", self.summary == Change::Clear),
            ("title", self.title == Change::Clear),
            ("visibility", self.visibility == Change::Clear),
        ])
    }

    /// Applies the fields.
    pub(crate) fn apply(&self, spec: &mut TaskSpec) {
        self.title.replace(&mut spec.title);
        self.summary.replace(&mut spec.summary);
        self.acceptance.replace_or(&mut spec.acceptance, Vec::new());
        self.completion.replace(&mut spec.completion);
        self.dispatch.replace(&mut spec.dispatch);
        self.visibility.replace(&mut spec.visibility);
        self.assignee.apply(&mut spec.assignee);
        self.claim_only_by.apply(&mut spec.claim_only_by);
        self.ext.apply(&mut spec.ext);
        self.constraints.apply(&mut spec.constraints);
        self.metadata.apply(&mut spec.metadata);
        self.objective.apply(&mut spec.objective);
        self.on_failure.apply(&mut spec.on_failure);
        self.optional_wait_ms.apply(&mut spec.optional_wait_ms);
        self.owner.apply(&mut spec.owner);
        self.requested_by.apply(&mut spec.requested_by);
        self.retry_policy.apply(&mut spec.retry_policy);
        self.task_profile.apply(&mut spec.task_profile);
        self.priority.replace_or(&mut spec.priority, 0);
    }
}

/// A reason as callers give it: they may leave out the code.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReasonInput {
    /// Stable code, the command's default if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<SmolStr>,
    /// For programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Object>,
    /// For people.
    #[serde(default)]
    pub message: String,
    /// `false` from a worker: do not retry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retryable: Option<bool>,
}

/// One operation of a patch.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum Operation {
    /// Changes fields of the Task.
    UpdateTask(Box<TaskFields>),
    /// Adds a Step.
    AddStep {
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<ReasonInput>,
        /// The new Step.
        step: StepInput,
    },
    /// Changes fields of a Step.
    UpdateStep {
        /// The fields, with their new values.
        fields: StepFields,
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<ReasonInput>,
        /// The Step.
        step_id: StepId,
    },
    /// Removes a Step.
    DeleteStep {
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<ReasonInput>,
        /// The Step.
        step_id: StepId,
    },
    /// Makes a Step wait for another.
    AddDependency {
        /// The Step that it shall wait for.
        depends_on_step_id: StepId,
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<ReasonInput>,
        /// The Step that waits.
        step_id: StepId,
    },
    /// Makes a Step no longer wait for another.
    RemoveDependency {
        /// The Step that it waits for now.
        depends_on_step_id: StepId,
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<ReasonInput>,
        /// The Step that waits.
        step_id: StepId,
    },
    /// Cancels a pending or ready Step (S16).
    CancelStep {
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<ReasonInput>,
        /// The Step.
        step_id: StepId,
    },
    /// Reopens a blocked or failed Step (S18).
    ReopenStep {
        /// Input that comes with the reopening.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        input_refs: Vec<Ref>,
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<ReasonInput>,
        /// The Step.
        step_id: StepId,
    },
    /// Blocks the Task (T05).
    BlockTask {
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<ReasonInput>,
    },
    /// Reopens the blocked Task (T06).
    ReopenTask {
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<ReasonInput>,
    },
}

impl Operation {
    /// Why, in the caller's words (PATCH-06).
    pub fn reason(&self) -> Option<&ReasonInput> {
        match self {
            Self::UpdateTask(fields) => fields.reason.as_ref(),
            Self::AddStep { reason, .. }
            | Self::UpdateStep { reason, .. }
            | Self::DeleteStep { reason, .. }
            | Self::AddDependency { reason, .. }
            | Self::RemoveDependency { reason, .. }
            | Self::CancelStep { reason, .. }
            | Self::ReopenStep { reason, .. }
            | Self::BlockTask { reason }
            | Self::ReopenTask { reason } => reason.as_ref(),
        }
    }
}
