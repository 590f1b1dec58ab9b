//! What operators ask: facts of every node at once, the leases of a partition, and the import of a log.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use tenure_core::features::Features;
use tenure_core::id::{AgentId, AttemptId, HandlerName, Millis, PoolId, StepId, TaskId};
use tenure_core::sessions::{SessionPattern, WorkerSessions};
use tenure_core::task::Attempt;
use tenure_core::{Counts, Rejection};

use super::V;
use super::request::RawBytes;

/// Asks every node for itself and its workers (`nodes`). Each answers with [`NodeFacts`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Nodes {
    /// The version.
    pub v: V,
    /// Whether each node also reports what it holds for work ([`RetainedWork`]).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub audit: bool,
    /// Where the page begins, as `next` of an answer says; absent: with the first worker and the first pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<NodesAfter>,
}

/// Where a page of workers and pools begins.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodesAfter {
    /// Behind this worker; absent: there are no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerPlace>,
    /// Behind this pool; absent: there are no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<PoolId>,
}

/// A worker's place in the order of a node's workers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct WorkerPlace {
    /// Its pool.
    pub pool: PoolId,
    /// Its principal.
    pub principal: SmolStr,
    /// Its boot id.
    pub boot: SmolStr,
}

/// A node, with the workers and pools that it knows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeFacts {
    /// The node that answers.
    pub node: SmolStr,
    /// Partitions of the cluster.
    pub partitions: u32,
    /// Those that it owns: a caller with answers for all partitions has heard every node that matters.
    pub owned: Vec<u32>,
    /// Its features (EVOLVE-02).
    #[serde(default, skip_serializing_if = "Features::is_empty")]
    pub features: Features,
    /// The features that logs of the cluster may hold and that it lacks: if there are any, it takes no partition.
    #[serde(default, skip_serializing_if = "Features::is_empty")]
    pub lacks: Features,
    /// Workers that have a link with it.
    pub workers: Vec<WorkerFacts>,
    /// Workers without a link because the node could not accept what they sent, in the last ten minutes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RefusedFacts>,
    /// Schedulers that have given no sign of life and have not left, as this node hears it from Redis.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub silent: Vec<SilentFacts>,
    /// Whether there are more workers or pools than fit into an answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
    /// If there are: where the next page begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<NodesAfter>,
    /// Pools that it knows.
    pub pools: Vec<PoolFacts>,
    /// The time on the node's clock, from which its events have their time stamps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Millis>,
    /// Tasks that it holds in memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<u64>,
    /// What it has made durable since it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<Counts>,
    /// How many Steps of its Tasks wait, by the name of their greatest obstacle, without obstacles
    /// of no Step; absent: the node does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<BTreeMap<SmolStr, u64>>,
    /// What its live Tasks take of what they may; absent: the node does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live: Option<LiveFacts>,
    /// What it holds for work, if the caller asked for it; absent: the node does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<RetainedWork>,
}

/// What the live Tasks of a node take of what they may, and what the node has refused for want of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LiveFacts {
    /// Tasks that have not ended.
    pub tasks: u64,
    /// How many there may be.
    pub tasks_max: u64,
    /// The bytes of their logs.
    pub bytes: u64,
    /// How many these may be.
    pub bytes_max: u64,
    /// The bytes of the logs of all Tasks in memory, with a little for each.
    pub memory: u64,
    /// How many these may be.
    pub memory_max: u64,
    /// How many times a Task could not be read, as there was no place for it in memory.
    pub unplaced: u64,
    /// How many messages and reports were refused, as their principals had sent too many.
    pub over_rate: u64,
}

/// What a node holds for work that is under way, of all sessions. When every Task has ended and
/// there are no requests, all of it is 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RetainedWork {
    /// Tasks of its partitions that have not ended.
    pub live: u64,
    /// Leases that it knows of.
    pub leases: u64,
    /// Callers that wait for the end of a Task or of a Run.
    pub waiters: u64,
    /// Commands that it is carrying out.
    pub commands: u64,
    /// Reports, releases and cancels that it is carrying out.
    pub reports: u64,
    /// Queries that it is answering.
    pub reads: u64,
    /// Heartbeats that it is answering.
    pub heartbeats: u64,
    /// Signals for workers without a link, each stored for the time of a lease at most.
    pub signals: u64,
}

/// A worker as a node knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerFacts {
    /// Its pool.
    pub pool: PoolId,
    /// Its principal, as the server authenticated it.
    pub principal: SmolStr,
    /// Its boot id.
    pub boot: SmolStr,
    /// Steps and Runs that it would take from this node now.
    pub free: u64,
    /// Steps and Runs that the node has sent and the worker has not acknowledged.
    pub unheard: u64,
    /// Milliseconds since the worker's last message to this node.
    pub silent_ms: u64,
    /// Whether an operator told it to take no more Steps.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub draining: bool,
    /// The sessions that it serves (DISP-20); absent: all.
    #[serde(default, skip_serializing_if = "WorkerSessions::is_all")]
    pub sessions: WorkerSessions,
    /// Whether it runs commands that Steps name: it has the handler `exec`, or has named no handlers.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub commands: bool,
    /// Set while this node gives it nothing, as it fails Steps that others complete (DISP-19).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended: Option<SuspendedFacts>,
    /// Open Attempts of Tasks of this node that it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds: Option<u64>,
    /// Credits of this link that were spent or are reserved, if the caller asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<u64>,
    /// How many deliveries that use capacity it has acknowledged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<u64>,
}

impl WorkerFacts {
    /// Its place in the order of a node's workers.
    pub fn place(&self) -> WorkerPlace {
        let Self { pool, principal, boot, .. } = self;
        WorkerPlace { pool: pool.clone(), principal: principal.clone(), boot: boot.clone() }
    }
}

/// The suspension of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SuspendedFacts {
    /// The handler with which it fails Steps.
    pub handler: HandlerName,
    /// Milliseconds until it gets one Step as a trial; 0: it has it now.
    pub again_ms: u64,
}

/// A worker that a node refused a link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RefusedFacts {
    /// The pool that it names.
    pub pool: SmolStr,
    /// Its principal, as the server authenticated it.
    pub principal: SmolStr,
    /// Its boot id: the last one that was refused.
    pub boot: SmolStr,
    /// Why.
    pub error: Rejection,
    /// Milliseconds since the refusal.
    pub ago_ms: u64,
}

/// A scheduler that gives no sign of life and has not left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SilentFacts {
    /// The name of its boot.
    pub node: SmolStr,
    /// Milliseconds since it was given up.
    pub silent_ms: u64,
}

/// A pool, as a node knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PoolFacts {
    /// Its name.
    pub pool: PoolId,
    /// Workers that have a link with this node.
    pub workers: u64,
    /// Steps and Runs that they would take from this node now.
    pub free: u64,
    /// Steps and Runs of this node that wait for one of them.
    pub waiting: u64,
    /// How long that Step has been ready which has waited longest of those next in line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_ms: Option<u64>,
    /// Open Attempts of this node's Tasks, whichever workers hold them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<u64>,
    /// Attempts of its workers that ended here since the node started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<u64>,
    /// Of the Steps of the caller's session, the one that has waited longest of those next in line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest: Option<WaitFacts>,
    /// The sessions that its workers serve, 64 patterns at most (DISP-20); absent: all, or there is no worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions: Option<Vec<SessionPattern>>,
}

/// A Step that waits for a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WaitFacts {
    /// Its Task.
    pub task_id: TaskId,
    /// The Step.
    pub step_id: StepId,
    /// For how long it has been ready.
    pub ready_ms: u64,
}

/// Tells workers to take no more Steps, to finish those that they have or to give them back after a
/// time, and to leave (`drain`), through every node with a link to them. Each node answers with
/// [`Drained`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Drain {
    /// The version.
    pub v: V,
    /// Only workers of this pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<PoolId>,
    /// Only those of this principal. The request names a pool or a principal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<SmolStr>,
    /// Only this boot of the principal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<SmolStr>,
    /// In how many milliseconds they stop what still runs, and give it back; 0: now, and without
    /// giving handlers time; absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within_ms: Option<u64>,
}

impl Drain {
    /// The greatest `within_ms`: 30 days.
    pub const WITHIN_MS_MAX: u64 = 30 * 24 * 60 * 60 * 1_000;
}

/// The workers that a node has told to drain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Drained {
    /// The node that answers.
    pub node: SmolStr,
    /// Partitions of the cluster.
    pub partitions: u32,
    /// Those that it owns.
    pub owned: Vec<u32>,
    /// Those workers, by their names in the log.
    pub workers: Vec<AgentId>,
}

/// Asks for leases of a partition (`list_leases`). The answer is a [`LeasePage`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ListLeases {
    /// Only Attempts after this one, in the order of their ids.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<AttemptId>,
    /// Only this many Attempts, the oldest of those that have a lease as far as the owner knows.
    /// The owner does not ask Redis for this, and reads no other Tasks than theirs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest: Option<usize>,
}

/// Leases, and open Attempts of live Tasks, of a session in one partition, in the order of the
/// Attempts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LeasePage {
    /// One for each Attempt that has a lease or is open.
    pub leases: Vec<LeaseRow>,
    /// Whether there are more.
    pub more: bool,
}

/// An Attempt that has a lease, or is open, or, as it should be, both.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LeaseRow {
    /// Its Task.
    pub task_id: TaskId,
    /// The Attempt.
    pub attempt_id: AttemptId,
    /// Milliseconds that its lease lasts, 0 if it has ended; absent: there is no lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_ms: Option<u64>,
    /// What the log says of it; absent: it is not open in the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open: Option<OpenAttempt>,
}

/// An open Attempt, as its log has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OpenAttempt {
    /// Its Step.
    pub step_id: StepId,
    /// Number among the Step's claims, from 1.
    pub ordinal: u32,
    /// The worker that holds it.
    pub worker_id: AgentId,
    /// When it was claimed.
    pub started_at: Millis,
}

impl From<&Attempt> for OpenAttempt {
    fn from(attempt: &Attempt) -> Self {
        Self {
            step_id: attempt.step_id.clone(),
            ordinal: attempt.ordinal,
            worker_id: attempt.worker_id.clone(),
            started_at: attempt.started_at,
        }
    }
}

/// A part of a log to import (`import.<partition>`). The answer is [`Imported`]. The owner writes
/// nothing before it has all parts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ImportLog {
    /// The version.
    pub v: V,
    /// The Task of the log.
    pub task_id: TaskId,
    /// Bytes of the whole log.
    pub len: u64,
    /// Where the part begins in the log, in bytes.
    pub from: u64,
    /// The part.
    pub lines: RawBytes,
}

/// How much of a log the owner has received.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Imported {
    /// Where the next part begins, in bytes: before the end of this one if the owner has changed.
    pub received: u64,
    /// Version of the Task, once it is imported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
}
