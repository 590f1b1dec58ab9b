//! What is refused, and how gRPC says it.

use serde_json::{Value as Json, json};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::agents::agents;
use crate::caller::Caller;
use crate::site::Site;
use crate::talk::{in_short, message};

/// The code of a refusal, and the reason in its details.
fn why(refused: &Status) -> (Code, String) {
    let info = refused.get_details_error_info().expect("a refusal has details");
    assert_eq!(info.domain, "a2a-protocol.org");
    (refused.code(), info.reason)
}

async fn refusal(caller: &Caller, method: &str, params: Json) -> (Code, String) {
    why(&caller.ask(method, params).await.unwrap_err())
}

/// A2A-18: each refusal has the code of gRPC, and details with the reason of A2A.
#[tokio::test]
async fn refusals_have_codes_and_details() {
    let caller = Site::open().await.caller("echo").await;
    let ended = caller.result("SendMessage", json!({"message": message("echo a")})).await;
    let ended = json!({"id": ended["task"]["id"]});
    let with_text = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "a"}]});
    let to_ended = json!({"messageId": "m", "role": "ROLE_USER", "taskId": ended["id"], "parts": [{"text": "a"}]});
    for (method, params, code, reason) in [
        ("GetTask", json!({"id": "none"}), Code::NotFound, "TASK_NOT_FOUND"),
        ("CancelTask", ended.clone(), Code::FailedPrecondition, "TASK_NOT_CANCELABLE"),
        (
            "SendMessage",
            json!({"message": to_ended}),
            Code::FailedPrecondition,
            "UNSUPPORTED_OPERATION",
        ),
        ("SendMessage", json!({}), Code::InvalidArgument, "INVALID_PARAMS"),
        ("ListTasks", json!({"pageSize": 101}), Code::InvalidArgument, "INVALID_PARAMS"),
        (
            "CreateTaskPushNotificationConfig",
            json!({"taskId": ended["id"], "url": "http://127.0.0.1:9/hook"}),
            Code::FailedPrecondition,
            "PUSH_NOTIFICATION_NOT_SUPPORTED",
        ),
    ] {
        assert_eq!(refusal(&caller, method, params).await, (code, reason.into()), "{method}");
    }
    let refused = caller.ask("GetTask", json!({"id": "none"})).await.unwrap_err();
    assert_eq!(refused.get_details_error_info().unwrap().metadata["taskId"], "none");
    let refused = caller.stream("SubscribeToTask", ended).await.unwrap_err();
    assert_eq!(why(&refused), (Code::FailedPrecondition, "UNSUPPORTED_OPERATION".into()));
    let old = caller.clone().with("a2a-version", "0.3");
    let params = json!({"message": with_text});
    let expected = (Code::FailedPrecondition, "VERSION_NOT_SUPPORTED".into());
    assert_eq!(refusal(&old, "SendMessage", params).await, expected);
}

/// The extensions that a caller knows come as metadata.
#[tokio::test]
async fn a_required_extension_has_to_be_known() {
    let caller = Site::open().await.caller("strict").await;
    let expected = (Code::FailedPrecondition, "EXTENSION_SUPPORT_REQUIRED".into());
    assert_eq!(refusal(&caller, "ListTasks", json!({})).await, expected);
    let caller = caller.with("a2a-extensions", "https://example.org/needed");
    caller.result("ListTasks", json!({})).await;
}

/// A login counts as over HTTP: whoever brings none, or a wrong one, is not let in, and each sees its own tasks.
#[tokio::test]
async fn callers_say_who_they_are() {
    let site = Site::with(agents(), &["ann", "bee"]).await;
    let nobody = site.caller("echo").await;
    let unknown = (Code::Unauthenticated, "UNAUTHENTICATED".to_owned());
    assert_eq!(refusal(&nobody, "ListTasks", json!({})).await, unknown);
    let wrong = nobody.clone().with("authorization", "Bearer eve");
    assert_eq!(refusal(&wrong, "ListTasks", json!({})).await, unknown);
    let ann = nobody.clone().with("authorization", "Bearer ann");
    let bee = nobody.with("authorization", "Bearer bee");
    let made = ann.result("SendMessage", json!({"message": message("echo a")})).await;
    let named = json!({"id": made["task"]["id"]});
    assert_eq!(ann.result("GetTask", named.clone()).await["id"], made["task"]["id"]);
    let expected = (Code::NotFound, "TASK_NOT_FOUND".into());
    assert_eq!(refusal(&bee, "GetTask", named).await, expected);
    let mut elsewhere = ann;
    elsewhere.tenant = "trips".into();
    let expected = (Code::PermissionDenied, "PERMISSION_DENIED".into());
    assert_eq!(refusal(&elsewhere, "ListTasks", json!({})).await, expected);
}

/// A message is as long as any body may be, and no longer.
#[tokio::test]
async fn messages_are_bounded() {
    let site = Site::open().await;
    let caller = site.caller("echo").await;
    let long = message(&format!("echo {}", "a".repeat(9 << 20)));
    let made = caller.result("SendMessage", json!({"message": long})).await;
    assert_eq!(made["task"]["status"]["state"], "TASK_STATE_COMPLETED");
    let longer = message(&format!("echo {}", "a".repeat(17 << 20)));
    let refused = caller.ask("SendMessage", json!({"message": longer})).await.unwrap_err();
    assert_ne!(refused.code(), Code::Ok);
    let again = caller.result("SendMessage", json!({"message": message("echo a")})).await;
    assert_eq!(again["task"]["status"]["state"], "TASK_STATE_COMPLETED");
}

/// A gateway that stops ends streams with a status that has their readers come back.
#[tokio::test]
async fn streams_end_with_the_gateway() {
    let site = Site::open().await;
    let caller = site.caller("echo").await;
    let params = json!({"message": message("ask where to?")});
    let mut stream = caller.stream("SendStreamingMessage", params).await.unwrap();
    let first = stream.message().await.unwrap().unwrap();
    assert_eq!(in_short(&first), "task submitted");
    site.stop.notify_one();
    let ended = loop {
        match stream.message().await {
            Ok(told) => assert!(told.is_some(), "the stream does not end as if that were all"),
            Err(status) => break status,
        }
    };
    assert_eq!(ended.code(), Code::Unavailable, "{ended}");
}
