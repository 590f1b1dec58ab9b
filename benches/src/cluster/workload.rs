//! What is measured, and what it has to reach.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use clap::ValueEnum;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tenure_core::command::create::CreateTask;
use tenure_core::id::{CommandId, PoolId, TaskId};
use tenure_core::status::{Role, TaskStatus};
use tenure_core::view::GetInput;
use tenure_ports::ClientPort as _;
use tenure_ports::journal::TaskKey;
use tenure_sdk::client::Client;
use tenure_sdk::nats::{Connection, NatsClient, NatsSettings, NatsWorker};
use tenure_sdk::worker::{Handlers, Options, StepContext, WorkerPool};
use tenure_wire::bus::subject::{ClientName, Token, WorkerName, inbox};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::{Mutex, Notify};
use uuid::Uuid;

use super::crowd::Crowd;
use super::dags;
use super::processes::Cluster;
use super::steering;

/// Whose Tasks all are.
const SESSION: &str = "bench";

/// Submits that are unanswered at a time, where many Tasks are made.
pub(crate) const SUBMITS: usize = 256;

/// Live Tasks, or idle workers, whose memory is measured.
const MANY: usize = 10_000;

/// Live Tasks, of which a page is listed.
const LISTED: usize = 100_000;

/// Tasks that are made before anything is measured, at a time.
const FILLED_AT_ONCE: usize = 20_000;

/// What is left of a dead owner's lease, at least: it is of 1.5 s and renewed every 0.4 s.
const LEASE: Duration = Duration::from_millis(1_100);

/// How long nobody may answer for a partition.
const TAKEN: Duration = Duration::from_secs(120);

/// How long nothing may end before the rest is asked for one by one.
const STALL: Duration = Duration::from_secs(5);

/// A workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Workload {
    /// One Task of 20,000 independent Steps.
    Flat,
    /// 20,000 Tasks of one Step.
    Tasks,
    /// 200 graphs of 1 + 50 + 1 Steps at once.
    Graphs,
    /// A lone Task of one Step, submit to complete, one after another.
    Lone,
    /// From submit to the start of the handler, after a pause each time: everybody is idle.
    Idle,
    /// A chain of 1,000 Steps.
    Chain,
    /// `task get` of Tasks that ended before.
    Get,
    /// One Step by a dispatched Run: dispatch, query, claim, report.
    Manual,
    /// A command on a Task of 10,000 Steps, as a multiple of one on a Task of 100.
    Size,
    /// What 1,000 onlookers add to the processor time of a command.
    Watched,
    /// `tenure task list`, a process, for a page of 50 of 100,000 live Tasks.
    List,
    /// From the end of a killed owner's lease until another node answers for every partition, with 10,000
    /// live Tasks.
    Takeover,
    /// Memory of the node for each of 10,000 Tasks that wait for a worker.
    Live,
    /// Memory of the node for each of 10,000 idle workers.
    Crowd,
    /// What the same cost the node and NATS while they are idle.
    Pulse,
}

impl Workload {
    pub(crate) const ALL: &'static [Self] =
        &[Self::Flat, Self::Tasks, Self::Graphs, Self::Lone, Self::Idle, Self::Chain];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Flat => "flat",
            Self::Tasks => "tasks",
            Self::Graphs => "graphs",
            Self::Lone => "lone",
            Self::Idle => "idle",
            Self::Chain => "chain",
            Self::Get => "get",
            Self::Manual => "manual",
            Self::Size => "size",
            Self::Watched => "watched",
            Self::List => "list",
            Self::Takeover => "takeover",
            Self::Live => "live",
            Self::Crowd => "crowd",
            Self::Pulse => "pulse",
        }
    }

    /// Steps that it runs, or what else it counts.
    #[allow(clippy::cast_precision_loss)] // Of ten thousand.
    pub(crate) fn steps(self) -> f64 {
        match self {
            Self::Flat | Self::Tasks => 20_000.0,
            Self::Graphs => 10_400.0,
            Self::Lone | Self::Manual => 500.0,
            Self::Size | Self::Watched => 3_000.0,
            Self::Idle | Self::List => 100.0,
            Self::Chain | Self::Get => 1_000.0,
            Self::Takeover | Self::Live | Self::Crowd | Self::Pulse => MANY as f64,
        }
    }

    /// Unit, what must be reached, and the goal.
    pub(crate) fn target(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Flat => ("steps/s", ">= 25000", "50000"),
            Self::Tasks => ("tasks/s", ">= 10000", "18000"),
            Self::Graphs => ("nodes/s", ">= 15000", "35000"),
            Self::Lone => ("ms (p50)", "<= 2.0", "1.4"),
            Self::Idle => ("ms (p50)", "<= 2.0", "1.4"),
            Self::Chain => ("ms/step", "<= 1.0", "0.7"),
            Self::Get => ("ms (p50)", "<= 20", "-"),
            Self::Manual => ("ms (p50)", "<= 4.0", "-"),
            Self::Size => ("times", "<= 1.3", "-"),
            Self::Watched => ("% more", "<= 10", "-"),
            Self::List => ("ms (p50)", "<= 100", "-"),
            Self::Takeover => ("ms", "<= 2000", "-"),
            Self::Live => ("KB/task", "<= 10", "-"),
            Self::Crowd => ("KB/worker", "<= 2", "-"),
            Self::Pulse => ("% of a core", "<= 10", "-"),
        }
    }
}

/// The pool of the worker in this process.
pub(super) const TIMED: &str = "timed";

/// What a repetition of a workload gave.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Measured {
    /// In the workload's unit.
    pub(crate) value: f64,
    /// The 99th percentile, where the value is a median.
    pub(crate) p99: Option<f64>,
}

/// An orchestrator that makes Tasks and is told of their ends.
pub(crate) struct Load {
    client: Client<NatsClient>,
    /// A worker in this process, whose handler says when it starts: one clock measures both ends.
    worker: WorkerPool<NatsWorker>,
    starts: Mutex<UnboundedReceiver<Instant>>,
    ends: Rc<RefCell<Ends>>,
    news: Rc<Notify>,
    /// Workloads so far.
    runs: Cell<usize>,
    /// How many submits are unanswered at a time.
    submits: usize,
}

/// Tasks that were heard to have ended.
#[derive(Default)]
struct Ends(HashMap<TaskId, TaskStatus>);

impl Load {
    /// Connects, and leaves so many submits unanswered at a time.
    pub(crate) async fn connect(url: &str, submits: usize) -> Result<Self> {
        let (principal, boot) = (Token::new("bench")?, Token::new("b1")?);
        let (role, session) = (Role::Orchestrator, SESSION.parse()?);
        let inbox = inbox(role, &principal, &boot);
        let connection = Connection::open(&NatsSettings::new(url), inbox).await?;
        let name = ClientName { role, session, principal };
        let client = Client::new(NatsClient::join(connection, &name).await?);
        let (ends, news): (Rc<RefCell<Ends>>, Rc<Notify>) = Default::default();
        let (worker, starts) = timed_worker(url).await?;
        let (starts, runs) = (Mutex::new(starts), Cell::new(0));
        Ok(Self { client, worker, starts, ends, news, runs, submits })
    }

    /// Leaves the cluster.
    pub(crate) async fn leave(self) -> Result<()> {
        self.worker.drain().await;
        self.worker.port().leave_pool().await?;
        Ok(())
    }

    /// Runs something while the ends of Tasks are heard.
    async fn hearing<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let mut changes = self.client.port().changes(None).await?;
        let hear = async {
            while let Some(change) = changes.next().await {
                if let Some(status) = change.ended {
                    self.ends.borrow_mut().0.insert(change.task_id, status);
                    self.news.notify_waiters();
                }
            }
            bail!("the connection has ended")
        };
        tokio::select! {
            done = work => done,
            broken = hear => broken,
        }
    }

    /// Waits until so many Tasks have ended since `before`.
    async fn ended(&self, before: usize, wanted: usize) -> Result<()> {
        loop {
            let news = self.news.notified();
            if self.ends.borrow().0.len() - before >= wanted {
                return Ok(());
            }
            let had = self.ends.borrow().0.len();
            if tokio::time::timeout(STALL, news).await.is_err() && self.ends.borrow().0.len() == had
            {
                bail!("{} of {wanted} ended, and then none", had - before);
            }
        }
    }

    /// A workload may be run again and again: names are of its run.
    async fn create(&self, mut input: CreateTask) -> Result<()> {
        let id = input.task_id.context("it has a name")?;
        input.task_id = Some(TaskId::new(format!("{}-{id}", self.runs.get()))?);
        let command = CommandId::new(Uuid::now_v7().to_string())?;
        self.client.create_as(command, input).await?;
        Ok(())
    }

    pub(crate) async fn warm_up(&self) -> Result<()> {
        self.hearing(async {
            self.create(dags::flat("warm-up", 200)?).await?;
            self.ended(0, 1).await?;
            let status = self.ends.borrow().0.values().next().copied();
            ensure!(status == Some(TaskStatus::Completed), "the warm-up ended {status:?}");
            Ok(())
        })
        .await
    }

    /// Makes and ends so many Tasks of one Step.
    pub(crate) async fn fill(&self, count: usize) -> Result<()> {
        for begun in (0..count).step_by(FILLED_AT_ONCE) {
            let end = count.min(begun + FILLED_AT_ONCE);
            let inputs: Result<Vec<_>> =
                (begun..end).map(|i| dags::flat(&format!("before-{i}"), 1)).collect();
            self.hearing(self.all(inputs?)).await?;
        }
        Ok(())
    }

    #[allow(clippy::cast_precision_loss)] // Of ten thousand.
    pub(crate) async fn run(&self, workload: Workload, cluster: &Cluster) -> Result<Measured> {
        self.runs.set(self.runs.get() + 1);
        self.hearing(async {
            match workload {
                Workload::Flat => {
                    let took = self.all(vec![dags::flat("flat", 20_000)?]).await?;
                    Ok(of(workload.steps() / took))
                }
                Workload::Tasks => {
                    let inputs: Result<Vec<_>> =
                        (0..20_000).map(|i| dags::flat(&format!("t{i}"), 1)).collect();
                    Ok(of(workload.steps() / self.all(inputs?).await?))
                }
                Workload::Graphs => {
                    let inputs: Result<Vec<_>> =
                        (0..200).map(|i| dags::fan(&format!("g{i}"), 50)).collect();
                    Ok(of(workload.steps() / self.all(inputs?).await?))
                }
                Workload::Lone => self.lone(500).await,
                Workload::Idle => self.idle(100).await,
                Workload::Chain => {
                    let took = self.all(vec![dags::chain("chain", 1_000)?]).await?;
                    Ok(of(took * 1e3 / workload.steps()))
                }
                Workload::Get => self.get(1_000).await,
                Workload::Manual => steering::manual(&self.client, 500).await,
                Workload::Size => steering::size(&self.client, cluster).await,
                Workload::Watched => steering::watched(&self.client, cluster).await,
                Workload::List => self.list(cluster).await,
                Workload::Takeover => self.takeover(cluster).await,
                Workload::Live => self.live(cluster).await,
                Workload::Crowd => {
                    let before = cluster.processes.settled_kb("scheduler").await?;
                    let mut crowd = Crowd::join(&cluster.nats_url(), MANY).await?;
                    crowd.idle(Duration::from_secs(4)).await?;
                    Ok(
                        of((cluster.processes.settled_kb("scheduler").await? - before)
                            / MANY as f64),
                    )
                }
                Workload::Pulse => {
                    let mut crowd = Crowd::join(&cluster.nats_url(), MANY).await?;
                    crowd.idle(Duration::from_secs(2)).await?;
                    let (before, begun) = (cluster.processes.cpu()?, Instant::now());
                    crowd.idle(Duration::from_secs(10)).await?;
                    let (after, took) = (cluster.processes.cpu()?, begun.elapsed());
                    let spent = |kind| after[kind] - before[kind];
                    let spent = spent("scheduler") + spent("nats");
                    Ok(of(spent / took.as_secs_f64() / 10.0)) // Of 1,000 ms a second, in percent.
                }
            }
        })
        .await
    }

    /// Makes Tasks, so many unanswered at a time, and waits for the end of all; in seconds.
    async fn all(&self, inputs: Vec<CreateTask>) -> Result<f64> {
        let (wanted, before) = (inputs.len(), self.ends.borrow().0.len());
        let begun = Instant::now();
        let mut unanswered = FuturesUnordered::new();
        for input in inputs {
            while unanswered.len() >= self.submits {
                unanswered.next().await.transpose()?;
            }
            unanswered.push(self.create(input));
        }
        while let Some(answered) = unanswered.next().await {
            answered?;
        }
        self.ended(before, wanted).await?;
        Ok(begun.elapsed().as_secs_f64())
    }

    /// Any of those that have ended, one after another.
    async fn get(&self, count: usize) -> Result<Measured> {
        let ids: Vec<TaskId> = self.ends.borrow().0.keys().cloned().collect();
        let mut times = Vec::new();
        for id in ids.iter().cycle().take(count) {
            let begun = Instant::now();
            self.client.port().ask(id, GetInput {}).await?;
            times.push(begun.elapsed());
        }
        Ok(median(times))
    }

    /// What a page of a long list takes, with everything that the command does.
    async fn list(&self, cluster: &Cluster) -> Result<Measured> {
        self.wait_for_nobody("listed", LISTED).await?;
        let mut times = Vec::new();
        for _ in 0..100 {
            let begun = Instant::now();
            let page = cluster.tenure(&["task", "list", "--session", SESSION, "--limit", "50"])?;
            times.push(begun.elapsed());
            ensure!(page.lines().count() == 50, "{} tasks", page.lines().count());
        }
        Ok(median(times))
    }

    /// How long nobody serves some partition, beyond what the lease of a dead owner takes: until a live
    /// Task of each is answered for.
    async fn takeover(&self, cluster: &Cluster) -> Result<Measured> {
        self.wait_for_nobody("live", MANY).await?;
        let mut one_of_each = BTreeMap::new();
        for i in 0..MANY {
            let task_id = TaskId::new(format!("{}-{i}-live", self.runs.get()))?;
            let key = TaskKey { session_id: SESSION.parse()?, task_id };
            one_of_each.entry(key.partition(cluster.partitions)).or_insert(key.task_id);
        }
        ensure!(one_of_each.len() == cluster.partitions as usize, "a partition has no live task");
        let begun = Instant::now();
        cluster.replace_nodes()?;
        for id in one_of_each.values() {
            while let Err(refused) = self.client.port().ask(id, GetInput {}).await {
                ensure!(refused.code.is_retryable(), "{refused}");
                ensure!(begun.elapsed() < TAKEN, "{refused}");
            }
        }
        Ok(of((begun.elapsed().as_secs_f64() - LEASE.as_secs_f64()) * 1e3))
    }

    /// What a live Task takes.
    #[allow(clippy::cast_precision_loss)] // Of ten thousand.
    async fn live(&self, cluster: &Cluster) -> Result<Measured> {
        let before = cluster.processes.settled_kb("scheduler").await?;
        self.wait_for_nobody("live", MANY).await?;
        Ok(of((cluster.processes.settled_kb("scheduler").await? - before) / MANY as f64))
    }

    /// Makes Tasks of a pool without workers. The number goes first: of ids that end in one, some
    /// partitions may have none (OWN-01).
    async fn wait_for_nobody(&self, name: &str, count: usize) -> Result<()> {
        let mut unanswered = FuturesUnordered::new();
        for i in 0..count {
            let mut input = dags::flat(&format!("{i}-{name}"), 1)?;
            input.default_worker_pool_id = Some(PoolId::new("nobody")?);
            while unanswered.len() >= SUBMITS {
                unanswered.next().await.transpose()?;
            }
            unanswered.push(self.create(input));
        }
        while let Some(answered) = unanswered.next().await {
            answered?;
        }
        Ok(())
    }

    /// One Task after another, submit to end, in milliseconds.
    async fn lone(&self, count: usize) -> Result<Measured> {
        let mut times = Vec::new();
        for i in 0..count {
            let input = dags::flat(&format!("lone{i}"), 1)?;
            let before = self.ends.borrow().0.len();
            let begun = Instant::now();
            let (created, ended) =
                futures::future::join(self.create(input), self.ended(before, 1)).await;
            created?;
            ended?;
            times.push(begun.elapsed());
        }
        Ok(median(times))
    }

    /// One Task after another, each after a pause, submit to the start of its handler.
    async fn idle(&self, count: usize) -> Result<Measured> {
        let mut times = Vec::new();
        for i in 0..count {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let mut input = dags::flat(&format!("idle{i}"), 1)?;
            for step in &mut input.steps {
                step.worker_pool_id = Some(PoolId::new(TIMED)?);
            }
            let before = self.ends.borrow().0.len();
            let begun = Instant::now();
            let mut starts = self.starts.lock().await;
            let (created, started, ended) =
                futures::future::join3(self.create(input), starts.recv(), self.ended(before, 1))
                    .await;
            created?;
            ended?;
            times.push(started.context("the worker has gone")? - begun);
        }
        Ok(median(times))
    }
}

pub(super) fn of(value: f64) -> Measured {
    Measured { value, p99: None }
}

/// In milliseconds.
pub(super) fn median(mut times: Vec<Duration>) -> Measured {
    times.sort();
    let at = |place: usize| times[place.min(times.len() - 1)].as_secs_f64() * 1e3;
    Measured { value: at(times.len() / 2), p99: Some(at(times.len() * 99 / 100)) }
}

/// A worker of a pool of its own, and when its handler started.
async fn timed_worker(url: &str) -> Result<(WorkerPool<NatsWorker>, UnboundedReceiver<Instant>)> {
    let (start, starts) = unbounded_channel();
    let handlers = Handlers::new().on("noop", move |ctx: StepContext| {
        let _ = start.send(Instant::now()); // Nobody may be measuring.
        async move { Ok(ctx.complete(None)?) }
    })?;
    let (principal, boot) = (Token::new("timed")?, Token::new("b1")?);
    let name = WorkerName { pool: PoolId::new(TIMED)?, principal, boot };
    let connection = Connection::open(&NatsSettings::new(url), name.inbox()).await?;
    let names = handlers.names().cloned().collect();
    let (port, deliveries) = NatsWorker::join(connection, &name, Some(names)).await?;
    let options = Options::new(NonZeroUsize::MIN);
    Ok((WorkerPool::start(port, deliveries, handlers, options), starts))
}
