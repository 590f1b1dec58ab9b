//! A double of the worker port, of which a test says what it answers, and claims for tests.

use std::future::{Future, Pending, Ready, pending, ready};

use futures::future::Either;
use parking_lot::Mutex;
use serde_json::json;
use tenure_core::command::{GiveBack, RunOutcome, StepReport};
use tenure_core::event::ReleaseReason;
use tenure_core::id::{AgentId, AttemptId, CommandId, RunId, StepId};
use tenure_core::patch::ReasonInput;
use tenure_core::view::{ClaimResult, Look, Looked, RunOffer, StepPage};
use tenure_core::{Code, Rejection};
use tenure_ports::bus::{Credit, Holding, Pulse, Recorded, WorkerPort};
use tenure_ports::journal::TaskKey;
use tenure_wire::bus::blob::{BlobGet, BlobPart, BlobPut, BlobTaken};
use tenure_wire::bus::output::OutputAnswer;
use tokio::sync::Notify;
use uuid::Uuid;

/// The answer to a report that is recorded.
pub(super) const RECORDED: Recorded =
    Recorded { version: 7, cancel_requested: false, time_left_ms: None };

/// How long the leases of [`claim`]s last, in milliseconds.
pub(super) const LEASE_MS: u64 = 30_000;

/// The claim of a Step with this id, as a new Attempt.
pub(super) fn claim(step: &str) -> ClaimResult {
    let claim = json!({
        "session_id": "s",
        "task_id": "t",
        "run_id": Uuid::now_v7(),
        "attempt_id": Uuid::now_v7(),
        "ordinal": 1,
        "fencing_token": 3,
        "lease_expires_at": 0,
        "lease_ms": LEASE_MS,
        "step": {
            "step_id": step,
            "title": step,
            "summary": "does something",
            "depends_on_step_ids": [],
            "required": true,
            "worker_pool_id": "default",
            "handler": "echo",
        },
        "input_refs": [],
    });
    serde_json::from_value(claim).unwrap()
}

/// The same of a Step that was lost before.
pub(super) fn lost_claim(step: &str) -> ClaimResult {
    ClaimResult { was_lost: true, ..claim(step) }
}

/// The offer of a Run.
pub(super) fn offer() -> RunOffer {
    let offer = json!({
        "session_id": "s", "task_id": "t", "run_id": Uuid::now_v7(), "worker_pool_id": "default",
    });
    serde_json::from_value(offer).unwrap()
}

/// What a [`PortDouble`] was asked.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum DoubleCall {
    /// A report, and the credit beside it.
    Report(AttemptId, Option<Credit>),
    /// The return of a Step.
    Release(AttemptId, ReleaseReason),
    /// The end of a Run that has a Step.
    EndRun(RunId, RunOutcome),
    /// The end of a Run that has none, and whether it was declined.
    Leave(RunId, bool),
    /// A heartbeat for so many Attempts.
    Heartbeat(usize),
    /// The answer to a request for what a command wrote.
    Output(u64),
}

/// A worker port that notes what it is asked.
#[derive(Debug)]
pub(super) struct PortDouble {
    id: AgentId,
    /// Statements of capacity: those that are free, and those that were seen.
    pub(super) credits: Mutex<Vec<(u64, u64)>>,
    /// Everything else.
    pub(super) calls: Mutex<Vec<DoubleCall>>,
    /// What is answered to a report; that it is recorded if there is nothing.
    pub(super) refusal: Mutex<Option<Rejection>>,
    /// Whether reports are received and not answered.
    pub(super) is_mute: Mutex<bool>,
    /// What is answered to a heartbeat.
    pub(super) pulse: Mutex<Pulse>,
    /// Notified when the worker works elsewhere.
    pub(super) elsewhere: Notify,
}

/// The answer to a report, if there is one.
type MaybeAnswer = Either<Ready<Result<Recorded, Rejection>>, Pending<Result<Recorded, Rejection>>>;

impl Default for PortDouble {
    fn default() -> Self {
        let renewed = Pulse::Renewed { cancel_requested: false, time_left_ms: None };
        Self {
            id: AgentId::new("ant.b1").unwrap(),
            credits: Mutex::default(),
            calls: Mutex::default(),
            refusal: Mutex::default(),
            is_mute: Mutex::default(),
            pulse: Mutex::new(renewed),
            elsewhere: Notify::new(),
        }
    }
}

impl PortDouble {
    fn answer(&self, call: DoubleCall, room: Option<Credit>) -> MaybeAnswer {
        self.calls.lock().push(call);
        room.into_iter().for_each(|room| self.credit(room));
        match *self.is_mute.lock() {
            true => Either::Right(pending()),
            false => Either::Left(ready(self.refusal.lock().clone().map_or(Ok(RECORDED), Err))),
        }
    }

    /// What it was asked since the last time.
    pub(super) fn asked(&self) -> Vec<DoubleCall> {
        std::mem::take(&mut self.calls.lock())
    }
}

fn nothing<T>() -> Ready<Result<T, Rejection>> {
    ready(Err(Rejection::new(Code::Unavailable, "the double has none")))
}

impl WorkerPort for PortDouble {
    type Answer = MaybeAnswer;

    fn id(&self) -> &AgentId {
        &self.id
    }

    fn credit(&self, credit: Credit) {
        self.credits.lock().push((credit.free, credit.seen));
    }

    async fn superseded(&self) {
        self.elsewhere.notified().await;
    }

    fn query(
        &self,
        _: &RunOffer,
        _: usize,
    ) -> impl Future<Output = Result<StepPage, Rejection>> + Send + 'static {
        nothing()
    }

    fn look(
        &self,
        _: &TaskKey,
        _: RunId,
        _: Look,
    ) -> impl Future<Output = Result<Looked, Rejection>> + Send + 'static {
        nothing()
    }

    fn blob_get(
        &self,
        _: &Holding,
        _: BlobGet,
    ) -> impl Future<Output = Result<BlobPart, Rejection>> + Send + 'static {
        nothing()
    }

    fn blob_put(
        &self,
        _: &Holding,
        _: BlobPut,
    ) -> impl Future<Output = Result<BlobTaken, Rejection>> + Send + 'static {
        nothing()
    }

    fn claim(
        &self,
        run: &RunOffer,
        step: &StepId,
        _: &CommandId,
    ) -> impl Future<Output = Result<ClaimResult, Rejection>> + Send + 'static {
        ready(Ok(ClaimResult { run_id: run.run_id, ..claim(step.as_str()) }))
    }

    fn leave(
        &self,
        run: &RunOffer,
        why: Option<ReasonInput>,
        room: Option<Credit>,
    ) -> Self::Answer {
        self.answer(DoubleCall::Leave(run.run_id, why.is_some()), room)
    }

    fn report(&self, held: &Holding, _: StepReport, room: Option<Credit>) -> Self::Answer {
        self.answer(DoubleCall::Report(held.attempt_id, room), room)
    }

    fn end_run(
        &self,
        held: &Holding,
        outcome: RunOutcome,
        _: Option<String>,
        room: Option<Credit>,
    ) -> Self::Answer {
        self.answer(DoubleCall::EndRun(held.run_id, outcome), room)
    }

    fn release(&self, held: &Holding, how: GiveBack, room: Option<Credit>) -> Self::Answer {
        self.answer(DoubleCall::Release(held.attempt_id, how.reason), room)
    }

    async fn heartbeat(&self, holdings: &[Holding]) -> Vec<Pulse> {
        self.calls.lock().push(DoubleCall::Heartbeat(holdings.len()));
        vec![self.pulse.lock().clone(); holdings.len()]
    }

    async fn show_output(&self, _: &str, answer: OutputAnswer) {
        self.calls.lock().push(DoubleCall::Output(answer.request));
    }
}
