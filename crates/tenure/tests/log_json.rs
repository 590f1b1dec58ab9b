//! Whoever collects the log of a process reads every line of it, also the last.

#![allow(clippy::unwrap_used, clippy::expect_used)] // A test that cannot go on has failed.

mod support;

use serde_json::Value;
use support::{Place, Running};

/// The lines of stderr, each of which is an object with a time, a level and a message.
fn lines(stderr: &str) -> Vec<Value> {
    let read = |line| serde_json::from_str::<Value>(line).unwrap_or_else(|_| panic!("{line:?}"));
    let lines: Vec<Value> = stderr.lines().map(read).collect();
    for line in &lines {
        assert!(line["timestamp"].as_str().is_some_and(|it| it.ends_with('Z')), "{line}");
        assert!(line["level"].is_string() && line["message"].is_string(), "{line}");
    }
    lines
}

#[test]
fn the_error_that_ends_a_process_with_a_log_of_json_is_a_line_of_it() {
    let place = Place::new();
    place.file("taken", "no directory");
    let args = ["worker", "--files", "taken/below", "--log-format", "json"];
    let ended = place.tenure(&args).with(2);
    let lines = lines(&ended.stderr);
    let last = lines.last().unwrap();
    assert_eq!(last["level"], "ERROR");
    assert!(last["message"].as_str().unwrap().contains("taken/below"), "{last}");
    assert!(last["help"].as_str().unwrap().contains("--files"), "{last}");
}

#[test]
fn metrics_on_the_console_are_a_line_of_a_log_of_json() {
    let place = Place::new();
    place.file("taken", "no directory");
    let mut command = place.command(&["worker", "--files", "taken/below", "--log-format", "json"]);
    command.env("OTEL_METRICS_EXPORTER", "console");
    let ended = Running::run_to_end(&mut command).with(2);
    let lines = lines(&ended.stderr);
    let page = lines.iter().find(|line| line["message"] == "metrics").unwrap();
    assert!(page["page"].as_str().unwrap().contains("\ntenure_build_info{"), "{page}");
}

#[test]
fn for_people_such_an_error_stays_as_it_was() {
    let place = Place::new();
    place.file("taken", "no directory");
    let ended = place.tenure(&["worker", "--files", "taken/below"]).with(2);
    assert!(ended.stderr.starts_with("error: "), "{}", ended.stderr);
}
