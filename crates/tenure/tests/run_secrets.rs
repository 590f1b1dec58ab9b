//! Secrets that Steps name and their worker has: no log holds a value, and what commands write is masked.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::fs;
use std::path::Path;

use support::Place;

const VALUE: &str = "s3cret-value-4711";

/// A place with the secret `db`, in a directory.
fn with_secret() -> (Place, String) {
    let place = Place::new();
    let dir = place.path("secrets");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("db"), format!("{VALUE}\n")).unwrap();
    let option = format!("--secrets=dir:{}", dir.display());
    (place, option)
}

/// Whether the secret stands in any file below a directory.
fn is_told(dir: &Path) -> Option<String> {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if let Some(found) = is_told(&path) {
                return Some(found);
            }
        } else if String::from_utf8_lossy(&fs::read(&path).unwrap_or_default()).contains(VALUE) {
            return Some(path.display().to_string());
        }
    }
    None
}

/// The command gets the value, in its environment and among its arguments; what it writes is masked wherever it is
/// kept: in its output, its result and its summary.
#[test]
fn a_command_gets_the_value_and_nobody_else_sees_it() {
    let (place, secrets) = with_secret();
    let script = "test \"$1\" = \"$DB\" && test ${#DB} = 17 && echo \"it is $DB\" && echo \"$DB\" >&2 && \
                  printf '{\"password\": \"%s\", \"n\": 1}' \"$DB\" > \"$TENURE_OUTPUT\"";
    let step = serde_json::json!({
        "command": ["sh", "-c", script, "sh", {"secret": "db"}],
        "env": {"DB": {"secret": "db"}},
    });
    let task = serde_json::json!({"task_id": "t", "steps": {"a": step}});
    place.file("t.json", task.to_string());
    let ended = place.tenure(&["run", "t.json", &secrets, "-o", "json"]).with(0);
    assert!(!ended.stdout.contains(VALUE) && !ended.stderr.contains(VALUE));
    let stars = "*".repeat(VALUE.len());
    let logs = place.tenure(&["logs", "t", "a"]).with(0);
    assert_eq!(
        (&*logs.stdout, &*logs.stderr),
        (&*format!("it is {stars}\n"), &*format!("{stars}\n"))
    );
    let got = place.tenure(&["task", "get", "t", "-o", "json"]).with(0).json();
    let text = got.to_string();
    assert!(text.contains("***") && text.contains(r#"{\"secret\":\"db\"}"#), "{text}");
    assert_eq!(is_told(&place.path(".tenure")), None);
}

/// A failure says what failed and not with which value.
#[test]
fn what_is_told_of_a_failure_is_masked() {
    let (place, secrets) = with_secret();
    place.file(
        "t.yaml",
        "task_id: t\nsteps: {a: {run: 'echo \"no $DB\" >&2; exit 3', env: {DB: {secret: db}}}}",
    );
    let ended = place.tenure(&["run", "t.yaml", &secrets, "-o", "json"]).with(1);
    assert!(
        !ended.stdout.contains(VALUE) && ended.stdout.contains("exit_status"),
        "{}",
        ended.stdout
    );
    assert_eq!(is_told(&place.path(".tenure")), None);
}

/// A secret that is not there fails the Step for good, with what to do.
#[test]
fn a_secret_that_is_not_there_fails_the_step_for_good() {
    let (place, secrets) = with_secret();
    let step = "{run: 'true', env: {X: {secret: other}}, retries: 5}";
    place.file("t.yaml", format!("steps: {{a: {step}}}"));
    for (options, told) in [(&[&*secrets][..], "files in"), (&[], "without --secrets")] {
        let args = [&["run", "t.yaml", "-o", "json"][..], options].concat();
        let ended = place.tenure(&args).with(1);
        let report = ended.json();
        let step = support::step(&report, "a").to_string();
        assert!(step.contains("secret_missing") && step.contains(told), "{step}");
        assert!(step.contains("no secret other"), "{step}");
        assert_eq!(support::step(&report, "a")["attempts"], 1, "{step}");
    }
}

/// What a command reports by the tools of its Run is masked like what it writes.
#[test]
fn what_a_command_reports_has_no_secret() {
    let (place, secrets) = with_secret();
    let said = |id: u32, method: &str, params: serde_json::Value| {
        serde_json::json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
            .to_string()
    };
    let client = serde_json::json!({ "name": "sh", "version": "1" });
    let begin = serde_json::json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client });
    let report =
        serde_json::json!({ "status": "running", "progress": { "summary": "it is SECRET" } });
    let call = serde_json::json!({ "name": "task_update_step", "arguments": report });
    let lines = [
        said(1, "initialize", begin),
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.to_owned(),
        said(2, "tools/call", call),
    ];
    place.file("asks", lines.map(|line| line + "\n").concat());
    let tenure = support::TENURE;
    let run = format!(
        "(sed s/SECRET/$DB/ asks; while ! grep -q '\"id\":2' answers; do sleep 0.1; done) | {tenure} mcp > answers"
    );
    let input =
        serde_json::json!({ "run": run, "run_tools": true, "env": { "DB": { "secret": "db" } } });
    let step = serde_json::json!({ "handler": "exec", "input": input });
    let task = serde_json::json!({ "task_id": "t", "steps": { "a": step } });
    place.file("t.json", task.to_string());
    place.tenure(&["run", "t.json", &secrets]).with(0);
    let log = place.tenure(&["wal", "show", "t", "--raw"]).with(0).stdout;
    assert!(
        log.contains("it is ***"),
        "{}\n{log}",
        fs::read_to_string(place.path("answers")).unwrap()
    );
    assert_eq!(is_told(&place.path(".tenure")), None);
}

/// What is no place for secrets is refused before anything runs.
#[test]
fn a_place_that_is_none_is_refused() {
    let (place, _) = with_secret();
    place.file("t.yaml", "steps: {a: {noop: true}}");
    for wrong in ["env:", "env:TENURE_", "dir:relative", "vault:x", "x"] {
        let ended = place.tenure(&["run", "t.yaml", &format!("--secrets={wrong}")]).with(2);
        assert!(ended.stderr.contains("--secrets"), "{}", ended.stderr);
    }
}

/// Variables of the worker are secrets by their prefix, and commands do not inherit them.
#[test]
fn a_variable_is_a_secret_and_no_command_inherits_it() {
    let place = Place::new();
    let check = "test \"$A\" = from-env && test -z \"$TENURE_SECRET_A\"";
    place.file("t.yaml", format!("steps: {{a: {{run: '{check}', env: {{A: {{secret: A}}}}}}}}"));
    let mut command = place.command(&["run", "t.yaml", "--secrets", "env:TENURE_SECRET_"]);
    let ended = command.env("TENURE_SECRET_A", "from-env").output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}
