//! Pools: where ready Steps meet workers that asked for work.
//!
//! A pool is an in-memory queue derived from the log, never stored. Workers state credits
//! (absolute numbers, so a lost or doubled message does no harm); Tasks state how many ready Steps
//! they have. The pool's actor pairs the two and sends credits to Tasks, which claim. A Task that
//! is deciding may also reserve credits for Steps it is just making ready, but only if no older
//! ready Step waits: otherwise fan-outs would be served one returned credit at a time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tenure_core::eligibility::PoolFacts;
use tenure_core::id::{AgentId, HandlerName, PoolId};
use tenure_ports::bus::{Credit, Delivery};
use tenure_ports::journal::TaskKey;
use tokio::sync::mpsc::UnboundedSender;

use crate::task::Msg as TaskMsg;

/// A worker as the scheduler knows it.
#[derive(Debug)]
pub struct Worker {
    /// Boot-unique principal.
    pub id: AgentId,
    /// Its pool.
    pub pool: PoolId,
    /// What it can run; none: everything.
    pub handlers: Option<Vec<HandlerName>>,
    /// Its inbox. Unbounded, yet it never holds more than the worker's credits and the signals on
    /// the Attempts they became.
    pub(crate) inbox: UnboundedSender<Delivery>,
}

#[derive(Debug)]
struct Member {
    worker: Arc<Worker>,
    credit: Credit,
    sent: u64,
}

impl Member {
    fn left(&self) -> u64 {
        (self.credit.free + self.credit.seen).saturating_sub(self.sent)
    }
}

#[derive(Debug)]
struct Waiting {
    task: ActorRef<TaskMsg>,
    priority: i32,
    ready: usize,
}

#[derive(Debug, Default)]
struct State {
    members: Vec<Member>,
    next_member: usize,
    /// Tasks with ready Steps, round robin within a priority, higher first (P16).
    queue: BTreeMap<Reverse<i32>, VecDeque<TaskKey>>,
    waiting: HashMap<TaskKey, Waiting>,
}

/// A pool of one node.
#[derive(Debug)]
pub(crate) struct Pool {
    id: PoolId,
    state: Mutex<State>,
}

/// Credits handed to a Task.
pub(crate) type Credits = Vec<(Arc<Worker>, u64)>;

impl Pool {
    pub(crate) fn new(id: PoolId) -> Self {
        Self { id, state: Mutex::new(State::default()) }
    }

    pub(crate) fn join(&self, worker: Arc<Worker>) {
        let credit = Credit { free: 0, seen: 0 };
        self.state.lock().members.push(Member { worker, credit, sent: 0 });
    }

    pub(crate) fn leave(&self, worker: &AgentId) {
        self.state.lock().members.retain(|m| m.worker.id != *worker);
    }

    /// Notes what a worker says of its room, and answers whether somebody waits for it.
    pub(crate) fn note_credit(&self, worker: &AgentId, credit: Credit) -> bool {
        let mut state = self.state.lock();
        let member = state.members.iter_mut().find(|m| m.worker.id == *worker);
        if let Some(member) = member.filter(|m| credit.seen >= m.credit.seen) {
            member.credit = credit;
        }
        !state.waiting.is_empty()
    }

    /// Credits for Steps that a Task is just making ready: only if no older ready Step waits.
    pub(crate) fn try_reserve(&self, key: &TaskKey, steps: usize) -> Credits {
        let mut state = self.state.lock();
        let others_wait = state.waiting.keys().any(|waiting| waiting != key);
        if others_wait || state.waiting.contains_key(key) { Vec::new() } else { state.take(steps) }
    }

    /// Credits that a Task could not use.
    pub(crate) fn give_back(&self, worker: &AgentId, credits: u64) {
        let mut state = self.state.lock();
        if let Some(member) = state.members.iter_mut().find(|m| m.worker.id == *worker) {
            member.sent = member.sent.saturating_sub(credits);
        }
    }

    /// Workers and free room, for `explain`.
    pub(crate) fn facts(&self) -> PoolFacts {
        let state = self.state.lock();
        let free = state.members.iter().map(Member::left).sum::<u64>();
        PoolFacts {
            workers: u32::try_from(state.members.len()).unwrap_or(u32::MAX),
            free: u32::try_from(free).unwrap_or(u32::MAX),
        }
    }
}

impl State {
    /// Takes up to `wanted` credits, spread over the workers that have some.
    fn take(&mut self, wanted: usize) -> Credits {
        let mut left = wanted as u64;
        let mut out = Vec::new();
        for _ in 0..self.members.len() {
            if left == 0 {
                break;
            }
            self.next_member = (self.next_member + 1) % self.members.len();
            let member = &mut self.members[self.next_member];
            let credits = member.left().min(left);
            if credits > 0 {
                member.sent += credits;
                left -= credits;
                out.push((Arc::clone(&member.worker), credits));
            }
        }
        out
    }

    fn has_credit(&self) -> bool {
        self.members.iter().any(|m| m.left() > 0)
    }

    fn enqueue(&mut self, key: TaskKey, waiting: Waiting) {
        if waiting.ready == 0 {
            self.waiting.remove(&key);
            return;
        }
        let lane = Reverse(waiting.priority);
        if self.waiting.insert(key.clone(), waiting).is_none() {
            self.queue.entry(lane).or_default().push_back(key);
        }
    }

    /// The next Task in turn with its share: an equal part of the credits, so that no Task waits
    /// for another's whole backlog, yet a lone Task gets all at once.
    fn next_share(&mut self) -> Option<(TaskKey, ActorRef<TaskMsg>, Credits)> {
        loop {
            let mut lane = self.queue.first_entry()?;
            let Some(key) = lane.get_mut().pop_front() else {
                lane.remove();
                continue;
            };
            let in_lane = lane.get().len() + 1;
            let Some(waiting) = self.waiting.get(&key) else { continue };
            let (task, ready) = (waiting.task.clone(), waiting.ready);
            let all = self.members.iter().map(Member::left).sum::<u64>();
            let share = usize::try_from(all).unwrap_or(usize::MAX).div_ceil(in_lane).clamp(1, ready);
            let credits = self.take(share);
            let given: u64 = credits.iter().map(|(_, n)| n).sum();
            self.keep_turn(key.clone(), ready - usize::try_from(given).unwrap_or(ready));
            return Some((key, task, credits));
        }
    }

    fn keep_turn(&mut self, key: TaskKey, ready: usize) {
        if ready == 0 {
            self.waiting.remove(&key);
        } else if let Some(waiting) = self.waiting.get_mut(&key) {
            waiting.ready = ready;
            self.queue.entry(Reverse(waiting.priority)).or_default().push_back(key);
        }
    }
}

/// What a pool's actor is told.
#[derive(Debug)]
pub(crate) enum Msg {
    /// A Task has so many ready Steps for this pool that it has no credit for.
    Ready { key: TaskKey, task: ActorRef<TaskMsg>, priority: i32, ready: usize },
    /// Somebody has room, or a Task gave credits back.
    Match,
}


/// Pairs ready Steps with credits.
pub(crate) struct PoolActor;

impl Actor for PoolActor {
    type Msg = Msg;
    type State = Arc<Pool>;
    type Arguments = Arc<Pool>;

    async fn pre_start(&self, _: ActorRef<Msg>, pool: Arc<Pool>) -> Result<Arc<Pool>, ActorProcessingErr> {
        tracing::debug!(pool = %pool.id, "pool is open");
        Ok(pool)
    }

    async fn handle(
        &self,
        _: ActorRef<Msg>,
        msg: Msg,
        pool: &mut Arc<Pool>,
    ) -> Result<(), ActorProcessingErr> {
        if let Msg::Ready { key, task, priority, ready } = msg {
            pool.state.lock().enqueue(key, Waiting { task, priority, ready });
        }
        pool.pump();
        Ok(())
    }
}

impl Pool {
    /// Hands out credits as long as there are any and somebody waits. Exactly one credit wakes for
    /// each ready Step.
    fn pump(&self) {
        loop {
            let share = {
                let mut state = self.state.lock();
                if !state.has_credit() {
                    return;
                }
                state.next_share()
            };
            let Some((key, task, credits)) = share else { return };
            let back: Vec<_> = credits.iter().map(|(w, n)| (w.id.clone(), *n)).collect();
            if task.cast(TaskMsg::Credits(credits)).is_err() {
                self.state.lock().waiting.remove(&key); // The Task has gone: its entry goes whole.
                back.iter().for_each(|(worker, n)| self.give_back(worker, *n));
            }
        }
    }
}
