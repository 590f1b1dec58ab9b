//! Stopping and going on: Ctrl-C, SIGTERM, `kill -9`, and `--resume` after each.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::json;
use support::{Place, step};

/// One Step that completes at once and one that waits until somebody makes the file `go`.
const GATED: &str = "
steps:
  first: {run: 'echo first >> ran'}
  gate:
    depends_on: first
    run: 'echo gate >> ran; echo $$ > pid; until [ -e go ]; do sleep 0.02; done'
  last: {depends_on: gate, run: 'echo last >> ran'}
";

fn ran(place: &Place) -> String {
    std::fs::read_to_string(place.path("ran")).unwrap_or_default().replace('\n', " ")
}

fn is_alive(place: &Place) -> bool {
    let pid = std::fs::read_to_string(place.path("pid")).unwrap();
    std::path::Path::new("/proc").join(pid.trim()).exists()
}

/// The command that a message tells to type, in the words after the program's name.
fn hinted(text: &str) -> Vec<String> {
    let (_, command) = text.split_once(&format!("{} ", support::TENURE)).expect(text);
    let command = command.lines().next().unwrap();
    command.split(' ').map(|word| word.trim_matches('`').to_owned()).collect()
}

fn stops_and_goes_on(signal: Signal) {
    let place = Place::new();
    place.file("gated.yaml", GATED);
    let running = place.start(&["run", "gated.yaml"]);
    place.wait_for("pid");
    running.signal(signal);
    let ended = running.end().with(130).saying("1 step is asked to end");
    assert!(!is_alive(&place), "the command outlived its runner");
    place.file("go", "");
    let resume = hinted(&ended.stderr);
    let resume: Vec<&str> = resume.iter().map(String::as_str).collect();
    let (code, report) = place.report(&resume);
    assert_eq!((code, ran(&place).as_str()), (Some(0), "first gate gate last "));
    // Being given back is no failure and no try.
    let gate = step(&report, "gate");
    assert_eq!((&gate["attempts"], &gate["attempt_count"]), (&json!(1), &json!(0)));
    let task = report["task_id"].as_str().unwrap();
    let args = ["attempt", "list", task, "--step", "gate", "--status", "released", "-o", "quiet"];
    assert_eq!(place.tenure(&args).with(0).stdout.lines().count(), 1);
}

#[test]
fn ctrl_c_stops_and_the_command_it_names_goes_on() {
    stops_and_goes_on(Signal::SIGINT);
}

#[test]
fn sigterm_stops_as_ctrl_c_does() {
    stops_and_goes_on(Signal::SIGTERM);
}

#[test]
fn a_second_ctrl_c_leaves_at_once() {
    let place = Place::new();
    let stubborn =
        "steps: {a: {run: \"trap '' TERM; echo $$ > pid; while :; do sleep 0.02; done\"}}";
    place.file("stubborn.yaml", stubborn);
    let mut running = place.start(&["run", "stubborn.yaml"]);
    place.wait_for("pid");
    running.signal(Signal::SIGINT);
    running.hears("Ctrl-C again");
    let asked = Instant::now();
    running.signal(Signal::SIGINT);
    running.end().with(130).saying("left at once");
    assert!(asked.elapsed() < Duration::from_secs(9), "it waited for the grace time");
    support::wait_until(|| !is_alive(&place), &place.path("pid"));
}

#[test]
fn kill_9_loses_nothing_and_resume_does_not_wait_for_leases() {
    let place = Place::new();
    place.file("gated.yaml", GATED);
    let running = place.start(&["run", "gated.yaml"]);
    place.wait_for("pid");
    running.signal(Signal::SIGKILL);
    running.end();
    support::wait_until(|| !is_alive(&place), &place.path("pid"));
    place.file("go", "");
    let begun = Instant::now();
    let ended = place.tenure(&["run", "gated.yaml", "--resume"]).with(0);
    assert!(begun.elapsed() < Duration::from_secs(20), "a lease lasts 30 s");
    ended.saying("goes on: 1 of 3 steps completed").saying("again      gate");
    assert_eq!(ran(&place), "first gate gate last ");
}

/// What was seen: a Step that ends its host was run 13 times in 12 resumes, and counted nowhere.
///
/// RETRY-13: from the second time on it counts, and after ten of these it is lost.
#[test]
fn a_step_that_ends_its_host_each_time_is_given_up() {
    let place = Place::new();
    place.file("gated.yaml", GATED);
    let (first, again) = (["run", "gated.yaml"], ["run", "gated.yaml", "--resume"]);
    for n in 0..11 {
        let running = place.start(if n == 0 { &first } else { &again });
        place.wait_for("pid");
        running.signal(Signal::SIGKILL);
        running.end();
        support::wait_until(|| !is_alive(&place), &place.path("pid"));
        std::fs::remove_file(place.path("pid")).unwrap();
    }
    let (code, report) = place.report(&again);
    let gate = step(&report, "gate");
    assert_eq!((code, &gate["attempts"]), (Some(1), &json!(11)), "{report:#}");
    assert_eq!(report["status"], "lost", "{report:#}");
}

#[test]
fn an_ended_task_is_shown_again_and_not_run_again() {
    let place = Place::new();
    place.file("one.yaml", "steps: {a: {run: 'echo a >> ran'}}");
    place.tenure(&["run", "one.yaml"]).with(0);
    let (code, report) = place.report(&["run", "one.yaml", "--resume"]);
    assert_eq!((code, &report["native_status"]), (Some(0), &json!("completed")));
    assert_eq!(ran(&place), "a ");
}

#[test]
fn resume_takes_the_unfinished_task_of_the_file_and_no_other() {
    let place = Place::new();
    place.file("gated.yaml", GATED);
    place.file("go", "");
    let (_, done) = place.report(&["run", "gated.yaml"]);
    std::fs::remove_file(place.path("go")).unwrap();
    std::fs::remove_file(place.path("pid")).unwrap();
    let running = place.start(&["run", "gated.yaml"]);
    place.wait_for("pid");
    running.signal(Signal::SIGKILL);
    running.end();
    place.file("go", "");
    let (_, third) = place.report(&["run", "gated.yaml"]);
    let (code, resumed) = place.report(&["run", "gated.yaml", "--resume"]);
    assert_eq!(code, Some(0));
    assert!(resumed["task_id"] != done["task_id"] && resumed["task_id"] != third["task_id"]);
}

#[test]
fn a_changed_file_is_not_resumed_and_the_message_says_how_to_go_on() {
    let place = Place::new();
    place.file("task.yaml", "task_id: t\nsteps: {a: {run: 'exit 1', retries: 0}}");
    place.tenure(&["run", "task.yaml"]).with(1);
    place.file(
        "task.yaml",
        "# a comment is no change\ntask_id: t\nsteps:\n  a: {run: 'exit 1', retries: 0}\n",
    );
    place.tenure(&["run", "task.yaml", "--resume"]).with(1);
    place.file("task.yaml", "task_id: t\nsteps: {a: {run: 'exit 0'}}");
    let ended = place.tenure(&["run", "task.yaml", "--resume"]).with(4).saying("has changed");
    let resume = hinted(&ended.stderr);
    assert_eq!(resume[..2], ["run", "--resume=t"]);
    place.tenure(&["run", "--resume=t"]).with(1);
    place.tenure(&["run", "task.yaml", "--new"]).with(0);
}

#[test]
fn keep_going_survives_a_kill() {
    let place = Place::new();
    let text = format!("{GATED}  bad: {{run: 'exit 1', retries: 0}}\n");
    place.file("gated.yaml", text);
    let running = place.start(&["run", "gated.yaml", "--keep-going"]);
    place.wait_for("pid");
    running.signal(Signal::SIGKILL);
    running.end();
    place.file("go", "");
    let (code, report) = place.report(&["run", "gated.yaml", "--resume"]);
    assert_eq!((code, &report["counts"]["completed"]), (Some(1), &json!(3)), "{report:#}");
}

#[test]
fn keep_going_may_be_said_when_it_goes_on() {
    let place = Place::new();
    let text = format!("{GATED}  bad: {{depends_on: gate, run: 'exit 1', retries: 0}}\n");
    place.file("gated.yaml", text + "  slow: {depends_on: gate, sleep: 300ms}\n");
    let running = place.start(&["run", "gated.yaml"]);
    place.wait_for("pid");
    running.signal(Signal::SIGKILL);
    running.end();
    place.file("go", "");
    let (code, report) = place.report(&["run", "gated.yaml", "--resume", "--keep-going"]);
    assert_eq!((code, &report["counts"]["completed"]), (Some(1), &json!(4)), "{report:#}");
}

/// Public events as they were printed, in words that do not change from run to run.
fn printed(ended: &support::Ended) -> Vec<String> {
    let line = |event: &serde_json::Value| format!("{} {}", event["event"], event["event_id"]);
    ended.lines().iter().map(line).collect()
}

/// RECOVER-08: events that were recorded and not printed when the process died are printed by the
/// run that goes on, also those of a Task that has ended; what was printed is not printed again
/// unless the mark of it is lost.
#[test]
fn events_that_a_death_kept_back_are_published_by_the_next_run() {
    let place = Place::new();
    place.file("gated.yaml", GATED);
    let running = place.start(&["run", "gated.yaml", "-o", "jsonl"]);
    place.wait_for("pid");
    running.signal(Signal::SIGKILL);
    let before = printed(&running.end());
    support::wait_until(|| !is_alive(&place), &place.path("pid"));
    place.file("go", "");
    let resume = ["run", "gated.yaml", "--resume", "-o", "jsonl"];
    let after = printed(&place.tenure(&resume).with(0));

    let files = std::fs::read_dir(place.path(".tenure/tasks/default")).unwrap();
    let mut files = files.map(|file| file.unwrap().path());
    let mark = files.find(|path| path.extension().is_some_and(|it| it == "published")).unwrap();
    let marked = std::fs::read_to_string(&mark).unwrap();
    std::fs::remove_file(&mark).unwrap();
    let all = printed(&place.tenure(&resume).with(0));
    assert_eq!(std::fs::read_to_string(&mark).unwrap(), marked, "the whole log is published");
    let shown: std::collections::BTreeSet<&String> = before.iter().chain(&after).collect();
    assert_eq!(shown, all.iter().collect(), "each event was printed, before or after");

    assert!(place.tenure(&resume).with(0).stdout.is_empty(), "nothing is left to print");
    // As if the process had died between the last append and the last line.
    let log = std::fs::read_to_string(mark.with_extension("wal.jsonl")).unwrap();
    let last: serde_json::Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
    let before = last["wal_seq"].as_u64().unwrap() - last["commit_count"].as_u64().unwrap();
    std::fs::write(&mark, format!("{before:020}\n")).unwrap();
    let again = printed(&place.tenure(&resume).with(0));
    assert!(!again.is_empty() && all.ends_with(&again), "{again:?} of {all:?}");
}

/// WAL-05: removing the file `lock` of a run that is at work lets nobody else into its log.
#[test]
fn a_run_whose_lock_file_was_removed_keeps_its_directory() {
    let place = Place::new();
    place.file("gated.yaml", GATED);
    let running = place.start(&["run", "gated.yaml"]);
    place.wait_for("pid");
    std::fs::remove_file(place.path(".tenure/lock")).unwrap();
    let second = place.tenure(&["run", "gated.yaml", "--resume"]).with(6);
    second.saying("in use by another process").saying("would not free it");
    place.file("go", "");
    running.end().with(0);
    assert_eq!(ran(&place), "first gate last ");
    place.tenure(&["wal", "verify"]).with(0);
}

/// STORE-17: commands of a resumed task run where the task was made, wherever the resuming is typed.
#[test]
fn a_resumed_task_runs_where_it_was_made() {
    let place = Place::new();
    place.file("gated.yaml", GATED);
    let running = place.start(&["run", "gated.yaml", "--data", "data"]);
    place.wait_for("pid");
    running.signal(Signal::SIGINT);
    running.end().with(130);
    place.file("go", "");
    std::fs::create_dir(place.path("elsewhere")).unwrap();
    let resume = ["run", "../gated.yaml", "--resume", "--data", "../data"];
    let mut command = place.command(&resume);
    support::Running::run_to_end(command.current_dir(place.path("elsewhere"))).with(0);
    assert_eq!(ran(&place), "first gate gate last ");
}
