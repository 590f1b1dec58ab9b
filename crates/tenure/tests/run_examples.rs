//! Every example runs, as its comment says, to the end it says.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use support::{Place, step};

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name)
}

fn run(name: &str, more: &[&str]) -> Value {
    let file = example(name);
    let args = [&["run", file.to_str().unwrap()], more].concat();
    let (code, report) = Place::new().report(&args);
    assert_eq!(code, Some(0), "{report:#}");
    report
}

#[test]
fn hello_says_hello() {
    assert_eq!(step(&run("hello.yaml", &[]), "greet")["result_summary"], "Hello, world!");
    let ada = run("hello.yaml", &["--var", "name=Ada"]);
    assert_eq!(step(&ada, "greet")["result_summary"], "Hello, Ada!");
}

#[test]
fn diamond_passes_outputs_along() {
    let report = run("diamond.yaml", &[]);
    assert_eq!(step(&report, "measure")["output"], json!({ "width": 6, "height": 7 }));
    assert_eq!(step(&report, "report")["output"], json!({ "area": 42, "perimeter": 26 }));
}

#[test]
fn fan_out_runs_a_thousand_steps() {
    let report = run("fan-out.yaml", &[]);
    assert_eq!(report["counts"]["completed"], 1002);
}

#[test]
fn optional_completes_without_its_optional_branch() {
    let report = run("optional.yaml", &[]);
    assert_eq!(step(&report, "report")["status"], "failed");
    assert_eq!(step(&report, "announce")["status"], "cancelled");
}

#[test]
fn pipeline_runs_each_shard() {
    let report = run("pipeline.toml", &[]);
    assert_eq!(step(&report, "package-0003")["result_summary"], "packaging 0003");
}

#[test]
fn release_runs_built_in_handlers_by_name() {
    let report = run("release.json", &[]);
    let settle = step(&report, "settle");
    let took = settle["ended_at"].as_i64().unwrap() - settle["started_at"].as_i64().unwrap();
    assert!(took >= 100, "{settle}");
}

#[test]
fn retry_succeeds_at_the_third_attempt() {
    let report = run("retry.yaml", &[]);
    let flaky = step(&report, "flaky");
    assert_eq!((&flaky["attempts"], &flaky["attempt_count"]), (&json!(3), &json!(2)), "{flaky}");
}

#[test]
fn no_example_is_left_out() {
    let tested = ["diamond", "fan-out", "hello", "optional", "pipeline", "release", "retry"];
    for entry in std::fs::read_dir(example("")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() || path.extension().is_some_and(|it| it == "py" || it == "sh") {
            continue; // A worker: the tests of a cluster and of `tenure dev` run those.
        }
        let stem = path.file_stem().unwrap().to_str().unwrap();
        assert!(tested.contains(&stem), "{} has no test", path.display());
    }
}
