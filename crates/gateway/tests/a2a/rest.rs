//! The HTTP+JSON binding.

use hyper::{Method, StatusCode};
use serde_json::{Value as Json, json};

use crate::house::House;
use crate::http::{Answer, Exchange, send};
use crate::talk::{Talk, message, with};

async fn ask(talk: &Talk, method: Method, path: &str, body: Option<&Json>) -> Answer {
    let exchange = Exchange::new(talk.to, method, &format!("{}{path}", talk.path()));
    let exchange = exchange.header("a2a-version", "1.0");
    send(match body {
        Some(body) => exchange.json(body),
        None => exchange,
    })
    .await
}

fn reason(answer: &Answer) -> String {
    let error = &answer.json()["error"];
    assert_eq!(error["code"], answer.status.as_u16());
    let info = &error["details"][0];
    assert_eq!(info["@type"], "type.googleapis.com/google.rpc.ErrorInfo");
    info["reason"].as_str().unwrap().to_owned()
}

/// HTTP_JSON-URL-001 to HTTP_JSON-URL-002, HTTP_JSON-SVC-001, HTTP_JSON-QP-001: every operation has a method and a
/// path.
#[tokio::test]
async fn operations_have_addresses() {
    let talk = House::open().await.talk("echo").await;
    let said = json!({"message": message("ask where to?")});
    let asks = ask(&talk, Method::POST, "/message:send", Some(&said)).await;
    assert_eq!(asks.header("content-type"), "application/json");
    let task = asks.json()["task"].take();
    let id = task["id"].as_str().unwrap();
    let got = ask(&talk, Method::GET, &format!("/tasks/{id}?historyLength=1"), None).await;
    assert_eq!(got.json(), task);
    let listed =
        ask(&talk, Method::GET, "/tasks?pageSize=1&status=TASK_STATE_INPUT_REQUIRED", None).await;
    assert_eq!(listed.json()["tasks"][0]["id"], id);
    let canceled = ask(&talk, Method::POST, &format!("/tasks/{id}:cancel"), None).await;
    assert_eq!(canceled.json()["status"]["state"], "TASK_STATE_CANCELED");
    let again = ask(&talk, Method::POST, &format!("/tasks/{id}:cancel"), None).await;
    assert_eq!((again.status, &*reason(&again)), (StatusCode::BAD_REQUEST, "TASK_NOT_CANCELABLE"));
}

/// CORE-ERR-001 to CORE-ERR-002, CORE-CAP-001, HTTP_JSON-ERR-001 to HTTP_JSON-ERR-002, HTTP_JSON-STATUS-001: errors
/// have a status of HTTP and a reason of A2A.
#[tokio::test]
async fn errors_have_a_status_and_a_reason() {
    let talk = House::open().await.talk("echo").await;
    let ended = talk.say(message("echo a")).await;
    let late = json!({"message": with(message("b"), &json!({"taskId": ended["id"]}))});
    for (method, path, body, status, expected) in [
        (Method::GET, "/tasks/absent", None, 404, "TASK_NOT_FOUND"),
        (Method::POST, "/tasks/absent:cancel", None, 404, "TASK_NOT_FOUND"),
        (Method::POST, "/message:send", Some(&late), 400, "UNSUPPORTED_OPERATION"),
        (Method::POST, "/message:send", Some(&json!({})), 400, "INVALID_PARAMS"),
        (Method::GET, "/tasks?pageSize=0", None, 400, "INVALID_PARAMS"),
        (
            Method::GET,
            "/tasks/x/pushNotificationConfigs",
            None,
            400,
            "PUSH_NOTIFICATION_NOT_SUPPORTED",
        ),
        (
            Method::DELETE,
            "/tasks/x/pushNotificationConfigs/y",
            None,
            400,
            "PUSH_NOTIFICATION_NOT_SUPPORTED",
        ),
    ] {
        let answer = ask(&talk, method, path, body).await;
        assert_eq!((answer.status.as_u16(), &*reason(&answer)), (status, expected), "{path}");
    }
}

/// BIND-EQUIV-001 to BIND-EQUIV-003: what one binding shows or refuses, the other one shows or refuses just so.
#[tokio::test]
async fn both_bindings_say_the_same() {
    let talk = House::open().await.talk("echo").await;
    let ended = talk.say(message("echo a")).await;
    let task = format!("/tasks/{}", ended["id"].as_str().unwrap());
    let absent = json!({"id": "absent"});
    for (name, params, method, path) in [
        ("GetTask", json!({"id": ended["id"]}), Method::GET, task.clone()),
        ("ListTasks", json!({"pageSize": 3}), Method::GET, "/tasks?pageSize=3".into()),
        ("GetExtendedAgentCard", json!({}), Method::GET, "/extendedAgentCard".into()),
        ("GetTask", absent.clone(), Method::GET, "/tasks/absent".into()),
        ("CancelTask", absent.clone(), Method::POST, "/tasks/absent:cancel".into()),
        ("SubscribeToTask", absent, Method::POST, "/tasks/absent:subscribe".into()),
        ("CancelTask", json!({"id": ended["id"]}), Method::POST, format!("{task}:cancel")),
        ("SubscribeToTask", json!({"id": ended["id"]}), Method::POST, format!("{task}:subscribe")),
        ("ListTasks", json!({"pageSize": 0}), Method::GET, "/tasks?pageSize=0".into()),
    ] {
        let (one, other) = (talk.ask(name, params).await, ask(&talk, method, &path, None).await);
        match one.get("result") {
            Some(shown) => assert_eq!((other.status, &other.json()), (StatusCode::OK, shown)),
            None => {
                let (refused, error) = (&one["error"], &other.json()["error"]);
                assert!(other.status.is_client_error(), "{path}");
                assert_eq!(
                    (&refused["data"], &refused["message"]),
                    (&error["details"], &error["message"])
                );
            }
        }
    }
}

/// VER-SERVER-001 to VER-SERVER-002, HTTP_JSON-SVC-002: a caller says which version it speaks, and what its body is.
#[tokio::test]
async fn versions_and_media_types_are_checked() {
    let talk = House::open().await.talk("echo").await;
    let to = |path: &str| Exchange::new(talk.to, Method::POST, &format!("{}{path}", talk.path()));
    let said = json!({"message": message("echo a")});
    let other = send(to("/message:send").header("a2a-version", "99.0").json(&said)).await;
    assert_eq!(
        (other.status, &*reason(&other)),
        (StatusCode::BAD_REQUEST, "VERSION_NOT_SUPPORTED")
    );
    let text = send(to("/message:send").body("text/plain", "hello")).await;
    assert_eq!(text.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let a2a = to("/message:send").body("application/a2a+json", said.to_string());
    let a2a = send(a2a).await;
    assert_eq!(a2a.header("content-type"), "application/a2a+json");
    assert_eq!(a2a.json()["task"]["status"]["state"], "TASK_STATE_COMPLETED");
}
