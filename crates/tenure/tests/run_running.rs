//! What runs is called running, once it has run for a while.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use support::Place;

/// S05: the built-in handlers report that work has begun, of work that lasts and of no other.
#[test]
fn long_work_is_said_to_run_and_short_work_costs_no_event() {
    let place = Place::new();
    place.file(
        "task.yaml",
        "steps:\n  a: {sleep: 1ms}\n  b: {run: 'sleep 0.5'}\n  c: {sleep: 500ms}\n",
    );
    let told = place.tenure(&["run", "task.yaml", "-o", "jsonl"]).with(0).lines();
    let mut begun: Vec<&str> = told
        .iter()
        .filter(|event| event["native_event"] == "task_step_started")
        .map(|event| event["step_id"].as_str().unwrap())
        .collect();
    begun.sort_unstable();
    assert_eq!(begun, ["b", "c"]);
}
