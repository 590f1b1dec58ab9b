//! Offered tools over HTTP: their tasks are there at every gateway, for the login that began them.

use serde_json::{Value as Json, json};

use crate::house::House;
use crate::talk::Talk;

const FILE: &str = "[[tools]]\nname = \"hold\"\ndescription = \"Holds on until it is let go.\"\n";

/// The parameters of a client that knows the extension Tasks.
fn with_tasks(mut params: Json) -> Json {
    let can = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = can;
    params
}

async fn task(talk: &Talk, id: &Json) -> Json {
    talk.ask("tasks/get", with_tasks(json!({"taskId": id}))).await
}

/// A task that one gateway has made is read, and comes to its end, at another one; it is not there for another login.
#[tokio::test]
async fn every_gateway_serves_a_task() {
    let house = House::open().await;
    let (one, two) = (house.offering_site(FILE).await, house.offering_site(FILE).await);
    let ann = Talk::of(one.address, "ann-token");
    let there = Talk::of(two.address, "ann-token");
    let call = with_tasks(json!({"name": "hold", "arguments": {}}));
    let made = ann.ask("tools/call", call.clone()).await;
    assert_eq!((&made["resultType"], &made["status"]), (&json!("task"), &json!("working")));
    let id = &made["taskId"];
    assert_eq!(task(&there, id).await["createdAt"], made["createdAt"]);
    let ada = Talk::of(two.address, "ada-token").at("/mcp?session=main");
    let mut refused = ada.post("tasks/get", with_tasks(json!({"taskId": id}))).await;
    assert_eq!(refused.message_with_id().await["error"]["code"], -32602);
    let elsewhere = Talk::of(two.address, "ada-token").at("/mcp?session=other");
    let mut refused = elsewhere.post("tasks/get", with_tasks(json!({"taskId": id}))).await;
    assert_eq!(refused.message_with_id().await["error"]["code"], -32602);
    one.stop().await;
    house.gate.add_permits(1);
    loop {
        let seen = task(&there, id).await;
        if seen["status"] == "completed" {
            assert_eq!(seen["result"]["content"][0]["text"], "held");
            break;
        }
    }
    let bob = Talk::of(two.address, "bob-token");
    let listed = bob.ask("tools/list", json!({})).await;
    assert!(listed["tools"].as_array().unwrap().iter().all(|tool| tool["name"] != "hold"));
}

/// The headers of a request for a task are those of its body: 400 and -32020.
#[tokio::test]
async fn headers_name_the_task() {
    let house = House::open().await;
    let site = house.offering_site(FILE).await;
    let ann = Talk::of(site.address, "ann-token");
    let call = with_tasks(json!({"name": "hold", "arguments": {}}));
    let made = ann.ask("tools/call", call).await;
    let mut params = with_tasks(json!({"taskId": made["taskId"]}));
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = crate::talk::NEWEST.into();
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": params});
    let talk =
        ann.with("mcp-protocol-version", crate::talk::NEWEST).with("mcp-method", "tasks/get");
    for (name, status) in [(made["taskId"].as_str().unwrap(), 200), ("other", 400)] {
        let mut answer = talk.with("mcp-name", name).send("POST", body.to_string()).await;
        let message = answer.message_with_id().await;
        assert_eq!(answer.status, status, "{message}");
        assert!(status == 200 || message["error"]["code"] == -32020, "{message}");
    }
    house.gate.add_permits(1);
}

/// A client listens at one gateway to a task that another has begun; the header that names the method is that of the
/// request as the client has written it.
#[tokio::test]
async fn a_client_listens_to_a_task_over_http() {
    let house = House::open().await;
    let (one, two) = (house.offering_site(FILE).await, house.offering_site(FILE).await);
    let (ann, there) = (Talk::of(one.address, "ann-token"), Talk::of(two.address, "ann-token"));
    let made = ann.ask("tools/call", with_tasks(json!({"name": "hold", "arguments": {}}))).await;
    let filter = with_tasks(json!({"notifications": {"taskIds": [made["taskId"]]}}));
    let mut listening = there.post("subscriptions/listen", filter.clone()).await;
    assert_eq!((listening.status, listening.header("content-type")), (200, "text/event-stream"));
    let told = listening.message().await.unwrap();
    assert_eq!(told["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(told["params"]["notifications"], json!({"taskIds": [made["taskId"]]}));
    house.gate.add_permits(1);
    let ended = loop {
        let told = listening.message().await.unwrap();
        assert_eq!(told["method"], "notifications/tasks");
        assert_eq!(told["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 1);
        if told["params"]["status"] != "working" {
            break told["params"].clone();
        }
    };
    assert_eq!(ended["result"]["content"][0]["text"], "held", "{ended}");
    let ada = Talk::of(two.address, "ada-token").at("/mcp?session=main");
    let mut listening = ada.post("subscriptions/listen", filter.clone()).await;
    let told = listening.message().await.unwrap();
    assert_eq!(told["params"]["notifications"], json!({"taskIds": []}), "another caller's");
    let mut params = filter;
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = crate::talk::NEWEST.into();
    let method = "subscriptions/listen";
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let wrong =
        ann.with("mcp-protocol-version", crate::talk::NEWEST).with("mcp-method", "tasks/get");
    let mut answer = wrong.send("POST", body.to_string()).await;
    assert_eq!(answer.message_with_id().await["error"]["code"], -32020);
    assert_eq!(answer.status, 400);
}

/// A client that waits gets its result as the answer, in JSON or in a stream.
#[tokio::test]
async fn a_call_waits_over_http() {
    let house = House::open().await;
    let site = house.offering_site(FILE).await;
    house.gate.add_permits(1);
    let ann = Talk::of(site.address, "ann-token");
    let result = ann.ask("tools/call", json!({"name": "hold", "arguments": {}})).await;
    assert_eq!(result["content"][0]["text"], "held");
}
