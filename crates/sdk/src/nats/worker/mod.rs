//! A worker's end of the bus over NATS.
//!
//! ```text
//!            deliveries        ┌─────────────┐ grants, signals
//!  nodes ─────────────────────►│             │────────────────► the pool
//!        ◄─ capacity, hello ───│ WorkerLinks │◄──────────────── credits
//!                              └─────────────┘
//!        ◄─ reports, by partition ── Outbox ◄────────────────── reports
//! ```
//!
//! [`WorkerLinks`] and [`Outbox`] decide without waiting for anything; the loops carry out what
//! they decide. Deliveries on a link are numbered: the worker drops those behind a gap, and at once
//! states its capacity, which also tells the node what is missing.

mod beat;
mod link;
mod links;
mod loops;
mod outbox;
mod share;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::channel::mpsc::UnboundedReceiver;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tenure_core::Rejection;
use tenure_core::command::{GiveBack, RunOutcome, StepReport};
use tenure_core::id::{AgentId, CommandId, PoolId, RunId, StepId};
use tenure_core::patch::ReasonInput;
use tenure_core::record::WorkerOrigin;
use tenure_core::sessions::Abilities;
use tenure_core::view::{ClaimResult, Look, Looked, RunOffer, StepPage};
use tenure_ports::bus::{Credit, Delivery, Holding, Pulse, Recorded, WorkerPort};
use tenure_ports::erased::ErasedWorker;
use tenure_ports::journal::TaskKey;
use tenure_ports::placement::OtherPlacement;
use tenure_wire::bus::blob::{BlobAsk, BlobGet, BlobPart, BlobPut, BlobTaken, HeldBlob};
use tenure_wire::bus::output::OutputAnswer;
use tenure_wire::bus::subject::WorkerName;
use tenure_wire::bus::worker::{Bye, Claim, Looking, QuerySteps, Report, Word};
use tenure_wire::bus::{BadMessage, MESSAGE_MAX, V, encode};
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::AbortHandle;

use self::links::WorkerLinks;
use self::outbox::{Item, Outbox};
use super::connect::Connection;
use crate::clock::Moment;
use crate::patience::{Patience, unavailable};

/// How long a worker looks for a Step or tries to claim one before it leaves the Run alone.
const PATIENCE: Duration = Duration::from_secs(5);

/// The longest report: the rest of the message is for the fields around it.
const REPORT_MAX: usize = MESSAGE_MAX - 4096;

/// A worker that is connected over NATS. When it is dropped, it leaves its pool.
pub struct NatsWorker {
    inner: Arc<Inner>,
    loops: AbortHandle,
}

/// The state that the loops share.
struct Inner {
    connection: Connection,
    agent: AgentId,
    pool: PoolId,
    /// The beginning of all subjects of this worker.
    root: String,
    abilities: Abilities,
    origin: WorkerOrigin,
    links: Mutex<WorkerLinks>,
    outbox: Mutex<Outbox>,
    /// The number of partitions of the cluster; none until a node has said it. An error if the
    /// cluster has another placement than this worker computes (OWN-01).
    partitions: watch::Sender<Option<Result<u32, OtherPlacement>>>,
    /// The last reason why a node gives this worker no link: if it is final, the worker takes no
    /// work.
    refused: watch::Sender<Option<Rejection>>,
    /// Whether another process works under this name now.
    superseded: watch::Sender<bool>,
    /// Notified when a statement of capacity may be due to a node.
    room: Notify,
    /// Notified when a report waits, or may be sent now.
    reports: Notify,
}

impl fmt::Debug for NatsWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsWorker").field("agent", &self.inner.agent).finish_non_exhaustive()
    }
}

impl NatsWorker {
    /// Joins a pool: asks every node for a link. A node sends work as soon as the worker has stated its capacity. A
    /// worker that serves only some sessions states none to a node that would give it Steps of others (DISP-20). The
    /// connection's inbox must be the worker's ([`WorkerName::inbox`]).
    ///
    /// # Errors
    /// `unavailable` without a connection; `validation_error` if the inbox is that of another
    /// principal.
    pub async fn join(
        connection: Connection,
        name: &WorkerName,
        abilities: impl Into<Abilities>,
    ) -> Result<(Self, UnboundedReceiver<Delivery>), Rejection> {
        Self::join_as(connection, name, abilities, None).await
    }

    /// As [`join`](Self::join); Attempts then name the build of this program (ATT-12).
    ///
    /// # Errors
    /// As [`join`](Self::join).
    pub async fn join_as(
        connection: Connection,
        name: &WorkerName,
        abilities: impl Into<Abilities>,
        build: Option<&str>,
    ) -> Result<(Self, UnboundedReceiver<Delivery>), Rejection> {
        let inner = Self::inner(connection, name, abilities.into(), build)?;
        let (loops, deliveries) = loops::start(&inner, name, false).await?;
        Ok((Self { inner, loops }, deliveries))
    }

    /// As [`join_as`](Self::join_as), for a worker that may come through several processes, as one over HTTP comes
    /// through gateways. Each says another `build`, and this one ends when a later one joins
    /// ([`superseded`](WorkerPort::superseded)). Its login must be allowed to hear the worker's `hello`; otherwise
    /// it goes on beside the later one.
    ///
    /// # Errors
    /// As [`join`](Self::join).
    pub async fn join_for_now(
        connection: Connection,
        name: &WorkerName,
        abilities: impl Into<Abilities>,
        build: &str,
    ) -> Result<(Self, UnboundedReceiver<Delivery>), Rejection> {
        let inner = Self::inner(connection, name, abilities.into(), Some(build))?;
        let (loops, deliveries) = loops::start(&inner, name, true).await?;
        Ok((Self { inner, loops }, deliveries))
    }

    fn inner(
        connection: Connection,
        name: &WorkerName,
        abilities: Abilities,
        build: Option<&str>,
    ) -> Result<Arc<Inner>, Rejection> {
        if connection.inbox() != name.inbox() {
            let message = "the connection was opened with the inbox of somebody else";
            return Err(Rejection::invalid("inbox", message));
        }
        Ok(Arc::new(Inner {
            root: name.root(connection.cluster()),
            connection,
            agent: name.agent()?,
            pool: name.pool.clone(),
            links: Mutex::new(WorkerLinks::new(Moment::now(), !abilities.sessions.is_all())),
            abilities,
            origin: WorkerOrigin::of(host().as_deref(), build).unwrap_or_default(),
            outbox: Mutex::default(),
            partitions: watch::Sender::new(None),
            refused: watch::Sender::new(None),
            superseded: watch::Sender::new(false),
            room: Notify::new(),
            reports: Notify::new(),
        }))
    }

    /// A function that says whether some node has a link with this worker now.
    pub fn link_state(&self) -> impl Fn() -> bool + Send + Sync + 'static {
        let inner = Arc::downgrade(&self.inner);
        move || inner.upgrade().is_some_and(|it| it.links.lock().linked().next().is_some())
    }

    /// Leaves the pool: no more deliveries come. The worker can still report on the Attempts that
    /// it has.
    ///
    /// # Errors
    /// `unavailable`: nodes notice by themselves then, after some seconds.
    pub async fn leave_pool(&self) -> Result<(), Rejection> {
        self.inner.leave().await
    }

    /// Waits until it is certain that this worker gets no work in the cluster, and returns the
    /// reason: the server refuses it a subject, because its login is not the worker that its name
    /// says; or the cluster has another placement (OWN-01); or a node cannot accept its messages.
    pub async fn denied(&self) -> Rejection {
        let mut partitions = self.inner.partitions.subscribe();
        let mut refused = self.inner.refused.subscribe();
        let is_for_good = |refused: &Option<Rejection>| {
            refused.as_ref().is_some_and(|refused| !refused.code.is_retryable())
        };
        let is_other = |known: &Option<Result<_, _>>| matches!(known, Some(Err(_)));
        tokio::select! {
            denied = self.inner.connection.denials().any() => denied,
            Ok(known) = refused.wait_for(is_for_good) => {
                known.clone().unwrap_or_else(|| unavailable("no node has refused this worker yet"))
            }
            Ok(known) = partitions.wait_for(is_other) => match &*known {
                Some(Err(other)) => other.clone().into(),
                _ => unavailable("no node has been heard of yet"), // The caller does not wait for one.
            }
        }
    }

    fn tell(
        &self,
        task: TaskKey,
        run_id: RunId,
        word: Word,
        room: Option<Credit>,
    ) -> PendingReport {
        if let Some(room) = room {
            self.credit(room);
        }
        let (session_id, task_id) = (task.session_id.clone(), task.task_id.clone());
        let report = Report { session_id, task_id, run_id, word };
        match encode(&report).map(|body| body.len()) {
            Ok(bytes) if bytes <= REPORT_MAX => {
                PendingReport(Ok(self.enqueue(task, report, bytes)))
            }
            Ok(bytes) => PendingReport(Err(Some(too_long(bytes)))),
            Err(bad) => PendingReport(Err(Some(bad.into()))),
        }
    }

    fn enqueue(
        &self,
        task: TaskKey,
        report: Report,
        bytes: usize,
    ) -> oneshot::Receiver<Result<Recorded, Rejection>> {
        let (waiter, answer) = oneshot::channel();
        let item = Item { task, report, bytes, alone: false, waiter };
        self.inner.outbox.lock().push(item);
        self.inner.reports.notify_one();
        answer
    }
}

impl Drop for NatsWorker {
    fn drop(&mut self) {
        self.loops.abort();
        let inner = Arc::clone(&self.inner);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { inner.leave().await });
        }
    }
}

impl Inner {
    async fn leave(&self) -> Result<(), Rejection> {
        self.links.lock().leave();
        if *self.superseded.borrow() {
            return Ok(()); // A goodbye would end the links of the one that works under this name now.
        }
        self.connection.tell(format!("{}.bye", self.root), &Bye { v: V }).await?;
        self.connection.flush().await
    }

    /// Repeats a request to the owner of a Task's partition until it answers, for a while.
    async fn ask_owner<T: DeserializeOwned>(
        &self,
        verb: &str,
        task: &TaskKey,
        body: Result<Vec<u8>, BadMessage>,
    ) -> Result<T, Rejection> {
        let body = Bytes::from(body?);
        let mut patience = Patience::quiet(PATIENCE);
        loop {
            let within = patience.for_a_try(self.connection.request_timeout());
            let answer = match self.subject_for(verb, task, within).await {
                Ok(subject) => self.connection.request(subject, body.clone(), within).await,
                Err(refused) => Err(refused),
            };
            match answer {
                Err(refused) if patience.outlasts(&refused).await => {}
                answer => return answer,
            }
        }
    }

    async fn subject_for(
        &self,
        verb: &str,
        task: &TaskKey,
        within: Duration,
    ) -> Result<String, Rejection> {
        let mut partitions = self.partitions.subscribe();
        let known = tokio::time::timeout(within, partitions.wait_for(Option::is_some)).await;
        let unheard = || unavailable("no node has been heard of yet");
        let known = known.ok().and_then(Result::ok).and_then(|known| known.clone());
        let count = known.ok_or_else(unheard)??;
        Ok(format!("{}.{verb}.{}", self.root, task.partition(count)))
    }
}

/// The name of the machine, where the system tells it in a file.
fn host() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned())
}

fn too_long(bytes: usize) -> Rejection {
    let message = format!("a report has {bytes} bytes, and {REPORT_MAX} is the most");
    Rejection::invalid("report", message)
}

fn held_blob(held: &Holding, ask: BlobAsk) -> HeldBlob {
    HeldBlob {
        v: V,
        session_id: held.task.session_id.clone(),
        task_id: held.task.task_id.clone(),
        run_id: held.run_id,
        attempt_id: held.attempt_id,
        fencing_token: held.fencing_token,
        ask,
    }
}

fn task_of(run: &RunOffer) -> TaskKey {
    TaskKey { session_id: run.session_id.clone(), task_id: run.task_id.clone() }
}

/// Waits for the outcome of a report.
#[derive(Debug)]
pub struct PendingReport(Result<oneshot::Receiver<Result<Recorded, Rejection>>, Option<Rejection>>);

impl Future for PendingReport {
    type Output = Result<Recorded, Rejection>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let lost = || unavailable("the report was not sent");
        match &mut self.0 {
            Ok(answer) => {
                Pin::new(answer).poll(cx).map(|said| said.unwrap_or_else(|_| Err(lost())))
            }
            Err(refused) => Poll::Ready(Err(refused.take().unwrap_or_else(lost))),
        }
    }
}

impl WorkerPort for NatsWorker {
    type Answer = PendingReport;

    fn is_remote(&self) -> bool {
        true
    }

    fn erased(self: Arc<Self>) -> ErasedWorker {
        ErasedWorker::of(self)
    }

    fn id(&self) -> &AgentId {
        &self.inner.agent
    }

    fn credit(&self, credit: Credit) {
        self.inner.links.lock().note(credit);
        self.inner.room.notify_one();
    }

    fn query(
        &self,
        run: &RunOffer,
        offset: usize,
    ) -> impl Future<Output = Result<StepPage, Rejection>> + Send + 'static {
        let (inner, task, run_id) = (Arc::clone(&self.inner), task_of(run), run.run_id);
        async move {
            let (session_id, task_id) = (task.session_id.clone(), task.task_id.clone());
            let body = encode(&QuerySteps { v: V, session_id, task_id, run_id, offset });
            inner.ask_owner("query", &task, body).await
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
            let (session_id, task_id) = (task.session_id.clone(), task.task_id.clone());
            let body = encode(&Looking { v: V, session_id, task_id, run_id, look: look.clone() });
            Ok(match look {
                Look::TaskGet => Looked::Task(inner.ask_owner("look", &task, body).await?),
                Look::TaskList(_) => Looked::List(inner.ask_owner("look", &task, body).await?),
                Look::TaskQuerySteps(_) => {
                    Looked::Steps(inner.ask_owner("look", &task, body).await?)
                }
                Look::TaskBoardSummary(_) => {
                    Looked::Board(inner.ask_owner("look", &task, body).await?)
                }
            })
        }
    }

    fn blob_get(
        &self,
        held: &Holding,
        asked: BlobGet,
    ) -> impl Future<Output = Result<BlobPart, Rejection>> + Send + 'static {
        let (inner, task) = (Arc::clone(&self.inner), held.task.clone());
        let body = encode(&held_blob(held, BlobAsk::BlobGet(asked)));
        async move { inner.ask_owner("blob", &task, body).await }
    }

    fn blob_put(
        &self,
        held: &Holding,
        part: BlobPut,
    ) -> impl Future<Output = Result<BlobTaken, Rejection>> + Send + 'static {
        let (inner, task) = (Arc::clone(&self.inner), held.task.clone());
        let body = encode(&held_blob(held, BlobAsk::BlobPut(part)));
        async move { inner.ask_owner("blob", &task, body).await }
    }

    fn claim(
        &self,
        run: &RunOffer,
        step_id: &StepId,
        command_id: &CommandId,
    ) -> impl Future<Output = Result<ClaimResult, Rejection>> + Send + 'static {
        let (inner, task) = (Arc::clone(&self.inner), task_of(run));
        let body = encode(&Claim {
            v: V,
            command_id: command_id.clone(),
            session_id: task.session_id.clone(),
            task_id: task.task_id.clone(),
            run_id: run.run_id,
            step_id: step_id.clone(),
        });
        async move { inner.ask_owner("claim", &task, body).await }
    }

    fn leave(
        &self,
        run: &RunOffer,
        declined: Option<ReasonInput>,
        room: Option<Credit>,
    ) -> PendingReport {
        let word = match declined {
            None => Word::EndRun { outcome: RunOutcome::Finished, result: None },
            reason => Word::DeclineRun { reason },
        };
        self.tell(task_of(run), run.run_id, word, room)
    }

    fn report(&self, held: &Holding, report: StepReport, room: Option<Credit>) -> PendingReport {
        self.tell(held.task.clone(), held.run_id, Word::TaskUpdateStep(report), room)
    }

    fn end_run(
        &self,
        held: &Holding,
        outcome: RunOutcome,
        result: Option<String>,
        room: Option<Credit>,
    ) -> PendingReport {
        self.tell(held.task.clone(), held.run_id, Word::EndRun { outcome, result }, room)
    }

    fn release(&self, held: &Holding, how: GiveBack, room: Option<Credit>) -> PendingReport {
        let (attempt_id, fencing_token) = (held.attempt_id, held.fencing_token);
        let GiveBack { reason, retry_after_ms } = how;
        let word = Word::ReleaseStep { attempt_id, fencing_token, reason, retry_after_ms };
        self.tell(held.task.clone(), held.run_id, word, room)
    }

    async fn heartbeat(&self, holdings: &[Holding]) -> Vec<Pulse> {
        beat::heartbeat(&self.inner, holdings).await
    }

    async fn show_output(&self, node: &str, answer: OutputAnswer) {
        let subject = format!("{}.output.{node}", self.inner.root);
        if let Err(refused) = self.inner.connection.tell(subject, &answer).await {
            tracing::debug!(node, %refused, "a node did not learn what a command wrote");
        }
    }

    async fn superseded(&self) {
        let mut superseded = self.inner.superseded.subscribe();
        let _ = superseded.wait_for(|it| *it).await; // The sender lives as long as this worker.
    }
}
