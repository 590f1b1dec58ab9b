//! What a worker is told of a Task that there is not: what it is told of one that its Run is none of,
//! so that nothing shows which Tasks there are (PERM-16).

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

    /// Rights, where there is no Run, Attempt or Step.
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

/// What a worker is told of a Task that is not its Run's, or that there is not.
pub fn not_its_runs() -> Rejection {
    Rejection::new(Code::PermissionDenied, "your run is not a run of this task")
}
