//! For how long partitions cannot append while a server of NATS is frozen, cut off or killed, or a scheduler is
//! cut off from NATS or from Redis. NATS are three servers; all of them and the schedulers have network
//! namespaces of their own, so it takes root and `ip`:
//! `cargo run -p tenure-tests --example outage -- [FAULT...]`, with `TENURE_BIN` if the binary is there.
//!
//! `own` is the server to which the only scheduler is connected, `other` another one. In what is printed each
//! partition stands with the server that led its stream, or with the scheduler that had it.
#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;
use serde_json::{Value as Json, json};
use tenure_tests::binary::tenure;
use tenure_tests::cluster::client::{Client, command, runtime, wait};
use tenure_tests::cluster::members::Members;
use tenure_tests::cluster::message::Answer;
use tenure_tests::cluster::process::Process;
use tenure_tests::cluster::servers::find;
use tenure_tests::cluster::tasks::{id_in, noop, task};
use tenure_tests::cluster::{PATIENCE, until};
use tokio::time::{MissedTickBehavior, interval};

const FAULTS: [&str; 8] = [
    "own-frozen",
    "own-cable",
    "own-killed",
    "other-frozen",
    "other-cable",
    "other-killed",
    "no-nats",
    "no-redis",
];

const PARTITIONS: u32 = 8;
/// How often an append is asked for in each.
const EVERY: Duration = Duration::from_millis(25);
/// How long it is measured before and behind a fault.
const BEFORE: Duration = Duration::from_secs(3);
const BEHIND: Duration = Duration::from_secs(22);
/// The address of this machine, and where nobody is.
const HERE: &str = "10.231.0.1";
const NOBODY: &str = "02:00:00:00:00:99";
/// Namespaces of three servers of NATS, 1 to 3, and of two schedulers.
const HOSTS: std::ops::RangeInclusive<u8> = 1..=5;

fn main() -> Result<()> {
    let named: Vec<String> = std::env::args().skip(1).collect();
    let known = named.iter().all(|fault| FAULTS.contains(&fault.as_str()));
    ensure!(known, "faults are {}", FAULTS.join(", "));
    let all = || FAULTS.map(str::to_owned).to_vec();
    for fault in if named.is_empty() { all() } else { named } {
        measure(&fault).with_context(|| fault)?;
    }
    Ok(())
}

fn ip(words: &str) -> Result<()> {
    let status = Command::new("ip").args(words.split_whitespace()).status()?;
    ensure!(status.success(), "ip {words}");
    Ok(())
}

/// A bridge with a namespace for each host.
struct Network;

impl Network {
    fn make() -> Result<Self> {
        Self::remove();
        let network = Self;
        ip("link add tenure0 type bridge")?;
        ip(&format!("addr add {HERE}/24 dev tenure0"))?;
        ip("link set tenure0 up")?;
        for host in HOSTS {
            ip(&format!("netns add tenure{host}"))?;
            ip(&format!("link add tenure{host}h type veth peer name eth0 netns tenure{host}"))?;
            ip(&format!("link set tenure{host}h master tenure0 up"))?;
            ip(&format!("-n tenure{host} addr add {}/24 dev eth0", address(host)))?;
            ip(&format!("-n tenure{host} link set eth0 up"))?;
            ip(&format!("-n tenure{host} link set lo up"))?;
        }
        Ok(network)
    }

    fn remove() {
        let quiet = |words: &[&str]| {
            let _ = Command::new("ip").args(words).output(); // It may not be there.
        };
        for host in HOSTS {
            // A namespace is gone some time after it was deleted, and with it this end of its cable.
            quiet(&["link", "del", &format!("tenure{host}h")]);
            quiet(&["netns", "del", &format!("tenure{host}")]);
        }
        quiet(&["link", "del", "tenure0"]);
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        Self::remove();
    }
}

fn address(host: u8) -> String {
    format!("10.231.0.1{host}")
}

fn url(host: u8) -> String {
    format!("nats://{}:4222", address(host))
}

fn start(host: u8, name: &str, dir: &Path, program: &Path, args: &[&str]) -> Result<Process> {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &format!("tenure{host}")]).arg(program).args(args);
    command.env("TENURE_LOG", "info");
    Process::start(name, dir, command)
}

fn nats(host: u8, dir: &Path) -> Result<Process> {
    let (name, at) = (format!("nats{host}"), address(host));
    let routes: Vec<String> = (1..=3).map(|n| format!("nats://{}:6222", address(n))).collect();
    let routes = routes.join(", ");
    let config = format!(
        "server_name: {name}\nlisten: {at}:4222\n\
         jetstream {{ store_dir: \"js-{name}\", sync_interval: always }}\n\
         cluster {{ name: outage, listen: {at}:6222, routes: [{routes}], ping_interval: \"2s\" }}\n"
    );
    std::fs::write(dir.join(format!("{name}.conf")), config)?;
    let program = find("TENURE_NATS_SERVER", "nats-server")?;
    start(host, &name, dir, &program, &["-c", &format!("{name}.conf")])
}

fn measure(fault: &str) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let _network = Network::make()?;
    let mut servers = (1..=3).map(|host| nats(host, dir.path())).collect::<Result<Vec<_>>>()?;
    let mut redis = Command::new(find("TENURE_REDIS_SERVER", "redis-server")?);
    redis.args(["--bind", HERE, "--port", "6379", "--save", "", "--protected-mode", "no"]);
    let _redis = Process::start("redis", dir.path(), redis)?;
    let two = fault.starts_with("no-");
    let mut schedulers = Vec::new();
    for (host, name) in [(4, "a"), (5, "b")].into_iter().take(if two { 2 } else { 1 }) {
        let redis = format!("redis://{HERE}:6379");
        let at = url(host - 3);
        let args = ["serve", "--node", name, "--nats", &at, "--redis", &redis, "--replicas", "3"];
        schedulers.push(start(host, name, dir.path(), tenure()?, &args)?);
    }
    let client = Client::connect(&url(3), "outage", &Arc::default())?;
    let members = Members::watch(&url(3))?;
    let live: Vec<&str> = schedulers.iter().map(Process::name).collect();
    let owners = || (0..PARTITIONS).map(|at| members.owners(at, &live)).collect::<Vec<_>>();
    until("all partitions have owners", PATIENCE, || {
        let owners = owners();
        let has_all = owners.iter().all(|owners| owners.len() == 1);
        Ok(has_all && live.iter().all(|name| owners.iter().any(|owner| owner == &[*name])))
    })?;
    let appending = Appending::start(&client)?;
    std::thread::sleep(BEFORE);
    let with: Vec<String> = match two {
        true => owners().into_iter().map(|owners| owners.join("+")).collect(),
        false => (0..PARTITIONS).map(|at| leader(&client, at)).collect::<Result<_>>()?,
    };
    let hit = usize::from(fault.starts_with("other"));
    match fault {
        "own-frozen" | "other-frozen" => servers[hit].pause()?,
        "own-killed" | "other-killed" => servers[hit].kill()?,
        "own-cable" | "other-cable" => ip(&format!("link set tenure{}h nomaster", hit + 1))?,
        "no-nats" => (1..=3).try_for_each(|host| lose(Some(4), &address(host)))?,
        _ => lose(None, &address(4))?,
    }
    std::thread::sleep(BEHIND);
    let mut by: BTreeMap<&String, Vec<String>> = BTreeMap::new();
    for (with, gap) in with.iter().zip(appending.finish()?) {
        by.entry(with).or_default().push(format!("{:.1}", gap.as_secs_f64()));
    }
    let hit = if two { "a".to_owned() } else { format!("nats{}", hit + 1) };
    println!("{fault}: {hit} was hit; seconds without an append: {by:?}");
    if fault.ends_with("frozen") {
        servers[usize::from(fault.starts_with("other"))].signal(Signal::SIGCONT)?;
    }
    Ok(())
}

/// Whatever a host sends to an address, or this machine if none is named, goes nowhere.
fn lose(host: Option<u8>, to: &str) -> Result<()> {
    let (of, dev) = match host {
        Some(host) => (format!("-n tenure{host} "), "eth0"),
        None => (String::new(), "tenure0"),
    };
    ip(&format!("{of}neigh replace {to} lladdr {NOBODY} dev {dev} nud permanent"))
}

fn leader(client: &Client, partition: u32) -> Result<String> {
    let asked = format!("$JS.API.STREAM.INFO.TENURE_WAL_{partition}");
    let answer = wait(client.nats().request(asked, "".into()))?;
    let info: Json = serde_json::from_slice(&answer.payload)?;
    Ok(info["cluster"]["leader"].as_str().unwrap_or("none").to_owned())
}

/// Appends to each partition all the time, without waiting for earlier ones.
struct Appending {
    ends: Arc<AtomicBool>,
    each: Vec<tokio::task::JoinHandle<Duration>>,
}

impl Appending {
    fn start(client: &Client) -> Result<Self> {
        let ends = Arc::new(AtomicBool::new(false));
        let mut each = Vec::new();
        for partition in 0..PARTITIONS {
            let id = id_in(partition, PARTITIONS, "outage");
            client.create(&task(&id, &[noop("a", &[])]))?; // There is no worker.
            each.push(runtime().spawn(longest(client.clone(), partition, id, Arc::clone(&ends))));
        }
        Ok(Self { ends, each })
    }

    /// The longest time in which none was acknowledged, of each.
    fn finish(self) -> Result<Vec<Duration>> {
        self.ends.store(true, Ordering::Release);
        self.each.into_iter().map(|each| wait(each).context("an append")).collect()
    }
}

async fn longest(client: Client, partition: u32, id: String, ends: Arc<AtomicBool>) -> Duration {
    let (tell, mut acknowledged) = tokio::sync::mpsc::unbounded_channel();
    let subject = client.subject(partition);
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
    while !ends.load(Ordering::Acquire) {
        tokio::select! {
            _ = ticks.tick() => {
                let input = json!({"progress": {"summary": "still there"}});
                let body = command("append_task_progress", Some(&id), &input);
                let (client, subject, tell) = (client.clone(), subject.clone(), tell.clone());
                tokio::spawn(async move {
                    if let Ok(Answer::Done(_)) = client.request(&subject, &body).await {
                        let _ = tell.send(Instant::now()); // It may have ended.
                    }
                });
            }
            Some(at) = acknowledged.recv() => {
                longest = longest.max(at.saturating_duration_since(last));
                last = last.max(at);
            }
        }
    }
    longest.max(last.elapsed())
}
