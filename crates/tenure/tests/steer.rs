//! Commands on Tasks of a directory that nobody is at work on.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod support;

use nix::sys::signal::Signal;
use serde_json::json;
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
    let end = place.tenure(&["task", "cancel", "long", "--wait", "-o", "json"]).with(0).json();
    let got = place.tenure(&["task", "get", "long", "-o", "json"]).with(0).json();
    assert_eq!(got["status"], "cancelled");
    for field in ["status", "native_status", "version"] {
        assert_eq!(end[field], got[field], "{field}");
    }
    // It is over: no time is needed to know that.
    let waited = place.tenure(&[&waits[..], &["-o", "json"]].concat()).with(1).json();
    assert_eq!(
        (&waited["status"], &waited["native_status"]),
        (&"cancelled".into(), &"cancelled".into())
    );
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

/// RETRY-15, TASK-22, STEP-37: what is completed need not run again; the steps behind a join get what it
/// joins, and the last one makes the output of the task.
#[test]
fn what_is_completed_is_taken_over() {
    let place = Place::new();
    place.file(
        "join.yaml",
        "task_id: first
steps:
  fetch: {run: 'echo run >> ran; printf 1 > $TENURE_OUTPUT', repeat: 3}
  join: {noop: true, needs: fetch}
  report: {run: '[ -e good ] && cat $TENURE_INPUTS > $TENURE_OUTPUT', needs: join, retries: 0}
",
    );
    place.tenure(&["run", "join.yaml"]).with(1);
    place.file("good", "");
    let args = ["task", "retry", "first", "--as", "second", "--keep-completed"];
    place.tenure(&args).with(0);
    place.tenure(&["run", "--resume=second"]).with(0);
    let ran = std::fs::read_to_string(place.path("ran")).unwrap();
    assert_eq!(ran.lines().count(), 3, "nothing ran twice");
    let got = place.tenure(&["task", "get", "second", "-o", "json"]).with(0).json();
    let output: serde_json::Value =
        serde_json::from_str(got["output"]["data"].as_str().unwrap()).unwrap();
    let fetched = json!({"fetch-0000": 1, "fetch-0001": 1, "fetch-0002": 1});
    assert_eq!((&output, &got["output_from"]), (&fetched, &"report".into()));
    assert_eq!(got["steps"][0]["taken_over_from"]["task_id"], "first");
    let shown = place.tenure(&["task", "get", "second"]).with(0).stdout;
    assert!(shown.contains("output") && shown.contains("fetch-0002"), "{shown}");
    place.tenure(&["task", "retry", "first", "--keep-completed"]).with(2);
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
    place.tenure(&["task", "events", "gated", "--after", "9999"]).with(2).saying("ends with event");
    for format in ["json", "jsonl"] {
        assert_eq!(place.tenure(&["task", "events", "gated", "-o", format]).with(0).lines(), all);
    }
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
    for (status, count) in [("running", 1), ("lost", 1), ("retrying", 0)] {
        let args = ["task", "views", "attempts", "--status", status, "-o", "json"];
        let some = place.tenure(&args).with(0).json();
        assert_eq!(some["attempts"]["active"].as_array().unwrap().len(), count, "{status}");
        assert!(some.get("tasks").is_none(), "only what was asked for: {some}");
    }
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
    assert_eq!(all["tasks"].as_array().unwrap().len(), 2, "the newest ended ones");
    assert_eq!(all["delivery_state"]["bad"], "not_applicable");
    let some = |more: &[&str]| {
        let asked = [&["task", "views", "tasks", "-o", "json"], more].concat();
        let shown = place.tenure(&asked).with(0).json();
        shown["tasks"].as_array().unwrap().len()
    };
    assert_eq!(some(&["--status", "failed"]), 1);
    assert_eq!(some(&["--status", "running,completed"]), 1);
    assert_eq!(some(&["--user-facing"]), 0);
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

/// VIEW-08: a status is asked for by the name that tables show, or by that of the log.
#[test]
fn lists_take_the_statuses_that_they_show() {
    let place = killed();
    let ids = |args: &[&str]| place.tenure(&[args, &["-o", "quiet"]].concat()).with(0).stdout;
    let shown = place.tenure(&["task", "list", "-o", "json"]).with(0).json();
    assert_eq!(
        (&shown["tasks"][0]["status"], &shown["tasks"][0]["native_status"]),
        (&"lost".into(), &"running".into())
    );
    for status in ["lost", "running", "paused,lost"] {
        assert_eq!(ids(&["task", "list", "--status", status]), "long\n", "{status}");
    }
    let step = place.tenure(&["step", "show", "long", "a", "-o", "json"]).with(0).json();
    for name in ["status", "normalized_status"] {
        let status = step["step"][name].as_str().unwrap();
        assert_eq!(ids(&["step", "list", "long", "--status", status]), "a\n", "{status}");
        let status = step["attempts"][0][name].as_str().unwrap();
        let listed = ids(&["attempt", "list", "long", "--status", status]);
        assert_eq!(listed.lines().count(), 1, "{status}");
    }
    // What only tables call so.
    place.tenure(&["step", "block", "long", "a", "--waits-for", "input"]).with(0);
    assert_eq!(ids(&["step", "list", "long", "--status", "waiting_input"]), "a\n");
    let page = ["step", "list", "long", "--status", "waiting_input,queued", "--limit", "1"];
    place.tenure(&page).with(0).saying("there are more: --offset 1");
    assert_eq!(ids(&[&page[..], &["--offset", "1"]].concat()), "b\n");
    assert_eq!(ids(&["task", "list", "--status", "paused,queued"]), "");
    assert_eq!(ids(&["attempt", "list", "long", "--status", "timed_out"]), "");
    assert_eq!(ids(&["step", "list", "long", "--status", "pending"]), "b\n");
    let wrong = place.tenure(&["task", "list", "--status", "asleep"]).with(2);
    wrong.saying("pending").saying("waiting_input");
    assert_eq!(ids(&["task", "list", "--user-facing"]), "", "VIEW-10: it is internal");
    let shown = r#"[{"op": "update_task", "visibility": "foreground"}]"#;
    place.file("shown.json", shown);
    place.tenure(&["task", "patch", "long", "shown.json"]).with(0);
    assert_eq!(ids(&["task", "list", "--user-facing"]), "long\n");
}

#[test]
fn lists_leave_out_what_is_of_other_workers() {
    let place = killed();
    let ids = |args: &[&str]| place.tenure(&[args, &["-o", "quiet"]].concat()).with(0).stdout;
    let step = place.tenure(&["step", "show", "long", "a", "-o", "json"]).with(0).json();
    let worker = step["step"]["claimed_by_agent_id"].as_str().unwrap_or_else(|| panic!("{step:#}"));
    assert_eq!(ids(&["step", "list", "long", "--claimed-by", worker]), "a\n");
    assert_eq!(ids(&["step", "list", "long", "--claimed-by", "nobody"]), "");
    assert_eq!(ids(&["attempt", "list", "long", "--worker", worker]).lines().count(), 1);
    assert_eq!(ids(&["attempt", "list", "long", "--worker", "nobody"]), "");
    let run = ids(&["runs", "list", "long", "--step", "a", "--status", "active"]);
    assert_eq!(ids(&["runs", "list", "long", "--step", "b", "--status", "active"]), "");
    assert_eq!(ids(&["runs", "list", "long", "--pool", "other"]), "");
    let short = run.trim().get(..20).unwrap();
    assert_eq!(ids(&["runs", "show", "long", short]), run);
    place.tenure(&["runs", "get", "long", "zzz"]).with(3).saying("`zzz` is no id of a run");
    assert_eq!(ids(&["task", "show", "last"]), "long\n");
}

/// The inbox is what waits for whoever asks, in words for people and for programs.
#[test]
fn the_inbox_is_asked_for_somebody() {
    let place = killed();
    place.file("owner.json", r#"[{"op": "update_task", "owner": "ann"}]"#);
    place.tenure(&["task", "patch", "long", "owner.json"]).with(0);
    place.tenure(&["step", "block", "long", "a", "--reason", "which one?"]).with(0);
    place.tenure(&["task", "block", "long"]).with(0);
    let all = place.tenure(&["inbox", "-o", "quiet"]).with(0).stdout;
    assert_eq!(all, "long\nlong a\n");
    assert_eq!(place.tenure(&["inbox", "--for", "ann", "-o", "quiet"]).with(0).stdout, all);
    place.tenure(&["inbox", "--for", "bob"]).with(0).saying("waits for bob");
}

#[test]
fn what_a_task_is_related_to_is_shown_with_what_unlink_takes() {
    let place = killed();
    let link =
        ["task", "link", "long", "evidence", "https://example.org/1", "--reason", "see there"];
    place.tenure(&link).with(0);
    let shown = place.tenure(&["task", "get", "long"]).with(0).stdout;
    let (_, related) = shown.split_once("\nrelated\n").unwrap_or_else(|| panic!("{shown}"));
    assert!(related.contains("see there"), "{related}");
    let cells: Vec<&str> = related.split_whitespace().collect();
    assert_eq!(cells[..2], ["evidence", "https://example.org/1"]);
    place.tenure(&["task", "unlink", "long", cells[2]]).with(0);
    let shown = place.tenure(&["task", "get", "long"]).with(0).stdout;
    assert!(!shown.contains("related"), "{shown}");
}

/// CTRL-09: a refusal is one JSON object for programs, and people are told what was meant.
#[test]
fn refusals_name_what_was_meant_and_are_data_for_programs() {
    let place = killed();
    place.tenure(&["task", "pause", "lonng"]).with(3).saying("did you mean `long`?");
    let refused = place.tenure(&["task", "pause", "lonng", "-o", "json"]).with(3).refusal();
    assert_eq!(refused["code"], "task_not_found", "{refused}");
    assert_eq!(refused["retryable"], false);
    assert_eq!(refused["details"]["task_id"], "lonng");
    assert_eq!(refused["help"], "did you mean `long`?");
    for unknown in [&["task", "get", "lonng", "-o", "json"][..], &["watch", "lonng", "-o", "jsonl"]]
    {
        let refused = place.tenure(unknown).with(3).refusal();
        assert_eq!(
            (&refused["code"], &refused["details"]["task_id"]),
            (&"task_not_found".into(), &"lonng".into())
        );
    }
    let refused = place.tenure(&["step", "get", "long", "z", "-o", "json"]).with(3).refusal();
    assert_eq!(refused["code"], "step_not_found", "{refused}");

    let incomplete = place.tenure(&["task", "complete", "long"]).with(4);
    incomplete.saying("steps are not completed: a, b").saying("tenure step complete");
    let ours = place.tenure(&["dispatch", "long", "--wait", "-o", "json"]).with(2).refusal();
    assert_eq!((&ours["code"], ours["message"].is_string()), (&serde_json::Value::Null, true));
    place.file("bad.yaml", "steps: {a: {needs: a, noop: true}}");
    let refused = place.tenure(&["run", "bad.yaml", "-o", "json"]).with(2).refusal();
    assert_eq!(
        (&refused["code"], &refused["details"]["line"]),
        (&"dependency_cycle".into(), &1.into())
    );
    place.tenure(&["run", "bad.yaml"]).with(2).saying("bad.yaml:1:");
}

/// Only the holder may (P31): whoever looks for it is told what to do.
#[test]
fn releasing_a_step_is_explained() {
    let place = Place::new();
    let release = place.tenure(&["step", "release", "long", "a", "--reason", "why"]).with(2);
    release.saying("only the worker").saying("`step block`, then `step reopen`");
}

/// Whoever stops waiting is told that what was waited for goes on.
#[test]
fn a_wait_that_is_stopped_says_so() {
    let place = Place::new();
    place.file("gated.yaml", GATED);
    let run = place.start(&["run", "gated.yaml", "-o", "quiet"]);
    place.wait_for("begun");
    for waits in [&["watch", "gated"][..], &["task", "wait", "gated"], &["task", "events", "gated"]]
    {
        place.start(waits).stopped_saying("to wait for its end: tenure task wait");
    }
    place.file("go", "now");
    run.end().with(0);
}
