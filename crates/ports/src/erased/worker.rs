//! [`ErasedWorker`]: any worker's end of the bus.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use tenure_core::Rejection;
use tenure_core::command::{GiveBack, RunOutcome, StepReport};
use tenure_core::id::{AgentId, CommandId, RunId, StepId};
use tenure_core::patch::ReasonInput;
use tenure_core::view::{ClaimResult, Look, Looked, RunOffer, StepPage};
use tenure_wire::bus::blob::{BlobGet, BlobPart, BlobPut, BlobTaken};
use tenure_wire::bus::output::OutputAnswer;

use crate::bus::{Credit, Holding, Pulse, Recorded, WorkerPort};
use crate::journal::TaskKey;

/// The future of a call.
type Called<T> = BoxFuture<'static, Result<T, Rejection>>;

/// A worker's end of the bus, whichever it is.
#[derive(Clone)]
pub struct ErasedWorker(Arc<dyn ObjectWorker>);

impl ErasedWorker {
    /// Puts this end behind a pointer. Others may hold it, too.
    pub fn of(port: Arc<impl WorkerPort>) -> Self {
        Self(port)
    }
}

impl fmt::Debug for ErasedWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ErasedWorker").field("id", self.0.id()).finish_non_exhaustive()
    }
}

/// [`WorkerPort`], for a pointer.
trait ObjectWorker: Send + Sync {
    fn is_remote(&self) -> bool;
    fn id(&self) -> &AgentId;
    fn credit(&self, credit: Credit);
    fn query(&self, run: &RunOffer, offset: usize) -> Called<StepPage>;
    fn look(&self, task: &TaskKey, run_id: RunId, look: Look) -> Called<Looked>;
    fn blob_get(&self, held: &Holding, asked: BlobGet) -> Called<BlobPart>;
    fn blob_put(&self, held: &Holding, part: BlobPut) -> Called<BlobTaken>;
    fn claim(
        &self,
        run: &RunOffer,
        step_id: &StepId,
        command_id: &CommandId,
    ) -> Called<ClaimResult>;
    fn leave(
        &self,
        run: &RunOffer,
        declined: Option<ReasonInput>,
        room: Option<Credit>,
    ) -> Called<Recorded>;
    fn report(&self, held: &Holding, report: StepReport, room: Option<Credit>) -> Called<Recorded>;
    fn end_run(
        &self,
        held: &Holding,
        outcome: RunOutcome,
        result: Option<String>,
        room: Option<Credit>,
    ) -> Called<Recorded>;
    fn release(&self, held: &Holding, how: GiveBack, room: Option<Credit>) -> Called<Recorded>;
    fn heartbeat<'a>(&'a self, holdings: &'a [Holding]) -> BoxFuture<'a, Vec<Pulse>>;
    fn show_output<'a>(&'a self, node: &'a str, answer: OutputAnswer) -> BoxFuture<'a, ()>;
    fn superseded(&self) -> BoxFuture<'_, ()>;
}

impl<P: WorkerPort> ObjectWorker for P {
    fn is_remote(&self) -> bool {
        WorkerPort::is_remote(self)
    }

    fn id(&self) -> &AgentId {
        WorkerPort::id(self)
    }

    fn credit(&self, credit: Credit) {
        WorkerPort::credit(self, credit);
    }

    fn query(&self, run: &RunOffer, offset: usize) -> Called<StepPage> {
        Box::pin(WorkerPort::query(self, run, offset))
    }

    fn look(&self, task: &TaskKey, run_id: RunId, look: Look) -> Called<Looked> {
        Box::pin(WorkerPort::look(self, task, run_id, look))
    }

    fn blob_get(&self, held: &Holding, asked: BlobGet) -> Called<BlobPart> {
        Box::pin(WorkerPort::blob_get(self, held, asked))
    }

    fn blob_put(&self, held: &Holding, part: BlobPut) -> Called<BlobTaken> {
        Box::pin(WorkerPort::blob_put(self, held, part))
    }

    fn claim(
        &self,
        run: &RunOffer,
        step_id: &StepId,
        command_id: &CommandId,
    ) -> Called<ClaimResult> {
        Box::pin(WorkerPort::claim(self, run, step_id, command_id))
    }

    fn leave(
        &self,
        run: &RunOffer,
        declined: Option<ReasonInput>,
        room: Option<Credit>,
    ) -> Called<Recorded> {
        Box::pin(WorkerPort::leave(self, run, declined, room))
    }

    fn report(&self, held: &Holding, report: StepReport, room: Option<Credit>) -> Called<Recorded> {
        Box::pin(WorkerPort::report(self, held, report, room))
    }

    fn end_run(
        &self,
        held: &Holding,
        outcome: RunOutcome,
        result: Option<String>,
        room: Option<Credit>,
    ) -> Called<Recorded> {
        Box::pin(WorkerPort::end_run(self, held, outcome, result, room))
    }

    fn release(&self, held: &Holding, how: GiveBack, room: Option<Credit>) -> Called<Recorded> {
        Box::pin(WorkerPort::release(self, held, how, room))
    }

    fn heartbeat<'a>(&'a self, holdings: &'a [Holding]) -> BoxFuture<'a, Vec<Pulse>> {
        Box::pin(WorkerPort::heartbeat(self, holdings))
    }

    fn show_output<'a>(&'a self, node: &'a str, answer: OutputAnswer) -> BoxFuture<'a, ()> {
        Box::pin(WorkerPort::show_output(self, node, answer))
    }

    fn superseded(&self) -> BoxFuture<'_, ()> {
        Box::pin(WorkerPort::superseded(self))
    }
}

impl WorkerPort for ErasedWorker {
    type Answer = Called<Recorded>;

    fn erased(self: Arc<Self>) -> ErasedWorker {
        (*self).clone()
    }

    fn is_remote(&self) -> bool {
        self.0.is_remote()
    }

    fn id(&self) -> &AgentId {
        self.0.id()
    }

    fn credit(&self, credit: Credit) {
        self.0.credit(credit);
    }

    fn query(
        &self,
        run: &RunOffer,
        offset: usize,
    ) -> impl Future<Output = Result<StepPage, Rejection>> + Send + 'static {
        self.0.query(run, offset)
    }

    fn look(
        &self,
        task: &TaskKey,
        run_id: RunId,
        look: Look,
    ) -> impl Future<Output = Result<Looked, Rejection>> + Send + 'static {
        self.0.look(task, run_id, look)
    }

    fn blob_get(
        &self,
        held: &Holding,
        asked: BlobGet,
    ) -> impl Future<Output = Result<BlobPart, Rejection>> + Send + 'static {
        self.0.blob_get(held, asked)
    }

    fn blob_put(
        &self,
        held: &Holding,
        part: BlobPut,
    ) -> impl Future<Output = Result<BlobTaken, Rejection>> + Send + 'static {
        self.0.blob_put(held, part)
    }

    fn claim(
        &self,
        run: &RunOffer,
        step_id: &StepId,
        command_id: &CommandId,
    ) -> impl Future<Output = Result<ClaimResult, Rejection>> + Send + 'static {
        self.0.claim(run, step_id, command_id)
    }

    fn leave(
        &self,
        run: &RunOffer,
        declined: Option<ReasonInput>,
        room: Option<Credit>,
    ) -> Self::Answer {
        self.0.leave(run, declined, room)
    }

    fn report(&self, held: &Holding, report: StepReport, room: Option<Credit>) -> Self::Answer {
        self.0.report(held, report, room)
    }

    fn end_run(
        &self,
        held: &Holding,
        outcome: RunOutcome,
        result: Option<String>,
        room: Option<Credit>,
    ) -> Self::Answer {
        self.0.end_run(held, outcome, result, room)
    }

    fn release(&self, held: &Holding, how: GiveBack, room: Option<Credit>) -> Self::Answer {
        self.0.release(held, how, room)
    }

    async fn heartbeat(&self, holdings: &[Holding]) -> Vec<Pulse> {
        self.0.heartbeat(holdings).await
    }

    async fn show_output(&self, node: &str, answer: OutputAnswer) {
        self.0.show_output(node, answer).await
    }

    async fn superseded(&self) {
        self.0.superseded().await
    }
}
