//! What commands find when they start, what is said of one that does not start, and which files stay.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::path::Path;

use serde_json::json;
use support::{Place, step};

/// All files and directories below this one, by their names from there.
fn below(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![dir.to_owned()];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            found.push(path.strip_prefix(dir).unwrap().to_string_lossy().into_owned());
            if path.is_dir() {
                open.push(path);
            }
        }
    }
    found.sort();
    found
}

#[test]
fn a_command_that_prints_nothing_leaves_no_file() {
    let place = Place::new();
    let text = "
task_id: t
steps:
  silent: {repeat: 3, run: 'true'}
  loud: {run: 'echo hello'}
  next: {depends_on: loud, run: 'test -s $TENURE_INPUTS'}
  bad: {depends_on: loud, run: 'exit 1', retries: 0, optional: true}
";
    place.file("t.yaml", text);
    let (code, report) = place.report(&["run", "t.yaml"]);
    assert_eq!(code, Some(0), "{report:#}");
    let left = below(&place.path(".tenure/files/default/t"));
    // Whoever looks for the fault of `bad` finds what it got.
    let all = ["bad", "bad/1", "bad/1/inputs.json", "loud", "loud/1", "loud/1/stdout.log"];
    assert_eq!(left, all);
    let shown = place.tenure(&["step", "get", "t", "loud", "-o", "json"]).with(0).json();
    let names: Vec<_> =
        shown["artifacts"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["stdout"], "an empty log is no artifact");
}

/// Steps that get nothing share one file, which no command can spoil for the others.
#[test]
fn the_inputs_of_a_step_that_gets_none_are_an_empty_object() {
    let place = Place::new();
    let text = "
steps:
  spoils: {run: 'chmod +w $TENURE_INPUTS; echo broken > $TENURE_INPUTS'}
  reads: {run: 'cat $TENURE_INPUTS > $TENURE_OUTPUT'}
";
    place.file("t.yaml", text);
    let (code, report) = place.report(&["run", "t.yaml", "-j", "1"]);
    assert_eq!((code, &step(&report, "reads")["output"]), (Some(0), &json!({})), "{report:#}");
}

#[test]
fn a_command_is_told_where_it_runs() {
    let place = Place::new();
    std::fs::create_dir(place.path("real")).unwrap();
    std::os::unix::fs::symlink("real", place.path("link")).unwrap();
    place.file("t.yaml", "task_id: t\nsteps: {a: {command: [printenv, PWD], cwd: link}}");
    let (_, report) = place.report(&["run", "t.yaml"]);
    let here = place.dir.path().canonicalize().unwrap();
    let there = here.join("link").display().to_string();
    assert_eq!(step(&report, "a")["result_summary"], there.as_str());
    let shown = place.tenure(&["task", "get", "t"]).with(0).stdout;
    assert!(shown.contains(&format!("cwd      {}\n", here.display())), "{shown}");
}

#[test]
fn a_command_that_does_not_start_says_why() {
    let place = Place::new();
    place.file("script", "#!/no/such/interpreter\n");
    let chmod = std::process::Command::new("chmod").arg("+x").arg(place.path("script")).status();
    assert!(chmod.unwrap().success());
    let text = "
on_failure: finish
steps:
  missing: {command: [no-such-tool]}
  script: {command: [./script]}
  output: {run: 'echo plain > $TENURE_OUTPUT'}
";
    place.file("t.yaml", text);
    let (_, report) = place.report(&["run", "t.yaml"]);
    let why = |id| step(&report, id)["status_reason"]["message"].as_str().unwrap().to_owned();
    let missing = why("missing");
    assert!(
        missing.starts_with(
            "cannot start the program `no-such-tool`: no directory of PATH has it (No such"
        ),
        "{missing}"
    );
    assert!(
        why("script").contains("needs the interpreter `/no/such/interpreter`"),
        "{}",
        why("script")
    );
    assert!(why("output").contains("double quotes: expected value at line 1"), "{}", why("output"));
}

/// LEASE-18: a runner that is out of its own file descriptors says so once and runs fewer Steps at a time. No Step
/// fails for it.
#[test]
fn a_runner_out_of_file_descriptors_says_so_and_runs_fewer_steps_at_a_time() {
    let place = Place::new();
    place.file("task.yaml", "steps: {w: {repeat: 60, run: 'sleep 1'}}\n");
    let ended = place.limited("ulimit -n 72", &["run", "task.yaml", "-j", "60", "-o", "json"]);
    let ended = ended.with(0).saying("this worker cannot run 60 steps at a time");
    assert_eq!(ended.stderr.matches("steps at a time").count(), 1, "{}", ended.stderr);
    assert!(ended.stderr.contains("Too many open files"), "{}", ended.stderr);
    let report = ended.json();
    assert_eq!(report["counts"]["completed"], 60, "{report}");
    let events = place.tenure(&["task", "events", "last"]).with(0).stdout;
    let returned = events.matches("released").count();
    assert!(returned < 120, "{returned} came back for 60 steps");
}
