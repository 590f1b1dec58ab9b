//! What is refused, and how that is said.

use hyper::{Method, StatusCode};
use serde_json::json;

use crate::gateway::{OTHER_SESSION, SESSION, TestGateway, tasks};
use crate::http::send;

#[tokio::test]
async fn a_wrong_field_is_named_as_on_the_bus() {
    let gateway = TestGateway::open().await;
    for (body, field) in [
        (json!({ "task_id": "T" }), "task_id"),
        (json!({ "task_id": "t", "steps": [{ "step_id": "a" }, { "step_id": 7 }] }), "steps[0]"),
        (json!({ "task_id": "t", "stepz": [] }), "stepz"),
        (json!({ "task_id": "t", "labels": { "a": 1 } }), "labels.a"),
        (json!([1]), "body"),
    ] {
        let refused = gateway.post(&tasks(""), &body).await;
        assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY, "{body}");
        assert_eq!(refused.code(), "validation_error");
        assert!(refused.field().starts_with(field), "{body}: {}", refused.field());
    }
    let twice = gateway
        .ask(Method::POST, &tasks(""))
        .body("application/json", r#"{"title":"a","title":"b"}"#);
    assert_eq!(send(twice).await.field(), "title");
    let number = send(gateway.ask(Method::GET, &tasks("?limit=many"))).await;
    assert_eq!(number.field(), "limit");
    let detail = number.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.ends_with("expected a whole number that is not negative"), "{detail}");
    let unknown = send(gateway.ask(Method::GET, &tasks("?limits=1"))).await;
    assert_eq!(unknown.field(), "limits");
}

#[tokio::test]
async fn http_refuses_what_is_no_request() {
    let gateway = TestGateway::open().await;
    gateway.create("t", "hold").await;
    let create = || gateway.ask(Method::POST, &tasks(""));
    let get = |path: &str| gateway.ask(Method::GET, path);
    for (request, status) in [
        (create().body("application/json", "{"), StatusCode::BAD_REQUEST),
        (create().body("text/plain", "{}"), StatusCode::UNSUPPORTED_MEDIA_TYPE),
        (get(&tasks("/t")).header("accept", "text/html"), StatusCode::NOT_ACCEPTABLE),
        (get(&tasks("/t?a=%FF")), StatusCode::BAD_REQUEST),
        (get("/v2"), StatusCode::NOT_FOUND),
        (get(&tasks("/t/pause")), StatusCode::METHOD_NOT_ALLOWED),
    ] {
        let refused = send(request).await;
        assert_eq!((refused.status, refused.code().as_str()), (status, "validation_error"));
    }
    let other = send(gateway.ask(Method::DELETE, &tasks("/t"))).await;
    assert_eq!(other.status, StatusCode::METHOD_NOT_ALLOWED);
    let mut allowed: Vec<&str> = other.header("allow").split(',').map(str::trim).collect();
    allowed.sort_unstable();
    assert_eq!(allowed, ["GET", "HEAD", "PATCH"]);
    let detail = other.json()["detail"].as_str().unwrap().to_owned();
    assert_eq!(detail, "DELETE does not go with this path; it has GET, PATCH");
}

#[tokio::test]
async fn a_body_that_is_too_long_is_not_read() {
    let gateway = TestGateway::open().await;
    gateway.create("t", "hold").await;
    let long = format!("{{\"reason\":\"{}\"}}", "x".repeat(1 << 20));
    let refused =
        send(gateway.ask(Method::POST, &tasks("/t/pause")).body("application/json", long)).await;
    assert_eq!(refused.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(refused.json()["details"]["limit"], 1 << 20);
}

/// PERM: an observer looks and never commands.
#[tokio::test]
async fn an_observer_reads_and_does_not_write() {
    let gateway = TestGateway::open().await;
    gateway.create("t", "hold").await;
    let read = send(gateway.observe(Method::GET, &tasks("/t"))).await;
    assert_eq!(read.status, StatusCode::OK);
    let write = send(gateway.observe(Method::POST, &tasks("/t/pause"))).await;
    assert_eq!(
        (write.status, write.code().as_str()),
        (StatusCode::FORBIDDEN, "tool_not_available")
    );
    let plan = gateway.observe(Method::POST, &tasks("/t/patch?plan=true"));
    let plan = send(plan.json(&json!({ "operations": [] }))).await;
    assert_eq!(plan.status, StatusCode::FORBIDDEN);
    let template =
        send(gateway.observe(Method::GET, &format!("/v1/sessions/{SESSION}/template"))).await;
    assert_eq!(template.code(), "tool_not_available");
}

/// Whatever an observer sends, not a byte of the log is another one.
#[tokio::test]
async fn no_request_of_an_observer_changes_anything() {
    let gateway = TestGateway::open().await;
    let draft = json!({
        "task_id": "t",
        "title": "t",
        "draft": true,
        "steps": [{ "step_id": "a", "title": "A", "handler": "echo" }],
    });
    assert_eq!(gateway.post(&tasks(""), &draft).await.status, StatusCode::CREATED);
    let before = gateway.get(&tasks("/t/log")).await.body;
    let why = json!({ "reason": { "message": "m" } });
    let step = json!({ "step_id": "b", "title": "B", "handler": "echo" });
    let mut commands = vec![
        (Method::POST, String::new(), json!({ "task_id": "u", "title": "u", "draft": true })),
        (Method::PATCH, "/t".into(), json!({ "title": "mine" })),
        (
            Method::POST,
            "/t/patch".into(),
            json!({ "operations": [{ "op": "add_step", "step": step }] }),
        ),
        (Method::POST, "/t/complete".into(), json!({ "output": { "data": "1" } })),
        (Method::POST, "/t/retry".into(), why.clone()),
        (Method::POST, "/t/dispatch".into(), json!({ "worker_pool_id": "default" })),
        (Method::POST, "/t/links".into(), json!({ "kind": "blocks", "to": "u" })),
        (Method::POST, "/t/steps/a".into(), json!({ "status": "completed" })),
    ];
    for verb in ["submit", "pause", "resume", "block", "reopen", "archive", "cancel", "fail"] {
        commands.push((Method::POST, format!("/t/{verb}"), why.clone()));
    }
    for (method, rest, body) in commands {
        let refused = send(gateway.observe(method, &tasks(&rest)).json(&body)).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{rest}: {:?}", refused.body);
    }
    let blob = tasks(&format!("/t/blobs/sha256:{}", "0".repeat(64)));
    let put = gateway.observe(Method::PUT, &blob).body("application/octet-stream", "x");
    assert_eq!(send(put).await.status, StatusCode::FORBIDDEN);
    assert_eq!(gateway.get(&tasks("/t/log")).await.body, before);
    let made = send(gateway.ask(Method::GET, &tasks("/u"))).await;
    assert_eq!(made.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn the_task_of_another_session_looks_absent() {
    let gateway = TestGateway::open().await;
    let elsewhere = format!("/v1/sessions/{OTHER_SESSION}/tasks");
    let body = json!({ "task_id": "t", "title": "t", "draft": true });
    assert_eq!(gateway.post(&elsewhere, &body).await.status, StatusCode::CREATED);
    for task in ["t", "none"] {
        for rest in ["", "/steps", "/attempts", "/log", "/events"] {
            let path = format!("{elsewhere}/{task}{rest}");
            let absent = send(gateway.observe(Method::GET, &path)).await;
            assert_eq!(absent.status, StatusCode::NOT_FOUND, "{path}");
            assert_eq!(absent.code(), "task_not_found", "{path}");
        }
    }
    // Nor does the text of the refusal say which of the two it is.
    let text = async |session: &str, task: &str| {
        let path = format!("/v1/sessions/{session}/tasks/{task}");
        let refused = send(gateway.observe(Method::GET, &path)).await;
        String::from_utf8(refused.body.to_vec()).unwrap().replace(task, "TASK")
    };
    let hidden = text(OTHER_SESSION, "hidden").await;
    let body = json!({ "task_id": "hidden", "title": "t", "draft": true });
    assert_eq!(gateway.post(&elsewhere, &body).await.status, StatusCode::CREATED);
    assert_eq!(text(OTHER_SESSION, "hidden").await, hidden);
    let absent = text(SESSION, "hidden").await;
    assert_eq!(hidden.replace(OTHER_SESSION, SESSION), absent);
    let list = send(gateway.observe(Method::GET, &elsewhere)).await;
    assert_eq!((list.status, list.code().as_str()), (StatusCode::FORBIDDEN, "permission_denied"));
    let pools =
        send(gateway.observe(Method::GET, &format!("/v1/pools?session={OTHER_SESSION}"))).await;
    assert_eq!(pools.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn a_worker_has_no_way_to_tasks() {
    let gateway = TestGateway::open().await;
    gateway.create("t", "hold").await;
    for path in [tasks("/t"), tasks(""), "/v1/pools".to_owned()] {
        let refused = send(gateway.work(Method::GET, &path)).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{path}");
        assert_eq!(refused.code(), "permission_denied", "{path}");
    }
}
