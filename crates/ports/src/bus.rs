//! The bus between scheduler and workers: what crosses it, and the worker's end of it.
//!
//! A message may be lost, doubled, late or out of order (law 6). Credits are absolute, reports
//! are idempotent by Attempt and repeated until recorded, and a grant carries everything a worker
//! needs, so none of that does harm.

mod carried;

use std::future::Future;

use tenure_core::Rejection;
use tenure_core::command::{GiveBack, RunOutcome, StepReport};
use tenure_core::id::{AgentId, AttemptId, CommandId, RunId, StepId};
use tenure_core::patch::ReasonInput;
use tenure_core::view::{ClaimResult, Look, Looked, RunOffer, StepPage};

use crate::journal::TaskKey;

/// A message to a worker.
#[derive(Debug)]
pub enum Delivery {
    /// A Step to run, with everything needed for it (CLAIM-14).
    Grant(Box<ClaimResult>),
    /// A Step to give back at once: it was lost before, and crossed another such Step (LEASE-19). Only a worker
    /// says this, to itself: nodes send grants.
    Crossed(Box<ClaimResult>),
    /// A Run to claim a Step under, out of its scope (5.4 `take_run`). It uses a credit as a grant
    /// does, and is offered to another worker if this one does not ask under it within a lease.
    Run(Box<RunOffer>),
    /// The Task or the Run is being stopped: the handler should end soon (CANCEL-07).
    CancelRequested(AttemptId),
    /// The Attempt is over: whatever the handler still does counts for nothing.
    Lost(AttemptId),
    /// An operator wants the worker to take no more, to finish what it has, and to leave.
    Drain,
}

/// An open Attempt as its holder names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holding {
    /// Its Task.
    pub task: TaskKey,
    /// Its Run.
    pub run_id: RunId,
    /// The Attempt.
    pub attempt_id: AttemptId,
    /// Its token.
    pub fencing_token: u64,
    /// Duration of its lease, in milliseconds.
    pub lease_ms: u64,
}

impl Holding {
    /// The Attempt of a claim.
    pub fn of(claim: &ClaimResult) -> Self {
        let (session_id, task_id) = (claim.session_id.clone(), claim.task_id.clone());
        Self {
            task: TaskKey { session_id, task_id },
            run_id: claim.run_id,
            attempt_id: claim.attempt_id,
            fencing_token: claim.fencing_token,
            lease_ms: claim.lease_ms,
        }
    }
}

/// What a worker says of its capacity: `credit = free + seen - sent`, as a flow-control window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Credit {
    /// Grants it would take now.
    pub free: u64,
    /// Grants it has seen from this node since it joined.
    pub seen: u64,
    /// Attempts that it has in hand, of any node, on Steps that were lost before (LEASE-19).
    pub lost: u64,
    /// Rises with every statement: an older one that comes later says nothing.
    pub number: u64,
}

/// A report that is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recorded {
    /// Version of the Task after it.
    pub version: u64,
    /// Whether the Task is being closed.
    pub cancel_requested: bool,
}

/// What a heartbeat is answered with, per Attempt.
#[derive(Debug, Clone, PartialEq)]
pub enum Pulse {
    /// Renewed.
    Renewed {
        /// Whether the holder was asked to stop.
        cancel_requested: bool,
    },
    /// The Attempt is over (`stale_attempt` or `task_terminal`).
    Lost(Rejection),
    /// Nothing is known now: the lease was not renewed, and not lost either.
    Unknown,
}

/// A worker's end of the bus.
///
/// What tells (`credit`, `report`, `end_run`, `release`, `leave`) is sent when it is called; the
/// returned future only waits for the answer. A report that refers to artifacts of other Tasks may
/// be overtaken by a later one. `Err` with a retryable code (`unavailable`, `storage_error`) says nothing about
/// what happened: repeat the call.
pub trait WorkerPort: Send + Sync + 'static {
    /// Waits for the answer to a call.
    type Answer: Future<Output = Result<Recorded, Rejection>> + Send + 'static;

    /// Whether the scheduler is elsewhere, beyond what may break, and has other workers. Then a new
    /// Attempt is renewed early, its lease counts as one heartbeat interval until that is answered,
    /// and a worker stops by itself in time (mechanisms 7); what would wait for long in its hands it
    /// gives back (mechanisms 8).
    const IS_REMOTE: bool = false;

    /// The worker's principal, unique to this boot of it.
    fn id(&self) -> &AgentId;

    /// States how much capacity there is.
    fn credit(&self, credit: Credit);

    /// A page of the ready Steps that can be claimed under a Run, oldest first (QUERY-12).
    fn query(
        &self,
        run: &RunOffer,
        offset: usize,
    ) -> impl Future<Output = Result<StepPage, Rejection>> + Send + 'static;

    /// Looks at the Task of a Run, as far as that shows it.
    fn look(
        &self,
        task: &TaskKey,
        run_id: RunId,
        look: Look,
    ) -> impl Future<Output = Result<Looked, Rejection>> + Send + 'static;

    /// Claims a Step under a Run. The same `command_id` again gives the same claim (CLAIM-15).
    fn claim(
        &self,
        run: &RunOffer,
        step_id: &StepId,
        command_id: &CommandId,
    ) -> impl Future<Output = Result<ClaimResult, Rejection>> + Send + 'static;

    /// Ends a Run that has claimed nothing: declined for a reason (RUN-12), or with nothing to
    /// claim, which is a success (DISP-12).
    fn leave(
        &self,
        run: &RunOffer,
        declined: Option<ReasonInput>,
        room: Option<Credit>,
    ) -> Self::Answer;

    /// Reports on a held Step, with the capacity there is now.
    fn report(&self, held: &Holding, report: StepReport, room: Option<Credit>) -> Self::Answer;

    /// Ends a Run without a final word on its Step (RUN-03), or after one; with its own final output,
    /// if it has any (DISP-13).
    fn end_run(
        &self,
        held: &Holding,
        outcome: RunOutcome,
        result: Option<String>,
        room: Option<Credit>,
    ) -> Self::Answer;

    /// Gives a Step back (S26).
    fn release(&self, held: &Holding, how: GiveBack, room: Option<Credit>) -> Self::Answer;

    /// Renews leases, all Attempts in one message. Answers come in the same order.
    fn heartbeat(&self, holdings: &[Holding]) -> impl Future<Output = Vec<Pulse>> + Send;
}
