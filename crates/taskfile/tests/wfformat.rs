//! Recorded workflows in WfFormat 1.5 become plans.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use serde_json::{Value, json};
use tenure_taskfile::{FileFormat, Plan, ReadOptions, TaskFileError, parse};

fn instance(tasks: Value) -> Value {
    json!({
        "name": "Recorded",
        "description": "By somebody",
        "createdAt": "2023-05-10T16:36:06.775626",
        "schemaVersion": "1.5",
        "author": { "name": "cc" },
        "workflow": { "specification": { "tasks": tasks, "files": [{ "id": "f", "sizeInBytes": 1 }] } },
    })
}

fn import(instance: &Value, options: &ReadOptions) -> Result<Plan, TaskFileError> {
    parse(instance.to_string().as_bytes(), "recorded.json", options)
}

fn plan(tasks: Value) -> Plan {
    import(&instance(tasks), &ReadOptions::default()).unwrap_or_else(|error| panic!("{error}"))
}

fn edges(plan: &Plan) -> Vec<(&str, Vec<&str>)> {
    plan.steps
        .iter()
        .map(|step| (&*step.id, step.depends_on.iter().map(String::as_str).collect()))
        .collect()
}

#[test]
fn each_task_becomes_a_step_that_does_nothing() {
    let plan = plan(json!([{ "id": "Blast.All_1", "name": "blastall", "inputFiles": ["f"] }]));
    let step = &plan.steps[0];
    assert_eq!((&*plan.title, &*plan.summary, &plan.task_id), ("Recorded", "By somebody", &None));
    assert_eq!(
        (&*step.id, &*step.title, &*step.summary),
        ("blast-all_1", "Blast.All_1", "blastall")
    );
    assert_eq!((&*step.handler, &step.input, step.required), ("noop", &None, true));
}

#[test]
fn parents_and_children_are_two_ways_to_say_one_thing() {
    let plan = plan(json!([
        { "id": "a", "children": ["b"], "parents": [] },
        { "id": "b", "children": ["d"], "parents": ["a"] },
        { "id": "c", "parents": ["a"] },
        { "id": "d", "parents": ["c"], "children": null },
    ]));
    let expected = [("a", vec![]), ("b", vec!["a"]), ("c", vec!["a"]), ("d", vec!["b", "c"])];
    assert_eq!(edges(&plan), expected);
}

#[test]
fn relatives_may_be_named_by_name_where_it_is_clear() {
    let plan = plan(json!([
        { "id": "ID1", "name": "first" },
        { "id": "ID2", "name": "second", "parents": ["first"] },
    ]));
    assert_eq!(edges(&plan), [("id1", vec![]), ("id2", vec!["id1"])]);
    let unclear = instance(json!([
        { "id": "ID1", "name": "same" },
        { "id": "ID2", "name": "same" },
        { "id": "ID3", "name": "third", "parents": ["same"] },
    ]));
    let error = import(&unclear, &ReadOptions::default()).unwrap_err();
    assert_eq!(error.first.message, "several tasks have the name of the parent `same`");
}

#[test]
fn a_task_may_have_a_name_and_no_id() {
    let plan = plan(json!([{ "name": "a" }, { "name": "b", "parents": ["a"] }]));
    assert_eq!(edges(&plan), [("a", vec![]), ("b", vec!["a"])]);
}

#[test]
fn with_a_time_scale_tasks_sleep_for_their_recorded_time() {
    let mut instance =
        instance(json!([{ "id": "A" }, { "id": "B" }, { "id": "C" }, { "id": "D" }]));
    instance["workflow"]["execution"] = json!({ "tasks": [
        { "id": "A", "runtimeInSeconds": 12.345 },
        { "id": "B", "runtimeInSeconds": -1 },
        { "id": "C", "runtimeInSeconds": null },
        { "id": "unknown", "runtimeInSeconds": 1 },
    ]});
    let options = ReadOptions { time_scale: Some(0.1), ..ReadOptions::default() };
    let plan = import(&instance, &options).unwrap();
    let actions: Vec<_> = plan.steps.iter().map(|s| (&*s.handler, s.input.clone())).collect();
    let sleep = |ms: u64| ("sleep", Some(json!({ "ms": ms })));
    assert_eq!(actions, [sleep(1_235), sleep(0), ("noop", None), ("noop", None)]);
}

#[test]
fn a_time_scale_is_a_number_from_0() {
    for scale in [-1.0, f64::NAN, f64::INFINITY] {
        let options = ReadOptions { time_scale: Some(scale), ..ReadOptions::default() };
        let error = import(&instance(json!([{ "id": "a" }])), &options).unwrap_err();
        assert_eq!(error.first.message, "the time scale must be a number from 0");
    }
}

#[test]
fn what_has_no_meaning_here_may_be_missing_or_odd() {
    let bare = json!({ "workflow": { "specification": { "tasks": [{ "id": "a", "x": [[]] }] } } });
    let plan = import(&bare, &ReadOptions::default()).unwrap();
    assert_eq!((&*plan.title, plan.steps.len()), ("recorded", 1));
    let mut odd = instance(json!([{ "id": "a" }]));
    odd["workflow"]["execution"] = json!([1]);
    odd["schemaVersion"] = json!(1.5);
    assert!(import(&odd, &ReadOptions::default()).is_ok());
}

#[test]
fn what_is_no_graph_is_refused() {
    let refused = |tasks: Value| import(&instance(tasks), &ReadOptions::default()).unwrap_err();
    assert_eq!(refused(json!([])).first.message, "the workflow has no tasks");
    assert_eq!(
        refused(json!([{ "id": "a", "parents": 1 }])).first.message,
        "expected a list of task ids, found a number"
    );
    assert_eq!(
        refused(json!([{ "id": "a", "parents": [1] }])).first.message,
        "the parent `a number` is no task"
    );
    assert_eq!(refused(json!([{ "id": "a", "children": ["a"] }])).first.code, "dependency_cycle");
}

#[test]
fn the_same_instance_gives_the_same_ids() {
    let long = "L".repeat(300);
    let tasks = json!([{ "id": "A.b" }, { "id": "A b" }, { "id": "a-b" }, { "id": long }]);
    let (one, two) = (plan(tasks.clone()), plan(tasks));
    assert_eq!(one, two);
    let ids: std::collections::HashSet<_> = one.steps.iter().map(|step| &step.id).collect();
    assert_eq!(ids.len(), 4);
    assert!(one.steps.iter().all(|step| step.id.len() <= 128));
    assert_eq!(one.steps[3].title, long);
}

#[test]
fn variables_mean_nothing_to_an_instance() {
    let vars = [("a".to_owned(), "b".to_owned())].into();
    let options = ReadOptions { vars, ..ReadOptions::default() };
    let error = import(&instance(json!([{ "id": "a" }])), &options).unwrap_err();
    assert_eq!(error.first.message, "the file has no variable `a`");
}

/// A task that cannot be read moves those behind it up by one: a repeated id among them is reported all the same, with
/// the line of the first.
#[test]
fn a_repeated_id_behind_a_task_that_is_none_is_reported() {
    let text = "{\"schemaVersion\": \"1.5\", \"name\": \"w\", \"workflow\": {\"specification\": {\"tasks\": [\n\
                \"08\",\n{\"id\": \"a\"},\n{\"id\": \"a\"}]}}}";
    let options = ReadOptions { format: Some(FileFormat::WfFormat), ..ReadOptions::default() };
    let said = parse(text.as_bytes(), "w.json", &options).unwrap_err().to_string();
    assert!(said.contains("neither `id` nor `name`"), "{said}");
    assert!(
        said.contains("the task id `a` is taken") && said.contains("line 3 has it already"),
        "{said}"
    );
}
