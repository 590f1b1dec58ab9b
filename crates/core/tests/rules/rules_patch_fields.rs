//! PATCH: the operations and the fields they take.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common;
use common::ops::*;
use common::*;
use serde_json::Value as Json;
use tenure_core::Code;
use tenure_core::patch::Operation;
use tenure_core::status::StepStatus;

fn parses(operation: Json) -> bool {
    serde_json::from_value::<Operation>(operation).is_ok()
}

/// PATCH-02, PATCH-09: every content field changes through `update_step`, and null clears the
/// optional ones.
#[test]
fn update_step_sets_and_clears_every_content_field() {
    let mut t = Fixture::manual("a b c<-a");
    let fields = json!({
        "title": "new title",
        "summary": "new summary",
        "depends_on_step_ids": ["b"],
        "required": false,
        "worker_pool_id": "gpu",
        "handler": "render",
        "input": {"data": "{}"},
        "retry_policy": {"max_attempts": 7},
        "assignee": "bee",
        "claim_only_by": "bob",
        "ext": {"x": null},
    });
    yes(&mut t, json!([update("c", fields.clone())]));
    let stored = serde_json::to_value(&*t.step("c").spec).unwrap();
    for (name, given) in fields.as_object().unwrap() {
        match name.as_str() {
            "input" => assert_eq!(stored["input"]["data"], "{}"),
            "retry_policy" => assert_eq!(stored["retry_policy"]["max_attempts"], 7),
            _ => assert_eq!(&stored[name], given, "{name}"),
        }
    }
    let clear = json!({
        "input": null, "retry_policy": null, "assignee": null, "claim_only_by": null, "ext": null,
    });
    yes(&mut t, json!([update("c", clear)]));
    let spec = &t.step("c").spec;
    assert!(spec.input.is_none() && spec.retry_policy.is_none() && spec.assignee.is_none());
    assert!(spec.claim_only_by.is_none() && spec.ext.is_none());
    assert_eq!(spec.title, "new title", "fields that are not named stay");
}

/// PATCH-04, PATCH-05, PATCH-06: ten operations, each with an optional reason, and no other.
#[test]
fn there_are_ten_operations_and_no_other() {
    let step = new_step("z", &[]);
    let known = [
        json!({"op": "update_task", "title": "x"}),
        json!({"op": "add_step", "step": step}),
        json!({"op": "update_step", "step_id": "a", "fields": {}}),
        json!({"op": "delete_step", "step_id": "a"}),
        json!({"op": "add_dependency", "step_id": "a", "depends_on_step_id": "b"}),
        json!({"op": "remove_dependency", "step_id": "a", "depends_on_step_id": "b"}),
        json!({"op": "cancel_step", "step_id": "a"}),
        json!({"op": "reopen_step", "step_id": "a", "input_refs": ["x"]}),
        json!({"op": "block_task"}),
        json!({"op": "reopen_task"}),
    ];
    for mut operation in known {
        assert!(parses(operation.clone()), "{operation}");
        operation["reason"] = json!({"message": "because"});
        assert!(parses(operation.clone()), "{operation}");
        operation["reason"] = json!({"code": "c", "message": "because"});
        assert!(parses(operation.clone()), "{operation}");
        operation["surprise"] = json!(1);
        assert!(!parses(operation.clone()), "{operation}");
    }
    for name in ["replace_dag", "set_status", "complete_step", "reorder_steps", "", "ADD_STEP"] {
        assert!(!parses(json!({"op": name, "step_id": "a"})), "{name}");
    }
    assert!(!parses(json!({"step_id": "a"})), "op is missing");
    assert!(!parses(json!({"op": "delete_step"})), "step_id is missing");
}

/// PATCH-07: `update_task` sets the O-writable fields of the Task, and null clears optional ones.
#[test]
fn update_task_sets_and_clears_every_field_of_the_task() {
    let mut t = Fixture::manual("a");
    let fields = json!({
        "title": "new title", "summary": "new summary", "objective": "reach it",
        "metadata": {"k": 1}, "priority": 5, "requested_by": "r", "owner": "o", "assignee": "ant",
        "claim_only_by": "eve", "ext": {"x": null},
        "acceptance": [{"id": "c1", "text": "good", "state": "unknown"}],
        "constraints": {"deadline_at": 5}, "task_profile": {"p": true}, "visibility": "background",
        "dispatch": "auto", "completion": "auto", "retry_policy": {"max_attempts": 2},
    });
    let mut operation = fields.clone();
    operation["op"] = json!("update_task");
    assert_eq!(yes(&mut t, json!([operation])), ["task_updated"]);
    let stored = serde_json::to_value(&*t.task.head().spec).unwrap();
    for (name, given) in fields.as_object().unwrap() {
        match name.as_str() {
            "retry_policy" => assert_eq!(stored["retry_policy"]["max_attempts"], 2),
            _ => assert_eq!(&stored[name], given, "{name}"),
        }
    }
    let names = [
        "acceptance",
        "objective",
        "metadata",
        "priority",
        "requested_by",
        "owner",
        "assignee",
        "claim_only_by",
        "ext",
        "constraints",
        "task_profile",
    ];
    let mut clear = json!({"op": "update_task"});
    names.iter().for_each(|name| clear[*name] = Json::Null);
    clear["retry_policy"] = Json::Null;
    yes(&mut t, json!([clear]));
    let stored = serde_json::to_value(&*t.task.head().spec).unwrap();
    for name in names {
        assert!(stored.get(name).is_none(), "{name} is cleared");
    }
    assert_eq!(stored["retry_policy"]["max_attempts"], 1, "RETRY-14: it is the default again");
    assert_eq!(stored["title"], "new title", "fields that are not named stay");
}

/// PATCH-07, PATCH-09: what always has a value cannot be cleared; the answer names the field and
/// the operation.
#[test]
fn what_always_has_a_value_is_not_cleared() {
    let mut t = Fixture::manual("a b");
    let of_task = ["title", "summary", "completion", "dispatch", "visibility"];
    let of_task = of_task.map(|field| (field, json!({"op": "update_task", field: null})));
    let of_step =
        ["title", "summary", "depends_on_step_ids", "required", "worker_pool_id", "handler"];
    let of_step = of_step.map(|field| (field, update("b", json!({field: null}))));
    for (field, operation) in of_task.into_iter().chain(of_step) {
        let fine = json!({"op": "update_task", "priority": 1});
        let no = t.refuse(patch(json!([fine, operation])), Code::ValidationError);
        assert_eq!((&no.details["field"], &no.details["op_index"]), (&json!(field), &json!(1)));
    }
}

/// PATCH-07: status, ids and history of a Task are no fields of a patch.
#[test]
fn update_task_names_no_status_and_no_identity() {
    for field in
        ["status", "task_id", "session_id", "version", "steps", "wal_name", "result_summary"]
    {
        assert!(!parses(json!({"op": "update_task", field: "x"})), "{field}");
    }
}

/// PATCH-08: `add_step` fills in the defaults; DAG-08, DAG-09, U13.
#[test]
fn an_added_step_gets_the_defaults_of_a_created_one() {
    let mut t = Fixture::manual("a");
    yes(&mut t, json!([add("b", &["a"])]));
    let spec = &t.step("b").spec;
    assert!(spec.required);
    assert_eq!(spec.worker_pool_id.as_str(), POOL);
    assert_eq!(spec.handler.as_str(), "default");
    assert!(spec.input.is_none() && spec.retry_policy.is_none() && spec.assignee.is_none());
    assert_eq!(t.status("b"), StepStatus::Pending);
}

/// PATCH-08: optional fields inside `step`, and the two that are required.
#[test]
fn add_step_takes_the_optional_fields_and_needs_the_two() {
    let mut t = Fixture::manual("a");
    let mut step = new_step("b", &["a"]);
    let more = json!({
        "required": false, "worker_pool_id": "gpu", "handler": "render", "assignee": "bee",
        "claim_only_by": "bob", "ext": {"y": 1},
        "input": {"content_type": "text/plain", "data": "hi"}, "retry_policy": {"max_lost": 1},
    });
    step.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    yes(&mut t, json!([{"op": "add_step", "step": step}]));
    let stored = serde_json::to_value(&*t.step("b").spec).unwrap();
    for name in
        ["required", "worker_pool_id", "handler", "assignee", "claim_only_by", "ext", "input"]
    {
        assert_eq!(stored[name], more[name], "{name}");
    }
    for name in ["step_id", "title"] {
        let mut step = new_step("c", &[]);
        step.as_object_mut().unwrap().remove(name);
        assert!(!parses(json!({"op": "add_step", "step": step})), "{name} is required");
    }
    let mut step = new_step("c", &[]);
    step["status"] = json!("ready");
    assert!(!parses(json!({"op": "add_step", "step": step})), "a status is not a field");
}

/// PATCH-09: unknown and status fields are no fields of `update_step`.
#[test]
fn update_step_names_no_status_and_no_result() {
    for field in [
        "status",
        "step_id",
        "result_summary",
        "artifact_ids",
        "output",
        "position",
        "priority",
        "claimed_by_run_id",
        "not_before",
        "attempt_count",
    ] {
        assert!(!parses(update("a", json!({field: "x"}))), "{field}");
    }
}
