//! Mutated messages of A2A 1.0 and of 0.3: there is an answer, and what is read is written as what is read again.

#![allow(clippy::unwrap_used, clippy::expect_used)] // A test that cannot go on has failed.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value as Json, json};
use tenure_a2a::{
    A2aCancel, A2aGet, A2aList, A2aMessage, A2aPushConfig, A2aPushList, A2aPushName, A2aReply,
    A2aSend, A2aSubscribe, A2aTask, A2aTaskPage, A2aUpdate, from_timestamp, to_http_date,
    to_timestamp, v03,
};
use tenure_testkit::fuzz::{Corpus, InputForm, Meter, fuzz};

#[global_allocator]
static METER: Meter = Meter;

/// Reads a value; what is read is written, and read as the same.
fn both_ways<T: Serialize + DeserializeOwned>(value: &Json) -> Option<T> {
    let read: T = serde_json::from_value(value.clone()).ok()?;
    let written = serde_json::to_value(&read).expect("what was read can be written");
    let again: T = serde_json::from_value(written.clone()).expect("what was written can be read");
    assert_eq!(serde_json::to_value(&again).unwrap(), written, "it is read as something else");
    Some(read)
}

/// A2A-17: what is written for a caller of 0.3 is read by one.
fn older(value: &Json) -> bool {
    let _ = (
        v03::send_in(value.clone()),
        v03::push_in(value.clone()),
        v03::push_name_in(value.clone()),
    );
    let _ = (v03::proto::send_in(value.clone()), v03::proto::push_in(value.clone()));
    let _ = v03::proto::card(value.clone());
    if let Ok(update) = v03::update_in(value.clone()) {
        let written = v03::update(&update);
        v03::update_in(written).expect("an update of 0.3 is read as it is written");
    }
    let task = v03::task_in(value.clone()).ok();
    if let Some(task) = &task {
        let written = v03::task(task);
        let again = v03::task_in(written.clone()).expect("a task of 0.3 is read as it is written");
        assert_eq!(v03::task(&again), written);
    }
    task.is_some() | v03::reply_in(value.clone()).is_ok()
}

fn samples() -> Vec<Json> {
    let message = json!({
        "messageId": "m1", "role": "ROLE_USER", "contextId": "c", "taskId": "t", "metadata": {"a": 1},
        "parts": [
            {"text": "draw", "metadata": {}}, {"data": {"x": [1, null]}}, {"raw": "cG5n", "mediaType": "image/png"},
            {"url": "https://example.org/a.png", "filename": "a.png"},
        ],
        "referenceTaskIds": ["t"], "extensions": ["https://example.org/e"],
    });
    let old_message = json!({
        "kind": "message", "messageId": "m", "role": "agent", "contextId": "c",
        "parts": [
            {"kind": "text", "text": "x"}, {"kind": "data", "data": {"x": 1}},
            {"kind": "file", "file": {"bytes": "cG5n", "mimeType": "image/png", "name": "a"}},
            {"kind": "file", "file": {"uri": "https://example.org/a"}},
        ],
    });
    let status = json!({"state": "TASK_STATE_WORKING", "message": message, "timestamp": "2026-01-01T00:00:00.5Z"});
    let artifact = json!({
        "artifactId": "a", "name": "n", "description": "d", "parts": [{"text": "x"}], "metadata": {}, "extensions": [],
    });
    let task = json!({
        "id": "t", "contextId": "c", "status": status, "artifacts": [artifact], "history": [message], "metadata": {},
    });
    let old_status = json!({"state": "input-required", "message": old_message, "timestamp": "2026-01-01T00:00:00Z"});
    let old_artifact = json!({"artifactId": "a", "parts": [{"kind": "text", "text": "x"}]});
    let push = json!({
        "id": "p", "taskId": "t", "url": "https://example.org/hook", "token": "s",
        "authentication": {"scheme": "Bearer", "credentials": "s"},
    });
    let options = json!({"acceptedOutputModes": ["a"], "historyLength": 2, "taskPushNotificationConfig": push});
    vec![
        json!({"message": message, "configuration": options}),
        json!({"message": old_message, "configuration": {"blocking": true, "pushNotificationConfig": push}}),
        json!({"message": {"message_id": "m", "role": "ROLE_USER", "content": [{"text": "x"}]}}),
        json!({"kind": "task", "id": "t", "contextId": "c", "status": old_status, "artifacts": [old_artifact],
               "history": [old_message]}),
        json!({"kind": "status-update", "taskId": "t", "contextId": "c", "status": old_status, "final": true}),
        json!({"kind": "artifact-update", "taskId": "t", "contextId": "c", "artifact": old_artifact, "append": true}),
        json!({"task": task}),
        json!({"message": message}),
        json!({"statusUpdate": {"taskId": "t", "contextId": "c", "status": status}}),
        json!({"artifactUpdate": {"taskId": "t", "contextId": "c", "artifact": artifact, "lastChunk": true}}),
        json!({"tasks": [task], "nextPageToken": "x", "pageSize": 1, "totalSize": 1}),
        json!({"contextId": "c", "status": "TASK_STATE_WORKING", "pageSize": 5, "includeArtifacts": true}),
        json!({"id": "t", "historyLength": 3}),
        task,
        message,
        old_message,
        push,
    ]
}

#[test]
fn fuzz_messages_of_a2a() {
    let samples = samples().into_iter().map(|sample| sample.to_string().into_bytes());
    fuzz("messages of A2A", &Corpus::new(InputForm::Json, samples), |bytes| {
        let Ok(value) = serde_json::from_slice::<Json>(bytes) else { return false };
        let message: Option<A2aMessage> = both_ways(&value);
        if let Some(message) = &message {
            let _ = (message.text(), message.context(), message.task(), v03::message(message));
        }
        let task: Option<A2aTask> = both_ways(&value);
        let send: Option<A2aSend> = both_ways(&value);
        let _ = send.as_ref().map(v03::send_out);
        let list: Option<A2aList> = both_ways(&value);
        let _ = list.map(v03::list_in);
        let push: Option<A2aPushConfig> = both_ways(&value);
        let _ = push.as_ref().map(|it| (v03::push(it), v03::proto::push(it)));
        let update: Option<A2aUpdate> = both_ways(&value);
        let _ = update.as_ref().map(|it| (v03::update(it), v03::proto::update(it)));
        let reply: Option<A2aReply> = both_ways(&value);
        let _ = reply.as_ref().map(v03::proto::reply);
        let _ = task.as_ref().map(|it| (v03::task(it), v03::proto::task(it), it.weight()));
        let rest = [
            both_ways::<A2aTaskPage>(&value).is_some(),
            both_ways::<A2aGet>(&value).is_some(),
            both_ways::<A2aCancel>(&value).is_some(),
            both_ways::<A2aSubscribe>(&value).is_some(),
            serde_json::from_value::<A2aPushName>(value.clone()).is_ok(),
            serde_json::from_value::<A2aPushList>(value.clone()).is_ok(),
        ];
        let older = older(&value);
        message.is_some() | task.is_some() | update.is_some() | older | rest.contains(&true)
    });
}

/// A2A-09: times that callers write.
#[test]
fn fuzz_times_of_a2a() {
    let samples =
        ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.123456789+01:00", "-009999-01-01T00:00:00Z"];
    let samples = samples.map(|it| it.as_bytes().to_vec());
    let corpus = Corpus::new(InputForm::Bytes, samples)
        .with_tokens(&["+", "-", "9999", "60", "T", "Z", "[UTC]", "."]);
    fuzz("times of A2A", &corpus, |bytes| {
        let Ok(text) = std::str::from_utf8(bytes) else { return false };
        let Some(at) = from_timestamp(text) else { return false };
        let _ = to_http_date(at);
        assert_eq!(from_timestamp(&to_timestamp(at)), Some(at));
        true
    });
    for at in [i64::MIN, i64::MAX, 0, -1] {
        let _ = (to_timestamp(at), to_http_date(at));
    }
}
