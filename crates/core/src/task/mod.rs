//! The Task aggregate: its state, a fold over its commits and nothing else (STORE-01).
//!
//! [`apply`](mod@apply) is the one reducer, shared by live operation and replay. While an append is
//! in flight the state is ahead of the log; [`undo`](mod@undo) notes how to take that back, and
//! what readers see meanwhile. [`derived`](mod@derived) holds the indexes that make a command cost
//! what it touches, not what the Task holds.

pub mod apply;
mod artifacts;
mod attempt;
pub(crate) mod change;
mod contradiction;
pub mod derived;
mod facts;
mod failing;
pub mod history;
pub mod invariants;
mod parts;
pub(crate) mod patching;
mod rest;
mod results;
mod snapshot;
mod step_events;
mod tables;
pub mod undo;
mod volatile;
mod waits;

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::creation::Creation;
use crate::event::Bindings;
use crate::id::{
    AgentId, ArtifactId, AttemptId, CommandId, CommitId, Digest, HandlerName, Millis, PoolId, Ref,
    RunId, StepId, TaskId,
};
use crate::record::{
    Artifact, CancelRequest, Edge, Fact, Progress, Reason, RemoteRef, RetryPolicy, StepSpec,
    TaskSpec, Value,
};
use crate::rules::Rules;
use crate::status::{
    DeliveryState, EndReason, Policy, ReplyKind, RunState, StepStatus, TaskStatus, WaitKind,
};
use crate::table::{Keyed, Pos, Table};

use attempt::RELEASE_REASON;
pub use attempt::{Adopted, Attempt};
use derived::Derived;
pub use failing::Standing;
pub(crate) use failing::standing_reason;
pub use parts::Unfinished;
pub use rest::{Awake, RestPeriods};
pub use snapshot::TaskSnapshot;
pub(crate) use step_events::lost_with;
use undo::UndoLog;
pub use volatile::{Stopping, Taken, Volatile};
pub use waits::Waits;

/// One Task: a DAG of Steps with its Runs, its Attempts and the commands that it remembers.
#[derive(Debug, Clone)]
pub struct Task {
    pub(crate) head: Head,
    pub(crate) mark: Mark,
    pub(crate) steps: Table<Step>,
    pub(crate) attempts: Table<Attempt>,
    pub(crate) runs: Table<Run>,
    pub(crate) artifacts: Table<Arc<Artifact>>,
    pub(crate) edges: Vec<Edge>,
    /// Facts of gateways, by `wal_seq`.
    pub(crate) facts: BTreeMap<u64, Fact>,
    pub(crate) commands: Table<CommandRecord>,
    pub(crate) derived: Derived,
    pub(crate) undo: UndoLog,
    pub(crate) volatile: Volatile,
    /// The empty list of refs that every Attempt has until it reports some: one list for all of them.
    pub(crate) no_refs: Arc<Vec<Ref>>,
    /// The seed with which the indexes of the tables hash their keys.
    pub(crate) seed: u64,
}

/// What every event changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Mark {
    /// `wal_seq` of the last event (OCC-01).
    pub version: u64,
    /// Time of the last event.
    pub updated_at: Millis,
}

/// By how much the steady line was ahead of the time stamp of an event: 0 unless somebody set the clock, or
/// the clock was behind the log. A wait ends at the time in its event plus the shift of the event that began
/// it. Only the owner's memory holds shifts: after a replay there are only time stamps.
pub type Shift = Millis;

/// The Task without its Steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// What creator and orchestrator wrote; `steps` is empty here.
    pub spec: Arc<TaskSpec>,
    /// Native status.
    pub status: TaskStatus,
    /// Why it is blocked, paused, failed or cancelled.
    pub status_reason: Option<Arc<Reason>>,
    /// The most recent Attempt or Task error.
    pub last_error: Option<Arc<Reason>>,
    /// Set by `task_completed` only.
    pub result_summary: Option<Arc<str>>,
    /// The result, if the command that completed the Task gave it (TASK-22).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Arc<Value>>,
    /// The Step whose output is the result (TASK-22).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_from: Option<StepId>,
    /// Present while closing.
    pub cancel_requested: Option<Arc<CancelRequest>>,
    /// Set once the Task is archived.
    pub archived_at: Option<Millis>,
    /// Whether the result has reached those who wait for it.
    pub delivery_state: DeliveryState,
    /// As the orchestrator wrote it.
    pub progress: Arc<Progress>,
    /// Late input (A2A-21).
    pub input_refs: Arc<Vec<Ref>>,
    /// Late input of the completed Task that no completed Attempt has seen (CTRL-12).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unread_input_refs: Option<Arc<Vec<Ref>>>,
    /// Evidence.
    pub evidence_refs: Arc<Vec<Ref>>,
    /// The creator.
    pub created_by_agent_id: AgentId,
    /// The creator's Run.
    pub created_by_run_id: Option<RunId>,
    /// Set if the Task came, or comes, in parts (IDEM-07).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creation: Option<Creation>,
    /// `wal_seq` of the `task_created` that counts: the last one (IDEM-10).
    #[serde(default = "first", skip_serializing_if = "is_first")]
    pub created_seq: u64,
    /// `wal_seq` of the last event by which orchestrators changed what the Task is to do (OCC-07).
    pub spec_version: u64,
    /// Key of a repeated create (IDEM-03).
    pub idempotency_key: Option<SmolStr>,
    /// The edition of the contract by which the Task lives (EVOLVE-01).
    pub rules: Rules,
    /// Its `completion` at creation, which its default policy goes by (RETRY-14).
    pub first_completion: Policy,
    /// When it was created.
    pub created_at: Millis,
    /// First claim.
    pub started_at: Option<Millis>,
    /// Whether some Attempt has started since creation, or since the last answered request for
    /// input or permission (7.3).
    pub picked_up: bool,
    /// Terminal event.
    pub ended_at: Option<Millis>,
    /// Last `task_reopened` or `task_resumed` (S15).
    pub resumed_at: Option<Millis>,
    /// The shift of that event.
    #[serde(skip)] // As all shifts.
    pub resumed_shift: Shift,
    /// Last end of a time in which it was draining, which a wait for a worker rests in as well (S15).
    pub drained_at: Option<Millis>,
    /// The shift of that event.
    #[serde(skip)] // As all shifts.
    pub drained_shift: Shift,
    /// For how long it was paused since its deadline was written (POL-08).
    pub paused: RestPeriods,
    /// For how long it was paused or blocked (POL-12).
    pub resting: RestPeriods,
    /// The last time that an event left no required Step uncompleted (POL-06).
    pub required_done_at: Option<Millis>,
    /// The shift of that event.
    #[serde(skip)] // As all shifts.
    pub required_done_shift: Shift,
    /// The shift of the event that began the closing.
    #[serde(skip)] // As all shifts.
    pub closing_shift: Shift,
    /// W3C traceparent of the caller that created the Task.
    pub trace: Option<SmolStr>,
}

const fn first() -> u64 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref)] // The shape serde asks for.
const fn is_first(seq: &u64) -> bool {
    *seq == first()
}

#[allow(clippy::trivially_copy_pass_by_ref)] // The shape serde asks for.
const fn is_zero(count: &u32) -> bool {
    *count == 0
}

#[allow(clippy::trivially_copy_pass_by_ref)] // The shape serde asks for.
const fn is_zero_seq(seq: &u64) -> bool {
    *seq == 0
}

/// A node of the DAG.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// What the orchestrator wrote.
    pub spec: Arc<StepSpec>,
    /// Its current state.
    pub state: StepState,
    /// Steps that wait for this one, by position, ascending.
    #[serde(skip)] // It follows from the others.
    pub dependents: Vec<Pos>,
}

/// The current state of a Step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepState {
    /// Native status.
    pub status: StepStatus,
    /// Deleted by a patch; the record stays for its Attempts and its id (ID-06).
    pub removed: bool,
    /// Whether it failed in a way that fails an automatic Task if the Step is required (POL-05).
    pub fatal_failure: bool,
    /// Whether it is a completed `noop` without results behind it or of its own (STEP-37).
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub joins_nothing: bool,
    /// Set exactly while blocked.
    pub wait_kind: Option<WaitKind>,
    /// Dependencies that are not completed.
    pub unmet: u32,
    /// Dependencies that cannot complete as things stand: cancelled, failed, or behind such a Step.
    pub dead: u32,
    /// Those of them that count for POL-06.
    pub fatal: u32,
    /// Dependencies that complete only if the orchestrator acts first: dead, blocked, or behind such a Step.
    pub stuck: u32,
    /// `wal_seq` of the event since which it makes its Task failing if it is required (POL-05); 0 while it
    /// does not.
    pub standing_since: u64,
    /// Attempts that count for `max_attempts` (RETRY-03).
    pub attempt_count: u32,
    /// Attempts that count for `max_lost` (RETRY-03).
    pub lost_count: u32,
    /// Losses in a row that did not count, as the owner saw a gap (LEASE-14). Losses that count do not end
    /// the row.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub outages: u32,
    /// Attempts in a row that ended with their host after they had started (RETRY-13).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub host_deaths: u32,
    /// `wal_seq` of the last event that reopened the Step, or changed its handler, input or dependencies: an
    /// Attempt that was claimed before it did something else (REPORT-14).
    #[serde(default, skip_serializing_if = "is_zero_seq")]
    pub redefined_seq: u64,
    /// Ordinal of the newest Attempt.
    pub ordinal: u32,
    /// The open Attempt, exactly while held (ATT-07).
    pub current: Option<Pos>,
    /// The newest Attempt; each Attempt names the one before it.
    pub last_attempt: Option<Pos>,
    /// Time of the last `task_step_ready`, only while ready.
    pub ready_at: Option<Millis>,
    /// End of the backoff, only while pending.
    pub not_before: Option<Millis>,
    /// Since when it is blocked; otherwise since when it was ready for the first time since creation or
    /// its last explicit reopen (POL-12).
    pub counts_from: Option<Awake>,
    /// The shift of the event that made it ready, pending or claimed.
    #[serde(skip)] // As all shifts.
    pub shift: Shift,
    /// Whether the RemoteRef in the facts is that of an earlier try (STEP-33).
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub remote_left: bool,
    /// When the Step was made.
    pub created_at: Millis,
    /// When it last changed.
    pub updated_at: Millis,
    /// Results and reasons, absent while there are none.
    pub facts: Option<Arc<StepFacts>>,
}

/// Results and reasons of a Step.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct StepFacts {
    /// The result in prose.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_summary: Option<Arc<str>>,
    /// Artifacts, in order of report.
    pub artifact_ids: Vec<ArtifactId>,
    /// Why it is blocked, failed or cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status_reason: Option<Reason>,
    /// Immutable once completed (U13).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// What kind of answer the output is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply: Option<ReplyKind>,
    /// Progress of the current Attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// Input that came with reopenings.
    pub input_refs: Vec<Ref>,
    /// The peer that does the work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote: Option<RemoteRef>,
    /// Where it ran, if it was taken over from another Task (RETRY-15).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taken_over_from: Option<StepOrigin>,
}

/// Where a Step ran that was taken over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StepOrigin {
    /// The Task.
    pub task_id: TaskId,
    /// The Attempt that completed it; absent if none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt_id: Option<AttemptId>,
}

impl StepFacts {
    /// Whether there is anything to hand on.
    pub fn has_results(&self) -> bool {
        self.output.is_some() || self.result_summary.is_some() || !self.artifact_ids.is_empty()
    }

    /// The facts of a Step on which nobody has reported.
    pub const NONE: Self = Self {
        result_summary: None,
        artifact_ids: Vec::new(),
        status_reason: None,
        output: None,
        reply: None,
        progress: None,
        input_refs: Vec::new(),
        remote: None,
        taken_over_from: None,
    };
}

impl StepState {
    /// Whether an Attempt of this Step was lost since its creation or its last explicit reopen (LEASE-19).
    pub fn was_lost(&self) -> bool {
        self.lost_count > 0
    }

    /// Whether that happened more than once: a single loss may be the machine's fault (LEASE-19).
    pub(crate) fn is_suspect(&self) -> bool {
        self.lost_count > 1
    }

    pub(crate) fn new(at: Millis) -> Self {
        Self {
            status: StepStatus::Pending,
            removed: false,
            fatal_failure: false,
            joins_nothing: false,
            wait_kind: None,
            unmet: 0,
            dead: 0,
            fatal: 0,
            stuck: 0,
            standing_since: 0,
            attempt_count: 0,
            lost_count: 0,
            outages: 0,
            host_deaths: 0,
            redefined_seq: 0,
            ordinal: 0,
            current: None,
            last_attempt: None,
            ready_at: None,
            not_before: None,
            counts_from: None,
            shift: 0,
            remote_left: false,
            created_at: at,
            updated_at: at,
            facts: None,
        }
    }

    /// Results and reasons.
    pub fn facts(&self) -> &StepFacts {
        static NONE: StepFacts = StepFacts::NONE;
        self.facts.as_deref().unwrap_or(&NONE)
    }

    /// The peer of the current try, or of the one that completed the Step (STEP-33).
    pub fn peer(&self) -> Option<&RemoteRef> {
        self.facts().remote.as_ref().filter(|_| !self.remote_left)
    }

    /// Whether the Step is completed and the facts of its peer are not stored here (TERM-10).
    pub fn is_unreconciled(&self) -> bool {
        self.status == StepStatus::Completed && self.peer().is_some_and(|peer| !peer.reconciled)
    }

    /// Leaves the peer of a try that has ended (STEP-33).
    pub(crate) fn leave_peer(&mut self) {
        self.remote_left = self.facts().remote.is_some();
    }

    /// Results and reasons, mutable.
    pub(crate) fn facts_mut(&mut self) -> &mut StepFacts {
        Arc::make_mut(self.facts.get_or_insert_with(Arc::default))
    }

    /// Whether this is a completed `noop` without results of its own (STEP-37).
    pub(crate) fn only_joins(&self, spec: &StepSpec) -> bool {
        self.status == StepStatus::Completed
            && spec.handler.as_str() == HandlerName::NOOP
            && !self.facts().has_results()
    }

    /// Whether this Step cannot complete as things stand.
    pub(crate) fn is_dead(&self) -> bool {
        match self.status {
            StepStatus::Cancelled | StepStatus::Failed => true,
            StepStatus::Pending | StepStatus::Blocked => self.dead > 0,
            _ => false,
        }
    }

    /// Whether this Step keeps its dependents from ever becoming ready, for POL-06.
    pub(crate) fn is_fatal(&self) -> bool {
        match self.status {
            StepStatus::Cancelled => true,
            StepStatus::Failed => self.fatal_failure || self.fatal > 0,
            StepStatus::Pending | StepStatus::Blocked => self.fatal > 0,
            _ => false,
        }
    }
}

/// A worker's licence to act in this Task (2.3).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Unique id.
    pub run_id: RunId,
    /// Its pool.
    pub worker_pool_id: PoolId,
    /// Its hard scope; absent: not restricted.
    pub allowed_step_ids: Option<Arc<[StepId]>>,
    /// Who dispatched it; `system` for automatic Runs.
    pub dispatched_by: AgentId,
    /// The worker, set by the claim.
    pub worker_id: Option<AgentId>,
    /// Dispatched, active or ended.
    pub state: RunState,
    /// The Attempt it made: set once (CLAIM-03).
    pub attempt: Option<Pos>,
    /// Exactly when ended.
    pub end_reason: Option<EndReason>,
    /// Why it ended, in the words of who ended it.
    pub ended_because: Option<Arc<Reason>>,
    /// `wal_seq` of its first event.
    pub dispatch_version: u64,
    /// Instructions for the worker.
    pub instructions: Option<Arc<str>>,
    /// Thread and environment.
    pub bindings: Option<Arc<Bindings>>,
    /// When it ends if nobody uses it and its Task is not stopped meanwhile ([`Head::expires_at`]);
    /// absent: never.
    pub expires_at: Option<Millis>,
    /// The shift of the event that made it.
    #[serde(skip)] // As all shifts.
    pub shift: Shift,
    /// When it was made.
    pub created_at: Millis,
    /// When it ended.
    pub ended_at: Option<Millis>,
}

/// Where the events of a command stand. A replay of the command is answered with this (IDEM-01).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// The commit.
    pub commit_id: CommitId,
    /// `wal_seq` of its first event.
    pub first_seq: u64,
    /// How many events there are.
    pub count: u32,
}

impl Written {
    /// Version of the Task after these events.
    pub fn version(&self) -> u64 {
        self.first_seq + u64::from(self.count) - 1
    }
}

/// A command that was carried out, as the Task remembers it (IDEM-05).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CommandRecord {
    /// The caller's id for the command.
    pub command_id: CommandId,
    /// The digest of its content.
    pub digest: Option<Digest>,
    /// Where its events stand.
    pub written: Written,
    /// The Attempt or Run it made.
    pub made: Made,
}

/// What a command made, beside its events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Made {
    /// Nothing with an id.
    Nothing,
    /// An Attempt, by position.
    Attempt(Pos),
    /// A Run, by position.
    Run(Pos),
}

impl Keyed for Step {
    type Key = StepId;
    fn key(&self) -> &StepId {
        &self.spec.step_id
    }
}

impl Keyed for Attempt {
    type Key = AttemptId;
    fn key(&self) -> &AttemptId {
        &self.attempt_id
    }
}

impl Keyed for Run {
    type Key = RunId;
    fn key(&self) -> &RunId {
        &self.run_id
    }
}

impl Keyed for Arc<Artifact> {
    type Key = ArtifactId;
    fn key(&self) -> &ArtifactId {
        &self.given.artifact_id
    }
}

impl Keyed for CommandRecord {
    type Key = CommandId;
    fn key(&self) -> &CommandId {
        &self.command_id
    }
}

/// Equality of state: everything that replay must restore (RECOVER-01), without the indexes derived from it.
impl PartialEq for Task {
    fn eq(&self, other: &Self) -> bool {
        self.head == other.head
            && self.mark == other.mark
            && self.steps == other.steps
            && self.attempts == other.attempts
            && self.runs == other.runs
            && self.artifacts == other.artifacts
            && self.edges == other.edges
            && self.facts == other.facts
            && self.commands == other.commands
            && self.derived == other.derived
    }
}

impl Task {
    /// The Task's id.
    pub fn task_id(&self) -> &TaskId {
        &self.head.spec.task_id
    }

    /// `wal_seq` of the last event, commits in flight included.
    pub fn version(&self) -> u64 {
        self.mark.version
    }

    /// The Task without its Steps, commits in flight included.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Time of the last event, commits in flight included.
    pub fn updated_at(&self) -> Millis {
        self.mark.updated_at
    }

    /// The Step with this id, unless it was deleted.
    pub fn step(&self, id: &StepId) -> Option<&Step> {
        self.find_step(id).map(|pos| &self.steps[pos])
    }

    /// The Step at a position.
    pub fn step_at(&self, pos: Pos) -> &Step {
        &self.steps[pos]
    }

    /// Where the Step with this id is, unless it was deleted.
    pub fn find_step(&self, id: &StepId) -> Option<Pos> {
        self.steps.find(id).filter(|&pos| !self.steps[pos].state.removed)
    }

    /// The Attempt with this id.
    pub fn attempt(&self, id: AttemptId) -> Option<&Attempt> {
        self.attempts.by_key(&id)
    }

    /// The Run with this id.
    pub fn run(&self, id: RunId) -> Option<&Run> {
        self.runs.by_key(&id)
    }

    /// The Run at a position.
    pub fn run_at(&self, pos: Pos) -> &Run {
        &self.runs[pos]
    }

    /// The Attempt at a position.
    pub fn attempt_at(&self, pos: Pos) -> &Attempt {
        &self.attempts[pos]
    }

    /// What the Task remembers of the command with this id.
    pub fn command(&self, id: &CommandId) -> Option<&CommandRecord> {
        self.commands.by_key(id)
    }

    /// Whether a cancel or fail is being carried out.
    pub fn is_closing(&self) -> bool {
        self.head.cancel_requested.is_some() && !self.head.status.is_terminal()
    }

    /// Whether the Task has ended.
    pub fn is_terminal(&self) -> bool {
        self.head.status.is_terminal()
    }

    /// The policy in force for a Step (RETRY-14): its own, filled in from the Task's; by rules 1, its own
    /// or the Task's, as a whole.
    pub fn policy_of(&self, spec: &StepSpec) -> Option<Arc<RetryPolicy>> {
        let tasks = self.head.spec.retry_policy.as_ref();
        match (&spec.retry_policy, tasks, self.head.rules) {
            (Some(own), Some(tasks), Rules::Second) => Some(Arc::new(own.filled(tasks))),
            (own, tasks, _) => own.as_ref().or(tasks).cloned(),
        }
    }

    /// Attempts that are open, by position of their Step.
    pub fn open_attempts(&self) -> impl Iterator<Item = &Attempt> {
        let held = self.derived.held.iter();
        held.filter_map(|&pos| self.steps[pos].state.current).map(|at| &self.attempts[at])
    }
}

pub(crate) fn text(s: &str) -> Arc<str> {
    Arc::from(s)
}
