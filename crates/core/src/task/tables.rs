//! The tables of section 3: which event is allowed in which status, and to which status it leads.

use crate::event::Body;
use crate::status::{StepStatus, TaskStatus};

impl StepStatus {
    /// The status after an event, or `None` if the event is not allowed in this status (3.2).
    ///
    /// The caller checks what needs more than the status (dependencies, Attempts).
    pub fn after(self, event: &Body) -> Option<Self> {
        use StepStatus::{Blocked, Cancelled, Claimed, Completed, Failed, Pending, Ready, Running};
        let to = match (self, event) {
            (Pending, Body::StepReady(_)) => Ready,
            (Ready, Body::StepClaimed(_)) => Claimed,
            (Claimed, Body::StepStarted(_)) => Running,
            (Claimed | Running, Body::StepLeaseExpired(_)) => Pending,
            (Pending | Ready | Claimed | Running, Body::StepBlocked(_)) => Blocked,
            // From pending only by a late result, or directly behind the reopening of a Step that is marked.
            (Pending | Ready | Claimed | Running, Body::StepCompleted(_)) => Completed,
            (Pending | Ready | Claimed | Running | Blocked, Body::StepFailed(_)) => Failed,
            (Pending | Ready | Claimed | Running | Blocked, Body::StepCancelled(_)) => Cancelled,
            (Blocked | Failed, Body::StepReopened(_)) => Pending,
            (Pending, Body::StepTakenOver(_)) => Completed,
            // On a completed Step it settles facts that were open (STEP-34).
            (
                Pending | Ready | Claimed | Running | Blocked | Completed | Failed,
                Body::StepUpdated(_),
            ) => self,
            (Pending | Ready | Claimed | Running | Blocked | Completed | Failed | Cancelled, _) => {
                return None;
            }
        };
        Some(to)
    }
}

impl TaskStatus {
    /// The status after an event, or `None` if the event is not allowed in this status (3.1).
    pub const fn after(self, event: &Body) -> Option<Self> {
        use TaskStatus::{Blocked, Cancelled, Completed, Draft, Failed, Paused, Pending, Running};
        let to = match (self, event) {
            (Draft, Body::TaskSubmitted(_)) => Pending,
            (Pending, Body::TaskRunning(_)) => Running,
            (Pending | Running, Body::TaskBlocked(_)) => Blocked,
            (Blocked, Body::TaskReopened(_)) => Pending,
            (Pending | Running, Body::TaskPaused(_)) => Paused,
            (Paused, Body::TaskResumed(_)) => Pending,
            (Pending | Running | Blocked | Paused, Body::TaskCompleted(_)) => Completed,
            (Pending | Running | Blocked | Paused, Body::TaskFailed(_)) => Failed,
            (Draft | Pending | Running | Blocked | Paused, Body::TaskCancelled(_)) => Cancelled,
            (Draft | Pending | Running | Blocked | Paused | Completed | Failed | Cancelled, _) => {
                return None;
            }
        };
        Some(to)
    }
}
