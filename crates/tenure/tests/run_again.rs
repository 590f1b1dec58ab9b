//! `tenure run FILE` finds the Task that the user means with `--resume` and `--retry-failed`, and says what keeps one
//! from going on.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use support::{Place, step};

/// A Task whose last Step waits until somebody makes the file `go`.
const NAMED: &str = "
task_id: rel
vars: {to: eu}
steps:
  first: {run: 'echo ${{ vars.to }} >> ran'}
  gate: {depends_on: first, run: 'echo $$ > pid; until [ -e go ]; do sleep 0.02; done'}
";

/// Starts a run, and kills it as soon as its Step waits.
fn interrupted(place: &Place, args: &[&str]) {
    let running = place.start(args);
    place.wait_for("pid");
    running.signal(Signal::SIGKILL);
    running.end();
    std::fs::remove_file(place.path("pid")).unwrap();
}

fn id(report: &Value) -> &str {
    report["task_id"].as_str().unwrap()
}

/// A file that names its Task has others too, which `--new` made: the unfinished one goes on, and not the
/// ended one that has the name.
#[test]
fn resume_takes_the_unfinished_task_though_the_file_names_an_ended_one() {
    let place = Place::new();
    place.file("rel.yaml", NAMED);
    place.file("go", "");
    let (_, first) = place.report(&["run", "rel.yaml"]);
    assert_eq!(id(&first), "rel");
    std::fs::remove_file(place.path("go")).unwrap();
    std::fs::remove_file(place.path("pid")).unwrap();
    interrupted(&place, &["run", "rel.yaml", "--new"]);
    place.tenure(&["run", "rel.yaml"]).with(4).saying("goes on with `rel-");
    place.file("go", "");
    let (code, resumed) = place.report(&["run", "rel.yaml", "--resume"]);
    assert_eq!((code, &resumed["status"]), (Some(0), &json!("completed")));
    assert!(id(&resumed).starts_with("rel-"), "{resumed}");
    // All have ended: it shows the newest again.
    let (code, shown) = place.report(&["run", "rel.yaml", "--resume"]);
    assert_eq!((code, id(&shown)), (Some(0), id(&resumed)));
    place.tenure(&["run", "rel.yaml"]).with(4).saying("shows the result of `rel-");
}

/// Of several unfinished Tasks it takes the one that was made with the same variables.
#[test]
fn resume_takes_the_task_of_the_same_variables() {
    let place = Place::new();
    place.file("many.yaml", NAMED.replace("task_id: rel", "title: many"));
    interrupted(&place, &["run", "many.yaml", "--var", "to=us"]);
    interrupted(&place, &["run", "many.yaml"]);
    place.file("go", "");
    let (code, _) = place.report(&["run", "many.yaml", "--resume", "--var", "to=us"]);
    assert_eq!(code, Some(0));
    let list = place.tenure(&["task", "list", "--all", "-o", "json"]).json();
    let open = |task: &&Value| task["native_status"] != "completed";
    assert_eq!(list["tasks"].as_array().unwrap().iter().filter(open).count(), 1, "{list}");
}

/// Programs get the Task as it is, people what keeps it from going on and what would change it.
#[test]
fn a_task_that_cannot_go_on_is_printed_with_the_reason() {
    let place = Place::new();
    place.file("rel.yaml", NAMED);
    interrupted(&place, &["run", "rel.yaml"]);
    place.tenure(&["step", "fail", "rel", "gate", "--reason", "no room"]).with(0);
    let ended = place.tenure(&["run", "rel.yaml", "--resume", "-o", "json"]).with(4);
    assert_eq!(ended.json()["task_id"], "rel");
    assert_eq!(step(&ended.json(), "gate")["status"], "failed");
    let told = ended.refusal();
    assert!(told["message"].as_str().unwrap().contains("no room"), "{told}");
    assert!(told["help"].as_str().unwrap().contains("reopen_step gate"), "{told}");
    let got = place.tenure(&["task", "get", "rel"]).with(0).stdout;
    assert!(got.contains("tenure task explain rel"), "{got}");

    place.tenure(&["task", "pause", "rel"]).with(0);
    let paused = place.tenure(&["run", "rel.yaml", "--resume", "-o", "json"]).with(4);
    assert_eq!(paused.json()["task_id"], "rel");
    assert!(paused.refusal()["message"].as_str().unwrap().contains("paused"));
    assert!(paused.refusal()["help"].as_str().unwrap().contains("resume_task"));
}

/// A Step that only others may run is refused at once, and not waited for.
#[test]
fn a_step_for_other_workers_is_refused() {
    let place = Place::new();
    place.file("rel.yaml", NAMED);
    interrupted(&place, &["run", "rel.yaml"]);
    let patch =
        json!([{"op": "update_step", "step_id": "gate", "fields": {"claim_only_by": "bee"}}]);
    place.file("patch.json", patch.to_string());
    place.tenure(&["task", "patch", "rel", "patch.json"]).with(0);
    place.tenure(&["run", "rel.yaml", "--resume"]).with(4).saying("for bee alone");
}

/// A Task in which only a time limit moves something is waited for, and the reason is said.
#[test]
fn a_time_limit_is_waited_for() {
    let place = Place::new();
    let gate = "gate: {retry: {blocked_timeout: 30s}, ";
    place.file("rel.yaml", NAMED.replace("gate: {", gate));
    interrupted(&place, &["run", "rel.yaml"]);
    place.tenure(&["step", "block", "rel", "gate", "--reason", "who knows"]).with(0);
    let mut running = place.start(&["run", "rel.yaml", "--resume"]);
    running.hears("only a time limit ends this wait");
    running.signal(Signal::SIGINT);
    running.end().with(130);
}

/// RETRY-15: what completed is taken over with its output, and what failed runs again, also after the file was
/// mended; a Step that says something else now runs again with all that depends on it.
#[test]
fn only_what_failed_and_what_was_changed_runs_again() {
    let place = Place::new();
    let file = |lint: &str, test: &str| {
        let steps = format!(
            "  fetch: {{run: 'echo fetch >> ran; echo 7'}}\n  \
               lint: {{depends_on: fetch, run: '{lint}'}}\n  \
               pack: {{depends_on: lint, run: 'echo pack >> ran'}}\n  \
               test: {{depends_on: fetch, retries: 0, run: '{test}'}}\n"
        );
        place.file("ci.yaml", format!("task_id: ci\nsteps:\n{steps}"));
    };
    let ran = || std::fs::read_to_string(place.path("ran")).unwrap().replace('\n', " ");
    file("echo lint >> ran", "exit 3");
    let failed = place.tenure(&["run", "ci.yaml", "--keep-going"]).with(1);
    failed.saying("run ci.yaml --retry-failed");
    assert_eq!(ran(), "fetch lint pack ");
    let (_, first) = place.report(&["run", "ci.yaml", "--resume"]);

    // The test is mended, and the lint is written anew.
    file("echo lint2 >> ran", "echo test >> ran");
    let again = place.tenure(&["run", "ci.yaml", "--retry-failed"]).with(0);
    again.saying("takes over 1 step from ci");
    let mut lines: Vec<String> = ran().split_whitespace().skip(3).map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["lint2", "pack", "test"]);
    // Nothing failed in the newest.
    place
        .tenure(&["run", "ci.yaml", "--retry-failed"])
        .with(4)
        .saying("nothing that it needs is left");
    let (_, newest) = place.report(&["run", "ci.yaml", "--resume"]);
    assert!(id(&newest).starts_with("ci-"), "{newest}");
    let kept = step(&newest, "fetch");
    assert_eq!((&kept["status"], &kept["attempts"]), (&json!("completed"), &json!(0)));
    assert_eq!(kept["output"], step(&first, "fetch")["output"]);
}

/// It makes nothing of a Task that has not ended, and nothing of none.
#[test]
fn only_an_ended_task_is_run_again() {
    let place = Place::new();
    place.file("rel.yaml", NAMED);
    place.tenure(&["run", "rel.yaml", "--retry-failed"]).with(3).saying("no task was made from");
    interrupted(&place, &["run", "rel.yaml"]);
    place.tenure(&["run", "rel.yaml", "--retry-failed"]).with(4).saying("--resume=rel` goes on");
}
