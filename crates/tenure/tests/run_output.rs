//! What goes where, in each format: results to stdout, words to stderr.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use serde_json::{Value, json};
use support::{Place, step};

// What fails waits for what goes well: else, when it fails first, the Task ends the other's Attempt.
const FLAKY: &str = "
steps:
  good: {run: 'echo well; echo 7 > $TENURE_OUTPUT'}
  bad:
    depends_on: good
    run: 'echo the disk is on fire >&2; exit 9'
    retry: {max_attempts: 2, backoff: {initial: 1ms, max: 1ms}}
  never: {depends_on: bad, noop: true}
";

#[test]
fn json_is_one_object_with_everything_in_it() {
    let place = Place::new();
    place.file("flaky.yaml", FLAKY);
    let ended = place.tenure(&["run", "flaky.yaml", "-o", "json"]).with(1);
    assert_eq!(ended.stderr, "");
    let report = ended.json();
    let keys: Vec<_> = report.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(
        keys.join(" "),
        "counts culprit elapsed_ms native_status outcomes session_id status status_reason steps task_id"
    );
    assert_eq!((&report["status"], &report["native_status"]), (&json!("failed"), &json!("failed")));
    assert_eq!(report["session_id"], "default");
    assert_eq!(report["status_reason"]["code"], "step_failed");
    let (good, bad, never) = (step(&report, "good"), step(&report, "bad"), step(&report, "never"));
    assert_eq!((&good["output"], &good["result_summary"]), (&json!(7), &json!("well")), "{good}");
    assert_eq!((&bad["attempts"], &bad["status"]), (&json!(2), &json!("failed")));
    assert_eq!(bad["status_reason"]["code"], "exit_status");
    assert!(bad["started_at"].as_i64().unwrap() <= bad["ended_at"].as_i64().unwrap());
    assert_eq!((&never["attempts"], &never["started_at"]), (&json!(0), &Value::Null));
    let total: u64 =
        report["counts"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
    assert_eq!(total, 3);
}

/// VALUE-01: 70 KB of output were refused as not retryable, and the Task failed. They go as a blob, the next
/// command gets them, and people who ask get them too.
#[test]
fn seventy_kilobytes_of_output_go_to_the_next_step() {
    let place = Place::new();
    let text = r#"
task_id: large
steps:
  big: {run: "printf '\"%070000d\"' 0 > $TENURE_OUTPUT"}
  next: {depends_on: big, run: "wc -c < $TENURE_INPUTS > $TENURE_OUTPUT"}
"#;
    place.file("large.yaml", text);
    let report = place.tenure(&["run", "large.yaml", "-o", "json"]).with(0).json();
    assert_eq!(step(&report, "next")["output"], 70_010, "{report}");
    assert_eq!(step(&report, "big")["output"]["size_bytes"], 70_002);
    let shown = place.tenure(&["step", "get", "large", "big", "-o", "json"]).with(0).json();
    let output = shown["step"]["output"]["data"].as_str().unwrap();
    assert_eq!(output, format!("\"{}\"", "0".repeat(70_000)));
    let files = std::fs::read_dir(place.path(".tenure/blobs/default/large")).unwrap();
    let files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    let [blob] = &files[..] else { panic!("{files:?}") };
    let log = std::fs::read(place.path(".tenure/tasks/default/large.wal.jsonl")).unwrap();
    assert!(log.len() < 64_000, "the log has {} bytes", log.len());
    place.tenure(&["wal", "verify"]).with(0);
    std::fs::write(blob, "no longer so").unwrap();
    place.tenure(&["wal", "verify"]).with(1);
    let shown = place.tenure(&["step", "get", "large", "big"]).with(0);
    assert!(shown.stderr.contains("is not there, or is damaged"), "{shown:#?}");
}

/// VALUE-02: more than 16 MiB fail the Step for good; the command's own file is the copy.
#[test]
fn seventeen_megabytes_of_output_stay_with_the_worker() {
    let place = Place::new();
    let run = "(echo '\"'; head -c 17000000 /dev/zero | tr '\\0' x; echo '\"') > $TENURE_OUTPUT";
    let retry = "retry: {max_attempts: 3}";
    place.file("huge.yaml", format!("steps:\n  big:\n    {retry}\n    run: |\n      {run}\n"));
    let report = place.tenure(&["run", "huge.yaml", "-o", "json"]).with(1).json();
    let big = step(&report, "big");
    assert_eq!(
        (&big["status_reason"]["code"], &big["attempts"]),
        (&json!("value_too_large"), &json!(1))
    );
    let copy = big["status_reason"]["details"]["copy"].as_str().unwrap();
    assert!(std::fs::metadata(place.path(copy)).unwrap().len() > 17_000_000);
}

#[test]
fn jsonl_is_every_public_event_in_order() {
    let place = Place::new();
    place.file("flaky.yaml", FLAKY);
    let ended = place.tenure(&["run", "flaky.yaml", "-o", "jsonl"]).with(1);
    assert_eq!(ended.stderr, "");
    let events = ended.lines();
    assert_eq!(
        (&events[0]["event"], &events[1]["event"]),
        (&json!("task.created"), &json!("task.accepted"))
    );
    let last = events.last().unwrap();
    assert_eq!((&last["event"], &last["terminal"]), (&json!("task.failed"), &json!(true)));
    assert!(events.iter().rev().skip(1).all(|event| event["terminal"] == false));
    let seqs: Vec<_> = events.iter().map(|event| event["wal_seq"].as_u64().unwrap()).collect();
    assert!(seqs.is_sorted());
    let count = |name: &str| events.iter().filter(|event| event["event"] == name).count();
    assert_eq!((count("task.started"), count("task.attempt.failed")), (1, 2));
    let mut ids: Vec<_> = events.iter().map(|event| event["event_id"].to_string()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), events.len());
}

#[test]
fn a_slow_reader_of_jsonl_misses_nothing() {
    let place = Place::new();
    let steps = 30_000;
    let text = format!("steps: {{w: {{repeat: {steps}, noop: true}}}}");
    place.file("many.yaml", text);
    let child = place.start(&["run", "many.yaml", "-o", "jsonl"]);
    // Nobody reads the pipe until the Task has long ended for everybody but the display.
    let log = place.path(".tenure/tasks/default");
    let ended = || {
        let files = std::fs::read_dir(&log).into_iter().flatten().flatten().map(|file| file.path());
        let mut logs = files.filter(|path| path.extension().is_some_and(|it| it == "jsonl"));
        let text = logs.next().and_then(|path| std::fs::read(path).ok());
        text.is_some_and(|text| {
            text.windows(17)
                .rev()
                .take(2_000)
                .any(|w| w == b"\"task_completed\"}" || w == b":\"task_completed\"")
        })
    };
    support::wait_until(ended, &log);
    let events = child.end().with(0).lines();
    let completed =
        events.iter().filter(|event| event["event"] == "task.attempt.completed").count();
    assert_eq!(completed, steps);
    assert_eq!(events.last().unwrap()["event"], "task.completed");
}

#[test]
fn quiet_says_nothing_and_the_exit_code_tells() {
    let place = Place::new();
    place.file("flaky.yaml", FLAKY);
    let ended = place.tenure(&["run", "flaky.yaml", "-o", "quiet"]).with(1);
    assert_eq!((&*ended.stdout, &*ended.stderr), ("", ""));
}

#[test]
fn without_a_terminal_progress_comes_in_lines_and_the_table_on_stdout() {
    let place = Place::new();
    place.file("flaky.yaml", FLAKY);
    let ended = place.tenure(&["run", "flaky.yaml"]).with(1);
    let ended = ended.saying("completed  good").saying("again in");
    assert!(!ended.stdout.contains('\x1b') && !ended.stderr.contains('\x1b'));
    assert!(ended.stdout.contains("bad    failed     2"), "{}", ended.stdout);
    assert!(ended.stdout.contains("| the disk is on fire"), "{}", ended.stdout);
    let last = ended.stdout.lines().last().unwrap();
    assert!(last.contains("failed: 1 of 3 steps") && last.contains("step_failed"), "{last}");
}

#[test]
fn a_reader_that_leaves_does_not_stop_the_task() {
    let place = Place::new();
    place.file("many.yaml", "task_id: many\nsteps: {w: {repeat: 3000, noop: true}}");
    let script = "\"$0\" run many.yaml -o jsonl | head -1 > /dev/null";
    let mut command = std::process::Command::new("sh");
    command.args(["-c", script, support::TENURE]).current_dir(place.dir.path());
    assert!(command.status().unwrap().success());
    let (code, report) = place.report(&["run", "many.yaml", "--resume"]);
    assert_eq!((code, &report["counts"]["completed"]), (Some(0), &json!(3000)));
}

#[test]
fn a_terminal_gets_colours_and_a_bar_unless_it_asks_for_none() {
    let place = Place::new();
    place.file("slow.yaml", "steps: {a: {sleep: 600ms}, b: {noop: true}}");
    let on_terminal = |first: &str| {
        let line = format!("{first} {} run slow.yaml", support::TENURE);
        let mut command = std::process::Command::new("script");
        command.args(["-qec", &line, "/dev/null"]).current_dir(place.dir.path());
        command.stdin(std::process::Stdio::null()).env_remove("NO_COLOR").env("TERM", "xterm");
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let coloured = on_terminal("");
    assert!(coloured.contains("\x1b[32mcompleted\x1b[0m"), "{coloured:?}");
    assert!(coloured.contains("1 of 2 steps"), "{coloured:?}");
    let plain = on_terminal("NO_COLOR=1");
    assert!(plain.contains("completed") && !plain.contains("\x1b[32m"), "{plain:?}");
}

#[test]
fn the_schema_and_the_version_are_printed() {
    let place = Place::new();
    let schema = place.tenure(&["schema"]).with(0).json();
    assert!(schema["properties"]["steps"].is_object());
    let version = place.tenure(&["--version"]).with(0).stdout;
    assert_eq!(version.trim(), concat!("tenure ", env!("CARGO_PKG_VERSION")));
}

/// STORE-02, PERM-12: a run writes below its data directory and nowhere else, and there no documents:
/// logs, their index, the lock, and what commands printed.
#[test]
fn everything_is_written_below_the_data_directory() {
    let place = Place::new();
    place.file("flaky.yaml", format!("task_id: flaky\n{FLAKY}"));
    let before = names(&place.path("."));
    place.tenure(&["run", "flaky.yaml", "-o", "quiet", "--data", "kept"]).with(1);
    let after = names(&place.path("."));
    assert_eq!(after.iter().filter(|name| !before.contains(name)).collect::<Vec<_>>(), ["kept"]);
    assert_eq!(names(&place.path("kept")), ["files", "index.jsonl", "lock", "tasks"]);
    assert_eq!(names(&place.path("kept/tasks/default")), ["flaky.wal.jsonl"]);
}

fn names(dir: &std::path::Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
