//! The inputs of commands, with the field names of the contract (5.2 to 5.4).

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::{Command, Wait};
use crate::event::Bindings;
use crate::id::{
    AgentId, ArtifactId, AttemptId, EdgeId, HandlerName, Millis, PoolId, Ref, RunId, StepId,
    TaskId, WalName,
};
use crate::limits::Limits;
use crate::patch::ReasonInput;
use crate::record::{Acceptance, ArtifactInput, Progress, RemoteRef, Value, WorkerOrigin};
use crate::status::{DeliveryState, EdgeKind, FactKind, ReplyKind, StepStatus, WaitKind, names};
use crate::table::Pos;

/// Completes a Task.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Complete {
    /// The acceptance criteria with their states now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acceptance: Option<Vec<Acceptance>>,
    /// Artifacts of the Task.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<ArtifactInput>,
    /// Evidence.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evidence_refs: Vec<Ref>,
    /// The result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// The result in prose.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_summary: Option<String>,
}

/// Fails or cancels a Task.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Close {
    /// How long workers may take to stop, in milliseconds, instead of what their retry policies say
    /// (POL-12). A Task of rules 1 leaves it aside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_ms: Option<u64>,
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

/// A command that has only a reason.
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
    /// Names of content fields in the input, which are refused (REPORT-04).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub content_fields: Vec<SmolStr>,
    /// The caller's token, for workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fencing_token: Option<u64>,
    /// Input for the reopened Step, from orchestrators only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub input_refs: Vec<Ref>,
    /// How many entries of the Task's `input_refs` the worker has seen, by its claim or since (CTRL-12).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_seen: Option<u64>,
    /// The result, with `completed` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// Refs of outputs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub output_refs: Vec<Ref>,
    /// Progress since the last report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// Why the Step has the new status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<ReasonInput>,
    /// The peer that does the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<RemoteRef>,
    /// What kind of answer the output is, with `completed` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply: Option<ReplyKind>,
    /// The result in prose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_summary: Option<String>,
    /// How many milliseconds must pass before a retry, with `failed` only: the wait of the retry policy
    /// may be longer, not shorter (RETRY-02).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// The final output of the Run itself, with the report that ends it. The scheduler passes it on
    /// and never stores it (DISP-13).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_result: Option<String>,
    /// The new status; absent: the report has results and progress only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<StepStatus>,
    /// The Step.
    pub step_id: StepId,
    /// What a blocked Step waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_kind: Option<WaitKind>,
}

impl StepReport {
    /// Fields of a Step that a report must not change (REPORT-04).
    pub const CONTENT: [&str; 12] = [
        "assignee",
        "claim_only_by",
        "depends_on_step_ids",
        "ext",
        "handler",
        "input",
        "inputs_from",
        "required",
        "retry_policy",
        "summary",
        "title",
        "worker_pool_id",
    ];

    /// A report with no content yet.
    pub fn on(step_id: StepId) -> Self {
        Self {
            artifact_ids: Vec::new(),
            artifacts: Vec::new(),
            attempt_id: None,
            checkpoint_refs: Vec::new(),
            content_fields: Vec::new(),
            fencing_token: None,
            input_refs: Vec::new(),
            input_seen: None,
            output: None,
            output_refs: Vec::new(),
            progress: None,
            reason: None,
            remote: None,
            reply: None,
            result_summary: None,
            retry_after_ms: None,
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
    /// Instructions for the worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// For whom the caller uses the Run itself, in the same commit (CLAIM-16).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_behalf: Option<OnBehalf>,
    /// How long the Run waits to be used, default `agents.run_ttl_ms` (DISP-02).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<RunTtl>,
    /// Whether to answer only when the Run has ended; default false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<bool>,
    /// The pool.
    pub worker_pool_id: PoolId,
}

impl Dispatch {
    /// A Run for any Step of a pool; the answer comes at once.
    pub const fn to(worker_pool_id: PoolId) -> Self {
        let (allowed_step_ids, bindings, instructions) = (None, None, None);
        let (on_behalf, ttl_ms, wait) = (None, None, None);
        Self { allowed_step_ids, bindings, instructions, on_behalf, ttl_ms, wait, worker_pool_id }
    }

    /// How long the Run waits to be used, in milliseconds; `None`: for ever.
    pub(super) const fn ttl_ms(&self, limits: &Limits) -> Option<u64> {
        match self.ttl_ms {
            None => Some(limits.run_ttl_ms),
            Some(RunTtl::Ms(ms)) => Some(ms),
            Some(RunTtl::Word(Unlimited::Unlimited)) => None,
        }
    }

    pub(super) fn waits(&self, run: Pos) -> Option<Wait> {
        self.wait.unwrap_or(false).then_some(Wait::RunEnd(run))
    }
}

/// The worker for which a gateway uses a Run at once, as that worker has no link of its own (CLAIM-16).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OnBehalf {
    /// Declines the Run for this reason, and claims nothing (RUN-12).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub declined: Option<ReasonInput>,
    /// How long the lease of the claim lasts, default as for every claim (LEASE-02).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
    /// The worker.
    pub worker_id: AgentId,
}

impl OnBehalf {
    /// How long a lease may last, in milliseconds: from a second to eight days.
    pub const LEASE_MS: RangeInclusive<u64> = 1_000..=691_200_000;

    /// A claim for this worker.
    pub const fn of(worker_id: AgentId) -> Self {
        Self { declined: None, lease_ms: None, worker_id }
    }
}

/// How long a Run waits to be used (DISP-02).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a number of milliseconds, or \"unlimited\"")]
pub enum RunTtl {
    /// So many milliseconds, [`MS`](Self::MS).
    Ms(u64),
    /// For ever.
    Word(Unlimited),
}

impl RunTtl {
    /// A Run that waits for ever.
    pub const UNLIMITED: Self = Self::Word(Unlimited::Unlimited);
    /// How many milliseconds a Run may wait: from a second to a week.
    pub const MS: RangeInclusive<u64> = 1_000..=604_800_000;
}

/// The word for no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unlimited {
    /// No limit.
    Unlimited,
}

/// `append_task_progress` on the Task.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AppendProgress {
    /// Artifacts of the Task.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<ArtifactInput>,
    /// Whether the result has reached those who wait for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery_state: Option<DeliveryState>,
    /// Evidence.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evidence_refs: Vec<Ref>,
    /// Late input.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub input_refs: Vec<Ref>,
    /// Progress since the last such command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// To whom it is delivered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<Ref>,
}

/// `task_fact`: keeps a fact with the Task, of which the scheduler makes nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KeepFact {
    /// What it is about, in the caller's words, at most 128 bytes.
    pub key: SmolStr,
    /// What kind of fact it is.
    pub kind: FactKind,
    /// The fact itself, at most 4 KiB or a reference.
    pub payload: Value,
    /// What a gateway does to the Task because of the fact: all of it, and the fact, or nothing (FACT-02).
    #[serde(
        default,
        deserialize_with = "super::follow::read",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(skip)] // For gateways alone, which have it from this crate.
    pub then: Vec<Command>,
}

impl KeepFact {
    /// A fact of which nothing follows.
    pub const fn alone(kind: FactKind, key: SmolStr, payload: Value) -> Self {
        Self { key, kind, payload, then: Vec::new() }
    }
}

/// `retry_task` on a live Task (RETRY-11).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RetrySteps {
    /// Why.
    pub reason: ReasonInput,
    /// Which failed Steps; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_ids: Option<Vec<StepId>>,
}

/// `retry_task` on a Task that has ended: a new Task with the same DAG, under another id (RETRY-12).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RetryEnded {
    /// The Task that has ended.
    pub retry_of: TaskId,
    /// The deadline of the new Task, instead of one that is as far from its creation as that of the
    /// ended Task was (RETRY-12).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_at: Option<Millis>,
    /// The same, in milliseconds from the creation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// Whether Steps that are completed there count as completed here, if their dependencies do;
    /// default false.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub keep_completed: bool,
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
    /// What the relation means.
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
    /// How a worker reports the end of its Run (5.4).
    RunOutcome {
        /// It ended normally.
        Finished = "finished",
        /// It failed.
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
    /// How the Run went.
    pub outcome: RunOutcome,
    /// The Run's own final output. The scheduler passes it on and never stores it (DISP-13).
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

/// Gives the next Step to a worker that asked for work (DISP-14).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The worker.
    pub worker_id: AgentId,
    /// Its pool.
    pub worker_pool_id: PoolId,
    /// Where it runs and what it is, if it said so (ATT-12).
    pub origin: Option<Arc<WorkerOrigin>>,
    /// The handlers that it has; absent: all.
    pub handlers: Option<Vec<HandlerName>>,
    /// Whether its place for a lost Step is free, so that it may get a Step that was lost twice (LEASE-19).
    pub may_be_suspect: bool,
}

/// What a pool considers before it gives the next ready Step to a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextStepNeeds {
    /// The handler that the Step needs.
    pub handler: HandlerName,
    /// Whether it was lost before: it is better apart from other such Steps (LEASE-19).
    pub was_lost: bool,
    /// Whether it was lost more than once: it waits until it can be apart (LEASE-19).
    pub is_suspect: bool,
    /// Whether Task or Step is assigned to one worker (CLAIM-13), so that no other may have it.
    pub is_assigned: bool,
    /// The workers with which its last Attempts ended badly, the last one first: another should try
    /// (DISP-18).
    pub tried: Vec<AgentId>,
}
