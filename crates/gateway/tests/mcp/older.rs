//! Older versions of MCP, which have sessions: bounded, each for its own caller, and of no weight.

use serde_json::{Value as Json, json};

use crate::house::House;
use crate::talk::{Answer, Talk};

/// Begins a session.
pub(crate) async fn begin(talk: &Talk) -> Talk {
    let mut answer = initialize(talk).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.message_with_id().await["result"]["protocolVersion"], "2025-06-18");
    let session = answer.header("mcp-session-id").to_owned();
    assert!(!session.is_empty());
    let talk = talk.with("mcp-session-id", session).with("mcp-protocol-version", "2025-06-18");
    let noted = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    assert_eq!(talk.send("POST", noted.to_string()).await.status, 202);
    talk
}

async fn initialize(talk: &Talk) -> Answer {
    let params = json!({
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "test", "version": "1" },
    });
    let message = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
    talk.send("POST", message.to_string()).await
}

pub(crate) async fn ask(talk: &Talk, method: &str, params: Json) -> Answer {
    let message = json!({ "jsonrpc": "2.0", "id": 5, "method": method, "params": params });
    talk.send("POST", message.to_string()).await
}

#[tokio::test]
async fn a_session_works_and_ends() {
    let house = House::open().await;
    let site = house.site().await;
    let ann = begin(&Talk::of(site.address, "ann-token")).await;
    let call = json!({ "name": "task_list", "arguments": {} });
    let answer = ask(&ann, "tools/call", call.clone()).await.message_with_id().await;
    assert_eq!(answer["result"]["structuredContent"]["tasks"], json!([]));
    assert!(answer["result"].get("resultType").is_none(), "older versions do not have it");
    assert_eq!(ann.send("DELETE", "").await.status, 204);
    assert_eq!(ask(&ann, "tools/call", call).await.status, 404);
}

/// An unknown session is 404, and `initialize` with one begins a new session: as after a restart of the gateway.
#[tokio::test]
async fn a_session_that_is_gone_is_begun_anew() {
    let house = House::open().await;
    let (one, two) = (house.site().await, house.site().await);
    let ann = begin(&Talk::of(one.address, "ann-token")).await;
    one.stop().await;
    let mut elsewhere = Talk::of(two.address, "ann-token");
    elsewhere.headers.clone_from(&ann.headers);
    assert_eq!(ask(&elsewhere, "tools/list", json!({})).await.status, 404);
    assert_eq!(elsewhere.send("GET", "").await.status, 404);
    let again = begin(&elsewhere).await;
    assert_eq!(ask(&again, "tools/list", json!({})).await.status, 200);
    assert_ne!(again.headers, ann.headers, "it is another one");
}

/// Whoever learns the id of a session cannot use it.
#[tokio::test]
async fn a_session_is_for_the_one_who_began_it() {
    let house = House::open().await;
    let site = house.site().await;
    let ann = begin(&Talk::of(site.address, "ann-token")).await;
    for token in ["ada-token", "bob-token", "eve-token"] {
        let mut thief = Talk::of(site.address, token);
        thief.headers.clone_from(&ann.headers);
        assert_eq!(ask(&thief, "tools/list", json!({})).await.status, 404, "{token}");
        assert_eq!(thief.send("GET", "").await.status, 404, "{token}");
        assert_eq!(thief.send("DELETE", "").await.status, 404, "{token}");
    }
    assert_eq!(ask(&ann, "tools/list", json!({})).await.status, 200, "it is still there");
}

#[tokio::test]
async fn a_subscriber_is_told_on_the_stream_of_its_session() {
    let house = House::open().await;
    let site = house.site().await;
    let ann = begin(&Talk::of(site.address, "ann-token")).await;
    let steps = json!([{ "step_id": "a", "title": "A" }]);
    let create = json!({ "name": "task_create", "arguments": { "task_id": "t", "title": "T", "steps": steps } });
    ask(&ann, "tools/call", create).await.message_with_id().await;
    let mut stream = ann.send("GET", "").await;
    assert_eq!(stream.status, 200);
    let subscribed =
        ask(&ann, "resources/subscribe", json!({ "uri": "tenure://task/main/t" })).await;
    assert_eq!({ subscribed }.message_with_id().await["result"], json!({}));
    let client = house.client("main");
    let change = async {
        loop {
            client.pause(&"t".parse().unwrap(), "").await.unwrap();
            client.resume(&"t".parse().unwrap(), "").await.unwrap();
            tokio::task::yield_now().await;
        }
    };
    let told = tokio::select! {
        told = stream.message() => told.unwrap(),
        () = change => unreachable!("it goes on"),
    };
    assert_eq!(told["method"], "notifications/resources/updated");
    assert_eq!(told["params"]["uri"], "tenure://task/main/t");
}
