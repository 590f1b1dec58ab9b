//! `--mcp-servers`: the binary with a file of servers.

use nix::sys::signal::Signal;
use serde_json::{Value as Json, json};

use crate::bench::{command, is_alive, serve, write_state};
use crate::support::{Place, Running, step, wait_until};

/// A task file of one step that calls a tool.
fn task_file(place: &Place, tool: &str, arguments: &Json) {
    let input = json!({"server": "tools", "tool": tool, "arguments": arguments});
    place.file(
        "task.yaml",
        format!("id: call\nsteps:\n  call:\n    handler: mcp\n    input: {input}\n"),
    );
}

fn server_file(place: &Place) {
    place.file(
        "mcp.toml",
        format!("[servers.tools]\ncommand = {}\n", json!(command(place.dir.path(), &[]))),
    );
}

fn log(place: &Place) -> Vec<Json> {
    let text = std::fs::read_to_string(place.path("log")).unwrap_or_default();
    text.lines().map_while(|line| serde_json::from_str(line).ok()).collect()
}

/// `tenure run` calls a tool, and its program ends with it.
#[test]
fn a_step_of_a_file_calls_a_tool() {
    let place = Place::new();
    server_file(&place);
    task_file(&place, "sum", &json!({"a": 2, "b": 3}));
    let (code, report) = place.report(&["run", "task.yaml", "--mcp-servers", "mcp.toml"]);
    assert_eq!(code, Some(0), "{report:#}");
    assert_eq!(step(&report, "call")["status"], "completed");
    let started = log(&place).into_iter().find_map(|it| it.get("started").cloned()).unwrap();
    wait_until(|| !is_alive(&started), &place.path("the end of the program"));
}

/// The logins of a worker do not come to the programs that it starts.
#[test]
fn a_program_gets_no_login_of_the_worker() {
    let place = Place::new();
    server_file(&place);
    task_file(&place, "environment", &json!({}));
    let mut command = place.command(&["run", "task.yaml", "--mcp-servers", "mcp.toml"]);
    for name in ["TENURE_TOKEN", "TENURE_NATS_PASSWORD", "NATS_TOKEN", "ANY_SECRET"] {
        command.env(name, "s3cret");
    }
    Running::run_to_end(&mut command).with(0);
    let names = log(&place).into_iter().find_map(|it| it.get("names").cloned()).unwrap();
    let names: Vec<&str> =
        names.as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
    assert!(names.contains(&"PATH"), "{names:?}");
    let is_secret =
        |name: &&str| ["TENURE_", "NATS_", "ANY_"].iter().any(|it| name.starts_with(it));
    assert!(!names.iter().any(is_secret), "{names:?}");
}

/// Without the file there is no such handler; a file that is wrong is refused with its line.
#[test]
fn what_is_missing_or_wrong_is_said_before_anything_is_made() {
    let place = Place::new();
    task_file(&place, "sum", &json!({}));
    place.tenure(&["run", "task.yaml"]).with(2).saying("handler `mcp`").saying("--mcp-servers");
    place.file("mcp.toml", "[servers.tools]\ncommand = [\"true\"]\nenv = [\"TENURE_TOKEN\"]\n");
    let refused = place.tenure(&["run", "task.yaml", "--mcp-servers", "mcp.toml"]).with(2);
    refused.saying("mcp.toml is no file of servers: line ").saying("TENURE_TOKEN");
    assert!(!place.path(".tenure").exists());
}

/// `tenure run` has the handler `a2a`, too, and needs no option for it.
#[test]
fn a_step_of_a_file_may_go_to_an_agent() {
    let place = Place::new();
    place.file("task.yaml", "steps:\n  ask: {handler: a2a, input: {message: hello}}\n");
    let (code, report) = place.report(&["run", "task.yaml"]);
    assert_eq!(code, Some(1), "{report:#}");
    let step = step(&report, "ask");
    assert!(step.to_string().contains("a2a takes"), "{step:#}");
}

/// A2A-02: after `kill -9` the next run goes on with the task of the server, and calls nothing twice.
#[test]
fn a_run_that_was_killed_goes_on_with_the_same_task() {
    let place = Place::new();
    let (mut server, url) = serve(place.dir.path(), &[]);
    place.file("mcp.toml", format!("[servers.tools]\nurl = {url:?}\n"));
    task_file(&place, "job", &json!({"name": "load"}));
    let running = place.start(&["run", "task.yaml", "--mcp-servers", "mcp.toml"]);
    wait_until(
        || log(&place).iter().filter(|it| it["method"] == "tasks/get").count() > 2,
        &place.path("log"),
    );
    running.signal(Signal::SIGKILL);
    running.end();
    let done =
        json!({"status": "completed", "result": {"content": [{"type": "text", "text": "loaded"}]}});
    write_state(place.dir.path(), "load.done", &done);
    let (code, report) = place.report(&["run", "--resume=call", "--mcp-servers", "mcp.toml"]);
    assert_eq!(code, Some(0), "{report:#}");
    let calls = log(&place).into_iter().filter(|it| it["method"] == "tools/call").count();
    assert_eq!(calls, 1, "{:#}", json!(log(&place)));
    server.kill().unwrap();
    server.wait().unwrap();
}

/// A program dies with the worker that is killed, and so does what the program has started.
#[test]
fn a_program_dies_with_the_run_that_is_killed() {
    let place = Place::new();
    server_file(&place);
    task_file(&place, "hangs", &json!({}));
    let running = place.start(&["run", "task.yaml", "--mcp-servers", "mcp.toml"]);
    wait_until(|| log(&place).iter().any(|it| it["method"] == "tools/call"), &place.path("log"));
    let started = log(&place).into_iter().find_map(|it| it.get("started").cloned()).unwrap();
    assert!(is_alive(&started));
    running.signal(Signal::SIGKILL);
    running.end();
    wait_until(|| !is_alive(&started), &place.path("the end of the program"));
}
