//! Agents of A2A: JSON-RPC and HTTP+JSON, in 1.0 and in 0.3.

use serde_json::{Value as Json, json};
use tenure_testkit::fuzz::{Corpus, InputForm, fuzz};

use crate::site::{Site, request};

const JSON: (&str, &str) = ("content-type", "application/json");
const V1: (&str, &str) = ("a2a-version", "1.0");

/// The parameters of every method of 1.0.
fn methods() -> Vec<(&'static str, Json)> {
    let message = json!({
        "messageId": "m1", "role": "ROLE_USER", "contextId": "c", "metadata": {"a": 1},
        "parts": [
            {"text": "draw"}, {"data": {"x": [1, null]}}, {"raw": "cG5n", "mediaType": "image/png"},
            {"url": "https://example.org/a.png", "filename": "a.png"},
        ],
        "referenceTaskIds": ["t"], "extensions": ["https://example.org/needed"],
    });
    let push = json!({
        "id": "p", "taskId": "t", "url": "http://127.0.0.1:9/hook", "token": "s",
        "authentication": {"scheme": "Bearer", "credentials": "s"},
    });
    let options = json!({
        "acceptedOutputModes": ["text/plain"], "historyLength": 2, "returnImmediately": true,
        "taskPushNotificationConfig": push,
    });
    vec![
        ("SendMessage", json!({"message": message, "configuration": options, "metadata": {}})),
        ("SendStreamingMessage", json!({"message": message})),
        ("GetTask", json!({"id": "t", "historyLength": 3})),
        (
            "ListTasks",
            json!({
                "contextId": "c", "status": "TASK_STATE_WORKING", "pageSize": 5, "pageToken": "x",
                "historyLength": 1, "includeArtifacts": true, "statusTimestampAfter": "2026-01-01T00:00:00Z",
            }),
        ),
        ("CancelTask", json!({"id": "t", "metadata": {}})),
        ("SubscribeToTask", json!({"id": "t"})),
        ("CreateTaskPushNotificationConfig", push.clone()),
        ("GetTaskPushNotificationConfig", json!({"taskId": "t", "id": "p"})),
        ("ListTaskPushNotificationConfigs", json!({"taskId": "t", "pageSize": 3})),
        ("DeleteTaskPushNotificationConfig", json!({"taskId": "t", "id": "p"})),
        ("GetExtendedAgentCard", json!({})),
    ]
}

/// The parameters of every method of 0.3.
fn older_methods() -> Vec<(&'static str, Json)> {
    let message = json!({
        "kind": "message", "messageId": "m", "role": "user", "contextId": "c",
        "parts": [
            {"kind": "text", "text": "draw"}, {"kind": "data", "data": {"x": 1}},
            {"kind": "file", "file": {"bytes": "cG5n", "mimeType": "image/png", "name": "a"}},
            {"kind": "file", "file": {"uri": "https://example.org/a"}},
        ],
    });
    let push = json!({
        "url": "http://127.0.0.1:9/hook", "token": "s", "authentication": {"schemes": ["Bearer"], "credentials": "s"},
    });
    let options = json!({"blocking": false, "historyLength": 1, "pushNotificationConfig": push});
    vec![
        ("message/send", json!({"message": message, "configuration": options})),
        ("message/stream", json!({"message": message})),
        ("tasks/get", json!({"id": "t", "historyLength": 2})),
        ("tasks/list", json!({"contextId": "c", "status": "working"})),
        ("tasks/cancel", json!({"id": "t"})),
        ("tasks/resubscribe", json!({"id": "t"})),
        (
            "tasks/pushNotificationConfig/set",
            json!({"taskId": "t", "pushNotificationConfig": push}),
        ),
        ("tasks/pushNotificationConfig/get", json!({"id": "t", "pushNotificationConfigId": "p"})),
        ("tasks/pushNotificationConfig/list", json!({"id": "t"})),
        (
            "tasks/pushNotificationConfig/delete",
            json!({"id": "t", "pushNotificationConfigId": "p"}),
        ),
        ("agent/getAuthenticatedExtendedCard", json!({})),
    ]
}

fn rpc(method: &str, params: &Json) -> Json {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}

fn samples() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for (method, params) in methods() {
        all.push(request("POST", "/a2a/echo", &[JSON, V1], &rpc(method, &params)));
        all.push(request("POST", "/a2a/trips", &[JSON, V1], &rpc(method, &params)));
    }
    for (method, params) in older_methods() {
        all.push(request("POST", "/a2a/echo/v0.3", &[JSON], &rpc(method, &params)));
    }
    let send = &methods()[0].1;
    let (older, push) = (&older_methods()[0].1, &methods()[6].1);
    for (base, body) in
        [("/a2a/echo", send), ("/a2a/echo/v0.3/v1", older), ("/a2a/echo/v0.3", older)]
    {
        for (method, path, body) in [
            ("POST", "/message:send", body),
            ("POST", "/message:stream", body),
            (
                "GET",
                "/tasks?pageSize=2&status=TASK_STATE_WORKING&includeArtifacts=true",
                &Json::Null,
            ),
            ("GET", "/tasks/t?historyLength=2", &Json::Null),
            ("POST", "/tasks/t:cancel", &json!({})),
            ("POST", "/tasks/t:subscribe", &json!({})),
            ("POST", "/tasks/t/pushNotificationConfigs", push),
            ("GET", "/tasks/t/pushNotificationConfigs/p", &Json::Null),
            ("GET", "/.well-known/agent-card.json", &Json::Null),
        ] {
            all.push(request(method, &format!("{base}{path}"), &[JSON, V1], body));
        }
    }
    all
}

#[test]
fn fuzz_a2a_requests() {
    let site = Site::open();
    let tokens = [
        "\"message_id\":",
        "\"kind\":\"file\",",
        "null",
        "\"TASK_STATE_",
        "\"2026-01-01T",
        "%",
        ":",
        "?",
    ];
    let corpus = Corpus::new(InputForm::Json, samples()).with_tokens(&tokens);
    fuzz("A2A requests", &corpus, |bytes| site.takes(bytes));
}
