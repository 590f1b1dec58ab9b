//! Events: what happened, with the names of contract 7.1 and the payloads of 2.8.
//!
//! A payload holds everything the reducer needs (WAL-13). All events of one command form one
//! [`Commit`], appended together and seen together (WAL-08).

mod report;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use smol_str::SmolStr;

use crate::creation::Creation;
use crate::id::{
    AgentId, AttemptId, CommandId, CommitId, Digest, Millis, PoolId, Ref, RunId, StepId, TaskId,
};
use crate::patch::Operation;
use crate::record::{
    Acceptance, ArtifactInput, Edge, Progress, Reason, RetryPolicy, StepSpec, TaskSpec, Value,
};
use crate::rules::Rules;
use crate::status::{
    DeliveryState, End, EndReason, FactKind, FailedAs, Intent, Outcome, StepStatus, TaskStatus,
};

pub use report::{
    ReportFacts, StepBlocked, StepCancelled, StepCompleted, StepFailed, StepStarted, StepUpdated,
};

/// Version of the stored form (P02).
pub const SCHEMA_VERSION: u16 = 1;

/// All events of one command, with what they share of the envelope (2.5).
#[derive(Debug, Clone, PartialEq)]
pub struct Commit {
    /// Unique id of the commit.
    pub commit_id: CommitId,
    /// `wal_seq` of the first event; the others follow without a gap (WAL-04).
    pub first_seq: u64,
    /// Time of all its events, never before the previous commit's (P37).
    pub created_at: Millis,
    /// The command that caused it; absent for timers and automatic claims.
    pub command_id: Option<CommandId>,
    /// Digest of that command, stored on the first event.
    pub command_digest: Option<Digest>,
    /// Ownership epoch of the writer, 0 when embedded.
    pub epoch: u64,
    /// W3C traceparent.
    pub trace: Option<SmolStr>,
    /// At least one.
    pub events: Vec<Event>,
}

impl Commit {
    /// `wal_seq` of the last event: the version of the Task after this commit (OCC-01).
    pub fn last_seq(&self) -> u64 {
        self.first_seq + self.events.len() as u64 - 1
    }

    /// Whether nothing more may happen for long: the Task has ended, or a Step waits for something from outside.
    pub fn settles(&self) -> bool {
        self.events
            .iter()
            .any(|it| it.body.end().is_some() || matches!(it.body, Body::StepBlocked(_)))
    }
}

/// One event of a commit.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Who caused it (2.5: the caller, `system`, or the worker of a claim).
    pub actor: AgentId,
    /// The Run under which they acted.
    pub run: Option<RunId>,
    /// The Step it is about.
    pub step_id: Option<StepId>,
    /// What happened.
    pub body: Body,
}

impl Body {
    /// How the Task ended, if this is its end.
    pub fn end(&self) -> Option<End> {
        match self {
            Self::TaskCompleted(_) => Some(End::Completed),
            Self::TaskCancelled(_) => Some(End::Cancelled),
            Self::TaskFailed(end) => {
                let code = end.reason.as_ref().map(|reason| reason.code.as_str());
                End::of_status(TaskStatus::Failed, Some(FailedAs::of(code)))
            }
            _ => None,
        }
    }

    /// Whether the event may come after the end of its Task (TERM-21).
    pub fn passes_end(&self) -> bool {
        match self {
            Self::TaskArchived(_) | Self::TaskDeliveryUpdated(_) => true,
            Self::TaskFact(fact) => fact.kind.passes_end(),
            _ => false,
        }
    }
}

macro_rules! bodies {
    ($($(#[$doc:meta])* $variant:ident($payload:ty) = $name:literal,)+) => {
        /// What happened, by event type.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Body {
            $($(#[$doc])* $variant($payload),)+
        }

        /// Positions of event types.
        #[derive(Clone, Copy)]
        enum TypeIndex {
            $($variant,)+
        }

        impl Body {
            /// Every event type (WAL-12).
            pub const TYPES: &'static [&'static str] = &[$($name,)+];

            /// The position of its type in [`TYPES`](Self::TYPES).
            pub const fn place(&self) -> usize {
                match self { $(Self::$variant(_) => TypeIndex::$variant as usize,)+ }
            }

            /// The event type.
            pub const fn event_type(&self) -> &'static str {
                match self { $(Self::$variant(_) => $name,)+ }
            }

            /// Reads the payload of an event type. Fails on unknown types and fields (RECOVER-05).
            pub fn deserialize<'de, D: Deserializer<'de>>(event_type: &str, payload: D) -> Result<Self, D::Error> {
                match event_type {
                    $($name => <$payload>::deserialize(payload).map(Self::$variant),)+
                    other => Err(D::Error::custom(format_args!("unknown event type {other:?}"))),
                }
            }
        }

        impl Serialize for Body {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                match self { $(Self::$variant(payload) => payload.serialize(s),)+ }
            }
        }
    };
}

bodies! {
    /// A Task was created (T01, T02).
    TaskCreated(TaskCreated) = "task_created",
    /// A draft was submitted (T03).
    TaskSubmitted(Moved) = "task_submitted",
    /// A Task began to run (T04).
    TaskRunning(Moved) = "task_running",
    /// A patch was applied (PATCH-17).
    TaskUpdated(TaskUpdated) = "task_updated",
    /// A Task was blocked (T05).
    TaskBlocked(Stopped) = "task_blocked",
    /// A blocked Task was reopened (T06).
    TaskReopened(Moved) = "task_reopened",
    /// A Task was paused (T07).
    TaskPaused(Stopped) = "task_paused",
    /// A paused Task was resumed (T08).
    TaskResumed(Moved) = "task_resumed",
    /// The intent to close a Task was recorded (T10, T12).
    TaskCancelRequested(CancelRequested) = "task_cancel_requested",
    /// Progress of the Task by its orchestrator.
    TaskProgress(Box<TaskProgress>) = "task_progress",
    /// A relation was made.
    TaskLinked(Box<Linked>) = "task_linked",
    /// A relation was removed.
    TaskUnlinked(Unlinked) = "task_unlinked",
    /// A Task completed (T09).
    TaskCompleted(Box<Ended>) = "task_completed",
    /// A Task failed (T11).
    TaskFailed(Box<Ended>) = "task_failed",
    /// A Task was cancelled (T13).
    TaskCancelled(Box<Ended>) = "task_cancelled",
    /// An ended Task was archived (T14).
    TaskArchived(Archived) = "task_archived",
    /// The result reached those who wait for it, or did not.
    TaskDeliveryUpdated(DeliveryUpdated) = "task_delivery_updated",
    /// A Step became ready (S02).
    StepReady(Nothing) = "task_step_ready",
    /// A worker claimed a Step (S04).
    StepClaimed(Box<StepClaimed>) = "task_step_claimed",
    /// A worker started a Step (S05).
    StepStarted(StepStarted) = "task_step_started",
    /// A report changed no status (S06), or the orchestrator updated a Step.
    StepUpdated(StepUpdated) = "task_step_updated",
    /// A Step waits for the orchestrator (S07, S20, S22).
    StepBlocked(StepBlocked) = "task_step_blocked",
    /// A Step completed (S08, S21, S22).
    StepCompleted(StepCompleted) = "task_step_completed",
    /// A Step failed (S09, S12 to S15, S21 to S23).
    StepFailed(StepFailed) = "task_step_failed",
    /// A Step was cancelled (S10, S16, S17, S24).
    StepCancelled(StepCancelled) = "task_step_cancelled",
    /// A blocked or failed Step may run again (S18, S19).
    StepReopened(Box<StepReopened>) = "task_step_reopened",
    /// An Attempt ended without a final report (S11, S12, S26).
    StepLeaseExpired(StepLeaseExpired) = "task_step_lease_expired",
    /// A Run was made for a pool (R01).
    RunDispatched(Box<RunDispatched>) = "task_run_dispatched",
    /// A Run that holds no Step ended (R04, R08, R09).
    RunEnded(RunEnded) = "task_run_ended",
    /// A gateway keeps a fact with the Task (FACT-01).
    TaskFact(Box<TaskFact>) = "task_fact",
    /// A completed Step of the Task that this one runs again counts here, too (RETRY-15).
    StepTakenOver(Box<StepTakenOver>) = "task_step_taken_over",
}

/// An empty payload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// A Task was created.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskCreated {
    /// Everything the creator wrote, with defaults filled in.
    pub task: Arc<TaskSpec>,
    /// Set if the Task comes in parts: what it is when it is whole (IDEM-07).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creation: Option<Creation>,
    /// Key of a repeated create (IDEM-03).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<SmolStr>,
    /// The edition of the contract by which the Task lives (EVOLVE-01).
    #[serde(default, skip_serializing_if = "Rules::are_first")]
    pub rules: Rules,
}

/// A Task moved to another live status.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Moved {
    /// Status before.
    pub from: TaskStatus,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
}

/// A Task was blocked or paused.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stopped {
    /// Status before.
    pub from: TaskStatus,
    /// Why.
    pub reason: Reason,
}

/// A patch was applied.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskUpdated {
    /// The operations as given (PATCH-17).
    pub operations: Arc<[Operation]>,
    /// Claimed or running Steps that were edited (STEP-27).
    pub updated_after_dispatch: Vec<StepId>,
    /// Ready Steps that wait again (S03).
    pub demoted_step_ids: Vec<StepId>,
}

/// The intent to close the Task was recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CancelRequested {
    /// Cancel or fail.
    pub intent: Intent,
    /// Why.
    pub reason: Reason,
    /// Until when Runs may take to stop.
    pub deadline_at: Millis,
    /// Runs asked to stop.
    pub run_ids: Vec<RunId>,
}

/// The orchestrator reported on the Task.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TaskProgress {
    /// Progress since the last such event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// Artifacts of the Task.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<ArtifactInput>,
    /// Evidence.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evidence_refs: Vec<Ref>,
    /// Late input, given with every later claim (A2A-21).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub input_refs: Vec<Ref>,
}

/// A relation was made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Linked {
    /// The relation.
    pub edge: Edge,
}

/// A relation was removed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unlinked {
    /// Id of the relation.
    pub edge_id: crate::id::EdgeId,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The Task ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ended {
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// The result in prose.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_summary: Option<String>,
    /// The acceptance criteria with their states at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acceptance: Option<Vec<Acceptance>>,
    /// Artifacts of the Task.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<ArtifactInput>,
    /// Evidence.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evidence_refs: Vec<Ref>,
    /// The result, as the command that completed the Task gives it (TASK-22).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// The Step whose output is the result (TASK-22).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_from: Option<StepId>,
    /// Late input of the completed Task that no completed Attempt has seen (CTRL-12).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unread_input_refs: Vec<Ref>,
}

/// A gateway keeps a fact with the Task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskFact {
    /// What kind of fact it is.
    pub kind: FactKind,
    /// What it is about, in the gateway's words.
    pub key: SmolStr,
    /// The fact itself.
    pub payload: Value,
}

/// An ended Task was archived.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Archived {
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
}

/// The state of delivery of the result changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeliveryUpdated {
    /// The new state.
    pub delivery_state: DeliveryState,
    /// To whom the result is delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<Ref>,
}

/// The content of a Step at the claim (STEP-28).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StepSnapshot {
    /// Title then.
    pub title: SmolStr,
    /// Summary then.
    pub summary: SmolStr,
    /// Dependencies then.
    pub depends_on_step_ids: Vec<StepId>,
    /// Ancestors then whose results the claim hands on, if the Step names them (STEP-37).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs_from: Option<Vec<StepId>>,
    /// Version of the Task then.
    pub version: u64,
}

impl StepSnapshot {
    /// The content of the Step at `version`.
    pub fn of(spec: &StepSpec, version: u64) -> Self {
        Self {
            title: spec.title.clone(),
            summary: spec.summary.clone(),
            depends_on_step_ids: spec.depends_on_step_ids.clone(),
            inputs_from: spec.inputs_from.clone(),
            version,
        }
    }

    /// The Steps whose results the claim hands on, and whether the Step names them itself (STEP-37).
    pub fn inputs(&self) -> (&[StepId], bool) {
        let named = self.inputs_from.as_deref();
        (named.unwrap_or(&self.depends_on_step_ids), named.is_some())
    }
}

/// A Run claimed a Step; an Attempt begins.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepClaimed {
    /// The new Attempt.
    pub attempt_id: AttemptId,
    /// Its number among the Step's claims, from 1 (ATT-04).
    pub ordinal: u32,
    /// The Run.
    pub run_id: RunId,
    /// The worker.
    pub worker_id: AgentId,
    /// The pool.
    pub worker_pool_id: PoolId,
    /// Scope of the Run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_step_ids: Option<Vec<StepId>>,
    /// `system` for an automatic Run, which this event makes (U14).
    pub dispatched_by: AgentId,
    /// `wal_seq` of this event (LEASE-13).
    pub fencing_token: u64,
    /// End of the lease unless renewed.
    pub lease_expires_at: Millis,
    /// What the Attempt is given (2.4).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub input_refs: Vec<Ref>,
    /// The content of the Step at the claim.
    pub step_snapshot: StepSnapshot,
    /// The policy in force at the claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_policy: Option<Arc<RetryPolicy>>,
    /// The worker's machine, if its `hello` named it (ATT-12).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_host: Option<SmolStr>,
    /// The build of the worker's program, if its `hello` named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_build: Option<SmolStr>,
    /// Whether the dispatcher of the Run claimed for the worker (CLAIM-16).
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub on_behalf: bool,
}

/// A blocked or failed Step may run again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepReopened {
    /// Status before.
    pub from: StepStatus,
    /// Why: `auto_retry`, `input_received`, `marked` (STEP-36) or the caller's own code.
    pub reason: Reason,
    /// End of the backoff.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Millis>,
    /// Input that came with the reopening (A2A-10).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub input_refs: Vec<Ref>,
    /// Whether failures and losses count from 0 again (RETRY-09).
    pub counters_reset: bool,
}

/// A completed Step of the Task that this one runs again counts here, too (RETRY-15).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepTakenOver {
    /// The Task in which it ran.
    pub from_task_id: TaskId,
    /// The Attempt that completed it there; absent if none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_attempt_id: Option<AttemptId>,
    /// Its result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// The result in prose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_summary: Option<String>,
    /// Its artifacts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<ArtifactInput>,
}

/// An Attempt ended without a final report: lost, given back, or its host restarted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepLeaseExpired {
    /// The Attempt.
    pub attempt_id: AttemptId,
    /// Its Run.
    pub run_id: RunId,
    /// The end of the lease as the log says it.
    pub lease_expires_at: Millis,
    /// Losses that count, including this one.
    pub lost_count: u32,
    /// Why.
    pub reason: LeaseEnd,
    /// Why the worker gave it back; absent: the scheduler ended it, or the event is older than this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release_reason: Option<ReleaseReason>,
    /// Until then the Step is not given out again (LEASE-18).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Millis>,
    /// Some of the other Steps of the Task that were lost with the same worker in the same commit:
    /// any of them may have ended it (LEASE-19).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost_with: Vec<StepId>,
}

crate::status::names! {
    /// Why a worker gives a Step back (LEASE-18).
    ReleaseReason {
        /// The worker cannot run it: its disk, its descriptors, its processes, or no reason was given.
        Unfit = "unfit",
        /// The worker is being shut down.
        Draining = "draining",
        /// The worker has more Steps than it can begin soon.
        Surplus = "surplus",
        /// The worker could not be sure of its lease, and has stopped the Step.
        Fenced = "fenced",
    }
}

impl ReleaseReason {
    /// The reason of a worker that gives none.
    pub const fn unsaid() -> Self {
        Self::Unfit
    }

    /// Whether it is the reason that stands for none.
    pub fn is_unsaid(&self) -> bool {
        *self == Self::unsaid()
    }
}

crate::status::names! {
    /// Why a lease ended without a report.
    LeaseEnd {
        /// Nobody renewed it.
        LeaseExpired = "lease_expired",
        /// The worker gave it back, or the grant reached nobody.
        Released = "released",
        /// An embedded host was started again.
        HostRestarted = "host_restarted",
        /// Nobody renewed it, and the owner itself saw a gap since the last renewal (LEASE-14).
        Outage = "outage",
    }
}

impl LeaseEnd {
    /// Outcome of the Attempt.
    pub const fn outcome(self) -> Outcome {
        match self {
            Self::LeaseExpired | Self::Outage => Outcome::Lost,
            Self::Released | Self::HostRestarted => Outcome::Abandoned,
        }
    }
}

/// Thread and environment of a Run (2.3).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Bindings {
    /// The conversation thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<SmolStr>,
    /// The environment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub environment_ref: Option<SmolStr>,
}

/// A Run was made for a pool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunDispatched {
    /// The Run.
    pub run_id: RunId,
    /// Its pool.
    pub worker_pool_id: PoolId,
    /// Its hard scope (DISP-10).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_step_ids: Option<Vec<StepId>>,
    /// Who dispatched it.
    pub dispatched_by: AgentId,
    /// Instructions for the worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// Thread and environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bindings: Option<Bindings>,
    /// When it ends if nobody uses it; absent: never (DISP-02).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Millis>,
}

/// A Run that holds no Step ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunEnded {
    /// The Run.
    pub run_id: RunId,
    /// Why.
    pub end_reason: EndReason,
    /// Why, in the worker's or orchestrator's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// The worker that declined it, or found nothing to claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<AgentId>,
}
