//! `tenure task explain`: every reason for which a Step does not run, as far as a reader of logs
//! can know it.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "support/cluster.rs"]
mod cluster;
mod inspect_bench;
#[allow(dead_code)] // Other tests need more of it.
#[path = "../../cluster/tests/real/servers.rs"]
mod servers;
mod support;

use cluster::Cluster;
use inspect_bench::{Bench, step};
use serde_json::{Value as Json, json};
use tenure_core::Command;
use tenure_core::command::{Close, Dispatch, StepReport, Why};
use tenure_core::status::StepStatus;
use tenure_ports::journal::TaskKey;

/// A Task that only its orchestrator moves, so that it stays as it is.
fn task(id: &str, steps: &[Json]) -> Json {
    json!({"task_id": id, "dispatch": "manual", "completion": "manual", "steps": steps})
}

fn why() -> Why {
    Why { reason: None }
}

fn report(bench: &Bench, key: &TaskKey, id: &str, status: StepStatus) {
    let report = StepReport { status: Some(status), ..StepReport::on(id.parse().unwrap()) };
    bench.command(key, Command::TaskUpdateStep(report));
}

/// The headline for a Step, and the operations that would change it.
fn headline(bench: &Bench, args: &[&str]) -> (String, Vec<String>) {
    let told = bench.json(&[&["task", "explain"], args].concat());
    let remedies = told["reasons"][0]["remedies"].as_array().unwrap();
    let operations = remedies.iter().map(|r| r["operation"].as_str().unwrap().to_owned());
    (told["headline"].as_str().unwrap().to_owned(), operations.collect())
}

#[track_caller]
fn assert_headline(bench: &Bench, args: &[&str], expected: &str, operations: &[&str]) {
    let (headline, found) = headline(bench, args);
    assert_eq!(headline, expected, "{args:?}");
    assert_eq!(found, operations, "{args:?}");
}

/// T01, T07, T05, TERM-18: what the Task is decides before what its Steps are.
#[test]
fn a_task_that_does_not_go_on_keeps_all_its_steps() {
    let bench = Bench::new();
    let steps = [step("a", "default", &[]), step("b", "default", &["a"])];
    let mut draft = task("draft", &steps);
    draft["draft"] = true.into();
    bench.create(draft);
    let paused = bench.create(task("paused", &steps));
    bench.command(&paused, Command::PauseTask(why()));
    let blocked = bench.create(task("blocked", &steps));
    bench.command(&blocked, Command::BlockTask(why()));
    let ended = bench.create(task("ended", &steps));
    bench.command(
        &ended,
        Command::TaskCancel(Close { grace_ms: None, reason: None, wait: Some(false) }),
    );

    assert_headline(&bench, &["draft", "a"], "task_draft", &["submit_task"]);
    assert_headline(&bench, &["paused", "a"], "task_paused", &["resume_task"]);
    assert_headline(&bench, &["blocked", "a"], "task_blocked", &["reopen_task"]);
    assert_headline(&bench, &["ended", "a"], "task_terminal", &["retry_task"]);
    let told = bench.json(&["task", "explain", "paused"]);
    assert_eq!(told["groups"].as_array().unwrap().len(), 1);
    assert_eq!(told["groups"][0]["count"], 2);
    bench.look(&["task", "explain", "ended"]).is("
default/ended  cancelled: task_cancelled
every step is settled: nothing is left to run
");
}

/// TASK-17: what failed by itself is named, and not what failed with its Task.
#[test]
fn an_ended_task_names_the_steps_that_failed() {
    let bench = Bench::new();
    bench.work();
    let mut failing = step("parse", "fail", &[]);
    failing["retry_policy"] = json!({"max_attempts": 1});
    let steps = [failing, step("report", "default", &["parse"])];
    bench.ran(json!({"task_id": "task", "steps": steps}));
    bench.look(&["task", "explain", "task"]).is("
default/task  failed: step_failed: parse
✘ parse: it was not to be
every step is settled: nothing is left to run
");
    assert_headline(&bench, &["task", "report"], "task_terminal", &["retry_task"]);
    let bench = bench.closed();
    let said = bench.look(&["task", "explain", "task", "report"]);
    assert!(!said.out.contains("tenure run --resume"), "an ended task does not go on");
}

/// T12, CANCEL-01: a Task that is being closed gives nothing out any more.
#[test]
fn a_task_that_is_being_closed_keeps_its_steps() {
    let bench = Bench::new();
    bench.work();
    let steps = [step("a", "hang", &[]), step("b", "default", &["a"])];
    let key = bench.create(json!({"task_id": "closing", "steps": steps}));
    bench.wait(&key, "a runs", |task| task.open_attempts().any(|a| a.started_at > 0));
    bench.command(
        &key,
        Command::TaskCancel(Close { grace_ms: None, reason: None, wait: Some(false) }),
    );
    let (headline, operations) = headline(&bench, &["closing", "b"]);
    let closed = bench.json(&["task", "get", "closing"])["native_status"] == "cancelled";
    assert!(headline == "task_cancelling" && operations.is_empty() || closed, "{headline}");
}

/// DAG and Step states, one by one.
#[test]
fn a_step_is_kept_by_what_it_is_and_by_what_it_waits_for() {
    let bench = Bench::new();
    let mut assigned = step("assigned", "default", &[]);
    assigned["claim_only_by"] = "worker-1".into();
    let key = bench.create(task(
        "task",
        &[
            step("done", "default", &[]),
            step("failed", "default", &[]),
            step("blocked", "default", &[]),
            step("ready", "default", &[]),
            step("waits", "default", &["ready"]),
            step("in-vain", "default", &["failed"]),
            step("behind", "default", &["in-vain"]),
            assigned,
        ],
    ));
    report(&bench, &key, "done", StepStatus::Completed);
    report(&bench, &key, "failed", StepStatus::Failed);
    report(&bench, &key, "blocked", StepStatus::Blocked);

    let detach = ["reopen_step", "remove_dependency"];
    let again = ["reopen_step", "agent.task_update_step"];
    assert_headline(&bench, &["task", "done"], "step_terminal", &[]);
    assert_headline(&bench, &["task", "failed"], "step_failed", &again);
    assert_headline(&bench, &["task", "blocked"], "step_blocked", &again);
    assert_headline(&bench, &["task", "ready"], "needs_dispatch", &["dispatch_worker"]);
    assert_headline(&bench, &["task", "waits"], "dependency_pending", &[]);
    assert_headline(&bench, &["task", "in-vain"], "dependency_unsatisfiable", &detach);
    assert_headline(&bench, &["task", "behind"], "dependency_unsatisfiable", &detach);
    let for_another = ["task", "assigned", "--worker", "worker-2"];
    assert_headline(&bench, &for_another, "assigned_elsewhere", &["update_step"]);
    let for_it = ["task", "assigned", "--worker", "worker-1"];
    assert_headline(&bench, &for_it, "needs_dispatch", &["dispatch_worker"]);

    let told = bench.json(&["task", "explain", "task"]);
    for group in told["groups"].as_array().unwrap() {
        for id in group["step_ids"].as_array().unwrap() {
            let (headline, _) = headline(&bench, &["task", id.as_str().unwrap()]);
            assert_eq!(headline, group["headline"], "{id} is told alike, alone and in its group");
        }
    }
    bench.look(&["task", "explain", "task"]).is("
default/task  blocked
process <pid> is at work here

step_failed: 1 step
  step failed is failed: failed
  → reopen_step failed (agent.task_update)
  → agent.task_update_step failed

step_blocked: 1 step
  step blocked is blocked, waiting for other: blocked
  → reopen_step blocked (agent.task_update)
  → agent.task_update_step blocked

dependency_unsatisfiable: 2 steps
  in-vain, behind
  2 steps wait for failed (failed: failed)
  for example: step in-vain waits in vain: failed (failed: failed)
  → reopen_step failed (agent.task_update)
  → remove_dependency in-vain on failed (agent.task_update)

dependency_pending: 1 step
  step waits waits for ready (ready)

needs_dispatch: 2 steps
  ready, assigned
  for example: step ready is ready; its task gives nothing out by itself, and no run may claim it
  → dispatch_worker
");
    let bench = bench.closed();
    assert_headline(&bench, &["task", "ready"], "needs_dispatch", &["dispatch_worker"]);
}

/// DISP-10: a Run opens its pool and its Steps, and is spent by one claim.
#[test]
fn a_run_is_kept_by_its_scope() {
    let bench = Bench::new();
    let steps = [step("a", "default", &[]), step("b", "default", &[])];
    let key = bench.create(task("task", &steps));
    let run = bench.command(
        &key,
        Command::DispatchWorker(Dispatch {
            allowed_step_ids: Some(vec!["a".parse().unwrap()]),
            bindings: None,
            instructions: None,
            on_behalf: None,
            ttl_ms: None,
            wait: None,
            worker_pool_id: "default".parse().unwrap(),
        }),
    );
    let run = run.unwrap();
    assert_headline(&bench, &["task", "a", "--run", &run], "runnable_now", &[]);
    assert_headline(&bench, &["task", "b", "--run", &run], "scope_excludes", &["dispatch_worker"]);
    bench.look(&["task", "explain", "task", "b", "--run", &run]).is("
○ b  queued  of default/task

scope_excludes
  run <id> (dispatched) may not, or no longer, claim step b
  the run is restricted to a
  → dispatch_worker
");
    bench.look(&["task", "explain", "task", "--run", &run]).is("
default/task  queued
process <pid> is at work here

scope_excludes: 1 step
  run <id> (dispatched) may not, or no longer, claim step b
  the run is restricted to a
  → dispatch_worker

runnable_now: 1 step
  step a can be claimed now
");
    let nobody = "00000000-0000-0000-0000-000000000000";
    bench.look(&["task", "explain", "task", "a", "--run", nobody]).fails(
        3,
        "error: run_not_found: run <id> does not exist
 = help: check the id: `tenure runs list TASK_ID --all` shows the Runs
",
    );
}

/// RETRY-06, READY-05: a backoff that has not passed; LEASE-13: a Step that is held.
#[test]
fn a_step_waits_for_its_backoff_and_for_who_holds_it() {
    let bench = Bench::new();
    bench.work();
    let mut again = step("again", "fail", &[]);
    again["retry_policy"] = json!({"max_attempts": 3, "backoff": {"initial_ms": 60_000}});
    let key = bench.create(json!({"task_id": "task", "steps": [again, step("held", "hang", &[])]}));
    bench.wait(&key, "one waits and one runs", |task| {
        let state = |id: &str| task.step(&id.parse().unwrap()).unwrap().state;
        state("again").not_before.is_some() && state("held").status == StepStatus::Running
    });
    assert_headline(&bench, &["task", "again"], "not_before", &[]);
    assert_headline(&bench, &["task", "held"], "held", &["cancel_run"]);
    bench.look(&["task", "explain", "task"]).is("
default/task  running
process <pid> is at work here

not_before: 1 step
  step again is tried again in <took>
  at <time> (in <took>)

held: 1 step
  step held is held by <worker> under run <id> (lease valid)
  since <time> (<took> ago), attempt <id>
  → cancel_run <id>
");
    let bench = bench.closed();
    let said = bench.look(&["task", "explain", "task", "held"]);
    assert!(said.out.contains("(lease unconfirmed)"), "{}", said.out);
    assert!(said.out.contains("→ tenure run --resume=task"), "{}", said.out);
}

/// Ten thousand Steps that wait are one reason, told once, with what their waiting comes down to.
#[test]
fn very_many_steps_are_told_in_groups() {
    let bench = Bench::new();
    let mut steps = vec![step("left", "default", &[]), step("right", "default", &[])];
    for n in 0..10_000 {
        let on = if n % 4 == 0 { "left" } else { "right" };
        steps.push(step(&format!("s{n}"), "default", &[on]));
    }
    let key = bench.create(task("task", &steps));
    bench.look(&["task", "explain", "task"]).is("
default/task  queued
process <pid> is at work here

dependency_pending: 10,000 steps
  s0, s1, s2, s3, s4, s5, s6, s7 and 9,992 more
  2,500 steps wait for left (ready)
  7,500 steps wait for right (ready)
  for example: step s0 waits for left (ready)

needs_dispatch: 2 steps
  left, right
  for example: step left is ready; its task gives nothing out by itself, and no run may claim it
  → dispatch_worker
");
    report(&bench, &key, "left", StepStatus::Failed);
    let told = bench.json(&["task", "explain", "task"]);
    let groups = told["groups"].as_array().unwrap();
    let counts: Vec<(&str, u64)> = groups
        .iter()
        .map(|g| (g["headline"].as_str().unwrap(), g["count"].as_u64().unwrap()))
        .collect();
    let expected = [
        ("step_failed", 1),
        ("dependency_unsatisfiable", 2_500),
        ("dependency_pending", 7_500),
        ("needs_dispatch", 1),
    ];
    assert_eq!(counts, expected);
    assert_eq!(groups[1]["roots"][0]["waiting"], 2_500);
    assert_eq!(groups[1]["step_ids"].as_array().unwrap().len(), 20);
    assert_eq!(groups[1]["more"], 2_480);
}

/// A Task that keeps its worker busy.
const LONG: &str = "steps: {a: {run: sleep 600}}";

/// VIEW-17: the owner of a Task says why its Steps wait: it knows the workers, which no log does.
#[test]
fn a_cluster_says_for_which_workers_steps_wait() {
    let cluster = Cluster::start();
    let mut worker = cluster.begin(&["worker", "--name", "w1", "--concurrency", "1"]);
    worker.hears("runs steps of pool default");
    cluster.submit("long", LONG, &[]).with(0);
    cluster.is_at_work("long");
    let steps = "steps: {a: {run: echo, pool: nowhere}, b: {handler: send}, c: {run: sleep 600}}";
    cluster.submit("waits", steps, &[]).with(0);
    let told = |step: &str, headline: &str| {
        let args = ["task", "explain", "waits", step];
        cluster.until(&args, |told| told["headline"] == headline)
    };
    let told = ["a", "b", "c"]
        .into_iter()
        .zip([
            ("no_worker_in_pool", "no worker of pool nowhere has asked for work"),
            ("no_worker_with_handler", "no worker of pool default has handler send (1 known)"),
            ("pool_saturated", "all workers of pool default are busy (1 known)"),
        ])
        .map(|(step, (headline, text))| (told(step, headline), headline, text));
    for (told, headline, text) in told {
        assert_eq!(
            (told["headline"].as_str(), told["text"].as_str()),
            (Some(headline), Some(text))
        );
    }
    let whole = cluster.tenure(&["task", "explain", "wait"]).with(0);
    assert!(whole.stdout.contains("a cluster at nats://127.0.0.1:"), "{whole:#?}");
    for headline in ["no_worker_in_pool: 1 step", "no_worker_with_handler: 1 step"] {
        assert!(whole.stdout.contains(headline), "{whole:#?}");
    }
    cluster.tenure(&["task", "explain", "waits", "bb"]).with(3).saying("no step `bb`");
    cluster.tenure(&["task", "explain", "nothing"]).with(3).saying("task_not_found");
    let elsewhere = cluster.tenure(&["task", "explain", "waits", "c", "--worker", "bee"]).with(0);
    assert!(elsewhere.stdout.contains("worker bee is not in pool default"), "{elsewhere:#?}");
}
