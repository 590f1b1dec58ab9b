//! Parts of a Task that have a path of their own.

use hyper::{Method, StatusCode};

use crate::gateway::{TestGateway, tasks};
use crate::http::send;

#[tokio::test]
async fn attempts_and_runs_are_found_by_their_ids() {
    let gateway = TestGateway::open().await;
    gateway.create("t", "echo").await;
    gateway.until("t", |task| task["native_status"] == "completed").await;
    let step = gateway.get(&tasks("/t/steps/a")).await.json();
    assert_eq!((&step["step_id"], &step["status"]), (&"a".into(), &"completed".into()));
    let attempts = gateway.get(&tasks("/t/attempts?step_id=a&limit=1")).await.json();
    let attempt = &attempts["attempts"][0];
    assert!(attempts.get("next_page_token").is_none(), "there is one");
    let (id, run) = (attempt["attempt_id"].as_str().unwrap(), attempt["run_id"].as_str().unwrap());
    let one = gateway.get(&tasks(&format!("/t/attempts/{id}"))).await.json();
    assert_eq!(&one, attempt);
    let first = gateway.get(&tasks("/t/steps/a/attempts/1")).await.json();
    assert_eq!(&first, attempt, "it is the first of its step");
    let one = gateway.get(&tasks(&format!("/t/runs/{run}"))).await.json();
    assert_eq!(one["run_id"], run);
    let runs = gateway.get(&tasks("/t/runs")).await.json();
    assert_eq!(runs["runs"][0]["run_id"], run);
    let none = gateway.get(&tasks("/t/attempts?step_id=b")).await.json();
    assert_eq!(none["attempts"].as_array().unwrap().len(), 0);
    assert!(gateway.get(&tasks("/t/artifacts")).await.json()["artifacts"].is_array());
}

#[tokio::test]
async fn what_is_not_there_is_not_found() {
    let gateway = TestGateway::open().await;
    gateway.create("t", "hold").await;
    let nobody = "01938f5e-7a3c-7d52-9c41-0d6a1b2e3f40";
    for (rest, code) in [
        ("/none".to_owned(), "task_not_found"),
        ("/t/steps/none".to_owned(), "step_not_found"),
        (format!("/t/runs/{nobody}"), "run_not_found"),
        (format!("/t/attempts/{nobody}"), "validation_error"),
        ("/t/steps/a/attempts/9".to_owned(), "validation_error"),
        ("/t/steps/none/attempts/1".to_owned(), "validation_error"),
    ] {
        let absent = send(gateway.ask(Method::GET, &tasks(&rest))).await;
        assert_eq!(
            (absent.status, absent.code().as_str()),
            (StatusCode::NOT_FOUND, code),
            "{rest}"
        );
    }
    for rest in [
        "/t/attempts?limit=0",
        "/t/attempts/x",
        "/t/runs/x",
        "/T",
        "/t/steps/X",
        "/t/steps/a/attempts/x",
    ] {
        let refused = send(gateway.ask(Method::GET, &tasks(rest))).await;
        assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY, "{rest}");
    }
}
