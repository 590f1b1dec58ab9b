//! Who may speak to an agent, and what of others it sees.

use hyper::{Method, StatusCode};
use serde_json::json;

use crate::house::{House, caller};
use crate::http::{Exchange, send};
use crate::talk::message;

/// CORE-LIST-001, AUTH-SCOPE-001 to AUTH-SCOPE-003: the tasks of other callers are not there, unless the agent is
/// shared.
#[tokio::test]
async fn a_caller_sees_its_own_tasks() {
    let house = House::open().await;
    let ann = house.talk_as(caller("ann", "echo"), "echo").await;
    let bee = house.talk_as(caller("bee", "echo"), "echo").await;
    let asks = ann.say(message("ask where to?")).await;
    for (method, params) in [
        ("GetTask", json!({"id": asks["id"]})),
        ("CancelTask", json!({"id": asks["id"]})),
        ("SubscribeToTask", json!({"id": asks["id"]})),
    ] {
        assert_eq!(bee.refusal(method, params).await, -32001, "{method}");
    }
    assert_eq!(bee.result("ListTasks", json!({})).await["totalSize"], 0);
    assert_eq!(ann.result("ListTasks", json!({})).await["totalSize"], 1);
    let ann = house.talk_as(caller("ann", "trips"), "trips").await;
    let bee = house.talk_as(caller("bee", "trips"), "trips").await;
    let trip = ann.say(message("echo plan")).await;
    assert_eq!(bee.get(&trip["id"]).await, trip);
}

/// CARD-EXT-001, BIND-EQUIV-004: a caller that is not let into the session of an agent does not speak to it, in neither
/// binding.
#[tokio::test]
async fn an_agent_is_for_those_who_are_let_into_its_session() {
    let house = House::open().await;
    let ann = house.talk_as(caller("ann", "trips"), "echo").await;
    assert_eq!(ann.refusal("SendMessage", json!({"message": message("echo a")})).await, -32600);
    assert_eq!(ann.refusal("GetExtendedAgentCard", json!({})).await, -32600);
    let path = ann.path();
    let answer = send(Exchange::new(ann.to, Method::GET, &format!("{path}/tasks"))).await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    assert_eq!(answer.json()["error"]["status"], "PERMISSION_DENIED");
    let answer = send(Exchange::new(ann.to, Method::POST, "/a2a/nobody").json(&json!({}))).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
}

/// CARD-DISC-001, CARD-PROTO-001 to CARD-PROTO-002, BIND-FIELD-001, CARD-CACHE-001 to CARD-CACHE-003: a card says where
/// its agent is, and may be kept for a while.
#[tokio::test]
async fn cards_stand_where_callers_look_for_them() {
    let house = House::open().await;
    let talk = house.talk("echo").await;
    let card = |path: &str| {
        send(Exchange::new(talk.to, Method::GET, &format!("{path}/.well-known/agent-card.json")))
    };
    let (new, old) = (card("/a2a/echo").await, card("/a2a/echo/v0.3").await);
    let address = format!("http://{}/a2a/echo", talk.to);
    let interfaces = &new.json()["supportedInterfaces"];
    assert_eq!(
        (&interfaces[0]["url"], &interfaces[0]["protocolBinding"]),
        (&json!(address), &json!("JSONRPC"))
    );
    assert_eq!(
        (&interfaces[1]["url"], &interfaces[1]["protocolBinding"]),
        (&json!(address), &json!("HTTP+JSON"))
    );
    assert_eq!(old.json()["url"], format!("{address}/v0.3"));
    assert_eq!(old.json()["skills"][0]["id"], "act");
    assert!(new.header("etag").len() > 10 && new.header("cache-control").contains("max-age"));
    assert!(new.header("last-modified").ends_with(" GMT"), "{:?}", new.headers);
    assert_eq!(card("").await.status, StatusCode::NOT_FOUND, "there are several agents");
}
