//! Refusals: each is an error of the tool with its code, its field and what to do next, and nothing has changed.

use serde_json::{Value as Json, json};
use tenure_core::status::Role;
use tenure_mcp::ToolFilter;

use crate::house::House;

/// CTRL-02, CTRL-09, PERM-16: what the domain refuses, the model reads; the Task is as it was.
#[tokio::test]
async fn a_refusal_names_its_code_and_field_and_changes_nothing() {
    let house = House::open().await;
    let mut host = house.host().await;
    let task = json!({ "task_id": "t", "title": "T", "steps": [{ "step_id": "a", "title": "A" }] });
    host.done("task_create", task.clone()).await;
    let id = "t".parse().unwrap();
    let before = house.version(&id).await;
    let mut wrong = Vec::new();
    let circle = json!([
        { "op": "add_step", "step": { "step_id": "b", "title": "B", "depends_on_step_ids": ["a"] } },
        { "op": "update_step", "step_id": "a", "fields": { "depends_on_step_ids": ["b"] } },
    ]);
    let long = "x".repeat(5_000);
    let many: Vec<String> = (0..21).map(|n| format!("t{n}")).collect();
    for (tool, arguments, code, field) in [
        ("task_get", json!({ "task_id": "absent" }), "task_not_found", None),
        ("task_get", json!({}), "validation_error", Some("task_id")),
        ("task_get", json!({ "task_id": "t", "other": 1 }), "validation_error", Some("other")),
        (
            "task_create",
            json!({ "task_id": "t", "title": "Another", "steps": [] , "draft": true}),
            "task_id_conflict",
            None,
        ),
        ("task_create", json!({ "title": "T", "steps": [] }), "validation_error", Some("steps")),
        ("task_update", json!({ "task_id": "t", "operations": circle }), "dependency_cycle", None),
        (
            "task_update",
            json!({ "task_id": "t", "operations": [{ "op": "block_task" }], "expected_version": 99 }),
            "version_conflict",
            None,
        ),
        (
            "task_update_step",
            json!({ "task_id": "t", "step_id": "b", "status": "failed" }),
            "step_not_found",
            None,
        ),
        ("task_complete", json!({ "task_id": "t" }), "required_steps_incomplete", None),
        ("dispatch_worker", json!({ "task_id": "t" }), "validation_error", Some("worker_pool_id")),
        (
            "dispatch_worker",
            json!({ "task_id": "t", "worker_pool_id": "default", "allowed_step_ids": ["z"] }),
            "step_not_found",
            None,
        ),
        ("explain", json!({ "task_id": "t", "step_id": "z" }), "step_not_found", None),
        (
            "answer",
            json!({ "task_id": "t", "step_id": "a", "text": "yes" }),
            "invalid_transition",
            None,
        ),
        (
            "answer",
            json!({ "task_id": "t", "step_id": "a", "text": long }),
            "validation_error",
            Some("answer"),
        ),
        ("answer", json!({ "task_id": "t", "step_id": "a" }), "validation_error", Some("text")),
        ("board", json!({ "task_ids": many }), "validation_error", Some("task_ids")),
        (
            "board",
            json!({ "token_budget": 1_000_000 , "task_ids": ["t"] }),
            "validation_error",
            Some("token_budget"),
        ),
        ("wait", json!({ "task_id": "t", "seconds": 56 }), "validation_error", Some("seconds")),
        ("wait", json!({ "task_id": "t", "since": 1_000 }), "validation_error", Some("since")),
        ("wait", json!({ "task_id": "absent" }), "task_not_found", None),
        ("task_list", json!({ "max_bytes": 10 }), "validation_error", Some("max_bytes")),
        ("task_list", json!({ "statuses": ["nonsense"] }), "validation_error", Some("statuses[0]")),
        (
            "task_cancel",
            json!({ "task_id": "t", "command_id": 5 }),
            "validation_error",
            Some("command_id"),
        ),
    ] {
        let shown = format!("{tool} {arguments}");
        let result = host.call(tool, arguments).await;
        let error = &result["structuredContent"]["error"];
        let named = field.is_none_or(|field| error["field"] == field);
        if result["isError"] != true || error["code"] != code || !named {
            wrong.push(format!("{shown}: {error}, not {code} {field:?}"));
            continue;
        }
        let text = result["content"][0]["text"].as_str().unwrap();
        let next = error["next"].as_str().unwrap();
        assert!(text.starts_with(code) && text.ends_with(&format!("next: {next}")), "{text}");
        assert_eq!(house.version(&id).await, before, "{shown}");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let tasks = house.client.list(true).await.unwrap().entries;
    assert_eq!(tasks.len(), 1, "nothing was made");
}

/// PERM-08: a tool that is not the caller's is refused as one, and one that does not exist is an error of the call.
#[tokio::test]
async fn a_tool_that_is_not_there_is_not_called() {
    let house = House::open().await;
    let task = house.create("hold").await;
    let before = house.version(&task).await;
    for (role, filter) in [
        (Role::Observer, ToolFilter::All),
        (Role::Orchestrator, ToolFilter::ReadOnly),
        (Role::Orchestrator, ToolFilter::Only(vec!["task_get".to_owned()])),
    ] {
        let mut host = house.host_with(role, filter).await;
        let refused = host.refused("task_cancel", json!({ "task_id": task.as_str() })).await;
        assert_eq!(refused["code"], "tool_not_available", "{role}");
        let error =
            host.fail("tools/call", json!({ "name": "no_such_tool", "arguments": {} })).await;
        assert_eq!(error["code"], -32602, "{error}");
    }
    assert!(house.version(&task).await >= before);
    assert!(!house.client.get(&task).await.unwrap().task.native_status.is_terminal());
}

/// The tasks of the extension are not there without offered tools.
#[tokio::test]
async fn unknown_methods_are_refused() {
    let mut host = House::open().await.host().await;
    for method in ["tasks/get", "tasks/list", "nonsense", "ping", "resources/subscribe"] {
        let error =
            host.fail(method, json!({ "taskId": "x", "uri": "tenure://task/main/t" })).await;
        assert_eq!(error["code"], -32601, "{method}: {error}");
    }
    let error = host.fail("prompts/get", json!({ "name": "nonsense" })).await;
    assert_eq!(error["code"], Json::from(-32602));
}
