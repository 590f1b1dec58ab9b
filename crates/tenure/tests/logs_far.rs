//! `tenure logs` for files that this machine has not: the worker reads them, as long as it lives (ART-09).

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "support/cluster.rs"]
mod cluster;
#[allow(dead_code)] // Other tests need more of it.
#[path = "../../cluster/tests/real/servers.rs"]
mod servers;
mod support;

use std::fs::{self, File};
use std::process::{Child, Stdio};

use cluster::Cluster;
use nix::sys::signal::Signal;
use support::{Running, wait_until};

/// A worker whose files have a name that means other files to every other process, as if it were on another
/// machine.
fn far_worker(cluster: &Cluster) -> Running {
    let dir = cluster.place.path("far");
    fs::create_dir_all(&dir).unwrap();
    let mut command = cluster.command(&["worker", "--name", "w1", "--files", "/proc/self/cwd/f"]);
    let mut worker = Running::of(command.current_dir(dir));
    worker.hears("runs steps of pool default");
    worker
}

/// Starts a command whose output goes into a file that the test can read meanwhile.
fn to_file(cluster: &Cluster, args: &[&str], name: &str) -> Child {
    let out = File::create(cluster.place.path(name)).unwrap();
    cluster.command(args).stdout(out).stderr(Stdio::piped()).spawn().unwrap()
}

fn text(cluster: &Cluster, name: &str) -> String {
    fs::read_to_string(cluster.place.path(name)).unwrap_or_default()
}

/// A Task whose one Step goes on when the test makes the file `go`, and then writes once more.
fn gated(cluster: &Cluster) {
    let go = cluster.place.path("go");
    let run =
        format!("echo begun; until [ -e {} ]; do sleep 0.02; done; printf rest", go.display());
    cluster.submit("gated", &format!("steps: {{gate: {{run: '{run}'}}}}"), &[]).with(0);
    let shown = || cluster.tenure(&["logs", "gated", "gate"]).stdout == "begun\n";
    wait_until(shown, &cluster.place.path("the output of a running step"));
}

/// ART-09: what ended and running Steps wrote is shown, of a file of several pages the whole.
#[test]
fn a_worker_elsewhere_shows_what_its_commands_wrote() {
    let cluster = Cluster::start();
    let worker = far_worker(&cluster);
    let ended =
        "steps: {a: {run: 'echo one; echo two; echo oops >&2'}, b: {run: 'true', needs: a}}";
    cluster.submit("ended", ended, &["--wait", "-o", "quiet"]).with(0);
    let all = cluster.tenure(&["logs", "ended"]).with(0);
    assert_eq!(all.stdout, "a| one\na| two\na| oops\n");
    let one = cluster.tenure(&["logs", "ended", "a", "--tail", "1"]).with(0);
    assert_eq!((&*one.stdout, &*one.stderr), ("two\n", "oops\n"));
    cluster.tenure(&["logs", "ended", "b"]).with(0).saying("has written nothing");

    let long = "steps: {a: {run: 'yes 0123456789 | head -n 100000; printf end'}}";
    cluster.submit("long", long, &["--wait", "-o", "quiet"]).with(0);
    let raw = cluster.tenure(&["logs", "long", "a"]).with(0).stdout;
    assert!(raw == "0123456789\n".repeat(100_000) + "end", "{} bytes", raw.len());
    let tail = cluster.tenure(&["logs", "long", "--tail", "30000"]).with(0).stdout;
    assert_eq!(tail.lines().count(), 30_000);
    assert!(tail.ends_with("a| 0123456789\na| end\n"));

    gated(&cluster);
    worker.signal(Signal::SIGKILL);
    let gone = cluster.tenure(&["logs", "ended", "a"]).with(3);
    gone.saying("worker w1.").saying("is not connected").saying("default/ended/a/1/stdout.log");
    let open = cluster.tenure(&["logs", "gated", "gate", "--attempt", "1"]).with(3);
    open.saying("default/gated/gate/1/stdout.log below the directory of its --files");
}

/// ART-09: `--follow` goes on as a command of a worker elsewhere writes, to its end.
#[test]
fn a_worker_elsewhere_is_followed() {
    let cluster = Cluster::start();
    let _worker = far_worker(&cluster);
    gated(&cluster);
    let follows: [&[&str]; 3] = [
        &["logs", "gated", "gate", "-f"],
        &["logs", "gated", "-f"],
        &["logs", "gated", "gate", "-f", "--tail", "1", "-o", "json"],
    ];
    let begun: Vec<Child> =
        (0..).zip(follows).map(|(n, args)| to_file(&cluster, args, &format!("out{n}"))).collect();
    for n in 0..3 {
        let name = format!("out{n}");
        wait_until(|| text(&cluster, &name).contains("begun"), &cluster.place.path(&name));
    }
    cluster.place.file("go", "");
    for follower in begun {
        let ended = follower.wait_with_output().unwrap();
        assert!(ended.status.success(), "{ended:?}");
        assert_eq!(String::from_utf8(ended.stderr).unwrap(), "");
    }
    assert_eq!(text(&cluster, "out0"), "begun\nrest");
    assert_eq!(text(&cluster, "out1"), "gate| begun\ngate| rest\n");
    assert_eq!(text(&cluster, "out2").lines().count(), 2);
    let over = cluster.tenure(&["logs", "gated", "-f"]).with(0);
    assert_eq!(over.stdout, "gate| begun\ngate| rest\n");
}

/// ART-09: whoever follows a log reads on at its begin when the worker has dropped what was in it, as it was too long.
#[test]
fn a_log_that_was_emptied_elsewhere_is_followed_on() {
    let cluster = Cluster::start();
    let _worker = far_worker(&cluster);
    gated(&cluster);
    let follows: [&[&str]; 2] = [&["logs", "gated", "gate", "-f"], &["logs", "gated", "-f"]];
    let begun: Vec<Child> =
        (0..).zip(follows).map(|(n, args)| to_file(&cluster, args, &format!("out{n}"))).collect();
    for n in 0..2 {
        let name = format!("out{n}");
        wait_until(|| text(&cluster, &name).contains("begun"), &cluster.place.path(&name));
    }
    let log = cluster.place.path("far/f/default/gated/gate/1/stdout.log");
    File::options().write(true).open(log).unwrap().set_len(0).unwrap();
    cluster.place.file("go", ""); // What the step prints then is shorter than what it had printed.
    for follower in begun {
        let ended = follower.wait_with_output().unwrap();
        assert!(ended.status.success(), "{ended:?}");
    }
    assert_eq!(text(&cluster, "out0"), "begun\nrest");
    assert_eq!(text(&cluster, "out1"), "gate| begun\ngate| rest\n");
}
