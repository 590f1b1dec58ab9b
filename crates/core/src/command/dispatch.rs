//! `agent.dispatch_worker`: a licence for one worker to claim one Step (DISP).

use alloc::boxed::Box;
use alloc::format;

use super::tx::Did;
use super::{Dispatch, Tx};
use crate::event::{Body, RunDispatched};
use crate::id::{AgentId, Millis, PoolId, RunId};
use crate::patch::deduplicated;
use crate::reject::{Code, Rejection};
use crate::status::RunState;
use crate::task::derived::after;
use crate::task::{Made, Run, Task};

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
        Ok(Did { made: Made::Run(run), waits: given.waits(run) })
    }
}

impl Task {
    /// Runs of a pool that a worker may take, oldest first: unused, and known to be nobody's.
    pub fn runs_to_take(&self, pool: &PoolId, now: Millis) -> impl Iterator<Item = &Run> {
        let live = self.derived.live_runs.iter().filter(|&pos| {
            !self.volatile.taken.contains_key(pos) && !self.volatile.spent.contains(pos)
        });
        let runs = live.map(|&pos| &self.runs[pos]).filter(move |run| run.worker_pool_id == *pool);
        runs.filter(move |run| {
            run.state == RunState::Dispatched && run.expires_at.is_none_or(|at| at > now)
        })
    }

    /// Remembers who took an unclaimed Run (DISP-16): only memory knows, and an owner change
    /// forgets it. Answers whether the Run is now this worker's.
    pub fn take_run(&mut self, id: RunId, worker: &AgentId) -> bool {
        let Some(pos) = self.runs.find(&id) else { return false };
        if self.runs[pos].state != RunState::Dispatched || self.volatile.spent.contains(&pos) {
            return false;
        }
        self.volatile.taken.entry(pos).or_insert_with(|| worker.clone()) == worker
    }

    /// Forgets who took an unclaimed Run: it may be offered again.
    pub fn give_run_back(&mut self, id: RunId) {
        if let Some(pos) = self.runs.find(&id) {
            self.volatile.taken.remove(&pos);
        }
    }

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
