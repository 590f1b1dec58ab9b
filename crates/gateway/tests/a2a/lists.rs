//! `ListTasks`.

use serde_json::{Value as Json, json};

use crate::house::House;
use crate::talk::{message, with};

fn ids(page: &Json) -> Vec<Json> {
    page["tasks"].as_array().unwrap().iter().map(|task| task["id"].clone()).collect()
}

/// CORE-LIST-002 to CORE-LIST-005: a list has the newest task first, and goes on page by page to its end.
#[tokio::test]
async fn tasks_are_listed_from_the_newest_on() {
    let talk = House::open().await.talk("echo").await;
    let mut made = Vec::new();
    for number in 0..5 {
        let task = talk.say(message(&format!("echo {number}"))).await;
        made.insert(0, task["id"].clone());
        tokio::time::sleep(std::time::Duration::from_millis(5)).await; // Each has a time of its own.
    }
    let whole = talk.result("ListTasks", json!({})).await;
    assert_eq!(ids(&whole), made);
    assert_eq!((&whole["nextPageToken"], &whole["pageSize"]), (&json!(""), &json!(50)));
    assert!(whole["tasks"][0].get("artifacts").is_none(), "nobody has asked for them");
    let (mut listed, mut token) = (Vec::new(), json!(""));
    loop {
        let params = json!({"pageSize": 2, "pageToken": token, "includeArtifacts": true});
        let page = talk.result("ListTasks", params).await;
        assert_eq!((&page["totalSize"], &page["pageSize"]), (&json!(5), &json!(2)));
        assert!(page["tasks"][0]["artifacts"].is_array());
        listed.extend(ids(&page));
        token = page["nextPageToken"].clone();
        if token == "" {
            break;
        }
    }
    assert_eq!(listed, made);
}

/// A page is not longer than its readers can bear: large tasks come on several. Nor does a message take so much.
#[tokio::test]
async fn a_page_of_large_tasks_is_short() {
    let talk = House::open().await.talk("echo").await;
    let large = "a".repeat(9 << 20);
    for _ in 0..3 {
        talk.say(message(&format!("echo {large}"))).await;
    }
    let list = async |token: &Json| {
        let params = json!({"pageToken": token, "historyLength": 0, "includeArtifacts": true});
        talk.result("ListTasks", params).await
    };
    let first = list(&json!("")).await;
    assert_eq!((ids(&first).len(), &first["totalSize"]), (2, &json!(3)));
    let second = list(&first["nextPageToken"]).await;
    assert_eq!((ids(&second).len(), &second["nextPageToken"]), (1, &json!("")));
    let refers = with(message("echo a"), &json!({"referenceTaskIds": ids(&first)}));
    assert_eq!(talk.refusal("SendMessage", json!({"message": refers})).await, -32602);
}

/// A list has the tasks of a context, or those in a state.
#[tokio::test]
async fn a_list_is_of_a_context_or_of_a_state() {
    let talk = House::open().await.talk("echo").await;
    let of = |context: &str, text: &str| with(message(text), &json!({"contextId": context}));
    let a = talk.say(of("a", "echo 1")).await;
    let asks = talk.say(of("b", "ask what?")).await;
    let list = async |params: Json| ids(&talk.result("ListTasks", params).await);
    assert_eq!(list(json!({"contextId": "a"})).await, std::slice::from_ref(&a["id"]));
    let asking = json!({"status": "TASK_STATE_INPUT_REQUIRED"});
    assert_eq!(list(asking).await, std::slice::from_ref(&asks["id"]));
    for none in
        [json!({"contextId": "a", "status": "TASK_STATE_WORKING"}), json!({"contextId": "c"})]
    {
        assert!(list(none).await.is_empty());
    }
    for wrong in [json!({"pageSize": 0}), json!({"pageSize": 101}), json!({"pageToken": "x"})] {
        assert_eq!(talk.refusal("ListTasks", wrong).await, -32602);
    }
}
