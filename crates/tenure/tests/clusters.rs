//! Clusters of two names on the same servers.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

#[path = "support/cluster.rs"]
mod cluster;
#[allow(dead_code)] // Other tests need more of it.
#[path = "../../cluster/tests/real/servers.rs"]
mod servers;
mod support;

use cluster::Cluster;
use support::Running;

const ONE: &str = "steps: {a: {run: echo one}}";

/// OWN-01, CTRL-11: each command takes `--cluster`, and what it tells to type has it, too.
#[test]
fn a_cluster_is_named_by_each_command() {
    let cluster = Cluster::start();
    let redis = format!("redis://127.0.0.1:{}", cluster.redis.port);
    let mut node = cluster.begin(&["serve", "--redis", &redis, "--node", "n2", "--cluster", "b"]);
    node.hears(" serves");
    let named = |args: &[&str]| cluster.tenure(&[args, &["--cluster", "b"]].concat());
    cluster.submit("one", ONE, &["--cluster", "b"]).with(0);
    let listed = cluster.tenure(&["task", "list", "--all", "-o", "json"]).with(0).json();
    assert_eq!(listed["tasks"].as_array().unwrap().len(), 0, "it is of the other");
    cluster.tenure(&["task", "get", "one"]).with(3);
    let timed = named(&["task", "wait", "one", "--timeout", "1"]).with(6);
    timed.saying("go on waiting: tenure task wait default/one --cluster b");

    let mut worker = cluster.begin(&["worker", "--name", "w1", "--cluster", "b"]);
    worker.hears("runs steps of pool default");
    named(&["task", "wait", "one"]).with(0);
    let shown = named(&["task", "get", "one"]).with(0);
    assert!(shown.stdout.contains("completed"), "{shown:#?}");
    let mut command = cluster.command(&["task", "list", "--all", "-o", "json"]);
    let listed = Running::run_to_end(command.env("TENURE_CLUSTER", "b")).with(0).json();
    assert_eq!(listed["tasks"][0]["task_id"], "one");
    let workers = |args: &[&str]| {
        let listed = cluster.tenure(&[&["worker", "list", "-o", "json"], args].concat());
        listed.with(0).json()["workers"].as_array().unwrap().len()
    };
    assert_eq!((workers(&[]), workers(&["--cluster", "b"])), (0, 1));

    let nobody = ["task", "list", "--cluster", "c", "--patience", "1s"];
    let nobody = cluster.tenure(&nobody).with(6);
    nobody.saying("nobody serves this in the cluster c now").saying("tenure serve --cluster c");
    cluster.tenure(&["task", "list", "--cluster", "a.b"]).with(2).saying("a.b");
}

/// OWN-01: a node whose Redis belongs to another store ends, and says whose is whose.
#[test]
fn a_node_beside_the_redis_of_another_store_ends() {
    let (one, other) = (Cluster::start(), Cluster::start());
    let redis = format!("redis://127.0.0.1:{}", one.redis.port);
    let refused = other.tenure(&["serve", "--redis", &redis, "--node", "n2"]).with(4);
    refused.saying("belongs to the cluster TENURE, store ").saying("--cluster").saying("--redis");
    let looked = other.tenure(&["doctor", "--redis", &redis, "-o", "json"]).with(1).json();
    let named = &looked["findings"][0];
    assert_eq!((&named["check"], &named["verdict"]), (&"cluster".into(), &"bad".into()), "{named}");
    assert!(named["found"].as_str().unwrap().contains("belongs to the cluster TENURE, store "));
}

/// OWN-01: a name that cannot be one is refused by each command, before it asks anybody.
#[test]
fn a_name_that_cannot_be_one_is_refused() {
    let place = support::Place::new();
    let over = "b".repeat(65);
    for name in [over.as_str(), "", "a.b", "a b", "a>"] {
        for command in
            [&["task", "list", "--nats", "127.0.0.1:9"][..], &["worker"], &["serve"], &["doctor"]]
        {
            let refused = place.tenure(&[command, &["--cluster", name]].concat()).with(2);
            refused.saying("cluster");
        }
    }
}
