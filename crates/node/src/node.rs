//! A node from its start to its end.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::{Client, StatusCode, Subscriber};
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use parking_lot::Mutex;
use tenure_cluster::ownership::{Keeper, OwnershipOptions};
use tenure_core::{Code, Rejection};
use tenure_ports::observer::{PartitionSample, Sample, ServerSample};
use tenure_ports::placement::PLACEMENT;
use tenure_ports::supervise;
use tenure_scheduler::{Config, Scheduler};
use tenure_wire::bus::V;
use tenure_wire::bus::node::{Alive, Given, Hungry};
use tokio::sync::mpsc::{UnboundedReceiver, channel, unbounded_channel};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::bus::{listen, say};
use crate::events::Followed;
use crate::fence::Fence;
use crate::gate::{Gate, Imports, LastWaits, Lists, OutputRequests};
use crate::heartbeats::HeartbeatPermits;
use crate::intake::WaitingBytes;
use crate::lanes::{CallerTurns, ReadBudgets, ReadLanes};
use crate::links::Links;
use crate::log_usage::{LastUsage, watch_usage};
use crate::malformed::watch_malformed;
use crate::partitions::{Partitions, listen_to_all, settle};
use crate::peers::{NatsPeers, hear};
use crate::published::{self, PublishedMarks};
use crate::rates::RateTable;
use crate::read_threads::ReadThreads;
use crate::refused::RefusedWorkers;
use crate::settings::Settings;
use crate::start::{Servers, StartError, blobs, journal, leases, servers, unreachable_at};
use crate::{ClusterScheduler, events, rival};

/// How often a node announces that it is there.
const ALIVE: Duration = Duration::from_secs(2);

/// The shortest pause between two announcements.
const ALIVE_PAUSE: Duration = Duration::from_millis(100);

/// How often links are checked.
const SWEEP: Duration = Duration::from_millis(250);

/// How long the node waits at most before it tries again to serve a partition.
const LOOK: Duration = Duration::from_secs(1);

/// A running node.
pub struct Node {
    gate: Arc<Gate>,
    keeper: Arc<Keeper>,
    ends: CancellationToken,
    loops: Vec<JoinHandle<()>>,
    /// Its connections to NATS.
    connections: [Client; 5],
    log_usage: LastUsage,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("name", &self.gate.node).finish_non_exhaustive()
    }
}

impl Node {
    /// Starts a node: from then on it takes partitions and serves them.
    ///
    /// # Errors
    /// An error that does not pass by itself; see [`StartError`]. While servers cannot be reached,
    /// this waits for them; dropping the future gives up.
    pub fn start(settings: Settings) -> BoxFuture<'static, Result<Self, StartError>> {
        Box::pin(Self::started(settings)) // A pointer: this crate has the code, and not each that polls it.
    }

    async fn started(settings: Settings) -> Result<Self, StartError> {
        let (name, cluster) = (settings.cluster.key_prefix(), settings.cluster.clone());
        let Servers { log, control, reports, intake, lookups } = servers(&settings).await?;
        let journal = journal(&settings, &log).await?;
        let leases = leases(&settings, &name, &journal).await?;
        let budgets = Arc::new(ReadBudgets::new(settings.reads));
        let parts = ReadLanes::of_parts(&budgets);
        let config = Config {
            blobs: Some(Arc::new(blobs(&settings, &log))),
            turns: Some(Arc::new(CallerTurns(Arc::clone(&parts)))),
            ..settings.config()
        };
        let scheduler: ClusterScheduler =
            Scheduler::start(Arc::clone(&journal), Arc::new(leases), config).await?;
        let mut keeping = OwnershipOptions::new(settings.redis, settings.node.as_str());
        (keeping.name, keeping.lease) = (name, settings.ownership);
        let (tell, given) = unbounded_channel();
        keeping.given = Some(Arc::new(move |node: &str| {
            let _ = tell.send(node.to_owned()); // The node may be ending.
        }));
        keeping.rival = Some(Arc::new({
            let (control, node, cluster) =
                (control.clone(), settings.node.clone(), cluster.clone());
            move |partition| {
                rival::of(control.clone(), cluster.clone(), node.clone(), partition).boxed()
            }
        }));
        keeping.clock = Arc::new({
            let scheduler = scheduler.clone();
            move || scheduler.now()
        });
        keeping.heard = Some(Arc::new({
            let scheduler = scheduler.clone();
            move |there, took| scheduler.compare_clock(there, took)
        }));
        let keeper = Arc::new(Keeper::start(keeping, Arc::clone(&journal))?);
        let links = Links::new(
            scheduler.clone(),
            control.clone(),
            settings.node.clone(),
            settings.links_max,
        );
        let gate = Arc::new(Gate {
            scheduler,
            links,
            refused: RefusedWorkers::default(),
            fence: Fence { journal, keeper: Arc::clone(&keeper) },
            control,
            reports,
            intake,
            lookups,
            read_threads: ReadThreads::start().map_err(StartError::Threads)?,
            parts,
            whole: ReadLanes::of_whole(&budgets),
            budgets,
            cluster,
            node: settings.node,
            features: settings.features,
            partitions: settings.partitions,
            served: Mutex::default(),
            imports: Imports::default(),
            lists: Lists::default(),
            waits: LastWaits::default(),
            outputs: OutputRequests::default(),
            followed: Followed::default(),
            out: PublishedMarks::default(),
            event_reads: Semaphore::new(events::READ_AT_ONCE),
            event_queue: Semaphore::new(settings.reads_max.div_ceil(4)),
            reads_max: settings.reads_max,
            reads: Arc::new(Semaphore::new(settings.reads_max)),
            heartbeats: HeartbeatPermits::default(),
            rates: RateTable::new(settings.rates),
            crafted: AtomicU64::new(0),
            waiting: Arc::new(WaitingBytes::default()),
            announces: Notify::new(),
        });
        for client in [&gate.reports, &gate.intake, &gate.lookups] {
            let waiting = Arc::clone(&gate.waiting);
            client.statistics().skipped.set(move |subject| waiting.skips(subject));
        }
        let ends = CancellationToken::new();
        listen_to_all(&gate, &ends).await.map_err(unreachable_at(&settings.nats.url))?;
        let root = gate.cluster.root();
        let told = listen(&gate.control, given_to(root, gate.node.as_str()))
            .await
            .map_err(unreachable_at(&settings.nats.url))?;
        let peers = NatsPeers {
            client: gate.control.clone(),
            cluster: gate.cluster.clone(),
            node: gate.node.clone(),
            partitions: gate.partitions,
        };
        gate.scheduler.set_peers(peers);
        let kin = listen(&gate.control, format!("{root}.system.kin.*")).await;
        let kin = kin.map_err(unreachable_at(&settings.nats.url))?;
        let gone = listen(&gate.control, format!("{}.*", gate.links.gone())).await;
        let gone = gone.map_err(unreachable_at(&settings.nats.url))?;
        let (ask, asked) = channel(1);
        let connections = [
            ("control", gate.control.clone()),
            ("reports", gate.reports.clone()),
            ("intake", gate.intake.clone()),
            ("lookups", gate.lookups.clone()),
            ("journal", log),
        ];
        let (all, log_usage) =
            (connections.clone().map(|(_, client)| client), LastUsage::default());
        let loops = [
            spawn(&ends, watch_malformed(connections)),
            spawn(&ends, watch_usage(Arc::clone(&gate), Arc::clone(&log_usage))),
            spawn(&ends, hear_gone(Arc::clone(&gate.links), gone)),
            spawn(&ends, hear(gate.scheduler.clone(), kin)),
            spawn(&ends, tell_given(Arc::clone(&gate), given)),
            spawn(&ends, hear_given(Arc::clone(&keeper), told)),
            spawn(&ends, follow(Arc::clone(&gate))),
            spawn(&ends, announce(Arc::clone(&gate))),
            spawn(&ends, sweep(Arc::clone(&gate))),
            spawn(&ends, events::publish(Arc::clone(&gate), asked)),
            spawn(&ends, published::mark(Arc::clone(&gate), ask)),
            spawn(&ends, events::publish_runtime(Arc::clone(&gate))),
        ];
        Ok(Self { gate, keeper, ends, loops: loops.into(), connections: all, log_usage })
    }

    /// The name of this boot of the node.
    pub fn name(&self) -> &str {
        self.gate.node.as_str()
    }

    /// The partitions that the node owns and to whose requests it has subscribed. The NATS server may
    /// read the subscriptions a moment later.
    pub fn served(&self) -> Vec<u32> {
        self.gate.served.lock().iter().copied().collect()
    }

    /// The scheduler in this node.
    pub fn scheduler(&self) -> &ClusterScheduler {
        &self.gate.scheduler
    }

    /// A function that gives the numbers of this node at the moment of the call.
    pub fn sampler(&self) -> impl Fn() -> Sample + Send + Sync + 'static {
        let (gate, usage) = (Arc::clone(&self.gate), Arc::clone(&self.log_usage));
        let connections = self.connections.clone();
        move || {
            let served = gate.served.lock().clone();
            let partitions = Some(PartitionSample { total: gate.partitions, served });
            let nats = connections.iter().all(is_up);
            let servers = Some(ServerSample { nats, redis: gate.scheduler.keeps_leases() });
            let log = *usage.lock();
            let mut sample = Sample { partitions, servers, log, ..gate.scheduler.sample_if(nats) };
            sample.live.over_rate = gate.over_rate();
            for pool in &mut sample.pools {
                pool.leaving = gate.links.leaving(&pool.pool);
            }
            sample
        }
    }

    /// A function that says whether requests would be answered now, or why not: all connections to NATS are up, and
    /// the scheduler runs.
    pub fn readiness(&self) -> impl Fn() -> Result<(), Rejection> + Send + Sync + 'static {
        let (gate, connections) = (Arc::clone(&self.gate), self.connections.clone());
        move || {
            let why = match connections.iter().all(is_up) {
                true if !gate.scheduler.has_stopped() => return Ok(()),
                true => "the scheduler has stopped",
                false => "a connection to NATS is lost",
            };
            Err(Rejection::new(Code::Unavailable, why))
        }
    }

    /// Gives every partition to its next owner, and ends. Appends in flight finish.
    pub fn stop(self) -> BoxFuture<'static, ()> {
        Box::pin(self.stopped())
    }

    async fn stopped(self) {
        let Self { gate, keeper, ends, loops, .. } = self;
        for partition in 0..gate.partitions {
            gate.scheduler.leave(partition, None).await;
        }
        keeper.hand_over().await;
        ends.cancel();
        for ended in loops {
            let _ = ended.await; // A panic in it has been logged.
        }
        gate.scheduler.stop().await;
        settle(&gate.control).await;
        settle(&gate.intake).await;
        settle(&gate.lookups).await;
    }
}

/// Runs a loop of the node until the node ends.
pub(crate) fn spawn(
    ends: &CancellationToken,
    work: impl Future<Output = ()> + Send + 'static,
) -> JoinHandle<()> {
    let ends = ends.clone();
    supervise::spawn("a loop of the node", async move {
        ends.run_until_cancelled(work).await;
    })
}

/// Serves the partitions that the node owns, and follows every change.
async fn follow(gate: Arc<Gate>) {
    let mut changes = gate.fence.journal.owned().changes();
    let mut partitions = Partitions::new(gate);
    loop {
        partitions.follow().await;
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(LOOK) => {} // Tries again to subscribe where that failed.
        }
    }
}

/// Notifies nodes that they were given partitions.
async fn tell_given(gate: Arc<Gate>, mut given: UnboundedReceiver<String>) {
    while let Some(node) = given.recv().await {
        say(&gate.control, &given_to(gate.cluster.root(), &node), &Given { v: V }).await;
    }
}

/// The subject on which a node learns that it was given partitions.
fn given_to(root: &str, node: &str) -> String {
    format!("{root}.system.given.{node}")
}

/// Receives the server's answers that nobody listens on a worker's inbox.
async fn hear_gone(links: Arc<Links>, mut told: Subscriber) {
    while let Some(message) = told.next().await {
        let link = message.subject.rsplit('.').next();
        if let Some(link) = link.filter(|_| message.status == Some(StatusCode::NO_RESPONDERS)) {
            links.note_gone(link);
        }
    }
}

/// Receives the notices that partitions were given to this node.
async fn hear_given(keeper: Arc<Keeper>, mut told: Subscriber) {
    while told.next().await.is_some() {
        keeper.poke();
    }
}

/// Announces that this node is there, every two seconds and when somebody needs to know. Every
/// worker receives the announcement, so one goes out for all workers that come at the same time.
async fn announce(gate: Arc<Gate>) {
    let mut ticks = interval(ALIVE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = gate.announces.notified() => {}
        }
        gate.say_alive().await;
        tokio::time::sleep(ALIVE_PAUSE).await;
    }
}

fn is_up(client: &Client) -> bool {
    client.connection_state() == State::Connected
}

async fn sweep(gate: Arc<Gate>) {
    let mut ticks = interval(SWEEP);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let is_connected = is_up(&gate.control);
        if !is_connected {
            gate.scheduler.note_unacknowledged();
        }
        gate.links.sweep(SWEEP, is_connected).await;
        gate.lists.sweep();
        gate.budgets.sweep();
        for (pool, wants) in gate.scheduler.hungry_pools() {
            let node = gate.node.as_str();
            let hungry = Hungry { v: V, node: node.into(), pool, wants };
            let subject = format!("{}.node.{node}.hungry", gate.cluster.root());
            say(&gate.control, &subject, &hungry).await;
        }
    }
}

impl Gate {
    /// Announces that this node is there, and which partitions it serves.
    async fn say_alive(&self) {
        let node = self.node.as_str();
        let owned = self.served.lock().iter().copied().collect();
        let (partitions, placement) = (self.partitions, PLACEMENT);
        let (features, lacks) = (self.features.clone(), self.fence.keeper.lacking());
        let alive =
            Alive { v: V, node: node.into(), partitions, placement, owned, features, lacks };
        let subject = format!("{}.node.{node}.alive", self.cluster.root());
        say(&self.control, &subject, &alive).await;
    }
}
