//! `tenure doctor` against real servers: as they should be, and each way in which they should not.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

#[path = "support/redis.rs"]
mod redis_cli;
#[allow(dead_code)] // Other tests need more of it.
#[path = "../../cluster/tests/real/servers.rs"]
mod servers;
mod support;

#[path = "doctor/broken.rs"]
mod broken;
#[path = "doctor/exposed.rs"]
mod exposed;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;
use servers::{Server, free_port, nats_with, redis};
use support::{Ended, PATIENCE, Place, Running};

/// Servers, and where to speak to them from.
struct Set {
    place: Place,
    nats: Server,
    redis: Server,
    /// What the environment says of them.
    told: Vec<(&'static str, String)>,
}

impl Set {
    fn of(nats: Server, redis: Server) -> Self {
        let told = vec![
            ("TENURE_NATS_URL", format!("nats://127.0.0.1:{}", nats.port)),
            ("TENURE_REDIS_URL", format!("redis://127.0.0.1:{}", redis.port)),
        ];
        Self { place: Place::new(), nats, redis, told }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.place.command(args);
        command.envs(self.told.iter().map(|(name, value)| (name, value)));
        command
    }

    fn doctor(&self, args: &[&str]) -> Ended {
        let args = [&["doctor", "-o", "json"], args].concat();
        Running::run_to_end(&mut self.command(&args))
    }

    fn node(&self) -> Running {
        let mut node = Running::of(&mut self.command(&["serve", "--node", "n1"]));
        node.hears(" serves");
        node
    }

    /// Asks until everything of these is found so.
    #[track_caller]
    fn until(&self, wanted: &[(&str, &str)], args: &[&str]) -> Ended {
        let begun = Instant::now();
        loop {
            let ended = self.doctor(args);
            let found = verdicts(&ended);
            if wanted.iter().all(|(check, verdict)| found.get(*check).is_some_and(|v| v == verdict))
            {
                return ended;
            }
            assert!(begun.elapsed() < PATIENCE, "{wanted:?} are not found: {ended:#?}");
        }
    }
}

/// The worst verdict of each check.
#[track_caller]
fn verdicts(ended: &Ended) -> BTreeMap<String, String> {
    let rank =
        |verdict: &str| ["good", "unknown", "caution", "bad"].iter().position(|v| *v == verdict);
    let mut worst: BTreeMap<String, String> = BTreeMap::new();
    for finding in ended.json()["findings"].as_array().unwrap() {
        let of = |name: &str| finding[name].as_str().unwrap().to_owned();
        let (check, verdict) = (of("check"), of("verdict"));
        assert_eq!(finding["advice"].is_string(), verdict != "good", "{finding}");
        let known = worst.entry(check).or_insert_with(|| verdict.clone());
        if rank(&verdict) > rank(known) {
            *known = verdict;
        }
    }
    worst
}

#[track_caller]
fn advice(ended: &Ended, check: &str) -> String {
    let json = ended.json();
    let findings = json["findings"].as_array().unwrap();
    let of_check = findings.iter().find(|f| f["check"] == check && f["verdict"] != "good");
    of_check.unwrap_or_else(|| panic!("{check}: {ended:#?}"))["advice"].as_str().unwrap().into()
}

/// Passwords of tests begin with it.
#[track_caller]
fn no_secret(ended: &Ended) {
    assert!(!ended.stdout.contains("s3cret") && !ended.stderr.contains("s3cret"), "{ended:#?}");
}

/// NATS with a monitoring port, and where that is.
fn watched_nats(more: &str) -> (Server, String) {
    let port = free_port();
    (nats_with(&format!("http: 127.0.0.1:{port}\n{more}")), format!("http://127.0.0.1:{port}"))
}

/// Everything as it should be, but that there are no users: that is said, and is not bad.
#[test]
fn a_sound_cluster_is_found_sound() {
    let (nats, monitor) = watched_nats("");
    let set = Set::of(nats, redis(&[]));
    let _node = set.node();
    let mut worker = Running::of(&mut set.command(&["worker", "--name", "w1"]));
    worker.hears("runs steps of pool default");
    set.place.file("long.yaml", "task_id: long\ntitle: long\nsteps: {a: {run: sleep 600}}\n");
    Running::run_to_end(&mut set.command(&["submit", "long.yaml"])).with(0);

    let all = [
        "clock.redis",
        "cluster",
        "files.secrets",
        "jetstream",
        "jetstream.latency",
        "jetstream.sync",
        "leases",
        "log.replicas",
        "log.room",
        "log.settings",
        "log.streams",
        "nats",
        "nats.payload",
        "nats.tls",
        "nats.version",
        "nodes",
        "nodes.latency",
        "partitions.owners",
        "redis.latency",
        "redis.login",
        "redis.memory",
        "redis.persistence",
        "redis.policy",
        "redis.rights",
        "redis.role",
        "redis.tls",
        "redis.version",
    ];
    let slow = ["jetstream.latency", "redis.latency", "nodes.latency", "log.append"];
    let wanted = all.iter().filter(|check| !slow.contains(check)).map(|check| (*check, "good"));
    let wanted: Vec<_> = wanted.chain([("nats.rights", "caution")]).collect();
    let ended = set.until(&wanted, &["--nats-monitor", &monitor]).with(0);
    assert!(ended.json()["ok"].as_bool().unwrap());
    let found = verdicts(&ended);
    for check in all {
        assert!(found.contains_key(check), "{check}: {ended:#?}");
    }
    assert!(!found.keys().any(|check| check.starts_with("audit.")), "nobody asked: {found:?}");
    let leases = |ended: &Ended| {
        let json = ended.json();
        let all = json["findings"].as_array().unwrap().iter();
        all.filter(|f| f["check"] == "leases").map(|f| f["found"].to_string()).collect::<String>()
    };
    let begun = Instant::now();
    while !leases(&set.doctor(&[])).contains("session default: 1 attempt, leases and logs agree") {
        assert!(begun.elapsed() < PATIENCE, "{:#?}", set.doctor(&[]));
    }

    let table = Running::run_to_end(&mut set.command(&["doctor"]));
    assert!(table.stdout.contains("ok    redis.policy"), "{table:#?}");
    assert!(table.stdout.contains("→ where others can reach it: users and rights"), "{table:#?}");
    assert!(table.stderr.contains(" checked: 0 bad, "), "{table:#?}");
    let names = Running::run_to_end(&mut set.command(&["doctor", "-o", "quiet"]));
    assert!(names.stdout.lines().any(|line| line == "nats.rights"), "{names:#?}");
}

/// What loses history, in the log and in what NATS does with it, has its advice.
#[test]
fn a_log_that_loses_history_is_found() {
    let (nats, monitor) = watched_nats("");
    let port = nats.port;
    let set = Set::of(nats, redis(&[]));
    let lossy = async {
        let client = async_nats::connect(format!("127.0.0.1:{port}")).await.unwrap();
        let config = async_nats::jetstream::stream::Config {
            name: "TENURE_WAL_0".into(),
            subjects: vec!["tenure.wal.0".into()],
            max_age: Duration::from_secs(3_600),
            ..Default::default()
        };
        async_nats::jetstream::new(client).create_stream(config).await.unwrap();
    };
    tokio::runtime::Runtime::new().unwrap().block_on(lossy);
    let ended = set.doctor(&["--nats-monitor", &monitor]).with(1);
    let found = verdicts(&ended);
    assert_eq!((&*found["log.settings"], &*found["log.streams"]), ("bad", "bad"), "{ended:#?}");
    assert_eq!((&*found["partitions.owners"], &*found["nodes"]), ("bad", "bad"), "{ended:#?}");
    let text = ended.stdout;
    for told in ["discard: new", "none but max_bytes", "deny_delete: true", "--partitions"] {
        assert!(text.contains(told), "{told}: {text}");
    }
}

/// A server that answers before it has written, and one that is not asked when.
#[test]
fn what_is_acknowledged_too_early_is_found() {
    let port = free_port();
    let nats = nats_with(&format!("http: 127.0.0.1:{port}"));
    let config = std::fs::read_to_string(nats.dir().join("nats.conf")).unwrap();
    let lazy = config.replace("sync_interval: always", "sync_interval: 30s");
    std::fs::write(nats.dir().join("nats.conf"), lazy).unwrap();
    let mut set =
        Set::of(nats, redis(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]));
    set.nats.kill();
    set.nats.restart();
    let ended = set.doctor(&["--nats-monitor", &format!("http://127.0.0.1:{port}")]).with(1);
    let found = verdicts(&ended);
    assert_eq!(found["jetstream.sync"], "bad", "{ended:#?}");
    assert!(ended.stdout.contains("may be on no disk for 30 s"), "{ended:#?}");
    assert!(advice(&ended, "jetstream.sync").contains("sync_interval: always"), "{ended:#?}");
    assert_eq!(found["redis.policy"], "bad", "{ended:#?}");
    assert!(advice(&ended, "redis.policy").contains("noeviction"), "{ended:#?}");
    let away = set.doctor(&["--nats-monitor", "http://127.0.0.1:9"]);
    assert_eq!(verdicts(&away)["jetstream.sync"], "unknown", "{away:#?}");
    // None is asked for there, and it is not shown.
    let login = set.doctor(&["--nats-monitor", "http://ann:s3cret,s3cret@127.0.0.1:9"]);
    assert_eq!(verdicts(&login)["jetstream.sync"], "unknown", "{login:#?}");
    assert!(login.stdout.contains("has a login"), "{login:#?}");
    no_secret(&login);
}

/// Servers that are away are told one by one; the other is looked at all the same.
#[test]
fn what_is_away_is_found() {
    let mut set = Set::of(watched_nats("").0, redis(&[]));
    set.redis.kill();
    let ended = set.doctor(&[]).with(6);
    let found = verdicts(&ended);
    assert_eq!((&*found["nats"], &*found["redis"]), ("good", "bad"), "{ended:#?}");
    set.redis.restart();
    set.nats.kill();
    let ended = set.doctor(&[]).with(6);
    let found = verdicts(&ended);
    assert_eq!((&*found["nats"], &*found["redis.policy"]), ("bad", "good"), "{ended:#?}");
}

/// Who may do what, with the roles that are shipped and with one user for everything.
#[test]
fn rights_that_are_too_wide_are_found() {
    let roles = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/nats/roles.conf");
    let roles = std::fs::read_to_string(roles).unwrap();
    let roles = roles
        .replace("password: $TENURE_", "password: s3cret_")
        .replace("user: $TENURE_", "user: nobody_");
    let mut set = Set::of(watched_nats(&roles).0, redis(&[]));
    let at = |user: &str, part: &str| {
        let secret = format!("s3cret_{}_PASSWORD", user.split('-').next().unwrap().to_uppercase());
        let (name, password) = match part {
            "journal" => ("TENURE_JOURNAL_USER", "TENURE_JOURNAL_PASSWORD"),
            "control" => ("TENURE_CONTROL_USER", "TENURE_CONTROL_PASSWORD"),
            _ => ("TENURE_INTAKE_USER", "TENURE_INTAKE_PASSWORD"),
        };
        [(name, user.to_owned()), (password, secret)]
    };
    let bare = set.told.clone();
    for part in ["journal", "control", "intake"] {
        set.told.extend(at(part, part));
    }
    let node = set.node();
    let port = set.nats.port;
    let observer = format!("nats://observer-1:s3cret_OBSERVER_PASSWORD@127.0.0.1:{port}");
    let asking = ["--client-nats", &observer, "--name", "observer-1", "--session", "main"];
    let wanted = ["nats.rights", "nats.needs", "partitions.owners", "nodes", "leases"];
    let wanted = wanted.map(|check| (check, "good"));
    let ended = set.until(&wanted, &asking).with(0);
    no_secret(&ended);
    // Nobody who may ask was named: the rest is found all the same.
    let alone = set.until(&[("nodes", "unknown"), ("nats.rights", "good")], &[]);
    no_secret(&alone);
    node.signal(Signal::SIGTERM);
    node.end();

    // One login for everything, in the address.
    let one = format!("nats://journal:s3cret_JOURNAL_PASSWORD@127.0.0.1:{port}");
    set.told = bare;
    set.told.push(("TENURE_NATS_URL", one));
    let ended = set.doctor(&asking).with(1);
    assert_eq!(verdicts(&ended)["nats.rights"], "bad", "{ended:#?}");
    no_secret(&ended);
    set.told.extend(at("control", "control"));
    set.told.push(("TENURE_CONTROL_PASSWORD", "wrong".into()));
    let ended = set.doctor(&asking).with(6);
    assert_eq!(verdicts(&ended)["nats"], "bad", "{ended:#?}");
    assert!(ended.stdout.contains("does not let control in"), "{ended:#?}");
}

/// A node whose users may not do what they must would start, and then stand still.
#[test]
fn rights_that_are_missing_are_found() {
    let needed = [
        ("\"tenure.wal.>\", ", "tenure.wal.doctor"),
        ("\"tenure.v1.node.>\", \"tenure.v1.system.>\"]\n", "tenure.v1.node.doctor.doctor"),
        ("\"tenure.v1.observer.>\"", "tenure.v1.observer.*.*.cmd.doctor"),
    ];
    let roles = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/nats/roles.conf");
    let mut roles = std::fs::read_to_string(roles).unwrap();
    roles = roles
        .replace("password: $TENURE_", "password: s3cret_")
        .replace("user: $TENURE_", "user: nobody_");
    for (right, _) in needed {
        assert!(roles.contains(right), "{right}");
        let less = if right.ends_with('\n') { "\"nothing\"]\n" } else { "\"nothing\"" };
        let less = if right.ends_with(", ") { "" } else { less };
        roles = roles.replacen(right, less, 1);
    }
    let mut set = Set::of(watched_nats(&roles).0, redis(&[]));
    for part in ["journal", "control", "intake"] {
        let upper = part.to_uppercase();
        let name: [&'static str; 2] = match part {
            "journal" => ["TENURE_JOURNAL_USER", "TENURE_JOURNAL_PASSWORD"],
            "control" => ["TENURE_CONTROL_USER", "TENURE_CONTROL_PASSWORD"],
            _ => ["TENURE_INTAKE_USER", "TENURE_INTAKE_PASSWORD"],
        };
        let values = [part.to_owned(), format!("s3cret_{upper}_PASSWORD")];
        set.told.extend(name.into_iter().zip(values));
    }
    let ended = set.doctor(&[]).with(1);
    assert_eq!(verdicts(&ended)["nats.needs"], "bad", "{ended:#?}");
    for (_, told) in needed {
        assert!(ended.stdout.contains(told), "{told}: {ended:#?}");
    }
    assert!(advice(&ended, "nats.needs").contains("deploy/nats/roles.conf"), "{ended:#?}");
}

/// What a Redis user may not do is found before a worker's lease waits for it.
#[test]
fn a_redis_user_without_scripts_is_found() {
    let user = |name: &str, rights: &str| -> Vec<String> {
        let all = format!("--user {name} on >s3cret ~tenure:* resetchannels -@all {rights}");
        all.split(' ').map(str::to_owned).collect()
    };
    let shipped = "+@read +@write +@scripting +@connection +time -@dangerous +info +cluster|slots";
    let mut args = user("tenure", shipped);
    args.extend(user("mute", &format!("{shipped} -evalsha")));
    args.extend(user("reader", &format!("{shipped} -zadd")));
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut set = Set::of(watched_nats("").0, redis(&args));
    let port = set.redis.port;
    for (name, verdict) in [("tenure", "good"), ("mute", "bad"), ("reader", "bad")] {
        set.told.push(("TENURE_REDIS_URL", format!("redis://{name}:s3cret@127.0.0.1:{port}")));
        let ended = set.doctor(&[]);
        assert_eq!(verdicts(&ended)["redis.rights"], verdict, "{name}: {ended:#?}");
        assert_eq!(verdicts(&ended)["redis.policy"], "good", "{name}: {ended:#?}");
        no_secret(&ended);
    }
    let keys = redis_cli::says(port, &["KEYS", "*doctor*"]);
    assert!(keys.is_empty(), "nothing is left behind: {keys}");
}

/// What leases and logs do not agree about, either way.
#[test]
fn leases_that_do_not_fit_are_found() {
    let set = Set::of(watched_nats("").0, redis(&[]));
    let _node = set.node();
    let mut worker = Running::of(&mut set.command(&["worker", "--name", "w1"]));
    worker.hears("runs steps of pool default");
    set.place.file("long.yaml", "task_id: long\ntitle: long\nsteps: {a: {run: sleep 600}}\n");
    Running::run_to_end(&mut set.command(&["submit", "long.yaml"])).with(0);
    set.until(&[("leases", "good"), ("redis.rights", "good")], &[]);

    // Somebody meddles with Redis: a lease of nobody.
    let says = |words: &[&str]| redis_cli::says(set.redis.port, words);
    let ends = says(&["KEYS", "*{[0-9]*}:ends"]).lines().next().unwrap().to_owned();
    let stray = "default/long/01a20000-0000-7000-8000-000000000001";
    says(&["ZADD", &ends, "9999999999999", stray]);
    let ended = set.until(&[("leases", "bad")], &[]).with(1);
    assert!(ended.stdout.contains("0 attempts open without a lease, 1 leased"), "{ended:#?}");
    assert!(advice(&ended, "leases").contains("tenure lease audit"), "{ended:#?}");
    says(&["ZREM", &ends, stray]);

    // The worker stands still, so that nobody renews it, and its lease is gone.
    worker.signal(Signal::SIGSTOP);
    says(&["DEL", &ends]);
    let ended = set.until(&[("leases", "bad")], &[]).with(1);
    assert!(ended.stdout.contains("1 attempt open without a lease, 0 leased"), "{ended:#?}");
    worker.signal(Signal::SIGCONT);
}

/// A cluster that has worked and is at rest keeps nothing of it; what somebody leaves there is found.
#[test]
fn what_is_left_over_is_found() {
    let set = Set::of(watched_nats("").0, redis(&[]));
    let _node = set.node();
    let mut worker = Running::of(&mut set.command(&["worker", "--name", "w1"]));
    worker.hears("runs steps of pool default");
    let submit = |name: &str, steps: &str, wait: &[&str]| {
        let file = format!("{name}.yaml");
        set.place.file(&file, format!("task_id: {name}\ntitle: {name}\nsteps: {steps}\n"));
        let args = [&["submit", file.as_str()], wait].concat();
        Running::run_to_end(&mut set.command(&args)).with(0);
    };
    submit("short", "{a: {run: 'true'}, b: {run: 'true', needs: [a]}}", &["--wait"]);
    let audited = [
        "audit.attempts",
        "audit.credits",
        "audit.deliveries",
        "audit.leases",
        "audit.links",
        "audit.nodes",
        "audit.owners",
        "audit.requests",
        "audit.signals",
        "audit.tasks",
        "audit.waiters",
        "audit.waiting",
    ];
    let rested = set.until(&audited.map(|check| (check, "good")), &["--audit"]);
    assert!(rested.stdout.contains("1 link agree"), "{rested:#?}");

    // A lease of nobody. And while something runs what belongs to it is not judged.
    let stray = "default/short/01a20000-0000-7000-8000-000000000001";
    redis_cli::says(set.redis.port, &["ZADD", "tenure:{0}:ends", "9999999999999", stray]);
    submit("long", "{a: {run: sleep 600}}", &[]);
    let wanted = [("leases", "bad"), ("audit.live", "unknown"), ("audit.links", "good")];
    let ended = set.until(&wanted, &["--audit"]).with(1);
    assert!(ended.stdout.contains("0 attempts open without a lease, 1 leased"), "{ended:#?}");
    assert!(ended.stdout.contains("1 task live: not judged are "), "{ended:#?}");
}

/// A checkpoint's stream is judged, and beside checkpoints it is measured how long an append takes.
#[test]
fn how_long_an_append_takes_is_measured() {
    let (nats, monitor) = watched_nats("");
    let port = nats.port;
    let set = Set::of(nats, redis(&[]));
    let made = |per_subject| async move {
        let client = async_nats::connect(format!("127.0.0.1:{port}")).await.unwrap();
        let config = async_nats::jetstream::stream::Config {
            name: "TENURE_INDEX".into(),
            subjects: vec!["tenure.index.>".into()],
            max_messages_per_subject: per_subject,
            allow_direct: true,
            ..Default::default()
        };
        let context = async_nats::jetstream::new(client);
        context.create_or_update_stream(config).await.unwrap();
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(made(1));
    let asked = ["--nats-monitor", &monitor];
    let ended = set.until(&[("log.index", "good"), ("log.append", "good")], &asked);
    assert!(ended.stdout.contains("to make a message durable takes "), "{ended:#?}");
    runtime.block_on(made(5));
    let ended = set.doctor(&asked);
    assert_eq!(verdicts(&ended)["log.index"], "caution", "{ended:#?}");
    assert!(advice(&ended, "log.index").contains("max_msgs_per_subject: 1"), "{ended:#?}");
}

/// What it is told is read as `tenure serve` reads it.
#[test]
fn it_is_told_what_a_node_is_told() {
    let set = Set::of(watched_nats("").0, redis(&[]));
    let ended = Running::run_to_end(&mut set.command(&["doctor", "--partitions", "0"]));
    ended.with(2).saying("--partitions is 0");
    set.place.file("tenure.toml", "partitions = 3\ncluster = \"OTHER\"\n");
    let ended = set.doctor(&["--config", "tenure.toml"]);
    let json: Value = ended.json();
    assert_eq!(json["findings"][0]["check"], "cluster");
    let named = json["findings"][0]["found"].as_str().unwrap();
    assert!(named.starts_with("OTHER: "), "the name of the cluster: {named}");
    assert!(json.to_string().contains("there is no log named OTHER"), "{json}");
    assert!(json.to_string().contains("3 partitions: 0, 1, 2 of 3"), "{json}");
}
