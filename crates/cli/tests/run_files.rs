//! What is said of a command that does not start.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use support::{Place, step};

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
