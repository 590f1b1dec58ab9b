//! `tenure gateway` and `tenure serve --http` before a real cluster, and commands that go through them.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

#[path = "support/cluster.rs"]
mod cluster;
#[path = "support/http.rs"]
mod http;
#[allow(dead_code)] // Other tests need more of it.
#[path = "../../cluster/tests/real/servers.rs"]
mod servers;
mod support;

use std::fmt::Write as _;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use cluster::Cluster;
use nix::sys::signal::Signal;
use sha2::{Digest as _, Sha256};
use support::{PATIENCE, Running};

/// A Task of two Steps, one after the other.
const TWO: &str =
    "task_id: two\ntitle: two\nsteps: {a: {run: echo one}, b: {run: echo two, needs: a}}\n";

/// A process that listens, and its address.
fn listening(cluster: &Cluster, args: &[&str]) -> (Running, String) {
    let mut process = cluster.begin(args);
    let said = process.hears(" listens at ");
    let url = said.split_once(" listens at ").unwrap().1;
    let url = url.split_whitespace().next().unwrap().to_owned();
    (process, url)
}

fn gateway(cluster: &Cluster, more: &[&str]) -> (Running, String) {
    listening(cluster, &[&["gateway", "--http", "127.0.0.1:0"], more].concat())
}

/// What `tenure dev` says about its API, and the address of that.
fn api_of(dev: &mut Running) -> (String, String) {
    let said = dev.hears("HTTP API at ");
    let url = said.split_once("HTTP API at ").unwrap().1.split(',').next().unwrap().to_owned();
    (said, url)
}

/// A file that lets in who has this token, as an orchestrator of session `default`.
fn callers(cluster: &Cluster, token: &str) {
    let digest = Sha256::digest(token).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // Writing to a String never fails.
        text
    });
    let text = format!(
        "[[tokens]]\nsha256 = \"{digest}\"\nprincipal = \"ann\"\nrole = \"orchestrator\"\n\
         sessions = [\"default\"]\n"
    );
    cluster.place.file("callers.toml", text);
}

#[test]
fn a_cluster_is_used_through_a_gateway() {
    let cluster = Cluster::start();
    let _worker = cluster.worker("w1");
    let (gateway, url) = gateway(&cluster, &[]);
    let through = |args: &[&str]| cluster.tenure(&[args, &["--http", &url]].concat());
    cluster.place.file("two.yaml", TWO);
    through(&["submit", "two.yaml", "--wait", "-o", "quiet"]).with(0);
    let listed = through(&["task", "list", "--all", "-o", "json"]).with(0).json();
    assert_eq!(listed["tasks"][0]["task_id"], "two");
    let got = through(&["task", "get", "two"]).with(0);
    assert!(got.stdout.contains("2 of 2 steps completed"), "{got:#?}");
    through(&["task", "wait", "two", "--timeout", "30"]).with(0);
    let events = through(&["task", "events", "two"]).with(0).lines();
    assert_eq!(events.last().unwrap()["event"], "task.completed");
    assert_eq!(through(&["logs", "two", "b"]).with(0).stdout, "two\n");
    through(&["wal", "verify"]).with(0);
    let pools = through(&["pool", "list", "-o", "json"]).with(0).json();
    assert_eq!(pools["pools"][0]["workers"], 1, "{pools:#}");
    let workers = through(&["worker", "list", "-o", "json"]).with(0).json();
    assert_eq!(workers["workers"][0]["principal"], "w1", "{workers:#}");
    let leases = through(&["lease", "list", "-o", "json"]).with(0).json();
    assert_eq!(leases["leases"].as_array().map(Vec::len), Some(0), "{leases:#}");
    through(&["task", "get", "twoo"]).with(3).saying("did you mean `two`?");

    // What gateways do not offer.
    for args in [&["worker", "drain", "w1"][..], &["lease", "audit"], &["top", "--once"]] {
        through(args).with(2).saying("does not offer this").saying("--nats");
    }
    gateway.signal(Signal::SIGTERM);
    gateway.end().with(0).saying("takes no more requests");
}

/// A caller is who its token says, and the file that says it is read again on SIGHUP.
#[test]
fn callers_are_known_by_their_tokens() {
    let cluster = Cluster::start();
    callers(&cluster, "t0ken-one");
    let (gateway, url) = gateway(&cluster, &["--http-callers", "callers.toml"]);
    let list = |token: &str, session: &str| {
        let args = ["task", "list", "--http", &url, "--session", session];
        let mut command = cluster.command(&args);
        Running::run_to_end(command.env("TENURE_TOKEN", token))
    };
    list("t0ken-one", "default").with(0);
    list("t0ken-one", "other").with(5);
    let refused = list("t0ken-two", "default").with(5).saying("--token");
    assert!(!refused.stderr.contains("t0ken-two"), "{refused:#?}");
    let open = http::ask(&url, "GET", "/v1/sessions/default/tasks", &[], "");
    assert_eq!(open.status, 401, "{open:?}");
    assert!(open.head.to_lowercase().contains("www-authenticate: bearer"), "{open:?}");

    callers(&cluster, "t0ken-two");
    gateway.signal(Signal::SIGHUP);
    let begun = Instant::now();
    while list("t0ken-two", "default").code != Some(0) {
        assert!(begun.elapsed() < PATIENCE, "the new token does not count");
        std::thread::sleep(Duration::from_millis(50));
    }
    list("t0ken-one", "default").with(5);
    gateway.signal(Signal::SIGTERM);
    gateway.end().with(0);
}

#[test]
fn a_gateway_that_would_be_open_to_all_does_not_start() {
    let cluster = Cluster::start();
    let refused = cluster.tenure(&["gateway", "--http", "0.0.0.0:0"]).with(2);
    refused.saying("without authentication").saying("--http-callers");
    let missing = ["gateway", "--http", "127.0.0.1:0", "--http-callers", "nobody.toml"];
    cluster.tenure(&missing).with(2).saying("nobody.toml");
}

/// Each connection is an open file, and a process may have few of them.
#[test]
fn a_gateway_says_that_it_may_have_too_few_connections() {
    let cluster = Cluster::start();
    let gateway = cluster.command(&["gateway", "--http", "127.0.0.1:0"]);
    let script = "ulimit -n 512; exec \"$0\" \"$@\"";
    let mut limited = cluster.place.program("sh", &["-c", script]);
    limited.arg(gateway.get_program()).args(gateway.get_args());
    limited.envs(gateway.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut gateway = Running::of(&mut limited);
    let said = gateway.hears("the limit of open files is too low for all connections");
    assert!(said.contains("connections=256"), "{said}");
    gateway.signal(Signal::SIGTERM);
    gateway.end().with(0);
}

/// A node serves HTTP in its own process, and hands its partitions over all the same.
#[test]
fn a_node_serves_http_too() {
    let mut cluster = Cluster::start();
    cluster.node = None;
    let redis = format!("redis://127.0.0.1:{}", cluster.redis.port);
    let serve = ["serve", "--redis", &redis, "--node", "n2", "--http", "127.0.0.1:0"];
    let (mut node, url) = listening(&cluster, &serve);
    node.hears(" serves");
    let _worker = cluster.worker("w1");
    cluster.place.file("two.yaml", TWO);
    let through = |args: &[&str]| cluster.tenure(&[args, &["--http", &url]].concat());
    through(&["submit", "two.yaml", "--wait", "-o", "quiet"]).with(0);
    node.signal(Signal::SIGTERM);
    node.end().with(0).saying("hands its partitions over");
}

/// Others take the partitions of a node that cannot listen at once, and not when its leases have ended.
#[test]
fn a_node_that_cannot_listen_hands_its_partitions_over() {
    let mut cluster = Cluster::start();
    cluster.node = None;
    let redis = format!("redis://127.0.0.1:{}", cluster.redis.port);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap().to_string();
    let node = cluster.tenure(&["serve", "--redis", &redis, "--node", "n2", "--http", &at]);
    node.with(6).saying("cannot listen").saying("hands its partitions over");
}

/// `tenure doctor` tells gateways apart that serve agents by different files. One that is away hides no other.
#[test]
fn agents_of_gateways_are_compared() {
    let cluster = Cluster::start();
    let file = |name: &str, agent: &str| {
        let text = format!("[[agents]]\nname = \"{agent}\"\ndescription = \"Works.\"\n");
        cluster.place.file(name, text);
    };
    file("one.toml", "works");
    file("two.toml", "works");
    let (_first, one) = gateway(&cluster, &["--agents", "one.toml"]);
    let (second, two) = gateway(&cluster, &["--agents", "two.toml"]);
    let redis = format!("redis://127.0.0.1:{}", cluster.redis.port);
    let compared = |more: &str| {
        let urls = format!("{one},{two}{more}");
        let args = ["doctor", "--redis", &redis, "--gateways", &urls, "-o", "json"];
        let told = cluster.tenure(&args).json();
        let findings = told["findings"].as_array().unwrap().iter();
        let of_gateways = findings.filter(|finding| finding["check"] == "gateways.agents");
        of_gateways.cloned().collect::<Vec<_>>()
    };
    let same = compared("");
    assert_eq!(same.len(), 1, "{same:#?}");
    let found = same[0]["found"].as_str().unwrap();
    assert!(
        same[0]["verdict"] == "good" && found.contains(&one) && found.contains(&two),
        "{found}"
    );

    file("two.toml", "plays");
    second.signal(Signal::SIGHUP);
    let begun = Instant::now();
    while compared("")[0]["verdict"] != "caution" {
        assert!(begun.elapsed() < PATIENCE, "nobody sees that the files differ");
    }
    let away = compared(",http://127.0.0.1:9");
    let verdicts: Vec<_> = away.iter().map(|finding| &finding["verdict"]).collect();
    assert_eq!(verdicts, ["bad", "caution"], "{away:#?}");
    assert!(away[0]["found"].as_str().unwrap().contains("127.0.0.1:9"), "{away:#?}");
    cluster.tenure(&["doctor", "--gateways", "nonsense"]).with(2).saying("--gateways");
}

/// `tenure dev --nats`: a gateway and a worker of the cluster.
#[test]
fn a_worker_and_a_gateway_of_a_cluster_are_one_command() {
    let cluster = Cluster::start();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap().to_string();
    cluster.tenure(&["dev", "--http", &at]).with(6).saying("cannot listen");
    // None has joined: all partitions say so, once they are served.
    cluster.until(&["worker", "list"], |list| {
        let is_empty = |name: &str| list[name].as_array().is_none_or(Vec::is_empty);
        is_empty("missing_partitions") && is_empty("workers")
    });
    let mut dev = cluster.begin(&["dev", "--http", "127.0.0.1:0"]);
    let (said, url) = api_of(&mut dev);
    assert!(said.contains("tasks in the cluster"), "{said}");
    cluster.place.file("two.yaml", TWO);
    cluster.tenure(&["submit", "two.yaml", "--wait", "-o", "quiet", "--http", &url]).with(0);
    let workers = cluster.tenure(&["worker", "list", "-o", "json"]).with(0).json();
    assert_eq!(workers["workers"][0]["principal"], "dev", "{workers:#}");
    dev.signal(Signal::SIGINT);
    dev.end().with(0);
    assert!(!cluster.place.path(".tenure/tasks").exists(), "it has no log of its own");
}

/// SIGHUP has the callers of such a gateway read again, too, and does not end the worker beside it.
#[test]
fn a_gateway_beside_a_worker_reads_its_callers_again() {
    let cluster = Cluster::start();
    callers(&cluster, "t0ken-one");
    let args = ["dev", "--http", "127.0.0.1:0", "--http-callers", "callers.toml"];
    let mut dev = cluster.begin(&args);
    let (_, url) = api_of(&mut dev);
    let status = |token: &str| {
        let bearer = format!("Bearer {token}");
        let headers = [("Authorization", bearer.as_str())];
        http::ask(&url, "GET", "/v1/sessions/default/tasks", &headers, "").status
    };
    assert_eq!(status("t0ken-one"), 200);
    callers(&cluster, "t0ken-two");
    dev.signal(Signal::SIGHUP);
    let begun = Instant::now();
    while status("t0ken-two") != 200 {
        assert!(begun.elapsed() < PATIENCE, "the new token does not count");
        std::thread::sleep(Duration::from_millis(50));
    }
    dev.signal(Signal::SIGINT);
    dev.end().with(0);
}

/// A worker that reaches only gateways runs steps, goes on at the next gateway when one dies, and leaves in good order.
#[test]
fn a_worker_comes_over_http_alone() {
    let cluster = Cluster::start();
    let (first, one) = gateway(&cluster, &[]);
    let (_second, other) = gateway(&cluster, &[]);
    let both = format!("{one},{other}");
    let mut command = cluster.place.command(&["worker", "--http", &both, "--concurrency", "2"]);
    let mut worker = Running::of(&mut command);
    worker.hears("runs steps of pool default");
    cluster.place.file("two.yaml", TWO);
    cluster.tenure(&["submit", "two.yaml", "--wait", "-o", "quiet", "--http", &both]).with(0);
    let workers = cluster.tenure(&["worker", "list", "-o", "json"]).with(0).json();
    assert_eq!(workers["workers"][0]["principal"], "local", "{workers:#}");
    let steps = "steps: {a: {run: sleep 2}, b: {run: echo b, needs: a}}";
    cluster.submit("long", steps, &[]).with(0);
    cluster.is_at_work("long");
    first.signal(Signal::SIGKILL);
    let waits = ["task", "wait", "long", "--http", &both, "--timeout", "30"];
    cluster.tenure(&waits).with(0);
    let tried = cluster.tenure(&["attempt", "list", "long", "-o", "json"]).with(0).json();
    assert_eq!(
        tried["attempts"].as_array().map(Vec::len),
        Some(2),
        "each is tried once: {tried:#}"
    );
    worker.signal(Signal::SIGTERM);
    worker.end().with(0);
    cluster.until(&["worker", "list"], |it| it["workers"].as_array().is_some_and(Vec::is_empty));
}
