//! Commands: what they answer, and what happens when they are repeated or come too late.

use hyper::{Method, StatusCode};
use serde_json::json;

use crate::gateway::{TestGateway, is_held, tasks};
use crate::http::send;

#[tokio::test]
async fn a_task_that_is_made_can_be_read_at_once() {
    let gateway = TestGateway::open().await;
    let made = gateway.create("t", "echo").await;
    assert_eq!(made.header("location"), tasks("/t"));
    assert_eq!(made.header("idempotency-replayed"), "");
    let task = gateway.get(made.header("location")).await;
    assert_eq!(task.json()["task_id"], "t");
    gateway.until("t", |task| task["native_status"] == "completed").await;
}

/// IDEM-01, IDEM-03: whoever does not know whether a request came sends it again.
#[tokio::test]
async fn a_create_without_an_id_is_known_by_its_key() {
    let gateway = TestGateway::open().await;
    let steps = json!([{ "step_id": "a", "title": "A", "handler": "hold" }]);
    let body = json!({ "title": "t", "steps": steps });
    let create = async |key: &str, body: &serde_json::Value| {
        send(gateway.ask(Method::POST, &tasks("")).header("idempotency-key", key).json(body)).await
    };
    let first = create("k", &body).await;
    assert_eq!((first.status, first.header("idempotency-replayed")), (StatusCode::CREATED, ""));
    let again = create("\"k\"", &body).await;
    assert_eq!((again.status, again.header("idempotency-replayed")), (StatusCode::CREATED, "true"));
    assert_eq!(again.header("location"), first.header("location"));
    let other = create("k", &json!({ "title": "another", "steps": steps })).await;
    assert_eq!(other.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(other.code(), "idempotency_conflict");
    assert_eq!(other.field(), "Idempotency-Key", "the key came in the header");
    let fresh = gateway.post(&tasks(""), &body).await;
    assert_ne!(fresh.header("location"), first.header("location"), "no key: another task");
}

#[tokio::test]
async fn a_command_is_carried_out_once() {
    let gateway = TestGateway::open().await;
    gateway.create("t", "hold").await;
    let pause = async |key: &str| {
        send(gateway.ask(Method::POST, &tasks("/t/pause")).header("idempotency-key", key)).await
    };
    let (first, again) = (pause("p").await, pause("p").await);
    assert_eq!((first.status, again.status), (StatusCode::OK, StatusCode::OK));
    assert_eq!(again.header("idempotency-replayed"), "true");
    assert_eq!(first.json()["event_ids"], again.json()["event_ids"]);
    let resumed = gateway.post(&tasks("/t/resume"), &json!({})).await;
    assert_eq!(resumed.status, StatusCode::OK);
    let too_late = pause("another").await;
    assert_eq!(too_late.status, StatusCode::OK, "it can be paused again");
}

/// A header that cannot be used is refused by its name, before anything is done.
#[tokio::test]
async fn a_header_that_is_malformed_is_named() {
    let gateway = TestGateway::open().await;
    gateway.create("t", "hold").await;
    for (header, value) in
        [("If-Match", "abc"), ("Idempotency-Key", ""), ("Idempotency-Key", "\"\"")]
    {
        let name = header.to_ascii_lowercase();
        let pause = gateway.ask(Method::POST, &tasks("/t/pause")).header(&name, value);
        let refused = send(pause).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{header}: {value}");
        assert_eq!(
            (refused.code().as_str(), refused.field().as_str()),
            ("validation_error", header)
        );
    }
    assert_ne!(gateway.get(&tasks("/t")).await.json()["native_status"], "paused");
}

/// OCC-07: what workers do does not matter, what orchestrators did does.
#[tokio::test]
async fn a_task_that_was_changed_meanwhile_is_not_changed() {
    let gateway = TestGateway::open().await;
    gateway.create("t", "hold").await;
    gateway.until("t", is_held).await;
    let tag = gateway.get(&tasks("/t")).await.header("etag").to_owned();
    let retitle = async |title: &str, tag: &str| {
        let request = gateway.ask(Method::PATCH, &tasks("/t")).header("if-match", tag);
        send(request.json(&json!({ "title": title }))).await
    };
    let first = retitle("one", &tag).await;
    assert_eq!(first.status, StatusCode::OK, "{:?}", first.body);
    let stale = retitle("two", &tag).await;
    assert_eq!(stale.status, StatusCode::PRECONDITION_FAILED);
    assert_eq!(stale.code(), "version_conflict");
    let present = stale.json()["details"]["current_spec_version"].as_u64().unwrap();
    let current = gateway.get(&tasks("/t")).await;
    assert_eq!(current.json()["spec_version"], present);
    assert_eq!(retitle("two", current.header("etag")).await.status, StatusCode::OK);
    assert_eq!(
        retitle("three", first.header("etag")).await.status,
        StatusCode::PRECONDITION_FAILED
    );
    gateway.gate.add_permits(1);
}

#[tokio::test]
async fn a_patch_changes_all_or_nothing_and_can_be_planned() {
    let gateway = TestGateway::open().await;
    gateway.create("t", "hold").await;
    let add = |id: &str| {
        json!({ "op": "add_step", "step": {
            "step_id": id, "title": id, "handler": "echo", "depends_on_step_ids": ["a"],
        }})
    };
    let both = json!({ "operations": [add("b"), { "op": "delete_step", "step_id": "none" }] });
    let refused = gateway.post(&tasks("/t/patch"), &both).await;
    assert_eq!(
        (refused.status, refused.code().as_str()),
        (StatusCode::NOT_FOUND, "step_not_found")
    );
    let good = json!({ "operations": [add("b")] });
    let plan = gateway.post(&tasks("/t/patch?plan=true"), &good).await;
    assert_eq!(plan.status, StatusCode::OK, "{:?}", plan.body);
    assert_eq!(plan.json()["added"], json!(["b"]));
    let steps = gateway.get(&tasks("/t/steps")).await.json();
    assert_eq!(steps["steps"].as_array().unwrap().len(), 1, "nothing was changed yet");
    assert_eq!(gateway.post(&tasks("/t/patch"), &good).await.status, StatusCode::OK);
    let steps = gateway.get(&tasks("/t/steps")).await.json();
    assert_eq!(steps["steps"].as_array().unwrap().len(), 2);
    gateway.gate.add_permits(1);
    gateway.until("t", |task| task["native_status"] == "completed").await;
}

#[tokio::test]
async fn an_ended_task_is_made_again_and_archived() {
    let gateway = TestGateway::open().await;
    let body = json!({
        "task_id": "t",
        "title": "t",
        "dispatch": "manual", // So that no worker has to stop first.
        "steps": [{ "step_id": "a", "title": "A" }],
    });
    assert_eq!(gateway.post(&tasks(""), &body).await.status, StatusCode::CREATED);
    let cancel = gateway.post(&tasks("/t/cancel"), &json!({ "wait": false })).await;
    assert_eq!(cancel.status, StatusCode::OK);
    gateway.until("t", |task| task["native_status"] == "cancelled").await;
    let again = json!({ "retry_of": "t", "reason": { "message": "once more" } });
    let made = gateway.post(&tasks("/t2/retry"), &again).await;
    assert_eq!(made.status, StatusCode::CREATED, "{:?}", made.body);
    assert_eq!(made.header("location"), tasks("/t2"));
    assert_eq!(gateway.get(&tasks("/t2")).await.json()["retry_of"], "t");
    assert_eq!(gateway.post(&tasks("/t/archive"), &json!(null)).await.status, StatusCode::OK);
    assert_eq!(gateway.get(&tasks("/t")).await.json()["archived"], true);
}

#[tokio::test]
async fn a_step_is_settled_and_a_relation_made_and_removed() {
    let gateway = TestGateway::open().await;
    for id in ["t", "u"] {
        let body = json!({
            "task_id": id,
            "title": "t",
            "dispatch": "manual",
            "steps": [{ "step_id": "a", "title": "A" }],
        });
        assert_eq!(gateway.post(&tasks(""), &body).await.status, StatusCode::CREATED);
    }
    let done = gateway.post(&tasks("/t/steps/a"), &json!({ "status": "completed" })).await;
    assert_eq!(done.status, StatusCode::OK, "{:?}", done.body);
    let twice = json!({ "step_id": "a", "status": "completed" });
    assert_eq!(gateway.post(&tasks("/t/steps/a"), &twice).await.field(), "step_id");
    let linked = gateway.post(&tasks("/u/links"), &json!({ "kind": "blocks", "to": "t" })).await;
    assert_eq!(linked.status, StatusCode::OK, "{:?}", linked.body);
    let relations = gateway.get(&tasks("/u")).await.json()["relationships"].clone();
    let edge = relations[0]["edge_id"].as_str().unwrap().to_owned();
    let gone =
        send(gateway.ask(Method::DELETE, &tasks(&format!("/u/links/{edge}?reason=done")))).await;
    assert_eq!(gone.status, StatusCode::OK, "{:?}", gone.body);
}

#[tokio::test]
async fn a_trace_is_taken_over() {
    let gateway = TestGateway::open().await;
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let body = json!({ "task_id": "t", "title": "t", "steps": [
        { "step_id": "a", "title": "A", "handler": "echo" },
    ]});
    for (id, given) in [("t", trace), ("u", "no trace")] {
        let mut body = body.clone();
        body["task_id"] = id.into();
        let create = gateway.ask(Method::POST, &tasks("")).header("traceparent", given);
        assert_eq!(send(create.json(&body)).await.status, StatusCode::CREATED, "{given}");
    }
    let first = async |id: &str| {
        gateway.get(&tasks(&format!("/{id}/history?to_seq=1"))).await.json()["timeline"][0].clone()
    };
    assert_eq!(first("t").await["trace"], trace);
    assert!(first("u").await.get("trace").is_none(), "one that is not well formed is ignored");
}
