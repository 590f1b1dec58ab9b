//! `tenure task`, `tenure step` and `tenure attempt` on real data directories.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod inspect_bench;

use inspect_bench::{Bench, look_at, pipeline, step};
use serde_json::{Value as Json, json};
use tenure_core::Command;
use tenure_core::command::Why;
use tenure_core::status::StepStatus;
use tenure_ports::journal::TaskKey;

/// A Task with a Step of every status that lasts.
fn mixed(bench: &Bench) -> TaskKey {
    let key = bench.create(json!({
        "task_id": "mixed",
        "title": "Some of each",
        "completion": "manual",
        "steps": [
            step("a-done", "echo", &[]),
            step("b-failed", "fail", &[]),
            step("c-asks", "ask", &[]),
            step("d-runs", "hang", &["a-done"]),
            step("e-waits", "default", &["d-runs"]),
            step("f-in-vain", "default", &["b-failed"]),
        ],
    }));
    bench.work();
    bench.wait(&key, "everything that can has happened", |task| {
        let status = |id: &str| task.step(&id.parse().unwrap()).unwrap().state.status;
        status("b-failed") == StepStatus::Failed
            && status("c-asks") == StepStatus::Blocked
            && status("d-runs") == StepStatus::Running
    });
    key
}

/// A Task that waits for its orchestrator.
fn live(id: &str) -> Json {
    json!({"task_id": id, "dispatch": "manual", "steps": [step("a", "default", &[])]})
}

fn ids(page: &Json) -> Vec<&str> {
    page["tasks"].as_array().unwrap().iter().map(|t| t["task_id"].as_str().unwrap()).collect()
}

/// LIST-01, LIST-02, LIST-06: live Tasks oldest first, then ended ones newest first.
#[test]
fn a_list_shows_live_tasks_and_on_demand_ended_ones() {
    let bench = Bench::new();
    bench.work();
    bench.ran(pipeline("first"));
    bench.tick();
    bench.ran(pipeline("second"));
    bench.create(live("live-b"));
    bench.tick();
    bench.create(live("live-a"));
    bench.look(&["task", "list"]).is("
TASK  STATUS  STEPS  CREATED  TOOK  TITLE
live-b  queued  0/1  <time>
live-a  queued  0/1  <time>
");
    bench.look(&["task", "list", "--all"]).is("
TASK  STATUS  STEPS  CREATED  TOOK  TITLE
live-b  queued  0/1  <time>
live-a  queued  0/1  <time>
second  completed  4/4  <time>  <took>  Nightly load
first  completed  4/4  <time>  <took>  Nightly load
");
    assert_eq!(
        ids(&bench.json(&["task", "list", "--all"])),
        ["live-b", "live-a", "second", "first"]
    );
}

/// LIST-04, LIST-07: a page, whether there is more, and where it begins.
#[test]
fn a_list_goes_by_pages_over_live_and_ended_tasks() {
    let bench = Bench::new();
    bench.work();
    bench.ran(pipeline("ended-1"));
    bench.tick();
    bench.ran(pipeline("ended-2"));
    bench.create(live("live"));
    let page = bench.json(&["task", "list", "--all", "--limit", "2"]);
    assert_eq!(ids(&page), ["live", "ended-2"]);
    assert_eq!((&page["truncated"], &page["next_offset"]), (&json!(true), &json!(2)));
    let page = bench.json(&["task", "list", "--all", "--limit", "2", "--offset", "2"]);
    assert_eq!(ids(&page), ["ended-1"]);
    assert_eq!((&page["truncated"], page.get("next_offset")), (&json!(false), None));
    let said = bench.look(&["task", "list", "--all", "--limit", "1"]);
    said.notes("there are more: --offset 1\n");
    bench.look(&["task", "list", "--limit", "501"]).fails(
        2,
        "
error: validation_error: limit is 501; it goes from 1 to 500
 = help: mend what the message and `details.field` name
",
    );
}

/// LIST-05: the name of a status of ended Tasks brings them in; LIST-09: archived ones are put away.
#[test]
fn a_list_goes_by_status_and_leaves_archived_tasks_out() {
    let bench = Bench::new();
    bench.work();
    let away = bench.ran(pipeline("away"));
    bench.ran(pipeline("done"));
    bench.tick();
    bench.command(&away, Command::ArchiveTask(Why { reason: None }));
    let paused = bench.create(live("paused"));
    bench.create(live("running"));
    bench.command(&paused, Command::PauseTask(Why { reason: None }));

    assert_eq!(ids(&bench.json(&["task", "list", "--status", "paused"])), ["paused"]);
    assert_eq!(ids(&bench.json(&["task", "list", "--status", "paused,running"])).len(), 2);
    bench.look(&["task", "list", "--status", "draft"]).is("").notes(
        "
no such task in session default of <data>
2 ended tasks there: tenure task list --all
",
    );
    for args in [&["--status", "completed"][..], &["--status", "completed", "--all"]] {
        assert_eq!(ids(&bench.json(&[&["task", "list"], args].concat())), ["done"]);
    }
    assert_eq!(ids(&bench.json(&["task", "list", "--status", "archived"])), ["away"]);
    bench.look(&["task", "list", "--status", "failed"]).is("").notes(
        "
no such task in session default of <data>
",
    );
    let archived = bench.json(&["task", "list", "--archived", "--status", "completed"]);
    assert_eq!(ids(&archived), ["away", "done"]);
    assert_eq!(archived["tasks"][0]["status"], "archived");
    assert_eq!(bench.json(&["task", "get", "away"])["archived"], true, "GET-05");
    let said = bench.look(&["task", "list", "--status", "done"]);
    assert_eq!(said.code, 2);
    assert!(said.err.contains("one of: draft, pending, running"), "{}", said.err);
}

/// STORE-07: sessions are apart; a Task of another one is named with it.
#[test]
fn sessions_are_apart() {
    let bench = Bench::new();
    bench.create_in("main", live("task"));
    bench.create_in("other", live("task"));
    bench.look(&["task", "list"]).is("").notes(
        "
no such task in session default of <data>
sessions with tasks: main, other
",
    );
    for args in [&["task", "get", "main/task"][..], &["task", "get", "task", "--session", "main"]] {
        assert_eq!(bench.json(args)["session_id"], "main");
    }
    let listed = bench.json(&["session", "list"]);
    let of = |at: usize| (&listed["sessions"][at]["session_id"], &listed["sessions"][at]["live"]);
    assert_eq!([of(0), of(1)], [(&json!("main"), &json!(1)), (&json!("other"), &json!(1))]);
    bench.look(&["wal", "verify", "--session", "nope"]).fails(
        3,
        "
error: no session `nope` in <data>: it has no task
 = help: `tenure session list` shows what there is
",
    );
    bench.look(&["task", "get", "task"]).fails(
        3,
        "
error: no task `task` in session default of <data>
 = help: session main has one: main/task
",
    );
}

/// GET-01, GET-02, RECOVER-07: live and ended Tasks, from their logs alone.
#[test]
fn a_task_is_shown_with_its_steps() {
    let bench = Bench::new();
    mixed(&bench);
    bench.look(&["task", "get", "mixed"]).is("
default/mixed  running  1 of 6 steps completed, 1 running, 2 pending, 1 blocked, 1 failed
  title  Some of each
  created  <time> (<took> ago)
  started  <time>, took <took>
  policy  dispatch auto, completion manual
  host  process <pid> is at work here
  log  <data>/tasks/default/mixed.wal.jsonl
  version  15

  STEP  STATUS  TRIES  TOOK  HANDLER  POOL  WAITS FOR / WHY
✔  a-done  completed  1  <took>  echo  default
✘  b-failed  failed  1  <took>  fail  default  it was not to be
‖  c-asks  waiting_input  1  <took>  ask  default  input: which one?
▶  d-runs  running  1  <took>  hang  default  held by <worker>
·  e-waits  queued  default  default  d-runs
·  f-in-vain  queued  default  default  b-failed
");
}

/// The JSON of a Task has the fields of the contract, and no more than it.
#[test]
fn a_task_as_json_is_the_answer_of_task_get() {
    let bench = Bench::new();
    bench.work();
    bench.ran(json!({"task_id": "one", "title": "One", "steps": [step("a", "default", &[])]}));
    let task = bench.json(&["task", "get", "one"]);
    let names: Vec<&str> = task.as_object().unwrap().keys().map(String::as_str).collect();
    let of_2_1 = [
        "active_run_ids",
        "archived",
        "artifacts",
        "attempts",
        "completion",
        "counts",
        "created_at",
        "created_by_agent_id",
        "default_worker_pool_id",
        "delivery_state",
        "diagnostics",
        "dispatch",
        "ended_at",
        "evidence_refs",
        "input_refs",
        "native_status",
        "objective",
        "priority",
        "progress",
        "relationships",
        "result_summary",
        "retry_policy",
        "root_step_ids",
        "root_task_id",
        "runs",
        "session_id",
        "spec_version",
        "started_at",
        "status",
        "steps",
        "summary",
        "task_id",
        "title",
        "updated_at",
        "version",
        "visibility",
        "wal_name",
        "wal_path",
    ];
    assert_eq!(names.iter().find(|name| !of_2_1.contains(name)), None);
    let times = ["created_at", "started_at", "ended_at", "updated_at"];
    assert!(times.iter().all(|name| task[name].is_i64()), "epoch milliseconds: {task}");
    let step = &task["steps"][0];
    assert_eq!((&step["status"], &step["step_id"]), (&json!("completed"), &json!("a")));
    assert_eq!(task["attempts"][0]["outcome"], "completed");
}

/// What the log has as running is left over where no process is at work, and is shown so.
#[test]
fn without_a_process_at_work_a_running_step_is_lost() {
    let bench = Bench::new();
    mixed(&bench);
    let bench = bench.closed();
    let task = bench.json(&["task", "get", "mixed"]);
    assert_eq!((&task["status"], &task["native_status"]), (&json!("lost"), &json!("running")));
    assert_eq!(task["status_reason"]["details"]["step_ids"], json!(["d-runs"]));
    let said = bench.look(&["task", "get", "mixed"]);
    assert!(said.out.contains("no process is at work here"), "{}", said.out);
    // `tenure run` has not its handlers, and would not go on with it.
    let explain = format!("tenure task explain mixed --data {}", bench.data().display());
    assert!(said.out.contains(&explain), "{}", said.out);
}

/// STORE-01, WAL-11: looking takes no lock and leaves every file as it is, beside a process that
/// holds the lock and on a directory that nobody uses.
#[test]
fn looking_changes_nothing() {
    let bench = Bench::new();
    mixed(&bench);
    look_at_everything(&bench);
    let bench = bench.closed();
    look_at_everything(&bench);
    bench.opened();
}

fn look_at_everything(bench: &Bench) {
    let before = bench.files();
    let all: [&[&str]; 11] = [
        &["task", "list", "--all"],
        &["task", "get", "mixed"],
        &["task", "explain", "mixed"],
        &["task", "graph", "mixed"],
        &["step", "list", "mixed"],
        &["step", "get", "mixed", "a-done"],
        &["attempt", "list", "mixed"],
        &["wal", "show", "mixed"],
        &["wal", "verify"],
        &["wal", "replay", "mixed", "--until", "3"],
        &["wal", "show", "mixed", "--raw"],
    ];
    for args in all {
        let said = bench.look(args);
        assert_eq!(said.code, 0, "{args:?}: {}", said.err);
    }
    assert_eq!(bench.files(), before);
}

/// QUERY-06 to QUERY-09, as a command line.
#[test]
fn steps_are_listed_by_status_and_pool() {
    let bench = Bench::new();
    mixed(&bench);
    let ids = |args: &[&str]| -> Vec<String> {
        let page = bench.json(&[&["step", "list", "mixed"], args].concat());
        let steps = page["steps"].as_array().unwrap();
        steps.iter().map(|s| s["step_id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(&[]), ["c-asks", "d-runs", "e-waits", "f-in-vain"]);
    assert_eq!(ids(&["--all"]).len(), 6);
    assert_eq!(ids(&["--status", "pending"]), ["e-waits", "f-in-vain"]);
    for all in [&[][..], &["--all"]] {
        let args = [&["--status", "failed,completed"], all].concat();
        assert_eq!(ids(&args), ["a-done", "b-failed"]);
    }
    assert_eq!(ids(&["--limit", "1", "--offset", "1"]), ["d-runs"]);
    assert!(ids(&["--pool", "gpu"]).is_empty());
    bench
        .look(&["step", "list", "mixed", "--status", "ready"])
        .is("")
        .notes("no such step; completed, failed and cancelled ones are shown with --all\n");
}

/// STEP-28, ART-01, CLAIM-14: what a Step was given, what it made, and each try.
#[test]
fn a_step_is_shown_with_its_attempts_and_results() {
    let bench = Bench::new();
    mixed(&bench);
    bench.look(&["step", "get", "mixed", "a-done"]).is("
✔ a-done  completed  of default/mixed
  title  Step a-done
  handler  echo
  pool  default
  required  yes
  changed  <time> (<took> ago)

output
  {
  \"step\": \"a-done\"
  }

result
  all done

artifacts
  note  text  available  15 bytes  made on the way

attempts, newest first
  STEP  TRY  STATUS  STARTED  TOOK  WORKER  ATTEMPT  WHY
  a-done  1  completed  <time>  <took>  <worker>  <id>
");
    let dossier = bench.json(&["step", "get", "mixed", "d-runs"]);
    assert_eq!(dossier["dependencies"][0]["step_id"], "a-done");
    assert_eq!(dossier["step"]["lease_state"], "valid");
    assert_eq!(dossier["attempts"][0]["status"], "running");
    bench.look(&["step", "get", "mixed", "a-dona"]).fails(
        3,
        "
error: no step `a-dona` in task default/mixed
 = help: did you mean `a-done`?
",
    );
}

#[test]
fn attempts_are_listed_oldest_first() {
    let bench = Bench::new();
    mixed(&bench);
    bench.look(&["attempt", "list", "mixed", "--step", "b-failed"]).is("
STEP  TRY  STATUS  STARTED  TOOK  WORKER  ATTEMPT  WHY
b-failed  1  failed  <time>  <took>  <worker>  <id>  it was not to be
");
    let page = bench.json(&["attempt", "list", "mixed", "--limit", "3"]);
    assert_eq!(page["attempts"].as_array().unwrap().len(), 3);
    assert_eq!((&page["truncated"], &page["next_offset"]), (&json!(true), &json!(3)));
    bench.look(&["attempt", "list", "mixed", "--step", "d-run"]).fails(
        3,
        "
error: no step `d-run` in task default/mixed
 = help: did you mean `d-runs`?
",
    );
}

#[test]
fn a_graph_is_drawn_in_layers() {
    let bench = Bench::new();
    mixed(&bench);
    bench.look(&["task", "graph", "mixed"]).is("
mixed  running  Some of each
6 steps in 3 layers: 2 · pending, 1 ▶ running, 1 ‖ blocked, 1 ✔ completed, 1 ✘ failed

  1  ✔ a-done  <took>
  ✘ b-failed  <took>  no_luck
  ‖ c-asks  <took>  waits for input
  2  ▶ d-runs  <took>  ← a-done
  · f-in-vain  ← b-failed
  3  · e-waits  ← d-runs
");
    let dot = bench.look(&["task", "graph", "mixed", "--dot"]);
    assert!(dot.out.starts_with("digraph \"mixed\" {\n"), "{}", dot.out);
    assert!(dot.out.contains("\n  \"a-done\" -> \"d-runs\";\n"), "{}", dot.out);
    let mermaid = bench.look(&["task", "graph", "mixed", "--mermaid"]);
    assert!(mermaid.out.starts_with("flowchart LR\n"), "{}", mermaid.out);
    assert!(mermaid.out.contains("\n  s0 --> s3\n"), "{}", mermaid.out);
    let graph = bench.json(&["task", "graph", "mixed"]);
    assert_eq!(graph["edges"][0], json!({"from": "a-done", "to": "d-runs", "satisfied": true}));
}

/// A Task of the largest size is shown in bounded space.
#[test]
fn a_large_task_is_abbreviated() {
    let bench = Bench::new();
    let wide: Vec<Json> = (0..20_000).map(|n| step(&format!("w{n}"), "default", &[])).collect();
    bench.create(json!({"task_id": "wide", "dispatch": "manual", "steps": wide}));
    let chain = (0..2_000).map(|n| match n {
        0 => step("c0", "default", &[]),
        n => step(&format!("c{n}"), "default", &[&format!("c{}", n - 1)]),
    });
    let chain: Vec<Json> = chain.collect();
    bench.create(json!({"task_id": "chain", "dispatch": "manual", "steps": chain}));
    for args in [["task", "graph"], ["task", "get"], ["task", "explain"]] {
        for task in ["wide", "chain"] {
            let said = bench.look(&[args[0], args[1], task]);
            let lines = said.out.lines().count();
            assert!(said.code == 0 && lines < 60, "{args:?} {task}: {lines}\n{}", said.out);
        }
    }
    let said = bench.look(&["task", "graph", "chain"]);
    assert!(said.out.contains("…  layers 21 to 1,995: 1,975 · pending"), "{}", said.out);
    said.notes("abbreviated; --full draws every step, --dot is for Graphviz\n");
    let full = bench.look(&["task", "graph", "wide", "--full"]);
    assert!(full.out.lines().count() > 20_000);
}

/// Names from a log cannot steer the terminal of who looks at them.
#[test]
fn titles_cannot_steer_a_terminal() {
    let bench = Bench::new();
    let mut task = live("task");
    task["title"] = "\u{1b}[2Jgone\nsecond line".into();
    bench.create(task);
    for args in [&["task", "list"][..], &["task", "get", "task"], &["wal", "show", "task"]] {
        let said = bench.look(args);
        assert!(!said.out.contains('\u{1b}'), "{}", said.out);
        assert!(said.out.contains("\\u{1b}[2Jgone second line"), "{}", said.out);
    }
}

#[test]
fn a_directory_that_is_not_there_is_not_found() {
    let nowhere = std::path::Path::new("/nowhere/at/all");
    look_at(nowhere, &["task", "list"]).fails(
        3,
        "
error: the data directory <data> does not exist
 = help: name another directory with --data or TENURE_DATA, or a cluster with --nats or TENURE_NATS_URL
",
    );
    let bench = Bench::new();
    bench.create(live("nightly-load"));
    bench.look(&["task", "get", "nigthly-load"]).fails(
        3,
        "
error: no task `nigthly-load` in session default of <data>
 = help: did you mean `nightly-load`?
",
    );
    let said = bench.look(&["task", "get", "Not An Id"]);
    assert_eq!(said.code, 2, "{}", said.err);
}

/// STORE-08: every look at a Task names it; there is no current Task that is meant without a word, not
/// even where there is only one.
#[test]
fn no_task_is_meant_without_being_named() {
    let bench = Bench::new();
    bench.create(live("only"));
    let looks = ["task get", "task explain", "task graph", "step list", "attempt list", "wal show"];
    for look in looks {
        let words: Vec<&str> = look.split(' ').collect();
        let said = bench.look(&words);
        assert_eq!(said.code, 2, "{look}: {}{}", said.out, said.err);
        let named: Vec<&str> = words.into_iter().chain(["only"]).collect();
        assert_eq!(bench.look(&named).code, 0, "{look} only");
    }
}
