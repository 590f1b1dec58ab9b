//! What a command finds when it starts, and what happens when it cannot.

use std::error::Error;
use std::fs::{self, File};
use std::path::Path;

use serde_json::json;
use tenure_sdk::worker::exec::{self, CommandEnd, ExecError};

use super::bench::{Bench, paths_in};

pub async fn the_environment_has_layers() {
    let bench = Bench::new();
    let mut extra = bench.extra();
    extra.push(("LAST".to_owned(), "extra".to_owned()));
    let spec = serde_json::from_value(json!({
        "run": "echo $FIRST $LAST ${PATH:+path}; cat $TENURE_INPUTS",
        "env": { "FIRST": "a b", "LAST": "spec", "TENURE_INPUTS": "/nowhere" },
    }));
    fs::write(bench.path("inputs"), "inputs").unwrap();
    exec::run(&spec.unwrap(), &bench.paths(), &extra, &bench.cancel).await.unwrap();
    assert_eq!(bench.stdout(), "a b extra path\ninputs");
}

pub async fn a_command_runs_where_it_says() {
    let bench = Bench::new();
    let there = bench.dir.path().canonicalize().unwrap();
    bench.run(json!({ "command": ["pwd", "-P"], "cwd": there })).await.unwrap();
    assert_eq!(Path::new(bench.stdout().trim_end()), there);
}

pub async fn a_command_finds_its_files_from_anywhere() {
    let here = std::env::current_dir().unwrap();
    let bench = Bench { dir: tempfile::tempdir_in(&here).unwrap(), ..Bench::new() };
    let paths = paths_in(bench.dir.path().strip_prefix(&here).unwrap());
    let spec = json!({ "run": "echo 5 > $TENURE_OUTPUT", "cwd": "/" });
    let spec = serde_json::from_value(spec).unwrap();
    let outcome = exec::run(&spec, &paths, &[], &bench.cancel).await.unwrap();
    assert_eq!(outcome.output.as_deref(), Some(&b"5"[..]));
}

pub async fn arguments_arrive_as_they_are() {
    let bench = Bench::new();
    bench.run(json!({ "command": ["printf", "<%s>", "", "a b", "$HOME", "ä\n"] })).await.unwrap();
    assert_eq!(bench.stdout(), "<><a b><$HOME><ä\n>");
}

pub async fn a_megabyte_of_arguments_arrives() {
    let bench = Bench::new();
    let mut command = vec!["printf".to_owned(), "%s".to_owned()];
    command.extend((0..10).map(|_| "x".repeat(100_000)));
    let outcome = bench.run(json!({ "command": command })).await.unwrap();
    assert_eq!((outcome.ended, outcome.stdout_bytes), (CommandEnd::Exited(0), 1_000_000));
}

pub async fn too_many_arguments_are_an_error_of_the_start() {
    let command = ["printf".to_owned(), "x".repeat(1_000_000)];
    let error = Bench::new().run(json!({ "command": command })).await.unwrap_err();
    assert!(matches!(error, ExecError::Start { .. }), "{error}");
}

pub async fn a_line_may_begin_with_a_dash() {
    let bench = Bench::new();
    assert_eq!(bench.shell("-x 2>/dev/null || echo ran").await.ended, CommandEnd::Exited(0));
    assert_eq!(bench.stdout(), "ran\n");
}

pub async fn standard_input_is_empty() {
    let bench = Bench::new();
    assert_eq!(bench.shell("cat; echo end").await.ended, CommandEnd::Exited(0));
    assert_eq!(bench.stdout(), "end\n");
}

pub async fn no_open_file_of_the_runner_reaches_the_command() {
    let file = File::open("/dev/null").unwrap();
    let _leaky = nix::unistd::dup(&file).unwrap(); // Not marked to close on exec.
    let bench = Bench::new();
    bench.run(json!({ "command": ["ls", "/proc/self/fd"] })).await.unwrap();
    assert_eq!(bench.stdout(), "0\n1\n2\n3\n"); // The last is that of `ls` itself.
}

pub async fn signals_start_with_their_defaults() {
    let bench = Bench::new();
    bench.run(json!({ "command": ["grep", "^Sig[BI]", "/proc/self/status"] })).await.unwrap();
    for line in bench.stdout().lines() {
        let (name, mask) = line.split_once(":\t").unwrap();
        let standard = u64::from_str_radix(mask, 16).unwrap() & 0x7fff_ffff;
        assert_eq!(standard, 0, "{name} has {mask}");
    }
}

pub async fn a_missing_program_is_named() {
    let error = Bench::new().run(json!({ "command": ["no-such-program"] })).await.unwrap_err();
    assert_eq!(error.to_string(), "cannot start the program `no-such-program`");
    assert!(error.source().unwrap().to_string().contains("No such file"));
    assert!(!error.is_retryable());
}

pub async fn a_file_that_is_no_program_is_named() {
    let error = Bench::new().run(json!({ "command": ["/etc/passwd"] })).await.unwrap_err();
    assert_eq!(error.to_string(), "cannot start the program `/etc/passwd`");
    assert!(matches!(error, ExecError::Start { .. }));
}

pub async fn a_missing_working_directory_is_named() {
    let spec = json!({ "run": "true", "cwd": "/no/such/place" });
    let error = Bench::new().run(spec).await.unwrap_err();
    assert_eq!(error.to_string(), "the working directory `/no/such/place` is not a directory");
}

pub async fn a_missing_log_directory_is_named() {
    let bench = Bench::new();
    let spec = serde_json::from_value(json!({ "run": "true" })).unwrap();
    let paths = paths_in(Path::new("/no/such/place"));
    let error = exec::run(&spec, &paths, &[], &bench.cancel).await.unwrap_err();
    assert_eq!(error.to_string(), "cannot create the log `/no/such/place/stdout`");
}

pub async fn bad_extra_environment_is_refused() {
    let bench = Bench::new();
    let spec = serde_json::from_value(json!({ "run": "true" })).unwrap();
    let extra = [("A=B".to_owned(), String::new())];
    let error = exec::run(&spec, &bench.paths(), &extra, &bench.cancel).await.unwrap_err();
    assert!(matches!(error, ExecError::Spec(_)), "{error}");
}

pub async fn sixty_four_commands_run_side_by_side() {
    // Each waits for the other 63, so they end only if all of them run at once.
    let meeting = tempfile::tempdir().unwrap();
    let line = "touch $MEETING/$N; while [ $(ls $MEETING | wc -l) -lt 64 ]; do sleep 0.1; done; \
                exit $N";
    let commands = (0..64).map(|number: i32| {
        let env = json!({ "N": number.to_string(), "MEETING": meeting.path() });
        tokio::spawn(async move {
            let bench = Bench::new();
            let outcome = bench.run(json!({ "run": line, "env": env, "timeout_ms": 60_000 })).await;
            assert_eq!(outcome.unwrap().ended, CommandEnd::Exited(number));
        })
    });
    for command in commands.collect::<Vec<_>>() {
        command.await.unwrap();
    }
}
