//! What nodes tell everybody.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use tenure_core::id::{PoolId, SessionId, TaskId};

use super::V;

/// A node is there (`tenure.v1.node.<node>.alive`): said when it starts and every two seconds. A
/// worker that has no link with it says hello.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Alive {
    /// The version.
    pub v: V,
    /// Which node.
    pub node: SmolStr,
    /// Partitions of the cluster.
    pub partitions: u32,
    /// How Tasks are placed in them (OWN-01); 1 if it is left out.
    #[serde(default = "super::first_placement", skip_serializing_if = "super::is_first_placement")]
    pub placement: u32,
    /// Those that it owns.
    pub owned: Vec<u32>,
}

/// A node has ready Steps for a pool and no capacity (`tenure.v1.node.<node>.hungry`): workers of the
/// pool move theirs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Hungry {
    /// The version.
    pub v: V,
    /// Which node.
    pub node: SmolStr,
    /// Which pool.
    pub pool: PoolId,
    /// Steps and Runs that wait.
    pub wants: u64,
}

/// A node was given a partition (`tenure.v1.system.given.<node>`): it need not wait until it looks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Given {
    /// The version.
    pub v: V,
}

/// Whether the node that listens for a partition has it, said to another that is about to take it
/// (`tenure.v1.system.serves.<partition>`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Serves {
    /// The version.
    pub v: V,
    /// Which node.
    pub node: SmolStr,
    /// It owns the partition, and the Redis that it asks has said so within a lease.
    pub is_sure: bool,
}

/// Something of a Task's family, for whichever node has it (`tenure.v1.system.kin.<node>`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FamilyMessage {
    /// The version.
    pub v: V,
    /// The session.
    pub session_id: SessionId,
    /// The Task that is told.
    pub task_id: TaskId,
    /// Its child, which it has not linked yet; none: its parent is being closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<TaskId>,
}
