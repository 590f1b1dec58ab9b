//! The refusals of a worker's commands on a Task that does not exist. They are the same as for a
//! Task that is not its Run's, so that a worker cannot find out which Tasks exist (PERM-16).

use super::claim::check_envelope;
use super::report::{check_content_fields, check_workers_status, not_claimed, stale};
use super::{Command, Cx, check_principal, check_tool, no_such_run};
use crate::reject::{Code, Rejection};

impl Command {
    /// The refusal of a worker's command on a Task that does not exist.
    pub fn refused_without_task(&self, cx: &Cx<'_>) -> Rejection {
        let checked = check_principal(cx.caller)
            .and_then(|()| check_tool(cx.caller, self.operation()))
            .and_then(|()| self.validate(cx))
            .and_then(|()| check_content_fields(cx, self));
        checked.and_then(|()| self.check_nothing(cx)).err().unwrap_or_else(not_its_runs)
    }

    /// Checks the caller's rights as if for a Run, Attempt or Step that does not exist.
    fn check_nothing(&self, cx: &Cx<'_>) -> Result<(), Rejection> {
        match self {
            Self::TaskUpdateStep(report) => {
                check_workers_status(report)?;
                Err(not_claimed(report))
            }
            Self::TaskClaimStep { run_id, .. } => {
                check_envelope(cx.caller, *run_id)?;
                Err(no_such_run(*run_id))
            }
            Self::EndRun(end) => Err(no_such_run(end.run_id)),
            Self::DeclineRun(decline) => Err(no_such_run(decline.run_id)),
            Self::ReleaseStep { .. } => Err(stale()),
            _ => Ok(()),
        }
    }
}

/// The refusal for a Task that is not the Task of the worker's Run, or that does not exist.
pub fn not_its_runs() -> Rejection {
    Rejection::new(Code::PermissionDenied, "your run is not a run of this task")
}
