//! Messages of workers and to workers.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use smol_str::SmolStr;
use tenure_core::Rejection;
use tenure_core::command::{Operator, RunOutcome, StepReport};
use tenure_core::event::ReleaseReason;
use tenure_core::id::{AttemptId, CommandId, HandlerName, RunId, SessionId, StepId, TaskId};
use tenure_core::patch::ReasonInput;
use tenure_core::view::{ClaimResult, GetInput, Look, RunOffer};

use super::operation::{or_nothing, within};
use super::request::unknown_operation;
use super::{BadMessage, V, beside, decode, decode_input, reader, report};

/// A worker asks every node for a link (`hello`). No answer of its own: each node sends
/// [`Deliveries`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "WorkerHello")]
pub struct Hello {
    /// The version.
    pub v: V,
    /// What it can run; none: everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handlers: Option<Vec<HandlerName>>,
}

/// A worker leaves (`bye`): it gets nothing more.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Bye {
    /// The version.
    pub v: V,
}

/// How much more a worker takes from one node, and what it got from it: a sliding window.
///
/// `free + seen - sent` is what the node may still send, however late or often this comes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Capacity {
    /// The version.
    pub v: V,
    /// The link it speaks of; a node passes over what is said of another.
    pub link: SmolStr,
    /// Rises with every statement on this link: an older one that comes later says nothing.
    pub number: u64,
    /// Steps and Runs it would take now.
    pub free: u64,
    /// Steps and Runs that came on this link.
    pub seen: u64,
    /// Number of the last delivery that came on this link, 0 for none: those up to it need not be
    /// sent again.
    pub got: u64,
    /// Attempts in hand, of any node, of whose claims `was_lost` was true.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lost: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// What a node sends a worker, to `<inbox>.d.<node>`. An empty list opens the link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Deliveries {
    /// The version.
    pub v: V,
    /// Where this worker's [`Capacity`] goes.
    pub node: SmolStr,
    /// Names the link: with another, all counts begin again.
    pub link: SmolStr,
    /// Number of the first delivery; the others follow. The first of a link has 1.
    pub first: u64,
    /// In order. What came before is passed over; what leaves a gap is dropped, and comes again.
    pub deliveries: Vec<Delivery>,
}

/// A message to a worker: exactly one of these. One that says nothing known is newer, and is passed
/// over.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Delivery {
    /// A Step to run, with everything needed for it (CLAIM-14). Uses capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<Box<ClaimResult>>,
    /// A Run to claim a Step under. Uses capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Box<RunOffer>>,
    /// The handler of this Attempt should end soon (CANCEL-07).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel_requested: Option<AttemptId>,
    /// This Attempt is over: nothing that its worker still says counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<AttemptId>,
    /// The worker is to take no more, to finish what it has, and to leave.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub drain: bool,
}

impl Delivery {
    /// Whether it takes capacity of its worker.
    pub fn uses_capacity(&self) -> bool {
        self.grant.is_some() || self.run.is_some()
    }
}

/// Final words and progress, to the owner of a partition (`report.<partition>`). Asks for
/// [`Reported`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Reports {
    /// The version.
    pub v: V,
    /// The capacity there is now, for the node that owns the link. One that cannot be read costs no report.
    #[serde(default, deserialize_with = "beside::room")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub room: Option<Capacity>,
    /// In order.
    pub reports: Vec<Report>,
}

/// What a holder says of its Attempt or Run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// The session.
    pub session_id: SessionId,
    /// The Task.
    pub task_id: TaskId,
    /// The Run.
    pub run_id: RunId,
    /// What it says.
    pub word: Word,
}

/// A word of a holder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "operation", content = "input", rename_all = "snake_case")]
pub enum Word {
    /// Status, results, progress of the held Step.
    #[serde(alias = "agent.task_update_step", deserialize_with = "report::read")]
    TaskUpdateStep(StepReport),
    /// The Run is over without a final word on its Step, or with nothing claimed (RUN-03, RUN-09).
    EndRun {
        /// How.
        outcome: RunOutcome,
        /// Its own final output (DISP-13).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        result: Option<String>,
    },
    /// The Run is not for this worker (RUN-12).
    DeclineRun {
        /// Why.
        #[serde(default, deserialize_with = "reader::lenient")]
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<ReasonInput>,
    },
    /// The Step goes back (S26).
    ReleaseStep {
        /// The Attempt.
        attempt_id: AttemptId,
        /// Its token.
        fencing_token: u64,
        /// Why.
        #[serde(default = "ReleaseReason::unsaid", deserialize_with = "release_reason")]
        #[serde(skip_serializing_if = "ReleaseReason::is_unsaid")]
        reason: ReleaseReason,
        /// The Step is not to be given out again before so many milliseconds have passed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after_ms: Option<u64>,
    },
}

/// A reason that is not known is newer than its reader: the Step goes back as without one.
fn release_reason<'de, D: Deserializer<'de>>(d: D) -> Result<ReleaseReason, D::Error> {
    let said = Option::<SmolStr>::deserialize(d)?;
    Ok(said.and_then(|name| ReleaseReason::from_name(&name)).unwrap_or(ReleaseReason::unsaid()))
}

/// What became of reports, in their order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Reported {
    /// One for each.
    pub results: Vec<ReportResult>,
}

/// What became of a report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReportResult {
    /// Version of the Task after it, if it is durable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// Whether the holder is asked to stop.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cancel_requested: bool,
    /// Why it does not count, or not yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Rejection>,
}

/// All Attempts of a worker are alive (`hb`), to every node. Each answers with [`Pulses`] for those
/// of its partitions, if there are any.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Heartbeat {
    /// The version.
    pub v: V,
    /// What it holds.
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
}

/// What a node says of Attempts. One that is not mentioned is neither renewed nor lost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Pulses {
    /// In no order.
    pub pulses: Vec<Pulse>,
}

/// What became of a lease.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Pulse {
    /// Whose.
    pub attempt_id: AttemptId,
    /// The lease lasts this long from when the heartbeat was sent, in milliseconds; none: the
    /// Attempt is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
    /// Whether the holder is asked to stop.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cancel_requested: bool,
    /// Why it is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Rejection>,
}

/// Looks for ready Steps in the scope of a Run (`query.<partition>`). Asks for a `StepPage`.
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
    /// From this Step on.
    #[serde(default)]
    pub offset: usize,
}

/// Looks at the Task of a Run, as far as that shows it (`look.<partition>`). Asks for what [`Look`] says.
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
    /// What is asked.
    pub look: Look,
}

impl Looking {
    /// Reads what somebody asks: of the input nothing is passed over.
    ///
    /// # Errors
    /// `validation_error`: bytes that are no look, an operation that is none for workers, an input that is not
    /// the operation's.
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

/// The input of a look.
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

/// Claims a Step under a Run (`claim.<partition>`). Asks for a `ClaimResult`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Claim {
    /// The version.
    pub v: V,
    /// The same again gives the same claim (CLAIM-15).
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
