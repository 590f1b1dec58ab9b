//! A2A 0.3, at an address of its own.

use hyper::Method;
use serde_json::{Value as Json, json};

use crate::house::House;
use crate::http::{Exchange, send};
use crate::talk::{Talk, Updates};

fn request(method: &str, params: &Json) -> Json {
    json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params})
}

async fn ask(talk: &Talk, method: &str, params: Json) -> Json {
    let exchange = Exchange::new(talk.to, Method::POST, &format!("{}/v0.3", talk.path()));
    send(exchange.json(&request(method, &params))).await.json()
}

fn said(text: &str, more: Json) -> Json {
    let mut message = json!({
        "kind": "message", "messageId": "m", "role": "user",
        "parts": [{"kind": "text", "text": text}],
    });
    message.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"message": message, "configuration": {"blocking": true}})
}

/// A2A-17: tasks come as 0.3 writes them, bare and with `kind`.
#[tokio::test]
async fn tasks_are_written_as_0_3_has_them() {
    let talk = House::open().await.talk("echo").await;
    let task = ask(&talk, "message/send", said("ask where to?", json!({}))).await["result"].take();
    assert_eq!(
        (&task["kind"], &task["status"]["state"]),
        (&json!("task"), &json!("input-required"))
    );
    assert_eq!(task["status"]["message"]["parts"], json!([{"kind": "text", "text": "where to?"}]));
    let more = json!({"taskId": task["id"], "contextId": task["contextId"]});
    let done = ask(&talk, "message/send", said("north", more)).await["result"].take();
    assert_eq!(done["artifacts"][0]["parts"], json!([{"kind": "text", "text": "north"}]));
    assert_eq!(ask(&talk, "tasks/get", json!({"id": task["id"]})).await["result"], done);
    for (method, params, code) in [
        ("tasks/get", json!({"id": "absent"}), -32001),
        ("tasks/cancel", json!({"id": task["id"]}), -32002),
        ("tasks/get", json!({}), -32602),
        ("SendMessage", json!({}), -32601),
        ("tasks/pushNotificationConfig/list", json!({"id": task["id"]}), -32003),
        ("tasks/pushNotificationConfig/set", json!({}), -32602),
    ] {
        assert_eq!(ask(&talk, method, params).await["error"]["code"], code, "{method}");
    }
}

/// A2A-08: a stream of 0.3 ends with `final`, also at a question.
#[tokio::test]
async fn streams_end_with_final() {
    let talk = House::open().await.talk("echo").await;
    let path = format!("{}/v0.3", talk.path());
    for (text, last) in [("echo a", "completed"), ("ask what?", "input-required")] {
        let body = request("message/stream", &said(text, json!({})));
        let frames = Updates::open(talk.to, &path, body, None).await.rest().await;
        let told: Vec<&Json> = frames.iter().map(|(_, data)| &data["result"]).collect();
        assert_eq!(told[0]["kind"], "task");
        let end = told.last().unwrap();
        assert_eq!((&end["final"], &end["status"]["state"]), (&json!(true), &json!(last)));
        let ends = told.iter().filter(|told| told["final"] == true).count();
        assert_eq!(ends, 1, "{told:?}");
    }
}

/// A reader goes on behind a question that was answered meanwhile.
#[tokio::test]
async fn a_reader_goes_on_behind_a_question() {
    let talk = House::open().await.talk("echo").await;
    let path = format!("{}/v0.3", talk.path());
    let body = request("message/stream", &said("ask what?", json!({})));
    let told = Updates::open(talk.to, &path, body, None).await.rest().await;
    let id = &told[0].1["result"]["id"];
    ask(&talk, "message/send", said("this", json!({"taskId": id}))).await;
    for (place, _) in &told {
        let body = request("tasks/resubscribe", &json!({"id": id}));
        let rest = Updates::open(talk.to, &path, body, Some(place)).await.rest().await;
        let mut states = rest.iter().map(|(_, data)| data["result"]["status"]["state"].clone());
        let is_last = *place == told.last().unwrap().0;
        let last = if is_last { "completed" } else { "input-required" };
        assert_eq!(states.next_back(), Some(json!(last)), "behind {place}");
    }
}

/// HTTP+JSON without `/v1` has the objects of JSON-RPC, without its envelope.
#[tokio::test]
async fn http_says_the_same_as_json_rpc() {
    let talk = House::open().await.talk("echo").await;
    let at = |method: Method, path: &str| {
        Exchange::new(talk.to, method, &format!("{}/v0.3{path}", talk.path()))
    };
    let params = said("ask where to?", json!({}));
    let task = send(at(Method::POST, "/message:send").json(&params)).await.json();
    assert_eq!(
        (&task["kind"], &task["status"]["state"]),
        (&json!("task"), &json!("input-required"))
    );
    let id = task["id"].as_str().unwrap();
    assert_eq!(send(at(Method::GET, &format!("/tasks/{id}"))).await.json(), task);
    assert_eq!(send(at(Method::GET, "/tasks")).await.json()["tasks"][0]["kind"], "task");
    let canceled = send(at(Method::POST, &format!("/tasks/{id}:cancel"))).await.json();
    assert_eq!(canceled["status"]["state"], "canceled");
    let path = format!("{}/v0.3/message:stream", talk.path());
    let frames = Updates::open(talk.to, &path, said("echo a", json!({})), None).await.rest().await;
    assert_eq!(
        (&frames[0].1["kind"], &frames.last().unwrap().1["final"]),
        (&json!("task"), &json!(true))
    );
    let wrong = send(at(Method::POST, "/tasks/x/pushNotificationConfigs").json(&json!([]))).await;
    assert_eq!(wrong.status.as_u16(), 400);
}

/// A list is asked for by either binding, with states as 0.3 spells them.
#[tokio::test]
async fn a_list_is_asked_for_in_both_bindings() {
    let talk = House::open().await.talk("echo").await;
    let task = ask(&talk, "message/send", said("ask where to?", json!({}))).await["result"].take();
    for (state, tasks) in
        [("input-required", 1), ("completed", 0), ("TASK_STATE_INPUT_REQUIRED", 1)]
    {
        let page = ask(&talk, "tasks/list", json!({ "status": state })).await["result"].take();
        assert_eq!(page["tasks"].as_array().unwrap().len(), tasks, "{state}");
        let path = format!("{}/v0.3/tasks?status={state}", talk.path());
        assert_eq!(send(Exchange::new(talk.to, Method::GET, &path)).await.json(), page);
    }
    let wrong = ask(&talk, "tasks/list", json!({"status": "asleep"})).await;
    assert_eq!(wrong["error"]["code"], -32602);
    let page = ask(&talk, "tasks/list", json!({})).await["result"].take();
    assert_eq!((&page["tasks"][0]["id"], &page["tasks"][0]["kind"]), (&task["id"], &json!("task")));
}

/// A refusal is the error of JSON-RPC, and a conflict if the task has ended.
#[tokio::test]
async fn http_refuses_as_0_3_does() {
    let talk = House::open().await.talk("echo").await;
    let at =
        |path: &str| Exchange::new(talk.to, Method::POST, &format!("{}/v0.3{path}", talk.path()));
    let done = send(at("/message:send").json(&said("echo a", json!({})))).await.json();
    assert_eq!(done["status"]["state"], "completed", "{done}");
    let id = done["id"].as_str().unwrap();
    let late = said("echo b", json!({ "taskId": id }));
    for (asked, status, code) in [
        (at(&format!("/tasks/{id}:cancel")), 409, -32002),
        (at("/message:send").json(&late), 409, -32004),
        (at("/tasks/absent:cancel"), 404, -32001),
    ] {
        let refused = send(asked).await;
        assert_eq!((refused.status.as_u16(), &refused.json()["code"]), (status, &json!(code)));
        assert!(refused.json()["message"].is_string());
    }
}

fn said_in_proto(text: &str, blocking: bool) -> Json {
    let message = json!({"messageId": "m", "role": "ROLE_USER", "content": [{"text": text}]});
    json!({"message": message, "configuration": {"blocking": blocking}})
}

/// A2A-17: below `/v1` objects are the messages of gRPC in JSON, as the official SDKs write and read them.
#[tokio::test]
async fn http_below_v1_has_the_messages_of_grpc() {
    let talk = House::open().await.talk("echo").await;
    let at = |method: Method, path: &str| {
        Exchange::new(talk.to, method, &format!("{}/v0.3/v1{path}", talk.path()))
    };
    let asks = at(Method::POST, "/message:send").json(&said_in_proto("ask where to?", true));
    let task = send(asks).await.json()["task"].take();
    let status = &task["status"];
    assert_eq!(status["state"], "TASK_STATE_INPUT_REQUIRED");
    assert_eq!(status["message"]["content"], json!([{"text": "where to?"}]));
    let id = task["id"].as_str().unwrap();
    assert_eq!(send(at(Method::GET, &format!("/tasks/{id}"))).await.json(), task);
    assert_eq!(send(at(Method::GET, "/tasks")).await.json()["tasks"][0]["status"], *status);
    let canceled = send(at(Method::POST, &format!("/tasks/{id}:cancel"))).await.json();
    assert_eq!(canceled["status"]["state"], "TASK_STATE_CANCELLED");
    let again = send(at(Method::POST, &format!("/tasks/{id}:cancel"))).await.json();
    let (code, name) = (&again["code"], &again["type"]);
    assert_eq!((code, name), (&json!(-32002), &json!("TaskNotCancelableError")));
    let path = format!("{}/v0.3/v1/message:stream", talk.path());
    let body = said_in_proto("echo a", false);
    let told = Updates::open(talk.to, &path, body, None).await.rest().await;
    assert!(told[0].1["task"]["id"].is_string(), "{told:?}");
    let last = &told.last().unwrap().1["statusUpdate"];
    assert_eq!(
        (&last["final"], &last["status"]["state"]),
        (&json!(true), &json!("TASK_STATE_COMPLETED"))
    );
}

/// The address says which form objects have. Who sends the other one is told where it belongs, and nothing begins.
#[tokio::test]
async fn a_message_in_the_other_form_is_refused() {
    let talk = House::open().await.talk("echo").await;
    let at = |path: &str| {
        Exchange::new(talk.to, Method::POST, &format!("{}/v0.3{path}/message:send", talk.path()))
    };
    for (asked, hint) in [
        (at("/v1").json(&said("echo a", json!({}))), "without /v1"),
        (at("").json(&said_in_proto("echo a", true)), "below /v1"),
    ] {
        let refused = send(asked).await;
        assert_eq!((refused.status.as_u16(), &refused.json()["code"]), (400, &json!(-32602)));
        let message = refused.json()["message"].as_str().unwrap_or_default().to_owned();
        assert!(message.contains(hint), "{message}");
    }
    let page = ask(&talk, "tasks/list", json!({})).await["result"].take();
    assert_eq!(page["tasks"], json!([]));
}
