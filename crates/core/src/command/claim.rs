//! `agent.task_claim_step`, and the grant of a ready Step to a worker that asked for work (CLAIM,
//! DISP-14).
//!
//! Step 5 of the walk in docs/architecture.md.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::tx::{By, Did};
use super::{Caller, Command, Cx, Grant, NextStepNeeds, OnBehalf, Tx};
use crate::eligibility::{
    Asker, Obstacle, Obstacles, has_handler, is_in_scope, named_claimer, obstacles,
};
use crate::event::{Body, StepClaimed, StepSnapshot};
use crate::id::{
    AgentId, ArtifactId, HandlerName, Millis, PoolId, Ref, RunId, StepId, system_agent,
};
use crate::read::handed_on;
use crate::record::{Value, WorkerOrigin, add_once};
use crate::reject::{Code, Rejection};
use crate::rules::Rules;
use crate::runtime::{RuntimeEvent, RuntimeName};
use crate::status::{Outcome, Policy, RunState};
use crate::table::{Pos, next_pos};
use crate::task::derived::after;
use crate::task::{Made, Step, Task};

/// How many Attempts back the search goes for losses of a Step.
const LOOKED_AT: usize = 64;

/// How many Attempts that ended badly in a row count, at most: their workers should not try the
/// Step again while others have capacity.
const TRIED_MAX: usize = 8;

/// The Run under which a Step is claimed.
struct Under {
    run_id: RunId,
    worker_pool_id: PoolId,
    allowed_step_ids: Option<Vec<StepId>>,
    dispatched_by: AgentId,
    worker_id: AgentId,
    origin: Option<Arc<WorkerOrigin>>,
    /// What the caller says that claims for the worker (CLAIM-16).
    on_behalf: Option<OnBehalf>,
}

impl Tx<'_, '_> {
    pub(super) fn claim(&mut self, run_id: RunId, step_id: &StepId) -> Result<Did, Rejection> {
        self.claim_as(run_id, step_id, None)
    }

    /// The same for the caller, or for the worker that an orchestrator names (CLAIM-16).
    pub(super) fn claim_as(
        &mut self,
        run_id: RunId,
        step_id: &StepId,
        on_behalf: Option<OnBehalf>,
    ) -> Result<Did, Rejection> {
        let run_pos = self.task.run_or_reject(run_id)?;
        self.check_run(run_pos)?;
        self.task.check_dispatchable()?;
        let run = &self.task.runs[run_pos];
        let pos =
            self.task.find_step(step_id).filter(|&p| is_in_scope(run, &self.task.steps[p].spec));
        let pos = pos.ok_or_else(|| {
            Rejection::new(
                Code::StepOutOfScope,
                format!("step {step_id} is not in the scope of your run"),
            )
            .with("step_id", step_id.as_str())
        })?;
        let step = &self.task.steps[pos];
        let worker = on_behalf.as_ref().map_or(&self.cx.caller.agent, |it| &it.worker_id);
        let asker = Asker { run: Some(run), worker: Some(worker) };
        let task = (&self.task.head, self.task.tally());
        refuse(obstacles(task, &step.spec, &step.state, asker), step)?;
        let under = Under {
            run_id,
            worker_pool_id: run.worker_pool_id.clone(),
            allowed_step_ids: run.allowed_step_ids.as_deref().map(<[_]>::to_vec),
            dispatched_by: run.dispatched_by.clone(),
            worker_id: worker.clone(),
            origin: self.cx.caller.origin.clone(),
            on_behalf,
        };
        self.open(pos, under)
    }

    /// CLAIM-01, CLAIM-03: the Run has not claimed yet, and no other worker has taken it.
    fn check_run(&self, pos: Pos) -> Result<(), Rejection> {
        let (run, caller) = (&self.task.runs[pos], self.cx.caller);
        if run.attempt.is_some() {
            let message = "the run has made its one claim";
            return Err(Rejection::new(Code::StepAlreadyClaimedByRun, message));
        }
        let taken = self.task.volatile.taken.get(&pos);
        if taken.is_some_and(|taken| taken.by != caller.agent) {
            return Err(Rejection::new(
                Code::PermissionDenied,
                "the run was taken by another worker",
            ));
        }
        let end = self.task.head.run_expiry(run).filter(|_| self.task.head.counts_run_time());
        if run.state == RunState::Ended || end.is_some_and(|at| at <= self.steady()) {
            return Err(Rejection::new(Code::RunEnded, "the run has ended"));
        }
        Ok(())
    }

    /// DISP-14: claims the oldest ready Step of the pool that fits the worker; without one it
    /// changes nothing.
    pub(super) fn grant(&mut self, grant: &Grant) -> Result<Did, Rejection> {
        let Grant { worker_id, worker_pool_id, handlers, may_be_suspect, .. } = grant;
        let next =
            self.task.next_for(worker_id, worker_pool_id, handlers.as_deref(), *may_be_suspect);
        let Some(pos) = next else { return Ok(Did::DONE) };
        let under = Under {
            run_id: self.cx.stamp.run_id,
            worker_pool_id: grant.worker_pool_id.clone(),
            allowed_step_ids: Some(alloc::vec![self.task.steps[pos].spec.step_id.clone()]),
            dispatched_by: system_agent(),
            worker_id: grant.worker_id.clone(),
            origin: grant.origin.clone(),
            on_behalf: None,
        };
        self.open(pos, under)
    }

    fn open(&mut self, pos: Pos, under: Under) -> Result<Did, Rejection> {
        let step = &self.task.steps[pos];
        let policy = self.task.policy_of(&step.spec);
        let asked_for = under.on_behalf.as_ref().and_then(|it| it.lease_ms);
        let lease_ms = asked_for.map_or_else(
            || self.cx.limits.lease_ms_under(policy.as_deref()),
            |ms| ms.max(self.cx.limits.lease_ms_min),
        );
        let origin = under.origin.filter(|_| self.task.head.rules >= Rules::Second);
        let WorkerOrigin { worker_host, worker_build } =
            origin.as_deref().cloned().unwrap_or_default();
        let event = StepClaimed {
            attempt_id: self.cx.stamp.attempt_id,
            ordinal: step.state.ordinal + 1,
            run_id: under.run_id,
            worker_id: under.worker_id.clone(),
            worker_pool_id: under.worker_pool_id,
            allowed_step_ids: under.allowed_step_ids,
            dispatched_by: under.dispatched_by,
            fencing_token: self.next_seq(),
            lease_expires_at: after(self.now(), lease_ms),
            input_refs: self.task.input_refs_of(pos),
            step_snapshot: StepSnapshot::of(&step.spec, self.task.mark.version),
            retry_policy: policy,
            worker_host,
            worker_build,
            on_behalf: under.on_behalf.is_some(),
        };
        let agent = match &under.on_behalf {
            Some(_) => self.cx.caller.agent.clone(),
            None => under.worker_id,
        };
        let by = By { agent, run: Some(under.run_id) };
        self.emit_on(by, pos, Body::StepClaimed(Box::new(event)))?;
        let attempt = next_pos(self.task.attempts.len() - 1);
        Ok(Did { made: Made::Attempt(attempt), waits: None })
    }
}

/// PERM-02: the Run is the one in the envelope.
pub(super) fn check_envelope(caller: &Caller, run_id: RunId) -> Result<(), Rejection> {
    if caller.run_id.is_some_and(|own| own != run_id) {
        return Err(Rejection::new(Code::PermissionDenied, "you act under another run"));
    }
    Ok(())
}

/// Turns the obstacles of a claim into a refusal, in the order of 5.2.
fn refuse(found: Obstacles, step: &Step) -> Result<(), Rejection> {
    if found.is_empty() {
        return Ok(());
    }
    let id = &step.spec.step_id;
    let (code, message) = if found.has(Obstacle::AssignedElsewhere) {
        (Code::PermissionDenied, format!("only others may claim step {id}"))
    } else if found.has(Obstacle::Held) {
        (Code::StepAlreadyClaimed, format!("step {id} is claimed; query again and try another"))
    } else {
        (Code::StepNotReady, format!("step {id} is {}", step.state.status))
    };
    Err(Rejection::new(code, message)
        .with("step_id", id.as_str())
        .with("reason", found.headline().as_str()))
}

impl Task {
    /// K4 with state: the Run is known, it is the one in the envelope, and the caller is a member
    /// of its pool (PERM-02).
    pub(super) fn check_claimer(&self, caller: &Caller, run_id: RunId) -> Result<(), Rejection> {
        check_envelope(caller, run_id)?;
        let pos = self.run_or_reject(run_id)?;
        if caller.worker_pool_id.as_ref() != Some(&self.runs[pos].worker_pool_id) {
            return Err(Rejection::new(Code::PermissionDenied, "the run is for another pool"));
        }
        Ok(())
    }

    /// The runtime event of a claim that was refused because another worker was faster (CLAIM-10).
    pub fn lost_claim(
        &self,
        cx: &Cx<'_>,
        command: &Command,
        refused: &Rejection,
    ) -> Option<RuntimeEvent> {
        let Command::TaskClaimStep { run_id, step_id } = command else { return None };
        let run = self.runs.find(run_id).filter(|_| refused.code == Code::StepAlreadyClaimed)?;
        let (step_id, worker_id) = (Some(step_id.clone()), Some(cx.caller.agent.clone()));
        let event = RuntimeEvent::of(&self.live(), RuntimeName::ClaimLost, run, cx.stamp.now);
        Some(RuntimeEvent { step_id, worker_id, ..event })
    }

    /// The oldest ready Step of a pool that a worker may and can run.
    fn next_for(
        &self,
        worker: &AgentId,
        pool: &PoolId,
        handlers: Option<&[HandlerName]>,
        may_be_suspect: bool,
    ) -> Option<Pos> {
        if self.head.spec.dispatch != Policy::Auto || !self.gives_out() {
            return None;
        }
        let asker = Asker { run: None, worker: Some(worker) };
        let may = |pos: Pos| {
            let step = &self.steps[pos];
            (may_be_suspect || !step.state.is_suspect())
                && obstacles((&self.head, self.tally()), &step.spec, &step.state, asker).is_empty()
        };
        let pool = self.derived.ready.get(pool)?;
        let lanes = pool.iter().filter(|(handler, _)| has_handler(handlers, handler));
        lanes.filter_map(|(_, steps)| steps.iter().copied().find(|&pos| may(pos))).min()
    }

    /// What a pool has to consider about the ready Step that a worker would get next; `None`:
    /// nothing, or there is no such Step. If the worker has a lost Step in hand (`has_lost`), any
    /// Step is better elsewhere.
    pub fn next_step_needs(
        &self,
        worker: &AgentId,
        pool: &PoolId,
        handlers: Option<&[HandlerName]>,
        has_lost: bool,
    ) -> Option<NextStepNeeds> {
        let step = &self.steps[self.next_for(worker, pool, handlers, true)?];
        let last = step.state.last_attempt;
        if last.is_none() && !has_lost {
            return None;
        }
        let all = core::iter::successors(last, |&pos| self.attempts[pos].previous);
        let all = all.map(|pos| &self.attempts[pos]).take(TRIED_MAX);
        let bad = all.take_while(|attempt| attempt.ended_badly() || attempt.was_unfit());
        let tried: Vec<_> = bad.map(|attempt| attempt.worker_id.clone()).collect();
        let (was_lost, is_suspect) = (step.state.was_lost(), step.state.is_suspect());
        let handler = step.spec.handler.clone();
        let is_back = tried.contains(worker);
        let is_assigned = named_claimer(&self.head, &step.spec).is_some();
        (was_lost || is_back || has_lost).then_some(NextStepNeeds {
            handler,
            was_lost,
            is_suspect,
            is_assigned,
            tried,
        })
    }

    /// How long, in milliseconds from its claim on, the longest Attempt lasted of those by which
    /// this Attempt's Step was lost. A Step that ends its worker each time has done so by then.
    pub fn was_lost_within(&self, attempt: Pos) -> Option<u64> {
        let all = core::iter::successors(Some(attempt), |&pos| self.attempts[pos].previous);
        let all = all.map(|pos| &self.attempts[pos]).take(LOOKED_AT);
        let lost = all.filter(|attempt| attempt.outcome == Some(Outcome::Lost));
        lost.filter_map(|it| u64::try_from(it.ended_at?.saturating_sub(it.started_at)).ok()).max()
    }

    /// 2.4: refs of `input`, of the outputs and artifacts that other Steps hand on, of Step and Task,
    /// and earlier checkpoints.
    fn input_refs_of(&self, pos: Pos) -> Vec<Ref> {
        let step = &self.steps[pos];
        let mut refs = Vec::new();
        refs.extend(step.spec.input.as_ref().and_then(Value::reference));
        for from in handed_on(&self.live(), step.spec.inputs_chosen(), &mut BTreeSet::new()) {
            let facts = from.facts();
            refs.extend(facts.output.as_ref().and_then(Value::reference));
            refs.extend(facts.artifact_ids.iter().filter_map(artifact_ref));
        }
        refs.extend(step.state.facts().input_refs.iter().cloned());
        refs.extend(self.head.input_refs.iter().cloned());
        let mut earlier = step.state.last_attempt;
        while let Some(attempt) = earlier.map(|at| &self.attempts[at]) {
            add_once(&mut refs, &attempt.checkpoint_refs);
            earlier = attempt.previous;
        }
        refs
    }

    /// Number of ready Steps of a pool, under either dispatch policy.
    pub fn ready_in(&self, pool: &PoolId) -> usize {
        self.derived.ready.get(pool).map_or(0, count)
    }

    /// Pools for which this Task has work, ready Steps under automatic dispatch and Runs to take,
    /// with the number of workers that the work is for.
    pub fn open_pools(&self) -> impl Iterator<Item = (&PoolId, usize)> {
        let gives = self.gives_out();
        let (ready, to_take) = (&self.derived.ready, &self.volatile.to_take);
        let auto = gives && self.head.spec.dispatch == Policy::Auto;
        let steps = ready.iter().filter(move |_| auto).map(move |(pool, lanes)| {
            (pool, count(lanes) + to_take.get(pool).map_or(0, BTreeSet::len))
        });
        let runs =
            to_take.iter().filter(move |(pool, _)| gives && !(auto && ready.contains_key(*pool)));
        steps.chain(runs.map(|(pool, runs)| (pool, runs.len())))
    }

    /// Ready Steps that the scheduler may give to any worker of a pool, counted by the handler that
    /// they need.
    pub fn given_out_in(&self, pool: &PoolId) -> impl Iterator<Item = (&HandlerName, usize)> {
        let gives = self.gives_out() && self.head.spec.dispatch == Policy::Auto;
        let ready = self.derived.ready.get(pool).filter(|_| gives);
        ready.into_iter().flatten().map(|(handler, steps)| (handler, steps.len()))
    }

    /// The Step that has been ready longest among those next in line in a pool, and since when. The
    /// oldest Step of each handler is next in line.
    pub fn next_ready(&self, pool: &PoolId) -> Option<(Millis, &StepId)> {
        let next = self.derived.ready.get(pool)?.values().filter_map(BTreeSet::first);
        let next = next.map(|&pos| &self.steps[pos]);
        let next = next.filter_map(|step| Some((step.state.ready_at?, &step.spec.step_id)));
        next.min_by_key(|(since, _)| *since)
    }
}

fn count(lanes: &BTreeMap<HandlerName, BTreeSet<Pos>>) -> usize {
    lanes.values().map(BTreeSet::len).sum()
}

fn artifact_ref(id: &ArtifactId) -> Option<Ref> {
    Ref::new(id.as_str()).ok()
}
