//! What survives: a server, the scheduler and its worker, and the client.

use std::time::Duration;

use serde_json::json;
use tenure_core::status::Role;

use crate::house::{FILE, House, LONG, TASKS};
use crate::talk::{Talk, call, say};

/// The log is all that a call leaves. After a restart of everything the same id has the same task, which goes on.
#[tokio::test]
async fn a_task_survives_a_restart() {
    let house = House::open().await;
    let mut talk = house.talk().await;
    let (holds, asks) = (talk.act("hold", "on").await, talk.act("ask-all", "").await);
    talk.until(&asks["taskId"], "input_required").await;
    talk.update(&asks["taskId"], json!({"call.1.0": say("Ann")})).await;
    drop(talk);
    let house = house.reopen().await;
    let mut talk = house.talk().await;
    let seen = talk.get(&holds["taskId"]).await;
    assert_eq!((&seen["status"], &seen["createdAt"]), (&json!("working"), &holds["createdAt"]));
    house.gate.add_permits(1);
    talk.until(&holds["taskId"], "completed").await;
    let seen = talk.get(&asks["taskId"]).await;
    assert_eq!(seen["inputRequests"].as_object().unwrap().len(), 1, "one answer was kept");
    let n = json!({"action": "accept", "content": {"n": 3}});
    talk.update(&asks["taskId"], json!({"call.1.1": n})).await;
    let done = talk.until(&asks["taskId"], "completed").await;
    assert_eq!(done["result"]["structuredContent"], json!(["Ann", "{\"n\":3}"]));
}

/// Any server answers for a task, whichever has made it.
#[tokio::test]
async fn two_servers_serve_one_task() {
    let house = House::open().await;
    let (mut one, mut two) = (house.talk().await, house.talk().await);
    let made = one.act("ask", "where to?").await;
    let id = &made["taskId"];
    two.until(id, "input_required").await;
    two.update(id, json!({"call.1.0": say("Rome")})).await;
    let done = one.until(id, "completed").await;
    assert_eq!(done, two.get(id).await);
    let made = one.act("hold", "on").await;
    two.result("tasks/cancel", json!({"taskId": made["taskId"]})).await;
    one.until(&made["taskId"], "cancelled").await;
}

/// IDEM-03: a call that its client has named has one task, however often it is repeated, at whichever server.
#[tokio::test]
async fn a_named_call_is_made_once() {
    let house = House::open().await;
    let (mut one, mut two) = (house.talk().await, house.talk().await);
    let named = |with: &str| {
        let mut params = call("act", "hold", with);
        params["_meta"] = json!({"dev.tenure/command_id": "order-17"});
        params
    };
    let first = one.result("tools/call", named("on")).await;
    let again = two.result("tools/call", named("on")).await;
    assert_eq!(first["taskId"], again["taskId"]);
    let other = two.result("tools/call", named("off")).await;
    assert_eq!(other["structuredContent"]["error"]["code"], "idempotency_conflict");
    house.gate.add_permits(1);
    one.until(&first["taskId"], "completed").await;
    let again = two.result("tools/call", named("on")).await;
    assert_eq!((&again["status"], &again["taskId"]), (&json!("completed"), &first["taskId"]));
    let bob = house.talk_as("bob").await.result("tools/call", named("on")).await;
    assert_ne!(bob["taskId"], first["taskId"]);
    house.gate.add_permits(1);
}

/// IDEM-03: a call that is repeated under its id after the file of agents has changed is the call that it was, and one
/// with other arguments is told what its id was used for.
#[tokio::test]
async fn a_named_call_stays_what_it_was_when_its_tool_changes() {
    let house = House::open().await;
    let mut talk = house.talk().await;
    let named = |with: &str| {
        let mut params = call("act", "hold", with);
        params["_meta"] = json!({"dev.tenure/command_id": "order-18"});
        params
    };
    let first = talk.result("tools/call", named("on")).await["taskId"].clone();
    let other =
        FILE.replacen("labels = { team = \"tests\" }", "handler = \"other\"\nattempts = 7", 1);
    assert_ne!(other, FILE);
    house.offer(&other);
    let again = talk.result("tools/call", named("on")).await;
    assert_eq!((&again["resultType"], &again["taskId"]), (&json!("task"), &first));
    house.gate.add_permits(1);
    talk.until(&first, "completed").await;
    let again = talk.result("tools/call", named("on")).await;
    assert_eq!((&again["status"], &again["taskId"]), (&json!("completed"), &first));
    // Who waits for the result gets it, too.
    let mut waits = house.waiting_talk(json!({}), LONG).await;
    assert_eq!(waits.result("tools/call", named("on")).await["content"][0]["text"], "on");
    let refused = talk.result("tools/call", named("off")).await;
    let error = &refused["structuredContent"]["error"];
    assert_eq!(error["code"], "idempotency_conflict");
    assert_eq!(error["field"], "dev.tenure/command_id");
    assert_eq!(house.client().list(true).await.unwrap().entries.len(), 1);
}

/// A client that goes away cancels nothing: its task goes on, with or without the extension.
#[tokio::test]
async fn a_task_goes_on_without_its_client() {
    let house = House::open().await;
    for capabilities in [json!({"extensions": {TASKS: {}}}), json!({})] {
        let server = house.server("ann", Role::Orchestrator, LONG);
        let mut talk = Talk::begin(server, capabilities).await;
        talk.begin_request("tools/call", call("act", "hold", "on")).await;
        // It is at work.
        let task = loop {
            tokio::time::sleep(Duration::from_millis(1)).await; // So that the others get on.
            let live = house.client().list(false).await.unwrap().entries;
            let Some(entry) = live.into_iter().next() else { continue };
            let seen = house.client().get(&entry.key.task_id).await;
            if seen.is_ok_and(|seen| seen.task.counts.running == 1) {
                break entry.key.task_id;
            }
        };
        drop(talk);
        house.gate.add_permits(1);
        let ended = house.client().wait_for_end(&task).await.unwrap();
        assert_eq!(ended.status.as_str(), "completed");
    }
}
