//! The worker port in process: the scheduler's side of the link to a worker. A worker in the same
//! process uses it directly, and a node for each worker that is connected over NATS.
//!
//! Step 10 of the walk in docs/architecture.md.

mod pulse;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::channel::mpsc::{UnboundedReceiver, unbounded};
use tenure_core::command::blobs::BlobHolder;
use tenure_core::command::not_its_runs;
use tenure_core::command::{EndRun, GiveBack, RunAndWhy, RunOutcome, StepReport};
use tenure_core::id::{
    AgentId, AttemptId, CommandId, HandlerName, PoolId, RunId, SessionId, StepId,
};
use tenure_core::patch::ReasonInput;
use tenure_core::record::WorkerOrigin;
use tenure_core::sessions::{Abilities, WorkerSessions};
use tenure_core::status::Role;
use tenure_core::suspension::Suspension;
use tenure_core::view::{
    ClaimResult, Known, Look, Looked, RunOffer, StepPage, View, look, query_ready,
};
use tenure_core::{Caller, Code, Command, Rejection};
use tenure_ports::bus::{Credit, Delivery, Holding, Pulse, Recorded, WorkerPort};
use tenure_ports::journal::TaskKey;
use tenure_ports::{Journal, Leases};
use tenure_wire::bus::blob::{BlobGet, BlobPart, BlobPut, BlobTaken};
use tokio::sync::oneshot;

use crate::ask::{Envelope, WriteAnswer};
use crate::handle::{Lane, Permit, Scheduler, ambiguous};
use crate::pool::Worker;

/// A worker's connection: it asks for work, reports, heartbeats. Dropping it leaves the pool.
#[derive(Debug)]
pub struct WorkerLink<J: Journal, L: Leases> {
    scheduler: Scheduler<J, L>,
    worker: Arc<Worker>,
}

impl<J: Journal, L: Leases> Scheduler<J, L> {
    /// Joins a pool under a boot-unique principal. The receiver gets grants, offers and signals.
    ///
    /// # Errors
    /// `unavailable` when the node is stopping, or when the workers of the pool serve as many different lists of
    /// sessions as they may; `permission_denied` for the scheduler's own name.
    pub fn join(
        &self,
        id: AgentId,
        pool: PoolId,
        abilities: impl Into<Abilities>,
    ) -> Result<(WorkerLink<J, L>, UnboundedReceiver<Delivery>), Rejection> {
        self.join_from(id, pool, abilities, None)
    }

    /// As [`join`](Self::join), for a worker that says where it runs and what it is (ATT-12).
    ///
    /// # Errors
    /// As [`join`](Self::join).
    pub fn join_from(
        &self,
        id: AgentId,
        pool: PoolId,
        abilities: impl Into<Abilities>,
        origin: Option<Arc<WorkerOrigin>>,
    ) -> Result<(WorkerLink<J, L>, UnboundedReceiver<Delivery>), Rejection> {
        if id == tenure_core::id::system_agent() {
            return Err(Rejection::new(Code::PermissionDenied, "this name is the scheduler's own"));
        }
        let (inbox, deliveries) = unbounded();
        let hand = self.node.hand(&id, &pool)?;
        let Abilities { handlers, sessions } = abilities.into();
        let worker = Arc::new(Worker { id, pool, origin, handlers, sessions, inbox, hand });
        self.node.join(Arc::clone(&worker))?;
        Ok((WorkerLink { scheduler: self.clone(), worker }, deliveries))
    }
}

impl<J: Journal, L: Leases> WorkerLink<J, L> {
    /// Sends a holder's command, with the worker's capacity now. The Task that decides the command
    /// may use that capacity in the same append; the pool gets what is left.
    fn send(
        &self,
        task: &TaskKey,
        run_id: RunId,
        command: Command,
        room: Option<Credit>,
    ) -> Answering {
        let pool = self.scheduler.node.pool_if_open(&self.worker.pool);
        let pool = pool.filter(|_| room.is_some());
        if let (Some(pool), Some(room)) = (&pool, room) {
            pool.note_credit(&self.worker, room);
        }
        let envelope = Envelope::new(self.caller(&task.session_id, run_id), None);
        let permit = self.scheduler.permit(Lane::Reports, &envelope.caller);
        let sent = permit.and_then(|permit| {
            let looks_up = !command.foreign_artifacts(&task.task_id).is_empty()
                || !command.blobs().is_empty()
                || self.scheduler.is_away(task);
            match looks_up {
                true => Ok(self.send_checked(permit, task.clone(), envelope, command)),
                false => self.scheduler.send(permit, task, envelope, command),
            }
        });
        if let Some(pool) = pool {
            pool.wake();
        }
        Answering(sent.map_err(Some))
    }
}

impl<J: Journal, L: Leases> WorkerLink<J, L> {
    /// Ends a Run that this worker does not want (RUN-12).
    pub fn decline(
        &self,
        task: &TaskKey,
        run_id: RunId,
        reason: Option<ReasonInput>,
        room: Option<Credit>,
    ) -> Answering {
        self.send(task, run_id, Command::DeclineRun(RunAndWhy { reason, run_id }), room)
    }

    /// How many Steps the worker would take now.
    pub fn free(&self) -> u64 {
        let pool = self.scheduler.node.pool_if_open(&self.worker.pool);
        pool.map_or(0, |pool| pool.free_of(&self.worker))
    }

    /// How many credits of this link were spent or are lent, and how many the worker has said to
    /// have seen.
    pub fn sent_and_seen(&self) -> (u64, u64) {
        let pool = self.scheduler.node.pool_if_open(&self.worker.pool);
        pool.map_or((0, 0), |pool| pool.sent_and_seen(&self.worker))
    }

    /// The handler with which the worker fails what others complete, and for how many milliseconds
    /// the pool still gives it nothing for that (DISP-19).
    pub fn suspension(&self) -> Option<(HandlerName, u64)> {
        let node = &self.scheduler.node;
        let Suspension { handler, until, .. } =
            node.pool_if_open(&self.worker.pool)?.suspension(&self.worker)?;
        let left = until.saturating_sub(node.clock.passed());
        Some((handler, u64::try_from(left).unwrap_or(0)))
    }

    /// The sessions that the worker serves.
    pub fn sessions(&self) -> &WorkerSessions {
        &self.worker.sessions
    }

    /// How many open Attempts of Tasks of this node the worker holds.
    pub fn holds(&self) -> u64 {
        self.worker.hand.holds()
    }

    /// Gives back a credit that was spent on what cannot be sent.
    pub fn unspent(&self) {
        if let Some(pool) = self.scheduler.node.pool_if_open(&self.worker.pool) {
            pool.give_back(&self.worker, 1);
            pool.wake();
        }
    }

    /// A grant did not reach its worker: the Step is released at once (S26).
    pub fn undelivered(&self, task: &TaskKey, attempt: AttemptId) {
        self.scheduler.release_undelivered(task, attempt);
    }

    /// A signal did not reach its worker: it is sent again on the worker's current link, or on its
    /// next one (CANCEL-07).
    pub fn unacknowledged(&self, signal: Delivery) {
        self.scheduler.node.signal(&self.worker.id, signal);
    }

    fn caller(&self, session: &SessionId, run_id: RunId) -> Caller {
        Caller {
            agent: self.worker.id.clone(),
            role: Role::Worker,
            session_id: session.clone(),
            run_id: Some(run_id),
            worker_pool_id: Some(self.worker.pool.clone()),
            origin: self.worker.origin.clone(),
        }
    }

    fn send_holding(&self, held: &Holding, command: Command, room: Option<Credit>) -> Answering {
        self.send(&held.task, held.run_id, command, room)
    }

    /// As [`send`](Self::send), once the blobs and the artifacts of other Tasks that the report names
    /// have been looked up, and a Task that is not in memory has been read.
    fn send_checked(
        &self,
        permit: Permit,
        task: TaskKey,
        envelope: Envelope,
        command: Command,
    ) -> oneshot::Receiver<Result<WriteAnswer, Rejection>> {
        let (reply_to, answer) = oneshot::channel();
        let scheduler = self.scheduler.clone();
        tokio::spawn(async move {
            let checked = async {
                scheduler.recall(&task, &envelope.caller).await?;
                scheduler.check_relations(&task, &envelope.caller, &command).await
            };
            let checked = checked.await;
            let sent = checked.and_then(|()| scheduler.send(permit, &task, envelope, command));
            let answered = match sent {
                Ok(answer) => answer.await.unwrap_or_else(|_| Err(ambiguous())),
                Err(refused) => Err(refused),
            };
            let _ = reply_to.send(answered); // The worker may have gone; the report stands.
        });
        answer
    }
}

/// Waits for the answer of a Task's actor.
#[derive(Debug)]
pub struct Answering(Result<oneshot::Receiver<Result<WriteAnswer, Rejection>>, Option<Rejection>>);

impl Future for Answering {
    type Output = Result<Recorded, Rejection>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = match &mut self.0 {
            Ok(answer) => match Pin::new(answer).poll(cx) {
                Poll::Ready(answer) => answer.unwrap_or_else(|_| Err(ambiguous())),
                Poll::Pending => return Poll::Pending,
            },
            Err(refused) => Err(refused.take().unwrap_or_else(ambiguous)),
        };
        Poll::Ready(answer.map(|answer| answer.recorded()))
    }
}

impl Answering {
    /// Waits for the whole answer.
    ///
    /// # Errors
    /// As the report itself.
    pub async fn in_full(self) -> Result<WriteAnswer, Rejection> {
        match self.0 {
            Ok(answer) => answer.await.unwrap_or_else(|_| Err(ambiguous())),
            Err(refused) => Err(refused.unwrap_or_else(ambiguous)),
        }
    }
}

impl<J: Journal, L: Leases> WorkerPort for WorkerLink<J, L> {
    type Answer = Answering;

    fn id(&self) -> &AgentId {
        &self.worker.id
    }

    fn credit(&self, credit: Credit) {
        if let Some(pool) = self.scheduler.node.pool_if_open(&self.worker.pool) {
            pool.note_credit(&self.worker, credit);
            pool.wake();
        }
    }

    fn query(
        &self,
        run: &RunOffer,
        offset: usize,
    ) -> impl Future<Output = Result<StepPage, Rejection>> + Send + 'static {
        let (scheduler, task) = (self.scheduler.clone(), task_of(run));
        let worker = Arc::clone(&self.worker);
        let caller = self.caller(&run.session_id, run.run_id);
        let (run_id, limits) = (run.run_id, scheduler.node.config.limits.clone());
        async move {
            scheduler.recall(&task, &caller).await?;
            scheduler.note_asked(&task, run_id, worker)?;
            let now = scheduler.now();
            let look = move |task: &View<'_>| {
                let known = Known::new(now, &|_| None);
                query_ready(task, &caller, offset, &known, &limits)
            };
            scheduler.read(&task, look).await.map_err(no_task_shows)?
        }
    }

    fn look(
        &self,
        task: &TaskKey,
        run_id: RunId,
        asked: Look,
    ) -> impl Future<Output = Result<Looked, Rejection>> + Send + 'static {
        let (scheduler, task) = (self.scheduler.clone(), task.clone());
        let caller = self.caller(&task.session_id, run_id);
        async move {
            let (node, now) = (Arc::clone(&scheduler.node), scheduler.now());
            asked.check(&node.config.limits)?;
            let see = move |task: &View<'_>| {
                let lease = |attempt| node.lease(attempt, now);
                let known = Known::new(now, &lease);
                look(task, &caller, &asked, &known, &node.config.limits)
            };
            scheduler.read(&task, see).await.map_err(no_task_shows)?
        }
    }

    fn blob_get(
        &self,
        held: &Holding,
        asked: BlobGet,
    ) -> impl Future<Output = Result<BlobPart, Rejection>> + Send + 'static {
        let (scheduler, task, holder) = (self.scheduler.clone(), held.task.clone(), holder(held));
        let caller = self.caller(&task.session_id, held.run_id);
        async move { scheduler.blob_part(&caller, &task, Some(holder), asked).await }
    }

    fn blob_put(
        &self,
        held: &Holding,
        part: BlobPut,
    ) -> impl Future<Output = Result<BlobTaken, Rejection>> + Send + 'static {
        let (scheduler, task, holder) = (self.scheduler.clone(), held.task.clone(), holder(held));
        let caller = self.caller(&task.session_id, held.run_id);
        async move { scheduler.take_blob_part(&caller, &task, Some(holder), part).await }
    }

    fn claim(
        &self,
        run: &RunOffer,
        step_id: &StepId,
        command_id: &CommandId,
    ) -> impl Future<Output = Result<ClaimResult, Rejection>> + Send + 'static {
        let claimed = self.claim_anew(run, step_id, command_id);
        async move { Ok(claimed.await?.0) }
    }

    fn leave(
        &self,
        run: &RunOffer,
        declined: Option<ReasonInput>,
        room: Option<Credit>,
    ) -> Answering {
        let run_id = run.run_id;
        let command = match declined {
            None => Command::EndRun(EndRun { outcome: RunOutcome::Finished, result: None, run_id }),
            reason => Command::DeclineRun(RunAndWhy { reason, run_id }),
        };
        self.send(&task_of(run), run_id, command, room)
    }

    fn report(&self, held: &Holding, report: StepReport, room: Option<Credit>) -> Answering {
        self.send_holding(held, Command::TaskUpdateStep(report), room)
    }

    fn end_run(
        &self,
        held: &Holding,
        outcome: RunOutcome,
        result: Option<String>,
        room: Option<Credit>,
    ) -> Answering {
        let end = EndRun { outcome, result, run_id: held.run_id };
        self.send_holding(held, Command::EndRun(end), room)
    }

    fn release(&self, held: &Holding, how: GiveBack, room: Option<Credit>) -> Answering {
        self.send_holding(held, how.of(held.attempt_id, held.fencing_token), room)
    }

    async fn heartbeat(&self, holdings: &[Holding]) -> Vec<Pulse> {
        self.pulses(holdings).await.into_iter().map(|(pulse, _)| pulse).collect()
    }
}

impl<J: Journal, L: Leases> WorkerLink<J, L> {
    /// [`claim`](WorkerPort::claim), and whether it was written just now, which a repetition is
    /// not.
    pub fn claim_anew(
        &self,
        run: &RunOffer,
        step_id: &StepId,
        command_id: &CommandId,
    ) -> impl Future<Output = Result<(ClaimResult, bool), Rejection>> + Send + 'static {
        let (scheduler, task) = (self.scheduler.clone(), task_of(run));
        let worker = Arc::clone(&self.worker);
        let caller = self.caller(&run.session_id, run.run_id);
        let command = Command::TaskClaimStep { run_id: run.run_id, step_id: step_id.clone() };
        let (run_id, command_id) = (run.run_id, command_id.clone());
        async move {
            let permit = scheduler.permit(Lane::Reports, &caller)?;
            scheduler.recall(&task, &caller).await?;
            scheduler.note_asked(&task, run_id, worker)?;
            let envelope = Envelope::new(caller, Some(command_id));
            let answer = scheduler.send(permit, &task, envelope, command)?;
            let answer = answer.await.map_err(|_| ambiguous())??;
            let attempt = answer.attempt_id.ok_or_else(ambiguous)?;
            let node = Arc::clone(&scheduler.node);
            let claim = move |task: &View<'_>| node.claim(task, attempt);
            let claim = scheduler.read(&task, claim).await?.ok_or_else(ambiguous)?;
            Ok((claim, answer.is_written))
        }
    }
}

impl<J: Journal, L: Leases> WorkerLink<J, L> {
    /// Leaves the pool: the pool sends nothing more to this worker.
    pub fn part(&self) {
        self.scheduler.node.leave(&self.worker);
    }
}

impl<J: Journal, L: Leases> Drop for WorkerLink<J, L> {
    fn drop(&mut self) {
        self.part();
    }
}

fn holder(held: &Holding) -> BlobHolder {
    BlobHolder { attempt_id: held.attempt_id, fencing_token: held.fencing_token }
}

fn task_of(run: &RunOffer) -> TaskKey {
    TaskKey { session_id: run.session_id.clone(), task_id: run.task_id.clone() }
}

/// PERM-16: a worker does not learn which Tasks exist.
fn no_task_shows(refused: Rejection) -> Rejection {
    if refused.code == Code::TaskNotFound { not_its_runs() } else { refused }
}
