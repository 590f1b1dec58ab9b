//! What is particular to servers at an address.

use serde_json::json;

use crate::bench::{Bench, write_state};

/// In the newest version the end of the connection cancels a call; older servers are told.
#[tokio::test]
async fn a_cancellation_ends_the_stream() {
    let bench = Bench::http(&[], "").await;
    let task = bench.call("hangs", json!({})).await;
    let call = bench.logged(|it| it["method"] == "tools/call").await;
    bench.client.cancel(&task, "no more").await.unwrap();
    bench.logged(|it| it["closed"] == call["id"]).await;
    assert!(bench.asked("notifications/cancelled").is_empty());

    let bench = Bench::http(&["--older"], "").await;
    let task = bench.call("hangs", json!({})).await;
    let call = bench.logged(|it| it["method"] == "tools/call").await;
    bench.client.cancel(&task, "no more").await.unwrap();
    let told = bench.logged(|it| it["method"] == "notifications/cancelled").await;
    assert_eq!((&told["params"]["requestId"], &told["session"]), (&call["id"], &call["session"]));
}

/// A session of an older version that the server has forgotten is begun anew, and nothing is lost by that.
#[tokio::test]
async fn a_session_that_is_gone_is_begun_anew() {
    let mut bench = Bench::http(&["--older"], "").await;
    for forgotten in [false, true] {
        if forgotten {
            write_state(bench.dir.path(), "all.forgotten", &json!(true));
        }
        let task = bench.call("sum", json!({"a": 1, "b": 1})).await;
        assert_eq!(bench.output(&task).await, json!({"sum": 2}));
    }
    assert_eq!(bench.asked("initialize").len(), 2);
    bench.stop_workers().await;
    bench.logged(|it| it["deleted"].is_string()).await;
}

/// A stream of an older version that breaks off goes on behind its last event; in the newest version there is no such
/// way.
#[tokio::test]
async fn a_stream_that_breaks_off_goes_on() {
    let bench = Bench::http(&["--older"], "").await;
    let task = bench.call("goes_on", json!({})).await;
    assert_eq!(bench.output(&task).await["text"], "all of it");
    let call = bench.asked("tools/call")[0]["id"].clone();
    let resumed: Vec<_> =
        bench.log().into_iter().filter_map(|it| it.get("resumed").cloned()).collect();
    assert_eq!(resumed, [1, 2, 3].map(|part| json!(format!("{call}-{part}"))));
    assert_eq!(bench.asked("tools/call").len(), 1);

    let bench = Bench::http(&[], "").await;
    let task = bench.call("goes_on", json!({})).await;
    assert_eq!(bench.failure(&task).await.0, "mcp_lost");
}

/// Each fault of a server has a reason of its own. A redirect is not followed.
#[tokio::test]
async fn a_server_that_breaks_fails_the_step() {
    let bench = Bench::http(&[], "call_timeout_s = 1\nanswer_bytes_max = 100_000").await;
    for (tool, arguments, code, says) in [
        ("hangs", json!({}), "mcp_silent", "nothing for 1 s"),
        ("breaks_off", json!({}), "mcp_lost", "ends before the answer"),
        ("prints", json!({}), "mcp_malformed", "\"<h1>\" is no JSON"),
        ("answers_another", json!({}), "mcp_malformed", "answers the request 4711 instead of"),
        ("picture", json!({"times": 100_000}), "mcp_too_long", "100000 bytes"),
        ("elsewhere", json!({}), "mcp_settings", "which is not followed"),
    ] {
        let task = bench.call(tool, arguments).await;
        let (found, message) = bench.failure(&task).await;
        assert_eq!(found, code, "{message}");
        assert!(message.contains(says), "{message}");
        let task = bench.call("sum", json!({"a": 1, "b": 1})).await;
        assert_eq!(bench.output(&task).await, json!({"sum": 2}));
    }
}

/// The token comes from a file that is read when a connection is made, and no reason shows it.
#[tokio::test]
async fn a_token_is_read_from_its_file() {
    let tokens = tempfile::tempdir().unwrap();
    let path = tokens.path().join("token");
    let bench = Bench::http(&["--token", "s3cret"], &format!("token_file = {path:?}")).await;
    for (token, code) in [(None, "mcp_settings"), (Some("wr0ng\n"), "mcp_refused")] {
        if let Some(token) = token {
            std::fs::write(&path, token).unwrap();
        }
        let task = bench.call("sum", json!({"a": 1, "b": 1})).await;
        let (found, message) = bench.failure(&task).await;
        assert_eq!(found, code, "{message}");
        assert!(!message.contains("wr0ng"), "{message}");
    }
    std::fs::write(&path, "s3cret\n").unwrap();
    let task = bench.call("sum", json!({"a": 1, "b": 1})).await;
    assert_eq!(bench.output(&task).await, json!({"sum": 2}));
    // The server takes another token from now on, in the middle of the connection.
    std::fs::write(&path, "n3w\n").unwrap();
    write_state(bench.dir.path(), "all.token", &json!("n3w"));
    let task = bench.call("sum", json!({"a": 1, "b": 2})).await;
    assert_eq!(bench.output(&task).await, json!({"sum": 3}));
}

/// RETRY-02: a token that is not taken yet is no failure for good: each try reads it anew, and so does a try whose
/// second connection is refused, too.
#[tokio::test]
async fn a_token_that_is_changed_late_is_taken_by_another_try() {
    let tokens = tempfile::tempdir().unwrap();
    let path = tokens.path().join("token");
    std::fs::write(&path, "s3cret\n").unwrap();
    let bench = Bench::http(&["--token", "s3cret"], &format!("token_file = {path:?}")).await;
    let task = bench.call("sum", json!({"a": 1, "b": 1})).await;
    assert_eq!(bench.output(&task).await, json!({"sum": 2}));
    // The server takes another token now, which comes here later.
    write_state(bench.dir.path(), "all.token", &json!("n3w"));
    let task = bench.call_up_to(20, "sum", json!({"a": 1, "b": 2})).await;
    let failed_once = |step: &serde_json::Value| step["attempt_count"].as_u64() >= Some(1);
    let step = bench.until(&task, failed_once).await;
    assert_ne!(step["status"], "failed", "it is tried again: {step}");
    std::fs::write(&path, "n3w\n").unwrap();
    assert_eq!(bench.output(&task).await, json!({"sum": 3}));
}

/// An address at which nobody listens.
#[tokio::test]
async fn a_server_that_is_not_there_fails_the_step() {
    let bench = Bench::with(&[], "[servers.none]\nurl = \"http://127.0.0.1:1/mcp\"").await;
    let task = bench.ask(1, json!({"server": "none", "tool": "sum"})).await;
    assert_eq!(bench.failure(&task).await.0, "mcp_unreachable");
}
