//! Gateways that die, with callers and workers that reach the cluster through them alone.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;
use tenure_tests::binary::{Running, tenure};
use tenure_tests::cluster::process::Process;
use tenure_tests::cluster::proxy::Proxy;
use tenure_tests::cluster::servers::free_port;
use tenure_tests::cluster::tasks::{exec, task};
use tenure_tests::cluster::{Cluster, PATIENCE, Plan, on_cluster, until};

use crate::common::{wait_ended, wait_runs};

/// How many Steps run at a time.
const CONCURRENCY: usize = 4;

/// How many Steps a Task has.
const STEPS: usize = 40;

/// A gateway to the cluster, with more options, and its port.
pub(crate) fn gateway(cluster: &Cluster, name: &str, more: &[&str]) -> Result<(Process, u16)> {
    let port = free_port();
    let mut command = Command::new(tenure()?);
    command.args(["gateway", "--nats", &cluster.url(), "--http", &format!("127.0.0.1:{port}")]);
    command.args(more);
    let process = Process::start(name, cluster.dir(), command)?;
    until("the gateway listens", PATIENCE, || Ok(process.has_said("listens at") > 0))?;
    Ok((process, port))
}

/// The addresses of two gateways.
fn both(one: u16, other: u16) -> String {
    format!("http://127.0.0.1:{one},http://127.0.0.1:{other}")
}

/// A worker that knows nothing but these gateways.
fn worker(cluster: &Cluster, urls: &str) -> Result<Process> {
    let mut command = Command::new(tenure()?);
    command.args(["worker", "--http", urls, "--concurrency", &CONCURRENCY.to_string()]);
    command.args(["--files", "files-http"]).env("TRACE", cluster.trace());
    let process = Process::start("http-worker", cluster.dir(), command)?;
    until("the worker has joined", PATIENCE, || Ok(process.has_said("runs steps of pool") > 0))?;
    Ok(process)
}

/// A caller that waits, through the same gateways, for the end of a Task.
fn waiting(cluster: &Cluster, urls: &str, task: &str) -> Result<Running> {
    let mut command = Command::new(tenure()?);
    command.args(["task", "wait", task, "--http", urls, "--timeout", "60"]);
    Running::start(command.current_dir(cluster.dir()))
}

/// Runs a Task through these gateways, and breaks something meanwhile. No Step is lost, and none runs twice, as the
/// worker itself lives on.
fn run_through(cluster: &Cluster, urls: &str, breaks: impl FnOnce() -> Result<()>) -> Result<()> {
    let mut worker = worker(cluster, urls)?;
    let client = cluster.client("c")?;
    let mut ids: Vec<String> = (0..STEPS).map(|number| format!("s{number}")).collect();
    let steps: Vec<_> = ids.iter().map(|id| exec(id, &[], "sleep 0.3")).collect();
    client.create(&task("through", &steps))?;
    let waits = waiting(cluster, urls, "through")?;
    wait_runs(cluster, 2 * CONCURRENCY)?;
    breaks()?;
    wait_ended(&client, "through").with_context(|| worker.tail())?;
    let told = waits.end(PATIENCE)?;
    ensure!(told.status.success(), "{told:?}");

    let completed = client.log("through", PATIENCE)?.events("task_step_completed");
    ensure!(completed.len() == STEPS, "{} completions", completed.len());
    let mut ran: Vec<_> = cluster.traced().iter().filter_map(|line| step_of(line)).collect();
    ran.sort_unstable();
    ids.sort_unstable();
    ensure!(ran == ids, "each step runs once: {ran:?}\n{}", worker.tail());
    worker.signal(Signal::SIGTERM)?;
    let status = worker.end(PATIENCE)?;
    ensure!(status.success(), "{status}");
    Ok(())
}

/// CTRL-01, REPORT-14: a worker and a caller that come over HTTP carry on at another gateway.
#[test]
fn a_gateway_that_dies_costs_no_step() -> Result<()> {
    on_cluster(Plan { workers: 0, ..Plan::default() }, |cluster| {
        let (mut first, one) = gateway(cluster, "g1", &[])?;
        let (_second, other) = gateway(cluster, "g2", &[])?;
        run_through(cluster, &both(one, other), || first.kill())
    })
}

/// REPORT-14: a gateway that lives on, and that its worker does not reach any more, takes no Step away from it.
#[test]
fn a_gateway_that_nobody_reaches_costs_no_step() -> Result<()> {
    on_cluster(Plan { workers: 0, ..Plan::default() }, |cluster| {
        let (first, one) = gateway(cluster, "g1", &[])?;
        let (_second, other) = gateway(cluster, "g2", &[])?;
        let way = Proxy::before(one)?;
        run_through(cluster, &both(way.port, other), || {
            drop(way);
            Ok(())
        })?;
        ensure!(first.has_said("joined elsewhere") == 1, "{}", first.tail());
        Ok(())
    })
}

/// The Step of a line that it has left.
fn step_of(line: &str) -> Option<String> {
    Some(line.split('.').nth(1)?.to_owned())
}

/// LEASE-05: a gateway that stands still is left in time, so that the Steps in hand go on under their leases.
#[test]
fn a_gateway_that_stands_still_is_left() -> Result<()> {
    on_cluster(Plan { workers: 0, lease_ms: 30_000, ..Plan::default() }, |cluster| {
        let (first, one) = gateway(cluster, "g1", &[])?;
        let (_second, other) = gateway(cluster, "g2", &[])?;
        let worker = worker(cluster, &both(one, other))?;
        let client = cluster.client("c")?;
        client.create(&task("stands", &[exec("long", &[], "sleep 20")]))?;
        wait_runs(cluster, 1)?;
        first.pause()?;
        let done = wait_ended(&client, "stands").and_then(|_| {
            let claims = client.log("stands", PATIENCE)?.claims("long").len();
            ensure!(claims == 1, "{claims} attempts");
            Ok(())
        });
        first.resume()?;
        done.with_context(|| worker.tail())
    })
}
