//! The hints of a session.

use hyper::StatusCode;

use super::house::{House, observer_of};
use super::http::{StreamReader, get};

const PATH: &str = "/v1/sessions/main/events";

#[tokio::test]
async fn a_reader_learns_of_every_task_of_the_session() {
    let house = House::open().await;
    let mut stream = StreamReader::open(house.address, PATH, &[]).await;
    let task = house.create("echo").await;
    let ended = house.client.wait_for_end(&task).await.unwrap();
    loop {
        let hint = stream.next().await.unwrap();
        assert_eq!((hint.event.as_deref(), &hint.id), (Some("task"), &None));
        assert_eq!(hint.data["task_id"], task.as_str());
        if hint.data["ended"] == "completed" {
            assert_eq!(hint.data["version"], ended.version);
            return;
        }
        assert!(hint.data.get("ended").is_none(), "{hint:?}");
    }
}

/// The stream keeps no places: who was away lists the Tasks again.
#[tokio::test]
async fn a_reader_that_comes_back_is_told_of_the_gap() {
    let house = House::open().await;
    let mut stream = StreamReader::open(house.address, PATH, &[("last-event-id", "live")]).await;
    let gap = stream.next().await.unwrap();
    assert_eq!(
        (gap.event.as_deref(), &gap.data["reason"]),
        (Some("gap"), &"place_not_kept".into())
    );
    house.create("echo").await;
    assert_eq!(stream.next().await.unwrap().event.as_deref(), Some("task"));
}

#[tokio::test]
async fn runtime_events_come_to_those_who_ask_for_them() {
    let house = House::open().await;
    let path = format!("{PATH}?runtime=true");
    let mut stream = StreamReader::open(house.address, &path, &[]).await;
    let task = house.create("hold").await;
    while house.client.get(&task).await.unwrap().active_run_ids.is_empty() {
        tokio::task::yield_now().await;
    }
    house.client.cancel(&task, "enough").await.unwrap();
    loop {
        let received = stream.next().await.unwrap();
        if received.event.as_deref() == Some("runtime") {
            assert_eq!(received.data["task_id"], task.as_str());
            return;
        }
    }
}

#[tokio::test]
async fn a_foreign_session_is_forbidden() {
    let house = House::open_for(observer_of(vec!["other".parse().unwrap()])).await;
    assert_eq!(get(house.address, PATH, &[]).await.status(), StatusCode::FORBIDDEN);
    let malformed = get(house.address, "/v1/sessions/MAIN/events", &[]).await;
    assert_eq!(malformed.status(), StatusCode::UNPROCESSABLE_ENTITY);
}
