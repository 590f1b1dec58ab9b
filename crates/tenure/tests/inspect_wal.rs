//! `tenure wal`: showing, checking and replaying logs, sound ones and others.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod inspect_bench;

use std::fs;
use std::path::Path;

use inspect_bench::{Bench, pipeline, step};
use serde_json::{Value as Json, json};

/// A directory that nobody works on, with one ended Task.
fn ended() -> Bench {
    let bench = Bench::new();
    bench.work();
    bench.ran(json!({
        "task_id": "etl",
        "title": "Nightly load",
        "steps": [
            step("fetch", "echo", &[]),
            step("parse", "default", &["fetch"]),
            step("report", "default", &["parse"]),
        ],
    }));
    bench.closed()
}

fn lines(path: &Path) -> Vec<String> {
    fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect()
}

/// The verdict on the one log of a directory.
fn verdict(bench: &Bench, code: i32) -> Json {
    let said = bench.look(&["wal", "verify", "-o", "json"]);
    assert_eq!(said.code, code, "{}{}", said.out, said.err);
    let report: Json = serde_json::from_str(&said.out).unwrap();
    assert_eq!(report["ok"], code == 0);
    assert_eq!(report["logs"].as_array().unwrap().len(), 1);
    report["logs"][0].clone()
}

/// VIEW-12, WAL-02: the complete history of a Task, in order.
#[test]
fn a_log_is_shown_event_by_event() {
    let bench = ended();
    bench.look(&["wal", "show", "etl"]).is("
  SEQ  TIME  EVENT  STEP  ACTOR  WHAT
  1  <time>  task_created  local  3 steps: Nightly load
  2  <time>  task_step_ready  fetch  system
  3  <time>  task_running  system
  4  <time>  task_step_claimed  fetch  <worker>  try 1 under run <id>
  5  <time>  task_step_updated  fetch  <worker>  1 artifact
  6  <time>  task_step_completed  fetch  <worker>  16 bytes of output, all done
  7  <time>  task_step_ready  parse  system
  8  <time>  task_step_claimed  parse  <worker>  try 1 under run <id>
  9  <time>  task_step_completed  parse  <worker>
  10  <time>  task_step_ready  report  system
  11  <time>  task_step_claimed  report  <worker>  try 1 under run <id>
  12  <time>  task_step_completed  report  <worker>
  13  <time>  task_completed  system
");
    let said = bench.look(&["wal", "show", "etl", "-o", "json"]);
    let stored = fs::read_to_string(bench.wal("default", "etl")).unwrap();
    assert_eq!(said.out, stored, "as JSON an event is its stored line");
    assert_eq!(bench.look(&["wal", "show", "etl", "--raw"]).out, stored);
}

#[test]
fn a_part_of_a_log_is_chosen_by_number_and_type() {
    let bench = ended();
    let seqs = |args: &[&str]| -> Vec<u64> {
        let said = bench.look(&[&["wal", "show", "etl", "-o", "json"], args].concat());
        let of = |line: &str| serde_json::from_str::<Json>(line).unwrap()["wal_seq"].as_u64();
        said.out.lines().filter_map(of).collect()
    };
    assert_eq!(seqs(&["--from", "2", "--to", "4"]), [2, 3, 4]);
    assert_eq!(seqs(&["--type", "task_created"]), [1]);
    assert_eq!(seqs(&["--type", "step_completed"]).len(), 3, "without its prefix");
    assert_eq!(seqs(&["--type", "task_created,task_completed"]).len(), 2);
    assert!(seqs(&["--from", "1000"]).is_empty());
    let raw = bench.look(&["wal", "show", "etl", "--raw", "--from", "2", "--to", "3"]);
    assert_eq!(raw.out.lines().count(), 2);
    let said = bench.look(&["wal", "show", "etl", "--type", "task_complete"]);
    assert_eq!(said.code, 2);
    assert!(said.err.contains("did you mean `task_completed`"), "{}", said.err);
}

/// RECOVER-01: the state after any event, with all of its commit (WAL-08).
#[test]
fn a_task_is_replayed_to_any_event() {
    let bench = ended();
    let last = lines(&bench.wal("default", "etl")).len() as u64;
    for until in 1..=last {
        let args = ["wal", "replay", "etl", "--until", &until.to_string()];
        let task = bench.json(&args);
        let version = task["version"].as_u64().unwrap();
        assert!((until..=last).contains(&version), "{until}: {version}");
    }
    assert_eq!(bench.json(&["wal", "replay", "etl"]), bench.json(&["task", "get", "etl"]));
    bench.look(&["wal", "replay", "etl", "--until", "2"]).is("
default/etl  queued  0 of 3 steps completed, 1 ready, 2 pending
  title  Nightly load
  created  <time> (<took> ago)
  policy  dispatch auto, completion auto
  log  <data>/tasks/default/etl.wal.jsonl
  version  3, the end of the commit that event 2 is of

  STEP  STATUS  TRIES  TOOK  HANDLER  POOL  WAITS FOR / WHY
○  fetch  queued  echo  default
·  parse  queued  default  default  fetch
·  report  queued  default  default  parse
");
    let beyond = (last + 1).to_string();
    let said = bench.look(&["wal", "replay", "etl", "--until", &beyond]);
    said.fails(3, &format!("error: task default/etl has no event {beyond}: the last is {last}\n"));
}

#[test]
fn a_sound_log_is_sound() {
    let bench = ended();
    let events = lines(&bench.wal("default", "etl")).len();
    let sound = format!("1 log checked, {events} events: sound\n");
    bench.look(&["wal", "verify"]).is(&sound);
    bench.look(&["wal", "verify", "--all"]).is(&sound);
    bench.look(&["wal", "verify", "etl"]).is(&sound);
    let verdict = verdict(&bench, 0);
    assert_eq!(verdict["verdict"], "sound");
    assert_eq!(verdict["events"], events);
}

/// RECOVER-06: what a crash leaves behind the last whole commit is reported and is no failure.
#[test]
fn a_torn_tail_is_reported_and_is_no_failure() {
    let bench = ended();
    let path = bench.wal("default", "etl");
    let whole = fs::read(&path).unwrap();
    let shown = bench.look(&["wal", "show", "etl"]).out;
    let count = lines(&path).len() as u64;

    for (tail, what) in [(&b"{\"wal_seq\":"[..], "a line without"), (&[0; 100], "a run of NUL")] {
        let torn = [&whole, tail].concat();
        fs::write(&path, &torn).unwrap();
        let verdict = verdict(&bench, 0);
        assert_eq!(verdict["verdict"], "torn");
        assert_eq!(
            (&verdict["line"], &verdict["offset"]),
            (&json!(count + 1), &json!(whole.len()))
        );
        assert_eq!(verdict["torn_bytes"], tail.len());
        assert!(verdict["message"].as_str().unwrap().starts_with(what), "{verdict}");
        let said = bench.look(&["wal", "show", "etl"]);
        assert_eq!((said.code, &said.out), (0, &shown));
        assert!(said.err.contains("a write that broke off"), "{}", said.err);
        assert_eq!(bench.json(&["task", "get", "etl"])["native_status"], "completed");
        assert_eq!(fs::read(&path).unwrap(), torn, "nothing is cut");
    }
}

/// WAL-08: a commit with too few lines is not there, all of it.
#[test]
fn a_commit_with_too_few_lines_is_torn() {
    let bench = ended();
    let path = bench.wal("default", "etl");
    let all = lines(&path);
    let cut =
        |count: usize| all[..count].iter().map(|line| format!("{line}\n")).collect::<String>();
    fs::write(&path, cut(2)).unwrap();
    let torn = verdict(&bench, 0);
    assert_eq!(
        (&torn["verdict"], &torn["line"], &torn["offset"]),
        (&json!("torn"), &json!(1), &json!(0))
    );
    assert_eq!(torn["message"], "a commit with too few lines");
    assert_eq!(torn["events"], 0);
}

/// RECOVER-04, RECOVER-05: a flipped byte is damage of this Task alone, and its place is named.
#[test]
fn a_flipped_byte_is_found_and_only_its_task_is_affected() {
    let bench = Bench::new();
    bench.work();
    bench.ran(pipeline("etl"));
    bench.ran(pipeline("other"));
    let bench = bench.closed();
    let path = bench.wal("default", "etl");
    let all = lines(&path);
    let offset: usize = all[..4].iter().map(|line| line.len() + 1).sum();
    let mut bytes = fs::read(&path).unwrap();
    bytes[offset + 20] ^= 1;
    fs::write(&path, &bytes).unwrap();

    let place = format!("<data>/tasks/default/etl.wal.jsonl:5 (byte {offset}): bad checksum");
    let said = bench.look(&["wal", "verify"]);
    assert_eq!(said.code, 1);
    let events = 4 + lines(&bench.wal("default", "other")).len();
    let out = said.out.replace(&bench.data().display().to_string(), "<data>");
    let expected =
        format!("damaged  {place}\n2 logs checked, {events} events: 1 damaged or missing\n");
    assert!(out == expected || out.contains(&place), "{out}");
    assert_eq!(bench.look(&["wal", "verify", "other"]).code, 0);

    for args in [["task", "get", "etl"], ["task", "explain", "etl"], ["step", "list", "etl"]] {
        bench.look(&args).fails(
            6,
            &format!(
                "error: {place}\n = help: only this task is affected; \
                 `tenure wal show --raw` prints what stands there\n"
            ),
        );
    }
    let listed = bench.json(&["task", "list", "--all"]);
    assert_eq!(listed["tasks"][0]["task_id"], "other");
    assert_eq!(listed["unreadable"][0]["status"], "unknown", "N01");
    let said = bench.look(&["wal", "show", "etl"]);
    assert_eq!(said.code, 6, "what is sound before it is shown: {}", said.out);
    assert!(said.out.contains("task_created"), "{}", said.out);
    assert_eq!(bench.look(&["wal", "show", "etl", "--raw"]).out.len(), bytes.len());
}

/// RECOVER-05: a line that is sound by itself but not in its place.
#[test]
fn lines_that_do_not_go_on_with_the_history_are_damage() {
    let bench = ended();
    let path = bench.wal("default", "etl");
    let all = lines(&path);
    let write = |lines: &[&[String]]| {
        fs::write(&path, lines.concat().iter().map(|line| format!("{line}\n")).collect::<String>())
            .unwrap();
    };
    let repeat = all.len() - 1;
    write(&[&all, &all[repeat..]]);
    let twice = verdict(&bench, 1);
    assert_eq!(twice["line"], all.len() + 1);
    let expected = format!("wal_seq {} where {} is due", all.len(), all.len() + 1);
    assert_eq!(twice["message"], expected);

    write(&[&all[..2], &all[3..]]);
    assert_eq!(verdict(&bench, 1)["line"], 3, "a gap");

    write(&[&all]);
    let foreign = bench.wal("default", "copy");
    fs::copy(&path, &foreign).unwrap();
    fs::remove_file(&path).unwrap();
    fs::remove_file(bench.data().join("index.jsonl")).unwrap();
    let copy = verdict(&bench, 1);
    assert_eq!(copy["message"], "of the log etl", "STORE-11: under another name");
}

/// WAL-13: every line may be sound and in its place, and still no history of a Task.
#[test]
fn events_that_do_not_replay_are_damage() {
    let bench = Bench::new();
    bench.create(json!({"task_id": "task", "dispatch": "manual", "steps": [step("a", "x", &[])]}));
    let bench = bench.closed();
    let path = bench.wal("default", "task");
    let all = lines(&path);
    let last: Json = serde_json::from_str(all.last().unwrap()).unwrap();
    let seq = all.len() as u64 + 1;
    let commit = "01890000-0000-7000-8000-000000000000";
    // In the order of the stored form, and sealed as the writer does.
    let mut line = [
        format!(r#"{{"wal_seq":{seq},"session_id":"default","event_id":"{commit}.0""#),
        r#""event_type":"task_resumed","actor_agent_id":"local","actor_run_id":null"#.into(),
        r#""task_id":"task","payload":{"from":"paused"}"#.into(),
        format!(r#""created_at":{},"schema_version":1"#, last["created_at"]),
        r#""command_id":null,"command_digest":null"#.into(),
        format!(r#""commit_id":"{commit}","commit_index":0,"commit_count":1,"epoch":0"#),
    ]
    .join(",")
    .into_bytes();
    tenure_wire::stored::seal(&mut line, 0);
    let whole = fs::read(&path).unwrap();
    fs::write(&path, [&whole[..], &line].concat()).unwrap();

    let verdict = verdict(&bench, 1);
    assert_eq!((&verdict["line"], &verdict["offset"]), (&json!(seq), &json!(whole.len())));
    let message = verdict["message"].as_str().unwrap();
    assert!(message.starts_with("does not go on with the history"), "{message}");
    assert_eq!(bench.look(&["task", "get", "task"]).code, 6);
}

/// STORE-15, STORE-16: a log that was taken away is missed.
#[test]
fn a_missing_log_is_missed() {
    let bench = ended();
    fs::remove_file(bench.wal("default", "etl")).unwrap();
    let said = bench.look(&["wal", "verify"]);
    assert_eq!(said.code, 1, "{}", said.err);
    let out = said.out.replace(&bench.data().display().to_string(), "<data>");
    assert_eq!(
        out,
        "missing  <data>/tasks/default/etl.wal.jsonl: the file is not there, but the index knows \
         the task\n1 log checked, 0 events: 1 damaged or missing\n"
    );
    bench.look(&["task", "get", "etl"]).fails(
        6,
        "
error: the log of task default/etl is gone: <data>/tasks/default/etl.wal.jsonl
 = help: put the file back
",
    );
    assert_eq!(bench.look(&["wal", "verify", "etl"]).code, 1);
    assert_eq!(bench.look(&["wal", "verify", "nothing"]).code, 3);
}

/// STORE-05: what lies among the logs and is none is named, and is no failure.
#[test]
fn what_is_no_log_is_named() {
    let bench = ended();
    fs::write(bench.wal("default", "etl").with_file_name("notes.txt"), "x").unwrap();
    let said = bench.look(&["wal", "verify"]);
    assert_eq!(said.code, 0);
    assert!(said.out.starts_with("ignored  "), "{}", said.out);
}

/// A reader that has left, as `head` does, is no failure.
#[test]
fn a_reader_that_leaves_is_no_failure() {
    let bench = Bench::new();
    let steps: Vec<Json> = (0..5_000).map(|n| step(&format!("s{n}"), "x", &[])).collect();
    bench.create(json!({"task_id": "big", "dispatch": "manual", "steps": steps}));
    let tenure = env!("CARGO_BIN_EXE_tenure");
    for what in
        ["wal show big", "task graph big --full", "wal show big --raw", "task get big -o json"]
    {
        let line = format!("set -o pipefail; {tenure} {what} | head -n 1 >/dev/null");
        let mut shell = std::process::Command::new("bash");
        let output = shell.args(["-c", &line]).env("TENURE_DATA", bench.data()).output().unwrap();
        assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
