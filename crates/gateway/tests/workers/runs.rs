//! Dispatched Runs.

use hyper::{Method, StatusCode};
use serde_json::{Value as Json, json};
use tenure_core::command::Dispatch;
use tenure_core::id::{RunId, TaskId};
use tenure_sdk::client::{Step, Task};

use crate::hall::{Hall, worker};
use crate::hand::{Hand, beside};
use crate::http::{Answer, send};

async fn create(hall: &Hall) -> TaskId {
    let steps = ["a", "b", "c"].map(|id| Step::new(id).handler("echo"));
    hall.client.create(Task::new("a task").by_agent().steps(steps)).await.unwrap()
}

async fn dispatch(hall: &Hall, task: &TaskId, wait: Option<bool>) -> RunId {
    let dispatch = Dispatch {
        allowed_step_ids: Some(["a", "c"].map(|id| id.parse().unwrap()).to_vec()),
        bindings: None,
        instructions: Some("with care".into()),
        on_behalf: None,
        ttl_ms: None,
        wait,
        worker_pool_id: "default".parse().unwrap(),
    };
    hall.client.dispatch(task, dispatch).await.unwrap().run_id.unwrap()
}

/// Asks something under a Run.
async fn ask(hand: &Hand, offer: &Json, what: &str, more: Json) -> Answer {
    let path = format!("/runs/{}/{what}", offer["run_id"].as_str().unwrap());
    let of_task = json!({ "session_id": offer["session_id"], "task_id": offer["task_id"] });
    hand.post(&path, &beside(&of_task, more)).await
}

fn step_ids(page: &Json) -> Vec<&str> {
    let steps = page["steps"].as_array().unwrap();
    steps.iter().map(|step| step["step_id"].as_str().unwrap()).collect()
}

/// CLAIM-15, QUERY-12: a worker is offered a Run, looks for a Step in its scope, and claims it; the same claim
/// again is the same Attempt.
#[tokio::test(flavor = "multi_thread")]
async fn a_step_is_claimed_under_a_run() {
    let hall = Hall::open().await;
    let mut hand = Hand::of_one(hall.gateway(worker("ant")).await).await;
    let task = create(&hall).await;
    let run = dispatch(&hall, &task, None).await;
    let offer = hand.next("run").await;
    assert_eq!((&offer["run_id"], &offer["instructions"]), (&json!(run), &json!("with care")));
    let page = ask(&hand, &offer, "query", json!({})).await.json();
    assert_eq!(step_ids(&page), ["a", "c"]);
    let rest = ask(&hand, &offer, "query", json!({ "offset": 1 })).await.json();
    assert_eq!(step_ids(&rest), ["c"]);
    let claim_as = async |step: &str, command: &str| {
        ask(&hand, &offer, "claim", json!({ "step_id": step, "command_id": command })).await
    };
    let outside = claim_as("b", "0").await;
    assert_eq!(
        (outside.status, outside.code()),
        (StatusCode::FORBIDDEN, "step_out_of_scope".into())
    );
    let claim = claim_as("a", "1").await.json();
    assert_eq!(claim["step"]["step_id"], "a");
    assert_eq!(claim_as("a", "1").await.json()["attempt_id"], claim["attempt_id"]);
    let second = claim_as("c", "2").await;
    assert_eq!(second.code(), "step_already_claimed_by_run");
    let looked = ask(&hand, &offer, "look", json!({ "operation": "task_get" })).await.json();
    assert_eq!(looked["task_id"], json!(task));
    let refused = ask(&hand, &offer, "look", json!({ "operation": "task_log" })).await;
    assert_eq!(refused.code(), "validation_error");
    let run_result = json!({
        "status": "completed", "output": { "data": "1" }, "run_result": "it went well",
    });
    assert_eq!(hand.say(&claim, "report", run_result).await.status, StatusCode::OK);
    let task = hall.client.get(&task).await.unwrap();
    assert_eq!(
        task.runs.iter().find(|it| it.run_id == run).unwrap().instructions.as_deref(),
        Some("with care")
    );
}

/// RUN-12, DISP-12: a Run may be declined, ended with nothing claimed, or let go; each frees the slot.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_may_end_without_a_claim() {
    let hall = Hall::open().await;
    let mut hand = Hand::of_one(hall.gateway(worker("ant")).await).await;
    let task = create(&hall).await;
    dispatch(&hall, &task, None).await;
    let declined = hand.next("run").await;
    let why = json!({ "reason": { "code": "unknown_handler", "message": "not mine" } });
    assert_eq!(ask(&hand, &declined, "decline", why).await.status, StatusCode::OK);
    dispatch(&hall, &task, None).await;
    let ended = hand.next("run").await;
    assert_ne!(ended["run_id"], declined["run_id"]);
    assert_eq!(ask(&hand, &ended, "end", json!({})).await.status, StatusCode::OK);
    dispatch(&hall, &task, None).await;
    let let_go = hand.next("run").await;
    let path = format!("/runs/{}", let_go["run_id"].as_str().unwrap());
    assert_eq!(send(hand.ask(Method::DELETE, &path)).await.status, StatusCode::NO_CONTENT);
    dispatch(&hall, &task, None).await;
    assert_ne!(hand.next("run").await["run_id"], let_go["run_id"], "its slot is free");
}
