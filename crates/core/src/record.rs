//! Records that commands, events and state share (contract 2.1, 2.2, 2.7).

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value as Json};
use smol_str::SmolStr;

use crate::id::{
    AgentId, ArtifactId, AttemptId, EdgeId, HandlerName, Millis, PoolId, Ref, RunId, SessionId,
    StepId, TaskId, WalName,
};
use crate::status::{
    AcceptanceState, ArtifactKind, ArtifactState, DeliveryState, EdgeKind, EdgeStatus, Intent,
    Policy, TaskStatus, Visibility,
};

/// An open map of JSON values: opaque to the scheduler.
pub type Object = Map<String, Json>;

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// An opaque value of a Step (U13): bytes inline up to the limit, or a pointer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    /// Media type of the data.
    pub content_type: SmolStr,
    /// The data itself, or where it is.
    pub body: ValueBody,
}

/// Where the bytes of a [`Value`] are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueBody {
    /// The bytes themselves.
    Data(Arc<[u8]>),
    /// A reference to them.
    Ref(Ref),
}

impl Value {
    /// Media type when none is given.
    pub const JSON: &'static str = "application/json";

    /// Inline bytes of a media type.
    pub fn inline(content_type: &str, data: impl Into<Arc<[u8]>>) -> Self {
        Self { content_type: SmolStr::new(content_type), body: ValueBody::Data(data.into()) }
    }

    /// Inline JSON text.
    pub fn json(data: impl Into<Arc<[u8]>>) -> Self {
        Self { content_type: SmolStr::new_static(Self::JSON), body: ValueBody::Data(data.into()) }
    }

    /// The inline bytes; `None` for a reference.
    pub fn data(&self) -> Option<&[u8]> {
        match &self.body {
            ValueBody::Data(data) => Some(data),
            ValueBody::Ref(_) => None,
        }
    }
}

#[derive(Serialize)]
struct ValueOut<'a> {
    content_type: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<BytesOut<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    encoding: Option<&'a str>,
    #[serde(rename = "ref", skip_serializing_if = "Option::is_none")]
    reference: Option<&'a Ref>,
}

enum BytesOut<'a> {
    Text(&'a str),
    Base64(String),
    Bin(&'a [u8]),
}

impl Serialize for BytesOut<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => s.serialize_str(text),
            Self::Base64(text) => s.serialize_str(text),
            Self::Bin(bytes) => s.serialize_bytes(bytes),
        }
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut out = ValueOut {
            content_type: &self.content_type,
            data: None,
            encoding: None,
            reference: None,
        };
        match &self.body {
            ValueBody::Ref(reference) => out.reference = Some(reference),
            ValueBody::Data(data) if !s.is_human_readable() => out.data = Some(BytesOut::Bin(data)),
            ValueBody::Data(data) => match core::str::from_utf8(data) {
                Ok(text) => out.data = Some(BytesOut::Text(text)),
                Err(_) => {
                    out.encoding = Some("base64");
                    out.data = Some(BytesOut::Base64(BASE64.encode(data)));
                }
            },
        }
        out.serialize(s)
    }
}

/// The form that [`ValueOut`] writes and [`ValueIn`] reads.
impl JsonSchema for Value {
    fn schema_name() -> Cow<'static, str> {
        "Value".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Data with its media type: here, or at a reference.",
            "type": "object",
            "properties": {
                "content_type": {
                    "description": "The media type.",
                    "type": "string",
                    "default": Self::JSON,
                },
                "data": {
                    "description": "The bytes, at most 64 KiB: as `bin` in MessagePack, or as text.",
                    "type": "string",
                },
                "encoding": {
                    "description": "How `data` is written where it is no text.",
                    "const": "base64",
                },
                "ref": generator.subschema_for::<Ref>(),
            },
            "additionalProperties": false,
            "oneOf": [{ "required": ["data"] }, { "required": ["ref"] }],
        })
    }
}

struct BytesIn(Vec<u8>);

impl<'de> Deserialize<'de> for BytesIn {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Either;
        impl serde::de::Visitor<'_> for Either {
            type Value = BytesIn;
            fn expecting(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str("text or bytes")
            }
            fn visit_str<E: serde::de::Error>(self, v: &str) -> Result<BytesIn, E> {
                Ok(BytesIn(v.as_bytes().to_vec()))
            }
            fn visit_bytes<E: serde::de::Error>(self, v: &[u8]) -> Result<BytesIn, E> {
                Ok(BytesIn(v.to_vec()))
            }
        }
        d.deserialize_any(Either)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ValueIn {
    content_type: Option<SmolStr>,
    data: Option<BytesIn>,
    encoding: Option<SmolStr>,
    #[serde(rename = "ref")]
    reference: Option<Ref>,
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        use serde::de::Error as _;
        let given = ValueIn::deserialize(d)?;
        let content_type = given.content_type.unwrap_or(SmolStr::new_static(Self::JSON));
        let body = match (given.data, given.reference, given.encoding.as_deref()) {
            (Some(data), None, None) => ValueBody::Data(data.0.into()),
            (Some(data), None, Some("base64")) => {
                ValueBody::Data(BASE64.decode(data.0).map_err(D::Error::custom)?.into())
            }
            (None, Some(reference), None) => ValueBody::Ref(reference),
            (_, _, Some(_)) => {
                return Err(D::Error::custom("encoding goes with data, as `base64`"));
            }
            _ => return Err(D::Error::custom("exactly one of `data` and `ref` is needed")),
        };
        Ok(Self { content_type, body })
    }
}

/// Waiting time between automatic retries (RETRY-06).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
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

impl Default for Backoff {
    fn default() -> Self {
        Self { initial_ms: 1_000, factor: 2.0, max_ms: 60_000, jitter: 0.1 }
    }
}

/// Limits on the failures, losses and time of a Step (U9).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RetryPolicy {
    /// Attempts that may fail, from 1; absent: unlimited.
    pub max_attempts: Option<u32>,
    /// Attempts that may be lost, from 1; absent: unlimited.
    pub max_lost: Option<u32>,
    /// Waiting time between attempts.
    pub backoff: Backoff,
    /// Codes that are never retried.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub non_retryable: Vec<SmolStr>,
    /// Longest time from ready to claimed, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule_to_start_ms: Option<u64>,
    /// Longest time from claimed to ended, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_to_close_ms: Option<u64>,
    /// Lease duration instead of the general one, in milliseconds (LEASE-02).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heartbeat_ms: Option<u64>,
}

impl RetryPolicy {
    /// The default for automatic completion (RETRY-02).
    pub fn automatic() -> Self {
        Self { max_attempts: Some(3), max_lost: Some(3), ..Self::default() }
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

/// Adds the items that the list lacks, in order.
pub(crate) fn add_once<T: Clone + PartialEq>(list: &mut Vec<T>, items: &[T]) {
    for item in items {
        if !list.contains(item) {
            list.push(item.clone());
        }
    }
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
    /// When it was first reported.
    pub created_at: Millis,
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
    /// Whether the Task needs it to complete (DAG-08).
    pub required: bool,
    /// The pool whose workers may claim it (DAG-09).
    pub worker_pool_id: PoolId,
    /// Which of the worker's handlers runs it (U13).
    pub handler: HandlerName,
    /// The input of the handler (U13).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// Retry policy instead of the Task's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_policy: Option<Arc<RetryPolicy>>,
    /// Only this worker may claim (CLAIM-13).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assignee: Option<AgentId>,
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
    /// What the Task shall reach.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objective: Option<String>,
    /// Attribution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_by: Option<AgentId>,
    /// Attribution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<AgentId>,
    /// Attribution, and the only worker that may claim (CLAIM-13).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assignee: Option<AgentId>,
    /// Retry policy of Steps that have none of their own, as at creation (RETRY-02).
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
    /// Opaque.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<Object>,
    /// Opaque except for `deadline_at` (POL-08).
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

impl TaskSpec {
    /// The deadline of the Task, if it has one (`constraints.deadline_at`).
    pub fn deadline_at(&self) -> Option<Millis> {
        self.constraints.as_ref()?.get(DEADLINE_AT)?.as_i64()
    }
}
