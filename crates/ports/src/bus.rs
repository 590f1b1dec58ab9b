//! The bus between scheduler and workers: the messages that cross it, and [`WorkerPort`], the
//! worker's end of it.
//!
//! A message may be lost, doubled, late or out of order (law 6). That does no harm: credits are
//! absolute, a report is idempotent by its Attempt, a worker repeats it until it is recorded, and a
//! grant carries everything that a worker needs.

mod carried;

use std::future::{Future, pending, ready};
use std::sync::Arc;

use tenure_core::Rejection;
use tenure_core::command::{GiveBack, RunOutcome, StepReport};
use tenure_core::id::{AgentId, AttemptId, CommandId, RunId, StepId};
use tenure_core::patch::ReasonInput;
use tenure_core::view::{ClaimResult, Look, Looked, RunOffer, StepPage};
use tenure_wire::bus::blob::{BlobGet, BlobPart, BlobPut, BlobTaken};
use tenure_wire::bus::output::{OutputAnswer, OutputRequest};
use tenure_wire::bus::worker::LateInput;

use crate::erased::ErasedWorker;
use crate::journal::TaskKey;

/// A message from a scheduler to a worker.
#[derive(Debug)]
pub enum Delivery {
    /// A Step to run, with everything needed for it (CLAIM-14).
    Grant(Box<ClaimResult>),
    /// A Step to give back at once: it was lost before, and came together with another such Step
    /// (LEASE-19). Only a worker makes this, for itself: nodes send grants.
    Crossed(Box<ClaimResult>),
    /// A Run: the worker may claim a Step of its scope under it (5.4 `take_run`). An offer uses a
    /// credit, as a grant does. If the worker asks nothing under the Run within a lease, another
    /// worker is offered it.
    Run(Box<RunOffer>),
    /// The Task or the Run is being stopped: the handler should end soon (CANCEL-07), in so many
    /// milliseconds if that is known (POL-12).
    CancelRequested(AttemptId, Option<u64>),
    /// The Attempt is over: whatever the handler still does counts for nothing.
    Lost(AttemptId),
    /// Input for the Attempt that came to its Task after the claim (CTRL-12).
    Input(Box<LateInput>),
    /// An operator asks the worker to take no more Steps, to finish those that it has, and to leave;
    /// what still runs after so many milliseconds, if that is said, stops and goes back (LEASE-18).
    Drain(Option<u64>),
    /// Somebody wants to see what the command of an Attempt wrote (ART-09). Only nodes ask this.
    ReadOutput(Box<OutputRequest>),
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
    /// How many entries of the Task's `input_refs` it has seen, if more than it had in its claim (CTRL-12).
    pub input_seen: Option<u64>,
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
            input_seen: None,
        }
    }
}

/// A worker's statement of its capacity: `credit = free + seen - sent`, as a flow-control window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Credit {
    /// Grants it would take now.
    pub free: u64,
    /// Grants it has seen from this node since it joined.
    pub seen: u64,
    /// Attempts that it has in hand, of any node, on Steps that were lost before (LEASE-19).
    pub lost: u64,
    /// Rises with every statement, so that a node ignores an older one that comes later.
    pub number: u64,
}

/// A report that is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recorded {
    /// Version of the Task after it.
    pub version: u64,
    /// Whether the Task is being closed.
    pub cancel_requested: bool,
    /// How long the holder then has left to stop, in milliseconds (POL-12).
    pub time_left_ms: Option<u64>,
}

/// What a heartbeat says of one Attempt in its answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Pulse {
    /// Renewed.
    Renewed {
        /// Whether the holder was asked to stop.
        cancel_requested: bool,
        /// How long it then has left, in milliseconds (POL-12).
        time_left_ms: Option<u64>,
    },
    /// The Attempt is over (`stale_attempt` or `task_terminal`).
    Lost(Rejection),
    /// Nothing is known now: the lease is neither renewed nor lost.
    Unknown,
}

/// A worker's end of the bus.
///
/// `report`, `end_run`, `release`, `leave` and `credit` send their message when they are called; a
/// returned future only waits for the answer. A report that refers to artifacts of other Tasks may
/// be overtaken by a later one. `Err` with a retryable code (`unavailable`, `storage_error`) says
/// nothing about what happened: the caller repeats the call.
pub trait WorkerPort: Send + Sync + 'static {
    /// Waits for the answer to a call.
    type Answer: Future<Output = Result<Recorded, Rejection>> + Send + 'static;

    /// Whether the scheduler is reached over a network, which may fail, and has other workers. If
    /// so, a worker renews a new Attempt early, counts its lease as one heartbeat interval until
    /// the first answer, and stops by itself in time (mechanisms 7); it gives back Steps that would
    /// wait long in its hands (mechanisms 8).
    fn is_remote(&self) -> bool {
        false
    }

    /// The same end behind a pointer. An adapter that is no generic type overrides this with the same body, so that
    /// its own crate contains the code, and not each crate that calls this.
    #[must_use]
    fn erased(self: Arc<Self>) -> ErasedWorker
    where
        Self: Sized,
    {
        ErasedWorker::of(self)
    }

    /// The worker's principal, unique to this boot of it.
    fn id(&self) -> &AgentId;

    /// States how much capacity the worker has.
    fn credit(&self, credit: Credit);

    /// A page of the ready Steps that can be claimed under a Run, oldest first (QUERY-12).
    fn query(
        &self,
        run: &RunOffer,
        offset: usize,
    ) -> impl Future<Output = Result<StepPage, Rejection>> + Send + 'static;

    /// Reads the Task of a Run, as far as the Run may see it.
    fn look(
        &self,
        task: &TaskKey,
        run_id: RunId,
        look: Look,
    ) -> impl Future<Output = Result<Looked, Rejection>> + Send + 'static;

    /// Reads a part of a blob that the claim of the Attempt carries (VALUE-01).
    fn blob_get(
        &self,
        held: &Holding,
        asked: BlobGet,
    ) -> impl Future<Output = Result<BlobPart, Rejection>> + Send + 'static;

    /// Brings a part of a blob for the Attempt (VALUE-01).
    fn blob_put(
        &self,
        held: &Holding,
        part: BlobPut,
    ) -> impl Future<Output = Result<BlobTaken, Rejection>> + Send + 'static;

    /// Claims a Step under a Run. The same `command_id` again gives the same claim (CLAIM-15).
    fn claim(
        &self,
        run: &RunOffer,
        step_id: &StepId,
        command_id: &CommandId,
    ) -> impl Future<Output = Result<ClaimResult, Rejection>> + Send + 'static;

    /// Ends a Run that has claimed nothing: the worker declines it for a reason (RUN-12), or found
    /// nothing to claim, which is a success (DISP-12).
    fn leave(
        &self,
        run: &RunOffer,
        declined: Option<ReasonInput>,
        room: Option<Credit>,
    ) -> Self::Answer;

    /// Reports on a held Step, together with the worker's capacity now.
    fn report(&self, held: &Holding, report: StepReport, room: Option<Credit>) -> Self::Answer;

    /// Ends a Run whose Step has no final report (RUN-03), or has one; with the Run's own final
    /// output, if it has any (DISP-13).
    fn end_run(
        &self,
        held: &Holding,
        outcome: RunOutcome,
        result: Option<String>,
        room: Option<Credit>,
    ) -> Self::Answer;

    /// Gives a Step back (S26).
    fn release(&self, held: &Holding, how: GiveBack, room: Option<Credit>) -> Self::Answer;

    /// Renews the leases of all these Attempts with one message. The answers come in the same order.
    fn heartbeat(&self, holdings: &[Holding]) -> impl Future<Output = Vec<Pulse>> + Send;

    /// Sends a node the page of an output that it has asked for. It may get lost. A scheduler in this process
    /// asks for none.
    fn show_output(&self, node: &str, answer: OutputAnswer) -> impl Future<Output = ()> + Send {
        let _ = (node, answer);
        ready(())
    }

    /// Waits until another process works under this worker's name, so that nothing comes here any more. Only a
    /// worker that shares its name with others hears of that, as behind gateways; all others wait for ever.
    fn superseded(&self) -> impl Future<Output = ()> + Send {
        pending()
    }
}
