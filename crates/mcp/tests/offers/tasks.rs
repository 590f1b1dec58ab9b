//! Clients that know the extension Tasks.

use serde_json::{Value as Json, json};
use tenure_core::id::TaskId;
use tenure_core::status::TaskStatus;

use crate::house::{House, TASKS};
use crate::talk::call;

fn named(task: &Json) -> TaskId {
    task["taskId"].as_str().unwrap().parse().unwrap()
}

/// The server says that it knows the extension, and lists the tools with their schemas, in the order of their names.
#[tokio::test]
async fn the_server_speaks_of_the_extension() {
    let house = House::open().await;
    let mut talk = house.talk().await;
    let about = talk.result("server/discover", json!({})).await;
    assert_eq!(about["capabilities"]["extensions"][TASKS], json!({}));
    assert!(about["capabilities"].get("tasks").is_none());
    let listed = talk.result("tools/list", json!({})).await;
    let listed = listed["tools"].as_array().unwrap();
    let ours = ["act", "count", "open", "pair", "quick", "slow"];
    let offered: Vec<&Json> =
        listed.iter().filter(|tool| ours.map(Json::from).contains(&tool["name"])).collect();
    let names: Vec<&Json> = offered.iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ours);
    assert_eq!(offered[0]["inputSchema"]["required"], json!(["do"]));
    assert_eq!(offered[1]["outputSchema"]["required"], json!(["letters"]));
    assert_eq!(offered[2]["inputSchema"], json!({"type": "object", "properties": {}}));
    house.offer("");
    let about = talk.result("server/discover", json!({})).await;
    assert!(about["capabilities"].get("extensions").is_none());
}

/// The answer to a call is a task that is there: an immediate look succeeds. It is a Task like any other, whose labels
/// say whose it is.
#[tokio::test]
async fn a_call_is_answered_with_its_task() {
    let house = House::open().await;
    let mut talk = house.talk().await;
    let made = talk.act("hold", "on").await;
    assert_eq!((&made["resultType"], &made["status"]), (&json!("task"), &json!("working")));
    assert_eq!((&made["ttlMs"], &made["pollIntervalMs"]), (&json!(null), &json!(1000)));
    assert!(made["createdAt"].as_str().unwrap().ends_with('Z') && made.get("task").is_none());
    assert!(made.get("requestState").is_none());
    let seen = talk.get(&made["taskId"]).await;
    assert_eq!((&seen["resultType"], &seen["status"]), (&json!("complete"), &json!("working")));
    assert_eq!((&seen["taskId"], &seen["createdAt"]), (&made["taskId"], &made["createdAt"]));
    let id = named(&made);
    assert_eq!(id.as_str().len(), 36, "nobody can guess it");
    let task = house.client().get(&id).await.unwrap().task;
    let labels = json!({"mcp-tool": "act", "mcp-caller": "ann", "team": "tests"});
    assert_eq!(json!(task.labels), labels);
    house.gate.add_permits(1);
    let done = talk.until(&made["taskId"], "completed").await;
    let result = json!({
        "resultType": "complete", "isError": false, "content": [{"type": "text", "text": "on"}],
    });
    assert_eq!(done["result"], result);
}

/// What the worker reports is the message of a task at work.
#[tokio::test]
async fn progress_is_the_message_of_the_status() {
    let house = House::open().await;
    let mut talk = house.talk().await;
    let made = talk.act("hold", "on").await;
    loop {
        let seen = talk.get(&made["taskId"]).await;
        if seen["statusMessage"] == "holds on" {
            assert_eq!(seen["status"], "working");
            break;
        }
        tokio::task::yield_now().await;
    }
    house.client().pause(&named(&made), "lunch").await.unwrap();
    let seen = talk.get(&made["taskId"]).await;
    assert_eq!(
        (&seen["status"], &seen["statusMessage"]),
        (&json!("working"), &json!("paused: lunch"))
    );
    house.gate.add_permits(1);
}

/// A tool that ran and failed is a completed task with an error as its result.
#[tokio::test]
async fn a_failure_is_the_result_of_its_task() {
    let house = House::open().await;
    let mut talk = house.talk().await;
    let made = talk.act("fail", "no paper").await;
    let seen = talk.until(&made["taskId"], "completed").await;
    let result = &seen["result"];
    assert_eq!(result["isError"], true);
    assert_eq!(result["structuredContent"]["reason"]["code"], "broken");
    assert_eq!(result["content"][0]["text"], "no paper (broken)");
    let task = house.client().get(&named(&made)).await.unwrap();
    assert_eq!(task.task.native_status, TaskStatus::Failed);
}

/// A worker that fails with an error of the protocol fails its task, and its call.
#[tokio::test]
async fn an_error_of_the_protocol_fails_its_task() {
    let house = House::open().await;
    let mut talk = house.talk().await;
    let made = talk.act("error", "the peer is away").await;
    let seen = talk.until(&made["taskId"], "failed").await;
    let error = json!({"code": -32001, "message": "the peer is away", "data": {"peer": "away"}});
    assert_eq!((&seen["error"], seen.get("result")), (&error, None));
    let mut waits = house.waiting_talk(json!({}), crate::house::LONG).await;
    let answer = waits.ask("tools/call", call("act", "error", "the peer is away")).await;
    assert_eq!(answer["error"], error);
}

/// A tool may be answered with its result alone, or with a task alone: -32021 for who cannot take one.
#[tokio::test]
async fn a_tool_says_with_what_it_is_answered() {
    let house = House::open().await;
    let (quick, slow) = (call("quick", "echo", "a"), call("slow", "echo", "a"));
    let mut talk = house.talk().await;
    assert_eq!(talk.result("tools/call", quick.clone()).await["content"][0]["text"], "a");
    assert_eq!(talk.result("tools/call", slow.clone()).await["resultType"], "task");
    let mut plain = house.waiting_talk(json!({}), crate::house::LONG).await;
    assert_eq!(plain.result("tools/call", quick).await["content"][0]["text"], "a");
    assert_eq!(plain.refusal("tools/call", slow).await, -32021);
    assert_eq!(house.client().list(true).await.unwrap().entries.len(), 3);
}

/// What a late tool asks first is asked by the answer to its call, which is a task from then on.
#[tokio::test]
async fn a_late_tool_asks_before_it_is_a_task() {
    let house = House::open().await;
    house.offer(
        "[[tools]]\nname = \"late\"\ndescription = \"Asks.\"\nhandler = \"act\"\nanswers = \"late\"\n",
    );
    let mut talk = house.talk().await;
    let said = talk.result("tools/call", call("late", "echo", "a")).await;
    assert_eq!(
        (&said["resultType"], &said["content"][0]["text"]),
        (&json!("complete"), &json!("a"))
    );
    let mut again = call("late", "ask", "where to?");
    let asks = talk.result("tools/call", again.clone()).await;
    assert_eq!((&asks["resultType"], asks.get("taskId")), (&json!("input_required"), None));
    again["requestState"] = asks["requestState"].clone();
    again["inputResponses"] = json!({"call.1.0": crate::talk::say("Rome")});
    let made = talk.result("tools/call", again).await;
    assert_eq!((&made["resultType"], made.get("requestState")), (&json!("task"), None));
    let done = talk.until(&made["taskId"], "completed").await;
    assert_eq!(done["result"]["content"][0]["text"], "Rome");
    let mut plain = house.waiting_talk(json!({}), crate::house::LONG).await;
    assert_eq!(
        plain.result("tools/call", call("late", "echo", "a")).await["content"][0]["text"],
        "a"
    );
}

/// The output of a tool that promises a schema is structured content, and one that is not as promised is an error.
#[tokio::test]
async fn an_output_is_what_its_tool_promises() {
    let house = House::open().await;
    let mut talk = house.talk().await;
    let made = talk.result("tools/call", call("count", "letters", "abc")).await;
    let seen = talk.until(&made["taskId"], "completed").await;
    assert_eq!(seen["result"]["structuredContent"], json!({"letters": 3}));
    assert_eq!(seen["result"]["content"][0]["text"], "{\"letters\":3}");
    let made = talk.result("tools/call", call("count", "echo", "abc")).await;
    let seen = talk.until(&made["taskId"], "completed").await;
    let result = &seen["result"];
    assert_eq!((&result["isError"], result.get("structuredContent")), (&json!(true), None));
    assert_eq!(result["_meta"]["dev.tenure/reason"]["code"], "output_invalid");
}

/// A message to people comes before what else a worker hands over, and large outputs come as they are.
#[tokio::test]
async fn outputs_of_all_kinds_are_shown() {
    let house = House::open().await;
    let mut talk = house.talk().await;
    let made = talk.act("say", "as you wished").await;
    let seen = talk.until(&made["taskId"], "completed").await;
    let image = json!({"type": "image", "data": "cG5n", "mimeType": "image/png"});
    assert_eq!(
        seen["result"]["content"],
        json!([{"type": "text", "text": "as you wished"}, image])
    );
    let made = talk.act("large", "200000").await;
    let seen = talk.until(&made["taskId"], "completed").await;
    assert_eq!(seen["result"]["content"][0]["text"].as_str().unwrap().len(), 200_000);
    let made = talk.act("large", "5000000").await;
    let seen = talk.until(&made["taskId"], "completed").await;
    let said = seen["result"]["content"][0]["text"].as_str().unwrap();
    assert!(said.contains("5000002 bytes"), "{said}");
}

/// What cannot be read any more is an error for good: the task has failed for its client.
#[tokio::test]
async fn an_output_that_is_lost_fails_its_task() {
    let house = House::open().await;
    let mut talk = house.talk().await;
    let made = talk.act("large", "200000").await;
    talk.until(&made["taskId"], "completed").await;
    house.lose_blobs();
    drop(talk);
    let house = house.reopen().await;
    let seen = house.talk().await.get(&made["taskId"]).await;
    assert_eq!(seen["status"], "failed");
    assert_eq!(seen["error"]["code"], -32603);
    assert_eq!(seen["error"]["data"]["code"], "blob_missing");
}

/// Cancelling is asked for, and is no error for a task that has ended.
#[tokio::test]
async fn a_task_at_work_can_be_cancelled() {
    let house = House::open().await;
    let mut talk = house.talk().await;
    let made = talk.act("hold", "on").await;
    let id = json!({"taskId": made["taskId"]});
    for _ in 0..2 {
        let ack = talk.result("tasks/cancel", id.clone()).await;
        assert_eq!(ack, json!({"resultType": "complete"}));
    }
    let seen = talk.until(&made["taskId"], "cancelled").await;
    assert!(seen.get("result").is_none() && seen.get("error").is_none());
    assert_eq!(talk.result("tasks/cancel", id).await, json!({"resultType": "complete"}));
    let done = talk.act("echo", "a").await;
    talk.until(&done["taskId"], "completed").await;
    let ack = talk.result("tasks/cancel", json!({"taskId": done["taskId"]})).await;
    assert_eq!(ack, json!({"resultType": "complete"}));
    assert_eq!(talk.get(&done["taskId"]).await["status"], "completed");
}

/// A task of a tool that is offered no more goes on, and its caller still sees it.
#[tokio::test]
async fn a_task_outlives_its_tool() {
    let house = House::open().await;
    let mut talk = house.talk().await;
    let made = talk.act("hold", "on").await;
    house.offer("[[tools]]\nname = \"other\"\ndescription = \"Another one.\"\n");
    house.gate.add_permits(1);
    let seen = talk.until(&made["taskId"], "completed").await;
    assert_eq!(seen["result"]["content"][0]["text"], "on");
    assert_eq!(talk.refusal("tools/call", call("act", "echo", "")).await, -32602);
}
