//! Clients that listen to their tasks, instead of asking again and again (SEP-2663).

use serde_json::{Value as Json, json};
use tenure_core::status::Role;

use crate::house::{House, LONG, TASKS};
use crate::talk::{Talk, say};

/// What a client is told next, of the subscription with this id.
async fn told(talk: &mut Talk, id: u64, method: &str) -> Json {
    let mut notified = talk.notified().await;
    assert_eq!(notified["method"], method, "{notified}");
    let of = &notified["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"];
    assert_eq!(*of, id, "{notified}");
    notified["params"].as_object_mut().unwrap().remove("_meta");
    notified["params"].take()
}

/// Without what is of one answer alone.
fn bare(mut task: Json) -> Json {
    let fields = task.as_object_mut().unwrap();
    for name in ["resultType", "_meta"] {
        fields.remove(name);
    }
    task
}

const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";
const OF_TASK: &str = "notifications/tasks";

/// A client is told what `tasks/get` would answer, whenever that changes, and from how it is on; of tasks that are not
/// there for it nothing is told.
#[tokio::test]
async fn a_client_is_told_of_its_tasks() {
    let house = House::open().await;
    let (mut talk, mut asks) = (house.talk().await, house.talk().await);
    let made = asks.act("hold", "on").await["taskId"].clone();
    let of_bob = house.talk_as("bob").await.act("hold", "on").await["taskId"].clone();
    let filter = json!({"notifications": {"taskIds": [made, of_bob, "none", made]}});
    let id = talk.begin_request("subscriptions/listen", filter).await;
    let accepted = told(&mut talk, id, ACKNOWLEDGED).await;
    assert_eq!(accepted, json!({"notifications": {"taskIds": [made]}}));
    let mut seen = told(&mut talk, id, OF_TASK).await;
    while seen["statusMessage"].is_null() {
        assert_eq!((&seen["taskId"], &seen["status"]), (&made, &json!("working")));
        seen = told(&mut talk, id, OF_TASK).await;
    }
    assert_eq!(seen["statusMessage"], "holds on");
    house.gate.add_permits(2);
    let seen = told(&mut talk, id, OF_TASK).await;
    assert_eq!(seen["status"], "completed", "{seen}");
    assert_eq!(bare(seen), bare(asks.get(&made).await));
}

/// A question is told with its form, and what comes of the answer, too. A task that had ended before is told once.
#[tokio::test]
async fn a_question_is_told() {
    let house = House::open().await;
    let (mut talk, mut asks) = (house.talk().await, house.talk().await);
    let ended = asks.act("echo", "done").await["taskId"].clone();
    asks.until(&ended, "completed").await;
    let made = asks.act("ask", "where to?").await["taskId"].clone();
    asks.until(&made, "input_required").await;
    let filter = json!({"notifications": {"taskIds": [ended, made]}});
    let id = talk.begin_request("subscriptions/listen", filter).await;
    told(&mut talk, id, ACKNOWLEDGED).await;
    let mut first = [told(&mut talk, id, OF_TASK).await, told(&mut talk, id, OF_TASK).await];
    first.sort_by_key(|it| it["status"].to_string());
    assert_eq!((&first[0]["status"], &first[0]["taskId"]), (&json!("completed"), &ended));
    let [_, asked] = first;
    assert_eq!(asked["inputRequests"]["call.1.0"]["params"]["message"], "where to?");
    asks.update(&made, json!({"call.1.0": say("Rome")})).await;
    let mut seen = told(&mut talk, id, OF_TASK).await;
    while seen["status"] == "working" {
        seen = told(&mut talk, id, OF_TASK).await;
    }
    assert_eq!((&seen["taskId"], &seen["status"]), (&made, &json!("completed")), "{seen}");
    // Who listens no more is answered, and the connection goes on.
    talk.send(&json!({
        "jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id},
    }))
    .await;
    assert_eq!(talk.get(&made).await["status"], "completed");
}

/// Tasks and addresses are followed by one request, and a server that ends says so.
#[tokio::test]
async fn tasks_and_addresses_are_followed_together() {
    let house = House::open().await;
    let (mut talk, mut asks) = (house.talk().await, house.talk().await);
    let made = asks.act("hold", "on").await["taskId"].clone();
    let uri = format!("tenure://task/main/{}", made.as_str().unwrap());
    let filter = json!({"notifications": {
        "taskIds": [made], "resourceSubscriptions": [uri, "tenure://task/other/t", "x"],
    }});
    let id = talk.begin_request("subscriptions/listen", filter).await;
    let accepted = told(&mut talk, id, ACKNOWLEDGED).await;
    let expected = json!({"notifications": {"taskIds": [made], "resourceSubscriptions": [uri]}});
    assert_eq!(accepted, expected);
    house.gate.add_permits(1);
    let (mut is_ended, mut is_updated) = (false, false);
    while !is_ended || !is_updated {
        let notified = talk.notified().await;
        is_ended |= notified["params"]["status"] == "completed";
        is_updated |= notified["params"]["uri"] == uri.as_str();
    }
}

/// It is for clients that know the extension, of the newest version, and bounded. Anything else is as without it.
#[tokio::test]
async fn listening_has_its_bounds() {
    let house = House::open().await;
    let many: Vec<String> = (0..65).map(|number| format!("t-{number}")).collect();
    let listen = |ids: Json| json!({"notifications": {"taskIds": ids}});
    let mut talk = house.talk().await;
    assert_eq!(talk.refusal("subscriptions/listen", listen(json!(many))).await, -32602);
    assert_eq!(talk.refusal("subscriptions/listen", listen(json!("t"))).await, -32602);
    assert_eq!(talk.refusal("dev.tenure/other", json!({})).await, -32601);
    let mut other = house.waiting_talk(json!({}), LONG).await;
    assert_eq!(other.refusal("subscriptions/listen", listen(json!(["t"]))).await, -32021);
    let server = house.server("ann", Role::Orchestrator, LONG);
    let mut older = Talk::older(server, json!({"extensions": {TASKS: {}}})).await;
    assert_eq!(older.refusal("subscriptions/listen", listen(json!(["t"]))).await, -32601);
}
