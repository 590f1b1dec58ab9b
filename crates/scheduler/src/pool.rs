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
    /// Workers that none of its ready Steps fits; forgotten when it has new ones.
    unfit: Vec<AgentId>,
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
        if others_wait || state.waiting.contains_key(key) {
            Vec::new()
        } else {
            state.take(steps, &[])
        }
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
    fn take(&mut self, wanted: usize, unfit: &[AgentId]) -> Credits {
        let mut left = wanted as u64;
        let mut out = Vec::new();
        for _ in 0..self.members.len() {
            if left == 0 {
                break;
            }
            self.next_member = (self.next_member + 1) % self.members.len();
            let member = &mut self.members[self.next_member];
            let credits = member.left().min(left);
            if credits > 0 && !unfit.contains(&member.worker.id) {
                member.sent += credits;
                left -= credits;
                out.push((Arc::clone(&member.worker), credits));
            }
        }
        out
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

    /// The next Task in turn that has a worker, with its share: an equal part of the credits, so
    /// that no Task waits for another's whole backlog, yet a lone Task gets all at once.
    fn next_share(&mut self) -> Option<(TaskKey, ActorRef<TaskMsg>, Credits)> {
        let all = self.members.iter().map(Member::left).sum::<u64>();
        if all == 0 {
            return None;
        }
        let lanes: Vec<Reverse<i32>> = self.queue.keys().copied().collect();
        lanes.into_iter().find_map(|lane| self.next_in(lane, all))
    }

    fn next_in(
        &mut self,
        lane: Reverse<i32>,
        all: u64,
    ) -> Option<(TaskKey, ActorRef<TaskMsg>, Credits)> {
        let turns = self.queue.get(&lane).map_or(0, VecDeque::len);
        for _ in 0..turns {
            let queue = self.queue.get_mut(&lane)?;
            let key = queue.pop_front()?;
            let in_lane = queue.len() + 1;
            let Some(waiting) = self.waiting.get_mut(&key) else { continue };
            let (task, ready) = (waiting.task.clone(), waiting.ready);
            let unfit = std::mem::take(&mut waiting.unfit);
            let share =
                usize::try_from(all).unwrap_or(usize::MAX).div_ceil(in_lane).clamp(1, ready);
            let credits = self.take(share, &unfit);
            if let Some(waiting) = self.waiting.get_mut(&key) {
                waiting.unfit = unfit;
            }
            let given: u64 = credits.iter().map(|(_, n)| n).sum();
            self.keep_turn(key.clone(), ready - usize::try_from(given).unwrap_or(ready));
            if given > 0 {
                return Some((key, task, credits));
            }
        }
        self.queue.retain(|_, queue| !queue.is_empty());
        None
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
    /// None of a Task's ready Steps fits this worker; `ready` are left for others.
    Returned {
        key: TaskKey,
        task: ActorRef<TaskMsg>,
        priority: i32,
        ready: usize,
        worker: AgentId,
        credits: u64,
    },
    /// Somebody has room.
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
            Msg::Ready { key, task, priority, ready } => {
                let unfit = Vec::new();
                pool.state.lock().enqueue(key, Waiting { task, priority, ready, unfit });
            }
            Msg::Returned { key, task, priority, ready, worker, credits } => {
                pool.give_back(&worker, credits);
                let mut state = pool.state.lock();
                let known = state.waiting.get_mut(&key).map(|w| std::mem::take(&mut w.unfit));
                let mut unfit = known.unwrap_or_default();
                unfit.push(worker);
                state.enqueue(key, Waiting { task, priority, ready, unfit });
            }
            Msg::Match => {}
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
            let share = self.state.lock().next_share();
            let Some((key, task, credits)) = share else { return };
            let back: Vec<_> = credits.iter().map(|(w, n)| (w.id.clone(), *n)).collect();
            if task.cast(TaskMsg::Credits(credits)).is_err() {
                self.state.lock().waiting.remove(&key); // The Task has gone: its entry goes whole.
                back.iter().for_each(|(worker, n)| self.give_back(worker, *n));
            }
        }
    }
}
