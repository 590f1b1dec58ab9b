//! What comes to a worker, and how it joins and leaves.

use hyper::{Method, StatusCode};
use serde_json::json;
use tenure_core::status::TaskStatus;
use tenure_gateway::Backend as _;
use tenure_gateway::identity::Identity;
use tenure_sdk::client::{Step, Task};

use crate::hall::{Hall, worker};
use crate::hand::{Hand, WORKERS};
use crate::http::{Exchange, send};

async fn create(hall: &Hall, steps: &[&str]) -> tenure_core::id::TaskId {
    let steps = steps.iter().map(|id| Step::new(id).handler("echo"));
    hall.client.create(Task::new("a task").steps(steps)).await.unwrap()
}

/// CLAIM-14: a worker gets no more Steps than it runs at a time. What it does not acknowledge comes again.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_gets_as_many_steps_as_it_runs() {
    let hall = Hall::open().await;
    let to = hall.gateway(worker("ant")).await;
    let mut hand = Hand::join(to, json!({ "concurrency": 2 })).await;
    create(&hall, &["a", "b", "c"]).await;
    let mut came = hand.fetch().await;
    if came.len() < 2 {
        came.extend(hand.fetch().await);
    }
    let numbers: Vec<_> = came.iter().map(|it| it["number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [1, 2]);
    assert_eq!(hand.fetch_after(1, "0s").await, [came[1].clone()], "it was not acknowledged");
    assert_eq!(hand.fetch_after(2, "300ms").await, [] as [serde_json::Value; 0]);
    hand.completes(&came[0]["grant"], "1").await;
    let third = hand.granted().await;
    assert_eq!(third["step"]["step_id"], "c");
    let beyond = send(hand.ask(Method::GET, "/deliveries?after=4")).await;
    assert_eq!((beyond.code(), beyond.field()), ("validation_error".into(), "after".into()));
    let more = hand.ask(Method::PATCH, "").json(&json!({ "concurrency": 0 }));
    assert_eq!(send(more).await.json()["concurrency"], 0);
    hand.completes(&came[1]["grant"], "1").await;
    hand.completes(&third, "1").await;
    create(&hall, &["a"]).await;
    assert!(hand.fetch_after(3, "300ms").await.is_empty(), "it takes no more");
}

/// Mechanisms 8: a worker that counts by itself says how many Steps it takes, alone or beside a report, and gets no
/// more.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_may_count_by_itself() {
    let hall = Hall::open().await;
    let to = hall.gateway(worker("ant")).await;
    let mut hand = Hand::join(to, json!({ "concurrency": 0 })).await;
    create(&hall, &["a", "b", "c"]).await;
    assert!(hand.fetch_after(0, "300ms").await.is_empty());
    let room = json!({ "room": { "number": 1, "free": 1, "seen": 0 } });
    assert_eq!(send(hand.ask(Method::PATCH, "").json(&room)).await.status, StatusCode::OK);
    let first = hand.granted().await;
    assert!(hand.fetch_after(1, "300ms").await.is_empty());
    hand.completes(&first, "1").await;
    assert!(hand.fetch_after(1, "300ms").await.is_empty(), "it has not asked for more");
    let room = json!({ "room": { "number": 2, "free": 1, "seen": 1 } });
    assert_eq!(send(hand.ask(Method::PATCH, "").json(&room)).await.status, StatusCode::OK);
    let second = hand.granted().await;
    let said = json!({
        "status": "completed", "output": { "data": "1" },
        "room": { "number": 3, "free": 2, "seen": 2 },
    });
    assert_eq!(hand.say(&second, "report", said).await.status, StatusCode::OK);
    assert_eq!(hand.granted().await["step"]["step_id"], "c");
}

/// STEP-37 and U13 leave it to the worker which handlers it has: it gets Steps of no other.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_gets_only_steps_for_its_handlers() {
    let hall = Hall::open().await;
    let to = hall.gateway(worker("ant")).await;
    let mut hand = Hand::join(to, json!({ "handlers": ["other"] })).await;
    create(&hall, &["a"]).await;
    assert!(hand.fetch_after(0, "300ms").await.is_empty());
    let other = Step::new("b").handler("other");
    hall.client.create(Task::new("a task").step(other)).await.unwrap();
    assert_eq!(hand.granted().await["step"]["step_id"], "b");
}

/// DISP-20: a worker gets Steps of the sessions that it serves alone, and its pool says which these are. Another list
/// is another link.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_gets_only_steps_of_the_sessions_that_it_serves() {
    let hall = Hall::open().await;
    let to = hall.gateway(worker("ant")).await;
    let body = |sessions: serde_json::Value| json!({ "boot": "b1", "sessions": sessions });
    let join = async |body: serde_json::Value| {
        send(Exchange::new(to, Method::POST, WORKERS).json(&body)).await
    };
    let hand = Hand::join(to, body(json!(["other", "ci-*"]))).await;
    assert_eq!(join(body(json!(["ci-*", "other"]))).await.status, StatusCode::OK, "the same");
    let task = create(&hall, &["a"]).await;
    assert!(hand.fetch_after(0, "300ms").await.is_empty());
    let why = hall.client.explain(&task, "a".parse().unwrap()).await.unwrap();
    assert_eq!(why.headline.as_str(), "no_worker_serves_session");
    let answers = hall.backend.nodes(&Identity::local(), &"main".parse().unwrap()).await;
    let pools = answers.unwrap().nodes.remove(0).pools;
    let named: Vec<String> = pools[0].sessions.iter().flatten().map(ToString::to_string).collect();
    assert_eq!(named, ["ci-*", "other"]);
    assert_eq!(join(body(json!(["*"]))).await.status, StatusCode::CREATED, "it serves all now");
    let mut all = Hand::join(to, json!({ "boot": "b2" })).await;
    assert_eq!(all.granted().await["step"]["step_id"], "a");
    assert_eq!(join(body(json!(["Main"]))).await.field(), "sessions[0]");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_joins_twice_has_one_link() {
    let hall = Hall::open().await;
    let to = hall.gateway(worker("ant")).await;
    let body = json!({ "boot": "b1", "concurrency": 1 });
    let join = |body: serde_json::Value| send(Exchange::new(to, Method::POST, WORKERS).json(&body));
    let first = join(body.clone()).await;
    assert_eq!(first.status, StatusCode::CREATED);
    let joined = first.json();
    assert_eq!((&joined["worker_id"], &joined["boot"]), (&json!("ant.b1"), &json!("b1")));
    let place = format!("{WORKERS}/{}", joined["link"].as_str().unwrap());
    assert_eq!(first.header("location"), place);
    let second = join(body).await;
    assert_eq!((second.status, second.json()), (StatusCode::OK, joined.clone()));
    assert_eq!(send(Exchange::new(to, Method::GET, &place)).await.json(), joined);
    let other = join(json!({ "boot": "b1", "handlers": ["echo"] })).await;
    assert_eq!(other.status, StatusCode::CREATED, "it has other handlers now");
    let gone = send(Exchange::new(to, Method::GET, &place)).await;
    assert_eq!((gone.status, gone.code()), (StatusCode::NOT_FOUND, "worker_gone".into()));
}

/// A gateway that dies costs its workers a new join, and no Step: under the same boot a worker goes on through
/// another gateway.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_goes_on_through_another_gateway() {
    let hall = Hall::open().await;
    let (one, other) = (hall.gateway(worker("ant")).await, hall.gateway(worker("ant")).await);
    let body = json!({ "boot": "b1", "concurrency": 1 });
    let mut hand = Hand::join(one, body.clone()).await;
    let task = create(&hall, &["a", "b"]).await;
    let claim = hand.granted().await;
    let mut again = Hand::join(other, body).await;
    assert_eq!(again.heartbeat(&[&claim]).await[0]["lease_ms"], claim["lease_ms"]);
    assert!(again.fetch_after(0, "300ms").await.is_empty(), "its only slot is used");
    assert_eq!(again.completes(&claim, "1").await.status, StatusCode::OK);
    let second = again.granted().await;
    assert_eq!((&second["step"]["step_id"], &second["ordinal"]), (&json!("b"), &json!(1)));
    assert_eq!(again.completes(&second, "1").await.status, StatusCode::OK);
    hall.until(&task, |task| task.task.native_status == TaskStatus::Completed).await;
}

/// LEASE-18: an operator sends a worker away: it gets nothing more, finishes what it has, and leaves.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_is_drained() {
    let hall = Hall::open().await;
    let to = hall.gateway(worker("ant")).await;
    let mut hand = Hand::of_one(to).await;
    let task = create(&hall, &["a", "b"]).await;
    let claim = hand.granted().await;
    hall.backend.drain(Some(5_000));
    let drain = hand.fetch().await.remove(0);
    assert_eq!(drain, json!({ "number": 2, "drain": true, "time_left_ms": 5_000 }));
    assert_eq!(send(hand.ask(Method::GET, "")).await.json()["drain"], true);
    assert_eq!(hand.completes(&claim, "1").await.status, StatusCode::OK);
    assert!(hand.fetch_after(2, "300ms").await.is_empty(), "the other step is for others");
    assert_eq!(hand.leave().await.status, StatusCode::NO_CONTENT);
    let mut other = Hand::of_one(to).await;
    let second = other.granted().await;
    assert_eq!((&second["step"]["step_id"], &second["ordinal"]), (&json!("b"), &json!(1)));
    other.completes(&second, "1").await;
    hall.until(&task, |task| task.task.native_status == TaskStatus::Completed).await;
}

/// What a worker says that it never got goes to another one at once.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_worker_did_not_get_goes_back_when_it_leaves() {
    let hall = Hall::open().await;
    let to = hall.gateway(worker("ant")).await;
    let mut hand = Hand::of_one(to).await;
    create(&hall, &["a"]).await;
    let claim = hand.granted().await;
    hand.after = 0; // As if the answer had not come.
    assert_eq!(hand.leave().await.status, StatusCode::NO_CONTENT);
    let again = Hand::of_one(to).await.granted().await;
    assert_eq!((&again["ordinal"], again.get("was_lost")), (&json!(2), None));
    assert_ne!(again["attempt_id"], claim["attempt_id"]);
}
