//! A worker port whose calls and deliveries cross the bus as bytes.

use std::collections::HashMap;
use std::future::{Future, ready};
use std::sync::Arc;

use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use tenure_core::Rejection;
use tenure_core::command::{GiveBack, RunOutcome, StepReport};
use tenure_core::id::{AgentId, CommandId, RunId, StepId};
use tenure_core::patch::ReasonInput;
use tenure_core::view::{ClaimResult, Look, Looked, RunOffer, StepPage};
use tenure_ports::bus::{Credit, Delivery, Holding, Pulse, Recorded, WorkerPort};
use tenure_ports::journal::TaskKey;
use tenure_wire::bus::V;
use tenure_wire::bus::blob::{BlobAsk, BlobGet, BlobPart, BlobPut, BlobTaken, HeldBlob};
use tenure_wire::bus::worker::{
    Capacity, Claim, Delivery as Sent, Heartbeat, Looking, Pulses, QuerySteps, Report, Word,
};
use tokio::sync::oneshot;

use super::{answered, crossed, misread};

/// A worker port that encodes its calls, and the deliveries to it, to bytes and decodes them again.
#[derive(Debug)]
pub struct Worker<W> {
    inner: Arc<W>,
    /// Dropping this closes the inbox: the scheduler learns that nobody is there.
    _here: oneshot::Sender<()>,
}

type Answer = BoxFuture<'static, Result<Recorded, Rejection>>;

impl<W: WorkerPort> Worker<W> {
    /// Wraps a worker port. Deliveries that are too long for a message get lost. Must be called
    /// within a runtime.
    pub fn new(
        inner: W,
        deliveries: UnboundedReceiver<Delivery>,
    ) -> (Self, UnboundedReceiver<Delivery>) {
        let (to_worker, arriving) = unbounded();
        let (here, gone) = oneshot::channel();
        tokio::spawn(carry(deliveries, to_worker, gone));
        (Self { inner: Arc::new(inner), _here: here }, arriving)
    }

    /// Encodes and decodes a holder's report, and gives it to the inner port.
    fn tell(
        &self,
        task: &TaskKey,
        run_id: RunId,
        word: Word,
        room: Option<Credit>,
        say: impl FnOnce(&W, Word, Option<Credit>) -> Option<W::Answer>,
    ) -> Answer {
        let TaskKey { session_id, task_id } = task.clone();
        let report = crossed(&Report { session_id, task_id, run_id, word });
        let room = room.and_then(arrived);
        let said = report.and_then(|it| say(&self.inner, it.word, room).ok_or_else(misread));
        match said {
            Ok(answer) => answer.map(|it| Recorded::of(crossed(&Recorded::said(it))?)).boxed(),
            Err(refused) => {
                // The capacity counts even if the report is refused.
                room.into_iter().for_each(|room| self.inner.credit(room));
                ready(Err(refused)).boxed()
            }
        }
    }
}

/// Carries deliveries to a worker, as long as it is there.
async fn carry(
    mut deliveries: UnboundedReceiver<Delivery>,
    to_worker: UnboundedSender<Delivery>,
    mut gone: oneshot::Receiver<()>,
) {
    loop {
        let next = tokio::select! {
            biased;
            _ = &mut gone => return,
            next = deliveries.next() => next,
        };
        let Some(delivery) = next else { return };
        let arriving = crossed(&Sent::from(delivery)).ok().and_then(Delivery::of);
        if arriving.is_some_and(|delivery| to_worker.unbounded_send(delivery).is_err()) {
            return;
        }
    }
}

/// A statement of capacity as it arrives.
fn arrived(credit: Credit) -> Option<Credit> {
    let Credit { free, seen, lost, number } = credit;
    let room = Capacity { v: V, link: "in-process".into(), number, free, seen, got: seen, lost };
    let Capacity { number, free, seen, lost, .. } = crossed(&room).ok()?;
    Some(Credit { free, seen, lost, number })
}

/// A request for a blob as it arrives.
fn arrived_blob(held: &Holding, ask: BlobAsk) -> Result<(Holding, BlobAsk), Rejection> {
    let TaskKey { session_id, task_id } = held.task.clone();
    let (run_id, attempt_id, fencing_token) = (held.run_id, held.attempt_id, held.fencing_token);
    let v = V;
    let asked = HeldBlob { v, session_id, task_id, run_id, attempt_id, fencing_token, ask };
    let HeldBlob { session_id, task_id, run_id, attempt_id, fencing_token, ask, .. } =
        crossed(&asked)?;
    let task = TaskKey { session_id, task_id };
    let held = Holding { task, run_id, attempt_id, fencing_token, ..held.clone() };
    Ok((held, ask))
}

fn task_of(run: &RunOffer) -> TaskKey {
    TaskKey { session_id: run.session_id.clone(), task_id: run.task_id.clone() }
}

impl<W: WorkerPort> WorkerPort for Worker<W> {
    type Answer = Answer;

    fn is_remote(&self) -> bool {
        self.inner.is_remote()
    }

    fn id(&self) -> &AgentId {
        self.inner.id()
    }

    fn credit(&self, credit: Credit) {
        arrived(credit).into_iter().for_each(|credit| self.inner.credit(credit));
    }

    fn query(
        &self,
        run: &RunOffer,
        offset: usize,
    ) -> impl Future<Output = Result<StepPage, Rejection>> + Send + 'static {
        let (inner, run) = (Arc::clone(&self.inner), run.clone());
        async move {
            let TaskKey { session_id, task_id } = task_of(&run);
            let asked = QuerySteps { v: V, session_id, task_id, run_id: run.run_id, offset };
            let QuerySteps { session_id, task_id, run_id, offset, .. } = crossed(&asked)?;
            let run = RunOffer { session_id, task_id, run_id, ..run };
            answered(inner.query(&run, offset).await)
        }
    }

    fn look(
        &self,
        task: &TaskKey,
        run_id: RunId,
        look: Look,
    ) -> impl Future<Output = Result<Looked, Rejection>> + Send + 'static {
        let (inner, task) = (Arc::clone(&self.inner), task.clone());
        async move {
            let TaskKey { session_id, task_id } = task;
            let asked = Looking { v: V, session_id, task_id, run_id, look };
            let Looking { session_id, task_id, run_id, look, .. } = crossed(&asked)?;
            let task = TaskKey { session_id, task_id };
            Ok(match inner.look(&task, run_id, look).await {
                Ok(Looked::Task(seen)) => Looked::Task(answered(Ok(seen))?),
                Ok(Looked::List(seen)) => Looked::List(answered(Ok(seen))?),
                Ok(Looked::Steps(seen)) => Looked::Steps(answered(Ok(seen))?),
                Ok(Looked::Board(seen)) => Looked::Board(answered(Ok(seen))?),
                Err(refused) => return Err(crossed(&refused)?),
            })
        }
    }

    fn blob_get(
        &self,
        held: &Holding,
        get: BlobGet,
    ) -> impl Future<Output = Result<BlobPart, Rejection>> + Send + 'static {
        let (inner, held) = (Arc::clone(&self.inner), held.clone());
        async move {
            match arrived_blob(&held, BlobAsk::BlobGet(get))? {
                (held, BlobAsk::BlobGet(get)) => answered(inner.blob_get(&held, get).await),
                _ => Err(misread()),
            }
        }
    }

    fn blob_put(
        &self,
        held: &Holding,
        part: BlobPut,
    ) -> impl Future<Output = Result<BlobTaken, Rejection>> + Send + 'static {
        let (inner, held) = (Arc::clone(&self.inner), held.clone());
        async move {
            match arrived_blob(&held, BlobAsk::BlobPut(part))? {
                (held, BlobAsk::BlobPut(part)) => answered(inner.blob_put(&held, part).await),
                _ => Err(misread()),
            }
        }
    }

    fn claim(
        &self,
        run: &RunOffer,
        step_id: &StepId,
        command_id: &CommandId,
    ) -> impl Future<Output = Result<ClaimResult, Rejection>> + Send + 'static {
        let (inner, run) = (Arc::clone(&self.inner), run.clone());
        let (step_id, command_id) = (step_id.clone(), command_id.clone());
        async move {
            let TaskKey { session_id, task_id } = task_of(&run);
            let run_id = run.run_id;
            let asked = Claim { v: V, command_id, session_id, task_id, run_id, step_id };
            let Claim { command_id, session_id, task_id, run_id, step_id, .. } = crossed(&asked)?;
            let run = RunOffer { session_id, task_id, run_id, ..run };
            answered(inner.claim(&run, &step_id, &command_id).await)
        }
    }

    fn leave(&self, run: &RunOffer, declined: Option<ReasonInput>, room: Option<Credit>) -> Answer {
        let word = match declined {
            None => Word::EndRun { outcome: RunOutcome::Finished, result: None },
            reason => Word::DeclineRun { reason },
        };
        self.tell(&task_of(run), run.run_id, word, room, |inner, word, room| match word {
            Word::EndRun { .. } => Some(inner.leave(run, None, room)),
            Word::DeclineRun { reason } => Some(inner.leave(run, reason, room)),
            Word::TaskUpdateStep(_) | Word::ReleaseStep { .. } => None,
        })
    }

    fn report(&self, held: &Holding, report: StepReport, room: Option<Credit>) -> Answer {
        let word = Word::TaskUpdateStep(report);
        self.tell(&held.task, held.run_id, word, room, |inner, word, room| match word {
            Word::TaskUpdateStep(report) => Some(inner.report(held, report, room)),
            _ => None,
        })
    }

    fn end_run(
        &self,
        held: &Holding,
        outcome: RunOutcome,
        result: Option<String>,
        room: Option<Credit>,
    ) -> Answer {
        let word = Word::EndRun { outcome, result };
        self.tell(&held.task, held.run_id, word, room, |inner, word, room| match word {
            Word::EndRun { outcome, result } => Some(inner.end_run(held, outcome, result, room)),
            _ => None,
        })
    }

    fn release(&self, held: &Holding, how: GiveBack, room: Option<Credit>) -> Answer {
        let (attempt_id, fencing_token) = (held.attempt_id, held.fencing_token);
        let GiveBack { reason, retry_after_ms } = how;
        let word = Word::ReleaseStep { attempt_id, fencing_token, reason, retry_after_ms };
        self.tell(&held.task, held.run_id, word, room, |inner, word, room| match word {
            Word::ReleaseStep { attempt_id, fencing_token, reason, retry_after_ms } => {
                let held = Holding { attempt_id, fencing_token, ..held.clone() };
                Some(inner.release(&held, GiveBack { reason, retry_after_ms }, room))
            }
            _ => None,
        })
    }

    async fn heartbeat(&self, holdings: &[Holding]) -> Vec<Pulse> {
        let said = Heartbeat { v: V, holdings: holdings.iter().map(Into::into).collect() };
        let unknown = vec![Pulse::Unknown; holdings.len()];
        let Ok(heard) = crossed(&said) else { return unknown };
        let heard: Vec<Holding> = heard.holdings.into_iter().map(Into::into).collect();
        let pulses = heard.iter().zip(self.inner.heartbeat(&heard).await);
        let pulses = pulses.filter_map(|(held, pulse)| pulse.said(held.attempt_id, held.lease_ms));
        let Ok(said) = answered(Ok(Pulses { pulses: pulses.collect() })) else { return unknown };
        let said = said.pulses.into_iter().map(|said| (said.attempt_id, Pulse::of(said)));
        let mut said: HashMap<_, _> = said.collect();
        let answer = |held: &Holding| said.remove(&held.attempt_id).unwrap_or(Pulse::Unknown);
        holdings.iter().map(answer).collect()
    }
}
