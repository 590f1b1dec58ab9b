//! Decides which node owns which partition.
//!
//! A node holds a partition by a lease in Redis. It renews the lease on a thread and a connection of its
//! own, so that work that holds up the node's runtime for a moment costs no lease. The log is asked on
//! that runtime, over the node's connection to NATS. A runtime that stands still for some leases' time
//! serves nobody; the node then gives its partitions away as if the log did not answer it. The lease only
//! says which node tries to be the owner; what fences is the owner record in the stream (mechanisms 3).
//! While Redis is unreachable every node keeps what it has, as nobody can take it.
//!
//! The [`fitness`] of a node says whether it should have partitions at all. Its polls may arrive in Redis
//! although the answers do not come back in time. So only a poll that follows an answered one renews
//! leases; others only ask. A node that the log does not answer gives its partitions to nodes that it
//! answers.
//!
//! Rendezvous hashing over the live nodes decides which node should have a partition. A node that joins
//! is given its share by those that have it; of several nodes that see a lease end, the first in that
//! order takes the partition. A node that holds a lease and cannot take the partition, because its way to
//! the log is broken, lets it go and comes last in that order for a while.
//!
//! To give a partition away a node leaves it, waits until its appends in flight have returned, gives its
//! lease to the next node at once, and notifies that node ([`OwnershipOptions::given`]), which then polls
//! at once ([`Keeper::poke`]).
//!
//! If nodes use different Redis servers, each could hold the lease of a partition, and they would take it
//! from each other for ever. So a node that is about to take a partition asks whether another node serves
//! it ([`OwnershipOptions::rival`]), and leaves it to that one.
//!
//! With its name a node registers its features, and which ones the logs of its partitions may hold. A log
//! may hold what all live nodes can read; a node that cannot read what some log may hold takes no partition,
//! and does not count as live (EVOLVE-02, mechanisms 17).
//!
//! A node whose clock differs from Redis' by more than 5 s takes no partition, and gives those it has to
//! others if there are any: nobody could trust its times.

mod fitness;
mod keeping;
mod log;
mod rank;
mod takings;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::future::{BoxFuture, join, join_all};
use parking_lot::Mutex;
use tenure_core::features::Features;
use tenure_core::id::Millis;
use tenure_ports::supervise::{guard, spawn};
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use self::keeping::Keeping;
use self::keeping::SilentNodes;
pub(crate) use self::keeping::{SILENT, is_replaced, rehearse};
use self::log::LogHealth;
use crate::clock::since_boot;
use crate::journal::JetStreamJournal;
use crate::redis_at::RedisAt;
use crate::request::within;

/// Called with the name of a node that was given partitions.
pub type HandoverFn = Arc<dyn Fn(&str) + Send + Sync>;

/// Answers which other node serves a partition and is sure to have its lease, if there is one.
pub type Rival = Arc<dyn Fn(u32) -> BoxFuture<'static, Option<String>> + Send + Sync>;

/// Unix milliseconds by the clock that stamps what a node writes.
pub type ClockFn = Arc<dyn Fn() -> Millis + Send + Sync>;

/// Called with Redis' time, in Unix milliseconds, and how long the answer took.
pub type RedisTimeFn = Arc<dyn Fn(Millis, Duration) + Send + Sync>;

/// How a node keeps its partitions.
#[derive(Clone)]
pub struct OwnershipOptions {
    /// Where Redis is.
    pub redis: RedisAt,
    /// The prefix of all keys.
    pub name: String,
    /// The name of this boot of this node: no other boot has it.
    pub node: String,
    /// How long a partition stays with a node that does not poll.
    pub lease: Duration,
    /// How often a node polls.
    pub every: Duration,
    /// Called when this node has given partitions to another, with the other's name, so that the other
    /// can be told to poll. It runs on the thread that renews the leases, so it must not wait.
    pub given: Option<HandoverFn>,
    /// Asked before a partition is taken, as other nodes may use another Redis.
    pub rival: Option<Rival>,
    /// The clock that is compared with Redis': a node whose times nobody could trust takes nothing.
    pub clock: ClockFn,
    /// Called with Redis' time after each answer, before `clock` is asked: that time confirms or
    /// contradicts the system's clock.
    pub heard: Option<RedisTimeFn>,
}

impl OwnershipOptions {
    /// A lease of 1.5 s, renewed every 400 ms; the system's clock.
    pub fn new(redis: impl Into<RedisAt>, node: impl Into<String>) -> Self {
        Self {
            redis: redis.into(),
            name: "tenure".into(),
            node: node.into(),
            lease: Duration::from_millis(1_500),
            every: Duration::from_millis(400),
            given: None,
            rival: None,
            clock: Arc::new(system_time),
            heard: None,
        }
    }
}

/// Unix milliseconds by the system's clock.
fn system_time() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Millis::try_from(since.as_millis()).unwrap_or(Millis::MAX)
}

impl std::fmt::Debug for OwnershipOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { redis, name, node, lease, every, given: _, rival: _, clock: _, heard: _ } = self;
        let mut all = f.debug_struct("OwnershipOptions");
        all.field("redis", redis).field("name", name).field("node", node);
        all.field("lease", lease).field("every", every).finish_non_exhaustive()
    }
}

/// Why a node cannot keep partitions.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// The address of Redis cannot be read.
    #[error(transparent)]
    Address(#[from] redis::RedisError),
    /// The thread or its runtime could not be started.
    #[error(transparent)]
    Thread(#[from] std::io::Error),
}

/// How often an owner asks the streams of idle partitions whether it still owns them (OWN-03).
const CONFIRM_EVERY: Duration = Duration::from_secs(1);

/// How many logs are asked each time only to see whether they answer.
const PROBED: u32 = 3;

/// Keeps the partitions of a node: takes those that it should have, and leaves the others.
#[derive(Debug)]
pub struct Keeper {
    shared: Arc<KeeperShared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct KeeperShared {
    stops: AtomicBool,
    /// Whether to give everything away first.
    hands_over: AtomicBool,
    /// Notified when there is a reason to poll now.
    poked: Notify,
    /// Until when ownership is certain, on the clock that goes on during suspensions: no other node can
    /// have taken anything before.
    certain_until: Mutex<Option<Duration>>,
    /// What is known of the log's answers.
    log: Mutex<LogHealth>,
    /// The features that logs may hold and that this node lacks.
    lacking: Mutex<Features>,
    /// Nodes that give no sign of life and have not left.
    silent: Mutex<SilentNodes>,
}

impl KeeperShared {
    fn new() -> Self {
        Self {
            stops: AtomicBool::default(),
            hands_over: AtomicBool::default(),
            poked: Notify::default(),
            certain_until: Mutex::default(),
            log: Mutex::new(LogHealth::new()),
            lacking: Mutex::default(),
            silent: Mutex::default(),
        }
    }

    /// Notes that the log has answered a question of that time.
    fn note_log(&self, asked: Instant) {
        self.log.lock().note_answer(asked);
    }

    /// For how long the log has answered nothing, and for how long this node has not looked at its
    /// answers.
    fn log_silence(&self, patience: Duration) -> (Duration, Duration) {
        let log = self.log.lock();
        (log.silent(CONFIRM_EVERY + patience), log.unlooked())
    }

    fn is_certain(&self) -> bool {
        let until = *self.certain_until.lock();
        until.zip(since_boot()).is_some_and(|(until, now)| now < until)
    }

    fn stop(&self) {
        self.stops.store(true, Ordering::Release);
        self.poked.notify_one();
    }

    fn stops(&self) -> bool {
        self.stops.load(Ordering::Acquire)
    }
}

impl Keeper {
    /// Starts to keep partitions for this node. It has the journal take and leave them.
    ///
    /// # Errors
    /// See [`KeepError`].
    pub fn start(
        options: OwnershipOptions,
        journal: Arc<JetStreamJournal>,
    ) -> Result<Self, KeepError> {
        let client = options.redis.client(options.every)?;
        let shared = Arc::new(KeeperShared::new());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let confirms = confirm(Arc::clone(&journal), Arc::clone(&shared), options.lease);
        spawn("whether partitions are owned", confirms);
        let node = options.node.clone();
        let keeping = Keeping::new(options, journal, Arc::clone(&shared));
        let thread = std::thread::Builder::new().name(format!("own-{node}"));
        let keep = move || runtime.block_on(guard("the ownership", keeping.run(client)));
        let thread = thread.spawn(keep)?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Whether no other node can have taken a partition of this one by now.
    pub fn is_certain(&self) -> bool {
        self.shared.is_certain()
    }

    /// The features that logs may hold and that this node lacks: if there are any, it takes no partition.
    pub fn lacking(&self) -> Features {
        self.shared.lacking.lock().clone()
    }

    /// Nodes that have given no sign of life and have not left, each with for how many milliseconds. A node that
    /// was started again under its name is not among them.
    pub fn silent(&self) -> Vec<(String, u64)> {
        self.shared.silent.lock().now()
    }

    /// Polls Redis now, not at the next tick: another node says that it has given this one a partition.
    pub fn poke(&self) {
        self.shared.poked.notify_one();
    }

    /// Gives every partition to its next owner, and ends.
    pub async fn hand_over(&self) {
        self.shared.hands_over.store(true, Ordering::Release);
        self.shared.stop();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            let _ = tokio::task::spawn_blocking(move || thread.join()).await; // It may have panicked.
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.shared.stop();
    }
}

/// Asks the streams of idle partitions whether this node still owns them. Another node may own them,
/// however certain the leases of this one are: Redis may have lost them, or be another than that of other
/// nodes. For a busy partition its appends would tell, for an idle one nothing would (mechanisms 3). This
/// costs one small request a second for each idle partition of the cluster; streams cannot be asked
/// together, as each has a leader of its own.
///
/// The answers also show whether the log answers this node at all. Some logs are asked for that alone, in
/// turn: the node may own nothing, or what it owns may have no leader.
async fn confirm(journal: Arc<JetStreamJournal>, shared: Arc<KeeperShared>, patience: Duration) {
    let mut ticks = interval(CONFIRM_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut before, mut turn) = (Vec::new(), 0);
    loop {
        ticks.tick().await;
        if shared.stops() {
            return;
        }
        let (asked, reached, is_certain) = (Instant::now(), journal.reached(), shared.is_certain());
        if reached.iter().any(|it| !before.contains(it)) {
            shared.note_log(asked); // An append of this node has been stored.
        }
        let idle = reached.iter().filter(|it| !is_certain || before.contains(*it));
        let confirmed = idle.map(async |it| {
            let partition = it.partition;
            match within(patience, "no answer in time", journal.confirm(partition)).await {
                Ok(owns) => {
                    shared.note_log(asked);
                    if !owns && is_certain {
                        tracing::error!(
                            partition,
                            "another node has written to a partition whose lease this one holds: is \
                             Redis the same for all nodes?"
                        );
                    }
                }
                Err(why) => {
                    tracing::debug!(partition, %why, "whether the partition is owned is not known");
                }
            }
        });
        let partitions = journal.owned().partitions();
        let some = (turn..turn + PROBED.min(partitions)).map(|at| at % partitions.max(1));
        let probed = some.map(async |partition| {
            if let Ok(true) = timeout(patience, journal.answers(partition)).await {
                shared.note_log(asked);
            }
        });
        join(join_all(confirmed), join_all(probed)).await;
        shared.log.lock().note_look(CONFIRM_EVERY + patience);
        turn = turn.wrapping_add(PROBED) % partitions.max(1);
        before = reached;
    }
}
