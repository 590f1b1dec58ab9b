//! Tasks that ask something, for clients that know the extension Tasks.

use serde_json::json;
use tenure_core::id::TaskId;

use crate::house::House;
use crate::talk::{call, say};

/// A2A-10 in the words of MCP: a Step that asks makes its task ask, and the answer goes on with it.
#[tokio::test]
async fn a_question_is_answered_by_an_update() {
    let house = House::open().await;
    let mut talk = house.talk().await;
    let made = talk.act("ask", "where to?").await;
    let asks = talk.until(&made["taskId"], "input_required").await;
    assert_eq!(asks["statusMessage"], "where to?");
    let question = &asks["inputRequests"]["call.1.0"];
    assert_eq!(question["method"], "elicitation/create");
    assert_eq!(question["params"]["message"], "where to?");
    assert_eq!(question["params"]["requestedSchema"]["required"], json!(["answer"]));
    let ack = talk.update(&made["taskId"], json!({"call.1.0": say("Rome")})).await;
    assert_eq!(ack, json!({"resultType": "complete"}));
    let done = talk.until(&made["taskId"], "completed").await;
    assert_eq!(done["result"]["content"][0]["text"], "Rome");
}

/// Keys are never used again, and answers to what is answered, or was never asked, count for nothing.
#[tokio::test]
async fn each_question_has_a_key_of_its_own() {
    let house = House::open().await;
    let mut talk = house.talk().await;
    let made = talk.act("ask-twice", "").await;
    let id = &made["taskId"];
    talk.until(id, "input_required").await;
    talk.update(id, json!({"other.1.0": say("x"), "call.2.1": say("too soon")})).await;
    talk.update(id, json!({"call.1.0": say("first")})).await;
    let asks = talk.until(id, "input_required").await;
    let keys: Vec<&String> = asks["inputRequests"].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["call.2.1"]);
    talk.update(id, json!({"call.1.0": say("late")})).await;
    assert_eq!(talk.get(id).await["status"], "input_required");
    talk.update(id, json!({"call.2.1": say("second")})).await;
    assert_eq!(talk.until(id, "completed").await["result"]["content"][0]["text"], "second");
}

/// Two Steps may ask at once: each goes on when its question is answered, and the other question stays.
#[tokio::test]
async fn two_steps_ask_at_once() {
    let house = House::open().await;
    let mut talk = house.talk().await;
    let made = talk.result("tools/call", call("pair", "ask", "left?")).await;
    let id = &made["taskId"];
    let asks = loop {
        let asks = talk.until(id, "input_required").await;
        if asks["inputRequests"].as_object().unwrap().len() == 2 {
            break asks;
        }
    };
    assert_eq!(asks["statusMessage"], "left?\nright?");
    talk.update(id, json!({"right.1.0": say("r")})).await;
    let asks = talk.get(id).await;
    let keys: Vec<&String> = asks["inputRequests"].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["left.1.0"]);
    talk.update(id, json!({"left.1.0": say("l")})).await;
    let done = talk.until(id, "completed").await;
    assert_eq!(done["result"]["structuredContent"], json!(["l", "r"]));
}

/// One Step may ask several things at once. It goes on when all are answered, one by one or together, and gets the
/// answers in the order of its questions.
#[tokio::test]
async fn one_step_asks_several_things() {
    let house = House::open().await;
    let mut talk = house.talk().await;
    let three = json!({"action": "accept", "content": {"n": 3}});
    for together in [false, true] {
        let made = talk.act("ask-all", "").await;
        let id = &made["taskId"];
        let asks = talk.until(id, "input_required").await;
        assert_eq!(asks["inputRequests"]["call.1.0"]["params"]["message"], "Who?");
        let form = &asks["inputRequests"]["call.1.1"]["params"]["requestedSchema"];
        assert_eq!(form["required"], json!(["n"]));
        if together {
            talk.update(id, json!({"call.1.0": say("Ann"), "call.1.1": three})).await;
        } else {
            talk.update(id, json!({"call.1.1": three})).await;
            let asks = talk.get(id).await;
            let keys: Vec<&String> = asks["inputRequests"].as_object().unwrap().keys().collect();
            assert_eq!(keys, ["call.1.0"]);
            assert_eq!(asks["statusMessage"], "Who?");
            talk.update(id, json!({"call.1.1": {"action": "accept", "content": {"n": 4}}})).await;
            talk.update(id, json!({"call.1.0": say("Ann")})).await;
        }
        let done = talk.until(id, "completed").await;
        assert_eq!(done["result"]["structuredContent"], json!(["Ann", "{\"n\":3}"]));
    }
}

/// A2A-11: of two answers at once, at two servers, one counts, and both callers are told so.
#[tokio::test]
async fn two_answers_at_once_count_once() {
    let house = House::open().await;
    let (mut one, mut two) = (house.talk().await, house.talk().await);
    for verb in ["ask", "ask-all"] {
        let made = one.act(verb, "where to?").await;
        let id = &made["taskId"];
        one.until(id, "input_required").await;
        let (first, second) = match verb {
            "ask" => (json!({"call.1.0": say("north")}), json!({"call.1.0": say("south")})),
            _ => {
                let n = json!({"action": "accept", "content": {"n": 1}});
                (json!({"call.1.0": say("north")}), json!({"call.1.1": n}))
            }
        };
        futures::join!(one.update(id, first), two.update(id, second));
        let done = two.until(id, "completed").await;
        let said = done["result"]["content"][0]["text"].as_str().unwrap();
        assert!(["north", "south", "[\"north\",\"{\\\"n\\\":1}\"]"].contains(&said), "{said}");
    }
}

/// Who declines ends the work, and who looks away may answer later.
#[tokio::test]
async fn a_caller_may_decline() {
    let house = House::open().await;
    let mut talk = house.talk().await;
    let made = talk.act("ask", "may I?").await;
    let id = &made["taskId"];
    talk.until(id, "input_required").await;
    talk.update(id, json!({"call.1.0": {"action": "cancel"}})).await;
    assert_eq!(talk.get(id).await["status"], "input_required");
    talk.update(id, json!({"call.1.0": {"action": "decline"}})).await;
    let done = talk.until(id, "completed").await;
    assert_eq!(done["result"]["isError"], true);
    assert_eq!(done["result"]["structuredContent"]["reason"]["code"], "input_declined");
}

/// An answer that is not what was asked for is refused with its field, and none that came with it is taken.
#[tokio::test]
async fn an_answer_of_another_form_is_refused() {
    let house = House::open().await;
    let mut talk = house.talk().await;
    let made = talk.act("ask-all", "").await;
    let id = &made["taskId"];
    talk.until(id, "input_required").await;
    let wrong = json!({"action": "accept", "content": {"n": "three"}});
    let responses = json!({"call.1.0": say("Ann"), "call.1.1": wrong});
    let refused =
        talk.ask("tasks/update", json!({"taskId": id, "inputResponses": responses})).await;
    assert_eq!(refused["error"]["code"], -32602);
    let said = refused["error"]["message"].as_str().unwrap();
    assert!(said.starts_with("call.1.1.content.n: "), "{said}");
    assert_eq!(talk.get(id).await["inputRequests"].as_object().unwrap().len(), 2);
}

/// An answer that is longer than a reference comes as a blob, also if it has to wait for others.
#[tokio::test]
async fn a_long_answer_comes_as_a_blob() {
    let house = House::open().await;
    let mut talk = house.talk().await;
    let made = talk.act("refs", "say much").await;
    let id = &made["taskId"];
    talk.until(id, "input_required").await;
    talk.update(id, json!({"call.1.0": say(&"ü".repeat(3_000))})).await;
    let done = talk.until(id, "completed").await;
    let refs = done["result"]["structuredContent"].as_array().unwrap();
    assert!(refs.iter().any(|it| it.as_str().unwrap().starts_with("blob:sha256:")), "{refs:?}");
}

/// A question may come with an address, which is for clients that open one.
#[tokio::test]
async fn a_permission_is_granted_at_an_address() {
    let house = House::open().await;
    let mut talk = house.talk().await;
    let made = talk.act("permit", "").await;
    let id = &made["taskId"];
    let asks = talk.until(id, "input_required").await;
    let said = &asks["inputRequests"]["call.1.0"]["params"];
    assert_eq!(
        (&said["mode"], &said["message"]),
        (&json!("form"), &json!("log in\nhttps://id.example"))
    );
    talk.update(id, json!({"call.1.0": say("done")})).await;
    assert_eq!(talk.until(id, "completed").await["result"]["content"][0]["text"], "done");
}

/// Whoever answers in another way has answered: the task goes on, and its old question is gone.
#[tokio::test]
async fn an_answer_may_come_from_elsewhere() {
    let house = House::open().await;
    let mut talk = house.talk().await;
    let made = talk.act("ask-twice", "").await;
    let id = &made["taskId"];
    talk.until(id, "input_required").await;
    let task: TaskId = id.as_str().unwrap().parse().unwrap();
    house.client().answer(&task, "call".parse().unwrap(), "by hand").await.unwrap();
    loop {
        let asks = talk.until(id, "input_required").await;
        if asks["inputRequests"].get("call.2.1").is_some() {
            break;
        }
    }
    talk.update(id, json!({"call.1.0": say("late"), "call.2.1": say("in time")})).await;
    assert_eq!(talk.until(id, "completed").await["result"]["content"][0]["text"], "in time");
}
