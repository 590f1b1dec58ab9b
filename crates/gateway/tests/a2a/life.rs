//! The life of a task: questions, late messages, ends.

use serde_json::{Value as Json, json};
use tenure_core::id::TaskId;
use tenure_core::status::TaskStatus;

use crate::house::House;
use crate::talk::{in_short, message, with};

fn to(task: &Json, text: &str) -> Json {
    with(message(text), &json!({"taskId": task["id"]}))
}

/// A2A-01: a task of A2A is a Task like any other, of which A2A shows its own view.
#[tokio::test]
async fn a_task_of_a2a_is_a_task_like_any_other() {
    let house = House::open().await;
    let talk = house.talk("echo").await;
    let shown = talk.say(message("echo a")).await;
    let id: TaskId = shown["id"].as_str().unwrap().parse().unwrap();
    let task = house.client("echo").get(&id).await.unwrap();
    assert_eq!((task.steps.len(), task.task.native_status), (1, TaskStatus::Completed));
    assert_eq!(task.task.labels["a2a-context"], shown["contextId"].as_str().unwrap());
    let asks = talk.say(message("ask what?")).await;
    let id: TaskId = asks["id"].as_str().unwrap().parse().unwrap();
    house.client("echo").answer(&id, "answer".parse().unwrap(), "this").await.unwrap();
    let done = talk.until(&asks["id"], "TASK_STATE_COMPLETED").await;
    assert_eq!(done["artifacts"][0]["parts"][0]["text"], "this");
    assert_eq!(done["history"][2]["parts"][0]["text"], "this");
}

/// A2A-06, A2A-10, CORE-MULTI-005, CORE-HIST-004 to CORE-HIST-006: an answer goes on with its task, of which alone it
/// needs to say the id, and question and answer stay in the history.
#[tokio::test]
async fn an_answer_goes_on_with_its_task() {
    let talk = House::open().await.talk("echo").await;
    let asks = talk.say(message("ask where to?")).await;
    assert_eq!(asks["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
    let question = &asks["status"]["message"];
    assert_eq!(
        (&question["role"], &question["parts"]),
        (&json!("ROLE_AGENT"), &json!([{"text": "where to?"}]))
    );
    let done = talk.say(to(&asks, "to Helsinki")).await;
    assert_eq!((&done["id"], &done["contextId"]), (&asks["id"], &asks["contextId"]));
    assert_eq!(done["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(done["artifacts"][0]["parts"], json!([{"text": "to Helsinki"}]));
    let said: Vec<&Json> =
        done["history"].as_array().unwrap().iter().map(|it| &it["parts"][0]["text"]).collect();
    assert_eq!(said, ["ask where to?", "where to?", "to Helsinki"]);
}

/// A2A-11: of two answers to one question one goes on with the task. The other one comes late to a task at
/// work, or is refused.
#[tokio::test]
async fn two_answers_at_once_reopen_a_task_once() {
    let talk = House::open().await.talk("echo").await;
    let asks = talk.say(message("ask where to?")).await;
    let answer = |text: &str| {
        let params = json!({"message": to(&asks, text)});
        let talk = talk.clone();
        async move { talk.ask("SendMessage", params).await }
    };
    let answers = futures::join!(answer("north"), answer("south"));
    for answer in [&answers.0, &answers.1] {
        let refused = &answer["error"]["code"];
        assert!(answer.get("result").is_some() || *refused == -32004, "{answer}");
    }
    let done = talk.until(&asks["id"], "TASK_STATE_COMPLETED").await;
    let text = done["artifacts"][0]["parts"][0]["text"].as_str().unwrap();
    assert!(["north", "south"].contains(&text), "{done}");
    assert_eq!(done["artifacts"].as_array().unwrap().len(), 1);
}

/// A2A-21: a message to a task at work interrupts nothing, and its worker gets it.
#[tokio::test]
async fn a_late_message_interrupts_nothing() {
    let house = House::open().await;
    let talk = house.talk("echo").await;
    let task = talk.tell(message("hold")).await;
    talk.until(&task["id"], "TASK_STATE_WORKING").await;
    let params = json!({
        "message": to(&task, "hurry up"), "configuration": {"returnImmediately": true},
    });
    let after = talk.result("SendMessage", params).await["task"].take();
    assert_eq!(after["status"]["state"], "TASK_STATE_WORKING");
    assert_eq!(after["history"][1]["parts"][0]["text"], "hurry up");
    house.gate.add_permits(1);
    talk.until(&task["id"], "TASK_STATE_COMPLETED").await;
}

/// A2A-12, A2A-13, CORE-SEND-002, CORE-CANCEL-002, STREAM-SUB-003: a task that has ended takes no message, and cannot
/// be canceled or subscribed to.
#[tokio::test]
async fn a_task_that_has_ended_stays_as_it_is() {
    let talk = House::open().await.talk("echo").await;
    for (text, state) in [
        ("echo a", "TASK_STATE_COMPLETED"),
        ("fail it is broken", "TASK_STATE_FAILED"),
        ("reject not today", "TASK_STATE_REJECTED"),
    ] {
        let ended = talk.say(message(text)).await;
        assert_eq!(ended["status"]["state"], state);
        let refused = talk.refusal("SendMessage", json!({"message": to(&ended, "again")})).await;
        assert_eq!(refused, -32004);
        assert_eq!(talk.refusal("CancelTask", json!({"id": ended["id"]})).await, -32002);
        assert_eq!(talk.refusal("SubscribeToTask", json!({"id": ended["id"]})).await, -32004);
        assert_eq!(talk.get(&ended["id"]).await, ended);
    }
}

/// Why a task has failed stands in its status.
#[tokio::test]
async fn a_failure_says_why() {
    let talk = House::open().await.talk("echo").await;
    for text in ["fail it is broken", "reject it is broken"] {
        let ended = talk.say(message(text)).await;
        let said = &ended["status"]["message"]["parts"][0]["text"];
        assert_eq!(said, "it is broken");
    }
}

/// AUTH-INTASK-001 to AUTH-INTASK-006: an agent that needs a login asks for it in its task, and says so. Streams stay
/// open meanwhile. Its caller logs in elsewhere, and then goes on with a message in which no secret needs to stand.
#[tokio::test]
async fn a_login_is_asked_for_in_a_task() {
    let talk = House::open().await.talk("echo").await;
    let asks = talk.say(message("login")).await;
    assert_eq!(asks["status"]["state"], "TASK_STATE_AUTH_REQUIRED");
    assert_eq!(asks["status"]["message"]["parts"][0]["text"], "log in, please");
    let mut stream = talk.stream("SubscribeToTask", json!({"id": asks["id"]}), None).await;
    assert_eq!(stream.update().await["task"], asks);
    let done = talk.say(to(&asks, "I have")).await;
    assert_eq!(done["artifacts"][0]["parts"][0]["text"], "you are in");
    let told = stream.rest().await;
    assert_eq!(in_short(&told.last().unwrap().1["result"]), "completed");
}

/// CORE-HIST-001 to CORE-HIST-003: a history has the newest messages, as many as its reader wants, wherever it is
/// shown.
#[tokio::test]
async fn a_history_is_as_long_as_its_reader_wants() {
    let talk = House::open().await.talk("echo").await;
    let asks = talk.say(message("ask where to?")).await;
    let params = json!({"message": to(&asks, "north"), "configuration": {"historyLength": 0}});
    let done = talk.result("SendMessage", params).await["task"].take();
    assert_eq!(done["status"]["state"], "TASK_STATE_COMPLETED");
    assert!(done.get("history").is_none());
    let all = ["ask where to?", "where to?", "north"];
    for (most, expected) in [(0, &all[3..]), (1, &all[2..]), (2, &all[1..]), (9, &all[..])] {
        let cut = talk.result("GetTask", json!({"id": asks["id"], "historyLength": most})).await;
        let history = cut["history"].as_array().cloned().unwrap_or_default();
        let said: Vec<&Json> = history.iter().map(|it| &it["parts"][0]["text"]).collect();
        assert_eq!(said, expected, "{most}");
        let page = talk.result("ListTasks", json!({"historyLength": most})).await;
        assert_eq!(page["tasks"][0].get("history"), cut.get("history"), "{most}");
    }
}

/// A2A-16, CORE-CANCEL-001: a task that no worker has is canceled at once, and one at work when its worker has stopped.
#[tokio::test]
async fn a_task_is_canceled() {
    let house = House::open().await;
    let talk = house.talk("echo").await;
    let asks = talk.say(message("ask where to?")).await;
    let held = talk.tell(message("hold")).await;
    talk.until(&held["id"], "TASK_STATE_WORKING").await;
    for task in [asks, held] {
        let canceled = talk.result("CancelTask", json!({"id": task["id"]})).await;
        assert_eq!(canceled["status"]["state"], "TASK_STATE_CANCELED");
        assert_eq!(talk.get(&task["id"]).await["status"], canceled["status"]);
    }
}

/// CORE-GET-002, CORE-CANCEL-003, STREAM-SUB-004, CORE-MULTI-004, CORE-MULTI-006: a message names a task that is there,
/// in its own context.
#[tokio::test]
async fn a_message_to_another_task_is_refused() {
    let talk = House::open().await.talk("echo").await;
    let asks = talk.say(message("ask where to?")).await;
    let elsewhere = with(to(&asks, "here"), &json!({"contextId": "another"}));
    assert_eq!(talk.refusal("SendMessage", json!({"message": elsewhere})).await, -32602);
    for id in ["absent", "Not a name!", ""] {
        assert_eq!(talk.refusal("GetTask", json!({"id": id})).await, -32001);
        assert_eq!(talk.refusal("CancelTask", json!({"id": id})).await, -32001);
        assert_eq!(talk.refusal("SubscribeToTask", json!({"id": id})).await, -32001);
    }
    let absent = with(message("a"), &json!({"taskId": "absent"}));
    assert_eq!(talk.refusal("SendMessage", json!({"message": absent})).await, -32001);
    let referring = with(message("echo a"), &json!({"referenceTaskIds": ["absent"]}));
    assert_eq!(talk.refusal("SendMessage", json!({"message": referring})).await, -32001);
}
