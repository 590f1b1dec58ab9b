//! What commands wrote.

use std::fs::{self, OpenOptions};
use std::io::Write as _;

use http_body_util::BodyExt as _;
use hyper::StatusCode;
use tenure_core::id::{AttemptId, TaskId};
use tenure_ports::journal::TaskKey;
use tenure_sdk::worker::AttemptDir;

use super::house::{House, session};
use super::http::{bytes, get, json};

/// A Task whose only Step is at work, and its Attempt.
async fn held(house: &House) -> (TaskId, AttemptId) {
    let task = house.create("hold").await;
    loop {
        if let Some(attempt) = house.client.get(&task).await.unwrap().attempts.first() {
            return (task, attempt.attempt_id);
        }
        tokio::task::yield_now().await;
    }
}

/// The same, and the directory of the Attempt.
async fn at_work(house: &House) -> (TaskId, AttemptId, AttemptDir) {
    let (task, attempt) = held(house).await;
    let key = TaskKey { session_id: session(), task_id: task.clone() };
    let dir = AttemptDir::new(&house.files, &key, &"a".parse().unwrap(), 1);
    fs::create_dir_all(dir.path()).unwrap();
    (task, attempt, dir)
}

#[tokio::test]
async fn an_output_is_read_from_any_byte_and_from_its_last_lines() {
    let house = House::open().await;
    let (task, attempt, dir) = at_work(&house).await;
    let text = format!("first\n{}\nlast \u{1b}[31m<b>\n", "x".repeat(600_000));
    fs::write(dir.stdout(), &text).unwrap();
    fs::write(dir.stderr(), "trouble").unwrap();
    let by_id = House::path(&task, &format!("/attempts/{attempt}/logs"));
    let by_number = House::path(&task, "/steps/a/attempts/1/logs");
    for path in [&by_id, &by_number] {
        for (query, expected) in [
            ("", text.as_str()),
            ("?stream=stderr", "trouble"),
            ("?from=6", &text[6..]),
            ("?from=9000000", ""),
            ("?tail=1", "last \u{1b}[31m<b>\n"),
            ("?tail=2", &text[6..]),
            ("?tail=0", ""),
            ("?tail=9", &text),
        ] {
            let response = get(house.address, &format!("{path}{query}"), &[]).await;
            assert_eq!(response.status(), StatusCode::OK, "{query}");
            assert_eq!(response.headers()["content-type"], "text/plain; charset=utf-8");
            assert_eq!(response.headers()["x-content-type-options"], "nosniff");
            assert_eq!(bytes(response).await.unwrap(), expected.as_bytes(), "{query}");
        }
    }
    let octets = [("accept", "application/octet-stream")];
    let response = get(house.address, &by_id, &octets).await;
    assert_eq!(response.headers()["content-type"], "application/octet-stream");
    for query in ["?stream=x", "?from=1&tail=1", "?tail=100001", "?follow=yes", "?form=1"] {
        let refused = get(house.address, &format!("{by_id}{query}"), &[]).await;
        assert_eq!(refused.status(), StatusCode::UNPROCESSABLE_ENTITY, "{query}");
    }
}

#[tokio::test]
async fn what_is_not_there_is_not_found() {
    let house = House::open().await;
    let (task, attempt, _) = at_work(&house).await;
    let unknown = "/attempts/00000000-0000-0000-0000-000000000000/logs".to_owned();
    let silent = format!("/attempts/{attempt}/logs");
    for rest in
        [unknown.clone(), unknown + "?follow=true", silent, "/steps/a/attempts/2/logs".into()]
    {
        let (status, _) = json(get(house.address, &House::path(&task, &rest), &[]).await).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{rest}");
    }
}

/// No command has run yet, so that there is no directory for what commands write.
#[tokio::test]
async fn where_nothing_was_ever_written_there_is_no_output() {
    let house = House::open().await;
    let (task, attempt) = held(&house).await;
    assert!(!house.files.exists());
    for rest in [format!("/attempts/{attempt}/logs"), "/steps/a/attempts/1/logs".into()] {
        let (status, _) = json(get(house.address, &House::path(&task, &rest), &[]).await).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{rest}");
    }
}

/// A follower gets what comes, and its answer ends with the Attempt.
#[tokio::test]
async fn an_output_is_followed_until_its_attempt_has_ended() {
    let house = House::open().await;
    let (task, attempt, dir) = at_work(&house).await;
    let path = House::path(&task, &format!("/attempts/{attempt}/logs?follow=true"));
    let mut body = get(house.address, &path, &[]).await.into_body();
    fs::write(dir.stdout(), "one\n").unwrap();
    let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(first, "one\n");
    OpenOptions::new().append(true).open(dir.stdout()).unwrap().write_all(b"two\n").unwrap();
    house.gate.add_permits(1);
    assert_eq!(body.collect().await.unwrap().to_bytes(), "two\n");
}
