//! The events of one Task.

use hyper::StatusCode;
use tenure_sdk::client::{Step, Task};

use super::house::{House, observer_of, session};
use super::http::{Received, StreamReader, get, json};

/// All events of a Task that has ended, and the frame of the end.
async fn all(house: &House, path: &str) -> (Vec<Received>, Received) {
    let mut all = StreamReader::open(house.address, path, &[]).await.rest().await;
    let end = all.pop().unwrap();
    assert_eq!(end.event.as_deref(), Some("end"));
    (all, end)
}

fn ids(events: &[Received]) -> Vec<&str> {
    events.iter().map(|event| event.id.as_deref().unwrap()).collect()
}

/// A reader that is there from the start gets the same events, in the same order, as one that asks for pages.
#[tokio::test]
async fn a_stream_has_every_event_and_ends_with_its_task() {
    let house = House::open().await;
    let task = house.create("hold").await;
    let path = House::path(&task, "/events");
    let mut early = StreamReader::open(house.address, &path, &[]).await;
    let first = early.next().await.unwrap();
    assert_eq!((first.id.as_deref(), &first.data["event"]), (Some("1.1"), &"task.created".into()));
    house.gate.add_permits(1);
    let mut seen = early.rest().await;
    seen.insert(0, first);
    let end = seen.pop().unwrap();
    let (late, end_again) = all(&house, &path).await;
    assert_eq!((&seen, &end), (&late, &end_again));
    let (status, page) = json(get(house.address, &path, &[]).await).await;
    assert_eq!(status, StatusCode::OK);
    let read: Vec<_> = page["events"].as_array().unwrap().iter().collect();
    assert_eq!(seen.iter().map(|event| &event.data).collect::<Vec<_>>(), read);
    assert_eq!(seen.iter().filter(|event| event.data["terminal"] == true).count(), 1);
    assert_eq!((&end.data["status"], &end.data["version"]), (&page["status"], &page["version"]));
    assert_eq!((end.id, &page["next"]), (None, &page["version"]));
}

/// A reader may lose its connection between any two events, also between those of one place in the log.
#[tokio::test]
async fn a_reader_that_comes_back_misses_nothing_and_gets_nothing_twice() {
    let house = House::open().await;
    let task = house.create("echo").await;
    let path = House::path(&task, "/events");
    let (events, end) = all(&house, &path).await;
    let ids = ids(&events);
    assert!(ids.iter().any(|id| id.ends_with(".2")), "some share a place: {ids:?}");
    for (at, id) in ids.iter().enumerate() {
        let left = [&events[at + 1..], std::slice::from_ref(&end)].concat();
        let since = format!("{path}?since={id}");
        assert_eq!(StreamReader::open(house.address, &since, &[]).await.rest().await, left, "{id}");
        let (_, page) = json(get(house.address, &since, &[]).await).await;
        let read = page["events"].as_array().unwrap();
        assert_eq!(read.len(), left.len() - 1, "{id}");
        if at + 1 < ids.len() {
            // The place in the header is newer than that in the address.
            let last = [("last-event-id", *id)];
            let again = format!("{path}?since=0");
            let got = StreamReader::open(house.address, &again, &last).await.rest().await;
            assert_eq!(got, left, "{id}");
            let (_, page) = json(get(house.address, &again, &last).await).await;
            assert_eq!(page["events"].as_array().unwrap().len(), left.len() - 1, "{id}");
        }
    }
    let sse = ("accept", "text/event-stream");
    let last = [sse, ("last-event-id", ids[ids.len() - 1])];
    assert_eq!(get(house.address, &path, &last).await.status(), StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn a_place_that_is_not_in_the_log_is_refused_or_told_of() {
    let house = House::open().await;
    let task = house.create("echo").await;
    house.client.wait_for_end(&task).await.unwrap();
    let path = House::path(&task, "/events");
    let sse = ("accept", "text/event-stream");
    for headers in [&[][..], &[sse]] {
        for since in ["1000", "1000.1", "-1", "7.", "x"] {
            let (status, problem) =
                json(get(house.address, &format!("{path}?since={since}"), headers).await).await;
            assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{since}");
            assert_eq!(problem["details"]["field"], "since", "{problem}");
        }
    }
    for id in ["1000", "1000.1", "-1", "7.", "x", "1.0", "18446744073709551616", "1; DROP"] {
        let (status, problem) =
            json(get(house.address, &path, &[sse, ("last-event-id", id)]).await).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{id}");
        assert_eq!(problem["code"], "validation_error", "{id}");
    }
    let mut stream = StreamReader::open(house.address, &path, &[("last-event-id", "1.3")]).await;
    let gap = stream.next().await.unwrap();
    assert_eq!((gap.event.as_deref(), &gap.data["reason"]), (Some("gap"), &"place_unknown".into()));
    assert!(stream.next().await.unwrap().id.unwrap().starts_with("2."), "it goes on behind it");
    let unknown = get(house.address, &format!("{path}?sinse=1"), &[]).await;
    assert_eq!(unknown.status(), StatusCode::UNPROCESSABLE_ENTITY);
}

/// Readers that come at any time share what is sent, and each gets all of it.
#[tokio::test]
async fn many_readers_of_a_task_get_the_same() {
    let house = House::open().await;
    let steps = (0..20).map(|number| Step::new(&format!("s{number}")).handler("hold"));
    let task = house.client.create(Task::new("many").steps(steps)).await.unwrap();
    let path = House::path(&task, "/events");
    let mut readers = Vec::new();
    for number in 0..50 {
        let mut reader = StreamReader::open(house.address, &path, &[]).await;
        readers.push(tokio::spawn(async move { reader.rest().await }));
        if number % 2 == 0 {
            house.gate.add_permits(1);
        }
    }
    house.gate.add_permits(20);
    let (events, end) = all(&house, &path).await;
    let expected = [events, vec![end]].concat();
    for reader in readers {
        assert_eq!(reader.await.unwrap(), expected);
    }
}

#[tokio::test]
async fn a_task_of_a_foreign_session_is_not_there() {
    let house = House::open_for(observer_of(vec!["other".parse().unwrap()])).await;
    let task = house.create("echo").await;
    for rest in ["/events", "/log", "/steps/a/attempts/1/logs"] {
        let (status, problem) =
            json(get(house.address, &House::path(&task, rest), &[]).await).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{rest}");
        assert_eq!(problem["code"], "task_not_found", "{rest}");
    }
    let house = House::open_for(observer_of(vec![session()])).await;
    let task = house.create("echo").await;
    let (events, _) = all(&house, &House::path(&task, "/events")).await;
    assert!(!events.is_empty(), "an observer reads in its own session");
    let absent = House::path(&"absent".parse().unwrap(), "/events");
    let absent = get(house.address, &absent, &[("accept", "text/event-stream")]).await;
    assert_eq!(absent.status(), StatusCode::NOT_FOUND);
}
