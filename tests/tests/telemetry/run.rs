//! `tenure run`: one process.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value as Json;
use tenure_tests::binary::{Ended, Running, tenure};
use tenure_tests::otlp::{Got, Protocol, Receiver, Span};

use crate::history::History;

/// Longest that a run may take, on a machine that is busy with other things.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A Step that fails once, and one behind it. What the commands find of their trace they leave in a
/// file.
pub(crate) const RETRY: &str = r#"
task_id: retry
steps:
  - id: flaky
    run: |
      echo "$TENURE_STEP_ID.$TENURE_ATTEMPT $TRACEPARENT" >> "$SEEN"
      test "$TENURE_ATTEMPT" -ge 2
    retry: {max_attempts: 3, backoff: {initial: 50ms, factor: 1, max: 50ms, jitter: 0}}
  - id: after
    depends_on: flaky
    run: echo "$TENURE_STEP_ID.$TENURE_ATTEMPT $TRACEPARENT" >> "$SEEN"
"#;

/// Runs that Task in a directory, with more in the environment.
pub(crate) fn run(dir: &Path, environment: &[(&str, String)]) -> Result<Ended> {
    let file = dir.join("retry.yaml");
    std::fs::write(&file, RETRY)?;
    let mut command = Command::new(tenure()?);
    command.arg("run").arg(&file).arg("--data").arg(dir.join("data")).args(["-o", "quiet"]);
    command.env("SEEN", dir.join("seen")).envs(environment.iter().cloned());
    let ended = Running::start(&mut command)?.end(PATIENCE)?;
    ensure!(ended.status.success(), "{ended:?}");
    Ok(ended)
}

/// The events of that Task.
fn history(dir: &Path) -> Result<History> {
    let log = std::fs::read_to_string(dir.join("data/tasks/default/retry.wal.jsonl"))?;
    let events: Vec<Json> =
        log.lines().map(serde_json::from_str).collect::<serde_json::Result<_>>()?;
    History::of(&events)
}

/// Everything the commands were told is below the span of their Attempt.
fn check_seen(dir: &Path, spans: &[Span]) -> Result<()> {
    let seen = std::fs::read_to_string(dir.join("seen"))?;
    ensure!(seen.lines().count() == 3, "{seen}");
    for line in seen.lines() {
        let (attempt, trace) = line.split_once(' ').context("no trace")?;
        let (step, ordinal) = attempt.split_once('.').context("no attempt")?;
        let is_it = |span: &&Span| {
            let of = (span.get("tenure.step.id"), span.get("tenure.attempt.ordinal"));
            span.name.starts_with("attempt ") && of == (step, ordinal)
        };
        let span = spans.iter().find(is_it).with_context(|| format!("no span of {attempt}"))?;
        ensure!(trace == format!("00-{}-{}-01", span.trace, span.id), "{line}: {span:?}");
    }
    Ok(())
}

fn check_metrics(got: &Got) -> Result<()> {
    let total = |metric: &str, attribute| got.total(metric, attribute);
    ensure!(total("tenure.tasks.created", None) == 1.0);
    ensure!(total("tenure.tasks.ended", Some(("tenure.status", "completed"))) == 1.0);
    ensure!(total("tenure.claims", Some(("tenure.pool", "default"))) == 3.0);
    ensure!(total("tenure.attempts.ended", Some(("tenure.outcome", "completed"))) == 2.0);
    ensure!(total("tenure.attempts.ended", Some(("tenure.outcome", "failed"))) == 1.0);
    ensure!(total("tenure.step.run.duration", None) == 3.0);
    ensure!(total("tenure.step.queue.duration", None) == 3.0);
    ensure!(total("tenure.journal.append.duration", None) >= 3.0);
    ensure!(total("tenure.telemetry.dropped", None) == 0.0);
    ensure!(total("process.memory.usage", None) > 1e6);
    for point in &got.points {
        let ids = point.attributes.keys().filter(|name| name.ends_with(".id")).count();
        ensure!(ids == 0, "{point:?}");
    }
    Ok(())
}

fn exports_a_retried_run(protocol: Protocol) -> Result<()> {
    let (dir, receiver) = (tempfile::tempdir()?, Receiver::start(protocol)?);
    run(dir.path(), &receiver.environment())?;
    // What a process exports it has exported when it ends.
    let got = receiver.got().clone();
    history(dir.path())?.check(&got.spans)?;
    check_seen(dir.path(), &got.spans)?;
    check_metrics(&got)?;
    ensure!(got.spans.iter().all(|span| span.resource["service.name"] == "tenure-run"));
    let about_task = got.records.iter().filter(|it| it.resource["service.namespace"] == "tenure");
    ensure!(about_task.count() == got.records.len());
    Ok(())
}

#[test]
fn a_run_with_a_retry_is_a_trace_by_grpc() -> Result<()> {
    exports_a_retried_run(Protocol::Grpc)
}

#[test]
fn a_run_with_a_retry_is_a_trace_by_http() -> Result<()> {
    exports_a_retried_run(Protocol::Http)
}

#[test]
fn what_is_not_sampled_is_no_trace_and_its_handlers_are_told_so() -> Result<()> {
    let (dir, receiver) = (tempfile::tempdir()?, Receiver::start(Protocol::Http)?);
    let mut environment = receiver.environment();
    environment.push(("OTEL_TRACES_SAMPLER", "always_off".into()));
    environment.push(("OTEL_SERVICE_NAME", "mine".into()));
    environment.push(("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test".into()));
    run(dir.path(), &environment)?;
    let got = receiver.got().clone();
    ensure!(got.spans.is_empty(), "{:?}", got.spans);
    let seen = std::fs::read_to_string(dir.path().join("seen"))?;
    ensure!(seen.lines().all(|line| line.ends_with("-00")), "{seen}");
    let resource = &got.points.first().context("no metrics")?.resource;
    ensure!(resource["service.name"] == "mine", "{resource:?}");
    ensure!(resource["deployment.environment.name"] == "test", "{resource:?}");
    Ok(())
}

#[test]
fn without_an_endpoint_nothing_is_there() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let ended = run(dir.path(), &[])?;
    ensure!(ended.stderr.is_empty(), "{}", ended.stderr);
    let seen = std::fs::read_to_string(dir.path().join("seen"))?;
    ensure!(seen.lines().all(|line| line.ends_with(' ')), "no trace was made: {seen}");
    Ok(())
}
