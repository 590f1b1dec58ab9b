//! What those send that are told to stop, and who they say they are.

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;
use tenure_tests::cluster::process::Process;
use tenure_tests::cluster::tasks::{sleep, task};
use tenure_tests::cluster::{Cluster, PATIENCE, Plan, until};
use tenure_tests::otlp::{Attributes, Protocol, Receiver};

use crate::cluster::{history, of_trace};

fn stop(process: &mut Process) -> Result<()> {
    process.signal(Signal::SIGTERM)?;
    let status = process.end(PATIENCE)?;
    ensure!(status.success(), "{}: {status}", process.name());
    Ok(())
}

fn said(cluster: &Cluster, process: &str, what: &str) -> Result<bool> {
    let log = std::fs::read_to_string(cluster.dir().join(format!("{process}.log")))?;
    Ok(log.lines().any(|line| line.contains(what)))
}

#[test]
fn a_scheduler_and_a_worker_that_are_told_to_stop_send_what_they_have_gathered() -> Result<()> {
    for protocol in [Protocol::Grpc, Protocol::Http] {
        let receiver = Receiver::start(protocol)?;
        let mut environment = receiver.environment();
        // Nothing is due before the end.
        environment.push(("OTEL_BSP_SCHEDULE_DELAY", "600000".into()));
        environment.push(("OTEL_METRIC_EXPORT_INTERVAL", "600000".into()));
        let plan = Plan { schedulers: 1, workers: 1, environment, ..Plan::default() };
        let mut cluster = Cluster::start(plan)?;
        let client = cluster.client("c")?;
        client.create(&task("last", &[sleep("a", &[], 1_000)]))?; // It is renewed meanwhile.
        until("last", PATIENCE, || Ok(client.log("last", PATIENCE)?.has_ended()))?;
        let history = history(&client, "last")?;
        let early = receiver.got().clone();
        ensure!(early.spans.is_empty() && early.points.is_empty(), "it was sent before the end");

        stop(&mut cluster.workers[0])?;
        let of_worker = receiver.got().clone();
        ensure!(of_worker.total("tenure.worker.heartbeat.duration", None) > 0.0, "no metrics");
        stop(&mut cluster.schedulers[0])?;
        let got = receiver.got().clone();
        let spans = of_trace(&got, "last");
        history.check(&spans)?;
        ensure!(got.total("tenure.tasks.ended", None) == 1.0);
        ensure!(got.records.iter().any(|record| record.body == "partition left"), "no records");

        // Each says who it is as others name it.
        let instance = |of: &Attributes| of["service.instance.id"].clone();
        let root = spans.iter().find(|span| span.is_task()).context("no span of the task")?;
        let node = &root.resource["tenure.boot"];
        ensure!(said(&cluster, "n0", &format!("node {node} serves"))?, "nobody knows {node}");
        let worker = &of_worker.points[0].resource["tenure.boot"];
        // And who it is after a restart, too: by its name, which other clusters of this machine have as well.
        ensure!(instance(&root.resource).split('.').next() == Some("n0"));
        ensure!(instance(&of_worker.points[0].resource).split('.').next() == Some("w0"));
        let attempt = spans.iter().find(|span| span.name.starts_with("attempt "));
        let attempt = attempt.context("no attempt")?;
        ensure!(attempt.get("tenure.worker.id") == worker, "nobody knows {worker}");
        let resources = [&root.resource, &of_worker.points[0].resource];
        ensure!(resources.iter().all(|of| !of["host.name"].is_empty()), "{resources:?}");
    }
    Ok(())
}
