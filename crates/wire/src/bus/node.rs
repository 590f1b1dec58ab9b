//! Messages that nodes send to all workers and nodes, or to each other.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use tenure_core::features::Features;
use tenure_core::id::{PoolId, SessionId, TaskId};

use super::V;

/// A sign of life (`tenure.v1.node.<node>.alive`), which a node sends when it starts and every two
/// seconds. A worker without a link to that node answers with a hello.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Alive {
    /// The version.
    pub v: V,
    /// The node.
    pub node: SmolStr,
    /// Partitions of the cluster.
    pub partitions: u32,
    /// The version of the placement of Tasks in them (OWN-01); 1 if left out.
    #[serde(default = "super::first_placement", skip_serializing_if = "super::is_first_placement")]
    pub placement: u32,
    /// The partitions that it owns.
    pub owned: Vec<u32>,
    /// Its features (EVOLVE-02).
    #[serde(default, skip_serializing_if = "Features::is_empty")]
    pub features: Features,
    /// The features that logs of the cluster may hold and that it lacks: if there are any, it takes no partition.
    #[serde(default, skip_serializing_if = "Features::is_empty")]
    pub lacks: Features,
}

/// A node has ready Steps for a pool but no credits (`tenure.v1.node.<node>.hungry`): workers of
/// the pool move free credits to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Hungry {
    /// The version.
    pub v: V,
    /// The node.
    pub node: SmolStr,
    /// The pool.
    pub pool: PoolId,
    /// Steps and Runs that wait.
    pub wants: u64,
}

/// Another node has given a partition to this one (`tenure.v1.system.given.<node>`), which need not
/// wait for its poll.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Given {
    /// The version.
    pub v: V,
}

/// The answer to a node that is about to take a partition: whether the node that listens for the
/// partition owns it (`tenure.v1.system.serves.<partition>`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Serves {
    /// The version.
    pub v: V,
    /// The node that listens.
    pub node: SmolStr,
    /// Whether it owns the partition, and its Redis has confirmed that within a lease.
    pub is_sure: bool,
}

/// A fact about a Task's family, which `<node>` sends to all nodes for the one that owns the Task
/// (`tenure.v1.system.kin.<node>`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FamilyMessage {
    /// The version.
    pub v: V,
    /// The session.
    pub session_id: SessionId,
    /// The Task that gets the fact.
    pub task_id: TaskId,
    /// Its child that it has not linked yet; absent: its parent is closing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<TaskId>,
}
