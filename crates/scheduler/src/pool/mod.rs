//! Pools: where ready Steps meet workers that asked for work.
//!
//! A pool is an in-memory queue derived from the log, and never stored. Workers state credits (absolute numbers, so a
//! lost or doubled message does no harm); Tasks state how many ready Steps they have. The pool's actor pairs the two
//! and sends credits to Tasks, which claim. A Task that is deciding may also reserve credits for its ready Steps, but
//! only if no other Task has the turn: otherwise a Task with many ready Steps would get one credit at a time, as each
//! comes back. Step 5 of the walk in docs/architecture.md.

mod groups;
mod idle;
mod isolation;
mod left;
mod members;
mod sample;
mod suspended;
mod turns;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::channel::mpsc::UnboundedSender;
use parking_lot::Mutex;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tenure_core::Rejection;
use tenure_core::id::{AgentId, HandlerName, Millis, PoolId, SessionId, StepId, TaskId};
use tenure_core::record::WorkerOrigin;
use tenure_core::sessions::WorkerSessions;
use tenure_core::suspension::AttemptRecords;
use tenure_ports::bus::{Credit, Delivery};
use tenure_ports::journal::TaskKey;
use tokio::time::Instant;

use self::groups::{too_many_groups, too_many_lists};
pub(crate) use self::isolation::{IsolationPermit, Reservation};
pub(crate) use self::left::Left;
use self::members::Members;
pub(crate) use self::sample::PoolWorkers;
use self::turns::Turns;
use crate::count::{Hand, Turnover};
use crate::task::Msg as TaskMsg;

/// How long the pool's actor rests between two looks at Tasks that each need one of their own: they take a small part
/// of its time, however many they are.
const LOOKS_AGAIN: Duration = Duration::from_millis(1);

/// A worker as the scheduler knows it.
#[derive(Debug)]
pub struct Worker {
    /// Boot-unique principal.
    pub id: AgentId,
    /// Its pool.
    pub pool: PoolId,
    /// Where it runs and what it is, if it said so (ATT-12).
    pub(crate) origin: Option<Arc<WorkerOrigin>>,
    /// The handlers that the worker has; none: it can run every Step.
    pub handlers: Option<Vec<HandlerName>>,
    /// The sessions that it serves (DISP-20).
    pub sessions: WorkerSessions,
    /// Its inbox. It is unbounded, but never holds more than one grant or offer for each of the
    /// worker's credits, and the signals on the Attempts that these became.
    pub(crate) inbox: UnboundedSender<Delivery>,
    /// The worker's work in hand.
    pub(crate) hand: Arc<Hand>,
}

/// A Step that waits for a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingStep {
    /// Its Task.
    pub task_id: TaskId,
    /// Its id.
    pub step_id: StepId,
    /// Since when it has been ready.
    pub since: Millis,
}

#[derive(Debug)]
struct PoolState {
    members: Members,
    turns: Turns,
    records: AttemptRecords,
    /// Since when the pool has been idle, as far as it was looked at.
    idle_since: Option<Instant>,
    /// Whether it ever had a worker.
    was_joined: bool,
}

/// A pool of one node.
#[derive(Debug)]
pub(crate) struct Pool {
    id: PoolId,
    state: Mutex<PoolState>,
    /// Its actor has been told to match, and has not done so yet.
    told: AtomicBool,
    /// It is woken soon for Tasks that its last pass did not look at.
    looks_soon: AtomicBool,
    /// How many messages its actor has not handled yet.
    untaken: AtomicU64,
    /// There are records of Attempts that failed. Without any, an Attempt that completes need not
    /// be noted (DISP-19).
    has_records: AtomicBool,
    actor: OnceLock<ActorRef<Msg>>,
    turnover: Arc<Turnover>,
}

/// Credits of a worker that are lent to a Task. Dropping this gives back what was not spent,
/// wherever that happens, even in the queue of an actor that stops.
#[derive(Debug)]
pub(crate) struct CreditPermit {
    pool: Arc<Pool>,
    pub(crate) worker: Arc<Worker>,
    credits: u64,
    /// The worker's place for a Step that was lost before, if this has it.
    isolation: Option<IsolationPermit>,
    /// This wanted that place, and another Step had it.
    wants_place: bool,
}

/// Credits lent to a Task.
pub(crate) type Credits = Vec<CreditPermit>;

impl CreditPermit {
    fn of(pool: &Arc<Pool>, worker: Arc<Worker>, credits: u64) -> Self {
        Self { pool: Arc::clone(pool), worker, credits, isolation: None, wants_place: false }
    }

    /// For how many Steps it is good.
    pub(crate) fn credits(&self) -> u64 {
        self.credits
    }

    /// Splits off one credit.
    pub(crate) fn take_one(&mut self) -> Option<Self> {
        self.credits = self.credits.checked_sub(1)?;
        Some(Self::of(&self.pool, Arc::clone(&self.worker), 1))
    }

    /// Takes the worker's place for a Step that was lost before. Answers whether this has it.
    pub(crate) fn take_isolation(&mut self) -> bool {
        if self.isolation.is_none() {
            self.isolation = IsolationPermit::try_take(&self.pool, &self.worker);
            self.wants_place = self.isolation.is_none();
        }
        self.is_isolated()
    }

    /// Another credit of the same worker found its place taken: nothing of this Task fits until the
    /// place is free.
    pub(crate) fn wants_place_as(&mut self, other: &Self) {
        self.wants_place |= other.wants_place;
    }

    /// Whether the place that was missing is free now.
    fn has_its_place_now(&self) -> bool {
        self.wants_place && !self.worker.hand.is_isolating()
    }

    /// Whether it has the worker's place, and so is for a Step that was lost before.
    pub(crate) fn is_isolated(&self) -> bool {
        self.isolation.is_some()
    }

    /// Gives up the place to the caller, which holds it for as long as the worker has the Step.
    pub(crate) fn hand_over_isolation(&mut self) -> Option<IsolationPermit> {
        self.isolation.take()
    }

    /// The worker was sent its Step, and will state its credits anew.
    pub(crate) fn spend(mut self) {
        self.credits = 0;
    }
}

impl Drop for CreditPermit {
    fn drop(&mut self) {
        if self.credits > 0 {
            self.pool.give_back(&self.worker, self.credits);
            self.pool.wake();
        }
    }
}

impl Pool {
    pub(crate) fn new(id: PoolId) -> Self {
        let (members, records) = (Members::default(), AttemptRecords::default());
        let turns = Turns::new();
        let state = PoolState { members, turns, records, idle_since: None, was_joined: false };
        let [told, looks_soon, has_records] = [(); 3].map(|()| AtomicBool::new(false));
        let (state, actor) = (Mutex::new(state), OnceLock::new());
        let (untaken, turnover) = Default::default();
        Self { id, state, told, looks_soon, untaken, has_records, actor, turnover }
    }

    /// How many Attempts of the pool's workers are open and have ended.
    pub(crate) fn turnover(&self) -> &Arc<Turnover> {
        &self.turnover
    }

    /// Sets the actor that pairs Steps with credits.
    pub(crate) fn served_by(&self, actor: ActorRef<Msg>) {
        let _ = self.actor.set(actor); // There is one for the life of the node.
    }

    pub(crate) fn tell(&self, msg: Msg) {
        let Some(actor) = self.actor.get() else { return };
        self.untaken.fetch_add(1, Ordering::AcqRel);
        if actor.cast(msg).is_err() {
            self.untaken.fetch_sub(1, Ordering::AcqRel); // The node is stopping, or the pool is closed.
        }
    }

    /// Has the actor match, if a Task waits and the actor has not been told yet.
    pub(crate) fn wake(&self) {
        let is_awaited = {
            let PoolState { members, turns, .. } = &mut *self.state.lock();
            turns.has_next(members)
        };
        if is_awaited && !self.told.swap(true, Ordering::AcqRel) {
            self.tell(Msg::Match);
        }
    }

    /// Adds a link of a worker.
    ///
    /// # Errors
    /// `unavailable`: its workers, or those of one principal, have too many different lists of sessions.
    pub(crate) fn join(&self, worker: Arc<Worker>) -> Result<(), Rejection> {
        let mut state = self.state.lock();
        let id = worker.id.clone();
        let is_known = state.members.has_group(&worker.sessions);
        let wait = state.turns.regroups_after(state.members.known_sessions(), Instant::now());
        if let Some(wait) = wait.filter(|_| !is_known) {
            return Err(too_many_lists(&self.id, wait));
        }
        let joined = state.members.join(worker);
        let is_new = joined.map_err(|why| too_many_groups(&self.id, &id, &why))?;
        state.was_joined = true;
        let PoolState { members, turns, .. } = &mut *state;
        if is_new {
            turns.regroup(members);
        }
        turns.may_fit(&id);
        state.trust_who_is_needed(&self.id);
        Ok(())
    }

    pub(crate) fn leave(&self, worker: &Worker) {
        let mut state = self.state.lock();
        state.members.leave(worker);
        state.note_left(&self.id, &worker.id);
        let is_unfit = state.turns.is_unfit_for_some(&worker.id);
        if is_unfit && state.members.links_of(&worker.id).is_empty() {
            state.turns.may_fit(&worker.id); // A worker that comes again has another name.
        }
        drop(state);
        self.wake(); // A suspended worker may be needed now.
    }

    /// Notes what a worker states of its capacity, without waking the actor: a Task that is about
    /// to decide this worker's report may use it first.
    pub(crate) fn note_credit(&self, worker: &Worker, credit: Credit) {
        self.state.lock().members.note(worker, credit);
    }

    /// Credits for ready Steps of a Task that is deciding: only if no other Task has the turn.
    pub(crate) fn try_reserve(self: &Arc<Self>, key: &TaskKey, steps: usize) -> Credits {
        let taken = {
            let PoolState { members, turns, .. } = &mut *self.state.lock();
            turns.serve_at_once(key, steps, members)
        };
        self.lend(taken)
    }

    /// A worker that did not suit some Steps may suit them now.
    fn suits_again(&self, worker: &Worker) {
        self.state.lock().turns.may_fit(&worker.id);
        self.wake();
    }

    fn lend(self: &Arc<Self>, taken: Vec<(Arc<Worker>, u64)>) -> Credits {
        taken.into_iter().map(|(worker, credits)| CreditPermit::of(self, worker, credits)).collect()
    }

    /// Charges a worker for a Step that it may not have asked for.
    pub(crate) fn charge(&self, worker: &Worker) {
        self.state.lock().members.charge(worker);
    }

    /// Gives credits back to the very link that they were taken from: on another link they were
    /// never spent.
    pub(crate) fn give_back(&self, worker: &Worker, credits: u64) {
        self.state.lock().members.give_back(worker, credits);
    }

    /// How many Steps and Runs wait for workers that have a link here and no free capacity; none if no Step
    /// does. Workers without a link would hear of it in vain.
    pub(crate) fn hunger(&self) -> Option<u64> {
        let PoolState { members, turns, .. } = &*self.state.lock();
        let waits = turns.waiting_for_credits(members.manned(), members.open());
        (waits > 0).then_some(waits)
    }

    /// The Step of a session that has waited longest of those next in line, and since when.
    pub(crate) fn waits_longest(&self, session: &SessionId) -> Option<WaitingStep> {
        let state = self.state.lock();
        let (key, (since, step)) = state.turns.oldest(|key| key.session_id == *session)?;
        let (task_id, step_id) = (key.task_id.clone(), step.clone());
        Some(WaitingStep { task_id, step_id, since: *since })
    }

    /// How many Steps a worker would take now.
    pub(crate) fn free_of(&self, worker: &Worker) -> u64 {
        self.state.lock().members.left(worker)
    }

    /// How many credits of a worker were spent or are lent, and how many it has said to have seen.
    pub(crate) fn sent_and_seen(&self, worker: &Worker) -> (u64, u64) {
        self.state.lock().members.sent_and_seen(worker)
    }

    /// How many workers there are, and how many Steps they would take now.
    pub(crate) fn workers_and_free(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.members.count(), state.members.free())
    }
}

/// A message to a pool's actor.
#[derive(Debug)]
pub(crate) enum Msg {
    /// A Task has ready Steps for this pool that it has no credit for.
    Ready(TaskKey, Left),
    /// None of a Task's ready Steps fits the worker of this permit; they are left for other
    /// workers.
    Unfit(TaskKey, Left, CreditPermit),
    /// A worker may have capacity.
    Match,
}

/// Pairs ready Steps with credits.
pub(crate) struct PoolActor;

impl Actor for PoolActor {
    type Msg = Msg;
    type State = Arc<Pool>;
    type Arguments = Arc<Pool>;

    async fn pre_start(
        &self,
        _: ActorRef<Msg>,
        pool: Arc<Pool>,
    ) -> Result<Arc<Pool>, ActorProcessingErr> {
        tracing::debug!(pool = %pool.id, "pool is open");
        Ok(pool)
    }

    async fn handle(
        &self,
        _: ActorRef<Msg>,
        msg: Msg,
        pool: &mut Arc<Pool>,
    ) -> Result<(), ActorProcessingErr> {
        match msg {
            Msg::Ready(key, left) => {
                let PoolState { members, turns, .. } = &mut *pool.state.lock();
                turns.put(key, left, members);
            }
            // The permit goes back at the end of this arm, after it is noted that the worker does
            // not fit.
            Msg::Unfit(key, left, ref permit) => {
                let PoolState { members, turns, .. } = &mut *pool.state.lock();
                match permit.has_its_place_now() {
                    // Freeing the place notified nobody, as it was not noted yet that this Task
                    // wanted it.
                    true => turns.put(key, left, members),
                    false if !members.has(&permit.worker) => turns.put_back(key, left, members),
                    false => turns.put_unfit(key, left, &permit.worker.id, members),
                }
            }
            Msg::Match => pool.told.store(false, Ordering::Release),
        }
        pool.pump();
        pool.untaken.fetch_sub(1, Ordering::AcqRel); // Now what it said is known.
        Ok(())
    }
}

impl Pool {
    /// Lends credits as long as there are any and a Task waits: exactly one credit for each ready
    /// Step.
    fn pump(self: &Arc<Self>) {
        loop {
            let (served, is_to_look) = {
                let PoolState { members, turns, .. } = &mut *self.state.lock();
                (turns.serve(members), turns.is_to_look(members))
            };
            let Some((key, task, taken)) = served else {
                if is_to_look {
                    self.look_soon();
                }
                return;
            };
            if task.cast(TaskMsg::Credits(self.lend(taken))).is_err() {
                // The Task has left its address; its credits are back.
                self.state.lock().turns.remove(&key);
            }
        }
    }

    /// Has the actor look at more Tasks in a while.
    fn look_soon(self: &Arc<Self>) {
        if self.looks_soon.swap(true, Ordering::AcqRel) {
            return;
        }
        let pool = Arc::downgrade(self);
        tokio::spawn(async move {
            tokio::time::sleep(LOOKS_AGAIN).await;
            if let Some(pool) = pool.upgrade() {
                pool.looks_soon.store(false, Ordering::Release);
                pool.wake();
            }
        });
    }
}
