//! What each method answers: the same as over the other bindings.

use hyper::Method;
use serde_json::{Value as Json, json};

use crate::agents::{agents, agents_that_call_back, read};
use crate::caller::rest;
use crate::http::{Exchange, send};
use crate::site::Site;
use crate::talk::{in_short, message, with};

/// A message becomes a task, and both bindings show the same of it.
#[tokio::test]
async fn a_message_becomes_a_task() {
    let site = Site::open().await;
    let caller = site.caller("echo").await;
    let made = caller.result("SendMessage", json!({"message": message("echo hello")})).await;
    let task = &made["task"];
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED");
    let same = site.talk("echo").get(&task["id"]).await;
    for shown in [task, &same] {
        assert_eq!(shown["artifacts"][0]["parts"][0]["text"], "hello");
    }
    let got = caller.result("GetTask", json!({"id": task["id"], "historyLength": 0})).await;
    assert_eq!((&got["id"], got.get("history")), (&task["id"], None));
    let direct = caller.result("SendMessage", json!({"message": message("hi")})).await;
    assert_eq!(
        (&direct["message"]["role"], &direct["message"]["parts"][0]["text"]),
        (&json!("ROLE_AGENT"), &json!("hi"))
    );
}

/// Bytes and open values arrive as what they are.
#[tokio::test]
async fn parts_of_all_kinds_arrive() {
    let caller = Site::open().await.caller("echo").await;
    let drawn = caller.result("SendMessage", json!({"message": message("draw a boat")})).await;
    assert_eq!(drawn["task"]["artifacts"][0]["parts"][0]["raw"], "cG5n");
    let chunks = caller.result("SendMessage", json!({"message": message("chunks")})).await;
    let parts = chunks["task"]["artifacts"].as_array().unwrap();
    let numbers: Vec<f64> =
        parts.iter().filter_map(|made| made["parts"][0]["data"].as_f64()).collect();
    assert!(numbers.contains(&2.0), "{chunks}");
}

/// A2A-08: a stream begins with the task, tells everything in order, and ends with it.
#[tokio::test]
async fn a_stream_tells_of_a_task_to_its_end() {
    let site = Site::open().await;
    let caller = site.caller("echo").await;
    let params = json!({"message": message("echo a")});
    let mut stream = caller.stream("SendStreamingMessage", params).await.unwrap();
    let told: Vec<String> = rest(&mut stream).await.iter().map(in_short).collect();
    assert_eq!(told, ["task submitted", "working", "artifact output", "completed"]);
}

/// A2A-08: a stream stays open while the agent waits for its caller, whichever way the answer takes.
#[tokio::test]
async fn a_stream_stays_open_at_a_question() {
    let site = Site::open().await;
    let caller = site.caller("echo").await;
    let asks = caller.result("SendMessage", json!({"message": message("ask where to?")})).await;
    let id = &asks["task"]["id"];
    let mut stream = caller.stream("SubscribeToTask", json!({"id": id})).await.unwrap();
    let first = stream.message().await.unwrap().unwrap();
    assert_eq!(in_short(&first), "task input_required");
    site.talk("echo").say(with(message("north"), &json!({"taskId": id}))).await;
    let told: Vec<String> = rest(&mut stream).await.iter().map(in_short).collect();
    assert_eq!(told.last().unwrap(), "completed");
}

/// A list goes on page by page to its end.
#[tokio::test]
async fn tasks_are_listed() {
    let caller = Site::open().await.caller("echo").await;
    for number in 0..3 {
        let said = message(&format!("echo {number}"));
        caller.result("SendMessage", json!({"message": said})).await;
    }
    let page = caller.result("ListTasks", json!({"pageSize": 2, "status": "TASK_STATE_COMPLETED"}));
    let page = page.await;
    assert_eq!((&page["totalSize"], page["tasks"].as_array().unwrap().len()), (&json!(3), 2));
    let token = &page["nextPageToken"];
    let last = caller.result("ListTasks", json!({"pageSize": 2, "pageToken": token})).await;
    assert_eq!((last["tasks"].as_array().unwrap().len(), last.get("nextPageToken")), (1, None));
}

/// A2A-16: a task that nobody works on any more is canceled at once.
#[tokio::test]
async fn a_task_is_canceled() {
    let caller = Site::open().await.caller("echo").await;
    let asks = caller.result("SendMessage", json!({"message": message("ask where to?")})).await;
    let canceled = caller.result("CancelTask", json!({"id": asks["task"]["id"]})).await;
    assert_eq!(canceled["status"]["state"], "TASK_STATE_CANCELED");
}

/// Where a caller is called back is made, shown, listed and deleted.
#[tokio::test]
async fn configurations_of_callbacks_are_kept() {
    let site = Site::with(agents_that_call_back(), &[]).await;
    let caller = site.caller("echo").await;
    let asks = caller.result("SendMessage", json!({"message": message("ask where to?")})).await;
    let id = &asks["task"]["id"];
    let config = json!({
        "taskId": id, "id": "hook", "url": "http://127.0.0.1:9/hook", "token": "t1",
        "authentication": {"scheme": "Bearer", "credentials": "secret"},
    });
    let made = caller.result("CreateTaskPushNotificationConfig", config.clone()).await;
    assert_eq!(made, config);
    let named = json!({"taskId": id, "id": "hook"});
    assert_eq!(caller.result("GetTaskPushNotificationConfig", named.clone()).await, config);
    let all = || caller.result("ListTaskPushNotificationConfigs", json!({"taskId": id}));
    assert_eq!(all().await["configs"], json!([config]));
    let deleted = caller.result("DeleteTaskPushNotificationConfig", named).await;
    assert_eq!((deleted, all().await), (json!({}), json!({})));
}

/// The card names the address for gRPC with the agent as its tenant, and the extended card comes over gRPC, too.
#[tokio::test]
async fn a_card_names_the_address() {
    let site = Site::open().await;
    let path = "/a2a/echo/.well-known/agent-card.json";
    let card = send(Exchange::new(site.http, Method::GET, path)).await.json();
    let interface = json!({
        "url": site.grpc.to_string(), "protocolBinding": "GRPC", "tenant": "echo", "protocolVersion": "1.0",
    });
    assert_eq!(card["supportedInterfaces"][2], interface);
    let whole = site.caller("echo").await.result("GetExtendedAgentCard", json!({})).await;
    assert_eq!(whole["supportedInterfaces"], json!([interface]));
    let skills = |card: &Json| card["skills"].as_array().unwrap().len();
    assert_eq!((skills(&card), skills(&whole)), (1, 2));
}

/// The tenant is the agent, and need not be named where there is only one.
#[tokio::test]
async fn the_tenant_is_the_agent() {
    let site = Site::with(agents(), &[]).await;
    for nobody in ["", "other"] {
        let refused = site.caller(nobody).await.ask("ListTasks", json!({})).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{nobody:?}");
    }
    let alone = "[[agents]]\nname = \"echo\"\ndescription = \"Alone.\"\nhandler = \"act\"\n";
    let site = Site::with(read(alone), &[]).await;
    let caller = site.caller("").await;
    let made = caller.result("SendMessage", json!({"message": message("echo a")})).await;
    assert_eq!(made["task"]["status"]["state"], "TASK_STATE_COMPLETED");
}
