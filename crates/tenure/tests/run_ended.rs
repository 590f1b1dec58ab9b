//! What a run says of its end: which Step or limit ended the Task, and which Steps only ended with it.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use serde_json::json;
use support::{Place, step};

/// `compile` prints something and then runs on, `lint` fails, and `deploy` waits for both.
const STOPPED: &str = "
task_id: build
steps:
  compile: {run: 'echo compiling; touch up; exec sleep 600'}
  lint: {run: 'until [ -e up ]; do sleep 0.02; done; echo rules; echo bad style >&2; exit 3', retries: 0}
  deploy: {depends_on: [compile, lint], noop: true}
";

/// TERM-14: the Steps that the end of the Task stopped did not fail, and the one that failed comes first.
#[test]
fn the_step_that_failed_the_task_is_named() {
    let place = Place::new();
    place.file("build.yaml", STOPPED);
    let ended = place.tenure(&["run", "build.yaml", "--fail-fast"]).with(1);
    let ended = ended.saying("stopped    compile               because lint failed");
    let out = &ended.stdout;
    assert!(out.contains("stopped because lint failed"), "{out}");
    assert!(out.contains("not run because lint failed"), "{out}");
    assert!(out.contains("lint said last, all of it in "), "{out}");
    assert!(
        out.contains("stdout.log and ") && out.contains("stderr.log:\n  | rules\n  | bad style"),
        "{out}"
    );
    assert!(!out.contains("compile said last") && !out.contains("task_failed"), "{out}");
    let last = out.lines().last().unwrap();
    assert!(last.starts_with("build failed: 0 of 3 steps in "), "{last}");
    assert!(last.ends_with("; 1 failed, 1 stopped, 1 not run; step_failed: lint"), "{last}");
}

#[test]
fn programs_are_told_what_stopped_which_step() {
    let place = Place::new();
    place.file("build.yaml", STOPPED);
    let (_, report) = place.report(&["run", "build.yaml", "--fail-fast"]);
    let lint = json!({"kind": "step", "step_id": "lint"});
    assert_eq!(report["culprit"], lint);
    let outcomes =
        json!({"completed": 0, "failed": 1, "cancelled": 0, "stopped": 1, "not_run": 1, "open": 0});
    assert_eq!(report["outcomes"], outcomes);
    assert_eq!(report["counts"]["failed"], 3, "the counts by status stay");
    let stopped_by = |id| &step(&report, id)["stopped_by"];
    assert_eq!([stopped_by("compile"), stopped_by("deploy")], [&lint; 2]);
    assert_eq!(stopped_by("lint"), &json!(null));
    assert_eq!(step(&report, "compile")["result_summary"], json!(null));
}

#[test]
fn a_deadline_is_named() {
    let place = Place::new();
    place.file(
        "f.yaml",
        "task_id: f\ndeadline: 300ms\nsteps: {a: {sleep: 1h}, b: {needs: a, noop: true}}",
    );
    let ended = place.tenure(&["run", "f.yaml"]).with(1);
    let out = &ended.stdout;
    assert!(out.contains("stopped because the deadline passed"), "{out}");
    assert!(out.ends_with("; 1 stopped, 1 not run; timed_out: the deadline passed\n"), "{out}");
    let (_, report) = place.report(&["run", "f.yaml", "--new"]);
    assert_eq!(report["culprit"], json!({"kind": "deadline"}));
}

/// Of several failures, each Step is told which of them it waited for.
#[test]
fn a_step_that_never_ran_names_the_step_that_it_waited_for() {
    let place = Place::new();
    let text = "
steps:
  bad: {run: 'exit 1', retries: 0}
  worse: {depends_on: slow, run: 'exit 2', retries: 0}
  slow: {sleep: 2s}
  far: {depends_on: near, noop: true}
  near: {depends_on: worse, noop: true}
";
    place.file("f.yaml", text);
    let (_, report) = place.report(&["run", "f.yaml", "--keep-going"]);
    assert_eq!(report["culprit"]["step_id"], "bad");
    for id in ["near", "far"] {
        assert_eq!(step(&report, id)["stopped_by"]["step_id"], "worse", "{report:#}");
    }
}

/// TERM-23: what a Step has printed until it was stopped can be found.
#[test]
fn the_logs_of_a_stopped_step_are_recorded() {
    let place = Place::new();
    place.file("build.yaml", STOPPED);
    place.tenure(&["run", "build.yaml", "--fail-fast", "-o", "quiet"]).with(1);
    let shown = place.tenure(&["step", "get", "build", "compile", "-o", "json"]).with(0).json();
    let logs = shown["artifacts"].as_array().unwrap();
    let [log] = &logs[..] else { panic!("{shown:#}") };
    let text = std::fs::read_to_string(log["uri"].as_str().unwrap()).unwrap();
    assert_eq!(text, "compiling\n");
}

/// POL-06: a Task may complete although optional Steps did not, and says so.
#[test]
fn optional_steps_are_counted_apart() {
    let place = Place::new();
    let text = "
task_id: release
steps:
  deploy: {noop: true}
  notify: {depends_on: deploy, run: 'exit 1', optional: true, retries: 0}
  log: {depends_on: notify, noop: true, optional: true}
";
    place.file("release.yaml", text);
    let ended = place.tenure(&["run", "release.yaml"]).with(0);
    let waits =
        "all required steps are completed; the task waits for 2 optional steps: notify, log\n";
    assert_eq!(ended.stderr.matches(waits).count(), 1, "{}", ended.stderr);
    let out = &ended.stdout;
    assert!(out.contains("not run because notify failed"), "{out}");
    let last = out.lines().last().unwrap();
    assert!(last.starts_with("release completed: 1 of 3 steps in "), "{last}");
    assert!(last.ends_with("; optional: 1 failed, 1 not run"), "{last}");
    let (_, report) = place.report(&["run", "release.yaml", "--new"]);
    assert_eq!(
        (&report["culprit"], &step(&report, "deploy")["required"]),
        (&json!(null), &json!(true))
    );
    assert_eq!(step(&report, "notify")["required"], json!(false));
}
