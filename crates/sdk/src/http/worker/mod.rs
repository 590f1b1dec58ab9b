//! A worker's end of the bus over HTTP, through any of several gateways.
//!
//! ```text
//!            deliveries, by long poll   ┌──────┐ grants, signals
//!  gateway ────────────────────────────►│ keep │────────────────► the pool
//!          ◄─ room, unless a report says it ───┘◄──────────────── credits
//!          ◄─ reports, in the order of each Run ───────────────── reports
//! ```
//!
//! A link belongs to one gateway. When it is over, or its gateway does not answer any more, the worker joins
//! at the next gateway under the same boot. The scheduler knows it by its name, so that it goes on with
//! the Attempts that it has. Meanwhile calls wait for the new link for a while, and the pool repeats
//! those that get no answer. The pool also fences itself, as over NATS.
//!
//! Unlike other workers over HTTP, this one counts by itself what it has in hand, and states its
//! capacity as on the bus: the pool prefetches Steps of short handlers.

mod beat;
#[cfg(test)]
mod double;
mod join;
mod keep;
mod link;
mod order;
mod port;
mod report;

use std::fmt;
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::channel::mpsc::{UnboundedReceiver, unbounded};
use futures::future::BoxFuture;
use futures::{FutureExt as _, TryFutureExt as _};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tenure_core::id::{AgentId, PoolId, RunId};
use tenure_core::sessions::Abilities;
use tenure_core::{Code, Rejection};
use tenure_ports::bus::{Credit, Delivery, Recorded};
use tenure_ports::supervise::spawn;
use tenure_wire::bus::subject::Token;
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};

use self::join::{JoinAnswer, PoolJoin};
use self::link::{LinkedGateway, SaidCapacity, read};
use self::order::{ReportOrder, ReportTurn};
use self::report::SaidReport;
use super::connect::{HttpConnectError, HttpSettings};
use super::gateways::GatewayLinks;
use super::link::HttpRequest;
use crate::nats::boot;
use crate::patience::{Patience, ambiguous, unavailable};
use crate::worker::{Handlers, Options, WorkerPool};

/// How long a call waits for its answer: a little longer than a gateway waits for the scheduler.
const ANSWER: Duration = Duration::from_secs(17);

/// How long a worker looks for a Step or tries to claim one before it leaves the Run alone.
const PATIENCE: Duration = Duration::from_secs(5);

/// The same for a blob, which comes whole: one of 16 MiB takes a while on a slow network.
const BLOB_PATIENCE: Duration = Duration::from_secs(40);

/// How long the end of a link may take when the worker leaves.
const FAREWELL: Duration = Duration::from_secs(5);

/// A worker that comes over HTTP. When it is dropped, it leaves its pool.
pub struct HttpWorker {
    shared: Arc<HttpWorkerShared>,
    loops: [AbortHandle; 2],
}

/// What the calls and the loops of a worker share.
struct HttpWorkerShared {
    join: PoolJoin,
    agent: AgentId,
    state: watch::Sender<JoinState>,
    /// How many Steps and Runs have come.
    came: AtomicU64,
    /// The last statement of capacity.
    credit: Mutex<Option<Credit>>,
    /// Notified when a statement of capacity may be due that goes with no report.
    room_changed: Notify,
    /// Notified when a heartbeat was not answered, so that the worker looks whether its gateway is there: a
    /// new Attempt needs its first renewal soon.
    unanswered: Notify,
    order: Arc<ReportOrder>,
}

/// Whether a gateway knows the worker.
#[derive(Debug)]
enum JoinState {
    /// It looks for a gateway.
    Joining,
    /// It has joined.
    Linked(Arc<LinkedGateway>),
    /// It has left, or no gateway lets it in any more.
    Over(Rejection),
}

impl JoinState {
    fn is_over(&self) -> bool {
        matches!(self, Self::Over(_))
    }
}

impl fmt::Debug for HttpWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpWorker").field("agent", &self.shared.agent).finish_non_exhaustive()
    }
}

impl WorkerPool<HttpWorker> {
    /// Joins a pool at a gateway, at an address or with [`HttpSettings`], and starts to work. The token says
    /// who the worker is. It gets only Steps for which it has the handler.
    ///
    /// # Errors
    /// As [`HttpWorker::join`]; a pool with a malformed name.
    pub async fn over_http(
        to: impl Into<HttpSettings>,
        pool: &str,
        handlers: Handlers,
        options: Options,
    ) -> Result<Self, HttpConnectError> {
        let pool = pool.parse().map_err(Rejection::from)?;
        let boot = Token::new(boot()).map_err(Rejection::from)?;
        let abilities = options.abilities(&handlers);
        let (port, deliveries) = HttpWorker::join(&to.into(), &pool, &boot, abilities).await?;
        Ok(Self::start(port, deliveries, handlers, options))
    }

    /// Takes no more work, finishes the Attempts that it has, and leaves the pool.
    ///
    /// # Errors
    /// `unavailable`: the gateway notices by itself then, after some seconds.
    pub async fn leave(self) -> Result<(), Rejection> {
        self.drain().await;
        self.port().leave_pool().await
    }
}

impl HttpWorker {
    /// Joins a pool, with these handlers or with all, for these sessions or for all. A gateway that does not know
    /// of sessions refuses the worker then (DISP-20). No other worker of the same login has this `boot`.
    /// The scheduler sends work as soon as the worker has stated its capacity.
    ///
    /// # Errors
    /// The settings cannot be used, no gateway answers before `first_wait` is over, or the gateway does not
    /// let this worker into the pool.
    pub async fn join(
        settings: &HttpSettings,
        pool: &PoolId,
        boot: &Token,
        abilities: impl Into<Abilities>,
    ) -> Result<(Self, UnboundedReceiver<Delivery>), HttpConnectError> {
        Self::begin(settings, pool, boot, abilities.into()).await
    }

    fn begin<'a>(
        settings: &'a HttpSettings,
        pool: &'a PoolId,
        boot: &'a Token,
        abilities: Abilities,
    ) -> BoxFuture<'a, Result<(Self, UnboundedReceiver<Delivery>), HttpConnectError>> {
        Box::pin(Self::joined(settings, pool, boot, abilities)) // A pointer: this crate has the code of the loops.
    }

    async fn joined(
        settings: &HttpSettings,
        pool: &PoolId,
        boot: &Token,
        abilities: Abilities,
    ) -> Result<(Self, UnboundedReceiver<Delivery>), HttpConnectError> {
        let gateways = GatewayLinks::of(settings).await?;
        let request_timeout = settings.request_timeout;
        let join = PoolJoin::new(gateways, request_timeout, (pool, boot), &abilities)?;
        let answer = join.within(settings.first_wait).await?;
        let shared = Arc::new(HttpWorkerShared {
            join,
            agent: answer.given.worker_id.clone(),
            state: watch::Sender::new(JoinState::Joining),
            came: AtomicU64::new(0),
            credit: Mutex::default(),
            room_changed: Notify::new(),
            unanswered: Notify::new(),
            order: Arc::default(),
        });
        let linked = shared.link_of(answer, None)?;
        shared.state.send_replace(JoinState::Linked(Arc::clone(&linked)));
        let (to_pool, deliveries) = unbounded();
        let loops = [
            spawn("what comes to a worker", keep::keep(Arc::clone(&shared), linked, to_pool)),
            spawn("the capacity of a worker", keep::say_room(Arc::clone(&shared))),
        ];
        let loops = loops.map(|one| one.abort_handle());
        Ok((Self { shared, loops }, deliveries))
    }

    /// A function that says whether some gateway has a link with this worker now.
    pub fn link_state(&self) -> impl Fn() -> bool + Send + Sync + 'static {
        let state = self.shared.state.subscribe();
        move || matches!(*state.borrow(), JoinState::Linked(_))
    }

    /// Leaves the pool, when the worker has nothing in hand any more: what it still reports does not
    /// arrive.
    ///
    /// # Errors
    /// `unavailable`: the gateway notices by itself then, after some seconds.
    pub async fn leave_pool(&self) -> Result<(), Rejection> {
        self.loops.iter().for_each(AbortHandle::abort);
        self.shared.leave().await
    }

    /// Waits until it is certain that this worker gets no work any more, and returns the reason: no gateway
    /// lets it into the pool, or it has left.
    pub async fn denied(&self) -> Rejection {
        let mut state = self.shared.state.subscribe();
        match state.wait_for(JoinState::is_over).await.as_deref() {
            Ok(JoinState::Over(why)) => why.clone(),
            // The sender lives as long as this worker.
            Ok(JoinState::Joining | JoinState::Linked(_)) | Err(_) => has_left(),
        }
    }

    fn tell(
        &self,
        run: RunId,
        said: Result<SaidReport, Rejection>,
        room: Option<Credit>,
    ) -> BoxFuture<'static, Result<Recorded, Rejection>> {
        room.into_iter().for_each(|room| self.shared.note(room));
        let said = match said {
            Ok(said) => said,
            Err(refused) => {
                self.shared.room_changed.notify_one(); // The capacity counts even so.
                return ready(Err(refused)).boxed();
            }
        };
        let (turn, shared) = (self.shared.order.enter(run), Arc::clone(&self.shared));
        let (waiter, answer) = oneshot::channel();
        tokio::spawn(async move {
            let _ = waiter.send(shared.report(turn, said, room.is_some()).await); // Nobody may wait.
        });
        answer.unwrap_or_else(|_| Err(unavailable("the report was not sent"))).boxed()
    }

    fn ask<T: DeserializeOwned + 'static>(
        &self,
        request: Result<HttpRequest, Rejection>,
    ) -> impl Future<Output = Result<T, Rejection>> + Send + 'static {
        let shared = Arc::clone(&self.shared);
        async move { read(&shared.ask(&request?, PATIENCE).await?) }
    }
}

impl Drop for HttpWorker {
    fn drop(&mut self) {
        self.loops.iter().for_each(AbortHandle::abort);
        let shared = Arc::clone(&self.shared);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { shared.leave().await });
        }
    }
}

impl HttpWorkerShared {
    /// The link that an answer gives. If it is the one before, its counts go on.
    ///
    /// # Errors
    /// `permission_denied`: the gateway knows this login by another name.
    fn link_of(
        &self,
        answer: JoinAnswer,
        before: Option<&LinkedGateway>,
    ) -> Result<Arc<LinkedGateway>, Rejection> {
        let JoinAnswer { at, path, given } = answer;
        if given.worker_id != self.agent {
            let message = format!("the gateway knows {} as {}", self.agent, given.worker_id);
            return Err(Rejection::new(Code::PermissionDenied, message));
        }
        let counts = before.and_then(|link| link.counts(&path));
        let (came, after) =
            counts.unwrap_or_else(|| (self.came.load(Ordering::Acquire), given.after));
        Ok(Arc::new(LinkedGateway::new(at, path, came, after)))
    }

    /// Notes a statement of capacity, unless it is older than the last.
    fn note(&self, credit: Credit) {
        let mut last = self.credit.lock();
        if last.is_none_or(|last| credit.number > last.number) {
            *last = Some(credit);
        }
    }

    /// The last statement of capacity in the counts of a link.
    fn room_on(&self, linked: &LinkedGateway) -> Option<SaidCapacity> {
        let credit = *self.credit.lock();
        credit.map(|credit| linked.room_of(credit))
    }

    /// The link of the worker. Waits for so long if it has none now.
    async fn linked(&self, within: Duration) -> Result<Arc<LinkedGateway>, Rejection> {
        let mut state = self.state.subscribe();
        let known = state.wait_for(|state| !matches!(state, JoinState::Joining));
        match timeout(within, known).await.ok().and_then(Result::ok).as_deref() {
            Some(JoinState::Linked(linked)) => Ok(Arc::clone(linked)),
            Some(JoinState::Over(why)) => Err(why.clone()),
            Some(JoinState::Joining) | None => {
                Err(unavailable("no gateway answers this worker now"))
            }
        }
    }

    /// Notes whether a gateway knows the worker now; answers whether that counts: who has left does not come back.
    fn turn_to(&self, next: JoinState) -> bool {
        self.state.send_if_modified(|state| {
            let goes_on = !state.is_over();
            if goes_on {
                *state = next;
            }
            goes_on
        })
    }

    /// Sends a request once on a link.
    async fn send_on(
        &self,
        linked: &LinkedGateway,
        request: &HttpRequest,
        within: Duration,
    ) -> Result<Bytes, Rejection> {
        let answer = tokio::select! {
            answer = linked.send(request, within) => answer,
            () = self.left(linked) => Err(ambiguous("the gateway was left before it answered")),
        };
        answer.map_err(|refused| match refused.code {
            // Nothing is decided: the worker joins again, or learns there that it may not.
            Code::WorkerGone | Code::Unauthenticated => unavailable(refused.message),
            _ => refused,
        })
    }

    /// Ends when the worker looks for another gateway: this one will answer nothing any more.
    async fn left(&self, linked: &LinkedGateway) {
        let is_other = |state: &JoinState| match state {
            JoinState::Joining => true,
            JoinState::Linked(now) => !std::ptr::eq(Arc::as_ptr(now), linked),
            JoinState::Over(_) => false,
        };
        let _ = self.state.subscribe().wait_for(is_other).await; // The sender lives as long as this.
    }

    /// Sends a request once on the link that the worker has now.
    async fn send(&self, request: &HttpRequest, within: Duration) -> Result<Bytes, Rejection> {
        let until = Instant::now() + within;
        let linked = self.linked(within).await?;
        self.send_on(&linked, request, until.saturating_duration_since(Instant::now())).await
    }

    /// Repeats a request until there is an answer, for a while.
    async fn ask(&self, request: &HttpRequest, patience: Duration) -> Result<Bytes, Rejection> {
        let mut patience = Patience::quiet(patience);
        loop {
            let within = patience.for_a_try(Duration::MAX);
            let answer = {
                let _turn = self.join.gateways.turn().await?;
                self.send(request, within).await
            };
            match answer {
                Err(refused) if patience.outlasts(&refused).await => {}
                answer => return patience.conclude(answer),
            }
        }
    }

    /// Sends a report once, with the worker's capacity if it is to be said.
    async fn report(
        &self,
        mut turn: ReportTurn,
        said: SaidReport,
        with_room: bool,
    ) -> Result<Recorded, Rejection> {
        turn.comes().await;
        let answer = self.report_now(said, with_room).await;
        if with_room && answer.is_err() {
            self.room_changed.notify_one(); // The gateway may not have it.
        }
        answer
    }

    async fn report_now(&self, said: SaidReport, with_room: bool) -> Result<Recorded, Rejection> {
        let linked = self.linked(ANSWER).await?;
        let _turn = self.join.gateways.turn().await?;
        let room = if with_room { self.room_on(&linked) } else { None };
        let answer = self.send_on(&linked, &said.request(room)?, ANSWER).await?;
        room.into_iter().for_each(|room| linked.note_room(room.number));
        Recorded::of(read(&answer)?)
    }

    /// Leaves the pool, if the worker is in it.
    async fn leave(&self) -> Result<(), Rejection> {
        match self.state.send_replace(JoinState::Over(has_left())) {
            JoinState::Linked(linked) => linked.leave(FAREWELL).await,
            JoinState::Joining => Ok(()),
            over @ JoinState::Over(_) => {
                self.state.send_replace(over); // The first reason is the one.
                Ok(())
            }
        }
    }
}

fn has_left() -> Rejection {
    Rejection::new(Code::WorkerGone, "this worker has left its pool")
}
