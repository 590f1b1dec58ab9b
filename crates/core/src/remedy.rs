//! [`Remedy`]: an operation that would change what keeps a Step or a Task waiting. Details of refusals and explanations
//! name such operations.

use alloc::format;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::id::{ArtifactId, RunId, StepId};

/// An operation that would change a reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Remedy {
    /// Its name, as a command or as an operation of a patch.
    pub operation: SmolStr,
    /// The Step on which to call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_id: Option<StepId>,
    /// The Run on which to call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// The artifact whose last state to report with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_id: Option<ArtifactId>,
    /// The dependency that it would remove.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depends_on_step_id: Option<StepId>,
    /// Whether it would end the Task, as things stand.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub ends_task: bool,
}

impl Remedy {
    pub(crate) fn new(operation: &'static str) -> Self {
        let operation = SmolStr::new_static(operation);
        let (step_id, run_id, artifact_id, depends_on_step_id) = (None, None, None, None);
        Self { operation, step_id, run_id, artifact_id, depends_on_step_id, ends_task: false }
    }

    pub(crate) fn on_step(operation: &'static str, id: &StepId) -> Self {
        Self { step_id: Some(id.clone()), ..Self::new(operation) }
    }

    pub(crate) fn on_artifact(operation: &'static str, id: &ArtifactId) -> Self {
        Self { artifact_id: Some(id.clone()), ..Self::new(operation) }
    }

    /// In one word: the operation, and what it is on.
    pub(crate) fn word(&self) -> SmolStr {
        let step = self.step_id.as_ref().map(StepId::as_str);
        match step.or(self.artifact_id.as_ref().map(ArtifactId::as_str)) {
            Some(on) => format!("{}:{on}", self.operation).into(),
            None => self.operation.clone(),
        }
    }

    pub(crate) fn on_run(operation: &'static str, id: RunId) -> Self {
        Self { run_id: Some(id), ..Self::new(operation) }
    }
}
