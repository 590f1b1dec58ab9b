//! A cluster of real processes on this machine that tests break: NATS, Redis, scheduler nodes and
//! workers, on free ports, ended by their process ids.
//!
//! [`client`] is an orchestrator written from docs/protocol.md; it notes in [`records`] what it was
//! told to be durable, and [`verdict`] holds the logs of all Tasks against that. [`probe`] measures for
//! how long partitions do not answer, [`load`] keeps them busy with [`callers`], [`proxy`] is a way
//! that can be cut, [`audit`] asks what is left over, [`mischief`] doubles and delays what is said.
//! [`mod@python`] starts workers that are not in Rust.

pub mod audit;
pub mod callers;
pub mod client;
pub mod load;
pub mod members;
pub mod message;
pub mod mischief;
pub mod probe;
pub mod process;
pub mod proxy;
pub mod python;
pub mod records;
pub mod redis;
pub mod servers;
pub mod tasks;
pub mod verdict;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use self::client::Client;
use self::members::Members;
use self::mischief::{MAPPINGS, Mischief};
use self::process::Process;
use self::records::Records;
use self::servers::Server;
use crate::binary::{Running, tenure};

/// Longest that anything may take once everything is whole again, on a machine that is busy.
pub const PATIENCE: Duration = Duration::from_secs(40);

/// The pool of Steps that name none.
pub const POOL: &str = "default";

/// How a cluster is made.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Scheduler nodes, `n0` and so on.
    pub schedulers: usize,
    /// Workers, `w0` and so on.
    pub workers: usize,
    /// Handlers that run at a time in each worker.
    pub concurrency: usize,
    /// Partitions.
    pub partitions: u32,
    /// How long leases of Attempts last.
    pub lease_ms: u64,
    /// Bytes that each stream of the log may take.
    pub max_bytes: Option<u64>,
    /// Blocks of 512 bytes that each file of NATS may have; not with three servers.
    pub file_blocks: Option<u64>,
    /// Whether there are three servers of NATS, each with all streams.
    pub is_replicated: bool,
    /// Seed of one who doubles messages and lets them come late; not with three servers.
    pub mischief: Option<u64>,
    /// A libfaketime, by which the clock of each scheduler node can be set.
    pub faketime: Option<PathBuf>,
    /// What else nodes and workers find in their environment.
    pub environment: Vec<(&'static str, String)>,
}

impl Default for Plan {
    fn default() -> Self {
        let (schedulers, workers, concurrency, partitions) = (2, 2, 4, 4);
        let (lease_ms, max_bytes, is_replicated) = (3_000, None, false);
        Self {
            schedulers,
            workers,
            concurrency,
            partitions,
            lease_ms,
            max_bytes,
            file_blocks: None,
            is_replicated,
            mischief: None,
            faketime: None,
            environment: Vec::new(),
        }
    }
}

/// A cluster that runs.
#[derive(Debug)]
pub struct Cluster {
    /// How it was made.
    pub plan: Plan,
    /// NATS; the first server of it.
    pub nats: Server,
    /// The others.
    pub replicas: Vec<Server>,
    /// Redis.
    pub redis: Server,
    /// Scheduler nodes.
    pub schedulers: Vec<Process>,
    /// Workers.
    pub workers: Vec<Process>,
    /// What clients were told.
    pub records: Arc<Records>,
    /// Which node owns what, as the nodes say.
    pub members: Members,
    /// Who makes mischief, if the plan says so.
    pub mischief: Option<Mischief>,
    /// The pool of each worker.
    pools: BTreeMap<String, String>,
    dir: tempfile::TempDir,
}

/// Runs a test on a cluster of its own, then waits until every Task has ended and checks all logs. If
/// it fails, the ends of the logs of all processes are printed.
///
/// # Errors
/// What went wrong.
pub fn on_cluster(plan: Plan, test: impl FnOnce(&mut Cluster) -> Result<()>) -> Result<()> {
    let mut cluster = Cluster::start(plan)?;
    let done = test(&mut cluster).and_then(|()| verdict::check(&cluster).map(|_| ()));
    if done.is_err() {
        cluster.print_tails();
    }
    done
}

impl Cluster {
    /// Starts everything, and waits until every partition has an owner.
    ///
    /// # Errors
    /// Something does not start.
    pub fn start(plan: Plan) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let mappings = plan.mischief.map_or("", |_| MAPPINGS);
        let mut servers = match (plan.is_replicated, plan.file_blocks) {
            (true, _) => Server::nats_of_three(dir.path())?,
            (false, Some(blocks)) => vec![Server::nats_limited(dir.path(), blocks)?],
            (false, None) => vec![Server::nats(dir.path(), mappings, &[])?],
        };
        let replicas = servers.split_off(1);
        let nats = servers.remove(0);
        let redis = Server::redis(dir.path())?;
        let members = Members::watch(&url_of(&nats, &replicas))?;
        let mischief =
            plan.mischief.map(|seed| Mischief::start(&url(nats.port), seed)).transpose()?;
        let mut cluster = Self {
            plan,
            nats,
            replicas,
            redis,
            schedulers: Vec::new(),
            workers: Vec::new(),
            records: Arc::default(),
            members,
            mischief,
            pools: BTreeMap::new(),
            dir,
        };
        for _ in 0..cluster.plan.schedulers {
            cluster.add_scheduler()?;
        }
        for _ in 0..cluster.plan.workers {
            cluster.add_worker(POOL, &cluster.url())?;
        }
        if let Err(error) = cluster.wait_owned() {
            cluster.print_tails();
            return Err(error);
        }
        Ok(cluster)
    }

    /// Where NATS is.
    pub fn url(&self) -> String {
        url_of(&self.nats, &self.replicas)
    }

    /// The directory of everything here.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Ends everything, and leaves what it has written where it is.
    pub fn keep(self) -> PathBuf {
        let Self { dir, .. } = self;
        dir.keep()
    }

    /// The file to which Steps append a line when they run.
    pub fn trace(&self) -> PathBuf {
        self.dir().join("trace")
    }

    /// Lines of that file.
    pub fn traced(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.trace()).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Starts one more scheduler node.
    ///
    /// # Errors
    /// It does not start.
    pub fn add_scheduler(&mut self) -> Result<()> {
        let name = format!("n{}", self.schedulers.len());
        let mut command = Command::new(tenure()?);
        command.args(["serve", "--node", &name, "--nats", &self.url()]);
        command.args(["--redis", &format!("redis://127.0.0.1:{}", self.redis.port)]);
        command.args(["--partitions", &self.plan.partitions.to_string()]);
        command.args(["--lease-ms", &self.plan.lease_ms.to_string()]);
        if self.plan.is_replicated {
            command.args(["--replicas", "3"]);
        }
        if let Some(bytes) = self.plan.max_bytes {
            command.args(["--max-bytes", &bytes.to_string()]);
        }
        command.env("TENURE_LOG", std::env::var("TENURE_LOG").unwrap_or_else(|_| "info".into()));
        command.envs(self.plan.environment.clone());
        if let Some(faketime) = &self.plan.faketime {
            self.set_clock(&name, 0)?;
            command.env("LD_PRELOAD", faketime).env("FAKETIME_TIMESTAMP_FILE", self.clock(&name));
            command.envs([("FAKETIME_NO_CACHE", "1"), ("FAKETIME_DONT_FAKE_MONOTONIC", "1")]);
        }
        self.schedulers.push(Process::start(&name, self.dir.path(), command)?);
        Ok(())
    }

    /// Sets the clock of a scheduler node so far from that of this machine.
    ///
    /// # Errors
    /// It cannot be written down.
    pub fn set_clock(&self, name: &str, ahead_ms: i64) -> Result<()> {
        let sign = if ahead_ms < 0 { '-' } else { '+' };
        let (seconds, ms) = (ahead_ms.unsigned_abs() / 1_000, ahead_ms.unsigned_abs() % 1_000);
        // Whoever reads it finds all of it or none.
        let next = self.dir().join(format!("{name}.clock.next"));
        std::fs::write(&next, format!("{sign}{seconds}.{ms:03}s\n"))?;
        Ok(std::fs::rename(next, self.clock(name))?)
    }

    fn clock(&self, name: &str) -> PathBuf {
        self.dir().join(format!("{name}.clock"))
    }

    /// Starts one more worker of a pool, with its own way to NATS.
    ///
    /// # Errors
    /// It does not start.
    pub fn add_worker(&mut self, pool: &str, url: &str) -> Result<()> {
        let name = format!("w{}", self.workers.len());
        let mut command = Command::new(tenure()?);
        command.args(["worker", "--name", &name, "--pool", pool, "--nats", url]);
        command.args(["--concurrency", &self.plan.concurrency.to_string()]);
        command.args(["--files", &format!("files-{name}")]).env("TRACE", self.trace());
        command.env("TENURE_LOG", std::env::var("TENURE_LOG").unwrap_or_else(|_| "info".into()));
        command.envs(self.plan.environment.clone());
        self.workers.push(Process::start(&name, self.dir.path(), command)?);
        self.pools.insert(name, pool.to_owned());
        Ok(())
    }

    /// The pool of a worker as logs name it, if it was started here.
    pub fn pool_of(&self, worker: &str) -> Option<&str> {
        self.pools.get(worker.split('.').next()?).map(String::as_str)
    }

    /// An orchestrator.
    ///
    /// # Errors
    /// No node answers.
    pub fn client(&self, principal: &str) -> Result<Client> {
        Client::connect(&self.url(), principal, &self.records)
    }

    /// Hands in a task file with the command line, and notes that it was acknowledged.
    ///
    /// # Errors
    /// It was not.
    pub fn submit(&self, file: &Path, more: &[&str]) -> Result<String> {
        let mut command = Command::new(tenure()?);
        command.arg("submit").arg(file).args(["--nats", &self.url(), "-o", "json"]).args(more);
        let ended = Running::start(&mut command)?.end(PATIENCE)?;
        ensure!(ended.status.success(), "{}: {ended:?}", file.display());
        let told: serde_json::Value = serde_json::from_str(&ended.stdout)?;
        let task = told["task_id"].as_str().context("a submit that names no task")?.to_owned();
        self.records.created(&task, &[]);
        Ok(task)
    }

    /// Waits until each partition is owned by one node.
    ///
    /// # Errors
    /// That takes too long.
    pub fn wait_owned(&self) -> Result<()> {
        let all = self.plan.partitions;
        until("every partition has one owner", PATIENCE, || {
            let live: Vec<&str> = self.schedulers.iter().map(Process::name).collect();
            Ok((0..all).all(|partition| self.members.owners(partition, &live).len() == 1))
        })?;
        Ok(())
    }

    /// The node that owns a partition, by its place in the list.
    ///
    /// # Errors
    /// There is none for long, or there are several.
    pub fn owner_of(&self, partition: u32) -> Result<usize> {
        let live: Vec<&str> = self.schedulers.iter().map(Process::name).collect();
        until("the partition has one owner", PATIENCE, || {
            Ok(self.members.owners(partition, &live).len() == 1)
        })?;
        let owners = self.members.owners(partition, &live);
        let [owner] = owners.as_slice() else { bail!("partition {partition} has {owners:?}") };
        let place = live.iter().position(|name| name == owner);
        place.with_context(|| format!("{owner} was not started here"))
    }

    /// Prints what every process said last.
    #[allow(clippy::print_stdout)]
    pub fn print_tails(&self) {
        let servers = [&self.nats, &self.redis].into_iter().chain(&self.replicas);
        let servers = servers.map(|server| &server.process);
        for process in servers.chain(&self.schedulers).chain(&self.workers) {
            println!("{}", process.tail());
        }
    }
}

fn url_of(nats: &Server, replicas: &[Server]) -> String {
    let all: Vec<_> = [nats].into_iter().chain(replicas).map(|one| url(one.port)).collect();
    all.join(",")
}

/// The address of NATS, or of a way to it.
pub fn url(port: u16) -> String {
    format!("nats://127.0.0.1:{port}")
}

/// Waits until something holds.
///
/// # Errors
/// It takes too long, or the question fails.
pub fn until(
    what: &str,
    within: Duration,
    mut holds: impl FnMut() -> Result<bool>,
) -> Result<Duration> {
    let begun = Instant::now();
    loop {
        if holds()? {
            return Ok(begun.elapsed());
        }
        ensure!(begun.elapsed() < within, "not within {within:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
