//! Each broken thing by itself, on real servers: what is found, what is advised, and the exit code.
//!
//! Where a server was simply silent, nobody is sent to look for another login.

use std::time::Instant;

use async_nats::jetstream;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::redis_cli::says;
use crate::servers::redis;
use crate::support::{Ended, PATIENCE, Running};
use crate::{Set, verdicts, watched_nats};

/// Two nodes and a worker on sound servers.
struct Scene {
    set: Set,
    monitor: String,
    nodes: Vec<Running>,
    worker: Running,
    /// What `tenure doctor` is told besides.
    told: Vec<String>,
}

/// A broken thing, and what has to be found.
struct Broken {
    what: &'static str,
    breaks: fn(&mut Scene),
    check: &'static str,
    verdict: &'static str,
    /// Words of the advice.
    advice: &'static str,
    exit: i32,
}

/// What has to be found bad.
const fn bad(
    what: &'static str,
    breaks: fn(&mut Scene),
    (check, exit): (&'static str, i32),
    advice: &'static str,
) -> Broken {
    Broken { what, breaks, check, verdict: "bad", advice, exit }
}

const NATS: &[Broken] = &[
    bad("NATS is killed", |scene| scene.set.nats.kill(), ("nats", 6), "see that it runs"),
    bad(
        "NATS hangs",
        |scene| scene.set.nats.signal(Signal::SIGSTOP),
        ("nats", 6),
        "see that it runs",
    ),
    bad(
        "NATS has no JetStream",
        |scene| scene.configure(|config| config.replace("jetstream {", "# {")),
        ("jetstream", 1),
        "switch it on",
    ),
    bad(
        "NATS acknowledges what it has not stored",
        |scene| {
            scene.configure(|config| config.replace("sync_interval: always", "sync_interval: 30s"))
        },
        ("jetstream.sync", 1),
        "sync_interval: always",
    ),
    bad(
        "NATS takes short messages alone",
        |scene| scene.configure(|config| config + "max_payload: 64KB\n"),
        ("nats.payload", 1),
        "max_payload: 1MB",
    ),
    bad(
        "NATS does not know the login",
        |scene| {
            scene.configure(|config| config + "authorization { user: node, password: s3cret }\n");
            scene.set.told.push(("TENURE_JOURNAL_USER", "node".into()));
            scene.set.told.push(("TENURE_JOURNAL_PASSWORD", "wrong".into()));
        },
        ("nats", 6),
        "see that user and password are its own",
    ),
    Broken {
        what: "whoever asks the nodes has no login",
        breaks: |scene| {
            scene.configure(|config| config + "authorization { user: node, password: s3cret }\n");
            let port = scene.set.nats.port;
            let url = format!("nats://node:s3cret@127.0.0.1:{port}");
            scene.set.told.push(("TENURE_NATS_URL", url));
            scene.told.push(format!("--client-nats=nats://127.0.0.1:{port}"));
        },
        check: "nodes",
        verdict: "unknown",
        advice: "name an observer's login",
        exit: 1, // One login for everything is bad by itself.
    },
];

const LOG: &[Broken] = &[
    bad(
        "the log is full",
        |scene| scene.change_stream(|config| config.max_bytes = 1),
        ("log.room", 1),
        "make room",
    ),
    bad(
        "a stream of the log is gone",
        Scene::delete_stream,
        ("log.streams", 1),
        "put it back from a backup",
    ),
    bad(
        "the log forgets",
        |scene| {
            scene.change_stream(|config| config.max_age = std::time::Duration::from_secs(3_600))
        },
        ("log.settings", 1),
        "change the stream",
    ),
    bad(
        "the log takes no writes, and work waits for it",
        |scene| {
            scene.submit("first", "{a: {run: sleep 2}, b: {run: 'true', pool: gpu}}");
            scene.change_stream(|config| config.max_bytes = 1);
        },
        ("steps.waiting", 1),
        "log.room",
    ),
];

const REDIS: &[Broken] = &[
    bad("Redis is killed", |scene| scene.set.redis.kill(), ("redis", 6), "see that it runs"),
    bad(
        "Redis hangs",
        |scene| scene.set.redis.signal(Signal::SIGSTOP),
        ("redis", 6),
        "see that it runs",
    ),
    bad(
        "Redis is full",
        |scene| scene.redis(&["CONFIG", "SET", "maxmemory", "1"]),
        ("redis.memory", 1),
        "give it more",
    ),
    bad(
        "Redis is full, and work waits for leases",
        |scene| {
            scene.redis(&["CONFIG", "SET", "maxmemory", "1"]);
            scene.submit("late", "{a: {run: 'true'}}");
        },
        ("steps.waiting", 1),
        "whether it has room",
    ),
    bad(
        "Redis evicts",
        |scene| scene.redis(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]),
        ("redis.policy", 1),
        "noeviction",
    ),
    bad(
        "Redis is a copy of another",
        |scene| scene.redis(&["REPLICAOF", "127.0.0.1", "9"]),
        ("redis.role", 1),
        "name the master",
    ),
    bad(
        "Redis belongs to another cluster",
        |scene| scene.redis(&["SET", "tenure:{own}:store", "TENURE, store 000000000000"]),
        ("cluster", 1),
        "--redis",
    ),
    bad(
        "a lease is nobody's",
        |scene| {
            let stray = "default/short/01a20000-0000-7000-8000-000000000001";
            scene.redis(&["ZADD", "tenure:{0}:ends", "9999999999999", stray]);
        },
        ("leases", 1),
        "tenure lease audit",
    ),
];

const NODES: &[Broken] = &[
    bad(
        "one of two schedulers hangs",
        |scene| scene.nodes[1].signal(Signal::SIGSTOP),
        ("nodes.silent", 1),
        "stands still",
    ),
    bad(
        "one of two schedulers was killed",
        |scene| drop(scene.nodes.pop()),
        ("nodes.silent", 1),
        "it was killed, or its machine is gone",
    ),
    bad(
        "all schedulers were killed",
        |scene| scene.nodes.clear(),
        ("nodes", 1),
        "start `tenure serve`",
    ),
    bad(
        "all schedulers hang",
        |scene| scene.nodes.iter().for_each(|node| node.signal(Signal::SIGSTOP)),
        ("nodes.silent", 1),
        "stands still",
    ),
    Broken {
        what: "one of two schedulers was ended, as it should be",
        breaks: |scene| {
            let node = scene.nodes.pop().unwrap();
            node.signal(Signal::SIGTERM);
            node.end();
        },
        check: "nodes.silent",
        verdict: "good",
        advice: "",
        exit: 0,
    },
    bad(
        "a gateway is gone",
        |scene| scene.told.push("--gateways=http://127.0.0.1:9".into()),
        ("gateways.agents", 1),
        "see that the gateway runs",
    ),
];

const WORKERS: &[Broken] = &[
    bad(
        "work waits in a pool without workers",
        |scene| scene.submit("deserted", "{a: {run: 'true', pool: gpu}}"),
        ("workers.missing", 1),
        "tenure worker --pool POOL",
    ),
    bad(
        "the only worker was killed",
        |scene| {
            scene.worker.signal(Signal::SIGKILL);
            scene.submit("late", "{a: {run: 'true'}}");
        },
        ("workers.missing", 1),
        "start workers of that pool",
    ),
    bad(
        "the only worker hangs",
        |scene| {
            scene.worker.signal(Signal::SIGSTOP);
            scene.submit("late", "{a: {run: 'true'}}");
        },
        ("workers.missing", 1),
        "start workers of that pool",
    ),
    bad(
        "no worker has the handler",
        |scene| scene.submit("mail", "{a: {handler: send}}"),
        ("workers.missing", 1),
        "start a worker that has it",
    ),
    bad(
        "no worker serves the session",
        |scene| {
            let guest = ["worker", "--name", "w2", "--pool", "ci", "--sessions", "ci-*"];
            let mut guest = Running::of(&mut scene.set.command(&guest));
            guest.hears("runs steps of pool ci");
            scene.nodes.push(guest); // It is ended with them.
            scene.submit("lint", "{a: {run: 'true', pool: ci}}");
        },
        ("workers.missing", 1),
        "--sessions",
    ),
];

impl Scene {
    fn start() -> Self {
        let (nats, monitor) = watched_nats("");
        let set = Set::of(nats, redis(&["--maxmemory-policy", "noeviction"]));
        let node = |name: &str| {
            let mut node = Running::of(&mut set.command(&["serve", "--node", name]));
            node.hears(" serves");
            node
        };
        let nodes = vec![node("n1"), node("n2")];
        let mut worker = Running::of(&mut set.command(&["worker", "--name", "w1"]));
        worker.hears("runs steps of pool default");
        let scene = Self { set, monitor, nodes, worker, told: Vec::new() };
        scene.set.until(&[("nodes", "good"), ("nodes.silent", "good")], &[]);
        scene
    }

    fn doctor(&self) -> Ended {
        let told = self.told.iter().map(String::as_str);
        let args: Vec<&str> = ["--nats-monitor", &self.monitor].into_iter().chain(told).collect();
        self.set.doctor(&args)
    }

    /// Starts NATS again with another configuration.
    fn configure(&mut self, change: impl FnOnce(String) -> String) {
        let path = self.set.nats.dir().join("nats.conf");
        let config = std::fs::read_to_string(&path).unwrap();
        let changed = change(config.clone());
        assert_ne!(config, changed);
        std::fs::write(path, changed).unwrap();
        self.set.nats.kill();
        self.set.nats.restart();
    }

    fn with_jetstream<T>(&self, act: impl AsyncFnOnce(jetstream::Context) -> T) -> T {
        let url = format!("127.0.0.1:{}", self.set.nats.port);
        tokio::runtime::Runtime::new()
            .unwrap()
            .block_on(async { act(jetstream::new(async_nats::connect(url).await.unwrap())).await })
    }

    /// Changes all streams of the log.
    fn change_stream(&self, change: fn(&mut jetstream::stream::Config)) {
        self.with_jetstream(async |context| {
            for partition in 0..8 {
                let mut stream =
                    context.get_stream(format!("TENURE_WAL_{partition}")).await.unwrap();
                let mut config = stream.info().await.unwrap().config.clone();
                change(&mut config);
                context.update_stream(config).await.unwrap();
            }
        });
    }

    fn delete_stream(&mut self) {
        self.with_jetstream(async |context| context.delete_stream("TENURE_WAL_3").await.unwrap());
    }

    fn redis(&self, words: &[&str]) {
        says(self.set.redis.port, words);
    }

    /// Hands in a Task; where the cluster cannot take it now, this fails with what broke it.
    fn submit(&self, name: &str, steps: &str) {
        let file = format!("{name}.yaml");
        self.set.place.file(&file, format!("task_id: {name}\ntitle: {name}\nsteps: {steps}\n"));
        Running::run_to_end(&mut self.set.command(&["submit", &file])).with(0);
    }
}

/// Breaks each of these, and awaits what has to be found. Tells all that was not.
#[track_caller]
fn all_are_found(all: &[Broken]) {
    let failed: Vec<String> = all.iter().filter_map(|broken| found(broken).err()).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

/// Breaks one thing. In the first seconds less may be known: what is found and advised is awaited.
fn found(broken: &Broken) -> Result<(), String> {
    let mut scene = Scene::start();
    (broken.breaks)(&mut scene);
    let begun = Instant::now();
    loop {
        let ended = scene.doctor();
        let Some(wrong) = wrong(&ended, broken) else { return Ok(()) };
        if begun.elapsed() > PATIENCE {
            return Err(format!("{}: {wrong}: {ended:#?}", broken.what));
        }
    }
}

/// What doctor does not say as it must.
fn wrong(ended: &Ended, broken: &Broken) -> Option<String> {
    let Broken { check, verdict, exit, .. } = broken;
    if verdicts(ended).get(*check).map(String::as_str) != Some(*verdict) {
        return Some(format!("{check} is not {verdict}"));
    }
    let json = ended.json();
    if ended.code != Some(*exit) || json["ok"] != (*exit == 0) {
        return Some(format!("the exit code is not {exit}"));
    }
    let findings = json["findings"].as_array().unwrap();
    let told = |it: &Value| it["advice"].as_str().unwrap_or_default().to_owned();
    let is_it = |it: &&Value| it["check"] == *check && it["verdict"] == *verdict;
    let advice = findings.iter().find(is_it).map(told).unwrap_or_default();
    if !advice.contains(broken.advice) {
        return Some(format!("{advice:?} is advised"));
    }
    // Unless a login was refused, nobody is told to name another.
    let sends = findings.iter().find(|it| told(it).contains("observer's login"));
    let sends = sends.filter(|_| !broken.what.contains("login"));
    sends.map(|finding| format!("{finding} sends for a login"))
}

#[test]
fn whatever_is_broken_in_nats_is_found() {
    all_are_found(NATS);
}

#[test]
fn whatever_is_broken_in_the_log_is_found() {
    all_are_found(LOG);
}

#[test]
fn whatever_is_broken_in_redis_is_found() {
    all_are_found(REDIS);
}

#[test]
fn whoever_is_silent_is_found() {
    all_are_found(NODES);
}

#[test]
fn work_that_waits_for_nobody_is_found() {
    all_are_found(WORKERS);
}
