//! Commands on Tasks of a directory that nobody is at work on.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod support;

use nix::sys::signal::Signal;
use support::Place;

/// A Task whose first Step sleeps: whoever runs it can be killed.
const LONG: &str = "
task_id: long
title: long
steps:
  a: {run: 'echo here > begun; sleep 600'}
  b: {noop: true, needs: a}
";

const PATCH: &str = r#"[
  {"op": "update_step", "step_id": "b", "fields": {"depends_on_step_ids": []}},
  {"op": "update_step", "step_id": "a", "fields": {"required": false}},
  {"op": "cancel_step", "step_id": "a"}
]"#;

/// A Task that was killed while it ran.
fn killed() -> Place {
    let place = Place::new();
    place.file("long.yaml", LONG);
    let run = place.start(&["run", "long.yaml", "-o", "quiet"]);
    place.wait_for("begun");
    let busy = place.tenure(&["task", "pause", "long"]).with(6);
    assert!(busy.stderr.contains("wait until it has ended"), "{busy:#?}");
    run.signal(Signal::SIGKILL);
    run.end();
    place
}

#[test]
fn what_was_left_is_changed_and_goes_on() {
    let place = killed();
    place.file("patch.json", PATCH);
    let plan = place.tenure(&["task", "patch", "long", "patch.json", "--plan", "-o", "json"]);
    plan.with(4).saying("step_in_progress");
    // A command finds the Step free again: its worker is known to be dead.
    place.tenure(&["task", "pause", "long", "--reason", "let me see"]).with(0);
    let plan = place.tenure(&["task", "patch", "long", "patch.json", "--plan", "-o", "json"]);
    let plan = plan.with(0).json();
    assert_eq!(plan["changed"], serde_json::json!([["a", "cancelled"]]), "{plan:#}");
    place.tenure(&["task", "patch", "long", "patch.json"]).with(0);
    place.tenure(&["task", "resume", "long"]).with(0);
    place.tenure(&["run", "--resume=long", "-o", "quiet"]).with(0);
    let got = place.tenure(&["task", "get", "long", "-o", "json"]).with(0).json();
    assert_eq!(got["status"], "completed");
}

#[test]
fn what_was_left_is_shown_in_the_inbox_and_ended() {
    let place = killed();
    place.tenure(&["task", "block", "long", "--reason", "which one?"]).with(0);
    let inbox = place.tenure(&["inbox", "-o", "json"]).with(0).json();
    assert_eq!(inbox["waiting"][0]["answer"], "tenure task reopen long");
    let shown = place.tenure(&["inbox"]).with(0).stdout;
    assert!(shown.contains("which one?"), "{shown}");
    let waits = ["task", "wait", "long", "--timeout", "0"];
    place.tenure(&waits).with(6).saying("to go on: tenure run --resume=long");
    place.tenure(&["task", "cancel", "long", "--wait"]).with(0);
    let got = place.tenure(&["task", "get", "long", "-o", "json"]).with(0).json();
    assert_eq!(got["status"], "cancelled");
    place.tenure(&waits).with(1); // It is over: no time is needed to know that.
    place.tenure(&["inbox"]).with(0).saying("nothing in session default waits");
    place.tenure(&["task", "cancel", "nothing"]).with(3);
    place.tenure(&["task", "cancel", "long", "--data", "elsewhere"]).with(3);
}

/// RETRY-12
#[test]
fn what_has_ended_is_made_again_under_another_name() {
    let place = killed();
    let early = place.tenure(&["task", "retry", "long", "--as", "again", "--reason", "why"]);
    early.with(4).saying("the task is live");
    place.tenure(&["task", "cancel", "long", "--wait"]).with(0);
    let refused = place.tenure(&["task", "retry", "long", "--reason", "why"]).with(4);
    refused.saying("`tenure task retry TASK_ID --as NEW_ID` makes it again");
    place.tenure(&["task", "retry", "long", "--as", "again", "--step", "a"]).with(2);
    let args = ["task", "retry", "last", "--as", "again", "--reason", "once more", "-o", "json"];
    let made = place.tenure(&args).with(0).json();
    assert_eq!(made["task_id"], "again", "{made}");
    let got = place.tenure(&["task", "get", "again", "-o", "json"]).with(0).json();
    assert_eq!((&got["status"], got["steps"].as_array().unwrap().len()), (&"queued".into(), 2));
    place.tenure(&["task", "retry", "long", "--as", "again"]).with(4).saying("task again exists");
}

/// A Task whose second Step waits for a file.
const GATED: &str = "
task_id: gated
title: gated
steps:
  a: {noop: true}
  b: {run: 'echo here > begun; until [ -e go ]; do sleep 0.02; done', needs: a}
  c: {noop: true, needs: b}
";

/// EVENT-04, WAL-11: what happens in a directory is followed, beside the process that makes it happen.
#[test]
fn a_directory_is_followed_until_its_task_has_ended() {
    let place = Place::new();
    place.file("gated.yaml", GATED);
    let run = place.start(&["run", "gated.yaml", "-o", "quiet"]);
    place.wait_for("begun");
    let still = ["task", "wait", "gated", "--timeout", "0"];
    place.tenure(&still).with(6).saying("task default/gated has not ended");
    let mut watching = place.start(&["watch", "gated"]);
    watching.hears("completed  a"); // It was done before; the rest is still to come.
    let behind = place.start(&["task", "events", "last", "--after", "2"]);
    place.file("go", "");
    let shown = watching.end().with(0);
    assert!(shown.stdout.contains("gated completed: 3 of 3 steps"), "{shown:#?}");
    run.end().with(0);

    let all = place.tenure(&["task", "events", "gated"]).with(0).lines();
    assert_eq!((&all[0]["event"], &all[0]["wal_seq"]), (&"task.created".into(), &1.into()));
    assert_eq!(all.last().unwrap()["event"], "task.completed");
    let rest = all.iter().filter(|event| event["wal_seq"].as_u64() > Some(2));
    assert_eq!(behind.end().with(0).lines(), rest.cloned().collect::<Vec<_>>());
    let ended = place.tenure(&[&still[..], &["-o", "json"]].concat()).with(0).json();
    assert_eq!(ended["native_status"], "completed");
    assert!(ended["version"].as_u64() >= all.last().unwrap()["wal_seq"].as_u64(), "{ended}");
    place.tenure(&["watch", "nothing"]).with(3);
    place.tenure(&["watch", "gated", "--data", "elsewhere"]).with(3).saying("--nats");
}

#[test]
fn shells_and_manuals_know_every_command() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = place.tenure(&["completions", shell]).with(0).stdout;
        assert!(script.contains("dispatch") && script.contains("inbox"), "{shell}");
    }
    place.tenure(&["man", "pages"]).with(0);
    let page = std::fs::read_to_string(place.path("pages/tenure-task-patch.1")).unwrap();
    assert!(page.contains("Change nothing"), "{page}");
}

#[test]
fn answers_come_as_tables_json_lines_or_ids() {
    let place = killed();
    let said = |args: &[&str]| place.tenure(args).with(0).stdout;
    assert_eq!(said(&["task", "list", "-o", "quiet"]), "long\n");
    assert_eq!(said(&["step", "list", "long", "-o", "quiet"]), "a\nb\n");
    let lines = said(&["step", "list", "long", "-o", "jsonl"]);
    let steps: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((steps[0]["step_id"].as_str(), steps.len()), (Some("a"), 2));
    let page = place.tenure(&["step", "list", "long", "--limit", "1", "-o", "quiet"]).with(0);
    assert_eq!(page.stdout, "a\n");
    page.saying("there are more: --offset 1");
    assert_eq!(said(&["task", "pause", "long", "-o", "quiet"]), "long\n");
    assert_eq!(said(&["step", "get", "long", "b", "-o", "quiet"]), "b\n");
}

#[test]
fn tasks_and_attempts_have_short_names() {
    let place = killed();
    let got = |task: &str| {
        place.tenure(&["task", "get", task, "-o", "json"]).with(0).json()["task_id"].clone()
    };
    assert_eq!(got("last"), "long");
    place.tenure(&["task", "get", "lon"]).with(3).saying("did you mean `long`?");
    let paused = place.tenure(&["task", "pause", "last", "-o", "json"]).with(0).json();
    assert_eq!(paused["task_id"], "long");
    place.tenure(&["task", "pause", "nothing"]).with(3);

    let list = place.tenure(&["attempt", "list", "long", "-o", "quiet"]).with(0).stdout;
    let id = list.trim();
    for name in ["a", "a/1", id, &id[..id.len() - 2]] {
        let shown = place.tenure(&["attempt", "get", "last", name, "-o", "json"]).with(0).json();
        assert_eq!(shown["attempt_id"], id, "{name}");
    }
    let shown = place.tenure(&["attempt", "show", "last", "a"]).with(0);
    assert!(shown.stdout.contains("host_restarted"), "{shown:#?}");
    place.tenure(&["attempt", "get", "long", "a/2"]).with(3);
    place.tenure(&["attempt", "get", "long", "b"]).with(3);
}

/// PROMPT-01, VIEW-01 to VIEW-06: a directory in few words, and as a whole.
#[test]
fn tasks_are_shown_in_few_words_and_all_at_once() {
    let place = killed();
    let board = place.tenure(&["task", "board", "long"]).with(0).stdout;
    assert!(board.contains("long") && board.contains("at work: a"), "{board}");
    let short = place.tenure(&["task", "board", "long", "--tokens", "60", "-o", "json"]).with(0);
    assert!(short.json()["text"].as_str().unwrap().len() <= 240, "{short:#?}");
    place.tenure(&["task", "board", "long", "--tokens", "2001"]).with(2).saying("2000");
    let guide = place.tenure(&["task", "board", "--template"]).with(0).stdout;
    assert!(guide.contains("agent.task_create"), "{guide}");

    let all = place.tenure(&["task", "views", "-o", "json"]).with(0).json();
    assert_eq!(
        (&all["task_summary"]["active"], &all["tasks"][0]["task_id"]),
        (&1.into(), &"long".into())
    );
    assert_eq!(all["attempts"]["active"][0]["step_id"], "a");
    let one = place.tenure(&["task", "views", "tasks", "-o", "json"]).with(0).json();
    assert_eq!(one.as_object().unwrap().keys().collect::<Vec<_>>(), ["tasks"]);
    let shown = place.tenure(&["task", "views"]).with(0).stdout;
    assert!(shown.contains("task_summary") && shown.contains("long"), "{shown}");
    place.tenure(&["task", "views", "nonsense"]).with(2).saying("blocked_tasks");
}

/// VIEW-01: Tasks that have ended are counted, and the newest of them shown.
#[test]
fn ended_tasks_are_counted_and_shown() {
    let place = Place::new();
    place.file("good.yaml", "task_id: good\ntitle: good\nsteps:\n  a: {noop: true}\n");
    let bad = "task_id: bad\ntitle: bad\nsteps:\n  a: {run: exit 3, retry: {max_attempts: 1}}\n";
    place.file("bad.yaml", bad);
    place.tenure(&["run", "good.yaml"]).with(0);
    place.tenure(&["run", "bad.yaml"]).with(1);
    let all = place.tenure(&["task", "views", "-o", "json"]).with(0).json();
    let totals = &all["task_summary"];
    let count = |name: &str| totals[name].as_u64().unwrap();
    assert_eq!(["active", "terminal", "failed", "lost", "unknown"].map(count), [0, 2, 1, 0, 0]);
    let recent: Vec<_> = totals["recent_terminal"].as_array().unwrap().iter().collect();
    assert_eq!((&recent[0]["task_id"], &recent[1]["task_id"]), (&"bad".into(), &"good".into()));
    assert_eq!(all["tasks"].as_array().unwrap().len(), 0, "of live ones");
    let shown = place.tenure(&["task", "views"]).with(0).stdout;
    assert!(shown.contains("recent_terminal") && shown.contains("ago"), "{shown}");

    let wal = place.path(".tenure/tasks/default/bad.wal.jsonl");
    std::fs::write(&wal, "no log\n").unwrap();
    let all = place.tenure(&["task", "views", "-o", "json"]).with(0).json();
    let totals = &all["task_summary"];
    assert_eq!((&totals["unknown"], &totals["terminal"]), (&1.into(), &1.into()), "{all:#}");
}

/// S20 to S22: an orchestrator settles Steps in their workers' place.
#[test]
fn steps_are_settled_in_their_workers_place() {
    let place = killed();
    let step = |id: &str| {
        place.tenure(&["step", "get", "long", id, "-o", "json"]).with(0).json()["step"].clone()
    };
    place.tenure(&["step", "block", "long", "z"]).with(3);
    place.tenure(&["step", "complete", "long", "b"]).with(4);
    place.tenure(&["step", "complete", "long", "a", "--result", "{bad"]).with(2);
    place.tenure(&["step", "complete", "long", "a", "--result", "[1, 2]"]).with(0);
    assert_eq!(
        (&step("a")["status"], &step("b")["status"]),
        (&"completed".into(), &"ready".into())
    );
    place.tenure(&["step", "block", "long", "b", "--waits-for", "me"]).with(2).saying("permission");
    let why = ["--waits-for", "input", "--reason", "which?"];
    place.tenure(&[&["step", "block", "long", "b"][..], &why].concat()).with(0);
    assert_eq!(
        (&step("b")["status"], &step("b")["wait_kind"]),
        (&"blocked".into(), &"input".into())
    );
    place.tenure(&["step", "fail", "last", "b", "--reason", "no use"]).with(0);
    assert_eq!(step("b")["status"], "failed");
}
