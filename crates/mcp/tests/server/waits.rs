//! Waiting: bounded, told of, and of no effect on the Task.

use std::time::{Duration, Instant};

use serde_json::json;
use tenure_core::status::Role;
use tenure_mcp::McpSettings;

use crate::host::Era;
use crate::house::House;

/// CTRL-11: the wait ends with the change, and its caller is told of what happens meanwhile.
#[tokio::test]
async fn a_wait_ends_with_the_task_and_tells_of_its_way() {
    let house = House::open().await;
    let mut host = house.host().await;
    let task = house.create("hold").await;
    let wait = json!({
        "name": "wait",
        "arguments": { "task_id": task.as_str(), "until": "end", "seconds": 50 },
        "_meta": { "progressToken": "p-1" },
    });
    let begun = Instant::now();
    let id = host.request("tools/call", wait).await;
    let first = host.next().await;
    assert_eq!(
        (&first["method"], &first["params"]["progressToken"]),
        (&json!("notifications/progress"), &json!("p-1"))
    );
    house.gate.add_permits(1);
    let answer = host.answer(id).await;
    let content = &answer["result"]["structuredContent"];
    assert_eq!((&content["reached"], &content["ended"]), (&json!(true), &json!(true)), "{answer}");
    assert_eq!(content["task"]["native_status"], "completed");
    assert!(begun.elapsed() < Duration::from_secs(10));
    let told = std::iter::once(&first).chain(&host.notifications);
    let progress: Vec<f64> = told.map(|it| it["params"]["progress"].as_f64().unwrap()).collect();
    assert!(progress.windows(2).all(|two| two[0] < two[1]), "it always rises: {progress:?}");
}

#[tokio::test]
async fn a_wait_without_a_change_ends_with_its_time_and_says_how_to_go_on() {
    let house = House::open().await;
    let mut host = house.host().await;
    let task = house.create("hold").await;
    let wait = json!({ "task_id": task.as_str(), "until": "end", "seconds": 0 });
    let content = host.done("wait", wait).await;
    assert_eq!((&content["reached"], &content["ended"]), (&json!(false), &json!(false)));
    let since = content["task"]["version"].as_u64().unwrap();
    assert!(content["more"].as_str().unwrap().ends_with(&format!("since {since}")), "{content}");
    let at_once = json!({ "task_id": task.as_str(), "until": "change", "since": 0 });
    assert_eq!(host.done("wait", at_once).await["reached"], true);
}

/// TERM-01: a call that its caller gives up ends, and the Task goes on. Only `task_cancel` cancels one.
#[tokio::test]
async fn a_call_that_is_given_up_cancels_no_task() {
    let house = House::open().await;
    let mut host = house.host().await;
    let task = house.create("hold").await;
    let wait = json!({ "name": "wait", "arguments": { "task_id": task.as_str(), "until": "end", "seconds": 50 } });
    let id = host.request("tools/call", wait.clone()).await;
    let cancelled = json!({ "requestId": id, "reason": "the user has gone on" });
    host.send(
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled }),
    )
    .await;
    let read = host.done("task_get", json!({ "task_id": task.as_str() })).await;
    assert_eq!(read["native_status"], "running");

    // The input ends while another call waits: the server answers what it can, and ends.
    let begun = Instant::now();
    host.request("tools/call", wait).await;
    host.close().await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    let view = house.client.get(&task).await.unwrap();
    assert!(!view.task.native_status.is_terminal() && view.task.cancel_requested.is_none());
    house.gate.add_permits(1);
    let ended = house.client.wait_for_end(&task).await.unwrap();
    assert_eq!(ended.status.to_string(), "completed");
}

/// A command that waits for an end answers after the longest wait, and goes on.
#[tokio::test]
async fn a_command_that_takes_longer_than_a_call_may_goes_on() {
    let house = House::open().await;
    let settings = McpSettings { wait_max: Duration::from_millis(200), ..McpSettings::default() };
    let mut host = house.host_of(Role::Orchestrator, settings, Era::Modern).await;
    let steps = json!([{ "step_id": "a", "title": "A", "handler": "hold" }]);
    host.done("task_create", json!({ "task_id": "t", "title": "T", "steps": steps })).await;
    let dispatch = json!({ "task_id": "t", "worker_pool_id": "default", "wait": true });
    let content = host.done("dispatch_worker", dispatch).await;
    assert!(content["more"].as_str().unwrap().contains("call wait"), "{content}");
    assert!(content["command_id"].is_string());
    house.gate.add_permits(1);
    let task = "t".parse().unwrap();
    while house.client.get(&task).await.unwrap().task.counts.completed == 0 {
        tokio::task::yield_now().await;
    }
    let refused = host.refused("wait", json!({ "task_id": "t", "seconds": 1 })).await;
    assert_eq!(refused["field"], "seconds", "the longest wait is this server's");
}
