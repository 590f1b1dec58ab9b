//! What is told about a command that ended.

use std::fs;

use serde_json::json;
use tenure_sdk::worker::exec::{self, CommandEnd, ExecError, ExecOutcome, OutputError};

use super::bench::{Bench, patiently};

pub async fn exit_codes_are_told() {
    for code in [0, 3, 255] {
        let outcome = Bench::new().shell(&format!("exit {code}")).await;
        assert_eq!(outcome.ended, CommandEnd::Exited(code));
    }
    assert_eq!(Bench::new().shell("no-such-program-at-all").await.ended, CommandEnd::Exited(127));
}

pub async fn signals_are_told() {
    for signal in [6, 9, 15, 40] {
        let outcome = Bench::new().shell(&format!("kill -{signal} $$")).await;
        assert_eq!(outcome.ended, CommandEnd::Signaled(signal));
    }
}

pub async fn megabytes_arrive_in_the_files() {
    let bench = Bench::new();
    let outcome = bench.shell("head -c 7000000 /dev/zero; head -c 3000000 /dev/zero >&2").await;
    assert_eq!((outcome.stdout_bytes, outcome.stderr_bytes), (7_000_000, 3_000_000));
    assert_eq!(fs::metadata(bench.path("stdout")).unwrap().len(), 7_000_000);
    assert_eq!(fs::metadata(bench.path("stderr")).unwrap().len(), 3_000_000);
}

pub async fn both_streams_may_share_a_file() {
    let bench = Bench::new();
    let mut paths = bench.paths();
    paths.stderr = paths.stdout.clone();
    let line = "for i in 1 2 3; do echo out $i; echo err $i >&2; done";
    let spec = serde_json::from_value(json!({ "run": line })).unwrap();
    let outcome = exec::run(&spec, &paths, &[], &bench.cancel).await.unwrap();
    assert_eq!(bench.stdout(), "out 1\nerr 1\nout 2\nerr 2\nout 3\nerr 3\n");
    assert_eq!(outcome.tail, bench.stdout().trim_end());
}

pub async fn the_tail_shows_the_end_of_both_streams() {
    let outcome = Bench::new().shell("seq 1 100000; echo woe >&2; echo 'more woe' >&2").await;
    let lines: Vec<&str> = outcome.tail.lines().collect();
    assert_eq!(lines.len(), 20);
    assert_eq!(lines[0], "99983");
    assert_eq!(lines[17..], ["100000", "woe", "more woe"]);
}

pub async fn the_tail_is_text_whatever_was_written() {
    let outcome =
        Bench::new().shell("head -c 100000 /dev/urandom >&2; printf '\\377end' >&2").await;
    assert!(outcome.tail.len() <= 2048 && outcome.tail.ends_with("\u{fffd}end"));
}

pub async fn an_output_is_returned_as_it_was_written() {
    let outcome = Bench::new().shell(r#"echo '{"rows": [1, 2]}' > $TENURE_OUTPUT"#).await;
    assert_eq!(outcome.output.as_deref(), Some(&br#"{"rows": [1, 2]}"#[..]));
}

pub async fn no_output_is_fine() {
    assert_eq!(Bench::new().shell("true").await.output, None);
    assert_eq!(Bench::new().shell(": > $TENURE_OUTPUT").await.output, None);
}

pub async fn an_output_of_an_earlier_attempt_is_not_taken() {
    let bench = Bench::new();
    fs::write(bench.path("output"), "1").unwrap();
    assert_eq!(bench.shell("true").await.output, None);
}

pub async fn an_output_that_is_not_json_is_refused() {
    let error = refused("echo done > $TENURE_OUTPUT").await;
    assert!(matches!(error, OutputError::NotJson(_)), "{error}");
    assert!(error.to_string().contains("must hold one JSON value"));
}

pub async fn an_output_that_is_too_large_is_refused() {
    let line = "(echo '\"'; head -c 17000000 /dev/zero | tr '\\0' x; echo '\"') > $TENURE_OUTPUT";
    let error = refused(line).await;
    assert!(matches!(error, OutputError::TooLarge), "{error}");
    assert!(error.to_string().contains("16777216 bytes"));
}

pub async fn an_output_that_is_a_pipe_is_refused_without_waiting_for_it() {
    let error = patiently(refused("mkfifo $TENURE_OUTPUT")).await;
    assert!(matches!(error, OutputError::NotAFile), "{error}");
}

pub async fn a_bad_output_does_not_hide_a_failure() {
    let outcome = Bench::new().shell("echo done > $TENURE_OUTPUT; exit 4").await;
    let ExecOutcome { ended, output, .. } = outcome;
    assert_eq!((ended, output), (CommandEnd::Exited(4), None));
}

async fn refused(line: &str) -> OutputError {
    match Bench::new().run(json!({ "run": line })).await {
        Err(ExecError::Output(error)) => error,
        other => panic!("the output should be refused: {other:?}"),
    }
}
