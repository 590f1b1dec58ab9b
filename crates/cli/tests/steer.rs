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
    place.tenure(&["task", "cancel", "long", "--wait"]).with(0);
    let got = place.tenure(&["task", "get", "long", "-o", "json"]).with(0).json();
    assert_eq!(got["status"], "cancelled");
    place.tenure(&["inbox"]).with(0).saying("nothing in session default waits");
    place.tenure(&["task", "cancel", "nothing"]).with(3);
    place.tenure(&["task", "cancel", "long", "--data", "elsewhere"]).with(3);
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
