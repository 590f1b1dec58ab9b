//! `tenure dev`, and commands that go to whoever is at work on a directory.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

#[path = "support/http.rs"]
mod http;
#[path = "support/dev.rs"]
mod process;
mod support;

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use process::Dev;
use serde_json::{Value, json};
use support::{Place, Running, wait_until};

/// A Task that runs until it is told to stop.
const LONG: &str = "
task_id: long
title: long
steps:
  a: {run: 'echo here > begun; sleep 600'}
  b: {noop: true, needs: a}
";

/// docs/http.md: what is printed can be typed as it is.
#[test]
fn a_newcomer_types_what_is_printed() {
    let place = Place::new();
    let mut dev = Dev::start(&place, &[]);
    let create = dev.process.hears("curl -sS ");
    let task = create.split('\'').nth(1).unwrap();
    let watch = dev.process.hears("curl -sSN ");
    assert!(watch.contains("'Accept: text/event-stream'"), "{watch}");
    let list = dev.process.hears("tenure task list ");
    let list: Vec<&str> = list.split_whitespace().skip(1).collect();

    let tasks = "/v1/sessions/default/tasks";
    let made = http::ask(&dev.url, "POST", tasks, &[], task);
    assert_eq!(made.status, 201, "{made:?}");
    let events = http::ask(&dev.url, "GET", &format!("{tasks}/hello/events"), &[http::STREAM], "");
    assert!(events.body.contains("task.completed"), "{events:?}");
    let listed = place.tenure(&[&list[..], &["-o", "json"]].concat()).with(0).json();
    assert_eq!(listed["tasks"][0]["status"], "completed");
    let said = place.tenure(&["logs", "hello", "greet", "--http", &dev.url]).with(0);
    assert_eq!(said.stdout, "hello\n");
    dev.stop();
    assert!(!place.path(".tenure/http.sock").exists());
}

/// What others have written into a task moves no cursor and colours nothing in the terminal of who looks at it.
#[test]
fn a_title_from_elsewhere_is_harmless_in_a_terminal() {
    let place = Place::new();
    let dev = Dev::start(&place, &[]);
    let title = "\u{1b}[2Jred\u{1b}]0;owned\u{7} <b>\u{9b}2J\r\ndone\u{202e}eno";
    let print = r"printf 'said \033[2J\302\2332J\342\200\256eno\r'";
    let step = json!({ "step_id": "a", "title": title, "handler": "exec", "input": { "data": { "run": print } } });
    let task = json!({
        "task_id": "odd", "title": title, "dispatch": "auto", "completion": "auto", "steps": [step],
    });
    let made = http::ask(&dev.url, "POST", "/v1/sessions/default/tasks", &[], &task.to_string());
    assert_eq!(made.status, 201, "{made:?}");
    place.tenure(&["task", "wait", "odd", "--timeout", "30", "--http", &dev.url]).with(0);
    let looks = [
        &["task", "get", "odd"][..],
        &["task", "list", "--all"],
        &["task", "board", "odd"],
        &["task", "graph", "odd"],
        &["task", "graph", "odd", "--mermaid"],
        &["task", "graph", "odd", "--dot"],
        &["task", "watch", "odd"],
        &["task", "events", "odd"],
        &["step", "get", "odd", "a"],
        &["attempt", "get", "odd", "a"],
        &["attempt", "list", "odd"],
        &["wal", "show", "odd"],
    ];
    let steers = |c: char| c.is_control() && c != '\n' || matches!(c, '\u{202e}');
    for look in looks {
        let json = [look, &["-o", "json"]].concat();
        let is_drawing = look.iter().any(|word| word.starts_with("--") && *word != "--all");
        for args in [Some(look.to_vec()), (!is_drawing).then_some(json)].into_iter().flatten() {
            let shown = place.tenure(&[&args[..], &["--http", &dev.url]].concat());
            assert_eq!(
                (shown.code, shown.stdout.is_empty()),
                (Some(0), false),
                "{args:?}: {shown:?}"
            );
            let all = shown.stdout + &shown.stderr;
            assert!(!all.contains(steers), "{args:?}: {all:?}");
            assert!(
                !all.lines().any(|line| line.starts_with("done")),
                "{args:?} forges a line: {all}"
            );
        }
    }
    let got =
        place.tenure(&["task", "get", "odd", "-o", "json", "--http", &dev.url]).with(0).json();
    assert_eq!(got["title"], title, "in JSON the title is what it was");
    dev.stop();
}

/// Whoever may create a task says what its commands do: none of them gets the logins of the worker that runs it, but
/// those that the worker hands on by name.
#[test]
fn a_command_does_not_get_the_logins_of_its_worker() {
    let place = Place::new();
    let dev = Dev::start(&place, &[]);
    let mut worker = place.command(&[
        "worker",
        "--http",
        &dev.url,
        "--pool",
        "p",
        "--exec-env",
        "TENURE_NPM_TOKEN",
    ]);
    let worker = worker.env("TENURE_JOURNAL_PASSWORD", "pa55").env("TENURE_NPM_TOKEN", "t0ken");
    let worker =
        worker.env("OTEL_EXPORTER_OTLP_HEADERS", "authorization=pa55").env("PLAIN", "here");
    let mut worker = Running::of(worker);
    worker.hears("runs steps of pool");
    place.file("look.sh", r"env; tr '\0' '\n' < /proc/$PPID/environ | sed s/^/guard:/");
    place.file("look.yaml", "task_id: look\ndefaults: {pool: p}\nsteps: {a: {run: . ./look.sh}}\n");
    place.tenure(&["submit", "look.yaml", "--wait", "--http", &dev.url]).with(0);
    let said = place.tenure(&["logs", "look", "a", "--http", &dev.url]).with(0).stdout;
    assert!(!said.contains("pa55"), "{said}");
    assert!(!said.contains("guard:TENURE_"), "{said}");
    for line in ["PLAIN=here", "TENURE_NPM_TOKEN=t0ken", "TENURE_STEP_ID=a", "guard:PLAIN=here"] {
        assert!(said.lines().any(|it| it == line), "{line} is missing: {said}");
    }
    worker.signal(Signal::SIGTERM);
    worker.end().with(0);
    dev.stop();
}

/// RECOVER-01, RECOVER-10: what a killed process left goes on as soon as there is another.
#[test]
fn unfinished_tasks_go_on() {
    let place = Place::new();
    let again = "echo run >> runs; [ $(wc -l < runs) -gt 1 ] || sleep 600";
    place.file("task.yaml", format!("task_id: task\nsteps: {{a: {{run: '{again}'}}}}\n"));
    let dev = Dev::start(&place, &[]);
    place.tenure(&["submit", "task.yaml", "--http", &dev.url]).with(0);
    place.wait_for("runs");
    dev.process.signal(Signal::SIGKILL);
    dev.process.end();
    let mut dev = Dev::start(&place, &[]);
    dev.process.hears("1 unfinished task from before");
    place.tenure(&["task", "wait", "task", "--timeout", "30", "--http", &dev.url]).with(0);
    dev.stop();
}

/// STORE-17: a Task that was made in another directory goes on there.
#[test]
fn a_task_of_a_file_goes_on_where_it_was_made() {
    let place = Place::new();
    std::fs::create_dir(place.path("elsewhere")).unwrap();
    let again = "echo run >> runs; [ $(wc -l < runs) -gt 1 ] || sleep 600";
    place.file("elsewhere/t.yaml", format!("task_id: t\nsteps: {{a: {{run: '{again}'}}}}\n"));
    let mut command = place.command(&["run", "t.yaml", "--data", "../.tenure", "-o", "quiet"]);
    let run = Running::of(command.current_dir(place.path("elsewhere")));
    place.wait_for("elsewhere/runs");
    run.signal(Signal::SIGKILL);
    run.end();
    let dev = Dev::start(&place, &[]);
    place.tenure(&["task", "wait", "t", "--timeout", "30", "--http", &dev.url]).with(0);
    let ran = std::fs::read_to_string(place.path("elsewhere/runs")).unwrap();
    assert_eq!(ran.lines().count(), 2);
    assert!(!place.path("runs").exists());
    dev.stop();
}

/// The worker of the process leaves to others what it cannot run.
#[test]
fn a_step_with_another_handler_waits_for_its_worker() {
    let place = Place::new();
    place.file("t.yaml", "task_id: t\nsteps: {a: {handler: translate}}");
    let dev = Dev::start(&place, &[]);
    place.tenure(&["submit", "t.yaml", "--http", &dev.url]).with(0);
    let why = place.tenure(&["task", "explain", "t", "a", "--http", &dev.url, "-o", "json"]);
    assert_eq!(why.with(0).json()["headline"], "no_worker_with_handler");
    dev.stop();
}

/// A Step that runs has `--drain` seconds, is asked to stop then, and goes back.
#[test]
fn a_step_that_runs_is_given_back_at_the_end() {
    let place = Place::new();
    place.file("long.yaml", LONG);
    let dev = Dev::start(&place, &["--drain", "0"]);
    place.tenure(&["submit", "long.yaml", "--http", &dev.url]).with(0);
    place.wait_for("begun");
    dev.process.signal(Signal::SIGTERM);
    let ended = dev.process.end().with(0);
    assert!(ended.stderr.contains("1 in hand"), "{ended:#?}");
    let got = place.tenure(&["task", "get", "long", "-o", "json"]).with(0).json();
    let status = got["steps"][0]["status"].as_str().unwrap();
    assert!(["ready", "pending"].contains(&status), "{got:#}");
}

/// Commands that change a Task of a directory go to the process at work there, and only its user can.
#[test]
fn commands_with_a_directory_reach_the_process_at_work() {
    let place = Place::new();
    place.file("long.yaml", LONG);
    let dev = Dev::start(&place, &[]);
    let socket = place.path(".tenure/http.sock");
    wait_until(|| socket.exists(), &socket);
    assert_eq!(socket.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    place.tenure(&["submit", "long.yaml", "--http", &dev.url]).with(0);
    place.wait_for("begun");
    place.tenure(&["task", "pause", "long", "--reason", "lunch"]).with(0);
    place.tenure(&["task", "resume", "long"]).with(0);
    place.tenure(&["task", "cancel", "nothing"]).with(3);
    let by_socket = format!("unix:{}", socket.display());
    let why = ["task", "explain", "long", "a", "--http", &by_socket, "-o", "json"];
    assert_eq!(place.tenure(&why).with(0).json()["headline"], "held");
    let end = place.tenure(&["task", "cancel", "long", "--wait", "-o", "json"]).with(0).json();
    assert_eq!(end["status"], "cancelled");
    dev.stop();
}

#[test]
fn a_run_is_reached_over_its_directory() {
    let place = Place::new();
    place.file("long.yaml", LONG);
    let run = place.start(&["run", "long.yaml", "-o", "quiet"]);
    place.wait_for("begun");
    place.tenure(&["task", "pause", "long", "--reason", "lunch"]).with(0);
    place.tenure(&["task", "resume", "long"]).with(0);
    let why = place.tenure(&["task", "explain", "long", "b", "-o", "json"]).with(0).json();
    assert_eq!(why["headline"], "dependency_pending");
    // The run leaves with its Task: the log says how it has ended.
    let end = place.tenure(&["task", "cancel", "long", "--wait", "-o", "json"]).with(0).json();
    assert_eq!(end["native_status"], "cancelled");
    run.end().with(1);
    assert!(!place.path(".tenure/http.sock").exists());
}

/// Who waits for the end of a task is not left waiting when the process that was to bring it there has died.
#[test]
fn a_wait_ends_when_the_process_at_work_has_died() {
    let place = Place::new();
    let stubborn = "trap '' TERM; echo here > begun; sleep 600";
    place.file("t.yaml", format!("task_id: t\nsteps: {{a: {{run: \"{stubborn}\"}}}}\n"));
    let run = place.start(&["run", "t.yaml", "-o", "quiet"]);
    place.wait_for("begun");
    let cancel = place.start(&["task", "cancel", "t", "--wait"]);
    cancel.listens(); // The request is durable, and the step has ten seconds to stop.
    run.signal(Signal::SIGKILL);
    run.end();
    let ended = cancel.end().with(6).saying("the process at work has left");
    ended.saying("to go on: tenure run --resume=t");
}

#[test]
fn a_socket_of_a_dead_process_is_in_nobodys_way() {
    let place = Place::new();
    place.file("long.yaml", LONG);
    let run = place.start(&["run", "long.yaml", "-o", "quiet"]);
    place.wait_for("begun");
    let socket = place.path(".tenure/http.sock");
    wait_until(|| socket.exists(), &socket);
    run.signal(Signal::SIGKILL);
    run.end();
    assert!(socket.exists());
    place.tenure(&["task", "pause", "long"]).with(0);
    let dev = Dev::start(&place, &[]);
    place.tenure(&["task", "cancel", "long", "--wait"]).with(0);
    dev.stop();
}

/// Without authentication only this machine is served.
#[test]
fn an_open_address_needs_authentication() {
    let place = Place::new();
    let refused = place.tenure(&["dev", "--http", "0.0.0.0:0"]).with(2);
    refused.saying("without authentication").saying("--http-callers");
    let there = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = there.local_addr().unwrap().to_string();
    place.tenure(&["dev", "--http", &at]).with(6).saying("cannot listen").saying("--http");
    place.tenure(&["dev", "--http-key", "k"]).with(2).saying("--http-cert");
    let nobody = ["task", "list", "--http", "http://127.0.0.1:9", "--patience", "100ms"];
    place.tenure(&nobody).with(6).saying("cannot reach http://127.0.0.1:9");
    place.tenure(&["task", "list", "--http", "127.0.0.1:9"]).with(2).saying("TENURE_URL");
    let secret = ["lease", "audit", "--http", "http://ann:s3cret@127.0.0.1:9"];
    let refused = place.tenure(&secret).with(2).saying("127.0.0.1:9");
    assert!(!refused.stderr.contains("s3cret"), "{refused:#?}");
}

/// The environment names the gateway, too, and what is typed goes before it.
#[test]
fn the_environment_names_a_gateway() {
    let place = Place::new();
    let dev = Dev::start(&place, &[]);
    let list = |more: &[&str]| {
        let args = [&["task", "list", "--all", "-o", "json"], more].concat();
        Running::run_to_end(place.command(&args).env("TENURE_URL", &dev.url))
    };
    assert_eq!(list(&[]).with(0).json()["tasks"], Value::Array(Vec::new()));
    list(&["--data", "nowhere"]).with(3).saying("nowhere");
    list(&["--nats", "nats://127.0.0.1:9"]).with(6).saying("nats://127.0.0.1:9");
    let beside_data = |args: &[&str]| {
        let args = [&["task", "list", "--all", "-o", "json"], args].concat();
        Running::run_to_end(place.command(&args).env("TENURE_DATA", "nowhere"))
    };
    beside_data(&[]).with(3).saying("nowhere");
    beside_data(&["--http", &dev.url]).with(0);
    dev.stop();
}

/// Workers over HTTP, in Python and in a shell, take the Steps that the worker of this process leaves to others.
#[test]
fn the_examples_of_workers_over_http_run_steps() {
    let place = Place::new();
    let dev = Dev::start(&place, &[]);
    for (program, file) in [("python3", "http-worker.py"), ("bash", "curl-worker.sh")] {
        let worker = example_worker(&dev, program, file);
        have_a_step_run(&place, &dev, file);
        worker.signal(Signal::SIGTERM);
        if program == "bash" {
            let asked = Instant::now();
            worker.end();
            assert!(
                asked.elapsed() < Duration::from_secs(10),
                "it ends in the middle of a long poll"
            );
        }
    }
    dev.stop();
}

/// A worker ends when it is asked to, also if its gateway is gone and nobody takes its leave.
#[test]
fn an_example_of_a_worker_ends_without_its_gateway() {
    let place = Place::new();
    let dev = Dev::start(&place, &[]);
    let worker = example_worker(&dev, "python3", "http-worker.py");
    have_a_step_run(&place, &dev, "the step");
    dev.stop();
    worker.signal(Signal::SIGTERM);
    let asked = Instant::now();
    worker.end().with(0);
    assert!(asked.elapsed() < Duration::from_secs(10));
}

fn example_worker(dev: &Dev, program: &str, file: &str) -> Running {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut command = Command::new(program);
    command.arg(examples.join(file)).env("TENURE_URL", &dev.url).env_remove("TENURE_TOKEN");
    Running::of(&mut command)
}

/// Creates a Task of one Step, and waits until a worker has completed it.
fn have_a_step_run(place: &Place, dev: &Dev, title: &str) {
    let task = json!({"title": title, "steps": [
        {"step_id": "a", "title": "A", "handler": "echo", "input": {"data": {"n": 1}}},
    ]});
    let tasks = "/v1/sessions/default/tasks";
    let made = http::ask(&dev.url, "POST", tasks, &[], &task.to_string());
    assert_eq!(made.status, 201, "{made:?}");
    let made: Value = serde_json::from_str(&made.body).unwrap();
    let path = format!("{tasks}/{}", made["task"]["task_id"].as_str().unwrap());
    let is_done = || {
        let task = http::ask(&dev.url, "GET", &path, &[], "").body;
        let task: Value = serde_json::from_str(&task).unwrap();
        task["native_status"] == "completed"
            && task["steps"][0]["output"]["data"].as_str().map(compact) == Some(r#"{"n":1}"#.into())
    };
    wait_until(is_done, &place.path(title));
}

/// An orchestrator over HTTP, in Python, makes a Task, changes it while it runs, answers the Step that waits for
/// a person, and completes it. It watches in two streams, and the second goes on behind the last event of the
/// first: no event comes twice.
#[test]
fn the_example_of_an_orchestrator_over_http_brings_its_task_to_the_end() {
    let place = Place::new();
    let dev = Dev::start(&place, &[]);
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/http-client.py");
    let mut command = Command::new("python3");
    command.arg(example).env("TENURE_URL", &dev.url).env_remove("TENURE_TOKEN");
    let ended = Running::run_to_end(&mut command).with(0);
    assert!(ended.stdout.ends_with("ended completed\n"), "{ended:#?}");
    let events: Vec<Vec<&str>> =
        ended.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    let of_kind = |kind: &str| events.iter().filter(|it| it[1..].starts_with(&[kind])).count();
    assert_eq!(of_kind("task.waiting"), 1, "{ended:#?}");
    assert_eq!(of_kind("task.attempt.completed"), 3, "{ended:#?}");
    let places: BTreeSet<&str> = events.iter().map(|it| it[0]).collect();
    assert_eq!(places.len(), events.len(), "{ended:#?}");
    dev.stop();
}

fn compact(text: &str) -> String {
    text.split_whitespace().collect()
}
