//! The form of what is shown, and of what is read.

use serde_json::{Value as Json, json};

use crate::house::House;
use crate::talk::{message, with};

/// What a part holds.
const CONTENTS: [&str; 4] = ["text", "raw", "url", "data"];

/// Looks at every object in an answer. What stands in metadata or data has the form that its writer likes.
fn inspect(shown: &Json, look: &mut impl FnMut(&str, &Json)) {
    match shown {
        Json::Array(all) => all.iter().for_each(|it| inspect(it, look)),
        Json::Object(fields) => {
            for (name, value) in fields {
                look(name, value);
                if name != "metadata" && name != "data" {
                    inspect(value, look);
                }
            }
        }
        _ => {}
    }
}

/// Whether a text is a time such as `2026-03-12T08:30:00.250Z`.
fn is_time(text: &str) -> bool {
    let digits = |c: char| if c.is_ascii_digit() { '0' } else { c };
    text.chars().map(digits).collect::<String>() == "0000-00-00T00:00:00.000Z"
}

fn is_text(value: &Json) -> bool {
    value.as_str().is_some_and(|text| !text.is_empty())
}

/// What is wrong with a field of an answer.
fn wrong(name: &str, value: &Json) -> bool {
    let elements = || value.as_array().filter(|all| !all.is_empty());
    let each = |is_well: fn(&Json) -> bool| !elements().is_some_and(|all| all.iter().all(is_well));
    match name {
        "parts" => each(|it| CONTENTS.iter().filter(|name| it.get(**name).is_some()).count() == 1),
        "artifacts" => each(|it| is_text(&it["artifactId"]) && it["parts"].is_array()),
        "history" => each(is_message),
        "message" => !is_message(value),
        "status" => !is_text(&value["state"]),
        "state" => !value.as_str().is_some_and(|state| state.starts_with("TASK_STATE_")),
        "role" => value != "ROLE_USER" && value != "ROLE_AGENT",
        "timestamp" => !value.as_str().is_some_and(is_time),
        "id" | "contextId" | "taskId" | "messageId" => !is_text(value),
        _ => name.contains('_'),
    }
}

fn is_message(it: &Json) -> bool {
    is_text(&it["messageId"]) && it["role"].is_string() && it["parts"].is_array()
}

/// DM-TASK-001 to DM-TASK-002, DM-MSG-001 to DM-MSG-002, DM-PART-001, DM-ART-001, DM-STATUS-001, DM-SERIAL-001 to
/// DM-SERIAL-004: what is shown has the form of the data model.
#[tokio::test]
async fn what_is_shown_has_the_form_of_the_data_model() {
    let talk = House::open().await.talk("echo").await;
    for text in
        ["echo a", "ask where to?", "reject no", "fail no", "login", "chunks", "draw a boat"]
    {
        let task = talk.say(message(text)).await;
        for name in ["id", "contextId", "status"] {
            assert!(task.get(name).is_some(), "{task}");
        }
    }
    let page = talk.result("ListTasks", json!({"includeArtifacts": true})).await;
    assert_eq!(page["totalSize"], 7);
    inspect(&page["tasks"], &mut |name, value| assert!(!wrong(name, value), "{name}: {value}"));
}

/// DM-SERIAL-005: what nobody knows is passed over.
#[tokio::test]
async fn unknown_fields_are_passed_over() {
    let talk = House::open().await.talk("echo").await;
    let said = with(message("echo a"), &json!({"newField": {"deep": [1]}}));
    let params = json!({"message": said, "configuration": {"newOption": true}, "another": 1});
    let task = talk.result("SendMessage", params).await["task"].take();
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED");
    assert!(task["history"][0].get("newField").is_none());
}

/// Fields may have their names of the definition, as ProtoJSON has it; answers never do.
#[tokio::test]
async fn fields_are_read_by_their_names_of_the_definition() {
    let talk = House::open().await.talk("echo").await;
    let said = json!({
        "message_id": "m1", "context_id": "c1", "role": "ROLE_USER",
        "parts": [{"text": "ask where to?", "media_type": "text/plain"}],
    });
    let options = json!({"history_length": 0});
    let params = json!({"message": said, "configuration": options});
    let asks = talk.result("SendMessage", params).await["task"].take();
    assert_eq!((&asks["contextId"], asks.get("history")), (&json!("c1"), None));
    let answer = json!({
        "message_id": "m2", "task_id": asks["id"], "role": "ROLE_USER", "parts": [{"text": "north"}],
    });
    let params = json!({"message": answer, "configuration": {"return_immediately": true}});
    assert_eq!(talk.result("SendMessage", params).await["task"]["id"], asks["id"]);
    talk.until(&asks["id"], "TASK_STATE_COMPLETED").await;
    let cut = talk.result("GetTask", json!({"id": asks["id"], "history_length": 1})).await;
    assert_eq!(cut["history"].as_array().unwrap().len(), 1);
    talk.say(message("echo in another context")).await;
    let list = json!({"context_id": "c1", "page_size": 1, "include_artifacts": true});
    let page = talk.result("ListTasks", list).await;
    assert_eq!((&page["totalSize"], &page["pageSize"]), (&json!(1), &json!(1)));
    assert!(page["tasks"][0]["artifacts"].is_array());
}
