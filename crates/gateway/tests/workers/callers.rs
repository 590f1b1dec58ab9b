//! Who may do what, and how much of it.

use std::net::SocketAddr;

use hyper::{Method, StatusCode};
use serde_json::{Value as Json, json};
use tenure_core::status::Role;
use tenure_gateway::identity::{Allowed, Identity};
use tenure_sdk::client::{Step, Task};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::hall::{Hall, worker};
use crate::hand::{Hand, WORKERS};
use crate::http::{Answer, Exchange, send};

async fn post(to: SocketAddr, path: &str, body: Json) -> Answer {
    send(Exchange::new(to, Method::POST, path).json(&body)).await
}

fn status_and_code(answer: &Answer) -> (u16, String) {
    (answer.status.as_u16(), answer.code())
}

/// PERM-16: a link is its maker's, in its pool; to anybody else it is not there.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_uses_the_link_of_another() {
    let hall = Hall::open().await;
    let ant_of_all = Identity { pools: Allowed::All, ..worker("ant") };
    let as_orchestrator = Identity { role: Role::Orchestrator, ..ant_of_all.clone() };
    let callers = vec![worker("ant"), worker("bee"), ant_of_all, as_orchestrator];
    let to = hall.gateway_for(callers).await;
    let mut hand = Hand::of_one(to[0]).await;
    hall.client.create(Task::new("a task").step(Step::new("a").handler("echo"))).await.unwrap();
    let claim = hand.granted().await;
    let link = format!("{WORKERS}/{}", hand.link);
    let elsewhere = format!("/v1/pools/other/workers/{}", hand.link);
    for (to, path) in [(to[1], &link), (to[2], &elsewhere), (to[3], &link)] {
        let refused = send(Exchange::new(to, Method::GET, &format!("{path}/deliveries"))).await;
        assert_eq!(status_and_code(&refused), (404, "worker_gone".into()), "{path}");
        let refused = send(Exchange::new(to, Method::DELETE, path)).await;
        assert_eq!(status_and_code(&refused), (404, "worker_gone".into()), "{path}");
    }
    let path = format!("{link}/attempts/{}/report", claim["attempt_id"].as_str().unwrap());
    let refused = post(to[1], &path, json!({})).await;
    assert_eq!(status_and_code(&refused), (404, "worker_gone".into()));
    // Through a link of its own it does not speak of the Step of another, either.
    let bee = Hand::of_one(to[1]).await;
    let refused = bee.completes(&claim, "1").await;
    assert!(matches!(refused.status.as_u16(), 403 | 409), "{:?}", refused.body);
    assert_eq!(hand.completes(&claim, "1").await.status, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_may_not_work_in_a_pool_does_not_join_it() {
    let hall = Hall::open().await;
    let observer = Identity { role: Role::Observer, ..Identity::local() };
    let to = hall.gateway_for(vec![worker("ant"), observer, Identity::local()]).await;
    let other = post(to[0], "/v1/pools/other/workers", json!({})).await;
    assert_eq!(status_and_code(&other), (403, "permission_denied".into()));
    let other = send(Exchange::new(to[0], Method::GET, "/v1/pools/other/workers/x")).await;
    assert_eq!(status_and_code(&other), (403, "permission_denied".into()));
    assert_eq!(
        status_and_code(&post(to[1], WORKERS, json!({})).await),
        (403, "permission_denied".into())
    );
    let misnamed = post(to[0], "/v1/pools/Mail/workers", json!({})).await;
    assert_eq!(status_and_code(&misnamed), (422, "validation_error".into()));
    let local = post(to[2], "/v1/pools/any/workers", json!({})).await;
    assert_eq!(local.status, StatusCode::CREATED, "the user of this machine may do everything");
}

/// The answer to a request that says how long its body is, and sends none of it: a server that refuses
/// the body closes the connection, so that whoever still writes may not get to read the answer.
async fn announce(to: SocketAddr, path: &str, length: usize) -> String {
    let mut stream = TcpStream::connect(to).await.unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {to}\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = [0; 1_024];
    let read = stream.read(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer[..read]).into_owned()
}

/// Every limit lets through what is at it, and nothing above it.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_asks_for_too_much() {
    let hall = Hall::open().await;
    let to = hall.gateway(worker("ant")).await;
    let join = async |body: Json| post(to, WORKERS, body).await;
    for (concurrency, status) in [(0, 201), (1_024, 201), (1_025, 422)] {
        let answer = join(json!({ "concurrency": concurrency })).await;
        assert_eq!(answer.status.as_u16(), status, "{:?}", answer.body);
    }
    let names = |count: usize| (0..count).map(|number| format!("h{number}")).collect::<Vec<_>>();
    assert_eq!(join(json!({ "handlers": names(1_024) })).await.status, StatusCode::CREATED);
    assert_eq!(join(json!({ "handlers": names(1_025) })).await.field(), "handlers");
    for (boot, status) in [("x".repeat(64), 201), ("x".repeat(65), 422), ("a.b".into(), 422)] {
        assert_eq!(join(json!({ "boot": boot })).await.status.as_u16(), status, "{boot}");
    }
    assert_eq!(join(json!({ "concurency": 2 })).await.field(), "concurency");
    let hand = Hand::of_one(to).await;
    let held = json!({
        "session_id": "main", "task_id": "t", "run_id": uuid::Uuid::nil(),
        "attempt_id": uuid::Uuid::nil(), "fencing_token": 1, "lease_ms": 60_000,
    });
    let beat = |count: usize| json!({ "holdings": vec![held.clone(); count] });
    assert_eq!(hand.post("/heartbeat", &beat(2_048)).await.status, StatusCode::OK);
    assert_eq!(hand.post("/heartbeat", &beat(2_049)).await.field(), "holdings");
    let long = announce(to, &format!("{WORKERS}/{}/heartbeat", hand.link), (2 << 20) + 1).await;
    assert!(long.starts_with("HTTP/1.1 413 "), "{long}");
    let text = hand.ask(Method::POST, "/heartbeat").body("text/plain", "{}");
    assert_eq!(send(text).await.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let wait = send(hand.ask(Method::GET, "/deliveries?wait=soon")).await;
    assert_eq!(wait.field(), "wait");
    let misspelt = send(hand.ask(Method::GET, "/deliveries?waits=1s")).await;
    assert_eq!(misspelt.field(), "waits");
}

/// PERM-16: a worker is its principal and its boot, and it works in one pool.
#[tokio::test(flavor = "multi_thread")]
async fn a_boot_works_in_one_pool() {
    let hall = Hall::open().await;
    let ant = Identity { pools: Allowed::All, ..worker("ant") };
    let to = hall.gateway(ant).await;
    let joining = json!({ "boot": "b1" });
    assert_eq!(post(to, WORKERS, joining.clone()).await.status, StatusCode::CREATED);
    assert_eq!(post(to, WORKERS, joining.clone()).await.status, StatusCode::OK);
    let other = post(to, "/v1/pools/other/workers", joining).await;
    assert_eq!((other.status, other.field()), (StatusCode::UNPROCESSABLE_ENTITY, "boot".into()));
}
