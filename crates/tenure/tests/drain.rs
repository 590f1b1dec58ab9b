//! Workers that hang are sent away: real servers, a node and workers as processes.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

#[path = "support/cluster.rs"]
mod cluster;
#[allow(dead_code)] // Other tests need more of it.
#[path = "../../cluster/tests/real/servers.rs"]
mod servers;
mod support;

use cluster::Cluster;
use support::Running;

/// A Task whose Step hangs the first time that it runs, when it makes this file, and ends the second time.
fn hangs_once(cluster: &Cluster, task: &str) {
    let file = cluster.place.path(task);
    let file = file.to_str().unwrap();
    let run = format!("test -e {file} && exit 0; echo 1 > {file}; sleep 600");
    cluster.submit(task, &format!("steps: {{a: {{run: \"{run}\"}}}}"), &[]).with(0);
    cluster.place.wait_for(task);
}

/// S26, LEASE-18: the Step went back once, was run again, and no try of it counts.
fn was_given_back(cluster: &Cluster, task: &str) {
    cluster.tenure(&["task", "wait", task, "--timeout", "30"]).with(0);
    let shown = cluster.tenure(&["wal", "show", task, "-o", "json"]).with(0);
    let events = shown.lines();
    let of = |name: &str| events.iter().filter(|event| event["event_type"] == name).count();
    assert_eq!((of("task_step_claimed"), of("task_step_lease_expired")), (2, 1), "{shown:#?}");
    assert_eq!(of("task_step_failed"), 0, "{shown:#?}");
    assert!(shown.stdout.contains(r#""reason":"released""#), "{shown:#?}");
    assert!(shown.stdout.contains(r#""release_reason":"draining""#), "{shown:#?}");
}

/// docs/operations.md, sending workers away: a worker with a Step that hangs leaves when its time is over, and
/// another runs the Step. The command waits for that.
#[test]
fn a_worker_that_hangs_leaves_when_its_time_is_over() {
    let cluster = Cluster::start();
    let one = cluster.worker("w1");
    hangs_once(&cluster, "late");
    let other = cluster.worker("w2");
    let told = cluster.tenure(&["worker", "drain", "w1", "--within", "1s", "--wait"]).with(0);
    assert!(told.stdout.contains("gives back what still runs after 1.0 s"), "{told:#?}");
    told.saying("waiting for w1.").saying("all of them have left");
    one.end().with(0);
    was_given_back(&cluster, "late");

    // By force, the time counts no more that it was given before.
    hangs_once(&cluster, "forced");
    let drain = |more: &[&str]| cluster.tenure(&[&["worker", "drain", "w2"], more].concat());
    drain(&["--within", "30d"]).with(0);
    drain(&["--wait", "--timeout", "1"]).with(6).saying("have not left within 1.0 s: w2.");
    let waiting = cluster.begin(&["worker", "drain", "w2", "--wait"]);
    waiting.stopped_saying("the workers leave without this command");
    let _third = cluster.worker("w3");
    drain(&["--force", "--wait", "-o", "json"]).with(0).saying("all of them have left");
    other.end().with(0);
    was_given_back(&cluster, "forced");
}

/// docs/operations.md, sending workers away: which times there are, and which options go together.
#[test]
fn the_options_of_a_drain_are_checked_before_anybody_is_asked() {
    let place = support::Place::new();
    let drain = |more: &[&str]| {
        let mut command = place.command(&[&["worker", "drain", "w1"], more].concat());
        Running::run_to_end(command.env("TENURE_NATS_URL", "nats://127.0.0.1:9"))
    };
    drain(&["--within", "30d 1ms"]).with(2).saying("at most `30d`");
    drain(&["--within", "soon"]).with(2);
    drain(&["--within", "5m", "--force"]).with(2).saying("cannot be used with");
    drain(&["--timeout", "5"]).with(2).saying("--wait");
    drain(&["--within", "30d", "--wait", "--timeout", "0"]).with(6).saying("cannot reach");
}
