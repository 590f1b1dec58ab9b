//! Tasks as they are handed in, Runs and their ends, and what they are asked for, in a cluster.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

#[path = "support/cluster.rs"]
mod cluster;
#[allow(dead_code)] // Other tests need more of it.
#[path = "../../cluster/tests/real/servers.rs"]
mod servers;
mod support;

use cluster::Cluster;
use serde_json::{Value, json};
use support::Running;

/// A Task whose Steps are for different pools.
const POOLS: &str = "dispatch: manual
completion: manual
steps: {paint: {noop: true, pool: gpu}, draw: {noop: true, pool: gpu}, print: {noop: true}}";

/// IDEM-03, POL-11: a file is the same Task whenever it is handed in, and from wherever.
#[test]
fn a_file_is_the_same_task_from_wherever_it_is_handed_in() {
    let cluster = Cluster::start();
    let text = format!("title: held\ndeadline: 2h\n{POOLS}\n");
    for folder in ["one", "two"] {
        std::fs::create_dir(cluster.place.path(folder)).unwrap();
        cluster.place.file(&format!("{folder}/named.yaml"), format!("task_id: held\n{text}"));
        cluster.place.file(&format!("{folder}/keyed.yaml"), &text);
    }
    let submit = |args: &[&str]| {
        let mut command = cluster.command(&[&["submit", "-o", "json"], args].concat());
        command.stdin(std::fs::File::open(cluster.place.path("two/named.yaml")).unwrap());
        Running::run_to_end(&mut command).with(0).json()
    };
    let first = submit(&["one/named.yaml"]);
    assert_eq!(submit(&["two/named.yaml"]), first);
    assert_eq!(submit(&["-"]), first);
    let keyed = |file| submit(&[file, "--idempotency-key", "k", "--command-id", "c"]);
    assert_eq!(keyed("one/keyed.yaml"), keyed("two/keyed.yaml"));
    let shown = cluster.tenure(&["task", "get", "held", "-o", "json"]).with(0).json();
    let (at, made) = (&shown["constraints"]["deadline_at"], &shown["created_at"]);
    assert_eq!(at.as_i64().unwrap() - made.as_i64().unwrap(), 2 * 3_600_000, "{shown}");
}

/// DISP-08: a Run may be dispatched for a Step that is not ready; the user is told what the Step waits for.
#[test]
fn a_run_for_a_step_that_is_not_ready_comes_with_a_warning() {
    let cluster = Cluster::start();
    let steps = "steps: {a: {noop: true}, b: {noop: true, needs: a}}";
    cluster.submit("chain", &format!("dispatch: manual\ncompletion: manual\n{steps}"), &[]).with(0);
    let told = cluster.tenure(&["dispatch", "chain", "--step", "b"]).with(0);
    told.saying("warning: step b waits for a (ready): no worker can claim it yet");
    let told = cluster.tenure(&["dispatch", "chain", "--step", "a"]).with(0);
    assert!(!told.stderr.contains("warning"), "{told:#?}");
}

/// DISP-01: where no pool is named, a Run is for that of its Steps, and else for the Task's.
#[test]
fn a_run_is_for_the_pool_of_its_steps() {
    let cluster = Cluster::start();
    cluster.submit("poster", POOLS, &[]).with(0);
    let ask = |args: &[&str]| cluster.tenure(&[args, &["-o", "json"]].concat()).with(0).json();
    let run_of = |args: &[&str]| {
        let made = ask(&[&["dispatch", "poster"][..], args].concat());
        let id = made["run_id"].as_str().unwrap();
        // The ids of Runs that were made at one moment begin alike, but not for long.
        ask(&["runs", "get", "poster", &id[..id.len() - 2]])
    };
    let run = run_of(&["--step", "paint,draw", "--thread", "t1", "--environment", "staging"]);
    assert_eq!(run["worker_pool_id"], "gpu", "{run:#}");
    assert_eq!(["thread_id", "environment_ref"].map(|name| &run[name]), ["t1", "staging"]);
    assert_eq!(run_of(&["--step", "print"])["worker_pool_id"], "default");
    assert_eq!(run_of(&[])["worker_pool_id"], "default", "of the task, as its steps differ");
    assert_eq!(run_of(&["--step", "print", "--pool", "cpu"])["worker_pool_id"], "cpu");
    let mixed = cluster.tenure(&["dispatch", "poster", "--step", "paint,print"]).with(2);
    mixed.saying("print of default; paint of gpu");
    cluster
        .tenure(&["dispatch", "poster", "--step", "pain"])
        .with(3)
        .saying("did you mean `paint`");

    let of = |args: &[&str]| {
        let listed = ask(&[&["runs", "list", "poster"][..], args].concat());
        listed["runs"].as_array().unwrap().len()
    };
    assert_eq!([of(&["--step", "paint"]), of(&["--pool", "cpu"]), of(&[])], [1, 1, 4]);
    let run = run_of(&["--step", "draw"])["run_id"].as_str().unwrap().to_owned();
    cluster.tenure(&["runs", "cancel", "poster", &run[..run.len() - 2]]).with(0);
    assert_eq!(of(&["--status", "ended"]), 1);
    for (id, said) in [("", "`` is no id of a run"), ("zzzzzzzz", "no run `zzzzzzzz`")] {
        cluster.tenure(&["runs", "cancel", "poster", id]).with(3).saying(said);
    }
    cluster.tenure(&["step", "fail", "poster", "prin"]).with(3).saying("did you mean `print`");
    a_wait_for_a_run_ends(&cluster);
}

/// DISP-12: whoever waits for a Run knows which one, however that ends.
fn a_wait_for_a_run_ends(cluster: &Cluster) {
    let dispatch = ["dispatch", "poster", "--pool", "nobody", "--wait"];
    let late = cluster.tenure(&[&dispatch[..], &["--timeout", "2"]].concat()).with(6);
    let runs =
        cluster.tenure(&["runs", "list", "poster", "--pool", "nobody", "-o", "quiet"]).stdout;
    // Which one it is may not be known so soon; below it is.
    let known = format!("run {} of task default/poster has not ended within 2.0 s", runs.trim());
    let unknown = "nobody said within 2.0 s whether a run of task default/poster is dispatched";
    assert!(late.stderr.contains(&known) || late.stderr.contains(unknown), "{late:#?}");
    cluster.tenure(&["dispatch", "poster", "--timeout", "2"]).with(2).saying("--wait");
    let mut waiting = cluster.begin(&dispatch);
    let said = waiting.hears(" is dispatched");
    let run = said.split(' ').nth(1).unwrap();
    waiting.stopped_saying(&format!(
        "stopped; run {run} of task default/poster goes on without this command"
    ));
    let shown = cluster.tenure(&["runs", "get", "poster", run, "-o", "json"]).with(0).json();
    assert_eq!(shown["state"], "dispatched");
}

/// A Task whose Step goes on for a while when it is asked to stop.
const STUBBORN: &str = r#"steps:
  a: {run: "trap '' TERM; echo here > begun; while :; do sleep 0.1; done"}"#;

#[test]
fn whoever_stops_waiting_for_an_end_is_told_what_goes_on() {
    let cluster = Cluster::start();
    let _worker = cluster.worker("w1");
    cluster.submit("slow", STUBBORN, &[]).with(0);
    cluster.is_at_work("slow");
    cluster.begin(&["task", "wait", "slow"]).stopped_saying("goes on without this command");
    cluster.tenure(&["watch", "sloww"]).with(3).saying("did you mean `slow`?");
    cluster.begin(&["watch", "slow"]).stopped_saying("goes on without this command");
    let submit = ["submit", "slow.yaml", "--new", "--wait"];
    let mut submitted = cluster.begin(&submit);
    submitted.hears("task slow-");
    submitted.stopped_saying("goes on without this command");
    let cancel = ["task", "cancel", "slow", "--wait"];
    cluster.begin(&cancel).stopped_saying("stopped; task default/slow was asked to end");
    let end = cluster.tenure(&[&cancel[..], &["-o", "json"]].concat()).with(0).json();
    assert_eq!(["status", "native_status"].map(|name| &end[name]), ["cancelled", "cancelled"]);
    let quiet = cluster.submit("idle", POOLS, &["-o", "quiet"]).with(0);
    assert_eq!(quiet.stdout, "idle\n");
}

const ASKED: &str = "[{op: update_task, acceptance: [{id: tests, text: All of them pass, state: unknown}, \
     {id: notes, state: unknown}]}]";

/// TERM-11, VIEW-05: what waits for its beginning or its end is in the inbox, and the answer ends it.
#[test]
fn a_task_is_completed_with_what_was_asked_for() {
    let cluster = Cluster::start();
    let _worker = cluster.worker("w1");
    let inbox = || -> Vec<Value> {
        let shown = cluster.tenure(&["inbox", "-o", "json"]).with(0).json();
        shown["waiting"].as_array().unwrap().iter().map(|one| one["answer"].clone()).collect()
    };
    let by_hand = "dispatch: manual\ncompletion: manual\nsteps: {build: {noop: true}}";
    cluster.submit("ship", by_hand, &["--draft"]).with(0);
    assert_eq!(inbox(), [json!("tenure task submit ship")]);
    cluster.tenure(&["task", "submit", "ship"]).with(0);
    assert_eq!(inbox(), [json!(null); 0]);
    cluster.place.file("asked.yaml", ASKED);
    cluster.tenure(&["task", "patch", "ship", "asked.yaml"]).with(0);
    cluster.tenure(&["dispatch", "ship", "--wait"]).with(0);
    assert_eq!(inbox(), [json!("tenure task complete ship")]);

    let unmet = cluster.tenure(&["task", "complete", "ship"]).with(4);
    unmet.saying("nor waived: tests, notes").saying("--met ID");
    cluster.tenure(&["task", "complete", "ship", "--met", "test"]).with(2).saying("task get");
    let done = ["task", "complete", "ship", "--met", "tests", "--waived", "notes"];
    let log = r#"{"artifact_id": "log", "name": "log", "kind": "text", "state": "available", "data": "ok"}"#;
    let with = ["--evidence", "https://example.org/ci/1", "--artifact", log];
    cluster.tenure(&[&done[..], &with].concat()).with(0);
    let got = cluster.tenure(&["task", "get", "ship", "-o", "json"]).with(0).json();
    let states = [&got["acceptance"][0]["state"], &got["acceptance"][1]["state"]];
    assert_eq!(states, ["met", "waived"]);
    assert_eq!(got["evidence_refs"], json!(["https://example.org/ci/1"]));
    assert_eq!(got["artifacts"][0]["artifact_id"], "log");
    let shown = cluster.tenure(&["task", "get", "ship"]).with(0).stdout;
    assert!(shown.contains("\nacceptance\n") && shown.contains("All of them pass"), "{shown}");
}

/// VIEW-15: who waits for a Task of which nothing runs learns why, what would change it, and of the next reason
/// when it is another.
#[test]
fn who_waits_for_a_task_learns_why_nothing_of_it_runs() {
    let cluster = Cluster::start();
    let file = "task_id: held\nsteps: {a: {noop: true}, b: {noop: true, needs: a}}\n";
    cluster.place.file("held.yaml", file);
    let mut submits = cluster.begin(&["submit", "held.yaml", "--wait"]);
    submits.hears("waiting: step a: no worker of pool default has asked for work");
    let mut watches = cluster.begin(&["watch", "held"]);
    watches.hears("waiting: step a: no worker of pool default has asked for work");
    cluster.tenure(&["task", "pause", "held"]).with(0);
    let line = watches.hears("waiting: ");
    assert!(
        line.contains("paused") && line.contains("this would change it: resume_task"),
        "{line}"
    );
    cluster.tenure(&["task", "resume", "held"]).with(0);
    let _worker = cluster.worker("w1");
    for waits in [submits, watches] {
        waits.end().with(0);
    }
}
