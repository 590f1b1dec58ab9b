//! The state that `tenure top` shows, at one moment. `-o json` prints it as it is.

use serde::Serialize;
use smol_str::SmolStr;
use tenure_core::Counts;
use tenure_core::id::{AgentId, AttemptId, Millis, PoolId, SessionId, StepId, TaskId};
use tenure_wire::bus::operate::WaitFacts;

use crate::pool::WaitCounts;

/// A cluster.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct TopSnapshot {
    /// Its address, without secrets.
    pub(super) address: String,
    /// The session whose Attempts and waiting Steps are named. Nodes, pools and workers are those
    /// of all sessions.
    pub(super) session: SessionId,
    /// When this was put together, by the clock of this machine.
    pub(super) at: Millis,
    /// How long ago nodes answered; none if they never have.
    pub(super) age_ms: Option<u64>,
    /// Why they have not answered since; none if they have.
    pub(super) trouble: Option<String>,
    pub(super) partitions: u32,
    /// Partitions whose owner has not answered.
    pub(super) missing_partitions: Vec<u32>,
    /// There are more workers than a node can name.
    pub(super) more_workers: bool,
    /// What Steps of live Tasks wait for, and how many; none if no node reports it.
    pub(super) waits: Option<WaitCounts>,
    /// Tasks in memory, of all nodes.
    pub(super) tasks: u64,
    /// The counts of what became durable since the answering nodes began.
    pub(super) counts: Counts,
    /// The rates between the last two answers of a node; none if no node has answered twice.
    pub(super) rates: Option<Rates>,
    pub(super) nodes: Vec<NodeRow>,
    pub(super) pools: Vec<PoolRow>,
    pub(super) workers: Vec<WorkerRow>,
    pub(super) attempts: LongestAttempts,
}

/// Counts for each second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(super) struct Rates {
    pub(super) claims: f64,
    pub(super) completed: f64,
    pub(super) failed: f64,
    pub(super) lost: f64,
    pub(super) tasks_created: f64,
    pub(super) tasks_ended: f64,
}

/// Whether a node answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum NodeState {
    Here,
    Silent,
}

/// A boot of a node.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct NodeRow {
    pub(super) node: SmolStr,
    pub(super) state: NodeState,
    /// The time since its last answer.
    pub(super) age_ms: u64,
    pub(super) owned: Vec<u32>,
    pub(super) tasks: Option<u64>,
    pub(super) rates: Option<Rates>,
}

/// A pool over all nodes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct PoolRow {
    pub(super) pool: PoolId,
    pub(super) workers: u64,
    pub(super) free: u64,
    pub(super) waiting: u64,
    pub(super) oldest_ms: Option<u64>,
    /// Of the Steps of the session the one that has waited longest of those next in line.
    pub(super) longest: Option<WaitFacts>,
    pub(super) running: Option<u64>,
    pub(super) steps_per_s: Option<f64>,
}

/// The state of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum WorkerState {
    /// No node has a link with it any more, and nobody sent it away.
    Gone,
    /// It should have sent something by now.
    Silent,
    /// Suspended: nodes give it nothing for a while, as it fails what others complete.
    Suspended,
    /// It was asked to take no more.
    Leaving,
    Here,
}

/// A worker over all nodes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct WorkerRow {
    pub(super) worker: AgentId,
    pub(super) pool: PoolId,
    pub(super) state: WorkerState,
    pub(super) free: u64,
    pub(super) running: Option<u64>,
    pub(super) unheard: u64,
    pub(super) silent_ms: u64,
}

/// The Attempts of the session that have run longest.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct LongestAttempts {
    /// How long ago this was asked; none if there was never an answer.
    pub(super) age_ms: Option<u64>,
    /// Why there was no answer since.
    pub(super) trouble: Option<String>,
    /// Partitions whose owner did not answer: their Attempts are not among these.
    pub(super) missing_partitions: Vec<u32>,
    /// The oldest first.
    pub(super) oldest: Vec<AttemptRow>,
}

/// An open Attempt.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct AttemptRow {
    pub(super) task_id: TaskId,
    pub(super) step_id: StepId,
    pub(super) ordinal: u32,
    pub(super) worker_id: AgentId,
    pub(super) attempt_id: AttemptId,
    pub(super) started_at: Millis,
    /// How long it had run when this was asked, by the clock of the nodes.
    pub(super) running_ms: u64,
    /// The time that was left of its lease when this was asked.
    pub(super) left_ms: Option<u64>,
}
