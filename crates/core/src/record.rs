//! Records that commands, events and state share (contract 2.1, 2.2, 2.7).

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use smol_str::SmolStr;

use crate::id::{
    AgentId, ArtifactId, AttemptId, EdgeId, HandlerName, Millis, PoolId, Ref, RunId, SessionId,
    StepId, TaskId, WalName,
};
use crate::retry_policy::{BackoffFields, Limit};
use crate::status::{
    AcceptanceState, ArtifactKind, ArtifactState, DeliveryState, EdgeKind, EdgeStatus, FactKind,
    Intent, LeaseDoubt, OnFailure, ParentClose, Policy, TaskStatus, Visibility,
};
use crate::table::Pos;

pub use crate::value::{Blob, Encodings, Value, ValueBody};

/// An open map of JSON values: opaque to the scheduler.
pub type Object = Map<String, Json>;

/// Names and values by which listings find a Task (LABEL-01).
pub type Labels = BTreeMap<SmolStr, SmolStr>;

/// Whether a field has its default value, and so need not be written.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Waiting time between automatic retries (RETRY-06).
#[derive(Debug, Clone, PartialEq)]
pub struct Backoff {
    /// Before the first retry, in milliseconds.
    pub initial_ms: u64,
    /// Growth from one retry to the next.
    pub factor: f64,
    /// Longest wait, in milliseconds.
    pub max_ms: u64,
    /// Share of the wait that is random, 0 to 1.
    pub jitter: f64,
}

/// What counts in Tasks of rules 1, and in task files.
impl Default for Backoff {
    fn default() -> Self {
        Self { initial_ms: 1_000, factor: 2.0, max_ms: 60_000, jitter: 0.1 }
    }
}

impl Backoff {
    /// The default of rules 2 (RETRY-02).
    pub const fn standard() -> Self {
        Self { initial_ms: 1_000, factor: 4.0, max_ms: 600_000, jitter: 0.5 }
    }
}

/// Limits on the failures, losses and time of a Step (U9). A field that is absent or null has its
/// default: that of the Task's policy for a Step's, and by `completion` for a Task's (RETRY-14).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RetryPolicy {
    /// Attempts that may fail, from 1.
    pub max_attempts: Option<Limit<u32>>,
    /// Attempts that may be lost, from 1.
    pub max_lost: Option<Limit<u32>>,
    /// Waiting time between attempts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff: Option<BackoffFields>,
    /// Codes that are never retried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub non_retryable: Option<Vec<SmolStr>>,
    /// Longest time from ready to claimed, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule_to_start_ms: Option<Limit<u64>>,
    /// Longest time from claimed to ended, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_to_close_ms: Option<Limit<u64>>,
    /// Longest time from the first ready, since creation or the last explicit reopen, to the end, in
    /// milliseconds; however many Attempts there are (POL-12).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule_to_close_ms: Option<Limit<u64>>,
    /// Longest time for which it is blocked, in milliseconds (POL-12).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked_ms: Option<Limit<u64>>,
    /// How long its worker may take to stop, in milliseconds (POL-12).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancel_grace_ms: Option<u64>,
    /// Lease duration instead of the general one, in milliseconds (LEASE-02).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heartbeat_ms: Option<u64>,
    /// What a worker does that cannot renew its lease; absent: it stops (LEASE-17).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_lease_doubt: Option<LeaseDoubt>,
    /// Whether `completed` is accepted after the loss, while nobody else has had the Step; absent: if the
    /// Task's completion is automatic (REPORT-14).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accept_late: Option<bool>,
}

impl RetryPolicy {
    /// The default for automatic completion of a Task of rules 1 (RETRY-02).
    pub fn automatic() -> Self {
        let three = Some(Limit::Of(3));
        let backoff = Some(Backoff::default().into());
        Self { max_attempts: three, max_lost: three, backoff, ..Self::default() }
    }
}

/// Where a worker runs and what it is, in its own words (ATT-12).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerOrigin {
    /// Its machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_host: Option<SmolStr>,
    /// The build of its program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_build: Option<SmolStr>,
}

impl WorkerOrigin {
    /// How many characters of each are kept.
    pub const CHARS_MAX: usize = 64;

    /// What a worker said of itself; `None` if it said nothing.
    pub fn of(host: Option<&str>, build: Option<&str>) -> Option<Self> {
        let kept = |said: &str| said.chars().take(Self::CHARS_MAX).collect::<SmolStr>();
        let said = |said: Option<&str>| said.filter(|said| !said.is_empty()).map(kept);
        let origin = Self { worker_host: said(host), worker_build: said(build) };
        (origin != Self::default()).then_some(origin)
    }
}

/// Why something is blocked, failed or cancelled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reason {
    /// Stable code (6.3, or the caller's own).
    pub code: SmolStr,
    /// For people.
    #[serde(default)]
    pub message: String,
    /// `false` from a worker: do not retry (RETRY-05).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retryable: Option<bool>,
    /// For programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Object>,
}

impl Reason {
    /// A reason whose message is its code.
    pub fn code(code: &str) -> Self {
        Self::new(code, code)
    }

    /// A reason with a message.
    pub fn new(code: &str, message: &str) -> Self {
        Self {
            code: SmolStr::new(code),
            message: String::from(message),
            retryable: None,
            details: None,
        }
    }
}

/// The progress of a Task or Step (PROG-01). As a delta: present fields replace, `counters` and
/// `output_offsets` merge by key, `output_refs` are added once.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Progress {
    /// 0 to 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percent: Option<f64>,
    /// planning, working, verifying, delivering, waiting, or own value (PROG-02).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<SmolStr>,
    /// What is being done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_step: Option<String>,
    /// A list of todos, opaque and never authoritative (PROG-06).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checklist: Option<Json>,
    /// A summary in prose.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// Named counts.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub counters: BTreeMap<SmolStr, Counter>,
    /// Outputs so far.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub output_refs: Vec<Ref>,
    /// How much of a log-like output there is, in bytes (PROG-03).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub output_offsets: BTreeMap<Ref, u64>,
    /// Whether the result has reached those who wait for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery_state: Option<DeliveryState>,
    /// The state of validation, in the reporter's own values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validation_state: Option<SmolStr>,
    /// Criteria met of all (PROG-09).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acceptance_coverage: Option<Coverage>,
    /// When it was reported; set by the reducer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updated_at: Option<Millis>,
}

impl Progress {
    /// Applies a delta that was reported at `at`.
    pub fn merge(&mut self, delta: &Progress, at: Millis) {
        fn take<T: Clone>(to: &mut Option<T>, from: &Option<T>) {
            if from.is_some() {
                to.clone_from(from);
            }
        }
        take(&mut self.percent, &delta.percent);
        take(&mut self.phase, &delta.phase);
        take(&mut self.current_step, &delta.current_step);
        take(&mut self.checklist, &delta.checklist);
        take(&mut self.summary, &delta.summary);
        take(&mut self.delivery_state, &delta.delivery_state);
        take(&mut self.validation_state, &delta.validation_state);
        take(&mut self.acceptance_coverage, &delta.acceptance_coverage);
        self.counters.extend(delta.counters.iter().map(|(k, v)| (k.clone(), *v)));
        self.output_offsets.extend(delta.output_offsets.iter().map(|(k, v)| (k.clone(), *v)));
        add_once(&mut self.output_refs, &delta.output_refs);
        self.updated_at = Some(at);
    }
}

/// Adds the items that the list lacks, in order. Takes time for the lengths of both, not for their product.
pub(crate) fn add_once<T: Clone + Ord>(list: &mut Vec<T>, items: &[T]) {
    if let [item] = items {
        if !list.contains(item) {
            list.push(item.clone());
        }
        return;
    }
    let mut lacks: BTreeSet<&T> = items.iter().collect();
    for there in list.iter() {
        lacks.remove::<T>(there);
    }
    list.extend(items.iter().filter(|item| lacks.remove(item)).cloned());
}

/// A count of something done, of a total if known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Counter {
    /// Done so far.
    pub done: u64,
    /// The total, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
}

/// Acceptance criteria met of all (PROG-09).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Coverage {
    /// Met or waived.
    pub met: u64,
    /// All.
    pub total: u64,
}

/// An artifact as a report describes it. The reducer adds Task, Step, Attempt and time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ArtifactInput {
    /// New for every emitted version (ART-02).
    pub artifact_id: ArtifactId,
    /// Stays the same over versions.
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
    /// Digest of the content, with its algorithm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Whether it can be read.
    pub state: ArtifactState,
}

/// An artifact of the Task (ART-01).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Artifact {
    /// As the report described it.
    pub given: ArtifactInput,
    /// The Step that produced it.
    pub step_id: Option<StepId>,
    /// The Attempt that produced it.
    pub attempt_id: Option<AttemptId>,
    /// The Attempt that named it last, by position; absent: an orchestrator's report or the Task did
    /// (TERM-10).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub named_by: Option<Pos>,
    /// When it was first reported.
    pub created_at: Millis,
}

/// A fact that a gateway keeps with the Task, of which the scheduler makes nothing (FACT-01).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fact {
    /// What kind of fact it is.
    pub kind: FactKind,
    /// What it is about, in the gateway's words.
    pub key: SmolStr,
    /// The fact itself.
    pub payload: Value,
    /// The place of its event in the log.
    pub wal_seq: u64,
}

/// A relation between this Task and something else (REL-01).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Edge {
    /// Stable id.
    pub edge_id: EdgeId,
    /// What it means.
    pub kind: EdgeKind,
    /// This Task.
    pub from: Ref,
    /// The other end.
    pub to: Ref,
    /// Active or removed.
    pub status: EdgeStatus,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<EdgeReason>,
    /// When it was made.
    pub created_at: Millis,
    /// When it last changed.
    pub updated_at: Millis,
}

/// Why there is a relation, or why it was removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum EdgeReason {
    /// A text.
    Text(String),
    /// The whole reason of a Task that is made again, if it is more than a text (RETRY-12).
    Whole(Box<Reason>),
}

/// Work delegated to a peer (A2A-02).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RemoteRef {
    /// `a2a`, `macp` or another protocol.
    pub native_protocol: SmolStr,
    /// The peer's task.
    pub remote_task_id: SmolStr,
    /// The peer's context.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote_context_id: Option<SmolStr>,
    /// The peer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote_agent_ref: Option<SmolStr>,
    /// The peer's card.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_card_ref: Option<SmolStr>,
    /// polling, streaming, subscription, push_notification or custom.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery_mechanism: Option<SmolStr>,
    /// The peer's status, normalized.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote_status: Option<SmolStr>,
    /// The peer's status in its own words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub native_status: Option<SmolStr>,
    /// The peer's artifacts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remote_artifact_refs: Vec<Ref>,
    /// Whether the peer's facts are stored here (TERM-10).
    pub reconciled: bool,
}

/// An acceptance criterion (P22).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Acceptance {
    /// Stable id.
    pub id: SmolStr,
    /// What is required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Where the requirement is written.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<Ref>,
    /// Its state.
    pub state: AcceptanceState,
}

/// The recorded intent to close a Task (CANCEL-01).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CancelRequest {
    /// Whether closing cancels or fails the Task.
    pub intent: Intent,
    /// Why.
    pub reason: Reason,
    /// Who asked: the actor of the final event.
    pub by: AgentId,
    /// Their Run.
    pub by_run: Option<RunId>,
    /// `wal_seq` of the request.
    pub seq: u64,
    /// When.
    pub at: Millis,
    /// Until when Runs may take to stop.
    pub deadline_at: Millis,
}

/// What the orchestrator wrote about a Step (2.2, columns C and O), with defaults filled in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StepSpec {
    /// Unique in the Task for ever (ID-05, ID-06).
    pub step_id: StepId,
    /// For people.
    pub title: SmolStr,
    /// For people.
    pub summary: SmolStr,
    /// Steps that must be completed first: a set in the given order (DAG-14).
    pub depends_on_step_ids: Vec<StepId>,
    /// Ancestors whose results a claim hands on, in this order; absent: the direct dependencies (STEP-37).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs_from: Option<Vec<StepId>>,
    /// Whether the Task needs it to complete (DAG-08).
    pub required: bool,
    /// The pool whose workers may claim it (DAG-09).
    pub worker_pool_id: PoolId,
    /// Which of the worker's handlers runs it (U13).
    pub handler: HandlerName,
    /// The input of the handler (U13).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// Its own retry policy, as it was given (RETRY-14).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_policy: Option<Arc<RetryPolicy>>,
    /// Attribution; in Tasks of rules 1 the only worker that may claim (CLAIM-13).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assignee: Option<AgentId>,
    /// The only principal whose workers may claim (CLAIM-13).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim_only_by: Option<AgentId>,
    /// What other software keeps with it: opaque, and not for workers (EVOLVE-03).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ext: Option<Object>,
}

impl StepSpec {
    /// The Steps whose results a claim hands on (STEP-37).
    pub fn inputs(&self) -> &[StepId] {
        self.inputs_chosen().0
    }

    /// The same, and whether the Step names them itself.
    pub fn inputs_chosen(&self) -> (&[StepId], bool) {
        let named = self.inputs_from.as_deref();
        (named.unwrap_or(&self.depends_on_step_ids), named.is_some())
    }
}

/// What the creator and orchestrator wrote about a Task (2.1, columns C and O).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskSpec {
    /// Unique in the session for ever.
    pub task_id: TaskId,
    /// Namespace of the Task.
    pub session_id: SessionId,
    /// Name of the WAL (STORE-09).
    pub wal_name: WalName,
    /// For people.
    pub title: SmolStr,
    /// For people.
    pub summary: SmolStr,
    /// Who gives out Steps.
    pub dispatch: Policy,
    /// Who ends the Task.
    pub completion: Policy,
    /// Pool of Steps that name no pool.
    pub default_worker_pool_id: PoolId,
    /// The Task itself if it has no parent.
    pub root_task_id: TaskId,
    /// The state of delivery at creation.
    pub delivery_state: DeliveryState,
    /// Who sees it.
    #[serde(default = "internal", skip_serializing_if = "is_internal")]
    pub visibility: Visibility,
    /// Conversation linkage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<SmolStr>,
    /// Conversation linkage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<SmolStr>,
    /// The Task that made this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_task_id: Option<TaskId>,
    /// What becomes of this Task if its parent completes (REL-09).
    #[serde(default, skip_serializing_if = "is_default")]
    pub parent_close: ParentClose,
    /// The Step whose output is the Task's, if it completes without another (TASK-22).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_from: Option<StepId>,
    /// What the Task shall reach.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objective: Option<String>,
    /// Attribution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_by: Option<AgentId>,
    /// Attribution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<AgentId>,
    /// Attribution; in Tasks of rules 1 the only worker that may claim (CLAIM-13).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assignee: Option<AgentId>,
    /// The only principal whose workers may claim Steps that name none of their own (CLAIM-13).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim_only_by: Option<AgentId>,
    /// Retry policy of the Steps, where they have none of their own (RETRY-02, RETRY-14).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_policy: Option<Arc<RetryPolicy>>,
    /// Classification.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_kind: Option<SmolStr>,
    /// Classification.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_family: Option<SmolStr>,
    /// Hint between Tasks, higher first (P16).
    #[serde(default, skip_serializing_if = "is_default")]
    pub priority: i32,
    /// What it does when it is failing (POL-05).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<OnFailure>,
    /// How long it waits for optional Steps, in milliseconds (POL-06).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub optional_wait_ms: Option<u64>,
    /// Opaque.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<Object>,
    /// Opaque except for `deadline_at` and `deadline_hard` (POL-08).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constraints: Option<Object>,
    /// Opaque.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_profile: Option<Object>,
    /// Criteria of completion (TERM-11).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub acceptance: Vec<Acceptance>,
    /// The Task that this one runs again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<TaskId>,
    /// Opaque.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<SmolStr>,
    /// Opaque.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Object>,
    /// `a2a`, `macp` or none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native_protocol: Option<SmolStr>,
    /// Names and values by which listings find it (LABEL-01).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: Labels,
    /// What other software keeps with it: opaque, and not for workers (EVOLVE-03).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ext: Option<Object>,
    /// The working directory, if it was made from a file (STORE-17).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<SmolStr>,
    /// `draft` or `pending`: the status at creation.
    pub status: TaskStatus,
    /// The `parent` or `retry_of` edge (REL-04).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub relationships: Vec<Edge>,
    /// The Steps in creation order. Empty in the Task's state, which has its own.
    pub steps: Arc<[Arc<StepSpec>]>,
}

fn internal() -> Visibility {
    Visibility::Internal
}

#[allow(clippy::trivially_copy_pass_by_ref)] // The shape serde asks for.
fn is_internal(visibility: &Visibility) -> bool {
    *visibility == Visibility::Internal
}

/// Key in a Task's constraints: the deadline of the Task (POL-08).
pub const DEADLINE_AT: &str = "deadline_at";

/// Key in the constraints of a create: after how many milliseconds the deadline is (POL-11).
pub const DEADLINE_MS: &str = "deadline_ms";

/// Key in a Task's constraints: pauses move the deadline no more, and it counts in a pause (POL-08).
pub const DEADLINE_HARD: &str = "deadline_hard";

impl TaskSpec {
    /// STORE-14: whether a log of this name may be the Task's. It has the name that its creator gave, or as an
    /// exported log that of the Task.
    pub fn may_have_log(&self, name: &WalName) -> bool {
        self.wal_name == *name || WalName::from(&self.task_id) == *name
    }

    /// Whether the deadline is a hard one (`constraints.deadline_hard`).
    pub fn is_deadline_hard(&self) -> bool {
        let hard = self.constraints.as_ref().and_then(|it| it.get(DEADLINE_HARD)?.as_bool());
        hard.unwrap_or(false)
    }

    /// The deadline of the Task as it was written, if it has one (`constraints.deadline_at`).
    pub fn deadline_at(&self) -> Option<Millis> {
        self.constraints.as_ref()?.get(DEADLINE_AT)?.as_i64()
    }
}
