//! The messages from workers and to workers.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use smol_str::SmolStr;
use tenure_core::Rejection;
use tenure_core::command::{Operator, RunOutcome, StepReport};
use tenure_core::event::ReleaseReason;
use tenure_core::features::Features;
use tenure_core::id::{AttemptId, CommandId, HandlerName, Ref, RunId, SessionId, StepId, TaskId};
use tenure_core::patch::ReasonInput;
use tenure_core::record::WorkerOrigin;
use tenure_core::sessions::{Abilities, WorkerSessions};
use tenure_core::view::{ClaimResult, GetInput, Look, RunOffer};

use super::operation::{or_nothing, within};
use super::output::OutputRequest;
use super::request::unknown_operation;
use super::{BadMessage, V, beside, decode, decode_input, reader, report};

/// A worker asks every node for a link (`hello`). Nodes do not answer it directly: each sends
/// [`Deliveries`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "WorkerHello")]
pub struct Hello {
    /// The version.
    pub v: V,
    /// The handlers that it has; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handlers: Option<Vec<HandlerName>>,
    /// The sessions that it serves, 64 patterns at most, in which `*` stands for any text (DISP-20); absent: all.
    #[serde(default, skip_serializing_if = "WorkerSessions::is_all")]
    pub sessions: WorkerSessions,
    /// The machine that it runs on, for its Attempts (ATT-12); 64 characters of it are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_host: Option<SmolStr>,
    /// The build of its program, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_build: Option<SmolStr>,
    /// Its features (EVOLVE-02).
    #[serde(default, skip_serializing_if = "Features::is_empty")]
    pub features: Features,
}

/// How many handlers a worker names at most. One that has more names none, and takes every Step.
pub const HANDLERS_MAX: usize = 1_024;

impl Hello {
    /// Checks what no type says.
    ///
    /// # Errors
    /// `validation_error`: too many handlers.
    pub fn check(&self) -> Result<(), Rejection> {
        match self.handlers.as_ref().map_or(0, Vec::len) {
            ..=HANDLERS_MAX => Ok(()),
            count => {
                let message = format!(
                    "{count} handlers: a worker names at most {HANDLERS_MAX}, or none, for all"
                );
                Err(Rejection::invalid("handlers", message))
            }
        }
    }

    /// What the worker can and may run.
    pub fn abilities(&self) -> Abilities {
        Abilities { handlers: self.handlers.clone(), sessions: self.sessions.clone() }
    }

    /// Where the worker runs and what it is, if it says so.
    pub fn origin(&self) -> Option<WorkerOrigin> {
        WorkerOrigin::of(self.worker_host.as_deref(), self.worker_build.as_deref())
    }
}

/// A worker leaves (`bye`): nodes send it nothing more.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Bye {
    /// The version.
    pub v: V,
}

/// How many more Steps and Runs a worker takes from one node, and what it got from that node: a
/// sliding window.
///
/// The node may still send `free + seen - sent`, however late or often this message comes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Capacity {
    /// The version.
    pub v: V,
    /// The link that it is about; a node skips statements about another.
    pub link: SmolStr,
    /// Rises with every statement on this link, so that a node ignores an older one that comes later.
    pub number: u64,
    /// Steps and Runs that it would take now.
    pub free: u64,
    /// Steps and Runs that came on this link.
    pub seen: u64,
    /// Number of the last delivery that came on this link, 0 for none. It acknowledges all up to
    /// that number.
    pub got: u64,
    /// Attempts in hand, of any node, whose claims have `was_lost` set.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lost: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// What a node sends to a worker, at `<inbox>.d.<node>`. An empty list opens the link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Deliveries {
    /// The version.
    pub v: V,
    /// The node, to which this worker sends its [`Capacity`].
    pub node: SmolStr,
    /// The id of the link: on another link all counts begin again.
    pub link: SmolStr,
    /// Number of the first delivery in this message; the others follow. The first one of a link has 1.
    pub first: u64,
    /// The deliveries, in order. The worker skips those that it has; it drops those after a gap,
    /// and they come again.
    pub deliveries: Vec<Delivery>,
}

/// A message to a worker: exactly one of these fields. If a delivery has none that the worker
/// knows, its sender is newer, and the worker skips it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Delivery {
    /// A Step to run, with everything that it needs (CLAIM-14). Uses capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<Box<ClaimResult>>,
    /// A Run under which the worker may claim a Step. Uses capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Box<RunOffer>>,
    /// The handler of this Attempt should end soon (CANCEL-07).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel_requested: Option<AttemptId>,
    /// How long that handler has left, in milliseconds (POL-12); beside `drain`, how long until the
    /// worker stops what still runs and gives it back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_left_ms: Option<u64>,
    /// Input for this Attempt that came to its Task after the claim (CTRL-12). Only a worker with the feature
    /// `input` gets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Box<LateInput>>,
    /// This Attempt is over: no report on it counts any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<AttemptId>,
    /// Whether the worker shall take no more Steps, finish those that it has, and leave.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub drain: bool,
    /// Somebody wants to see what the command of an Attempt wrote (ART-09). Only a worker with the feature `output`
    /// gets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_output: Option<Box<OutputRequest>>,
}

/// Entries of a Task's `input_refs` that an open Attempt did not have in its claim (CTRL-12).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LateInput {
    /// The Attempt.
    pub attempt_id: AttemptId,
    /// How many entries of the list come before these. A worker that has seen more skips as many.
    pub after: u32,
    /// The entries.
    pub input_refs: Vec<Ref>,
}

impl Delivery {
    /// Whether it uses capacity of its worker.
    pub fn uses_capacity(&self) -> bool {
        self.grant.is_some() || self.run.is_some()
    }
}

/// Final reports and progress, to the owner of a partition (`report.<partition>`). The answer is
/// [`Reported`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Reports {
    /// The version.
    pub v: V,
    /// The worker's capacity now, for the node of the link. If it cannot be read, the reports still count.
    #[serde(default, deserialize_with = "beside::room")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub room: Option<Capacity>,
    /// The reports, in order.
    pub reports: Vec<Report>,
}

/// A report of a holder on its Attempt or Run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// The session.
    pub session_id: SessionId,
    /// The Task.
    pub task_id: TaskId,
    /// The Run.
    pub run_id: RunId,
    /// The report.
    pub word: Word,
}

/// The kinds of a holder's reports.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "operation", content = "input", rename_all = "snake_case")]
pub enum Word {
    /// Status, results, progress of the held Step.
    #[serde(alias = "agent.task_update_step", deserialize_with = "report::read")]
    TaskUpdateStep(StepReport),
    /// The Run is over without a final report on its Step, or with nothing claimed (RUN-03, RUN-09).
    EndRun {
        /// How it ended.
        outcome: RunOutcome,
        /// The Run's own final output (DISP-13).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        result: Option<String>,
    },
    /// The worker declines the Run (RUN-12).
    DeclineRun {
        /// Why.
        #[serde(default, deserialize_with = "reader::lenient")]
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<ReasonInput>,
    },
    /// The worker gives the Step back (S26).
    ReleaseStep {
        /// The Attempt.
        attempt_id: AttemptId,
        /// Its token.
        fencing_token: u64,
        /// Why.
        #[serde(default = "ReleaseReason::unsaid", deserialize_with = "release_reason")]
        #[serde(skip_serializing_if = "ReleaseReason::is_unsaid")]
        reason: ReleaseReason,
        /// How many milliseconds must pass before the Step is given out again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after_ms: Option<u64>,
    },
}

/// Reads a reason; one that is not known comes from a newer worker, and counts as none.
fn release_reason<'de, D: Deserializer<'de>>(d: D) -> Result<ReleaseReason, D::Error> {
    let said = Option::<SmolStr>::deserialize(d)?;
    Ok(said.and_then(|name| ReleaseReason::from_name(&name)).unwrap_or(ReleaseReason::unsaid()))
}

/// The results of reports, in their order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Reported {
    /// One result for each report.
    pub results: Vec<ReportResult>,
}

/// The result of a report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReportResult {
    /// Version of the Task after it, if it is durable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// Whether the holder is asked to stop.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cancel_requested: bool,
    /// How long it then has left, in milliseconds (POL-12).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_left_ms: Option<u64>,
    /// Why it does not count, or not yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Rejection>,
}

/// A heartbeat for all Attempts of a worker (`hb`), to every node. Each answers with [`Pulses`] for
/// those of its partitions, if there are any.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Heartbeat {
    /// The version.
    pub v: V,
    /// The Attempts that it holds.
    pub holdings: Vec<Holding>,
}

/// An open Attempt as its holder names it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Holding {
    /// The session.
    pub session_id: SessionId,
    /// The Task.
    pub task_id: TaskId,
    /// The Run.
    pub run_id: RunId,
    /// The Attempt.
    pub attempt_id: AttemptId,
    /// Its token.
    pub fencing_token: u64,
    /// How many entries of the Task's `input_refs` it has seen (CTRL-12).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_seen: Option<u64>,
}

/// A node's answer to a heartbeat. An Attempt that it does not name is neither renewed nor lost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Pulses {
    /// One for each named Attempt, in no order.
    pub pulses: Vec<Pulse>,
}

/// The answer for one Attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Pulse {
    /// The Attempt.
    pub attempt_id: AttemptId,
    /// How long the lease lasts, in milliseconds from the sending of the heartbeat; absent: the
    /// Attempt is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
    /// Whether the holder is asked to stop.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cancel_requested: bool,
    /// How long it then has left, in milliseconds (POL-12).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_left_ms: Option<u64>,
    /// Why it is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Rejection>,
}

/// Asks for ready Steps in the scope of a Run (`query.<partition>`). The answer is a `StepPage`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "WorkerQuery")]
pub struct QuerySteps {
    /// The version.
    pub v: V,
    /// The session.
    pub session_id: SessionId,
    /// The Task.
    pub task_id: TaskId,
    /// The Run.
    pub run_id: RunId,
    /// How many of them to skip.
    #[serde(default)]
    pub offset: usize,
}

/// Reads the Task of a Run, as far as the Run may see it (`look.<partition>`). The answer depends
/// on the [`Look`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Looking {
    /// The version.
    pub v: V,
    /// The session.
    pub session_id: SessionId,
    /// The Task.
    pub task_id: TaskId,
    /// The Run.
    pub run_id: RunId,
    /// The query.
    pub look: Look,
}

impl Looking {
    /// Reads a worker's query. Its input refuses unknown fields.
    ///
    /// # Errors
    /// `validation_error`: the bytes are no such query, the operation is not for workers, or the
    /// input is not the operation's.
    pub fn read(bytes: &[u8]) -> Result<Self, Rejection> {
        #[derive(Deserialize)]
        struct LookRequest {
            v: V,
            session_id: SessionId,
            task_id: TaskId,
            run_id: RunId,
            look: Which,
        }
        #[derive(Deserialize)]
        struct Which {
            operation: SmolStr,
        }
        let LookRequest { v, session_id, task_id, run_id, look } = decode(bytes)?;
        let look = match Operator::called(&look.operation) {
            Some(Operator::TaskGet) => {
                input_of::<GetInput>(bytes).map(|GetInput {}| Look::TaskGet)?
            }
            Some(Operator::TaskList) => Look::TaskList(input_of(bytes)?),
            Some(Operator::TaskQuerySteps) => Look::TaskQuerySteps(input_of(bytes)?),
            Some(Operator::TaskBoardSummary) => Look::TaskBoardSummary(input_of(bytes)?),
            _ => return Err(unknown_operation(&look.operation)),
        };
        Ok(Self { v, session_id, task_id, run_id, look })
    }
}

/// The input of a [`Look`].
fn input_of<T: Default + DeserializeOwned>(bytes: &[u8]) -> Result<T, BadMessage> {
    #[derive(Deserialize)]
    #[serde(bound(deserialize = "T: Default + Deserialize<'de>"))]
    struct Asked<T> {
        look: LookInput<T>,
    }
    #[derive(Deserialize)]
    #[serde(bound(deserialize = "T: Default + Deserialize<'de>"))]
    struct LookInput<T> {
        #[serde(default, deserialize_with = "or_nothing")]
        input: T,
    }
    within("look.input.", decode_input::<Asked<T>>(bytes)).map(|asked| asked.look.input)
}

/// Claims a Step under a Run (`claim.<partition>`). The answer is a `ClaimResult`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Claim {
    /// The version.
    pub v: V,
    /// The same id again gives the same claim (CLAIM-15).
    pub command_id: CommandId,
    /// The session.
    pub session_id: SessionId,
    /// The Task.
    pub task_id: TaskId,
    /// The Run.
    pub run_id: RunId,
    /// The Step.
    pub step_id: StepId,
}
