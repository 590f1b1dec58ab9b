//! Clients that wait for their results.

use std::time::Duration;

use serde_json::json;
use tenure_core::status::Role;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::house::{House, LONG};
use crate::talk::{Talk, call};

/// A client without the extension gets the result of its call, in every version.
#[tokio::test]
async fn a_call_waits_for_its_result() {
    let house = House::open().await;
    let mut talk = house.waiting_talk(json!({}), LONG).await;
    let result = talk.act("echo", "a").await;
    assert_eq!((&result["resultType"], &result["isError"]), (&json!("complete"), &json!(false)));
    assert_eq!(result["content"], json!([{"type": "text", "text": "a"}]));
    let failed = talk.act("fail", "no paper").await;
    assert_eq!(failed["structuredContent"]["reason"]["code"], "broken");
    let server = house.server("ann", Role::Orchestrator, LONG);
    let mut older = Talk::older(server, json!({})).await;
    let result = older.result("tools/call", call("count", "letters", "abc")).await;
    assert_eq!(result["structuredContent"], json!({"letters": 3}));
    assert!(result.get("resultType").is_none());
}

/// Meanwhile it is told of progress, which only rises.
#[tokio::test]
async fn progress_is_told_while_a_call_waits() {
    let house = House::open().await;
    let mut talk = house.waiting_talk(json!({}), LONG).await;
    let mut params = call("act", "steps", "done");
    params["_meta"] = json!({"progressToken": "p1"});
    let id = talk.begin_request("tools/call", params).await;
    for (progress, message) in [(25.0, "25 done"), (50.0, "50 done")] {
        let told = talk.notified().await;
        assert_eq!(told["method"], "notifications/progress");
        let about = &told["params"];
        assert_eq!(
            (&about["progressToken"], about["progress"].as_f64()),
            (&json!("p1"), Some(progress))
        );
        assert_eq!((about["total"].as_f64(), &about["message"]), (Some(100.0), &json!(message)));
        house.gate.add_permits(1);
    }
    assert_eq!(talk.answer(id).await["result"]["content"][0]["text"], "done");
}

/// A call that takes longer than its client waits is answered with the task, and with how to go on. A tool that has
/// promised a schema answers with an error, as clients refuse another result.
#[tokio::test]
async fn a_call_that_takes_long_names_its_task() {
    let house = House::open().await;
    let mut talk = house.waiting_talk(json!({}), Duration::from_millis(50)).await;
    let result = talk.act("hold", "on").await;
    let about = &result["structuredContent"];
    assert_eq!((&result["isError"], &about["session_id"]), (&json!(false), &json!("main")));
    let said = result["content"][0]["text"].as_str().unwrap();
    assert!(said.contains(about["task_id"].as_str().unwrap()) && said.contains("wait"), "{said}");
    house.gate.add_permits(1);
    let wait = json!({"name": "wait", "arguments": {"task_id": about["task_id"], "until": "end"}});
    while talk.result("tools/call", wait.clone()).await["structuredContent"]["ended"] != true {}
    let get = json!({"name": "task_get", "arguments": {"task_id": about["task_id"]}});
    let task = talk.result("tools/call", get).await;
    assert_eq!(task["structuredContent"]["native_status"], "completed");
    let promised = talk.result("tools/call", call("count", "hold", "on")).await;
    assert_eq!((&promised["isError"], promised.get("structuredContent")), (&json!(true), None));
    assert!(promised["_meta"]["dev.tenure/task"]["task_id"].is_string());
    house.gate.add_permits(1);
}

/// A server that ends answers whoever waits, with the task that goes on.
#[tokio::test]
async fn a_server_that_ends_names_the_task() {
    let house = House::open().await;
    let ending = CancellationToken::new();
    let server = house.server("ann", Role::Orchestrator, LONG);
    let mut talk = Talk::begin_until(server, json!({}), ending.clone()).await;
    let mut params = call("act", "hold", "on");
    params["_meta"] = json!({"progressToken": 1});
    let id = talk.begin_request("tools/call", params).await;
    assert_eq!(talk.notified().await["params"]["message"], "holds on");
    ending.cancel();
    let answer = talk.answer(id).await;
    assert!(answer["result"]["structuredContent"]["task_id"].is_string(), "{answer}");
    house.gate.add_permits(1);
}

/// A client that can ask nobody is told what the work waits for, and how to answer with the server's own tools.
#[tokio::test]
async fn a_question_names_its_task() {
    let house = House::open().await;
    let mut talk = house.waiting_talk(json!({}), LONG).await;
    let result = talk.act("ask", "where to?").await;
    let about = &result["structuredContent"];
    let asks = json!([{"key": "call.1.0", "prompt": "where to?"}]);
    assert_eq!((&about["questions"], &about["steps"]), (&asks, &json!(["call"])));
    assert!(result["content"][0]["text"].as_str().unwrap().contains("where to?"));
    let answer = json!({"task_id": about["task_id"], "step_id": "call", "text": "Rome"});
    talk.result("tools/call", json!({"name": "answer", "arguments": answer})).await;
    let task = about["task_id"].as_str().unwrap().parse().unwrap();
    house.client().wait_for_end(&task).await.unwrap();
    let seen = house.talk().await.get(&about["task_id"]).await;
    assert_eq!(seen["result"]["content"][0]["text"], "Rome");
}

/// Mechanisms 15: a caller of whom so many calls wait that others would have no place is told at once which task has
/// the work of one more, and another caller waits as before.
#[tokio::test]
async fn the_calls_of_one_caller_leave_places_to_others() {
    let house = House::open().await;
    let mut eve = house.waiting_talk_as("eve").await;
    for _ in 0..769 {
        eve.begin_request("tools/call", call("act", "hold", "on")).await;
    }
    let answer = eve.any_answer().await;
    let said = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert!(said.contains("goes on as task"), "{answer}");
    let mut bob = house.waiting_talk_as("bob").await;
    bob.begin_request("tools/call", call("act", "hold", "on")).await;
    let waits = timeout(Duration::from_millis(500), bob.any_answer()).await;
    assert!(waits.is_err(), "{waits:?}");
}
