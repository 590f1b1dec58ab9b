//! The examples of "Life of a Task": a boat that becomes red, and a journey with parallel follow-ups.

use serde_json::{Value as Json, json};
use tenure_core::id::TaskId;
use tenure_core::status::EdgeKind;

use crate::house::House;
use crate::talk::{message, with};

/// A2A-12, A2A-15: a refinement is a new task in the same context. Its artifact has the same name and a new id.
#[tokio::test]
async fn a_boat_becomes_red() {
    let house = House::open().await;
    let talk = house.talk("echo").await;
    let boat = talk.say(message("draw a sailboat on the ocean")).await;
    let expected = json!({
        "artifactId": boat["artifacts"][0]["artifactId"],
        "name": "sailboat_image.png",
        "description": "A generated image of a sailboat on the ocean.",
        "parts": [{"raw": "cG5n", "filename": "sailboat_image.png", "mediaType": "image/png"}],
    });
    assert_eq!(boat["artifacts"], json!([expected]));
    let follows = json!({"contextId": boat["contextId"], "referenceTaskIds": [boat["id"]]});
    let red = talk.say(with(message("draw a red sailboat on the ocean"), &follows)).await;
    assert_ne!(red["id"], boat["id"]);
    assert_eq!(red["contextId"], boat["contextId"]);
    let (new, old) = (&red["artifacts"][0], &boat["artifacts"][0]);
    assert_eq!(new["name"], old["name"]);
    assert_ne!(new["artifactId"], old["artifactId"]);
    assert_eq!(new["description"], "A generated image of a red sailboat on the ocean.");
    assert_eq!(talk.get(&boat["id"]).await, boat, "what has ended stays as it is");
    assert_eq!(sources(&house, &red).await, [boat["id"].clone()]);
}

/// A2A-20: if it is not clear which artifact is meant, the agent asks.
#[tokio::test]
async fn an_agent_asks_which_artifact_is_meant() {
    let talk = House::open().await.talk("echo").await;
    let one = talk.say(message("draw a boat")).await;
    let context = json!({"contextId": one["contextId"]});
    let two = talk.say(with(message("draw another boat"), &context)).await;
    let both = with(context, &json!({"referenceTaskIds": [one["id"], two["id"]]}));
    let asks = talk.say(with(message("draw a red boat"), &both)).await;
    assert_eq!(asks["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
    assert_eq!(asks["status"]["message"]["parts"][0]["text"], "which of the boats?");
    let red = talk.say(with(message("the first"), &json!({"taskId": asks["id"]}))).await;
    assert_eq!(red["artifacts"][0]["name"], one["artifacts"][0]["name"]);
}

/// The tasks from which one was made.
async fn sources(house: &House, task: &Json) -> Vec<Json> {
    let id: TaskId = task["id"].as_str().unwrap().parse().unwrap();
    let view = house.client("echo").get(&id).await.unwrap();
    let edges = view.relationships.iter().filter(|edge| edge.kind == EdgeKind::SourceTask);
    edges.map(|edge| edge.to.as_str().into()).collect()
}

/// A2A-14: follow-ups in one context are tasks of their own that run at once, and a task that follows one of
/// them need not wait for the others.
#[tokio::test]
async fn a_journey_has_parallel_follow_ups() {
    let house = House::open().await;
    let talk = house.talk("echo").await;
    let flight = talk.say(message("echo a flight to Helsinki")).await;
    let context = &flight["contextId"];
    let after = |task: &Json, text: &str| {
        with(message(text), &json!({"contextId": context, "referenceTaskIds": [task["id"]]}))
    };
    let snowmobile = talk.tell(after(&flight, "hold a snowmobile")).await;
    let hotel = talk.say(after(&flight, "echo a hotel")).await;
    let spa = talk.say(after(&hotel, "echo a spa")).await;
    talk.until(&snowmobile["id"], "TASK_STATE_WORKING").await;
    for task in [&flight, &hotel, &spa] {
        assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED");
        assert_eq!(task["contextId"], *context);
    }
    assert_eq!(sources(&house, &spa).await, [hotel["id"].clone()]);
    house.gate.add_permits(1);
    talk.until(&snowmobile["id"], "TASK_STATE_COMPLETED").await;
    let listed = talk.result("ListTasks", json!({"contextId": context})).await;
    assert_eq!(listed["totalSize"], 4);
}

/// A message may become a copy of a whole graph, which is one task for its caller.
#[tokio::test]
async fn a_graph_is_one_task() {
    let talk = House::open().await.talk("trips").await;
    let trip = talk.say(message("echo a plan")).await;
    assert_eq!(trip["status"]["state"], "TASK_STATE_COMPLETED");
    let outputs: Vec<&Json> =
        trip["artifacts"].as_array().unwrap().iter().map(|it| &it["parts"][0]["text"]).collect();
    assert_eq!(outputs, ["booked"]);
}
