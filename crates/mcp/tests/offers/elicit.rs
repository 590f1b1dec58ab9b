//! Clients that wait for their results, and show their users what a Step asks.

use std::time::Duration;

use serde_json::{Value as Json, json};
use tenure_core::status::Role;

use crate::house::{House, LONG, TASKS};
use crate::talk::{Talk, call, say};

/// The call once more, with answers.
fn again(first: &Json, asks: &Json, responses: Json) -> Json {
    let mut params = first.clone();
    params["requestState"] = asks["requestState"].clone();
    params["inputResponses"] = responses;
    params
}

/// MRTR: the result of the call is the question, and the call is repeated with the answer, at any server, also after a
/// restart.
#[tokio::test]
async fn a_call_is_repeated_with_its_answer() {
    let house = House::open().await;
    let mut talk = house.waiting_talk(json!({"elicitation": {"form": {}}}), LONG).await;
    let first = call("act", "ask-twice", "");
    let asks = talk.result("tools/call", first.clone()).await;
    assert_eq!(asks["resultType"], "input_required");
    assert_eq!(asks["inputRequests"]["call.1.0"]["params"]["message"], "question 1");
    let repeat = again(&first, &asks, json!({"call.1.0": say("one")}));
    let more = talk.result("tools/call", repeat.clone()).await;
    assert_eq!(more["inputRequests"]["call.2.1"]["params"]["message"], "question 2");
    let once_more = talk.result("tools/call", repeat).await;
    assert_eq!(once_more["inputRequests"], more["inputRequests"], "it has been answered");
    drop(talk);
    let house = house.reopen().await;
    let mut talk = house.waiting_talk(json!({"elicitation": {}}), LONG).await;
    let done =
        talk.result("tools/call", again(&first, &more, json!({"call.2.1": say("two")}))).await;
    assert_eq!(done["content"][0]["text"], "two");
    assert_eq!(house.client().list(true).await.unwrap().entries.len(), 1);
}

/// A state is good for its caller, its tool and its arguments, as it is.
#[tokio::test]
async fn a_state_is_good_for_its_call_alone() {
    let house = House::open().await;
    let can = json!({"elicitation": {}});
    let mut talk = house.waiting_talk(can.clone(), LONG).await;
    let first = call("act", "ask", "where to?");
    let asks = talk.result("tools/call", first.clone()).await;
    let good = again(&first, &asks, json!({"call.1.0": say("Rome")}));
    let state = asks["requestState"].as_str().unwrap();
    let mut forged: Vec<Json> = [
        format!("{state}x"),
        state[..state.len() - 2].to_owned(),
        state.replacen(".1.", ".0.", 1),
        state.replacen(".1.", ".9.", 1),
        state.replacen("mcp-", "mcp-0", 1),
        "x".to_owned(),
        String::new(),
    ]
    .into_iter()
    .map(|state| {
        let mut params = good.clone();
        params["requestState"] = state.into();
        params
    })
    .collect();
    let mut others = good.clone();
    others["arguments"]["with"] = "where from?".into();
    let mut tool = good.clone();
    tool["name"] = "open".into();
    forged.extend([others, tool]);
    for params in forged {
        assert_eq!(talk.refusal("tools/call", params.clone()).await, -32602, "{params}");
    }
    let server = house.server("bob", Role::Orchestrator, LONG);
    let mut bob = Talk::begin(server, can).await;
    assert_eq!(bob.refusal("tools/call", good.clone()).await, -32602);
    assert_eq!(talk.result("tools/call", good).await["content"][0]["text"], "Rome");
}

/// An answer of another form is refused, and one that is dismissed leaves the question with its task.
#[tokio::test]
async fn answers_of_a_repeated_call_are_checked() {
    let house = House::open().await;
    let mut talk = house.waiting_talk(json!({"elicitation": {}}), LONG).await;
    let first = call("act", "ask", "where to?");
    let asks = talk.result("tools/call", first.clone()).await;
    let wrong = again(&first, &asks, json!({"call.1.0": {"action": "accept", "content": {}}}));
    assert_eq!(talk.refusal("tools/call", wrong).await, -32602);
    let away = again(&first, &asks, json!({"call.1.0": {"action": "cancel"}}));
    let left = talk.result("tools/call", away).await;
    assert_eq!(left["structuredContent"]["questions"][0]["key"], "call.1.0");
    let no = again(&first, &asks, json!({"call.1.0": {"action": "decline"}}));
    let declined = talk.result("tools/call", no).await;
    assert_eq!(declined["structuredContent"]["reason"]["code"], "input_declined");
}

/// A client that opens addresses gets the one of a permission.
#[tokio::test]
async fn an_address_is_for_clients_that_open_it() {
    let house = House::open().await;
    let can = json!({"elicitation": {"form": {}, "url": {}}});
    let mut talk = house.waiting_talk(can, LONG).await;
    let first = call("act", "permit", "");
    let asks = talk.result("tools/call", first.clone()).await;
    let said = &asks["inputRequests"]["call.1.0"]["params"];
    assert_eq!((&said["mode"], &said["url"]), (&json!("url"), &json!("https://id.example")));
    let repeat = again(&first, &asks, json!({"call.1.0": {"action": "accept"}}));
    assert_eq!(talk.result("tools/call", repeat).await["content"][0]["text"], "accepted");
}

/// A client is sent no elicitation that it has not declared: it is told in words what is asked, and who answers.
#[tokio::test]
async fn a_client_is_asked_by_what_it_has_declared() {
    let house = House::open().await;
    let tasks = json!({TASKS: {}});
    let nothing = json!({"extensions": tasks});
    let only_urls = json!({"extensions": tasks, "elicitation": {"url": {}}});
    for (can, verb, is_asked) in [
        (nothing.clone(), "ask", false),
        (nothing, "permit", false),
        (only_urls.clone(), "ask", false),
        (only_urls, "permit", true),
    ] {
        let mut talk = house.waiting_talk(can.clone(), LONG).await;
        let made = talk.act(verb, "where to?").await;
        let seen = talk.until(&made["taskId"], "input_required").await;
        let asked = seen["inputRequests"].as_object().unwrap();
        assert_eq!(!asked.is_empty(), is_asked, "{can} {seen}");
        let said = seen["statusMessage"].as_str().unwrap();
        assert_eq!(said.contains("call answer"), !is_asked, "{can} {seen}");
        // Whoever else answers lets it go on.
        let task = made["taskId"].as_str().unwrap().parse().unwrap();
        house.client().answer(&task, "call".parse().unwrap(), "Rome").await.unwrap();
        talk.until(&made["taskId"], "completed").await;
        assert!(talk.asked.is_empty(), "{:?}", talk.asked);
    }
}

/// In an older version the server asks while the call waits.
#[tokio::test]
async fn an_older_client_is_asked_while_its_call_waits() {
    let house = House::open().await;
    let server = house.server("ann", Role::Orchestrator, LONG);
    let mut talk = Talk::older(server, json!({"elicitation": {}})).await;
    talk.replies = [say("one"), say("two")].into();
    let done = talk.act("ask-twice", "").await;
    assert_eq!(done["content"][0]["text"], "two");
    let asked: Vec<&Json> = talk.asked.iter().map(|it| &it["params"]["message"]).collect();
    assert_eq!(asked, ["question 1", "question 2"]);
    talk.replies = [json!({"action": "cancel"})].into();
    let left = talk.act("ask", "where to?").await;
    assert_eq!(left["structuredContent"]["questions"][0]["prompt"], "where to?");
}

/// A client that is silent is not waited for without end.
#[tokio::test]
async fn a_silent_client_is_told_of_its_task() {
    let house = House::open().await;
    let server = house.server("ann", Role::Orchestrator, Duration::from_millis(50));
    let mut talk = Talk::older(server, json!({"elicitation": {}})).await;
    talk.is_silent = true;
    let left = talk.act("ask", "where to?").await;
    assert_eq!(left["structuredContent"]["steps"], json!(["call"]));
}
