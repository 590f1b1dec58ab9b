//! Moves of a Task between live statuses, and archiving (3.1: T03, T05 to T08, T14).

use super::close::reason_or;
use super::tx::Did;
use super::{Tx, Why, invalid_transition};
use crate::event::{Archived, Body, Moved, Stopped};
use crate::patch::ReasonInput;
use crate::reject::{Code, Rejection};
use crate::status::TaskStatus;

impl Tx<'_, '_> {
    pub(super) fn submit(&mut self, why: &Why) -> Result<Did, Rejection> {
        let moved = self.moved(why, TaskStatus::Draft, TaskStatus::Pending)?;
        self.submit_as(moved)?;
        Ok(Did::DONE)
    }

    /// Submits a draft.
    pub(super) fn submit_as(&mut self, moved: Moved) -> Result<(), Rejection> {
        if self.task.tally().steps() == 0 {
            return Err(Rejection::new(Code::ValidationError, "a task needs at least one step")
                .with("field", "steps"));
        }
        self.emit(self.caller(), Body::TaskSubmitted(moved))
    }

    pub(super) fn pause(&mut self, why: &Why) -> Result<Did, Rejection> {
        let from = self.task.head.status;
        if !from.is_dispatchable() {
            return Err(invalid_transition(from.as_str(), "paused"));
        }
        let reason = reason_or(why.reason.as_ref(), "paused");
        self.emit(self.caller(), Body::TaskPaused(Stopped { from, reason }))?;
        Ok(Did::DONE)
    }

    pub(super) fn resume(&mut self, why: &Why) -> Result<Did, Rejection> {
        let moved = self.moved(why, TaskStatus::Paused, TaskStatus::Pending)?;
        self.emit(self.caller(), Body::TaskResumed(moved))?;
        Ok(Did::DONE)
    }

    pub(super) fn block(&mut self, why: &Why) -> Result<Did, Rejection> {
        self.block_task(why.reason.as_ref())?;
        Ok(Did::DONE)
    }

    pub(super) fn reopen_task(&mut self, why: &Why) -> Result<Did, Rejection> {
        self.unblock_task(why.reason.as_ref())?;
        Ok(Did::DONE)
    }

    /// T05: blocks the Task, as a command or in a patch (PATCH-05).
    pub(super) fn block_task(&mut self, reason: Option<&ReasonInput>) -> Result<(), Rejection> {
        let from = self.task.head.status;
        if !from.is_dispatchable() {
            return Err(invalid_transition(from.as_str(), "blocked"));
        }
        let reason = reason_or(reason, "blocked");
        self.emit(self.caller(), Body::TaskBlocked(Stopped { from, reason }))
    }

    /// T06: reopens the blocked Task, as a command or in a patch (PATCH-05).
    pub(super) fn unblock_task(&mut self, reason: Option<&ReasonInput>) -> Result<(), Rejection> {
        let why = Why { reason: reason.cloned() };
        let moved = self.moved(&why, TaskStatus::Blocked, TaskStatus::Pending)?;
        self.emit(self.caller(), Body::TaskReopened(moved))
    }

    fn moved(&self, why: &Why, from: TaskStatus, to: TaskStatus) -> Result<Moved, Rejection> {
        if self.task.head.status != from {
            return Err(invalid_transition(self.task.head.status.as_str(), to.as_str()));
        }
        let reason = why.reason.as_ref().map(|r| reason_or(Some(r), to.as_str()));
        Ok(Moved { from, reason })
    }

    pub(super) fn archive(&mut self, why: &Why) -> Result<Did, Rejection> {
        if !self.task.is_terminal() {
            return Err(invalid_transition(self.task.head.status.as_str(), "archived"));
        }
        if self.task.head.archived_at.is_none() {
            let reason = why.reason.as_ref().map(|r| reason_or(Some(r), "archived"));
            self.emit(self.caller(), Body::TaskArchived(Archived { reason }))?;
        }
        Ok(Did::DONE)
    }
}
