//! What gateways show of a Task: A2A states (7.3), MACP phases (7.4) and error codes (6.4).

use super::normal::Normal;
use crate::read::View;
use crate::reject::Code;
use crate::status::{StepStatus, TaskStatus, names};
use crate::task::Head;

names! {
    /// A2A task states; a gateway spells them as its protocol version does (A2A-17).
    A2aState {
        /// Accepted, no worker has started.
        Submitted = "submitted",
        /// A worker has started.
        Working = "working",
        /// Interrupted: an answer is needed.
        InputRequired = "input_required",
        /// Interrupted: a credential is needed.
        AuthRequired = "auth_required",
        /// Ended successfully.
        Completed = "completed",
        /// Ended with a failure.
        Failed = "failed",
        /// Refused.
        Rejected = "rejected",
        /// Ended on request.
        Canceled = "canceled",
    }
}

names! {
    /// MACP session phases (MACP-14).
    MacpPhase {
        /// No Task yet.
        Pending = "Pending",
        /// Requested, no worker has started.
        Requested = "Requested",
        /// A worker has started.
        InProgress = "InProgress",
        /// The work is done, not yet committed.
        Completed = "Completed",
        /// The work failed, not yet committed.
        Failed = "Failed",
        /// The initiator has committed it.
        Committed = "Committed",
    }
}

/// The facts that table 7.3 uses beside the normalized status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct A2aFacts {
    /// Native status.
    pub native: TaskStatus,
    /// Whether some Attempt has started since creation, or since the last answered request for
    /// input or permission.
    pub picked_up: bool,
    /// Whether the Task failed with reason `rejected`.
    pub rejected: bool,
}

impl A2aFacts {
    /// The facts of a view.
    pub fn of(view: &View<'_>) -> Self {
        let head = view.head();
        let rejected =
            |head: &Head| head.status_reason.as_ref().is_some_and(|r| r.code == "rejected");
        Self { native: head.status, picked_up: head.picked_up, rejected: rejected(head) }
    }
}

/// Table 7.3. `None` for `unknown`, which is a protocol error and no state, and for `released`, which
/// no Task is. For `stale`, the gateway gives the last status that it knew, and marks the answer.
pub const fn a2a_state(status: Normal, facts: A2aFacts) -> Option<A2aState> {
    let open = if facts.picked_up { A2aState::Working } else { A2aState::Submitted };
    Some(match status {
        Normal::Draft | Normal::Accepted => A2aState::Submitted,
        Normal::Queued | Normal::Retrying | Normal::Blocked | Normal::Paused => open,
        Normal::Preparing | Normal::Running | Normal::WaitingResource | Normal::Cancelling => {
            A2aState::Working
        }
        Normal::WaitingInput => A2aState::InputRequired,
        Normal::WaitingPermission => A2aState::AuthRequired,
        Normal::Cancelled => A2aState::Canceled,
        Normal::Completed => A2aState::Completed,
        Normal::TimedOut => A2aState::Failed,
        Normal::Failed => failed(facts),
        Normal::Lost if facts.native.is_terminal() => A2aState::Failed,
        Normal::Lost => A2aState::Working,
        Normal::Archived => match facts.native {
            TaskStatus::Completed => A2aState::Completed,
            TaskStatus::Cancelled => A2aState::Canceled,
            _ => failed(facts),
        },
        Normal::Stale | Normal::Unknown | Normal::Released => return None,
    })
}

const fn failed(facts: A2aFacts) -> A2aState {
    if facts.rejected { A2aState::Rejected } else { A2aState::Failed }
}

/// The facts that table 7.4 uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MacpFacts {
    /// Native status of the Task; `None`: the session has no Task.
    pub task: Option<TaskStatus>,
    /// Whether a Commitment completed or failed it.
    pub committed: bool,
    /// Native status of its one Step.
    pub step: Option<StepStatus>,
    /// Whether some Attempt has started.
    pub attempted: bool,
}

impl MacpFacts {
    /// The facts of a view. Only the gateway knows whether a Commitment ended the Task.
    pub fn of(view: &View<'_>, committed: bool) -> Self {
        Self {
            task: Some(view.status()),
            committed,
            step: view.steps().next().map(|s| s.status()),
            attempted: view.attempts_len() > 0,
        }
    }
}

/// Table 7.4: the first row that fits.
pub const fn macp_phase(facts: MacpFacts) -> MacpPhase {
    use TaskStatus as T;
    match facts {
        MacpFacts { task: None | Some(T::Draft), .. } => MacpPhase::Pending,
        MacpFacts { task: Some(T::Completed | T::Failed), committed: true, .. } => {
            MacpPhase::Committed
        }
        MacpFacts { step: Some(StepStatus::Completed), .. } => MacpPhase::Completed,
        MacpFacts { step: Some(StepStatus::Failed), .. } => MacpPhase::Failed,
        MacpFacts { task: Some(T::Failed), .. } => MacpPhase::Failed,
        MacpFacts { attempted: true, .. } => MacpPhase::InProgress,
        _ => MacpPhase::Requested,
    }
}

/// The MACP code of a refusal, if it has one (6.4). `assignee`: whether the sender is the session's
/// active assignee.
pub const fn macp_code(code: Code, assignee: bool) -> Option<&'static str> {
    match code {
        Code::PermissionDenied | Code::ToolNotAvailable => Some("FORBIDDEN"),
        Code::StaleAttempt if !assignee => Some("FORBIDDEN"),
        // A second request in a session is a second create of its Task (MACP-03).
        Code::ValidationError | Code::TaskIdConflict => Some("INVALID_ENVELOPE"),
        _ => None,
    }
}

/// The a2akit name of a refusal, if it has one (6.4).
pub const fn a2akit_name(code: Code) -> Option<&'static str> {
    match code {
        Code::VersionConflict => Some("ConcurrencyError"),
        Code::TaskTerminal => Some("TaskTerminalStateError"),
        _ => None,
    }
}
