//! `agent.dispatch_worker`: a licence for one worker to claim one Step (DISP).

use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;

use super::tx::Did;
use super::{Dispatch, Tx, Wait};
use crate::event::{Body, RunDispatched};
use crate::id::StepId;
use crate::reject::{Code, Rejection};
use crate::task::derived::after;
use crate::task::{Made, Task};

impl Tx<'_, '_> {
    pub(super) fn dispatch(&mut self, given: &Dispatch) -> Result<Did, Rejection> {
        self.task.check_dispatchable()?;
        let allowed_step_ids = given.allowed_step_ids.as_deref().map(deduplicated);
        for id in allowed_step_ids.iter().flatten() {
            self.task.step_or_reject(id)?;
        }
        let event = RunDispatched {
            run_id: self.cx.stamp.run_id,
            worker_pool_id: given.worker_pool_id.clone(),
            allowed_step_ids,
            dispatched_by: self.cx.caller.agent.clone(),
            instructions: given.instructions.clone(),
            bindings: given.bindings.clone(),
            expires_at: after(self.now(), self.cx.limits.run_ttl_ms),
        };
        self.emit(self.caller(), Body::RunDispatched(Box::new(event)))?;
        let run = crate::table::next_pos(self.task.runs.len() - 1);
        let waits = given.wait.unwrap_or(false).then_some(Wait::RunEnd(run));
        Ok(Did { made: Made::Run(run), waits })
    }
}

impl Task {
    /// DISP-04, TASK-12: Steps are given out only while the Task is pending or running.
    pub(crate) fn check_dispatchable(&self) -> Result<(), Rejection> {
        if self.head.status.is_dispatchable() {
            return Ok(());
        }
        let status = self.head.status;
        let message = format!("the task is {status}; reopen, resume or submit it first");
        Err(Rejection::new(Code::TaskNotDispatchable, message).with("status", status.as_str()))
    }
}

/// DISP-07, DAG-14: each id once, first place kept.
pub(crate) fn deduplicated(ids: &[StepId]) -> Vec<StepId> {
    let mut seen = alloc::collections::BTreeSet::new();
    ids.iter().filter(|id| seen.insert((*id).clone())).cloned().collect()
}
