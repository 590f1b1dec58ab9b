//! What is refused, and to whom.

use serde_json::{Value as Json, json};
use tenure_core::status::Role;

use crate::house::{House, LONG, TASKS};
use crate::talk::{Talk, call};

/// Arguments that are not what the tool takes are an error that names the field, and begin no task.
#[tokio::test]
async fn arguments_are_checked() {
    let house = House::open().await;
    let mut talk = house.talk().await;
    for (arguments, field) in [
        (json!({}), "arguments.do"),
        (json!({"do": 1}), "arguments.do"),
        (json!({"do": "echo", "with": []}), "arguments.with"),
    ] {
        let params = json!({"name": "act", "arguments": arguments});
        let result = talk.result("tools/call", params).await;
        assert_eq!((&result["isError"], &result["resultType"]), (&json!(true), &json!("complete")));
        let error = &result["structuredContent"]["error"];
        assert_eq!((&error["code"], &error["field"]), (&json!("validation_error"), &json!(field)));
    }
    let wrong = json!({"name": "count", "arguments": {"with": 1}});
    let result = talk.result("tools/call", wrong).await;
    assert_eq!(result.get("structuredContent"), None);
    assert_eq!(result["_meta"]["dev.tenure/error"]["field"], "arguments.with");
    let mut named = call("act", "echo", "");
    named["_meta"] = json!({"dev.tenure/command_id": 17});
    let result = talk.result("tools/call", named).await;
    assert_eq!(result["structuredContent"]["error"]["field"], "dev.tenure/command_id");
    assert!(house.client().list(true).await.unwrap().entries.is_empty());
    let unknown = json!({"name": "none", "arguments": {}});
    assert_eq!(talk.refusal("tools/call", unknown).await, -32602);
}

/// A call that is in doubt names its task, so that nobody does the work twice (WAL-09).
#[tokio::test]
async fn a_call_in_doubt_names_its_task() {
    let house = House::open().await;
    let mut talk = house.waiting_talk(json!({}), LONG).await;
    let waits = talk.begin_request("tools/call", call("act", "hold", "on")).await;
    let begun = loop {
        let listed = house.client().list(true).await.unwrap();
        match listed.entries.first() {
            Some(found) => break json!(found.key.task_id),
            None => tokio::task::yield_now().await,
        }
    };
    house.stop().await;
    let answer = talk.answer(waits).await;
    // The call may have begun to wait, or not even know that its task is there.
    let said = &answer["result"]["structuredContent"];
    let named = [&said["task_id"], &said["error"]["details"]["task_id"]];
    assert!(named.contains(&&begun), "{answer}");
    let result = talk.result("tools/call", call("act", "echo", "a")).await;
    let error = &result["structuredContent"]["error"];
    assert_eq!(error["retryable"], true, "{error}");
    assert!(error["details"]["task_id"].as_str().unwrap().starts_with("mcp-"), "{error}");
}

/// Who does not say that it knows the extension gets no task, and may not ask for one: -32021.
#[tokio::test]
async fn the_extension_is_for_those_who_name_it() {
    let house = House::open().await;
    let made = house.talk().await.act("echo", "a").await;
    let mut plain = house.waiting_talk(json!({}), LONG).await;
    let id = json!({"taskId": made["taskId"], "inputResponses": {}});
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let refused = plain.ask(method, id.clone()).await;
        assert_eq!(refused["error"]["code"], -32021, "{method}");
        let needed = &refused["error"]["data"]["requiredCapabilities"]["extensions"];
        assert_eq!(needed[TASKS], json!({}));
    }
    let mut talk = house.talk().await;
    for removed in ["tasks/list", "tasks/result"] {
        assert_eq!(talk.refusal(removed, id.clone()).await, -32601, "{removed}");
    }
    let mut legacy = call("act", "echo", "a");
    legacy["task"] = json!({"ttl": 1});
    assert_eq!(plain.result("tools/call", legacy).await["content"][0]["text"], "a");
}

/// A task is there for the caller who began it, unless its tool is shared: for others it is as unknown as any other id.
#[tokio::test]
async fn a_task_is_there_for_its_caller() {
    let house = House::open().await;
    let (mut ann, mut bob) = (house.talk().await, house.talk_as("bob").await);
    let own = ann.act("hold", "on").await["taskId"].clone();
    let shared = ann.result("tools/call", call("open", "hold", "on")).await["taskId"].clone();
    let plain = house
        .client()
        .create(
            tenure_sdk::client::Task::new("other")
                .step(tenure_sdk::client::Step::new("a").handler("act")),
        )
        .await
        .unwrap();
    let unknown = [own.clone(), json!("none"), json!("../etc"), json!(""), json!(plain)];
    for id in &unknown {
        let params = json!({"taskId": id, "inputResponses": {}});
        for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
            assert_eq!(bob.refusal(method, params.clone()).await, -32602, "{method} {id}");
        }
    }
    assert_eq!(ann.get(&own).await["status"], "working");
    assert_eq!(bob.get(&shared).await["status"], "working");
    bob.result("tasks/cancel", json!({"taskId": shared})).await;
    ann.until(&shared, "cancelled").await;
    house.gate.add_permits(2);
}

/// A server that changes nothing offers none of these tools, and does not speak of the extension.
#[tokio::test]
async fn a_server_that_only_reads_offers_nothing() {
    let house = House::open().await;
    let made = house.talk().await.act("ask", "where to?").await;
    let can = json!({"extensions": {TASKS: {}}});
    let mut talk = Talk::begin(house.reading_server(), can).await;
    let listed = talk.result("tools/list", json!({})).await;
    let mut names = listed["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]);
    assert!(names.all(|name| *name != "act"));
    let answer = talk.ask("tools/call", call("act", "echo", "a")).await;
    let refused = answer.get("error").is_some() || answer["result"]["isError"] == true;
    assert!(refused, "{answer}");
    let update = json!({"taskId": made["taskId"], "inputResponses": {}});
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        assert_eq!(talk.refusal(method, update.clone()).await, -32601, "{method}");
    }
    assert_eq!(house.client().list(true).await.unwrap().entries.len(), 1);
}

/// An observer looks on: it is offered no tools, and can call none.
#[tokio::test]
async fn an_observer_calls_nothing() {
    let house = House::open().await;
    let made = house.talk().await.act("ask", "where to?").await;
    let can = json!({"extensions": {TASKS: {}}});
    let mut looks = Talk::begin(house.server("ann", Role::Observer, LONG), can).await;
    let listed = looks.result("tools/list", json!({})).await;
    let names: Vec<&Json> =
        listed["tools"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert!(!names.contains(&&json!("act")), "{names:?}");
    let result = looks.result("tools/call", call("act", "echo", "a")).await;
    assert_eq!(result["isError"], true);
    let id = &made["taskId"];
    looks.until(id, "input_required").await;
    let answers = json!({"call.1.0": {"action": "accept", "content": {"answer": "x"}}});
    let update = json!({"taskId": id, "inputResponses": answers});
    assert_eq!(looks.refusal("tasks/update", update).await, -32600);
    assert_eq!(looks.refusal("tasks/cancel", json!({"taskId": id})).await, -32600);
    assert_eq!(looks.get(id).await["status"], "input_required");
}
