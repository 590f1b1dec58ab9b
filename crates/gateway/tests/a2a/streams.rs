//! What is told while it happens.

use serde_json::{Value as Json, json};

use crate::house::House;
use crate::talk::{Updates, in_short, message, with};

fn results(frames: &[(String, Json)]) -> Vec<String> {
    frames.iter().map(|(_, data)| in_short(&data["result"])).collect()
}

/// A2A-07, A2A-08, CORE-STREAM-001, CORE-STREAM-003, STREAM-ORDER-001, JSONRPC-SSE-001: a stream begins with the task,
/// tells everything in order, and ends with it.
#[tokio::test]
async fn a_stream_tells_of_a_task_to_its_end() {
    let talk = House::open().await.talk("echo").await;
    let params = json!({"message": message("chunks")});
    let mut stream = talk.stream("SendStreamingMessage", params, None).await;
    let frames = stream.rest().await;
    let told = results(&frames);
    assert_eq!(told[..2], ["task submitted", "working"]);
    assert_eq!(told.last().unwrap(), "completed");
    let chunks: Vec<&Json> = frames
        .iter()
        .map(|(_, data)| &data["result"]["artifactUpdate"])
        .filter(|told| told["artifact"]["artifactId"] == "long")
        .collect();
    let [first, second] = chunks[..] else { panic!("{told:?}") };
    assert_eq!((first.get("append"), first.get("lastChunk")), (None, None));
    assert_eq!((&second["append"], &second["lastChunk"]), (&json!(true), &json!(true)));
    let id = &frames[0].1["result"]["task"]["id"];
    let long = talk.get(id).await["artifacts"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(long["parts"], json!([{"text": "chunk-1 "}, {"text": "chunk-2 "}]));
    assert!(frames.iter().all(|(place, data)| !place.is_empty() && data["id"] == 7));
}

/// A2A-08, STREAM-SUB-001 to STREAM-SUB-002, STREAM-ORDER-002 to STREAM-ORDER-003: a stream stays open while the agent
/// waits for its caller, and all readers are told the same.
#[tokio::test]
async fn a_stream_stays_open_at_a_question() {
    let talk = House::open().await.talk("echo").await;
    let asks = talk.say(message("ask where to?")).await;
    let subscribe = || talk.stream("SubscribeToTask", json!({"id": asks["id"]}), None);
    let (mut one, mut two) = (subscribe().await, subscribe().await);
    for stream in [&mut one, &mut two] {
        assert_eq!(stream.update().await["task"], asks, "the task comes first");
    }
    let answer = with(message("north"), &json!({"taskId": asks["id"]}));
    let told =
        talk.stream("SendStreamingMessage", json!({"message": answer}), None).await.rest().await;
    assert_eq!(results(&told).last().unwrap(), "completed");
    let (one, two) = (one.rest().await, two.rest().await);
    assert_eq!(one, two);
    assert_eq!(results(&one), ["submitted", "working", "artifact output", "completed"]);
}

/// STREAM-ORDER-004: a reader that leaves takes nothing from the others.
#[tokio::test]
async fn a_reader_that_leaves_takes_nothing_from_the_others() {
    let talk = House::open().await.talk("echo").await;
    let asks = talk.say(message("ask where to?")).await;
    let subscribe = || talk.stream("SubscribeToTask", json!({"id": asks["id"]}), None);
    let (mut one, mut two) = (subscribe().await, subscribe().await);
    assert_eq!(one.update().await, two.update().await);
    drop(one);
    talk.say(with(message("north"), &json!({"taskId": asks["id"]}))).await;
    let told = results(&two.rest().await);
    assert_eq!(told, ["submitted", "working", "artifact output", "completed"]);
}

/// A reader that lost its connection goes on behind the last event that it got, at any gateway: it misses
/// nothing and gets nothing twice.
#[tokio::test]
async fn a_reader_goes_on_where_it_was() {
    let house = House::open().await;
    let talk = house.talk("echo").await;
    let params = json!({"message": message("chunks")});
    let whole = talk.stream("SendStreamingMessage", params, None).await.rest().await;
    let id = whole[0].1["result"]["task"]["id"].clone();
    let other = house.talk("echo").await;
    for (at, (place, _)) in whole.iter().enumerate() {
        let mut again = other.stream("SubscribeToTask", json!({"id": id}), Some(place)).await;
        assert_eq!(again.rest().await, whole[at + 1..], "behind {place}");
    }
}

/// The stream of a message begins with the task at its beginning, and that of a repetition with the task as it is.
#[tokio::test]
async fn a_stream_of_a_repetition_begins_with_the_task_as_it_is() {
    let talk = House::open().await.talk("echo").await;
    let params = json!({"message": with(message("echo a"), &json!({"contextId": "c"}))});
    let stream = async || {
        let mut stream = talk.stream("SendStreamingMessage", params.clone(), None).await;
        results(&stream.rest().await)
    };
    assert_eq!(stream().await, ["task submitted", "working", "artifact output", "completed"]);
    assert_eq!(stream().await, ["task completed"]);
}

/// HTTP_JSON-SSE-001: a stream over HTTP+JSON tells the same, without an envelope.
#[tokio::test]
async fn a_stream_over_http_tells_the_same() {
    let talk = House::open().await.talk("echo").await;
    let path = format!("{}/message:stream", talk.path());
    let body = json!({"message": message("echo a")});
    let frames = Updates::open(talk.to, &path, body, None).await.rest().await;
    let told: Vec<_> = frames.iter().map(|(_, data)| in_short(data)).collect();
    assert_eq!(told, ["task submitted", "working", "artifact output", "completed"]);
    let asks = talk.say(message("ask where to?")).await;
    let path = format!("{}/tasks/{}:subscribe", talk.path(), asks["id"].as_str().unwrap());
    let mut stream = Updates::open(talk.to, &path, json!({}), None).await;
    assert_eq!(stream.next().await.unwrap().1["task"], asks);
}

/// A2A-19, CORE-STREAM-002: an agent that answers with messages streams its answer alone.
#[tokio::test]
async fn a_message_is_streamed_alone() {
    let talk = House::open().await.talk("oracle").await;
    let params = json!({"message": message("echo 42")});
    let frames = talk.stream("SendStreamingMessage", params, None).await.rest().await;
    assert_eq!(results(&frames), ["message"]);
}
