//! [`HttpLink`]: the link of a worker that speaks HTTP. It carries out what its [`LinkAccount`]
//! decides: states capacity, hands out deliveries, gives Steps back, and passes on what the client
//! says.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::channel::mpsc::UnboundedReceiver;
use futures::future::join_all;
use parking_lot::Mutex;
use tenure_core::Rejection;
use tenure_core::command::{GiveBack, RunOutcome, StepReport};
use tenure_core::id::{AttemptId, CommandId, PoolId, RunId, StepId};
use tenure_core::patch::ReasonInput;
use tenure_core::sessions::Abilities;
use tenure_core::status::{Role, StepStatus};
use tenure_core::view::{ClaimResult, Look, Looked, RunOffer, StepPage};
use tenure_ports::bus::{Credit, Delivery, Holding, Pulse, Recorded, WorkerPort};
use tenure_ports::journal::TaskKey;
use tenure_wire::bus::V;
use tenure_wire::bus::output::{OutputAnswer, OutputPage, OutputRequest};
use tenure_wire::bus::request::RawBytes;
use tenure_wire::bus::subject::Token;
use tenure_wire::bus::worker::{Pulse as Said, Pulses};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use uuid::Uuid;

use super::account::{Arrival, FetchAnswer, LinkAccount, ReturnedStep};
use super::buffer::DeliveryPage;
use super::gone;

/// The longest time that a call waits for the scheduler. A client that gets no answer repeats it.
const ANSWER: Duration = Duration::from_secs(15);

/// How long the return of Steps may take when a link ends.
const FAREWELL: Duration = Duration::from_secs(5);

/// Whose link it is. Another caller does not find it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct LinkOwner {
    /// The principal that made it.
    pub(super) principal: Token,
    /// The role in which it did.
    pub(super) role: Role,
    /// The pool.
    pub(super) pool: PoolId,
    /// The boot of the worker.
    pub(super) boot: Token,
}

/// The link of a worker that speaks HTTP. When it is dropped, the worker leaves its pool.
pub(super) struct HttpLink<W> {
    /// The name by which its client speaks of it: nobody else can guess it.
    pub(super) id: String,
    pub(super) owner: LinkOwner,
    pub(super) abilities: Abilities,
    port: W,
    account: Mutex<LinkAccount>,
    /// Notified when a request for deliveries may have an answer.
    news: Notify,
    /// Notified when the link may have something to do at another time than was planned.
    changed: Notify,
}

impl<W> fmt::Debug for HttpLink<W> {
    /// Without its id, which is a secret of its client.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpLink").field("owner", &self.owner).finish_non_exhaustive()
    }
}

/// A request for deliveries that waits. It ends when it is dropped, as when its client has gone.
struct FetchGuard<'a, W: WorkerPort> {
    link: &'a HttpLink<W>,
    turn: u64,
}

impl<W: WorkerPort> Drop for FetchGuard<'_, W> {
    fn drop(&mut self) {
        self.link.account.lock().end_fetch(self.turn, Instant::now());
        self.link.changed.notify_one();
    }
}

/// A final report that is on its way. Its client may go before the answer comes.
struct FinalOnItsWay<'a, W: WorkerPort> {
    link: &'a HttpLink<W>,
    attempt: AttemptId,
    is_answered: bool,
}

impl<W: WorkerPort> Drop for FinalOnItsWay<'_, W> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.link.account.lock().hand.drop_final(self.attempt);
            self.link.state_capacity();
        }
    }
}

impl<W> HttpLink<W> {
    /// Whether it is over.
    pub(super) fn is_over(&self) -> bool {
        self.account.lock().is_over()
    }
}

impl<W: WorkerPort> HttpLink<W> {
    /// The link of a worker that has joined.
    pub(super) fn new(owner: LinkOwner, abilities: Abilities, port: W, concurrency: usize) -> Self {
        let id = Uuid::new_v4().simple().to_string(); // 122 random bits.
        let account = Mutex::new(LinkAccount::new(concurrency, Instant::now()));
        let (news, changed) = (Notify::new(), Notify::new());
        Self { id, owner, abilities, port, account, news, changed }
    }

    /// The port of the worker.
    pub(super) fn port(&self) -> &W {
        &self.port
    }

    /// How many Steps the worker runs at a time, the number of the last delivery that the client has
    /// acknowledged, and whether the worker is to leave.
    pub(super) fn facts(&self) -> (usize, u64, bool) {
        let account = self.account.lock();
        (account.concurrency, account.acknowledged(), account.is_draining())
    }

    /// Sets how many Steps the worker runs at a time.
    pub(super) fn set_concurrency(&self, concurrency: usize) {
        self.account.lock().concurrency = concurrency;
        self.touch();
    }

    /// The worker joins again, and runs so many Steps at a time.
    pub(super) fn join_again(&self, concurrency: usize) {
        self.account.lock().join_again(concurrency);
        self.touch();
    }

    /// Notes what a worker that counts by itself says of its capacity. Whatever the worker says with it is
    /// passed on next, and the capacity with that.
    pub(super) fn note_room(&self, room: Credit) {
        self.account.lock().take_room(room);
    }

    /// The client has said something.
    pub(super) fn touch(&self) {
        self.account.lock().touch(Instant::now());
        self.state_capacity();
    }

    /// States the worker's capacity if it has changed. The numbers of statements keep their order.
    fn state_capacity(&self) {
        let credit = self.account.lock().credit(Instant::now());
        if let Some(credit) = credit {
            self.port.credit(credit);
        }
    }

    /// Takes what comes from the scheduler, until the link is over or its client is silent for a
    /// lease.
    pub(super) async fn tend(self: &Arc<Self>, mut deliveries: UnboundedReceiver<Delivery>) {
        while !self.is_over() {
            let due = self.account.lock().due(Instant::now());
            let pause = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = self.changed.notified() => {}
                () = self.port.superseded() => {
                    tracing::info!(worker = %self.port.id(), "a worker has joined elsewhere; its link ends");
                    break;
                }
                delivery = deliveries.next() => match delivery {
                    Some(delivery) => self.give_back_meanwhile(self.arrive(delivery)),
                    None => break, // The scheduler has stopped.
                },
                () = pause => if self.settle() { break },
            }
        }
        self.close(None).await;
        deliveries.close();
        let mut late = Vec::new(); // The link is over, so that Steps go back.
        while let Some(delivery) = deliveries.next().await {
            late.extend(self.arrive(delivery));
        }
        self.give_back(late).await;
    }

    /// Takes in what came, and answers the Steps that go back.
    fn arrive(self: &Arc<Self>, delivery: Delivery) -> Vec<ReturnedStep> {
        let (arrival, mut returned) = {
            let (mut account, now) = (self.account.lock(), Instant::now());
            (account.arrive(delivery, now), account.settle(now))
        };
        self.state_capacity();
        match arrival {
            Arrival::Waits => self.news.notify_waiters(),
            Arrival::Dropped => {}
            Arrival::Returned(one) => returned.push(one),
            Arrival::ReadOutput(asked) => {
                let link = Arc::clone(self);
                tokio::spawn(async move { link.show_nothing(*asked).await });
            }
        }
        returned
    }

    /// What the commands of this worker wrote is with its client, which serves it to nobody.
    async fn show_nothing(&self, asked: OutputRequest) {
        let page = OutputPage { data: RawBytes(Vec::new()), size_bytes: None };
        let answer = OutputAnswer { v: V, request: asked.request, page };
        if timeout(FAREWELL, self.port.show_output(&asked.node, answer)).await.is_err() {
            tracing::debug!(node = %asked.node, "a node did not learn that there is no output");
        }
    }

    /// Gives back what was not sent to an absent client; answers whether that client has gone.
    fn settle(&self) -> bool {
        let (returned, is_silent) = {
            let (mut account, now) = (self.account.lock(), Instant::now());
            (account.settle(now), account.is_silent(now))
        };
        self.state_capacity();
        self.give_back_meanwhile(returned);
        if is_silent {
            tracing::info!(worker = %self.port.id(), "a worker was silent for a lease; its link ends");
        }
        is_silent
    }

    /// Gives Steps back, without waiting for an answer.
    fn give_back_meanwhile(&self, returned: Vec<ReturnedStep>) {
        if !returned.is_empty() {
            tokio::spawn(self.give_back(returned));
        }
    }

    /// Gives Steps back; the returned future waits for the answers. If that fails, their leases end.
    fn give_back(
        &self,
        returned: Vec<ReturnedStep>,
    ) -> impl Future<Output = ()> + Send + 'static + use<W> {
        let released = returned.iter().map(|it| self.port.release(&it.holding, it.how, None));
        let released = join_all(released.collect::<Vec<_>>());
        let worker = self.port.id().clone();
        async move {
            if timeout(FAREWELL, released).await.is_err() {
                tracing::debug!(%worker, "nobody has answered that steps come back");
            }
        }
    }

    /// Ends the link, and gives back the Steps that the client does not have: those behind the
    /// delivery with the number `after`, or those that it was never sent.
    pub(super) async fn close(&self, after: Option<u64>) {
        let returned = {
            let mut account = self.account.lock();
            if account.is_over() {
                return;
            }
            account.close(after)
        };
        self.state_capacity();
        self.news.notify_waiters();
        self.changed.notify_one();
        self.give_back(returned).await;
    }

    /// Waits for deliveries, for so long at most. `after` acknowledges those up to that number.
    ///
    /// # Errors
    /// `validation_error` for a number that nothing had; `worker_gone` if the link is over.
    pub(super) async fn fetch(
        &self,
        after: Option<u64>,
        wait: Duration,
    ) -> Result<DeliveryPage, Rejection> {
        let until = Instant::now() + wait;
        let turn = self.account.lock().begin_fetch(after, Instant::now())?;
        let _waiting = FetchGuard { link: self, turn };
        self.news.notify_waiters(); // An earlier request ends.
        self.changed.notify_one();
        self.state_capacity();
        loop {
            let mut news = pin!(self.news.notified());
            news.as_mut().enable();
            let (fetched, is_over) = {
                let mut account = self.account.lock();
                (account.fetch(turn), account.is_over())
            };
            match fetched {
                _ if is_over => return Err(gone()),
                FetchAnswer::Page(page) => return Ok(page),
                FetchAnswer::Nothing(page) => {
                    if timeout_at(until, news).await.is_err() {
                        return Ok(page);
                    }
                }
            }
        }
    }

    /// Renews the leases of Attempts that the client holds, each with whether its Step was lost
    /// before.
    ///
    /// # Errors
    /// `unavailable`: nothing is known of the leases.
    pub(super) async fn heartbeat(&self, held: Vec<(Holding, bool)>) -> Result<Pulses, Rejection> {
        self.touch();
        let holdings: Vec<Holding> = held.iter().map(|(holding, _)| holding.clone()).collect();
        let pulses = in_time(async { Ok(self.port.heartbeat(&holdings).await) }).await?;
        {
            let (mut account, now) = (self.account.lock(), Instant::now());
            for (held, pulse) in held.into_iter().zip(&pulses) {
                account.hand.note_pulse(held, pulse, now);
            }
        }
        self.state_capacity();
        let said = |(held, pulse): (&Holding, Pulse)| -> Option<Said> {
            pulse.said(held.attempt_id, held.lease_ms)
        };
        Ok(Pulses { pulses: holdings.iter().zip(pulses).filter_map(said).collect() })
    }

    /// Passes on a report on a Step in the worker's hands.
    ///
    /// # Errors
    /// As the scheduler's.
    pub(super) async fn report(
        &self,
        held: &Holding,
        report: StepReport,
    ) -> Result<Recorded, Rejection> {
        let is_final = report.status.is_some_and(ends_attempt);
        self.say(held, is_final, |room| self.port.report(held, report, room)).await
    }

    /// Passes on that the Run of an Attempt is over.
    ///
    /// # Errors
    /// As the scheduler's.
    pub(super) async fn end_run(
        &self,
        held: &Holding,
        outcome: RunOutcome,
        result: Option<String>,
    ) -> Result<Recorded, Rejection> {
        self.say(held, true, |room| self.port.end_run(held, outcome, result, room)).await
    }

    /// Passes on that a Step goes back.
    ///
    /// # Errors
    /// As the scheduler's.
    pub(super) async fn release(
        &self,
        held: &Holding,
        how: GiveBack,
    ) -> Result<Recorded, Rejection> {
        self.say(held, true, |room| self.port.release(held, how, room)).await
    }

    /// Sends a report, with the capacity that the worker then has if it is final.
    async fn say(
        &self,
        held: &Holding,
        is_final: bool,
        send: impl FnOnce(Option<Credit>) -> W::Answer,
    ) -> Result<Recorded, Rejection> {
        let attempt = held.attempt_id;
        let room = {
            let (mut account, now) = (self.account.lock(), Instant::now());
            account.touch(now);
            account.hand.check_token(attempt, held.fencing_token)?;
            is_final.then(|| {
                account.hand.begin_final(attempt);
                account.restate(now)
            })
        };
        let on_its_way =
            is_final.then(|| FinalOnItsWay { link: self, attempt, is_answered: false });
        let answer = in_time(send(room)).await;
        if let Some(mut it) = on_its_way {
            it.is_answered = true;
        }
        self.note_answer(attempt, is_final, &answer);
        answer
    }

    fn note_answer(
        &self,
        attempt: AttemptId,
        is_final: bool,
        answer: &Result<Recorded, Rejection>,
    ) {
        let now = Instant::now();
        self.account.lock().hand.note_answer(attempt, is_final, answer, now);
        self.state_capacity();
    }

    /// A page of the Steps that can be claimed under a Run.
    ///
    /// # Errors
    /// As the scheduler's.
    pub(super) async fn query(&self, run: &RunOffer, offset: usize) -> Result<StepPage, Rejection> {
        self.use_offer(run);
        in_time(self.port.query(run, offset)).await
    }

    /// Reads the Task of a Run.
    ///
    /// # Errors
    /// As the scheduler's.
    pub(super) async fn look(&self, run: &RunOffer, look: Look) -> Result<Looked, Rejection> {
        self.use_offer(run);
        let (session_id, task_id) = (run.session_id.clone(), run.task_id.clone());
        let task = TaskKey { session_id, task_id };
        in_time(self.port.look(&task, run.run_id, look)).await
    }

    /// Claims a Step under a Run.
    ///
    /// # Errors
    /// As the scheduler's.
    pub(super) async fn claim(
        &self,
        run: &RunOffer,
        step: &StepId,
        command: &CommandId,
    ) -> Result<ClaimResult, Rejection> {
        self.use_offer(run);
        let claim = in_time(self.port.claim(run, step, command)).await?;
        self.account.lock().hand.claimed(&claim, Instant::now());
        self.state_capacity();
        Ok(claim)
    }

    /// Ends a Run that has claimed nothing, because there was nothing or the worker declines it.
    ///
    /// # Errors
    /// As the scheduler's.
    pub(super) async fn leave(
        &self,
        run: &RunOffer,
        declined: Option<ReasonInput>,
    ) -> Result<Recorded, Rejection> {
        self.touch();
        let answer = in_time(self.port.leave(run, declined, None)).await;
        if !answer.as_ref().is_err_and(|refused| refused.code.is_retryable()) {
            self.let_go(run.run_id);
        }
        answer
    }

    /// Does nothing more with a Run: the scheduler offers it again after a lease.
    pub(super) fn let_go(&self, run: RunId) {
        self.account.lock().hand.end_offer(run);
        self.touch();
    }

    fn use_offer(&self, run: &RunOffer) {
        self.account.lock().hand.use_offer(run.run_id, Instant::now());
        self.touch();
    }
}

/// Whether a report with this status is the last one of its Attempt.
fn ends_attempt(status: StepStatus) -> bool {
    status.is_settled() || status == StepStatus::Blocked
}

/// Waits for an answer of the scheduler, for [`ANSWER`] at most.
pub(super) async fn in_time<T>(
    answer: impl Future<Output = Result<T, Rejection>>,
) -> Result<T, Rejection> {
    let waited = timeout(ANSWER, answer).await;
    waited.unwrap_or_else(|_| Err(Rejection::in_doubt("the scheduler has not answered in time")))
}

#[cfg(test)]
mod tests;
