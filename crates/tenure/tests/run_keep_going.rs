//! `--keep-going`: all that does not depend on a failed Step still runs, and the Task fails at the
//! end with the reason it would have failed with at once.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use serde_json::json;
use support::{Place, step};

const FILE: &str = "
steps:
  bad: {run: 'exit 3', retry: {max_attempts: 2, backoff: {initial: 1ms, max: 1ms}}}
  behind: {depends_on: bad, noop: true}
  slow: {sleep: 300ms}
  after: {depends_on: slow, run: 'echo after'}
";

#[test]
fn the_first_failure_ends_a_task_unless_told_otherwise() {
    let place = Place::new();
    place.file("f.yaml", FILE);
    let (code, report) = place.report(&["run", "f.yaml"]);
    assert_eq!((code, &step(&report, "after")["status"]), (Some(1), &json!("failed")));
    assert_eq!(report["status_reason"]["code"], "step_failed");
}

/// POL-05: what runs beside a failed step runs to its end, unless it is to stop.
#[test]
fn what_runs_is_stopped_only_if_asked_for() {
    let place = Place::new();
    place.file("f.yaml", "steps: {bad: {run: 'exit 3', retries: 0}, slow: {sleep: 500ms}}");
    let (code, report) = place.report(&["run", "f.yaml"]);
    assert_eq!((code, &step(&report, "slow")["status"]), (Some(1), &json!("completed")));
    place.file("g.yaml", "steps: {bad: {run: 'exit 3', retries: 0}, slow: {sleep: 1h}}");
    let (code, report) = place.report(&["run", "g.yaml", "--fail-fast"]);
    assert_eq!((code, &step(&report, "slow")["status"]), (Some(1), &json!("failed")));
    assert_eq!(report["status_reason"]["code"], "step_failed");
    let text = "on_failure: stop\nsteps: {bad: {run: 'exit 3', retries: 0}, slow: {sleep: 1h}}";
    place.file("h.yaml", text);
    let (code, report) = place.report(&["run", "h.yaml"]);
    assert_eq!((code, &step(&report, "slow")["status"]), (Some(1), &json!("failed")));
}

/// POL-06: an optional step behind the last one that the task needs runs.
#[test]
fn an_optional_step_behind_the_last_required_one_runs() {
    let place = Place::new();
    let text = "steps: {deploy: {noop: true}, notify: {depends_on: deploy, run: 'echo on', optional: true}}";
    place.file("f.yaml", text);
    let (code, report) = place.report(&["run", "f.yaml"]);
    assert_eq!((code, &step(&report, "notify")["status"]), (Some(0), &json!("completed")));
}

#[test]
fn with_keep_going_the_rest_runs_and_the_reason_is_the_same() {
    let place = Place::new();
    place.file("f.yaml", FILE);
    let (code, report) = place.report(&["run", "f.yaml", "--keep-going"]);
    assert_eq!((code, &report["native_status"]), (Some(1), &json!("failed")));
    assert_eq!(report["status_reason"]["code"], "step_failed");
    assert_eq!(step(&report, "after")["status"], "completed");
    // The retries of a Task that ends by itself hold here too.
    assert_eq!(step(&report, "bad")["attempts"], 2);
    assert_eq!(step(&report, "behind")["status"], "failed");
}

#[test]
fn a_task_where_nothing_fails_completes() {
    let place = Place::new();
    place.file("f.yaml", "steps: {a: {noop: true}, b: {depends_on: a, noop: true}}");
    let (code, report) = place.report(&["run", "f.yaml", "--keep-going"]);
    assert_eq!((code, &report["native_status"]), (Some(0), &json!("completed")));
}

#[test]
fn a_failed_optional_step_fails_nothing() {
    let place = Place::new();
    let text = "steps: {a: {noop: true}, b: {run: 'exit 1', optional: true, retries: 0}}";
    place.file("f.yaml", text);
    let (code, report) = place.report(&["run", "f.yaml", "--keep-going"]);
    assert_eq!((code, &report["native_status"]), (Some(0), &json!("completed")));
}

#[test]
fn the_default_number_of_tries_is_kept() {
    let place = Place::new();
    // The first retry comes after a second: long enough to see that there is one.
    place.file("f.yaml", "steps: {a: {run: '[ $TENURE_ATTEMPT -ge 2 ]'}}");
    let (code, report) = place.report(&["run", "f.yaml", "--keep-going"]);
    assert_eq!((code, &step(&report, "a")["attempts"]), (Some(0), &json!(2)));
}

#[test]
fn a_file_that_leaves_its_end_to_others_is_ended_by_the_command() {
    let place = Place::new();
    place.file("f.yaml", format!("completion: manual\n{FILE}"));
    let (code, report) = place.report(&["run", "f.yaml"]);
    assert_eq!((code, &step(&report, "after")["status"]), (Some(1), &json!("completed")));
}

#[test]
fn the_deadline_holds_with_keep_going_too() {
    let place = Place::new();
    place.file("f.yaml", "deadline: 200ms\nsteps: {a: {sleep: 1h}}");
    for more in [&[][..], &["--keep-going"]] {
        let (code, report) = place.report(&[&["run", "f.yaml"], more].concat());
        assert_eq!((code, &report["status"]), (Some(1), &json!("timed_out")), "{report:#}");
    }
}
