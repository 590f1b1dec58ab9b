//! Queries: tags, long polls and pages.

use hyper::{Method, StatusCode};
use serde_json::{Value as Json, json};

use crate::gateway::{SESSION, TestGateway, is_held, tasks};
use crate::http::send;

#[tokio::test]
async fn who_has_a_version_does_not_get_it_again() {
    let gateway = TestGateway::open().await;
    gateway.create("t", "hold").await;
    let task = gateway.until("t", is_held).await;
    let tag = format!("\"{}-{}\"", task["version"], task["spec_version"]);
    let read = async |known: &str| {
        send(gateway.ask(Method::GET, &tasks("/t")).header("if-none-match", known)).await
    };
    let same = read(&tag).await;
    assert_eq!((same.status, same.header("etag")), (StatusCode::NOT_MODIFIED, tag.as_str()));
    assert!(same.body.is_empty());
    assert_eq!(read("\"1-1\"").await.status, StatusCode::OK);
    gateway.gate.add_permits(1);
    gateway.until("t", |task| task["native_status"] == "completed").await;
    assert_eq!(read(&tag).await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_long_poll_ends_without_an_answer_when_nothing_happens() {
    let gateway = TestGateway::open().await;
    gateway.create("t", "hold").await;
    let task = gateway.until("t", is_held).await;
    let path = tasks(&format!("/t?wait=50ms&since={}", task["version"]));
    assert_eq!(send(gateway.ask(Method::GET, &path)).await.status, StatusCode::NO_CONTENT);
    let at_once = tasks(&format!("/t?since={}", task["version"]));
    assert_eq!(send(gateway.ask(Method::GET, &at_once)).await.status, StatusCode::NO_CONTENT);
    for (query, field) in [("wait=soon&since=1", "wait"), ("wait=1s", "since")] {
        let refused = send(gateway.ask(Method::GET, &tasks(&format!("/t?{query}")))).await;
        assert_eq!(
            (refused.status, refused.field().as_str()),
            (StatusCode::UNPROCESSABLE_ENTITY, field)
        );
    }
    gateway.gate.add_permits(1);
}

/// LIST-06: pages put together are the list.
#[tokio::test]
async fn a_list_is_read_page_by_page() {
    let gateway = TestGateway::open().await;
    for at in 0..5 {
        gateway.create(&format!("t{at}"), "hold").await;
    }
    let (mut found, mut path) = (Vec::new(), tasks("?limit=2&statuses=pending,running"));
    loop {
        let page = gateway.get(&path).await.json();
        let listed = page["tasks"].as_array().unwrap();
        assert!(listed.len() <= 2);
        found.extend(listed.iter().map(|task| task["task_id"].as_str().unwrap().to_owned()));
        let Some(token) = page["next_page_token"].as_str() else { break };
        path = tasks(&format!("?limit=2&statuses=pending,running&page_token={token}"));
        let other = tasks(&format!("?limit=2&page_token={token}"));
        let refused = send(gateway.ask(Method::GET, &other)).await;
        assert_eq!(refused.field(), "page_token", "it is of the list with other filters");
    }
    found.sort();
    assert_eq!(found, ["t0", "t1", "t2", "t3", "t4"]);
    gateway.gate.add_permits(5);
}

#[tokio::test]
async fn tasks_are_found_by_their_labels() {
    let gateway = TestGateway::open().await;
    for (id, team) in [("t", "a=b"), ("u", "c")] {
        let body = json!({ "task_id": id, "title": id, "draft": true, "labels": { "team": team } });
        assert_eq!(gateway.post(&tasks(""), &body).await.status, StatusCode::CREATED);
    }
    let listed = gateway.get(&tasks("?labels=team%3Da%3Db")).await.json();
    let ids: Vec<&Json> =
        listed["tasks"].as_array().unwrap().iter().map(|it| &it["task_id"]).collect();
    assert_eq!(ids, ["t"]);
}

#[tokio::test]
async fn every_query_about_a_task_has_a_path() {
    let gateway = TestGateway::open().await;
    gateway.create("t", "echo").await;
    gateway.until("t", |task| task["native_status"] == "completed").await;
    for (rest, field) in [
        ("/steps?include_terminal_steps=true", "steps"),
        ("/steps/a/explain", "headline"),
        ("/explain", "groups"),
        ("/board?token_budget=500", "lines"),
        ("/history?from_seq=1&to_seq=3", "timeline"),
        ("/replay?to_seq=1", "task_id"),
        ("/facts?limit=1", "facts"),
    ] {
        let answer = gateway.get(&tasks(&format!("/t{rest}"))).await.json();
        assert!(answer.get(field).is_some(), "{rest}: {answer}");
    }
    for (rest, field) in [("/views?views=task_summary", "snapshot"), ("/template", "text")] {
        let answer = gateway.get(&format!("/v1/sessions/{SESSION}{rest}")).await.json();
        assert!(answer.get(field).is_some(), "{rest}: {answer}");
    }
}

/// CTRL-06
#[tokio::test]
async fn an_answer_keeps_to_its_limit() {
    let gateway = TestGateway::open().await;
    gateway.create("t", "echo").await;
    let whole = gateway.get(&tasks("/t")).await.json();
    assert!(whole.get("left_out").is_none());
    let short = gateway.get(&tasks("/t?max_bytes=600")).await.json();
    assert_eq!(short["left_out"]["task_id"], "t");
}
