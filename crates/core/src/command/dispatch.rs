//! `agent.dispatch_worker`: a licence for one worker to claim one Step (DISP).

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::close::reason_or;
use super::tx::Did;
use super::{Dispatch, OnBehalf, Tx};
use crate::eligibility::{has_handler, is_assigned_elsewhere, is_in_scope};
use crate::event::{Body, RunDispatched, RunEnded};
use crate::id::{AgentId, HandlerName, Millis, PoolId, RunId};
use crate::patch::deduplicated;
use crate::record::StepSpec;
use crate::reject::{Code, Rejection};
use crate::status::{EndReason, StepStatus};
use crate::table::Pos;
use crate::task::derived::after;
use crate::task::{Made, Run, Taken, Task};

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
            expires_at: given.ttl_ms(self.cx.limits).map(|ms| after(self.now(), ms)),
        };
        self.emit(self.caller(), Body::RunDispatched(Box::new(event)))?;
        let run = crate::table::next_pos(self.task.runs.len() - 1);
        let did = Did { made: Made::Run(run), waits: given.waits(run) };
        match &given.on_behalf {
            None => Ok(did),
            Some(it) => self.use_at_once(given, it).map(|()| did),
        }
    }

    /// CLAIM-16: the new Run claims its Step, or is declined, in the commit that made it.
    fn use_at_once(&mut self, given: &Dispatch, by: &OnBehalf) -> Result<(), Rejection> {
        let run_id = self.cx.stamp.run_id;
        if by.declined.is_none() {
            let only = given.allowed_step_ids.iter().flatten().next();
            let step_id = only.ok_or_else(one_step)?;
            return self.claim_as(run_id, step_id, Some(by.clone())).map(drop);
        }
        let event = RunEnded {
            run_id,
            end_reason: EndReason::Declined,
            reason: by.declined.as_ref().map(|why| reason_or(Some(why), "declined")),
            worker_id: Some(by.worker_id.clone()),
        };
        self.emit(self.caller(), Body::RunEnded(event))
    }
}

/// The refusal of a dispatch on behalf of a worker that does not name its Step.
pub(super) fn one_step() -> Rejection {
    let message = "on_behalf claims one step: name it, alone, in allowed_step_ids";
    Rejection::invalid("allowed_step_ids", message)
}

impl Task {
    /// Runs of a pool that a worker may take at this moment of the steady line, oldest first:
    /// unused, and not taken by any worker. None while no Step of this Task can be claimed.
    pub fn runs_to_take(&self, pool: &PoolId, steady: Millis) -> impl Iterator<Item = &Run> {
        let open = self.volatile.to_take.get(pool).filter(|_| self.gives_out());
        let runs = open.into_iter().flatten().map(|&pos| &self.runs[pos]);
        runs.filter(move |run| self.head.run_expiry(run).is_none_or(|at| at > steady))
    }

    /// The oldest Run that suits a worker. A Run does not suit it if all ready Steps of the Run are for
    /// others, by assignee (CLAIM-13) or handler. A Run without ready Steps suits any worker (DISP-12).
    pub fn run_for(
        &self,
        (worker, pool): (&AgentId, &PoolId),
        handlers: Option<&[HandlerName]>,
        steady: Millis,
    ) -> Option<&Run> {
        let fits = |spec: &StepSpec| {
            !is_assigned_elsewhere(&self.head, spec, worker) && has_handler(handlers, &spec.handler)
        };
        self.runs_to_take(pool, steady).find(|run| {
            let (mut ready, mut for_others) = (self.ready_in_scope(run), false);
            ready.any(|spec| {
                for_others |= !fits(spec);
                fits(spec)
            }) || !for_others
        })
    }

    fn ready_in_scope<'a>(&'a self, run: &'a Run) -> impl Iterator<Item = &'a Arc<StepSpec>> {
        let is_ready = |pos: Pos| self.steps[pos].state.status == StepStatus::Ready;
        let scoped = run.allowed_step_ids.iter().flat_map(|ids| ids.iter());
        let scoped = scoped.filter_map(|id| self.find_step(id)).filter(move |&pos| is_ready(pos));
        let all =
            self.derived.ready.get(&run.worker_pool_id).filter(|_| run.allowed_step_ids.is_none());
        let all = all.into_iter().flat_map(BTreeMap::values).flatten().copied();
        scoped.chain(all).map(|pos| &self.steps[pos].spec).filter(|spec| is_in_scope(run, spec))
    }

    /// Records who took an unclaimed Run (DISP-16), until `until`. Only the owner's memory knows
    /// it, and a new owner does not. A worker that asks again under its Run takes it again. Returns
    /// whether the Run is this worker's.
    pub fn take_run(
        &mut self,
        id: RunId,
        (worker, pool): (&AgentId, &PoolId),
        until: Millis,
    ) -> bool {
        let Some(pos) = self.runs.find(&id) else { return false };
        let others = self.volatile.taken.get(&pos).is_some_and(|taken| taken.by != *worker);
        let run = &self.runs[pos];
        let may = run.is_unused() && run.worker_pool_id == *pool;
        if others || !may {
            return false;
        }
        let taken = Taken { by: worker.clone(), until };
        self.change_memory(pos, |memory| memory.taken.insert(pos, taken));
        true
    }

    /// Forgets the workers that took Runs and have said nothing since, so that the Runs can be
    /// offered again. Returns when to call this again.
    pub fn give_runs_back(&mut self, now: Millis) -> Option<Millis> {
        let runs = &self.runs;
        self.volatile.taken.retain(|&pos, _| runs[pos].is_unused());
        let late = |(&pos, taken): (&Pos, &Taken)| (taken.until <= now).then_some(pos);
        let late: Vec<Pos> = self.volatile.taken.iter().filter_map(late).collect();
        for pos in late {
            self.change_memory(pos, |memory| memory.taken.remove(&pos));
        }
        self.volatile.taken.values().map(|taken| taken.until).min()
    }

    /// Whether the Task gives out Steps at present.
    pub(super) fn gives_out(&self) -> bool {
        self.live().gives_out()
    }

    /// DISP-04, TASK-12: a Task gives out Steps only while it is pending or running, and not while it
    /// drains (POL-05).
    pub(crate) fn check_dispatchable(&self) -> Result<(), Rejection> {
        let status = self.head.status;
        let no = |message: &str| {
            Rejection::new(Code::TaskNotDispatchable, message).with("status", status.as_str())
        };
        if !status.is_dispatchable() {
            return Err(no(&format!("the task is {status}; reopen, resume or submit it first")));
        }
        match self.standing_failure().filter(|_| self.is_draining()) {
            Some(reason) => {
                let message =
                    format!("the task is failing ({}); reopen what failed first", reason.message);
                Err(no(&message).with("reason", "task_failing"))
            }
            None => Ok(()),
        }
    }
}
