//! Agents that become others, callers that need to know something, and streams on which nothing happens.

use std::time::{Duration, Instant};

use hyper::{Method, StatusCode};
use serde_json::{Value as Json, json};
use tenure_gateway::a2a::ServedAgents;

use crate::agents::{agents, read};
use crate::house::House;
use crate::http::{Answer, Exchange, send};
use crate::talk::{Talk, message};

/// Long after the end of a test.
const LATE: Duration = Duration::from_secs(600);

async fn get(talk: &Talk, path: &str) -> Answer {
    let path = format!("{}{path}", talk.path());
    send(Exchange::new(talk.to, Method::GET, &path).header("a2a-version", "1.0")).await
}

fn skills(card: &Json) -> Vec<&str> {
    card["skills"].as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap()).collect()
}

/// A gateway that gets other agents serves these from then on. The tasks of the old ones are still there.
#[tokio::test]
async fn agents_become_others_while_they_are_served() {
    let house = House::open().await;
    let served = ServedAgents::from(agents());
    let talk = Talk::new(house.gateway_of(served.clone(), LATE).await, "echo");
    let task = talk.say(message("echo a")).await;
    served.replace(read("[[agents]]\nname = \"new\"\ndescription = \"New.\"\n"));
    assert_eq!(get(&talk, "/tasks").await.status, StatusCode::NOT_FOUND);
    let new = Talk::new(talk.to, "new");
    assert_eq!(get(&new, "/.well-known/agent-card.json").await.json()["name"], "new");
    let metrics = send(Exchange::new(talk.to, Method::GET, "/metrics")).await;
    let told = format!("tenure_gateway_agents{{digest=\"{}\"}} 1", served.now().digest());
    assert!(String::from_utf8_lossy(&metrics.body).contains(&told), "{:?}", metrics.body);
    served.replace(agents());
    assert_eq!(talk.get(&task["id"]).await, task);
}

/// CORE-CAP-003: callers that are let in read the whole card, in both versions. An agent that has one card for all says
/// so.
#[tokio::test]
async fn callers_read_the_whole_card() {
    let house = House::open().await;
    let (talk, plain) = (house.talk("echo").await, house.talk("trips").await);
    let open = get(&talk, "/.well-known/agent-card.json").await.json();
    assert_eq!(open["capabilities"]["extendedAgentCard"], true);
    assert_eq!(skills(&open), ["act"]);
    let whole = talk.result("GetExtendedAgentCard", json!({})).await;
    assert_eq!(skills(&whole), ["act", "hold"]);
    assert_eq!(get(&talk, "/extendedAgentCard").await.json(), whole);
    assert_eq!(skills(&get(&talk, "/v0.3/v1/card").await.json()), ["act", "hold"]);
    assert_eq!(plain.refusal("GetExtendedAgentCard", json!({})).await, -32004);
    let refused = get(&plain, "/v0.3/v1/card").await.json();
    let reason = &refused["data"][0]["reason"];
    assert_eq!(reason, "EXTENDED_AGENT_CARD_NOT_CONFIGURED");
}

/// CORE-CAP-004, JSONRPC-SVC-002: an agent that requires an extension answers those alone who say that they know it.
/// Its card says so to all.
#[tokio::test]
async fn who_does_not_know_a_required_extension_is_refused() {
    let talk = House::open().await.talk("strict").await;
    let card = get(&talk, "/.well-known/agent-card.json").await.json();
    assert_eq!(card["capabilities"]["extensions"][0]["required"], true);
    assert_eq!(talk.refusal("SendMessage", json!({"message": message("echo a")})).await, -32008);
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}});
    let knows = Exchange::new(talk.to, Method::POST, &talk.path()).json(&body);
    let knows = send(knows.header("a2a-extensions", "https://example.org/needed")).await.json();
    assert_eq!(knows["result"]["totalSize"], 0, "{knows}");
    let list = |headers: &[(&str, &str)]| {
        let exchange = Exchange::new(talk.to, Method::GET, &format!("{}/tasks", talk.path()));
        let exchange = headers.iter().fold(exchange, |it, (name, value)| it.header(name, value));
        async move { send(exchange).await.status }
    };
    assert_eq!(
        list(&[("a2a-extensions", "https://example.org/other")]).await,
        StatusCode::BAD_REQUEST
    );
    for name in ["a2a-extensions", "x-a2a-extensions"] {
        let known = "https://example.org/other, https://example.org/needed";
        assert_eq!(list(&[(name, known)]).await, StatusCode::OK, "{name}");
    }
}

/// A stream on which nothing happens ends after a while, and its reader may subscribe again.
#[tokio::test]
async fn a_quiet_stream_ends() {
    let house = House::open().await;
    let idle = Duration::from_millis(300);
    let talk = Talk::new(house.gateway_of(agents().into(), idle).await, "echo");
    let asks = talk.say(message("ask where to?")).await;
    for _ in 0..2 {
        let begun = Instant::now();
        let mut stream = talk.stream("SubscribeToTask", json!({"id": asks["id"]}), None).await;
        assert_eq!(stream.update().await["task"], asks);
        assert!(stream.next().await.is_none() && begun.elapsed() >= idle);
    }
}
