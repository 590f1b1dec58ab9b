//! What a caller may see of a Task (PERM, QUERY-01 to QUERY-05).

use crate::command::not_its_runs;
use crate::command::{Caller, Operator, check_tool};
use crate::eligibility::is_in_scope;
use crate::read::{StepRef, View};
use crate::reject::{Code, Rejection};
use crate::status::Role;
use crate::table::Pos;
use crate::task::Run;

/// How much of a Task a caller sees.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scope<'a> {
    /// All of it.
    Whole,
    /// What a worker's Run may see.
    Run {
        /// The Run's position.
        pos: Pos,
        /// The Run.
        run: &'a Run,
    },
}

impl<'a> Scope<'a> {
    /// The caller's scope in this Task for a read.
    ///
    /// # Errors
    /// `tool_not_available` outside the caller's tool set (PERM-08); `permission_denied` for another
    /// session, or for a worker whose Run is not of this Task or not its own. All refusals of the
    /// latter kind are the same, so that they do not show whether such a Run or Task exists (PERM-16).
    pub fn of(view: &View<'a>, caller: &Caller, operation: Operator) -> Result<Self, Rejection> {
        check_tool(caller, operation)?;
        if caller.session_id != view.head().spec.session_id {
            return Err(Rejection::new(Code::PermissionDenied, "the task is not of your session"));
        }
        if caller.role != Role::Worker {
            return Ok(Self::Whole);
        }
        Self::of_worker(view, caller).ok_or_else(not_its_runs)
    }

    fn of_worker(view: &View<'a>, caller: &Caller) -> Option<Self> {
        let pos = view.find_run(caller.run_id?)?;
        let run = view.run_at(pos);
        let holder = run.worker_id.as_ref().or(view.memory_of(pos).taken_by);
        let own = caller.worker_pool_id.as_ref() == Some(&run.worker_pool_id)
            && holder.is_none_or(|who| *who == caller.agent);
        own.then_some(Self::Run { pos, run })
    }

    /// Whether a Step is visible: it is in the Run's pool and `allowed_step_ids`, or the Run holds
    /// it (QUERY-04).
    pub fn sees(&self, view: &View<'_>, step: StepRef<'_>) -> bool {
        match self {
            Self::Whole => true,
            Self::Run { pos, run } => {
                let holds = || view.current(step).is_some_and(|a| a.run == *pos);
                is_in_scope(run, step.spec) || holds()
            }
        }
    }
}
