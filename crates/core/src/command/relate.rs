//! `link_tasks` and `unlink_tasks`: relations of this Task (REL-03).

use alloc::boxed::Box;
use alloc::format;

use super::create::edge;
use super::tx::Did;
use super::{Link, Tx, Unlink};
use crate::event::{Body, Linked, Unlinked};
use crate::reject::{Code, Rejection};
use crate::status::{EdgeKind, EdgeStatus};

impl Tx<'_, '_> {
    /// The shell has checked that the other end exists and that `blocks` closes no cycle (REL-06).
    pub(super) fn link(&mut self, link: &Link) -> Result<Did, Rejection> {
        let by_scheduler = self.cx.caller.role == crate::status::Role::System;
        let made_at_creation =
            matches!(link.kind, EdgeKind::Parent | EdgeKind::RetryOf | EdgeKind::Child);
        if made_at_creation && !(by_scheduler && link.kind == EdgeKind::Child) {
            let message = format!("{} edges come from creation only", link.kind);
            return Err(Rejection::invalid("kind", message));
        }
        if matches!(link.kind, EdgeKind::ProducedArtifact | EdgeKind::ConsumedArtifact) {
            let message = format!("{} edges are derived, not stored", link.kind);
            return Err(Rejection::invalid("kind", message));
        }
        let mut edge =
            edge(link.kind, self.task.task_id(), &link.to, link.reason.clone(), self.now())?;
        let earlier = self.task.edges.iter().filter(|e| e.kind == edge.kind && e.to == edge.to);
        let (mut count, mut active) = (0, false);
        for one in earlier {
            (count, active) = (count + 1, active || one.status == EdgeStatus::Active);
        }
        if active {
            return Ok(Did::DONE); // Idempotent by edge (REL-05).
        }
        if count > 0 {
            edge.edge_id = crate::id::EdgeId::new(format!("{}:{count}", edge.edge_id))?;
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
        if matches!(edge.kind, EdgeKind::Parent | EdgeKind::RetryOf | EdgeKind::Child) {
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
