//! Resources, prompts and subscriptions.

use serde_json::{Value as Json, json};
use tenure_core::status::Role;
use tenure_mcp::McpSettings;

use crate::host::{Era, ModelHost};
use crate::house::House;

async fn read(host: &mut ModelHost, uri: &str) -> String {
    let result = host.ask("resources/read", json!({ "uri": uri })).await;
    let content = &result["contents"][0];
    assert_eq!(content["uri"], uri);
    content["text"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_task_is_read_at_its_addresses() {
    let house = House::open().await;
    let mut host = house.host().await;
    let task = house.create("ask").await;
    host.done("wait", json!({ "task_id": task.as_str() })).await;
    let uri = format!("tenure://task/main/{task}");
    let view: Json = serde_json::from_str(&read(&mut host, &uri).await).unwrap();
    assert_eq!(view["steps"][0]["status"], "blocked");
    let log: Json = serde_json::from_str(&read(&mut host, &format!("{uri}/log")).await).unwrap();
    assert!(log.to_string().contains("task_created"), "{log}");
    assert!(read(&mut host, &format!("{uri}/board")).await.contains("Which colour?"));
    let graph = read(&mut host, &format!("{uri}/graph")).await;
    assert!(graph.starts_with("flowchart LR") && graph.contains("a<br/>blocked"), "{graph}");
    assert!(read(&mut host, "tenure://guide/task").await.contains("How to write a task"));

    let list = host.ask("resources/list", json!({})).await;
    let uris: Vec<&Json> =
        list["resources"].as_array().unwrap().iter().map(|it| &it["uri"]).collect();
    assert_eq!(uris, [&json!("tenure://guide/task"), &json!(uri)]);
    assert!(list["ttlMs"].is_u64() && list["cacheScope"] == "private", "{list}");
    let templates = host.ask("resources/templates/list", json!({})).await;
    assert_eq!(templates["resourceTemplates"].as_array().unwrap().len(), 4);
}

/// PERM-16: what is not there and what is not the caller's look the same.
#[tokio::test]
async fn an_address_of_nothing_is_refused() {
    let house = House::open().await;
    let task = house.create("hold").await;
    let mut host = house.host().await;
    for uri in [
        "tenure://task/main/absent".to_owned(),
        format!("tenure://task/other/{task}"),
        format!("tenure://task/main/{task}/nonsense"),
        "file:///etc/passwd".to_owned(),
        "x".repeat(3_000),
    ] {
        let error = host.fail("resources/read", json!({ "uri": uri })).await;
        assert_eq!(
            (&error["code"], &error["message"]),
            (&json!(-32602), &json!("there is no such resource")),
            "{uri}"
        );
    }
    let error = host.fail("resources/list", json!({ "cursor": "nonsense" })).await;
    assert_eq!(error["code"], -32602);
}

#[tokio::test]
async fn prompts_have_the_guide_and_where_a_task_stands() {
    let house = House::open().await;
    let mut host = house.host().await;
    let list = host.ask("prompts/list", json!({})).await;
    let names: Vec<&Json> =
        list["prompts"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["task_template", "task_review"]);
    let guide = host
        .ask("prompts/get", json!({ "name": "task_template", "arguments": { "goal": "ship it" } }))
        .await;
    let messages = guide["messages"].as_array().unwrap();
    assert!(messages[0]["content"]["text"].as_str().unwrap().contains("How to write a task"));
    assert!(messages[1]["content"]["text"].as_str().unwrap().ends_with("Goal: ship it"));
    let task = house.create("hold").await;
    let review = json!({ "name": "task_review", "arguments": { "task_id": task.as_str() } });
    let text =
        host.ask("prompts/get", review.clone()).await["messages"][0]["content"]["text"].clone();
    assert!(text.as_str().unwrap().contains("a task"), "{text}");
    for arguments in [json!({}), json!({ "task_id": "absent" }), json!({ "task_id": 1 })] {
        let error = host
            .fail("prompts/get", json!({ "name": "task_review", "arguments": arguments }))
            .await;
        assert_eq!(error["code"], -32602, "{error}");
    }
    let mut observer = house.host_with(Role::Observer, tenure_mcp::ToolFilter::All).await;
    let list = observer.ask("prompts/list", json!({})).await;
    assert_eq!(list["prompts"].as_array().unwrap().len(), 1);
    assert!(observer.ask("prompts/get", review).await.to_string().contains("native_status"));
}

/// In 2026-07-28 a subscription is a request that stays open.
#[tokio::test]
async fn a_listener_is_told_of_a_change() {
    let house = House::open().await;
    let task = house.create("hold").await;
    let mut host = house.host().await;
    let uri = format!("tenure://task/main/{task}");
    let uris = json!([uri, "file:///etc/passwd"]);
    let id = host
        .request(
            "subscriptions/listen",
            json!({ "notifications": { "resourceSubscriptions": uris } }),
        )
        .await;
    let acknowledged = host.next().await;
    assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged");
    let accepted = &acknowledged["params"]["notifications"]["resourceSubscriptions"];
    assert_eq!(accepted, &json!([uri]), "{acknowledged}");
    house.client.pause(&task, "").await.unwrap();
    let told = loop {
        let message = host.next().await;
        assert_ne!(message["id"], id, "it stays open: {message}");
        if message["method"] == "notifications/resources/updated" {
            break message;
        }
    };
    assert_eq!(told["params"]["uri"], uri);
    host.close().await.unwrap();
}

/// In older versions it belongs to the session.
#[tokio::test]
async fn a_subscriber_of_an_older_version_is_told_of_a_change() {
    let house = House::open().await;
    let task = house.create("hold").await;
    let era = Era::Legacy("2025-06-18");
    let mut host = house.host_of(Role::Orchestrator, McpSettings::default(), era).await;
    let uri = format!("tenure://task/main/{task}");
    host.ask("resources/subscribe", json!({ "uri": uri })).await;
    host.ask("resources/subscribe", json!({ "uri": uri })).await;
    house.client.pause(&task, "").await.unwrap();
    let told = host.next().await;
    assert_eq!(
        (&told["method"], &told["params"]["uri"]),
        (&json!("notifications/resources/updated"), &json!(uri))
    );
    host.ask("resources/unsubscribe", json!({ "uri": uri })).await;
    for wrong in ["tenure://task/main/absent", "tenure://task/other/t", "nonsense"] {
        let error = host.fail("resources/subscribe", json!({ "uri": wrong })).await;
        assert_eq!(error["code"], -32002, "{wrong}: {error}");
    }
    for n in 0..64 {
        let made = house.create("hold").await;
        let uri = format!("tenure://task/main/{made}/graph");
        host.ask("resources/subscribe", json!({ "uri": uri })).await;
        assert!(n < 64);
    }
    let error = host.fail("resources/subscribe", json!({ "uri": uri })).await;
    assert!(error["message"].as_str().unwrap().contains("64"), "{error}");
}
