//! What commands bring with them, in the field names of the contract (5.2 to 5.4).

use alloc::string::String;
use alloc::vec::Vec;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::Wait;
use crate::event::Bindings;
use crate::id::{
    AgentId, ArtifactId, AttemptId, EdgeId, HandlerName, PoolId, Ref, RunId, StepId, TaskId,
    WalName,
};
use crate::patch::ReasonInput;
use crate::record::{Acceptance, ArtifactInput, Progress, RemoteRef, Value};
use crate::status::{DeliveryState, EdgeKind, ReplyKind, StepStatus, WaitKind, names};
use crate::table::Pos;

/// Ends a Task well.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Complete {
    /// The criteria as they stand now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acceptance: Option<Vec<Acceptance>>,
    /// Artifacts of the Task.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<ArtifactInput>,
    /// Evidence.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evidence_refs: Vec<Ref>,
    /// In prose.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_summary: Option<String>,
}

/// Fails or cancels a Task.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Close {
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<ReasonInput>,
    /// Whether to answer only when the Task has ended; default true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<bool>,
}

impl Close {
    pub(super) fn waits(&self) -> Option<Wait> {
        self.wait.unwrap_or(true).then_some(Wait::TaskEnd)
    }
}

/// A reason alone.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Why {
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<ReasonInput>,
}

/// `agent.task_update_step`: status and results of a Step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StepReport {
    /// Artifacts by id.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifact_ids: Vec<ArtifactId>,
    /// Artifacts with their records.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<ArtifactInput>,
    /// The caller's Attempt, for workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt_id: Option<AttemptId>,
    /// Checkpoints.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checkpoint_refs: Vec<Ref>,
    /// Names of content fields that came with it and are refused (REPORT-04).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub content_fields: Vec<SmolStr>,
    /// The caller's token, for workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fencing_token: Option<u64>,
    /// What comes with a reopening, orchestrators only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub input_refs: Vec<Ref>,
    /// The result, with `completed` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// Outputs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub output_refs: Vec<Ref>,
    /// Delta.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<ReasonInput>,
    /// The peer that does the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<RemoteRef>,
    /// How the output answers, with `completed` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply: Option<ReplyKind>,
    /// In prose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_summary: Option<String>,
    /// The final output of the Run itself, with the word that ends it: handed on, never stored
    /// (DISP-13).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_result: Option<String>,
    /// The new status; none: results and progress only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<StepStatus>,
    /// The Step.
    pub step_id: StepId,
    /// What a blocked Step waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_kind: Option<WaitKind>,
}

impl StepReport {
    /// Fields of a Step that no report changes (REPORT-04).
    pub const CONTENT: [&str; 9] = [
        "assignee",
        "depends_on_step_ids",
        "handler",
        "input",
        "required",
        "retry_policy",
        "summary",
        "title",
        "worker_pool_id",
    ];

    /// A report that says nothing yet.
    pub fn on(step_id: StepId) -> Self {
        Self {
            artifact_ids: Vec::new(),
            artifacts: Vec::new(),
            attempt_id: None,
            checkpoint_refs: Vec::new(),
            content_fields: Vec::new(),
            fencing_token: None,
            input_refs: Vec::new(),
            output: None,
            output_refs: Vec::new(),
            progress: None,
            reason: None,
            remote: None,
            reply: None,
            result_summary: None,
            run_result: None,
            status: None,
            step_id,
            wait_kind: None,
        }
    }
}

/// `agent.dispatch_worker`: makes a Run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Dispatch {
    /// The hard scope (DISP-10).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_step_ids: Option<Vec<StepId>>,
    /// Thread and environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bindings: Option<Bindings>,
    /// For the worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// Whether to answer only when the Run has ended; default false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<bool>,
    /// The pool.
    pub worker_pool_id: PoolId,
}

impl Dispatch {
    /// Of any Step of a pool, answered at once.
    pub const fn to(worker_pool_id: PoolId) -> Self {
        let (allowed_step_ids, bindings, instructions, wait) = (None, None, None, None);
        Self { allowed_step_ids, bindings, instructions, wait, worker_pool_id }
    }

    pub(super) fn waits(&self, run: Pos) -> Option<Wait> {
        self.wait.unwrap_or(false).then_some(Wait::RunEnd(run))
    }
}

/// `append_task_progress` on the Task.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AppendProgress {
    /// Artifacts of the Task.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<ArtifactInput>,
    /// Whether the result reached who waits for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery_state: Option<DeliveryState>,
    /// Evidence.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evidence_refs: Vec<Ref>,
    /// Late input.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub input_refs: Vec<Ref>,
    /// Delta.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// To whom it is delivered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<Ref>,
}

/// `retry_task` on a live Task (RETRY-11).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RetrySteps {
    /// Why.
    pub reason: ReasonInput,
    /// Which failed Steps; none: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_ids: Option<Vec<StepId>>,
}

/// `retry_task` on a Task that has ended: it is made again, under another id (RETRY-12).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RetryEnded {
    /// The Task that has ended.
    pub retry_of: TaskId,
    /// Why.
    pub reason: ReasonInput,
    /// Name of the new Task's log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wal_name: Option<WalName>,
}

/// `link_tasks`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// What it means.
    pub kind: EdgeKind,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The other end.
    pub to: Ref,
}

/// `unlink_tasks`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Unlink {
    /// Which relation.
    pub edge_id: EdgeId,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

names! {
    /// How a worker says its Run went (5.4).
    RunOutcome {
        /// It came to its end.
        Finished = "finished",
        /// It broke.
        Error = "error",
        /// It was stopped.
        Cancelled = "cancelled",
        /// It took too long.
        TimedOut = "timed_out",
    }
}

/// `end_run`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EndRun {
    /// How it went.
    pub outcome: RunOutcome,
    /// Its own final output: handed on, never stored (DISP-13).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// The Run.
    pub run_id: RunId,
}

/// `decline_run` and `cancel_run`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunAndWhy {
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<ReasonInput>,
    /// The Run.
    pub run_id: RunId,
}

/// A worker that asked for work (DISP-14).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The worker.
    pub worker_id: AgentId,
    /// Its pool.
    pub worker_pool_id: PoolId,
    /// What it can run; none: everything.
    pub handlers: Option<Vec<HandlerName>>,
    /// Its place for a Step that was lost before is free: it may get one that was lost twice (LEASE-19).
    pub may_be_suspect: bool,
}

/// What is to be minded when the next ready Step is given to a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextStepNeeds {
    /// The handler that the Step needs.
    pub handler: HandlerName,
    /// It was lost before: better apart from others that were (LEASE-19).
    pub was_lost: bool,
    /// It was lost more than once: it waits until it can be apart (LEASE-19).
    pub is_suspect: bool,
    /// Task or Step is assigned to a worker (CLAIM-13): no other may have it.
    pub is_assigned: bool,
    /// The workers with which its last Attempts ended badly, the last one first: another is to try (DISP-18).
    pub tried: Vec<AgentId>,
}
