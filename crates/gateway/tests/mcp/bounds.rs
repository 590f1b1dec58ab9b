//! What one caller may take: streams, and calls whose answers a session keeps.

use std::time::Duration;

use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::house::House;
use crate::older::{ask, begin};
use crate::talk::Talk;

/// So few connections leave eight to streams, and six of these to one caller.
const CONNECTIONS: usize = 10;

/// Mechanisms 15: streams of both kinds of versions count, and whoever has as many as one may have is refused before
/// anything is done. Others have theirs.
#[tokio::test]
async fn streams_of_one_caller_leave_some_to_others() {
    let house = House::open().await;
    let site = house.narrow_site(CONNECTIONS).await;
    let ada = Talk::of(site.address, "ada-token");
    let older = begin(&ada.with("tenure-session", "main")).await;
    let listen = json!({ "notifications": { "resourceSubscriptions": ["tenure://task/main/t"] } });
    let mut open = Vec::new();
    for n in 0..6 {
        let stream = match n % 2 {
            0 => ada.post("subscriptions/listen", listen.clone()).await,
            _ => older.send("GET", "").await,
        };
        assert_eq!((stream.status, stream.header("content-type")), (200, "text/event-stream"));
        open.push(stream);
    }
    let make = json!({ "name": "task_create", "arguments": { "task_id": "t", "title": "t", "steps": [] } });
    let refused = ada.post("tools/call", make).await;
    assert_eq!(refused.status, 429);
    assert!(refused.headers.contains_key("retry-after"));
    assert_eq!(older.send("GET", "").await.status, 429);
    let bob = Talk::of(site.address, "bob-token");
    let tasks = bob.done("task_list", json!({})).await;
    assert_eq!(tasks["tasks"], json!([]), "what was refused was not done");
    drop(open);
    let again = async {
        while ada.post("tools/list", json!({})).await.status != 200 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(20), again).await.expect("its streams are closed");
}

/// Mechanisms 15: a caller with too many calls of late is told to come again; its notifications and sessions count with
/// them, and the newest version, of whose answers nothing is kept, is open to it.
#[tokio::test]
async fn calls_in_older_sessions_are_bounded() {
    let house = House::open().await;
    let site = house.site().await;
    let ann = Talk::of(site.address, "ann-token");
    let older = begin(&ann).await;
    let mut refused = None;
    for _ in 0..4_000 {
        let answer = ask(&older, "ping", json!({})).await;
        if answer.status != 200 {
            refused = Some(answer);
            break;
        }
    }
    let refused = refused.expect("four thousand are too many");
    assert_eq!(refused.status, 429);
    assert!(refused.headers.contains_key("retry-after"));
    assert_eq!(ann.post("tools/list", json!({})).await.status, 200);
    let ada = begin(&Talk::of(site.address, "ada-token").with("tenure-session", "main")).await;
    assert_eq!(ask(&ada, "ping", json!({})).await.status, 200);
}
