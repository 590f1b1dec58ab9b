//! Servers that hang, die, print what is no message, say too much, or answer another request.

use serde_json::json;

use crate::bench::{Bench, is_alive};

/// Each fault has a reason of its own, and the next call goes to a program that was started anew.
#[tokio::test]
async fn a_program_that_breaks_is_started_anew() {
    let bench = Bench::with(&[], "call_timeout_s = 1\nanswer_bytes_max = 100_000").await;
    for (tool, arguments, code, says) in [
        ("hangs", json!({}), "mcp_silent", "nothing for 1 s"),
        ("dies", json!({}), "mcp_lost", "exit status: 3"),
        ("prints", json!({}), "mcp_malformed", "\"Server started!\" is no JSON"),
        ("answers_another", json!({}), "mcp_malformed", "answers the request 4711"),
        ("picture", json!({"times": 100_000}), "mcp_too_long", "100000 bytes"),
    ] {
        let started = bench.log().iter().filter(|it| it.get("started").is_some()).count();
        let task = bench.call(tool, arguments).await;
        let (found, message) = bench.failure(&task).await;
        assert_eq!(found, code, "{message}");
        assert!(message.contains(says), "{message}");
        let task = bench.call("sum", json!({"a": 1, "b": 1})).await;
        assert_eq!(bench.output(&task).await, json!({"sum": 2}));
        let now = bench.log().iter().filter(|it| it.get("started").is_some()).count();
        assert_eq!(now, started.max(1) + 1, "{tool}");
    }
    let pids: Vec<_> =
        bench.log().into_iter().filter_map(|it| it.get("started").cloned()).collect();
    let (last, before) = pids.split_last().unwrap();
    let gone = bench.dir.path().join("gone");
    let before = before.to_vec();
    tokio::task::spawn_blocking(move || {
        crate::support::wait_until(|| !before.iter().any(is_alive), &gone)
    })
    .await
    .unwrap();
    assert!(is_alive(last));
}

/// A call that hangs does not end those beside it, which get their answers from the same program.
#[tokio::test]
async fn a_call_that_hangs_ends_no_other() {
    let bench = Bench::with(&[], "call_timeout_s = 2").await;
    let until = bench.dir.path().join("go");
    let other = bench.call("slow", json!({"parts": 60, "until": until})).await;
    let task = bench.call("hangs", json!({})).await;
    assert_eq!(bench.failure(&task).await.0, "mcp_silent");
    std::fs::write(until, "").unwrap();
    assert_eq!(bench.output(&other).await["text"], "done");
    assert_eq!(bench.log().iter().filter(|it| it.get("started").is_some()).count(), 1);
}

/// A program that cannot be started, or that ends at once, is no reason to wait.
#[tokio::test]
async fn a_program_that_does_not_start_fails_the_step() {
    let bench = Bench::with(
        &[],
        "[servers.none]\ncommand = [\"/no/such/program\"]\n[servers.ends]\ncommand = [\"false\"]",
    )
    .await;
    for (server, code, says) in
        [("none", "mcp_unreachable", "/no/such/program"), ("ends", "mcp_lost", "exit status: 1")]
    {
        let task = bench.ask(1, json!({"server": server, "tool": "sum"})).await;
        let (found, message) = bench.failure(&task).await;
        assert_eq!(found, code);
        assert!(message.contains(says), "{message}");
    }
}
