//! Refusals of commands and queries, with stable codes (contract section 6). A refused command has
//! changed nothing.

use alloc::borrow::Cow;
use alloc::string::{String, ToString};
use core::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value as Json};

use crate::status::names;

names! {
    /// Stable error codes (6.1).
    Code {
        /// Malformed input, bad id, over a limit.
        ValidationError = "validation_error",
        /// Embedded: the `wal_name` is taken in the session.
        PathConflict = "path_conflict",
        /// An append failed, or a log cannot be replayed.
        StorageError = "storage_error",
        /// The new edges would close a cycle.
        DependencyCycle = "dependency_cycle",
        /// Other Steps depend on the Step that is to be deleted.
        StepHasDependents = "step_has_dependents",
        /// The Task has ended.
        TaskTerminal = "task_terminal",
        /// The Step is held under another lease; normal, not a failure.
        StepAlreadyClaimed = "step_already_claimed",
        /// The Run has used its one claim.
        StepAlreadyClaimedByRun = "step_already_claimed_by_run",
        /// The operation is not in the caller's tool set.
        ToolNotAvailable = "tool_not_available",
        /// The caller has the operation, but not on this Task, Step or field.
        PermissionDenied = "permission_denied",
        /// `expected_version` differs.
        VersionConflict = "version_conflict",
        /// A known `command_id` or key with other content.
        IdempotencyConflict = "idempotency_conflict",
        /// Unknown Task.
        TaskNotFound = "task_not_found",
        /// Unknown Step.
        StepNotFound = "step_not_found",
        /// Unknown Run.
        RunNotFound = "run_not_found",
        /// The `task_id` exists in the session.
        TaskIdConflict = "task_id_conflict",
        /// Parts of the creation of the Task are missing.
        CreationUnfinished = "creation_unfinished",
        /// Dispatch or claim while the Task is draft, blocked or paused.
        TaskNotDispatchable = "task_not_dispatchable",
        /// A cancel or fail is being carried out.
        TaskCancelling = "task_cancelling",
        /// Claim of a Step that is not ready.
        StepNotReady = "step_not_ready",
        /// The Step is outside of pool or `allowed_step_ids`, or unknown to this worker.
        StepOutOfScope = "step_out_of_scope",
        /// The Step is claimed or running.
        StepInProgress = "step_in_progress",
        /// Results of a completed Step do not change.
        StepHistoryImmutable = "step_history_immutable",
        /// A status change that section 3 does not have.
        InvalidTransition = "invalid_transition",
        /// Report or heartbeat of an Attempt that is not current.
        StaleAttempt = "stale_attempt",
        /// Claim under an ended Run.
        RunEnded = "run_ended",
        /// Completion while required Steps are unfinished.
        RequiredStepsIncomplete = "required_steps_incomplete",
        /// Completion while Steps are claimed or running.
        StepsInProgress = "steps_in_progress",
        /// Completion before artifacts or peer facts are settled.
        FactsUnreconciled = "facts_unreconciled",
        /// Completion before the acceptance criteria are met or waived.
        AcceptanceUnmet = "acceptance_unmet",
        /// A blob that is named was not put, or cannot be read.
        BlobMissing = "blob_missing",
        /// A value has more bytes than any value may have.
        ValueTooLarge = "value_too_large",
        /// The blobs cannot be reached now.
        StorageUnavailable = "storage_unavailable",
        /// The blobs of the session take as much as they may.
        QuotaExceeded = "quota_exceeded",
        /// The worker that alone has what a command wrote has no link with its owner.
        WorkerGone = "worker_gone",
        /// Wrong or superseded partition owner.
        NotOwner = "not_owner",
        /// No verified principal.
        Unauthenticated = "unauthenticated",
        /// Timeout, overload, or an append not yet settled; retry with the same `command_id`.
        Unavailable = "unavailable",
    }
}

impl Code {
    /// The codes with which every operation may be refused: those of K1 to K5, K7, K11 and K14 of
    /// 5.1, and those of the transport.
    pub const COMMON: &'static [Self] = &[
        Self::ValidationError,
        Self::Unauthenticated,
        Self::ToolNotAvailable,
        Self::PermissionDenied,
        Self::TaskNotFound,
        Self::StorageError,
        Self::NotOwner,
        Self::Unavailable,
    ];

    /// Whether the same command may succeed later without a change.
    pub const fn is_retryable(self) -> bool {
        matches!(
            self,
            Self::StorageError | Self::StorageUnavailable | Self::NotOwner | Self::Unavailable
        )
    }

    /// Whether a report refused with this code is of an Attempt that is over, so that nothing in it counts.
    pub const fn ends_attempt(self) -> bool {
        matches!(self, Self::StaleAttempt | Self::TaskTerminal | Self::RunEnded)
    }
}

names! {
    /// The values of `details.kind`, for codes that leave open what happened.
    RejectionKind {
        /// The command may have taken effect or not; the caller learns it by repeating it with the
        /// same id (WAL-09).
        Ambiguous = "ambiguous",
        /// The append failed, and nothing was recorded.
        AppendFailed = "append_failed",
        /// Too many requests are in flight; the caller may repeat the request later.
        Overloaded = "overloaded",
        /// The log of the Task cannot be read (RECOVER-04).
        ReplayFailed = "replay_failed",
    }
}

/// The key of the [`RejectionKind`] in the details.
const KIND: &str = "kind";

/// A refusal: a code, a message for people, and details for programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// Stable code.
    pub code: Code,
    /// What is wrong, in lower case without a full stop.
    pub message: String,
    /// Field, ids, versions: what a program needs to react.
    pub details: Map<String, Json>,
}

impl Rejection {
    /// A refusal without details.
    #[cold] // So that what refuses is laid out apart from what decides.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: Map::new() }
    }

    /// Adds one detail.
    #[must_use]
    #[cold]
    pub fn with(mut self, key: &str, value: impl Into<Json>) -> Self {
        self.details.insert(key.to_string(), value.into());
        self
    }

    /// Adds its kind to the details.
    #[must_use]
    pub fn of_kind(self, kind: RejectionKind) -> Self {
        self.with(KIND, kind.as_str())
    }

    /// Its kind, if the details name one.
    pub fn kind(&self) -> Option<RejectionKind> {
        RejectionKind::from_name(self.details.get(KIND)?.as_str()?)
    }

    /// Whether it says that this field of the request is wrong.
    pub fn names_field(&self, field: &str) -> bool {
        self.details.get("field").is_some_and(|named| *named == *field)
    }

    /// A refusal of a command that may have taken effect or not; a repetition with the same id
    /// tells (WAL-09).
    #[cold]
    pub fn in_doubt(message: impl Into<String>) -> Self {
        let refused = Self::new(Code::Unavailable, message);
        refused.of_kind(RejectionKind::Ambiguous).with("retry_after_ms", 200)
    }

    /// Whether the command may have taken effect despite the refusal (WAL-09).
    pub fn is_ambiguous(&self) -> bool {
        self.kind() == Some(RejectionKind::Ambiguous)
    }

    /// A `validation_error` on `field`.
    #[cold]
    pub fn invalid(field: &str, message: impl Into<String>) -> Self {
        Self::new(Code::ValidationError, message).with("field", field)
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

impl core::error::Error for Rejection {}

impl serde::Serialize for Rejection {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct as _;
        let mut out = s.serialize_struct("Rejection", 4)?;
        out.serialize_field("code", &self.code)?;
        out.serialize_field("message", &self.message)?;
        out.serialize_field("retryable", &self.code.is_retryable())?;
        out.serialize_field("details", &self.details)?;
        out.end()
    }
}

/// The form in which it is serialized.
impl JsonSchema for Rejection {
    fn schema_name() -> Cow<'static, str> {
        "Error".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Why something is refused.",
            "type": "object",
            "properties": {
                "code": generator.subschema_for::<Code>(),
                "message": { "description": "For people.", "type": "string" },
                "retryable": { "description": "Whether the same may be asked again.", "type": "boolean" },
                "details": { "description": "What belongs to the code.", "type": "object" },
            },
            "required": ["code", "message", "retryable", "details"],
        })
    }
}

impl<'de> serde::Deserialize<'de> for Rejection {
    /// Ignores `retryable`, which follows from the code.
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        struct GivenRejection {
            code: Code,
            message: String,
            #[serde(default)]
            details: Map<String, Json>,
        }
        let GivenRejection { code, message, details } = GivenRejection::deserialize(d)?;
        Ok(Self { code, message, details })
    }
}

impl From<crate::id::BadId> for Rejection {
    fn from(bad: crate::id::BadId) -> Self {
        Self::invalid(bad.what, bad.to_string())
    }
}
