//! Recorded workflows in WfFormat run as they are.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use serde_json::{Value, json};
use support::{Place, step};

/// Four tasks as a diamond, with the seconds that each took when it was recorded.
fn instance() -> Value {
    let tasks = json!([
        { "id": "split_1", "name": "split", "parents": [], "children": ["align_1", "align_2"] },
        { "id": "align_1", "name": "align", "parents": ["split_1"], "children": ["merge_1"] },
        { "id": "align_2", "name": "align", "parents": ["split_1"], "children": ["merge_1"] },
        { "id": "merge_1", "name": "merge", "parents": ["align_1", "align_2"], "children": [] },
    ]);
    let seconds = [("split_1", 10.0), ("align_1", 20.0), ("align_2", 30.0), ("merge_1", 10.0)];
    let recorded = seconds.map(|(id, time)| json!({ "id": id, "runtimeInSeconds": time }));
    json!({
        "name": "little-genome", "schemaVersion": "1.5",
        "workflow": {
            "specification": { "tasks": tasks, "files": [] },
            "execution": { "makespanInSeconds": 50.0, "executedAt": "2024-01-01T00:00:00Z", "tasks": recorded },
        },
    })
}

#[test]
fn a_recorded_workflow_does_nothing_in_the_recorded_order() {
    let place = Place::new();
    place.file("genome.json", instance().to_string());
    let (code, report) = place.report(&["run", "genome.json"]);
    assert_eq!((code, &report["counts"]["completed"]), (Some(0), &json!(4)), "{report:#}");
    let at = |id: &str, field: &str| step(&report, id)[field].as_i64().unwrap();
    assert!(at("merge_1", "started_at") >= at("align_2", "ended_at"));
}

#[test]
fn with_a_time_scale_each_task_takes_its_share_of_the_recorded_time() {
    let place = Place::new();
    place.file("genome.json", instance().to_string());
    let (code, report) = place.report(&["run", "genome.json", "--time-scale", "0.01"]);
    assert_eq!(code, Some(0), "{report:#}");
    let took = |id: &str| {
        let step = step(&report, id);
        step["ended_at"].as_i64().unwrap() - step["started_at"].as_i64().unwrap()
    };
    assert!(took("align_2") >= 300 && took("split_1") >= 100, "{report:#}");
}

#[test]
fn a_recorded_workflow_with_a_cycle_is_refused() {
    let place = Place::new();
    let mut instance = instance();
    instance["workflow"]["specification"]["tasks"][0]["parents"] = json!(["merge_1"]);
    place.file("genome.json", instance.to_string());
    place.tenure(&["run", "genome.json"]).with(2).saying("->");
}
