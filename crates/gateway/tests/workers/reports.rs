//! Steps from their claim to their end.

use std::time::Duration;

use hyper::StatusCode;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tenure_core::id::TaskId;
use tenure_core::status::{StepStatus, TaskStatus};
use tenure_core::view::TaskView;
use tenure_sdk::client::{Step, Task};

use crate::hall::{Hall, worker};
use crate::hand::Hand;
use crate::http::Answer;

async fn create(hall: &Hall, steps: &[&str]) -> TaskId {
    let steps = steps.iter().map(|id| Step::new(id).handler("echo"));
    hall.client.create(Task::new("a task").steps(steps)).await.unwrap()
}

fn is_completed(task: &TaskView) -> bool {
    task.task.native_status == TaskStatus::Completed
}

fn version(answer: &Answer) -> u64 {
    assert_eq!(answer.status, StatusCode::OK, "{:?}", answer.body);
    answer.json()["version"].as_u64().unwrap()
}

/// REPORT-14: a Step runs from its grant to its result, and a report that is sent again is recorded once.
#[tokio::test(flavor = "multi_thread")]
async fn a_step_runs_and_its_report_may_be_repeated() {
    let hall = Hall::open().await;
    let mut hand = Hand::of_one(hall.gateway(worker("ant")).await).await;
    let input = Step::new("a").handler("echo").input_json("hello").unwrap();
    let task = hall.client.create(Task::new("a task").step(input)).await.unwrap();
    let claim = hand.granted().await;
    assert_eq!((&claim["task_id"], &claim["ordinal"]), (&json!(task), &json!(1)));
    assert_eq!(claim["step"]["input"]["data"], "\"hello\"");
    let pulses = hand.heartbeat(&[&claim]).await;
    assert_eq!(pulses, [json!({ "attempt_id": claim["attempt_id"], "lease_ms": 60_000 })]);
    let begun = version(&hand.say(&claim, "report", json!({ "status": "running" })).await);
    let done = version(&hand.completes(&claim, "\"hello\"").await);
    assert!(done > begun);
    assert_eq!(version(&hand.completes(&claim, "\"hello\"").await), done, "recorded once");
    let task = hall.until(&task, is_completed).await;
    let step = &task.steps[0];
    assert_eq!(step.spec.step_id.as_str(), "a");
    assert_eq!(hand.heartbeat(&[&claim]).await[0]["error"]["code"], "task_terminal");
    let late = hand.say(&claim, "report", json!({ "status": "failed" })).await;
    assert_eq!((late.status, late.code()), (StatusCode::CONFLICT, "task_terminal".into()));
    assert_eq!(hand.leave().await.status, StatusCode::NO_CONTENT);
}

/// LEASE-13: what has another token than the claim counts for nothing, whatever it says.
#[tokio::test(flavor = "multi_thread")]
async fn a_report_with_another_token_is_refused() {
    let hall = Hall::open().await;
    let mut hand = Hand::of_one(hall.gateway(worker("ant")).await).await;
    let task = create(&hall, &["a"]).await;
    let claim = hand.granted().await;
    let mut forged = claim.clone();
    forged["fencing_token"] = (claim["fencing_token"].as_u64().unwrap() + 1).into();
    let said = [
        ("report", json!({ "status": "completed" })),
        ("end", json!({ "outcome": "finished" })),
        ("release", json!({})),
    ];
    for (what, said) in said {
        let refused = hand.say(&forged, what, said).await;
        assert_eq!(
            (refused.status, refused.code()),
            (StatusCode::CONFLICT, "stale_attempt".into())
        );
    }
    let mut without = claim.clone();
    without["fencing_token"].take();
    let refused = hand.completes(&without, "1").await;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
    version(&hand.completes(&claim, "1").await);
    hall.until(&task, is_completed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_names_the_field_of_the_report() {
    let hall = Hall::open().await;
    let mut hand = Hand::of_one(hall.gateway(worker("ant")).await).await;
    create(&hall, &["a"]).await;
    let claim = hand.granted().await;
    let refused = hand.say(&claim, "report", json!({ "status": "done" })).await;
    assert_eq!((refused.code(), refused.field()), ("validation_error".into(), "status".into()));
    let refused = hand.say(&claim, "end", json!({ "outcome": "well" })).await;
    assert_eq!(refused.field(), "outcome");
    // REPORT-04: no worker changes what a Step is.
    let refused = hand.say(&claim, "report", json!({ "title": "another" })).await;
    assert_eq!((refused.status, refused.field()), (StatusCode::FORBIDDEN, "title".into()));
    let refused = hand.say(&claim, "release", json!({ "retry_after_ms": 3_600_001 })).await;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY, "{:?}", refused.body);
    version(&hand.completes(&claim, "1").await);
}

/// LEASE-05, LEASE-13: a worker that falls silent loses its Step; another worker gets it as another Attempt,
/// and what the first one then says counts for nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_silent_worker_loses_its_step() {
    let hall = Hall::with_leases_of(1_500).await;
    let to = hall.gateway_for(vec![worker("ant"), worker("bee")]).await;
    let mut silent = Hand::of_one(to[0]).await;
    let task = create(&hall, &["a"]).await;
    let first = silent.granted().await;
    let mut other = Hand::of_one(to[1]).await;
    let second = other.granted().await;
    assert_eq!(
        (second["ordinal"].as_u64() > Some(1), &second["step"]["step_id"]),
        (true, &json!("a"))
    );
    assert_eq!(second["was_lost"], true);
    assert!(second["fencing_token"].as_u64() > first["fencing_token"].as_u64());
    let late = silent.completes(&first, "1").await;
    assert_eq!((late.status, late.code()), (StatusCode::CONFLICT, "stale_attempt".into()));
    assert_eq!(silent.heartbeat(&[&first]).await[0]["error"]["code"], "stale_attempt");
    version(&other.completes(&second, "2").await);
    hall.until(&task, is_completed).await;
}

/// A worker that heartbeats keeps its Step for as long as it likes.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_heartbeats_keeps_its_step() {
    let hall = Hall::with_leases_of(3_000).await;
    let mut hand = Hand::of_one(hall.gateway(worker("ant")).await).await;
    let task = create(&hall, &["a"]).await;
    let claim = hand.granted().await;
    for _ in 0..12 {
        assert_eq!(hand.heartbeat(&[&claim]).await[0]["lease_ms"], 3_000);
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    version(&hand.completes(&claim, "1").await);
    let task = hall.until(&task, is_completed).await;
    assert_eq!(task.attempts.len(), 1);
}

/// LEASE-18: a Step that is given back goes to another worker, and costs no failure.
#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_is_given_back_goes_on() {
    let hall = Hall::open().await;
    let mut hand = Hand::of_one(hall.gateway(worker("ant")).await).await;
    let task = create(&hall, &["a"]).await;
    let claim = hand.granted().await;
    version(&hand.say(&claim, "release", json!({ "reason": "draining" })).await);
    let again = hand.granted().await;
    assert_eq!((&again["ordinal"], again.get("was_lost")), (&json!(2), None));
    version(&hand.completes(&again, "1").await);
    hall.until(&task, is_completed).await;
}

/// CANCEL-07: whoever is to stop learns it as a delivery and in each pulse, and says when it has.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_is_asked_to_stop() {
    let hall = Hall::open().await;
    let mut hand = Hand::of_one(hall.gateway(worker("ant")).await).await;
    let task = create(&hall, &["a"]).await;
    let claim = hand.granted().await;
    let stops = async {
        assert_eq!(hand.next("cancel_requested").await, claim["attempt_id"]);
        let pulse = hand.heartbeat(&[&claim]).await.remove(0);
        assert_eq!(pulse["cancel_requested"], true);
        assert!(pulse["time_left_ms"].as_u64() > Some(0));
        let said = hand.say(&claim, "report", json!({ "progress": { "percent": 50 } })).await;
        assert_eq!(said.json()["cancel_requested"], true);
        version(&hand.say(&claim, "end", json!({ "outcome": "cancelled" })).await);
    };
    let (cancelled, ()) = tokio::join!(hall.client.cancel(&task, "not needed"), stops);
    cancelled.unwrap();
    let task = hall.client.get(&task).await.unwrap();
    assert_eq!(task.task.native_status, TaskStatus::Cancelled);
    assert_eq!(task.steps[0].status, StepStatus::Cancelled);
}

/// VALUE-01: what is too large for a report goes before it as a blob, and comes to the next Step as one.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_output_goes_as_a_blob() {
    let hall = Hall::open().await;
    let mut hand = Hand::of_one(hall.gateway(worker("ant")).await).await;
    let steps = [Step::new("a").handler("echo"), Step::new("b").handler("echo").after("a")];
    let task = hall.client.create(Task::new("a task").steps(steps)).await.unwrap();
    let first = hand.granted().await;
    let bytes = vec![b'x'; (1 << 20) + 7]; // Three parts on the bus.
    let hash = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let digest = format!("sha256:{hash}");
    let path = Hand::blob(&first, &digest);
    let put = hand.put(&path, bytes.clone()).await;
    assert_eq!(put.status, StatusCode::OK, "{:?}", put.body);
    let reference = put.json()["ref"].clone();
    assert_eq!(reference, format!("blob:sha256:{hash}"));
    let output = json!({ "ref": reference, "size_bytes": bytes.len(), "digest": digest });
    version(&hand.say(&first, "report", json!({ "status": "completed", "output": output })).await);
    let second = hand.granted().await;
    assert_eq!(second["dependencies"][0]["output"]["ref"], reference);
    let got = hand.get(&Hand::blob(&second, &digest)).await;
    assert_eq!((got.status, got.header("content-length")), (StatusCode::OK, "1048583"));
    assert!(got.body == bytes);
    version(&hand.completes(&second, "1").await);
    hall.until(&task, is_completed).await;
}

/// VALUE-01: a blob may come in parts as well, as on the bus.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_output_may_go_in_parts() {
    let hall = Hall::open().await;
    let mut hand = Hand::of_one(hall.gateway(worker("ant")).await).await;
    create(&hall, &["a"]).await;
    let claim = hand.granted().await;
    let bytes = vec![b'y'; 100_000];
    let hash = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let path = Hand::blob(&claim, &format!("sha256:{hash}"));
    let part = |offset: usize| format!("{path}&offset={offset}&size_bytes={}", bytes.len());
    let first = hand.put(&part(0), bytes[..60_000].to_vec()).await;
    assert_eq!((first.status, &first.json()["next_offset"]), (StatusCode::OK, &json!(60_000)));
    let last = hand.put(&part(60_000), bytes[60_000..].to_vec()).await;
    assert_eq!(last.json()["ref"], format!("blob:sha256:{hash}"), "{:?}", last.body);
    let missing = hand.put(&format!("{path}&offset=0"), "x").await;
    assert_eq!(missing.field(), "size_bytes");
    let long = hand.put(&part(0), vec![b'y'; (512 << 10) + 1]).await;
    assert_eq!(long.status, StatusCode::PAYLOAD_TOO_LARGE, "a part is no longer than on the bus");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_bytes_of_a_blob_are_stored_under_its_digest() {
    let hall = Hall::open().await;
    let mut hand = Hand::of_one(hall.gateway(worker("ant")).await).await;
    create(&hall, &["a"]).await;
    let claim = hand.granted().await;
    let digest = format!("sha256:{}", "0".repeat(64));
    let other = hand.put(&Hand::blob(&claim, &digest), "not these").await;
    assert!(other.status.is_client_error(), "{:?}", other.body);
    let absent = hand.get(&Hand::blob(&claim, &digest)).await;
    assert!(absent.status.is_client_error(), "the claim names no such blob");
    let misnamed = hand.get(&Hand::blob(&claim, "sha256:0")).await;
    assert_eq!(misnamed.field(), "digest");
    let unnamed = hand.get("/attempts/0/blobs/sha256:0?task_id=t").await;
    assert_eq!(unnamed.field(), "attempt_id");
}
