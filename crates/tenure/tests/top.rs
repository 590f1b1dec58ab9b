//! `tenure top` in a real terminal, before a real cluster.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

#[allow(dead_code)] // Other tests need more of it.
#[path = "../../cluster/tests/real/servers.rs"]
mod servers;
mod support;

use std::process::Command;

use nix::sys::signal::Signal;
use serde_json::Value;
use servers::{Server, nats, redis};
use support::{Ended, Place, Running};
use tenure_tests::pty::Pty;

/// Servers, and a place to speak to them from.
struct Cluster {
    place: Place,
    nats: Server,
    redis: Server,
}

impl Cluster {
    fn start() -> Self {
        Self { place: Place::new(), nats: nats(), redis: redis(&[]) }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.place.command(args);
        command.env("TENURE_NATS_URL", format!("nats://127.0.0.1:{}", self.nats.port));
        command
    }

    fn tenure(&self, args: &[&str]) -> Ended {
        Running::run_to_end(&mut self.command(args))
    }

    fn node(&self, name: &str) -> Running {
        let url = format!("redis://127.0.0.1:{}", self.redis.port);
        let serve = ["serve", "--redis", &url, "--node", name];
        let mut node = Running::of(&mut self.command(&serve));
        node.hears(" serves");
        node
    }

    fn worker(&self, name: &str, pool: &str) -> Running {
        let args = ["worker", "--name", name, "--pool", pool];
        let mut worker = Running::of(&mut self.command(&args));
        worker.hears("runs steps of pool");
        worker
    }

    fn submit(&self, task: &str, steps: &str) {
        let name = format!("{task}.yaml");
        self.place.file(&name, format!("task_id: {task}\ntitle: {task}\nsteps: {steps}\n"));
        self.tenure(&["submit", &name]).with(0);
    }

    fn top(&self, more: &[&str], columns: u16, rows: u16) -> Pty {
        let args = [&["top", "--every", "250ms"], more].concat();
        Pty::run(&mut self.command(&args), columns, rows)
    }
}

/// The line that begins with this, if there is one.
fn line<'a>(text: &'a str, start: &str) -> Option<&'a str> {
    text.lines().find(|line| line.starts_with(start))
}

/// The words of the line that begins with this.
fn words<'a>(text: &'a str, start: &str) -> Vec<&'a str> {
    line(text, start).unwrap_or_default().split_whitespace().collect()
}

#[test]
fn a_cluster_is_watched_in_a_terminal() {
    let cluster = Cluster::start();
    let _node = cluster.node("n1");
    let _workers = [cluster.worker("w1", "default"), cluster.worker("w2", "default")];
    cluster.submit("long", "{a: {run: sleep 600}}");
    cluster.submit("deserted", "{b: {run: echo one, pool: gpu}}");
    let mut top = cluster.top(&["--role", "observer"], 120, 40);

    // Everything is there: nodes, pools, workers, and the Step that runs.
    let text = top.until("there is everything", |screen| {
        let text = screen.contents();
        words(&text, "gpu").get(3) == Some(&"1")
            && words(&text, "default").get(5) == Some(&"1")
            && line(&text, "w1.").is_some()
            && line(&text, "w2.").is_some()
            && line(&text, "long  a ").is_some()
    });
    assert!(top.is_taken(), "{text}");
    assert!(text.starts_with(&format!("tenure top  nats://127.0.0.1:{}", cluster.nats.port)));
    assert!(line(&text, "n1-").unwrap().contains("here"), "{text}");
    assert!(text.contains("1 node   8 partitions   2 tasks in memory   2 workers"), "{text}");
    assert!(line(&text, "waiting").unwrap().contains("1 no_worker_in_pool"), "{text}");
    assert_eq!(words(&text, "gpu").last(), Some(&"deserted/b"), "{text}");
    let (gpu, default) = (text.find("\ngpu ").unwrap(), text.find("\ndefault ").unwrap());
    assert!(gpu < default, "what waits for a worker that there is not stands on top: {text}");
    let held: Vec<_> = ["w1.", "w2."].map(|worker| words(&text, worker)[3].to_owned()).into();
    assert!(held.contains(&"1".into()) && held.contains(&"0".into()), "{text}");

    // Rates move, and totals with them.
    top.until("there are rates", |screen| {
        words(&screen.contents(), "for each second").get(3).is_some_and(|rate| *rate == "0")
    });
    let before = words(&text, "since nodes began")[4].parse::<u64>().unwrap();
    let steps: Vec<String> = (0..40).map(|n| format!("s{n}: {{run: sleep 0.1}}")).collect();
    cluster.submit("busy", &format!("{{{}}}", steps.join(", ")));
    top.until("rates move", |screen| {
        words(&screen.contents(), "for each second").get(4).is_some_and(|rate| *rate != "0")
    });
    top.until("all of it is counted", |screen| {
        let text = screen.contents();
        words(&text, "since nodes began")
            .get(4)
            .is_some_and(|completed| completed.parse::<u64>() == Ok(before + 40))
    });

    // Another size is another screen, and a tiny one is one too.
    top.resize(80, 24);
    let text = top.shows("q leave   Tab section");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    top.resize(20, 5);
    top.shows("tenure top  nats");
    top.until("only the first lines are left", |screen| {
        !screen.contents().contains("WORKER") && screen.contents().contains("1 node")
    });
    top.resize(120, 40);
    top.shows("q leave   Tab section");

    // Keys.
    top.press("?");
    top.shows("stand still");
    top.press("?");
    top.shows("q leave");
    top.press("p");
    top.shows("paused");
    top.press("p");
    top.shows("every 250ms");
    assert!(top.text().contains("▸ pools"));
    top.press("\t");
    top.shows("▸ workers");
    top.press("\x1b[Z");
    top.shows("▸ pools");
    top.press("q");
    assert_eq!(top.end(), Some(0));
    top.is_as_it_was();
}

#[test]
fn a_cluster_that_goes_away_and_comes_back_is_told() {
    let cluster = Cluster::start();
    let node = cluster.node("n1");
    let _worker = cluster.worker("w1", "default");
    cluster.submit("long", "{a: {run: sleep 600}}");
    let mut top = cluster.top(&[], 100, 30);
    let text = top.until("the step runs", |screen| {
        let text = screen.contents();
        line(&text, "long  a ").is_some() && words(&text, "default").get(5) == Some(&"1")
    });
    let first = words(&text, "n1-")[0].to_owned();
    node.signal(Signal::SIGKILL);
    node.end();
    top.shows("no answer for ");
    top.until("the node is silent", |screen| {
        line(&screen.contents(), &first).is_some_and(|line| line.contains("silent"))
    });
    assert!(line(&top.text(), "w1.").is_some(), "what was known is still shown");

    let _node = cluster.node("n1");
    let text = top.until("it goes on", |screen| {
        let text = screen.contents();
        let here = text.lines().find(|line| line.contains("  here  ") && line.starts_with("n1-"));
        here.is_some_and(|line| !line.starts_with(&first)) && !text.contains("no answer")
    });
    assert!(line(&text, &first).is_some_and(|line| line.contains("silent")), "{text}");
    // What the worker holds is known to a node that was not there when it got it.
    top.until("the step still runs", |screen| {
        let text = screen.contents();
        words(&text, "default").get(5) == Some(&"1") && words(&text, "w1.").get(3) == Some(&"1")
    });
    top.signal(Signal::SIGTERM);
    assert_eq!(top.end(), Some(0));
    top.is_as_it_was();
}

#[test]
fn three_keys_leave() {
    let cluster = Cluster::start();
    let _node = cluster.node("n1");
    for key in ["q", "\x1b", "\x03"] {
        let mut command = cluster.command(&["top"]);
        let mut top = Pty::run(command.env("NO_COLOR", "1"), 80, 24);
        top.until("nodes answer", |screen| {
            screen.contents().contains("1 node ") && !screen.contents().contains("nobody answers")
        });
        assert!(!top.has_colour(), "NO_COLOR");
        top.press(key);
        assert_eq!(top.end(), Some(0), "{key:?}");
        top.is_as_it_was();
    }
}

#[test]
fn without_a_terminal_it_is_printed() {
    let cluster = Cluster::start();
    let _node = cluster.node("n1");
    let _worker = cluster.worker("w1", "default");
    cluster.tenure(&["top"]).with(2).saying("-o jsonl");
    cluster.tenure(&["top", "--count", "2"]).with(2).saying("--count");
    cluster.tenure(&["top", "--once", "--count", "2"]).with(2).saying("--count");
    cluster.tenure(&["top", "--every", "10ms"]).with(2).saying("at least 200ms");

    let once = cluster.tenure(&["top", "--once", "--every", "200ms"]).with(0).stdout;
    assert!(once.contains("1 node   8 partitions"), "{once}");
    assert!(words(&once, "for each second").get(3) == Some(&"0"), "two answers give rates: {once}");
    let json = cluster.tenure(&["top", "-o", "json", "--every", "200ms"]).with(0).json();
    assert_eq!(json["pools"][0]["pool"], "default", "{json:#}");
    assert_eq!(json["workers"][0]["state"], "here", "{json:#}");
    assert_eq!(json["rates"]["claims"], 0.0, "{json:#}");
    assert_eq!(json["missing_partitions"], Value::Array(Vec::new()), "{json:#}");
    let some = ["top", "-o", "jsonl", "--every", "200ms", "--count", "3"];
    assert_eq!(cluster.tenure(&some).with(0).lines().len(), 3);

    let nobody = ["top", "--once", "--nats", "nats://ann:s3cret@127.0.0.1:9"];
    let refused = cluster.tenure(&nobody).with(6);
    let refused = refused.saying("cannot reach nats://127.0.0.1:9: Connection refused");
    assert!(!refused.stderr.contains("s3cret"), "{refused:#?}");
}

#[test]
fn a_cluster_without_a_node_is_waited_for() {
    let cluster = Cluster::start();
    let mut top = cluster.top(&[], 80, 24);
    top.shows("no answer yet: ");
    let _node = cluster.node("n1");
    top.shows("1 node ");
    top.press("q");
    assert_eq!(top.end(), Some(0));
    cluster.tenure(&["top", "-o", "jsonl", "--every", "200ms", "--count", "1"]).with(0);
}
