//! Operations by name, and which roles have which (PERM).

use alloc::format;

use super::{Caller, Command};
use crate::id::SessionId;
use crate::reject::{Code, Rejection};
use crate::status::{Role, names};

names! {
    /// Operations, by their own names (5.2 to 5.4). Some also have other names: [`Operator::called`].
    Operator {
        /// `agent.task_create`, `create_task`.
        TaskCreate = "task_create",
        /// `agent.task_update`, `update_task`.
        TaskUpdate = "task_update",
        /// `agent.task_claim_step`.
        TaskClaimStep = "task_claim_step",
        /// `agent.task_update_step`.
        TaskUpdateStep = "task_update_step",
        /// `agent.task_complete`.
        TaskComplete = "task_complete",
        /// `agent.task_fail`.
        TaskFail = "task_fail",
        /// `agent.task_cancel`.
        TaskCancel = "task_cancel",
        /// `agent.dispatch_worker`, `start_task`.
        DispatchWorker = "dispatch_worker",
        /// Submits a draft (T03).
        SubmitTask = "submit_task",
        /// Pauses a Task (T07).
        PauseTask = "pause_task",
        /// Resumes a paused Task (T08).
        ResumeTask = "resume_task",
        /// Blocks a Task (T05).
        BlockTask = "block_task",
        /// Reopens a blocked Task (T06).
        ReopenTask = "reopen_task",
        /// Progress, artifacts, delivery of the Task or the held Step.
        AppendTaskProgress = "append_task_progress",
        /// Keeps a fact of a gateway with the Task (FACT-01).
        TaskFact = "task_fact",
        /// Reopens failed Steps of a live Task (RETRY-11), or runs an ended Task again (RETRY-12).
        RetryTask = "retry_task",
        /// Adds a relation (REL-03).
        LinkTasks = "link_tasks",
        /// Removes a relation (REL-03).
        UnlinkTasks = "unlink_tasks",
        /// Archives an ended Task (T14).
        ArchiveTask = "archive_task",
        /// Ends a Run (RUN-03, RUN-09).
        EndRun = "end_run",
        /// Declines a Run (RUN-12).
        DeclineRun = "decline_run",
        /// Asks a Run to stop (RUN-02).
        CancelRun = "cancel_run",
        /// Gives a Step back (S26).
        ReleaseStep = "release_step",
        /// Internal: gives a ready Step to a worker that asked for work (DISP-14).
        GrantStep = "grant_step",
        /// Internal: ends Attempts whose leases ended without a final report (LEASE-07).
        ExpireLeases = "expire_leases",
        /// Internal: judges what fell due (RECOVER-09).
        Due = "due",
        /// Stores a blob of a Task (VALUE-01).
        BlobPut = "blob_put",
        /// Reads a blob of a Task (VALUE-01).
        BlobGet = "blob_get",
        /// `agent.task_get`.
        TaskGet = "task_get",
        /// `agent.task_list`.
        TaskList = "task_list",
        /// `agent.task_query_steps`.
        TaskQuerySteps = "task_query_steps",
        /// `take_run`.
        TakeRun = "take_run",
        /// `heartbeat`.
        Heartbeat = "heartbeat",
        /// `inspect_task`, `replay_task`.
        InspectTask = "inspect_task",
        /// `task_views`.
        TaskViews = "task_views",
        /// `task_board_summary`.
        TaskBoardSummary = "task_board_summary",
        /// `agent.task_template`.
        TaskTemplate = "task_template",
    }
}

impl Operator {
    /// Whether a role has the operation in its tool set (PERM-04 to PERM-08, PERM-15).
    pub const fn is_open_to(self, role: Role) -> bool {
        use Operator as O;
        match role {
            Role::System => true,
            Role::SubAgent => false,
            Role::Observer => matches!(
                self,
                O::TaskGet
                    | O::TaskList
                    | O::TaskQuerySteps
                    | O::InspectTask
                    | O::TaskViews
                    | O::BlobGet
            ),
            Role::Worker => matches!(
                self,
                O::TaskGet
                    | O::TaskList
                    | O::TaskQuerySteps
                    | O::TaskBoardSummary
                    | O::TaskClaimStep
                    | O::TaskUpdateStep
                    | O::AppendTaskProgress
                    | O::BlobPut
                    | O::BlobGet
                    | O::TakeRun
                    | O::Heartbeat
                    | O::EndRun
                    | O::DeclineRun
                    | O::ReleaseStep
            ),
            Role::Orchestrator => !matches!(
                self,
                O::TaskClaimStep
                    | O::TakeRun
                    | O::Heartbeat
                    | O::EndRun
                    | O::DeclineRun
                    | O::ReleaseStep
                    | O::GrantStep
                    | O::ExpireLeases
                    | O::Due
            ),
        }
    }
}

impl Command {
    /// The operation's name.
    pub const fn operation(&self) -> Operator {
        match self {
            Self::TaskUpdate { .. } => Operator::TaskUpdate,
            Self::TaskClaimStep { .. } => Operator::TaskClaimStep,
            Self::TaskUpdateStep(_) => Operator::TaskUpdateStep,
            Self::TaskComplete(_) => Operator::TaskComplete,
            Self::TaskFail(_) => Operator::TaskFail,
            Self::TaskCancel(_) => Operator::TaskCancel,
            Self::DispatchWorker(_) => Operator::DispatchWorker,
            Self::SubmitTask(_) => Operator::SubmitTask,
            Self::PauseTask(_) => Operator::PauseTask,
            Self::ResumeTask(_) => Operator::ResumeTask,
            Self::BlockTask(_) => Operator::BlockTask,
            Self::ReopenTask(_) => Operator::ReopenTask,
            Self::AppendTaskProgress(_) => Operator::AppendTaskProgress,
            Self::TaskFact(_) => Operator::TaskFact,
            Self::RetryTask(_) => Operator::RetryTask,
            Self::LinkTasks(_) => Operator::LinkTasks,
            Self::UnlinkTasks(_) => Operator::UnlinkTasks,
            Self::ArchiveTask(_) => Operator::ArchiveTask,
            Self::EndRun(_) => Operator::EndRun,
            Self::DeclineRun(_) => Operator::DeclineRun,
            Self::CancelRun(_) => Operator::CancelRun,
            Self::ReleaseStep { .. } => Operator::ReleaseStep,
            Self::GrantStep(_) => Operator::GrantStep,
            Self::ExpireLeases { .. } | Self::Unacknowledged { .. } => Operator::ExpireLeases,
            Self::Due => Operator::Due,
        }
    }
}

/// K1: only the scheduler has the name `system`, and it has no other (U12).
pub fn check_principal(caller: &Caller) -> Result<(), Rejection> {
    if (caller.agent == crate::id::system_agent()) == (caller.role == Role::System) {
        return Ok(());
    }
    Err(Rejection::new(Code::Unauthenticated, "the name `system` is the scheduler's own"))
}

/// K2: the operation is in the caller's tool set.
pub fn check_tool(caller: &Caller, operation: Operator) -> Result<(), Rejection> {
    if operation.is_open_to(caller.role) {
        return Ok(());
    }
    let message = format!("{operation} is not a tool of a {}", caller.role);
    Err(Rejection::new(Code::ToolNotAvailable, message).with("operation", operation.as_str()))
}

/// K4: whoever may act in a session may act on its Tasks. The scheduler also checks this before it
/// looks anything up for a caller.
pub fn check_session(caller: &Caller, session: &SessionId) -> Result<(), Rejection> {
    if caller.session_id == *session {
        return Ok(());
    }
    Err(Rejection::new(Code::PermissionDenied, "the task is not of your session"))
}
