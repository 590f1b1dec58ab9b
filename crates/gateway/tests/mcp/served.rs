//! 2026-07-28: each request says who asks and in which session, and any gateway answers it.

use serde_json::{Value as Json, json};

use crate::house::House;
use crate::talk::{NEWEST, Talk};

fn task(id: &str) -> Json {
    let steps = json!([{ "step_id": "a", "title": "A", "handler": "hold" }]);
    json!({ "task_id": id, "title": "T", "dispatch": "auto", "completion": "auto", "steps": steps })
}

/// PERM-01, PERM-14: the login says who acts, and the log has it.
#[tokio::test]
async fn the_login_says_who_acts() {
    let house = House::open().await;
    let site = house.site().await;
    let ann = Talk::of(site.address, "ann-token");
    let discovered = ann.ask("server/discover", json!({})).await;
    assert_eq!(discovered["supportedVersions"], json!(["2025-06-18", "2025-11-25", NEWEST]));
    let made = ann.done("task_create", task("t")).await;
    assert_eq!(
        (&made["task"]["created_by_agent_id"], &made["task"]["session_id"]),
        (&json!("ann"), &json!("main"))
    );
    let bob = Talk::of(site.address, "bob-token");
    let tools = bob.ask("tools/list", json!({})).await["tools"].clone();
    assert!(
        tools.as_array().unwrap().iter().all(|tool| tool["annotations"]["readOnlyHint"] == true)
    );
    let refused = bob
        .ask("tools/call", json!({ "name": "task_cancel", "arguments": { "task_id": "t" } }))
        .await;
    assert_eq!(refused["structuredContent"]["error"]["code"], "tool_not_available");
    // Nothing of a request says who its caller is but the login.
    let claims = bob.with("x-principal", "ann").with("tenure-role", "orchestrator");
    let refused = claims
        .ask("tools/call", json!({ "name": "task_cancel", "arguments": { "task_id": "t" } }))
        .await;
    assert_eq!(refused["isError"], true);
}

#[tokio::test]
async fn who_is_not_let_in_gets_nothing() {
    let house = House::open().await;
    let site = house.site().await;
    for (talk, status) in [
        (Talk::of(site.address, "wrong"), 401),
        (Talk::of(site.address, "ant-token"), 403),
        (Talk::of(site.address, "ann-token").at("/mcp?session=other"), 403),
        (Talk::of(site.address, "ann-token").with("tenure-session", "other"), 403),
        (Talk::of(site.address, "ann-token").with("origin", "https://evil.example"), 403),
        (Talk::of(site.address, "ann-token").with("content-type", "text/plain"), 415),
        (Talk::of(site.address, "ann-token").with("accept", "application/json"), 406),
        (Talk::of(site.address, "ann-token").at("/mcp?other=1"), 422),
    ] {
        let mut answer = talk.post("tools/list", json!({})).await;
        let said = answer.message().await;
        assert_eq!(answer.status, status, "{:?} {}: {said:?}", talk.headers, talk.path);
    }
}

/// Where no login is asked for, a name that is made to resolve to this machine lets nobody in.
#[tokio::test]
async fn a_foreign_name_for_this_machine_is_refused_where_anybody_may_come() {
    let house = House::open().await;
    let site = house.open_site().await;
    let local = Talk::of(site.address, "none");
    assert_eq!(local.ask("tools/list", json!({})).await["tools"].as_array().unwrap().len(), 16);
    for (name, value) in [("host", "evil.example"), ("origin", "http://evil.example")] {
        let answer = local.with(name, value).post("tools/list", json!({})).await;
        assert_eq!(answer.status, 403, "{name}");
    }
}

/// The session of Tenure is named, or the only one of the login.
#[tokio::test]
async fn the_session_is_named_or_the_only_one() {
    let house = House::open().await;
    let site = house.site().await;
    let ada = Talk::of(site.address, "ada-token");
    for (talk, session) in [
        (ada.clone(), "main"),
        (ada.at("/mcp?session=other"), "other"),
        (ada.with("tenure-session", "other"), "other"),
        (Talk::of(site.address, "eve-token"), "other"),
    ] {
        let made = talk
            .done(
                "task_create",
                json!({ "title": "T", "steps": [{ "step_id": "a", "title": "A" }] }),
            )
            .await;
        assert_eq!(made["task"]["session_id"], session, "{:?} {}", talk.headers, talk.path);
    }
    let uri = json!({ "uri": "tenure://task/other/t" });
    let mut answer = ada.post("resources/read", uri).await;
    assert_eq!(answer.message_with_id().await["error"]["code"], -32602, "it is in another session");
}

/// The headers of a request must say what its body says.
#[tokio::test]
async fn headers_that_contradict_the_body_are_refused() {
    let house = House::open().await;
    let site = house.site().await;
    let ann = Talk::of(site.address, "ann-token");
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": NEWEST,
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({ "name": "task_list", "arguments": {}, "_meta": meta });
    let message =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string();
    for headers in [
        vec![
            ("mcp-protocol-version", "2025-11-25"),
            ("mcp-method", "tools/call"),
            ("mcp-name", "task_list"),
        ],
        vec![
            ("mcp-protocol-version", NEWEST),
            ("mcp-method", "tools/list"),
            ("mcp-name", "task_list"),
        ],
        vec![
            ("mcp-protocol-version", NEWEST),
            ("mcp-method", "tools/call"),
            ("mcp-name", "task_cancel"),
        ],
    ] {
        let talk = headers.iter().fold(ann.clone(), |talk, (name, value)| talk.with(name, *value));
        let mut answer = talk.send("POST", message.clone()).await;
        let said = answer.message().await.unwrap();
        assert_eq!(
            (answer.status, &said["error"]["code"]),
            (400, &json!(-32020)),
            "{headers:?}: {said}"
        );
    }
    let mut answer = ann.post("nonsense/method", json!({})).await;
    let said = answer.message_with_id().await;
    assert_eq!((answer.status, &said["error"]["code"]), (404, &json!(-32601)), "{said}");
}

/// TERM-01: whoever closes the stream of a call that waits cancels that call, and no Task.
#[tokio::test]
async fn a_closed_stream_cancels_no_task() {
    let house = House::open().await;
    let site = house.site().await;
    let ann = Talk::of(site.address, "ann-token");
    ann.done("task_create", task("t")).await;
    let wait = json!({
        "name": "wait",
        "arguments": { "task_id": "t", "until": "end", "seconds": 50 },
        "_meta": { "progressToken": 7 },
    });
    let mut waiting = ann.post("tools/call", wait).await;
    let told = waiting.message().await.unwrap();
    assert_eq!(
        (&told["method"], &told["params"]["progressToken"]),
        (&json!("notifications/progress"), &json!(7))
    );
    assert_eq!(waiting.header("x-accel-buffering"), "no");
    drop(waiting);
    let view = house.client("main").get(&"t".parse().unwrap()).await.unwrap();
    assert!(!view.task.native_status.is_terminal() && view.task.cancel_requested.is_none());
    house.gate.add_permits(1);
    let ended = ann.done("wait", json!({ "task_id": "t", "until": "end" })).await;
    assert_eq!(ended["task"]["native_status"], "completed");
}

/// Any gateway answers any request: nothing is kept between two of them.
#[tokio::test]
async fn two_gateways_answer_in_turn() {
    let house = House::open().await;
    let (one, two) = (house.site().await, house.site().await);
    Talk::of(one.address, "ann-token").done("task_create", task("t")).await;
    let read = Talk::of(two.address, "ann-token").done("task_get", json!({ "task_id": "t" })).await;
    assert_eq!(read["task_id"], "t");
    one.stop().await;
    Talk::of(two.address, "ann-token").done("task_cancel", json!({ "task_id": "t" })).await;
}

/// A listener is told of changes, until it is not known any more.
#[tokio::test]
async fn a_listener_is_told_until_its_login_ends() {
    let house = House::open().await;
    let site = house.site().await;
    let ada = Talk::of(site.address, "ada-token");
    ada.done("task_create", task("t")).await;
    let uris = json!(["tenure://task/main/t"]);
    let filter = json!({ "notifications": { "resourceSubscriptions": uris } });
    let mut listening = ada.post("subscriptions/listen", filter).await;
    assert_eq!(
        listening.message().await.unwrap()["method"],
        "notifications/subscriptions/acknowledged"
    );
    // The subscription reaches the scheduler a moment after it is acknowledged: change until it is told.
    let client = house.client("main");
    let told = async {
        loop {
            let message = listening.message().await.expect("it goes on");
            if message["method"] == "notifications/resources/updated" {
                return (listening, message);
            }
        }
    };
    let change = async {
        for _ in 0.. {
            client.pause(&"t".parse().unwrap(), "").await.unwrap();
            client.resume(&"t".parse().unwrap(), "").await.unwrap();
            tokio::task::yield_now().await;
        }
    };
    let (mut listening, message) = tokio::select! {
        told = told => told,
        () = change => unreachable!("it goes on"),
    };
    assert_eq!(message["params"]["uri"], "tenure://task/main/t");
    house.admit_only_the_first(&site);
    while listening.message().await.is_some() {}
}

/// A body at the limit is read, and one over it is not.
#[tokio::test]
async fn a_body_has_a_limit() {
    let house = House::open().await;
    let site = house.site().await;
    let ann = Talk::of(site.address, "ann-token");
    let most = 4 << 20;
    let padded = |length: usize| {
        let message =
            json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {} }).to_string();
        message.clone() + &" ".repeat(length - message.len())
    };
    assert_ne!(ann.send("POST", padded(most)).await.status, 413);
    assert_eq!(ann.send("POST", padded(most + 1)).await.status, 413);
}
