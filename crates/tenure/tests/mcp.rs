//! `tenure mcp`: the binary as hosts of models start it.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "support/hosted.rs"]
mod hosted;
#[path = "support/dev.rs"]
mod process;
mod support;

use std::io::Read as _;
use std::path::Path;
use std::time::{Duration, Instant};

use hosted::Hosted;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use process::Dev;
use serde_json::{Value, json};
use support::{Place, Running, TENURE};

fn task(id: &str, command: &str) -> Value {
    let input = json!({ "data": json!({ "run": command }).to_string(), "content_type": "application/json" });
    let steps = json!([{ "step_id": "a", "title": "A", "handler": "exec", "input": input }]);
    json!({ "task_id": id, "title": "T", "dispatch": "auto", "completion": "auto", "steps": steps })
}

/// Also without a server: scheduler, worker and MCP are one process on a directory.
#[test]
fn a_directory_is_served_and_a_closed_input_ends_it() {
    let place = Place::new();
    let mut host = Hosted::start(&place, &["--data", "data"]);
    host.done("task_create", task("t", "echo hello"));
    let ended = host.done("wait", json!({ "task_id": "t", "until": "end" }));
    assert_eq!(ended["task"]["native_status"], "completed");
    // Other commands reach the directory meanwhile.
    place.tenure(&["task", "get", "t", "--data", "data"]).with(0);
    let waits = json!({ "name": "wait", "arguments": { "task_id": "t", "until": "change", "seconds": 50 } });
    host.request("tools/call", waits);
    let (code, rest, took) = host.close();
    assert_eq!(code, Some(0));
    assert_eq!(rest.len(), 1, "whoever waits is answered: {rest:?}");
    assert!(took < Duration::from_secs(5), "{took:?}");
}

/// TERM-01: the end of the host cancels no Task. It goes on when the directory is run again.
#[test]
fn the_end_of_the_host_cancels_no_task() {
    let place = Place::new();
    let mut host = Hosted::start(&place, &["--data", "data"]);
    host.done("task_create", task("t", "test -e go || sleep 60"));
    while host.done("task_get", json!({ "task_id": "t" }))["counts"]["running"] != 1 {}
    let (code, ..) = host.close();
    assert_eq!(code, Some(0));
    place.file("go", "");
    let mut again = Hosted::start(&place, &["--data", "data"]);
    let ended = again.done("wait", json!({ "task_id": "t", "until": "end", "seconds": 50 }));
    assert_eq!(ended["task"]["native_status"], "completed", "{ended}");
}

/// Several hosts on one directory: one runs it, and another takes over when that leaves.
#[test]
fn a_second_host_takes_over_from_the_first() {
    let place = Place::new();
    let mut first = Hosted::start(&place, &["--data", "data"]);
    first.done("task_list", json!({}));
    let mut second = Hosted::start(&place, &["--data", "data"]);
    second.done("task_create", task("one", "true"));
    assert_eq!(first.done("wait", json!({ "task_id": "one", "until": "end" }))["ended"], true);
    assert_eq!(first.close().0, Some(0));
    let begun = Instant::now();
    let made = loop {
        let result = second.call("task_create", task("two", "true"));
        if result["isError"] != true {
            break result;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{result}");
    };
    assert_eq!(made["structuredContent"]["task"]["task_id"], "two");
    assert_eq!(second.done("wait", json!({ "task_id": "two", "until": "end" }))["ended"], true);
}

/// A command that waits for an end waits for longer than one request to the socket may take.
#[test]
fn a_command_waits_for_longer_than_a_request() {
    let place = Place::new();
    let mut host = Hosted::start(&place, &["--data", "data"]);
    let mut made = task("t", "sleep 6");
    made["dispatch"] = json!("manual");
    host.done("task_create", made);
    let begun = Instant::now();
    let dispatch = json!({ "task_id": "t", "worker_pool_id": "default", "wait": true });
    let content = host.done("dispatch_worker", dispatch);
    assert!(begun.elapsed() > Duration::from_secs(5), "{content}");
    assert!(!content["more"].as_str().unwrap_or_default().contains("call wait"), "{content}");
    let read = host.done("task_get", json!({ "task_id": "t" }));
    assert_eq!(read["counts"]["completed"], 1, "{read}");
}

/// Through a gateway, with its tools cut to those that read.
#[test]
fn a_gateway_is_served_with_some_tools_only() {
    let place = Place::new();
    let dev = Dev::start(&place, &[]);
    let mut all = Hosted::start(&place, &["--http", &dev.url]);
    all.done("task_create", task("t", "true"));
    let mut some = Hosted::start(&place, &["--http", &dev.url, "--allow", "read-only"]);
    let tools = some.ask("tools/list", json!({}))["result"]["tools"].clone();
    assert!(
        tools.as_array().unwrap().iter().all(|tool| tool["annotations"]["readOnlyHint"] == true)
    );
    let refused = some.call("task_cancel", json!({ "task_id": "t" }));
    assert_eq!(refused["structuredContent"]["error"]["code"], "tool_not_available");
    assert_eq!(some.done("task_get", json!({ "task_id": "t" }))["task_id"], "t");
    drop((all, some));
    dev.stop();
}

#[test]
fn a_signal_ends_it_and_wrong_options_are_refused() {
    let place = Place::new();
    let mut host = Hosted::start(&place, &["--data", "data"]);
    host.done("task_list", json!({}));
    kill(Pid::from_raw(host.child.id().cast_signed()), Signal::SIGINT).unwrap();
    assert!(host.message().is_none());
    assert_eq!(host.child.wait().unwrap().code(), Some(130));
    let mut said = String::new();
    host.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(!said.contains("panicked"), "{said}");
    place.tenure(&["mcp", "--allow", "task_creat"]).with(2).saying("task_create");
    let nobody = place.tenure(&["mcp", "--http", "http://127.0.0.1:9"]);
    assert_eq!((nobody.code, nobody.stdout.as_str()), (Some(6), ""));
}

#[test]
fn the_example_of_an_orchestrator_over_mcp_brings_its_task_to_the_end() {
    let place = Place::new();
    let example =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/mcp-orchestrator/main.py");
    let mut command = place.program("python3", &[]);
    command.arg(example).args([TENURE, "mcp", "--data", "demo"]);
    let ended = Running::run_to_end(&mut command).with(0);
    assert!(ended.stdout.contains("asked: Is the report good enough to publish?"), "{ended:#?}");
    assert!(ended.stdout.contains("refused: task_update: step_history_immutable"), "{ended:#?}");
    assert!(ended.stdout.ends_with("ended completed\n"), "{ended:#?}");
    assert_eq!(ended.stdout.matches("ended: completed").count(), 3, "{ended:#?}");
}
