//! What all actors of a node share: its ports, pools, Tasks, workers and settings. The handle and
//! every actor hold one [`NodeShared`].

mod pools;
mod signals;

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::channel::mpsc::TrySendError;
use parking_lot::{Mutex, RwLock};
use ractor::{ActorCell, ActorRef, ActorRuntime};
use tenure_core::Limits;
use tenure_core::features::EDITION_2;
use tenure_core::id::{AgentId, AttemptId, BlobHash, Millis, PoolId, Ref, SessionId};
use tenure_core::view::{RuntimeEvent, View};
use tenure_core::{Code, Commit, Counts, Rejection, Task};
use tenure_ports::bus::Delivery;
use tenure_ports::journal::TaskKey;
use tenure_ports::map::IdMap;
use tenure_ports::{Journal, Leases};
use tenure_wire::bus::worker::LateInput;
use tokio::runtime::Handle;
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;

use crate::blobs::BlobsTaken;
use crate::cache::TaskCache;
use crate::client::reads::EncodedCommit;
use crate::clock::Clock;
use crate::config::{Config, EVENTS_KEPT, RUNTIME_KEPT};
use crate::count::{Hand, Hands, NodeCounters, WaitTotals};
use crate::directory::Directory;
use crate::failed::FailedSteps;
use crate::follow::FollowedTask;
use crate::gaps::TaskGaps;
use crate::health::NodeHealth;
use crate::held::HeldReads;
use crate::leases::GatheredLeases;
use crate::live::LiveTasks;
use crate::peers::Peers;
use crate::pool::{Pool, WaitingStep, Worker};
use crate::pool_names::PoolNames;
use crate::renewed::RenewedAttempts;
use crate::rounds::AppendsInFlight;
use crate::task::Begin;
use crate::task::address::{ActorMessage, Address};
use crate::task::host::TaskActor;
use crate::task::waiters::WaiterCounts;
pub(crate) use pools::TaskWorkers;
use signals::WaitingSignals;

/// A durable commit, for those who subscribed.
#[derive(Debug, Clone)]
pub struct Appended {
    /// Its Task.
    pub task: TaskKey,
    /// The commit.
    pub commit: Arc<Commit>,
}

/// The workers of a node.
#[derive(Debug, Default)]
struct Workers {
    /// The connected workers, each with its current link.
    joined: IdMap<AgentId, Arc<Worker>>,
    /// Signals for workers without a link.
    signals: WaitingSignals,
}

impl Workers {
    /// Sends a delivery to a worker, and gives it back if it cannot be sent now.
    fn tell(&self, id: &AgentId, what: Delivery) -> Result<(), Delivery> {
        match self.joined.get(id) {
            Some(worker) => worker.inbox.unbounded_send(what).map_err(TrySendError::into_inner),
            None => Err(what),
        }
    }
}

/// The partitions of a node.
#[derive(Debug, Default)]
struct PartitionTable {
    all: Vec<PartitionActors>,
    /// How many actors of all partitions are busy with no Task.
    free: usize,
}

/// A partition's actors.
#[derive(Debug)]
struct PartitionActors {
    supervisor: ActorCell,
    /// Task actors that are busy with no Task.
    free: Vec<ActorRef<ActorMessage>>,
}

/// How many idle actors a node keeps at most, some 6 KB each.
const FREE_MAX: usize = 1_024;

/// How many idle actors a partition may keep, however many the others have.
const FREE_MIN: usize = 64;

/// How many entries of a Task's `input_refs` an Attempt is sent at a time.
pub(crate) const INPUTS_AT_ONCE: usize = 100;

/// For how long appends carry no claims after leases were slow.
const SLOW_FOR_MS: Millis = 1_000;

/// The shared parts of a node.
#[derive(Debug)]
pub(crate) struct NodeShared<J, L> {
    pub(crate) journal: Arc<J>,
    pub(crate) leases: Arc<L>,
    pub(crate) config: Config,
    /// The limits for logs that may hold only what the first edition has (EVOLVE-02).
    first_limits: Limits,
    pub(crate) gathered_leases: Mutex<GatheredLeases>,
    pub(crate) clock: Clock,
    pub(crate) directory: Directory,
    pub(crate) totals: NodeCounters,
    pub(crate) live: Arc<LiveTasks>,
    pub(crate) waits: Arc<WaitTotals>,
    /// How many callers wait for the end of a Task or of a Run.
    pub(crate) waiters: WaiterCounts,
    /// Readers of logs that wait for more.
    pub(crate) held: HeldReads,
    /// Whose Attempts were renewed here.
    pub(crate) renewed: RenewedAttempts,
    pub(crate) rounds: AppendsInFlight,
    pub(crate) heard: NodeHealth,
    /// What the log says of Steps that failed.
    pub(crate) failed: FailedSteps,
    pub(crate) gaps: TaskGaps,
    /// Ended Tasks that a caller has asked for.
    pub(crate) ended: TaskCache<TaskKey, Box<Task>>,
    /// For readers of public events page by page: the state from which the next page is made, by
    /// the event behind which that page begins.
    pub(crate) told: TaskCache<(TaskKey, u64), FollowedTask>,
    /// Commits that are sent in parts, by the event behind which they begin.
    pub(crate) long: TaskCache<(TaskKey, u64), EncodedCommit>,
    /// Blobs that are read in parts.
    pub(crate) read_blobs: TaskCache<(TaskKey, BlobHash), Arc<[u8]>>,
    /// Blobs that come in parts.
    pub(crate) taken_blobs: BlobsTaken,
    hands: Mutex<Hands>,
    pools: RwLock<IdMap<PoolId, Arc<Pool>>>,
    /// The pools that live Tasks name.
    pub(crate) pool_names: Arc<PoolNames>,
    workers: RwLock<Workers>,
    partitions: Mutex<PartitionTable>,
    supervisor: Mutex<Option<ActorCell>>,
    events: broadcast::Sender<Appended>,
    runtime_events: broadcast::Sender<RuntimeEvent>,
    peers: OnceLock<Box<dyn Peers>>,
    /// Why the last append failed, until one succeeds.
    trouble: watch::Sender<Option<Arc<str>>>,
    /// The runtime on which the node was started. Actors run there, whichever thread starts them.
    runtime: Handle,
    /// Until this moment of the steady line appends carry no claims, as their leases would delay
    /// them.
    leases_slow_until: AtomicI64,
}

impl<J: Journal, L: Leases> NodeShared<J, L> {
    pub(crate) fn new(journal: Arc<J>, leases: Arc<L>, config: Config) -> Self {
        let live = LiveTasks::new(config.live);
        let waits = Arc::new(WaitTotals::of(config.partitions));
        Self {
            journal,
            leases,
            gathered_leases: Mutex::default(),
            clock: Clock::new(Arc::clone(&config.machine)),
            first_limits: config.limits.clone().of_first_edition(),
            config,
            directory: Directory::new(),
            totals: NodeCounters::default(),
            live,
            waits,
            waiters: WaiterCounts::default(),
            held: HeldReads::default(),
            renewed: RenewedAttempts::default(),
            rounds: AppendsInFlight::default(),
            heard: NodeHealth::default(),
            failed: FailedSteps::default(),
            gaps: TaskGaps::default(),
            ended: TaskCache::default(),
            told: TaskCache::default(),
            long: TaskCache::default(),
            read_blobs: TaskCache::default(),
            taken_blobs: BlobsTaken::default(),
            hands: Mutex::default(),
            pools: RwLock::default(),
            pool_names: Arc::default(),
            workers: RwLock::default(),
            partitions: Mutex::default(),
            supervisor: Mutex::default(),
            events: broadcast::Sender::new(EVENTS_KEPT),
            runtime_events: broadcast::Sender::new(RUNTIME_KEPT),
            peers: OnceLock::new(),
            trouble: watch::Sender::new(None),
            runtime: Handle::current(),
            leases_slow_until: AtomicI64::default(),
        }
    }

    /// Sets the supervisors of Tasks and pools.
    pub(crate) fn supervise(&self, supervisor: ActorCell, partitions: Vec<ActorCell>) {
        *self.supervisor.lock() = Some(supervisor);
        let partition = |supervisor| PartitionActors { supervisor, free: Vec::new() };
        self.partitions.lock().all = partitions.into_iter().map(partition).collect();
    }

    /// The address of the Task. If the Task is not on this node yet, an actor reads it from its log
    /// or makes it.
    pub(crate) fn task(
        self: &Arc<Self>,
        key: &TaskKey,
        begin: Begin,
    ) -> Result<Address, Rejection> {
        if self.journal.epoch(key).is_none() {
            return Err(not_owner(key));
        }
        self.directory.get_or(key, || {
            loop {
                // A free actor may have ended just now; there are others.
                let address = Address::begin(self.lend(key)?, key.clone(), begin);
                if let Some(address) = address {
                    return Ok(address);
                }
            }
        })
    }

    /// An actor for a Task: a free one, or a new one.
    pub(crate) fn lend(
        self: &Arc<Self>,
        key: &TaskKey,
    ) -> Result<ActorRef<ActorMessage>, Rejection> {
        let mut partitions = self.partitions.lock();
        let at = place(key, &partitions.all);
        let partition = partitions.all.get_mut(at).ok_or_else(|| stopped("the node"))?;
        if let Some(free) = partition.free.pop() {
            partitions.free -= 1;
            return Ok(free);
        }
        let supervisor = partition.supervisor.clone();
        drop(partitions);
        let _runtime = self.runtime.enter();
        let node = Arc::clone(self);
        ActorRuntime::spawn_linked_instant(None, TaskActor::new(), node, supervisor)
            .map(|(actor, _)| actor)
            .map_err(|error| stopped(&error.to_string()))
    }

    /// Takes back an actor that was busy with this Task and is free now.
    pub(crate) fn take_back(&self, key: &TaskKey, actor: &ActorRef<ActorMessage>) {
        let mut partitions = self.partitions.lock();
        let at = place(key, &partitions.all);
        let has_capacity = partitions.free < FREE_MAX;
        match partitions.all.get_mut(at) {
            Some(partition) if has_capacity || partition.free.len() < FREE_MIN => {
                partition.free.push(actor.clone());
                partitions.free += 1;
            }
            _ => {
                let _ = actor.drain(); // Never `stop`, which would drop what is queued.
            }
        }
    }

    /// The Step of this session that has waited longest, for each pool.
    pub(crate) fn longest_waits(&self, session: &SessionId) -> Vec<(PoolId, WaitingStep)> {
        let longest = |(id, pool): (PoolId, Arc<Pool>)| Some((id, pool.waits_longest(session)?));
        self.all_pools().into_iter().filter_map(longest).collect()
    }

    /// The work that a worker of a pool has in hand: one record for all links of a boot, opened if
    /// need be.
    pub(crate) fn hand(&self, worker: &AgentId, pool: &PoolId) -> Result<Arc<Hand>, Rejection> {
        // While the record has the pool's counts, the pool is not idle.
        let turnover = self.with_pool(pool, |pool| Arc::clone(pool.turnover()))?;
        Ok(self.hands.lock().of(worker, pool, turnover))
    }

    pub(crate) fn join(&self, worker: Arc<Worker>) -> Result<(), Rejection> {
        self.with_pool(&worker.pool, |pool| pool.join(Arc::clone(&worker)))??;
        {
            let mut workers = self.workers.write();
            workers.joined.insert(worker.id.clone(), Arc::clone(&worker));
            for what in workers.signals.take(&worker.id) {
                let _ = worker.inbox.unbounded_send(what); // The worker may be gone again.
            }
        }
        Ok(())
    }

    pub(crate) fn leave(&self, worker: &Worker) {
        {
            let mut workers = self.workers.write();
            // The worker may have joined anew, under the same name.
            if workers.joined.get(&worker.id).is_some_and(|it| std::ptr::eq(&**it, worker)) {
                workers.joined.remove(&worker.id);
            }
        }
        if let Some(pool) = self.pool_if_open(&worker.pool) {
            pool.leave(worker);
        }
    }

    pub(crate) fn worker(&self, id: &AgentId) -> Option<Arc<Worker>> {
        self.workers.read().joined.get(id).cloned()
    }

    /// Sends a worker a signal about an Attempt on its current link, which may not be the link on
    /// which it got the Attempt. A worker without a link gets the signal on its next one
    /// (CANCEL-07).
    pub(crate) fn signal(&self, worker: &AgentId, what: Delivery) {
        let told = self.workers.read().tell(worker, what);
        let Err(what) = told else { return };
        let mut workers = self.workers.write();
        let told = workers.tell(worker, what); // The worker may have joined just now.
        let Err(what) = told else { return };
        let until = Instant::now() + Duration::from_millis(self.config.limits.lease_ms);
        workers.signals.keep(worker, what, until);
    }

    /// Sends a worker that has a link what has come to a Task's `input_refs` (CTRL-12), as far as the worker may be
    /// sent more for now: the rest, and what is lost on the way, comes with its later heartbeats.
    pub(crate) fn send_input(
        &self,
        worker: &AgentId,
        attempt_id: AttemptId,
        after: u32,
        refs: &[Ref],
    ) {
        let refs = &refs[..refs.len().min(INPUTS_AT_ONCE)];
        let Some(worker) = self.worker(worker).filter(|_| !refs.is_empty()) else { return };
        if worker.hand.may_get(refs) {
            let input = LateInput { attempt_id, after, input_refs: refs.to_vec() };
            let _ = worker.inbox.unbounded_send(Delivery::Input(input.into())); // It may just have left.
        }
    }

    /// How many signals wait for workers that have no link.
    pub(crate) fn signals(&self) -> u64 {
        self.workers.read().signals.count() as u64
    }

    /// Drops signals for workers that have not come back within the time of a lease.
    pub(crate) fn forget_signals(&self) {
        if self.signals() > 0 {
            self.workers.write().signals.forget(Instant::now());
        }
    }

    /// The limits of a Task, by what its log may hold.
    pub(crate) fn limits_of(&self, key: &TaskKey) -> &Limits {
        self.limits(self.journal.may_hold(key, EDITION_2))
    }

    /// The limits of Tasks whose log may, or may not, hold what the second edition added.
    pub(crate) fn limits(&self, holds_edition_2: bool) -> &Limits {
        match holds_edition_2 {
            true => &self.config.limits,
            false => &self.first_limits,
        }
    }

    pub(crate) fn knows(&self, worker: &AgentId) -> bool {
        self.workers.read().joined.contains_key(worker)
    }

    /// Where the log of a Task is.
    pub(crate) fn wal_path(&self, task: &View<'_>) -> Option<String> {
        let spec = &task.head().spec;
        let (session_id, task_id) = (spec.session_id.clone(), spec.task_id.clone());
        self.journal.wal_path(&TaskKey { session_id, task_id }, &spec.wal_name)
    }

    /// Counts commits that are durable now, and sends them to the observer, to readers that wait, and to subscribers.
    pub(crate) fn publish_all(&self, key: &TaskKey, task: &Task, commits: &[Arc<Commit>]) {
        let mut counts = Counts::default();
        commits.iter().for_each(|commit| counts.note(commit));
        self.totals.add(counts);
        if let Some(observer) = &self.config.observer {
            observer.appended(task, commits);
        }
        self.failed.tell(key, task, commits);
        self.held.tell(key, task, commits);
        commits.iter().for_each(|commit| self.publish(key, commit));
    }

    fn publish(&self, key: &TaskKey, commit: &Arc<Commit>) {
        if self.events.receiver_count() > 0 {
            let appended = Appended { task: key.clone(), commit: Arc::clone(commit) };
            let _ = self.events.send(appended); // The last watcher may just have left.
        }
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Appended> {
        self.events.subscribe()
    }

    /// Sends an event that changes no Task, if anybody listens, and waits for nobody (EVENT-07).
    pub(crate) fn tell(&self, event: impl FnOnce() -> Option<RuntimeEvent>) {
        if self.runtime_events.receiver_count() > 0
            && let Some(event) = event()
        {
            let _ = self.runtime_events.send(event); // As above.
        }
    }

    pub(crate) fn runtime_events(&self) -> broadcast::Receiver<RuntimeEvent> {
        self.runtime_events.subscribe()
    }

    /// Notes whether the log could be written.
    pub(crate) fn note_append(&self, task: &TaskKey, failure: Option<String>) {
        self.note_log(task, failure.as_deref());
        self.trouble.send_if_modified(|trouble| {
            let is_news = failure.is_some() || trouble.is_some();
            *trouble = failure.map(Arc::from);
            is_news
        });
    }

    pub(crate) fn set_peers(&self, peers: Box<dyn Peers>) {
        let _ = self.peers.set(peers); // The peers are set once.
    }

    pub(crate) fn peers(&self) -> Option<&dyn Peers> {
        self.peers.get().map(|peers| &**peers)
    }

    /// Whether another node may have the Task: the way to ask the other nodes, unless this one owns
    /// it.
    pub(crate) fn is_elsewhere(&self, key: &TaskKey) -> Option<&dyn Peers> {
        self.peers().filter(|_| self.journal.epoch(key).is_none())
    }

    /// Notes that leases have delayed an append: for a while no append waits for leases.
    pub(crate) fn note_slow_leases(&self) {
        self.leases_slow_until.fetch_max(self.clock.passed() + SLOW_FOR_MS, Ordering::Relaxed);
    }

    pub(crate) fn are_leases_slow(&self) -> bool {
        self.clock.passed() < self.leases_slow_until.load(Ordering::Relaxed)
    }

    pub(crate) fn trouble(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.trouble.subscribe()
    }
}

/// Where a Task's partition is in the list.
fn place(key: &TaskKey, partitions: &[PartitionActors]) -> usize {
    key.partition(u32::try_from(partitions.len()).unwrap_or(u32::MAX)) as usize
}

/// `task_not_found`, for callers who may know which Tasks exist.
pub(crate) fn not_found(key: &TaskKey) -> Rejection {
    let message = format!("task {} does not exist in session {}", key.task_id, key.session_id);
    Rejection::new(Code::TaskNotFound, message).with("task_id", key.task_id.as_str())
}

/// `not_owner`: another node owns the Task, or no node does for a moment.
pub(crate) fn not_owner(key: &TaskKey) -> Rejection {
    let message = format!("this node does not own task {}", key.task_id);
    Rejection::new(Code::NotOwner, message).with("retry_after_ms", 100)
}

/// The node cannot take this now.
pub(crate) fn stopped(what: &str) -> Rejection {
    Rejection::new(Code::Unavailable, format!("{what} is not running"))
        .with("retry_after_ms", 1_000)
}
