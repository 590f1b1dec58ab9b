//! Runs and Attempts as readers get them (2.3, 2.4), and the offers of Runs to workers (5.4).

use alloc::sync::Arc;
use alloc::vec::Vec;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::Known;
use super::normal::{self, Normal};
use super::step::LeaseState;
use crate::event::{Bindings, StepSnapshot};
use crate::id::{AgentId, AttemptId, Millis, PoolId, Ref, RunId, SessionId, StepId, TaskId};
use crate::read::{StepRef, View};
use crate::record::{Reason, RemoteRef, RetryPolicy};
use crate::status::{AttemptStatus, EndReason, Outcome, RunState};
use crate::table::Pos;
use crate::task::{Attempt, Run};

/// One claim of one Step by one Run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AttemptView {
    /// Unique id.
    pub attempt_id: AttemptId,
    /// The Task.
    pub task_id: TaskId,
    /// The Step.
    pub step_id: StepId,
    /// The Run.
    pub run_id: RunId,
    /// The worker.
    pub worker_id: AgentId,
    /// The worker's machine, if it named it (ATT-12).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_host: Option<SmolStr>,
    /// The build of the worker's program, if it named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_build: Option<SmolStr>,
    /// Its number among the Attempts of the Step, from 1.
    pub ordinal: u32,
    /// `wal_seq` of the claim.
    pub fencing_token: u64,
    /// Claimed, running or ended.
    pub status: AttemptStatus,
    /// The same as a portable status.
    pub normalized_status: Normal,
    /// Exactly when ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// Why it ended badly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Arc<Reason>>,
    /// Its input.
    pub input_refs: Arc<[Ref]>,
    /// Its outputs.
    pub output_refs: Arc<Vec<Ref>>,
    /// Its checkpoints, from which a later Attempt may continue.
    pub checkpoint_refs: Arc<Vec<Ref>>,
    /// The summary in its last report; not authoritative (ATT-08).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_summary: Option<Arc<str>>,
    /// The policy in force at the claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_policy: Option<Arc<RetryPolicy>>,
    /// The Step at the claim (STEP-28).
    pub step_snapshot: Arc<StepSnapshot>,
    /// Whether the Step was edited after the claim (STEP-27).
    pub updated_after_dispatch: bool,
    /// The peer that does the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<Arc<RemoteRef>>,
    /// When it was claimed.
    pub started_at: Millis,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Millis>,
    /// When its Step took over its result, though it was lost (REPORT-14).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopted_at: Option<Millis>,
    /// Signs of life, while it is open.
    #[serde(flatten)]
    pub life: Option<AttemptLife>,
}

/// Signs of life of an open Attempt (PROG-08).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AttemptLife {
    /// Time of the last report that the log has, or of the claim.
    pub last_progress_at: Millis,
    /// End of the lease, by the lease store if it answers, else by the log.
    pub lease_expires_at: Millis,
    /// Whether the lease is shown to be in force.
    pub lease_state: LeaseState,
}

impl AttemptLife {
    fn of(attempt: &Attempt, known: &Known<'_>) -> Option<Self> {
        if attempt.outcome.is_some() {
            return None;
        }
        let lease = known.lease(attempt);
        Some(Self {
            last_progress_at: attempt.progress_at.unwrap_or(attempt.started_at),
            lease_expires_at: lease.map_or(attempt.lease_expires_at, |l| l.expires_at),
            lease_state: LeaseState::of(lease),
        })
    }
}

impl<'a> View<'a> {
    /// The Attempts of a Step that were not given back (LEASE-18), newest first.
    pub fn tries_of(&self, step: StepRef<'a>) -> impl Iterator<Item = &'a Attempt> + '_ {
        self.attempts_of(step).filter(|attempt| !attempt.was_released())
    }
}

impl AttemptView {
    /// An Attempt of a view.
    pub fn of(view: &View<'_>, attempt: &Attempt, known: &Known<'_>) -> Self {
        Self {
            attempt_id: attempt.attempt_id,
            task_id: view.task_id().clone(),
            step_id: attempt.step_id.clone(),
            run_id: attempt.run_id,
            worker_id: attempt.worker_id.clone(),
            worker_host: attempt.origin.as_ref().and_then(|origin| origin.worker_host.clone()),
            worker_build: attempt.origin.as_ref().and_then(|origin| origin.worker_build.clone()),
            ordinal: attempt.ordinal,
            fencing_token: attempt.fencing_token,
            status: attempt.status,
            normalized_status: normal::of_attempt(attempt),
            outcome: attempt.outcome,
            error: attempt.error.clone(),
            input_refs: Arc::clone(&attempt.input_refs),
            output_refs: Arc::clone(&attempt.output_refs),
            checkpoint_refs: Arc::clone(&attempt.checkpoint_refs),
            completion_summary: attempt.completion_summary.clone(),
            retry_policy: attempt.retry_policy.clone(),
            step_snapshot: Arc::clone(&attempt.step_snapshot),
            updated_after_dispatch: attempt.updated_after_dispatch,
            remote: attempt.remote.clone(),
            started_at: attempt.started_at,
            ended_at: attempt.ended_at,
            adopted_at: attempt.adopted.as_ref().map(|adopted| adopted.at),
            life: AttemptLife::of(attempt, known),
        }
    }
}

/// A worker's licence to act in one Task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunView {
    /// Unique id.
    pub run_id: RunId,
    /// The session.
    pub session_id: SessionId,
    /// The Task.
    pub task_id: TaskId,
    /// Its pool.
    pub worker_pool_id: PoolId,
    /// Its hard scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_step_ids: Option<Arc<[StepId]>>,
    /// Who dispatched it.
    pub dispatched_by: AgentId,
    /// The worker that claimed under it, else the one that took it, as far as the owner's memory knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<AgentId>,
    /// Dispatched, active or ended.
    pub state: RunState,
    /// The Step it claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed_step_id: Option<StepId>,
    /// The Attempt it made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt_id: Option<AttemptId>,
    /// Exactly when ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_reason: Option<EndReason>,
    /// Why it ended, in the words of who ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Arc<Reason>>,
    /// When it was asked to stop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel_requested_at: Option<Millis>,
    /// `wal_seq` of its first event.
    pub dispatch_version: u64,
    /// Instructions for the worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<Arc<str>>,
    /// When it ends if nobody uses it, as things stand; absent: never (DISP-02).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Millis>,
    /// The conversation thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<SmolStr>,
    /// The environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment_ref: Option<SmolStr>,
    /// When it was made.
    pub created_at: Millis,
    /// When it claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Millis>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Millis>,
}

impl RunView {
    /// A Run of a view, with what the owner's memory adds.
    pub fn of(view: &View<'_>, pos: Pos) -> Self {
        let run = view.run_at(pos);
        let memory = view.memory_of(pos);
        let attempt = run.attempt.map(|at| view.attempt_at(at));
        let spec = &view.head().spec;
        Self {
            run_id: run.run_id,
            session_id: spec.session_id.clone(),
            task_id: spec.task_id.clone(),
            worker_pool_id: run.worker_pool_id.clone(),
            allowed_step_ids: run.allowed_step_ids.clone(),
            dispatched_by: run.dispatched_by.clone(),
            worker_id: run.worker_id.as_ref().or(memory.taken_by).cloned(),
            state: run.state,
            claimed_step_id: attempt.map(|a| a.step_id.clone()),
            attempt_id: attempt.map(|a| a.attempt_id),
            end_reason: run.end_reason,
            reason: run.ended_because.clone(),
            cancel_requested_at: memory.stopping.map(|s| s.requested_at),
            dispatch_version: run.dispatch_version,
            instructions: run.instructions.clone(),
            expires_at: view.head().expires_at(run),
            thread_id: run.bindings.as_ref().and_then(|b| b.thread_id.clone()),
            environment_ref: run.bindings.as_ref().and_then(|b| b.environment_ref.clone()),
            created_at: run.created_at,
            started_at: attempt.map(|a| a.started_at),
            ended_at: run.ended_at,
        }
    }
}

/// How a Run ended, for the caller that dispatched it and waits (5.2 `dispatch_worker`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunEnd {
    /// Why it ended.
    pub end_reason: EndReason,
    /// Whether it found nothing to claim, which is a success (DISP-12).
    pub no_step_claimed: bool,
    /// The Run's own final output, which is not that of a Step. Only the owner's memory holds it (DISP-13).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Arc<str>>,
}

impl RunEnd {
    /// The end of a Run; `None` while it goes on.
    pub fn of(view: &View<'_>, pos: Pos) -> Option<Self> {
        let (run, memory) = (view.run_at(pos), view.memory_of(pos));
        let end_reason = match run.end_reason {
            Some(end_reason) => end_reason,
            None if memory.gone => EndReason::TaskTerminal,
            None => return None,
        };
        Some(Self {
            end_reason,
            no_step_claimed: end_reason == EndReason::NoStepClaimed,
            result: memory.result.cloned(),
        })
    }
}

/// A dispatched Run, as the scheduler offers it to a worker (5.4 `take_run`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunOffer {
    /// The session.
    pub session_id: SessionId,
    /// The Task.
    pub task_id: TaskId,
    /// The Run.
    pub run_id: RunId,
    /// The pool it is for.
    pub worker_pool_id: PoolId,
    /// The hard scope; absent: every Step of the pool (DISP-10).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_step_ids: Option<Arc<[StepId]>>,
    /// Instructions, in the dispatcher's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<Arc<str>>,
    /// Thread and environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bindings: Option<Arc<Bindings>>,
    /// When it ends if nobody uses it, as things stand; absent: never (DISP-02).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Millis>,
}

impl RunOffer {
    /// The offer of a Run.
    pub fn of(view: &View<'_>, run: &Run) -> Self {
        let spec = &view.head().spec;
        Self {
            session_id: spec.session_id.clone(),
            task_id: spec.task_id.clone(),
            run_id: run.run_id,
            worker_pool_id: run.worker_pool_id.clone(),
            allowed_step_ids: run.allowed_step_ids.clone(),
            instructions: run.instructions.clone(),
            bindings: run.bindings.clone(),
            expires_at: view.head().expires_at(run),
        }
    }
}
