//! What operators ask: of every node at once, of the leases of a partition, and to take a log in.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use tenure_core::id::{AgentId, AttemptId, HandlerName, Millis, PoolId, StepId, TaskId};
use tenure_core::{Counts, Rejection};

use super::V;
use super::request::LogLines;

/// Asks every node what it knows of workers (`nodes`). Each answers with [`NodeFacts`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Nodes {
    /// The version.
    pub v: V,
    /// Whether it is to be told, too, what each keeps for work ([`RetainedWork`]).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub audit: bool,
}

/// A node, and what it knows of workers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeFacts {
    /// Which node answers.
    pub node: SmolStr,
    /// Partitions of the cluster.
    pub partitions: u32,
    /// Those that it owns: whoever has heard of all has heard of every node that matters.
    pub owned: Vec<u32>,
    /// Workers that have a link with it.
    pub workers: Vec<WorkerFacts>,
    /// Workers that have no link with it, as what they say cannot be taken: those of the last ten minutes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RefusedFacts>,
    /// There are more workers than an answer holds.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
    /// Pools that it knows.
    pub pools: Vec<PoolFacts>,
    /// What time it is there, by the clock that its events have their times from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Millis>,
    /// Tasks that it keeps in memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<u64>,
    /// What it has made durable since it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<Counts>,
    /// How many Steps of its Tasks wait, by what stands most in their way: names of obstacles, those
    /// that no Step waits for left out; none: it does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<BTreeMap<SmolStr, u64>>,
    /// What it keeps for work, if that was asked for; none: it does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<RetainedWork>,
}

/// What a node keeps for work that is under way, of all sessions: when every Task has ended and nobody
/// asks for anything, all of it is 0.
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
    /// Questions that it is answering.
    pub reads: u64,
    /// Heartbeats that it is answering.
    pub heartbeats: u64,
    /// Signals for workers that have no link now: each for the time of a lease at most.
    pub signals: u64,
}

/// A worker as a node knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerFacts {
    /// Its pool.
    pub pool: PoolId,
    /// Who the server says it is.
    pub principal: SmolStr,
    /// Which boot of it.
    pub boot: SmolStr,
    /// Steps and Runs that it would take from this node now.
    pub free: u64,
    /// Steps and Runs that were sent and of which it has not said that it got them.
    pub unheard: u64,
    /// Milliseconds since this node has heard of it.
    pub silent_ms: u64,
    /// It was told to take no more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub draining: bool,
    /// This node gives it nothing for a while, as it fails what others complete (DISP-19).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended: Option<SuspendedFacts>,
    /// Open Attempts of Tasks of this node that it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds: Option<u64>,
    /// Credits of this link that were spent or are lent, if that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<u64>,
    /// How many deliveries it has said to have seen of those that use capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<u64>,
}

/// Why a worker is given nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SuspendedFacts {
    /// The handler with which it fails.
    pub handler: HandlerName,
    /// In so many milliseconds it is tried with one Step; 0: it is tried now.
    pub again_ms: u64,
}

/// A worker that was refused a link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RefusedFacts {
    /// What it calls its pool.
    pub pool: SmolStr,
    /// Who the server says it is.
    pub principal: SmolStr,
    /// Which boot of it: the last one that was refused.
    pub boot: SmolStr,
    /// Why.
    pub error: Rejection,
    /// Milliseconds since then.
    pub ago_ms: u64,
}

/// A pool as a node knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PoolFacts {
    /// Which.
    pub pool: PoolId,
    /// Workers that have a link with this node.
    pub workers: u64,
    /// Steps and Runs that they would take from this node now.
    pub free: u64,
    /// Steps and Runs of this node that wait for one of them.
    pub waiting: u64,
    /// For how long the Step has been ready that has waited longest of those next in line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_ms: Option<u64>,
    /// Attempts of Tasks of this node that are open, whoever holds them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<u64>,
    /// Attempts of its workers that ended here since the node started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<u64>,
    /// Of the Steps of the session that was asked in, the one that has waited longest of those next in
    /// line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest: Option<WaitFacts>,
}

/// A Step that waits for a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WaitFacts {
    /// Its Task.
    pub task_id: TaskId,
    /// Which.
    pub step_id: StepId,
    /// For how long it has been ready.
    pub ready_ms: u64,
}

/// Tells workers to take no more, to finish what they have and to leave (`drain`), through every node
/// that has a link with them. Each node answers with [`Drained`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Drain {
    /// The version.
    pub v: V,
    /// Only workers of this pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<PoolId>,
    /// Only those of this principal. One of the two is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<SmolStr>,
    /// Only this boot of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<SmolStr>,
}

/// The workers that a node has told to take no more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Drained {
    /// Which node answers.
    pub node: SmolStr,
    /// Partitions of the cluster.
    pub partitions: u32,
    /// Those that it owns.
    pub owned: Vec<u32>,
    /// Whom it has told, as the log names them.
    pub workers: Vec<AgentId>,
}

/// Which leases of a partition (`list_leases`). Asks for [`LeasePage`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ListLeases {
    /// Only Attempts behind this one, in the order of their ids.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<AttemptId>,
    /// At most so many of those that have a lease as the owner knows, the oldest first, and none without:
    /// Redis is not asked, and no more than their own Tasks are looked at.
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

/// An Attempt that has a lease, is open, or as it should be: both.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LeaseRow {
    /// Its Task.
    pub task_id: TaskId,
    /// Which.
    pub attempt_id: AttemptId,
    /// How long its lease lasts, 0 if that has ended; none: there is no lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_ms: Option<u64>,
    /// What the log has of it; none: the log has it not as open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open: Option<OpenAttempt>,
}

/// An open Attempt as its log has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OpenAttempt {
    /// Its Step.
    pub step_id: StepId,
    /// Number among the Step's claims, from 1.
    pub ordinal: u32,
    /// Who holds it.
    pub worker_id: AgentId,
    /// Since when.
    pub started_at: Millis,
}

/// A part of a log that is to be taken in (`import.<partition>`). Asks for [`Imported`]. Nothing is
/// written before all of it has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ImportLog {
    /// The version.
    pub v: V,
    /// Whose it is.
    pub task_id: TaskId,
    /// Bytes of the whole log.
    pub len: u64,
    /// The part begins at this byte.
    pub from: u64,
    /// The part.
    pub lines: LogLines,
}

/// How much of a log has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Imported {
    /// The next part begins at this byte: less than was sent where the owner has changed.
    pub received: u64,
    /// Version of the Task, once it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
}
