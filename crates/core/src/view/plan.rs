//! What a patch would do: it is decided on a copy of the Task, which nobody appends.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Graph, Known, View, graph};
use crate::command::{Caller, Command, Cx, Stamp};
use crate::id::{AttemptId, CommitId, RunId, StepId};
use crate::limits::Limits;
use crate::patch::Operation;
use crate::reject::Rejection;
use crate::status::StepStatus;
use crate::task::Task;

/// What a patch would do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PatchPlan {
    /// The version of the Task that it starts from.
    pub version: u64,
    /// The version at which orchestrators had last changed the Task (OCC-07).
    pub spec_version: u64,
    /// Steps that there would be.
    pub added: Vec<StepId>,
    /// Steps that there would be no more.
    pub removed: Vec<StepId>,
    /// Steps whose status would change, except those that become ready.
    pub changed: Vec<(StepId, StepStatus)>,
    /// Steps that would become ready.
    pub ready: Vec<StepId>,
    /// The DAG as it would be.
    pub graph: Graph,
}

/// For whom, and on what, a patch is planned.
#[derive(Debug, Clone, Copy)]
pub struct Premises<'a> {
    /// Who would patch.
    pub caller: &'a Caller,
    /// The version that the caller expects (OCC-02).
    pub expected_version: Option<u64>,
    /// The `spec_version` that the caller expects (OCC-07).
    pub expected_spec_version: Option<u64>,
    /// The limits of the owner of the Task.
    pub limits: &'a Limits,
    /// What is known beside the log.
    pub known: &'a Known<'a>,
}

/// Says what these operations would do to a Task.
///
/// # Errors
/// Those of `task_update`.
pub fn plan_patch(
    task: &Task,
    operations: Vec<Operation>,
    on: &Premises<'_>,
) -> Result<PatchPlan, Rejection> {
    let nobody = Uuid::nil();
    let cx = Cx {
        caller: on.caller,
        stamp: Stamp {
            now: on.known.now,
            steady: on.known.now,
            commit_id: CommitId(nobody),
            run_id: RunId(nobody),
            attempt_id: AttemptId(nobody),
            random: 0,
        },
        command_id: None,
        digest: None,
        expected_version: on.expected_version,
        expected_spec_version: on.expected_spec_version,
        trace: None,
        epoch: 0,
        limits: on.limits,
    };
    let mut copy = task.clone();
    copy.decide(&cx, &Command::TaskUpdate { operations })?;
    copy.settle(); // As after the append.
    Ok(PatchPlan::of(&task.durable(), &copy.durable(), on.known))
}

impl PatchPlan {
    fn of(before: &View<'_>, after: &View<'_>, known: &Known<'_>) -> Self {
        let (mut added, mut changed, mut ready) = (Vec::new(), Vec::new(), Vec::new());
        for step in after.steps() {
            let (id, status) = (step.id().clone(), step.status());
            let was = before.step(&id).map(|step| step.status());
            if was.is_none() {
                added.push(id.clone());
            }
            match status {
                _ if was == Some(status) => {}
                StepStatus::Ready => ready.push(id),
                _ if was.is_some() => changed.push((id, status)),
                _ => {}
            }
        }
        let removed = before.steps().filter(|step| after.step(step.id()).is_none());
        let removed = removed.map(|step| step.id().clone()).collect();
        let (version, spec_version) = (before.version(), before.spec_version());
        let graph = graph(after, known);
        Self { version, spec_version, added, removed, changed, ready, graph }
    }
}
