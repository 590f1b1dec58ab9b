//! Calls that are answered: results, failures, progress, and what a server may see and do.

use serde_json::json;
use tenure_sdk::mcp::{ServerCall, ToolClient, ToolServers};
use tokio::sync::watch;

use crate::bench::{Bench, command, is_alive};

/// What a tool has made is the output: its structured content, or its texts and images.
#[tokio::test]
async fn what_a_tool_makes_is_the_output() {
    for bench in [Bench::stdio(&[]).await, Bench::http(&[], "").await] {
        let task = bench.call("sum", json!({"a": 2, "b": 3})).await;
        assert_eq!(bench.output(&task).await, json!({"sum": 5}));
        let task = bench.call("echo", json!({"text": "hëllo"})).await;
        let output = bench.output(&task).await;
        assert_eq!(output["text"], "hëllo");
        let task = bench.call("picture", json!({})).await;
        let output = bench.output(&task).await;
        assert_eq!(output["content"][1]["mimeType"], "image/png");
        assert_eq!(bench.asked("server/discover").len(), 1, "one connection for all calls");
    }
}

/// VALUE-01: what is too large for a log is a blob.
#[tokio::test]
async fn a_large_result_is_a_blob() {
    let bench = Bench::stdio(&[]).await;
    let task = bench.call("picture", json!({"times": 100_000})).await;
    bench.when(&task, "completed").await;
    let output = bench.view(&task).await["output"].clone();
    assert!(output["size_bytes"].as_u64().unwrap() > 800_000, "{output}");
}

/// Servers of older versions are called, too, also those that say nothing before they are initialized.
#[tokio::test]
async fn older_servers_are_spoken_to_as_they_speak() {
    let benches = [
        Bench::stdio(&["--older"]).await,
        Bench::stdio(&["--older", "--deaf"]).await,
        Bench::http(&["--older"], "").await,
    ];
    for bench in benches {
        let task = bench.call("sum", json!({"a": 2, "b": 3})).await;
        assert_eq!(bench.output(&task).await, json!({"sum": 5}));
        assert_eq!(bench.asked("initialize").len(), 1);
        assert_eq!(bench.asked("notifications/initialized").len(), 1);
        assert!(
            bench.asked("tools/call")[0]["params"].get("_meta").is_some(),
            "a token of progress"
        );
    }
}

/// CTX-07: the progress of a call is that of its Step.
#[tokio::test]
async fn progress_is_that_of_the_step() {
    for bench in [Bench::stdio(&[]).await, Bench::http(&[], "").await] {
        let until = bench.dir.path().join("go");
        let task = bench.call("slow", json!({"parts": 4, "until": until})).await;
        let says = |step: &serde_json::Value| step["progress"]["percent"] == 100.0;
        let step = bench.until(&task, says).await;
        assert_eq!(
            (&step["progress"]["summary"], &step["status"]),
            (&json!("part 4"), &json!("running"))
        );
        std::fs::write(until, "").unwrap();
        assert_eq!(bench.output(&task).await["text"], "done");
    }
}

/// A tool that failed fails its Step with what it says, and the Step may be tried again; a call that the server refuses
/// is not tried again.
#[tokio::test]
async fn a_failure_is_one_of_the_step() {
    for bench in [Bench::stdio(&[]).await, Bench::http(&[], "").await] {
        for (tool, arguments, code, says, calls) in [
            ("fails", json!({}), "mcp_tool_failed", "the disk is full", 2),
            ("refuses", json!({}), "mcp_refused", "(-32602): wrong arguments", 1),
            ("refuses", json!({"code": -32603}), "mcp_failed", "(-32603)", 2),
            ("nothing", json!({}), "mcp_refused", "no tool nothing", 1),
        ] {
            let before = bench.asked("tools/call").len();
            let task = bench.call_up_to(2, tool, arguments).await;
            let failure = bench.failure(&task).await;
            assert_eq!(failure.0, code);
            assert!(failure.1.contains(says), "{failure:?}");
            assert_eq!(bench.asked("tools/call").len() - before, calls, "{tool}");
        }
    }
}

/// A Step calls what its worker's file of servers names, and nothing else.
#[tokio::test]
async fn a_step_names_nothing_that_its_worker_does_not_know() {
    let bench = Bench::with(&[], "allow = [\"sum\"]").await;
    for (server, tool, says) in
        [("tools", "echo", "`allow`"), ("others", "sum", "no server \"others\"")]
    {
        let task = bench.ask(2, json!({"server": server, "tool": tool})).await;
        let (code, message) = bench.failure(&task).await;
        assert_eq!(code, "mcp_not_allowed");
        assert!(message.contains(says), "{message}");
    }
    for input in [
        json!({"server": "tools", "tool": "sum", "command": ["sh"]}),
        json!({"server": "tools", "tool": "sum", "url": "http://one"}),
        json!({"server": {"command": ["sh"]}, "tool": "sum"}),
    ] {
        let task = bench.ask(2, input).await;
        assert_eq!(bench.failure(&task).await.0, "rejected");
    }
    assert!(bench.log().is_empty(), "nothing was started");
}

/// A program gets what its settings name of the environment of its worker, and nothing of Tenure's.
#[tokio::test]
async fn a_program_gets_a_clean_environment() {
    let bench = Bench::with(&[], "env = [\"CARGO_PKG_NAME\"]\ncwd = \"/\"").await;
    let task = bench.call("environment", json!({})).await;
    let output = bench.output(&task).await;
    let names: Vec<&str> =
        output["names"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
    // A launcher of Python may add names of its own.
    let of_cargo: Vec<&&str> = names.iter().filter(|name| name.starts_with("CARGO")).collect();
    assert_eq!(of_cargo, [&"CARGO_PKG_NAME"], "of all that cargo has set");
    assert!(names.contains(&"PATH"), "{names:?}");
    assert_eq!(output["cwd"], "/");
}

/// A cancellation of the Step is one of the call.
#[tokio::test]
async fn a_cancellation_is_passed_on() {
    let bench = Bench::stdio(&[]).await;
    let task = bench.call("hangs", json!({})).await;
    let call = bench.logged(|it| it["method"] == "tools/call").await;
    bench.client.cancel(&task, "no more").await.unwrap();
    let told = bench.logged(|it| it["method"] == "notifications/cancelled").await;
    assert_eq!(told["params"]["requestId"], call["id"]);
    bench.when(&task, "cancelled").await;
}

/// A program dies with its worker, and all that it has started.
#[tokio::test]
async fn a_program_dies_with_its_worker() {
    let mut bench = Bench::stdio(&[]).await;
    let task = bench.call("leaves_a_child", json!({})).await;
    bench.output(&task).await;
    let child = bench.logged(|it| it.get("child").is_some()).await["child"].clone();
    let server = bench.logged(|it| it.get("started").is_some()).await["started"].clone();
    assert!(is_alive(&child) && is_alive(&server));
    bench.stop_workers().await;
    let gone = bench.dir.path().join("gone");
    tokio::task::spawn_blocking(move || {
        crate::support::wait_until(|| !is_alive(&child) && !is_alive(&server), &gone);
    })
    .await
    .unwrap();
}

/// Of many calls at a time, each gets its own answer, and no more go on than the settings allow.
#[tokio::test]
async fn calls_go_on_side_by_side() {
    let dir = tempfile::tempdir().unwrap();
    let file =
        format!("[servers.tools]\ncommand = {}\ncalls_max = 4", json!(command(dir.path(), &[])));
    let mut servers: ToolServers = toml::from_str(&file).unwrap();
    let client = ToolClient::new("tools", servers.servers.remove("tools").unwrap());
    let calls = (0..32).map(|number| {
        let client = &client;
        async move {
            let arguments = json!({"a": number, "b": 0}).as_object().unwrap().clone();
            let call = ServerCall { tool: "sum".into(), arguments, ..ServerCall::default() };
            let answer = client.call(&call, &watch::channel(None).0).await.unwrap();
            let tenure_sdk::mcp::ServerAnswer::Result(result) = answer else { panic!("a result") };
            assert_eq!(result.structured_content.unwrap()["sum"], number);
        }
    });
    futures::future::join_all(calls).await;
}
