//! `tenure logs`: what commands wrote, while they run, after their end and after a kill.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "support/cluster.rs"]
mod cluster;
#[allow(dead_code)] // Other tests need more of it.
#[path = "../../cluster/tests/real/servers.rs"]
mod servers;
mod support;

use std::fs::File;
use std::process::{Child, Stdio};

use cluster::Cluster;
use nix::sys::signal::Signal;
use serde_json::json;
use support::{Place, Running, wait_until};

/// Two Steps that write, one after the other, and one that does not.
const LOUD: &str = "
task_id: t
steps:
  z-first: {run: 'echo one; echo two; echo oops >&2'}
  a-second: {depends_on: z-first, run: 'printf end'}
  silent: {depends_on: a-second, run: 'true'}
  joins: {depends_on: silent, noop: true}
";

/// A Step that goes on when somebody makes the file `go`, and then writes once more.
const GATED: &str = "
task_id: t
steps:
  gate: {run: 'echo begun; echo $$ > up; until [ -e go ]; do sleep 0.02; done; echo done; printf rest'}
";

fn loud() -> Place {
    let place = Place::new();
    place.file("t.yaml", LOUD);
    place.tenure(&["run", "t.yaml", "-o", "quiet"]).with(0);
    place
}

/// Starts a command whose output goes into a file that the test can read meanwhile.
fn to_file(place: &Place, args: &[&str], name: &str) -> Child {
    let out = File::create(place.path(name)).unwrap();
    place.command(args).stdout(out).stderr(Stdio::piped()).spawn().unwrap()
}

fn text(place: &Place, name: &str) -> String {
    std::fs::read_to_string(place.path(name)).unwrap_or_default()
}

#[test]
fn all_steps_are_printed_in_the_order_in_which_they_began() {
    let place = loud();
    let all = place.tenure(&["logs", "t"]).with(0);
    assert_eq!(all.stdout, "z-first| one\nz-first| two\nz-first| oops\na-second| end\n");
    assert_eq!(all.stderr, "");
    let last = place.tenure(&["logs", "last", "--tail", "1"]).with(0);
    assert_eq!(last.stdout, "z-first| two\nz-first| oops\na-second| end\n");
}

#[test]
fn one_step_is_printed_as_it_was_written() {
    let place = loud();
    let one = place.tenure(&["logs", "t", "z-first"]).with(0);
    assert_eq!((&*one.stdout, &*one.stderr), ("one\ntwo\n", "oops\n"));
    let end = place.tenure(&["logs", "default/t", "a-second"]).with(0);
    assert_eq!((&*end.stdout, &*end.stderr), ("end", ""), "no newline is added");
    let tail = place.tenure(&["logs", "t", "z-first", "--tail", "1"]).with(0);
    assert_eq!((&*tail.stdout, &*tail.stderr), ("two\n", "oops\n"));
    place.file(
        "raw.yaml",
        r#"{"task_id": "raw", "steps": {"a": {"run": "printf '\\377\\033[1mx'"}}}"#,
    );
    place.tenure(&["run", "raw.yaml", "-o", "quiet"]).with(0);
    let raw = place.command(&["logs", "raw", "a"]).output().unwrap();
    assert_eq!(raw.stdout, b"\xff\x1b[1mx");
    let lines = place.tenure(&["logs", "raw", "a", "-o", "json"]).with(0).lines();
    assert_eq!(lines[0]["line"], "\u{fffd}\u{1b}[1mx");
}

#[test]
fn a_line_of_json_says_whose_it_is() {
    let place = loud();
    let lines = place.tenure(&["logs", "t", "-o", "json"]).with(0).lines();
    let line = |step_id: &str, stream: &str, line: &str| {
        let attempt = 1;
        json!({"step_id": step_id, "attempt": attempt, "stream": stream, "line": line})
    };
    let expected = [
        line("z-first", "stdout", "one"),
        line("z-first", "stdout", "two"),
        line("z-first", "stderr", "oops"),
        line("a-second", "stdout", "end"),
    ];
    assert_eq!(lines, expected);
}

#[test]
fn each_attempt_can_be_printed() {
    let place = Place::new();
    let text = "
task_id: t
steps:
  a:
    run: 'echo try $TENURE_ATTEMPT; [ $TENURE_ATTEMPT = 2 ]'
    retry: {max_attempts: 2, backoff: {initial: 1ms, max: 1ms}}
";
    place.file("t.yaml", text);
    place.tenure(&["run", "t.yaml", "-o", "quiet"]).with(0);
    let printed = |args: &[&str]| place.tenure(&[&["logs", "t", "a"], args].concat());
    assert_eq!(printed(&[]).with(0).stdout, "try 2\n");
    assert_eq!(printed(&["--attempt", "1"]).with(0).stdout, "try 1\n");
    let none = printed(&["--attempt", "3"]).with(3);
    none.saying("no attempt 3 of step `a` in task default/t").saying("its newest attempt is 2");
    place.tenure(&["logs", "t", "--attempt", "1"]).with(2).saying("STEP_ID");
}

#[test]
fn nothing_is_empty_without_a_word() {
    let place = loud();
    let said = |args: &[&str], code| {
        let said = place.tenure(&[&["logs"], args].concat()).with(code);
        assert_eq!(said.stdout, "");
        said
    };
    said(&["t", "silent"], 0).saying("attempt 1 of step silent has written nothing\n");
    said(&["t", "silent", "--follow"], 0).saying("has written nothing\n");
    said(&["t", "firs"], 3).saying("no step `firs` in task default/t");
    said(&["tt", "a"], 3).saying("no task `tt`");
    place.file(
        "quiet.yaml",
        "task_id: quiet\nsteps: {a: {run: 'exit 1', retries: 0}, b: {needs: a, noop: true}}",
    );
    place.tenure(&["run", "quiet.yaml", "-o", "quiet"]).with(1);
    said(&["quiet"], 0).saying("no step of task default/quiet has written anything");
    said(&["quiet", "b"], 0).saying("step b has not run");
}

/// Logs that were recorded and removed are not taken for logs of a silent command.
#[test]
fn removed_logs_are_missed() {
    let place = loud();
    std::fs::remove_dir_all(place.path(".tenure/files/default/t/z-first")).unwrap();
    let gone = place.tenure(&["logs", "t", "z-first"]).with(3);
    gone.saying("does not have all logs of attempt 1 of step z-first")
        .saying("z-first/1/stdout.log and ");
    let rest = place.tenure(&["logs", "t"]).with(3);
    assert_eq!(rest.stdout, "a-second| end\n");
}

#[test]
fn steps_that_were_taken_over_lead_to_their_logs() {
    let place = Place::new();
    place.file(
        "t.yaml",
        "task_id: t\nsteps: {a: {run: echo hello}, b: {needs: a, run: '[ -e go ]', retries: 0}}",
    );
    place.tenure(&["run", "t.yaml", "-o", "quiet"]).with(1);
    place.file("go", "");
    let again = place.tenure(&["run", "t.yaml", "--retry-failed", "-o", "json"]).with(0).json();
    let task = again["task_id"].as_str().unwrap();
    let said = place.tenure(&["logs", task, "a"]).with(0);
    said.saying("step a was taken over from task default/t: `tenure logs default/t a`");
}

#[test]
fn a_running_step_is_followed_to_its_end() {
    let place = Place::new();
    place.file("t.yaml", GATED);
    let running = place.start(&["run", "t.yaml", "-o", "quiet"]);
    place.wait_for("up");
    let follows: [&[&str]; 3] = [
        &["logs", "t", "gate", "--follow"],
        &["logs", "t", "-f"],
        &["logs", "t", "gate", "-f", "-o", "json"],
    ];
    let begun: Vec<_> =
        (0..).zip(follows).map(|(n, args)| to_file(&place, args, &format!("out{n}"))).collect();
    for n in 0..3 {
        let name = format!("out{n}");
        wait_until(|| text(&place, &name).contains("begun"), &place.path(&name));
    }
    place.file("go", "");
    for follower in begun {
        let ended = follower.wait_with_output().unwrap();
        assert!(ended.status.success(), "{ended:?}");
        assert_eq!(String::from_utf8(ended.stderr).unwrap(), "");
    }
    running.end().with(0);
    assert_eq!(text(&place, "out0"), "begun\ndone\nrest");
    assert_eq!(text(&place, "out1"), "gate| begun\ngate| done\ngate| rest\n");
    let lines: Vec<serde_json::Value> =
        text(&place, "out2").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        lines.iter().map(|line| &line["line"]).collect::<Vec<_>>(),
        ["begun", "done", "rest"]
    );
}

#[test]
fn further_attempts_are_followed_too() {
    let place = Place::new();
    let task = "
task_id: t
steps:
  a:
    run: 'echo try $TENURE_ATTEMPT; echo $$ > up; until [ -e go ]; do sleep 0.02; done; [ $TENURE_ATTEMPT = 3 ]'
    retry: {max_attempts: 3, backoff: {initial: 1ms, max: 1ms}}
  b: {needs: a, run: 'echo next'}
";
    place.file("t.yaml", task);
    let running = place.start(&["run", "t.yaml", "-o", "quiet"]);
    place.wait_for("up");
    let step = to_file(&place, &["logs", "t", "a", "-f"], "step");
    let first = to_file(&place, &["logs", "t", "a", "-f", "--attempt", "1"], "first");
    let all = to_file(&place, &["logs", "t", "-f"], "all");
    for name in ["step", "first", "all"] {
        wait_until(|| text(&place, name).contains("try 1"), &place.path(name));
    }
    place.file("go", "");
    for follower in [step, first, all] {
        assert!(follower.wait_with_output().unwrap().status.success());
    }
    running.end().with(0);
    assert_eq!(text(&place, "step"), "try 1\ntry 2\ntry 3\n");
    assert_eq!(text(&place, "first"), "try 1\n");
    assert_eq!(text(&place, "all"), "a| try 1\na| try 2\na| try 3\nb| next\n");
}

#[test]
fn a_follower_is_stopped_by_ctrl_c() {
    let place = Place::new();
    place.file("t.yaml", GATED);
    let running = place.start(&["run", "t.yaml", "-o", "quiet"]);
    place.wait_for("up");
    place.start(&["logs", "t", "-f"]).stopped_saying("goes on without this command");
    place.file("go", "");
    running.end().with(0);
}

/// What a killed run left can be read, and `step get` says where it is.
#[test]
fn a_killed_run_leaves_its_logs() {
    let place = Place::new();
    place.file("t.yaml", GATED);
    let running = place.start(&["run", "t.yaml", "-o", "quiet"]);
    place.wait_for("up");
    let shown = || place.tenure(&["step", "get", "t", "gate", "-o", "json"]).with(0).json();
    let is_named = |shown: &serde_json::Value| {
        let log = &shown["logs"][0];
        let told = (&log["attempt"], &log["stream"], &log["size_bytes"]);
        assert_eq!(told, (&json!(1), &json!("stdout"), &json!(6)), "{shown:#}");
        assert_eq!(std::fs::read_to_string(log["path"].as_str().unwrap()).unwrap(), "begun\n");
    };
    is_named(&shown());
    running.signal(Signal::SIGKILL);
    running.end();
    let command = std::path::Path::new("/proc").join(text(&place, "up").trim());
    wait_until(|| !command.exists(), &command);
    is_named(&shown());
    let people = place.tenure(&["step", "get", "t", "gate"]).with(0).stdout;
    assert!(people.contains("/files/default/t/gate/1/stdout.log\n"), "{people}");
    assert_eq!(place.tenure(&["logs", "t", "gate"]).with(0).stdout, "begun\n");
    place.file("go", "");
    place.tenure(&["run", "t.yaml", "--resume", "-o", "quiet"]).with(0);
    assert_eq!(place.tenure(&["logs", "t", "gate"]).with(0).stdout, "begun\ndone\nrest");
    assert_eq!(place.tenure(&["logs", "t", "gate", "--attempt", "1"]).with(0).stdout, "begun\n");
    is_named(&shown());
}

#[test]
fn a_line_as_long_as_a_piece_is_one_line() {
    let place = Place::new();
    let steps = "steps:\n  a:\n    run: head -c 1048576 /dev/zero | tr '\\000' x; echo; echo end\n";
    place.file("t.yaml", format!("task_id: t\n{steps}"));
    place.tenure(&["run", "t.yaml", "-o", "quiet"]).with(0);
    let printed = place.tenure(&["logs", "t"]).with(0).stdout;
    let lengths: Vec<usize> = printed.lines().map(str::len).collect();
    assert_eq!(lengths, ["a| ".len() + (1 << 20), "a| end".len()]);
}

/// A log of 20 MB, of which the last line has no end, and a reader that leaves.
#[test]
fn a_long_log_is_printed_whole() {
    let place = Place::new();
    let run = "yes 0123456789 | head -n 1000000; head -c 9000000 /dev/zero | tr '\\\\0' x";
    place.file("t.yaml", format!("task_id: t\nsteps:\n  a:\n    run: \"{run}\"\n"));
    place.tenure(&["run", "t.yaml", "-o", "quiet"]).with(0);
    let raw = place.tenure(&["logs", "t", "a"]).with(0).stdout;
    assert_eq!(raw.len(), 20_000_000);
    assert!(raw == text(&place, ".tenure/files/default/t/a/1/stdout.log"), "the bytes differ");
    let all = place.tenure(&["logs", "t"]).with(0).stdout;
    assert_eq!(all.lines().filter(|line| *line == "a| 0123456789").count(), 1_000_000);
    assert_eq!(all.bytes().filter(|byte| *byte == b'x').count(), 9_000_000);
    let tail = place.tenure(&["logs", "t", "a", "--tail", "2"]).with(0).stdout;
    assert_eq!(tail.len(), 11 + 9_000_000);
    let script = "{ \"$0\" logs t; echo ended with $? >&2; } | head -n 1";
    let mut piped = place.program("sh", &["-c", script, support::TENURE]);
    let piped = Running::run_to_end(&mut piped).with(0).saying("ended with 0");
    assert_eq!(piped.stdout, "a| 0123456789\n");
}

/// The files are where the worker is. This test removes them.
#[test]
fn a_cluster_says_which_worker_has_the_logs() {
    let cluster = Cluster::start();
    let _worker = cluster.worker("w1");
    let two = "steps: {a: {run: echo one}, b: {run: echo two, needs: a}}";
    cluster.submit("two", two, &["--wait", "-o", "quiet"]).with(0);
    assert_eq!(cluster.tenure(&["logs", "two"]).with(0).stdout, "a| one\nb| two\n");
    assert_eq!(cluster.tenure(&["logs", "two", "b"]).with(0).stdout, "two\n");
    std::fs::remove_dir_all(cluster.place.path(".tenure/files/default/two/b")).unwrap();
    let gone = cluster.tenure(&["logs", "two", "b"]).with(3);
    gone.saying("worker w1.").saying("/.tenure/files/default/two/b/1/stdout.log");
    cluster.submit("long", "steps: {a: {run: sleep 600}}", &[]).with(0);
    cluster.is_at_work("long");
    cluster.tenure(&["logs", "long"]).with(0).saying("no step of task default/long has written");
}
