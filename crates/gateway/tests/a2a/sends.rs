//! What becomes of a message.

use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};
use tenure_core::command::AppendProgress;
use tenure_gateway::identity::Identity;
use tenure_sdk::client::put_blob;

use crate::house::House;
use crate::talk::{Talk, message, with};

/// A2A-05, A2A-07, CORE-SEND-001, CORE-GET-001, CORE-MULTI-001: a message begins a task in a new context, and the
/// answer comes when the task has ended.
#[tokio::test]
async fn a_message_is_answered_with_a_task_that_has_ended() {
    let talk = House::open().await.talk("echo").await;
    let said = message("echo hello");
    let task = talk.say(said.clone()).await;
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED");
    assert!(task["status"]["timestamp"].as_str().unwrap().ends_with('Z'));
    let [artifact] = &task["artifacts"].as_array().unwrap()[..] else { panic!("{task}") };
    assert_eq!(artifact["parts"], json!([{"text": "hello"}]));
    let place = json!({"contextId": task["contextId"], "taskId": task["id"]});
    assert_eq!(task["history"], json!([with(said, &place)]));
    assert_eq!(talk.get(&task["id"]).await, task);
    let cut = talk.result("GetTask", json!({"id": task["id"], "historyLength": 0})).await;
    assert!(cut.get("history").is_none());
}

/// CORE-MULTI-001, CORE-MULTI-002, CORE-MULTI-003: the same message without a context begins a task each time; with a
/// context it is a repetition, and the context is that of its caller.
#[tokio::test]
async fn a_repeated_message_of_a_context_begins_no_second_task() {
    let talk = House::open().await.talk("echo").await;
    let said = message("echo hello");
    let (first, second) = (talk.say(said.clone()).await, talk.say(said.clone()).await);
    assert_ne!(first["id"], second["id"]);
    assert_ne!(first["contextId"], second["contextId"]);
    let said = with(said, &json!({"contextId": "Our own, with blanks"}));
    let (first, second) = (talk.say(said.clone()).await, talk.say(said).await);
    assert_eq!(first, second);
    assert_eq!(first["contextId"], "Our own, with blanks");
}

/// A repetition that comes while the task is at work waits for the same answer.
#[tokio::test]
async fn a_repetition_waits_for_the_same_answer() {
    let house = House::open().await;
    let talk = house.talk("echo").await;
    let said = with(message("hold"), &json!({"contextId": "c"}));
    let task = talk.tell(said.clone()).await;
    let lets_go = async {
        talk.until(&task["id"], "TASK_STATE_WORKING").await;
        house.gate.add_permits(1);
    };
    let (answer, ()) = futures::join!(talk.say(said), lets_go);
    assert_eq!((&answer["id"], &answer["contextId"]), (&task["id"], &task["contextId"]));
    assert_eq!(answer["status"]["state"], "TASK_STATE_COMPLETED");
}

/// CORE-EXECUTION-MODE-001, CORE-EXECUTION-MODE-002: who does not want to wait gets the task at once, and who waits
/// longest gets it as it is.
#[tokio::test]
async fn an_answer_comes_at_once_or_when_the_wait_is_over() {
    let house = House::open().await;
    let at = house.gateway(Identity::local(), Duration::from_millis(200)).await;
    let talk = Talk::new(at, "echo");
    let begun = Instant::now();
    let task = talk.tell(message("hold")).await;
    let waited = talk.say(message("hold")).await;
    assert!(begun.elapsed() >= Duration::from_millis(200));
    for task in [task, waited] {
        assert!(!task["status"]["state"].as_str().unwrap().contains("COMPLETED"), "{task}");
        talk.until(&task["id"], "TASK_STATE_WORKING").await;
    }
    house.gate.add_permits(2);
}

/// CTX-01: a worker may reply directly, and then the answer is a message.
#[tokio::test]
async fn a_direct_reply_is_a_message() {
    let talk = House::open().await.talk("echo").await;
    let answer = talk.result("SendMessage", json!({"message": message("hi")})).await;
    let message = &answer["message"];
    assert_eq!(message["parts"], json!([{"text": "hi", "mediaType": "text/plain"}]));
    assert_eq!((&message["role"], message.get("taskId")), (&json!("ROLE_AGENT"), None));
    assert!(!message["contextId"].as_str().unwrap().is_empty() && answer.get("task").is_none());
}

/// A2A-19: of an agent that answers with messages alone nobody sees a task.
#[tokio::test]
async fn an_agent_may_answer_with_messages_alone() {
    let talk = House::open().await.talk("oracle").await;
    for (said, answered) in [("echo 42", "42"), ("ask who are you?", "who are you?"), ("hi", "hi")]
    {
        let answer = talk.result("SendMessage", json!({"message": message(said)})).await;
        assert_eq!(answer["message"]["parts"][0]["text"], answered, "{said}");
        assert!(answer.get("task").is_none());
    }
    assert_eq!(
        talk.refusal("SendMessage", json!({"message": message("fail badly")})).await,
        -32006
    );
    assert_eq!(talk.result("ListTasks", json!({})).await["tasks"], json!([]));
}

/// A2A-19, A2A-05: a message that comes again gets the question with which it was answered.
#[tokio::test]
async fn a_repeated_message_gets_the_same_question() {
    let talk = House::open().await.talk("oracle").await;
    let asks = with(message("ask who are you?"), &json!({"contextId": "c1"}));
    for _ in 0..2 {
        let answer = talk.result("SendMessage", json!({"message": asks})).await;
        assert_eq!(answer["message"]["parts"][0]["text"], "who are you?");
    }
}

/// A message that is too long for a reference is kept all the same.
#[tokio::test]
async fn a_long_message_is_kept() {
    let talk = House::open().await.talk("echo").await;
    let long = "long ".repeat(20_000);
    let asks = with(message(""), &json!({"parts": [{"text": "ask why?"}, {"text": long}]}));
    let task = talk.say(asks).await;
    assert_eq!(task["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
    let answer = with(message(&long), &json!({"taskId": task["id"]}));
    talk.tell(answer).await;
    let task = talk.get(&task["id"]).await;
    let history = task["history"].as_array().unwrap();
    assert_eq!(history.last().unwrap()["parts"][0]["text"], long);
}

/// An agent gets parts of any media type: what it can read, its worker knows (CORE-SEND-003).
#[tokio::test]
async fn parts_of_any_media_type_come_to_the_worker() {
    let talk = House::open().await.talk("echo").await;
    let odd = json!({"raw": "dGNr", "mediaType": "application/x-odd"});
    let said = with(message(""), &json!({"parts": [{"text": "echo a"}, odd]}));
    let task = talk.say(said).await;
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(task["history"][0]["parts"][1], odd);
}

/// CORE-ERR-002, CORE-MULTI-002: a message without a form is refused, and begins nothing. So is one with a context that
/// is too long.
#[tokio::test]
async fn a_message_without_form_is_refused() {
    let talk = House::open().await.talk("echo").await;
    let good = message("echo a");
    for wrong in [
        json!({}),
        json!({"message": {}}),
        json!({"message": with(good.clone(), &json!({"messageId": ""}))}),
        json!({"message": with(good.clone(), &json!({"role": "ROLE_AGENT"}))}),
        json!({"message": with(good.clone(), &json!({"role": "user"}))}),
        json!({"message": with(good.clone(), &json!({"parts": []}))}),
        json!({"message": with(good.clone(), &json!({"parts": [{}]}))}),
        json!({"message": with(good.clone(), &json!({"contextId": "c".repeat(129)}))}),
        json!({"message": good, "configuration": {"historyLength": -1}}),
    ] {
        assert_eq!(talk.refusal("SendMessage", wrong.clone()).await, -32602, "{wrong}");
    }
    assert_eq!(talk.result("ListTasks", json!({})).await["totalSize"], 0);
}

/// Bytes of a part are base64 in either alphabet, and a worker gets them in one. What is none is refused by its
/// name, before it begins anything.
#[tokio::test]
async fn bytes_of_a_part_are_base64() {
    let talk = House::open().await.talk("echo").await;
    let with_bytes =
        |text: &str| with(message(""), &json!({"parts": [{"text": "echo a"}, {"raw": text}]}));
    for wrong in ["not base64!", "cG5nM"] {
        let answer = talk.ask("SendMessage", json!({"message": with_bytes(wrong)})).await;
        let error = &answer["error"];
        assert_eq!(error["code"], -32602, "{answer}");
        assert_eq!(error["data"][0]["metadata"]["field"], "message.parts[1].raw", "{answer}");
        assert!(error["message"].as_str().unwrap().contains("message.parts[1].raw"), "{answer}");
    }
    assert_eq!(talk.result("ListTasks", json!({})).await["totalSize"], 0);
    for given in ["/+8=", "_-8"] {
        let task = talk.say(with_bytes(given)).await;
        assert_eq!(task["history"][0]["parts"][1]["raw"], "/+8=", "{task}");
    }
}

/// CORE-ERR-001, CORE-CAP-001, JSONRPC-FMT-001 to JSONRPC-FMT-002, JSONRPC-SVC-001, JSONRPC-ERR-001 to JSONRPC-ERR-003:
/// what is no request of JSON-RPC gets an answer that says so, and so does a call for what the agent does not do.
#[tokio::test]
async fn what_is_no_request_is_refused() {
    let talk = House::open().await.talk("echo").await;
    let code = |answer: &crate::http::Answer| -> Json { answer.json()["error"]["code"].clone() };
    for (media_type, body, expected) in [
        ("application/json", "{", -32700),
        ("application/json", "[]", -32600),
        ("application/json", r#"{"jsonrpc": "1.0", "id": 1, "method": "GetTask"}"#, -32600),
        ("application/json", r#"{"jsonrpc": "2.0", "id": 1, "method": "getTask"}"#, -32601),
        ("text/plain", "hello", -32005),
    ] {
        let answer = talk.post(media_type, body.into()).await;
        assert_eq!((answer.status.as_u16(), code(&answer)), (200, json!(expected)), "{body}");
    }
    for method in ["CreateTaskPushNotificationConfig", "ListTaskPushNotificationConfigs"] {
        assert_eq!(talk.refusal(method, json!({"taskId": "t"})).await, -32003);
    }
}

/// A long message is read and shown once, however often a task is given it.
#[tokio::test]
async fn a_long_message_that_is_named_often_is_shown_once() {
    let house = House::open().await;
    let talk = house.talk("echo").await;
    let asks = talk.say(message("ask where to?")).await;
    let (client, task) = (house.client("echo"), asks["id"].as_str().unwrap().parse().unwrap());
    let long = "a".repeat(1 << 20);
    let bytes = serde_json::to_vec(&message(&long)).unwrap();
    let blob = put_blob(client.port(), &task, &bytes).await.unwrap();
    let input_refs = vec![blob.reference(); 1_000];
    client.note(&task, AppendProgress { input_refs, ..Default::default() }).await.unwrap();
    let shown = talk.get(&asks["id"]).await["history"].as_array().unwrap().clone();
    let long = shown.iter().filter(|said| said["parts"][0]["text"] == *long).count();
    assert_eq!(long, 1);
}
