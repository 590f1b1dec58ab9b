//! `link_tasks` and `unlink_tasks`: make and remove relations of this Task (REL-03).

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::vec::Vec;
use core::fmt::Display;

use super::close::reason_or;
use super::tx::Did;
use super::{Link, Operator, Tx, Unlink};
use crate::event::{Body, Linked, Unlinked};
use crate::id::{BadId, EdgeId, Millis, OPAQUE_MAX, Ref, TaskId};
use crate::patch::ReasonInput;
use crate::read::View;
use crate::record::{Edge, EdgeReason};
use crate::reject::{Code, Rejection};
use crate::status::{EdgeKind, EdgeStatus, Role};

impl Tx<'_, '_> {
    /// Adds a relation. The scheduler has checked that the other end exists, and with
    /// [`check_blocks`] that a `blocks` edge closes no cycle that it can see (REL-06).
    pub(super) fn link(&mut self, link: &Link) -> Result<Did, Rejection> {
        check_kind(link.kind, self.cx.caller.role)?;
        if link.to.as_str() == self.task.task_id().as_str() {
            return Err(to_itself(link, self.task.task_id()));
        }
        let reason = link.reason.clone().map(EdgeReason::Text);
        let mut edge = edge(link.kind, self.task.task_id(), &link.to, reason, self.now())?;
        let earlier = self.task.edges.iter().filter(|e| e.kind == edge.kind && e.to == edge.to);
        let (mut count, mut active) = (0, false);
        for one in earlier {
            (count, active) = (count + 1, active || one.status == EdgeStatus::Active);
        }
        if active {
            return Ok(Did::DONE); // Idempotent by edge (REL-05).
        }
        if count > 0 {
            edge.edge_id = EdgeId::new(format!("{}:{count}", edge.edge_id))?;
        }
        self.emit(self.caller(), Body::TaskLinked(Box::new(Linked { edge })))?;
        Ok(Did::DONE)
    }

    pub(super) fn unlink(&mut self, unlink: &Unlink) -> Result<Did, Rejection> {
        let edge = self.task.edges.iter().find(|e| e.edge_id == unlink.edge_id);
        let edge = edge.ok_or_else(|| {
            Rejection::new(Code::ValidationError, format!("edge {} does not exist", unlink.edge_id))
                .with("field", "edge_id")
        })?;
        if is_made_at_creation(edge.kind) {
            let message = format!("{} edges come from creation and stay", edge.kind);
            return Err(Rejection::invalid("edge_id", message));
        }
        if edge.status == EdgeStatus::Removed {
            return Ok(Did::DONE);
        }
        let event = Unlinked { edge_id: unlink.edge_id.clone(), reason: unlink.reason.clone() };
        self.emit(self.caller(), Body::TaskUnlinked(event))?;
        Ok(Did::DONE)
    }
}

/// The stored form of a reason: a text if it has only a message.
pub(super) fn kept(reason: &ReasonInput) -> EdgeReason {
    match reason {
        ReasonInput { code: None, details: None, retryable: None, message } => {
            EdgeReason::Text(message.clone())
        }
        _ => EdgeReason::Whole(reason_or(Some(reason), Operator::RetryTask.as_str()).into()),
    }
}

const fn is_made_at_creation(kind: EdgeKind) -> bool {
    matches!(kind, EdgeKind::Parent | EdgeKind::RetryOf | EdgeKind::Child)
}

/// Refuses the kinds that `link_tasks` does not make: those of creation (REL-06) and derived ones
/// (REL-08). Only the scheduler records a child in its parent (REL-05).
fn check_kind(kind: EdgeKind, role: Role) -> Result<(), Rejection> {
    let what = match kind {
        EdgeKind::Child if role == Role::System => return Ok(()),
        EdgeKind::Parent | EdgeKind::RetryOf | EdgeKind::Child => "come from creation only",
        EdgeKind::ProducedArtifact | EdgeKind::ConsumedArtifact | EdgeKind::SourceAttempt => {
            "are derived, not stored"
        }
        _ => return Ok(()),
    };
    Err(Rejection::invalid("kind", format!("{kind} edges {what}")))
}

fn to_itself(link: &Link, id: &TaskId) -> Rejection {
    match link.kind {
        EdgeKind::Blocks | EdgeKind::BlockedBy => cycle(&[id, id]),
        _ => Rejection::invalid("to", "a task is not linked to itself"),
    }
}

fn cycle(path: &[&TaskId]) -> Rejection {
    let ids: Vec<serde_json::Value> = path.iter().map(|id| id.as_str().into()).collect();
    let message = format!("tasks would block each other: {}", arrows(path));
    Rejection::new(Code::DependencyCycle, message).with("task_ids", ids)
}

fn arrows(path: &[&TaskId]) -> alloc::string::String {
    path.iter().map(|id| id.as_str()).collect::<Vec<_>>().join(" -> ")
}

/// Which of the two Tasks waits for the other by an edge of this kind, as blocker and blocked;
/// `None` if neither does.
fn blocking(kind: EdgeKind, from: &TaskId, to: &Ref) -> Option<(TaskId, TaskId)> {
    let (from, to) = (from.clone(), TaskId::new(to.as_str()).ok()?);
    match kind {
        EdgeKind::Blocks => Some((from, to)),
        EdgeKind::BlockedBy => Some((to, from)),
        _ => None,
    }
}

impl Link {
    /// The blocker and the blocked Task, if this edge is made in `from`; `None` if it blocks nothing.
    pub fn blocking(&self, from: &TaskId) -> Option<(TaskId, TaskId)> {
        blocking(self.kind, from, &self.to)
    }
}

impl View<'_> {
    /// The active blocking edges that this Task stores, each as blocker and blocked.
    pub fn blocking_edges(&self) -> Vec<(TaskId, TaskId)> {
        let active = self.edges().filter(|edge| edge.status == EdgeStatus::Active);
        active.filter_map(|edge| blocking(edge.kind, self.task_id(), &edge.to)).collect()
    }
}

/// REL-06: whether `blocker` may block `blocked`, given the active `blocks` edges that are visible
/// at this moment, each as blocker and blocked (an edge of kind `blocked_by` reversed).
///
/// # Errors
/// `dependency_cycle` with the path that the new edge would close.
pub fn check_blocks(
    blocker: &TaskId,
    blocked: &TaskId,
    edges: &[(TaskId, TaskId)],
) -> Result<(), Rejection> {
    if blocker == blocked {
        return Err(cycle(&[blocker, blocker]));
    }
    let mut came_from: BTreeMap<&TaskId, &TaskId> = BTreeMap::new();
    let mut seen = BTreeSet::from([blocked]);
    let mut work = Vec::from([blocked]);
    while let Some(at) = work.pop() {
        for (_, next) in edges.iter().filter(|(from, _)| from == at) {
            if seen.insert(next) {
                came_from.insert(next, at);
                work.push(next);
            }
        }
    }
    if !seen.contains(blocker) {
        return Ok(());
    }
    let back = core::iter::successors(Some(blocker), |at| came_from.get(at).copied());
    let mut path: Vec<&TaskId> = back.collect();
    path.push(blocker);
    path.reverse();
    Err(cycle(&path))
}

/// A stable id: the same kind and ends always give the same id. If an end is too long, the id has its hash.
pub(crate) fn edge_id(kind: EdgeKind, from: &impl Display, to: &Ref) -> Result<EdgeId, BadId> {
    let full = format!("{kind}:{from}:{to}");
    // Leaves space for the count that tells repeated relations apart.
    if full.len() + 12 <= OPAQUE_MAX {
        return EdgeId::new(full);
    }
    EdgeId::new(format!("{kind}:{from}:fnv1a-{:016x}", fnv1a(to.as_str().as_bytes())))
}

fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// A relation with a stable id: the same two ends and kind always give the same.
pub(crate) fn edge(
    kind: EdgeKind,
    from: &TaskId,
    to: &Ref,
    reason: Option<EdgeReason>,
    at: Millis,
) -> Result<Edge, Rejection> {
    Ok(Edge {
        edge_id: edge_id(kind, from, to)?,
        kind,
        from: Ref::new(from.as_str())?,
        to: to.clone(),
        status: EdgeStatus::Active,
        reason,
        created_at: at,
        updated_at: at,
    })
}
