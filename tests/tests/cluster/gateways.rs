//! Gateways that die, with callers and workers that reach the cluster through them alone.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;
use tenure_tests::binary::{Running, tenure};
use tenure_tests::cluster::process::Process;
use tenure_tests::cluster::servers::free_port;
use tenure_tests::cluster::tasks::{exec, task};
use tenure_tests::cluster::{Cluster, PATIENCE, Plan, on_cluster, until};

use crate::common::{wait_ended, wait_runs};

/// How many Steps run at a time.
const CONCURRENCY: usize = 4;

/// A gateway to the cluster, and its address.
fn gateway(cluster: &Cluster, name: &str) -> Result<(Process, String)> {
    let address = format!("127.0.0.1:{}", free_port());
    let mut command = Command::new(tenure()?);
    command.args(["gateway", "--nats", &cluster.url(), "--http", &address]);
    let process = Process::start(name, cluster.dir(), command)?;
    until("the gateway listens", PATIENCE, || Ok(process.has_said("listens at") > 0))?;
    Ok((process, format!("http://{address}")))
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

/// CTRL-01, REPORT-14: a worker and a caller that come over HTTP carry on at another gateway. No Step is lost, and
/// none runs twice, as the worker itself lives on.
#[test]
fn a_gateway_that_dies_costs_no_step() -> Result<()> {
    const STEPS: usize = 40;
    on_cluster(Plan { workers: 0, ..Plan::default() }, |cluster| {
        let (mut first, one) = gateway(cluster, "g1")?;
        let (_second, other) = gateway(cluster, "g2")?;
        let both = format!("{one},{other}");
        let mut worker = worker(cluster, &both)?;
        let done = (|| {
            let client = cluster.client("c")?;
            let ids: Vec<String> = (0..STEPS).map(|number| format!("s{number}")).collect();
            let steps: Vec<_> = ids.iter().map(|id| exec(id, &[], "sleep 0.3")).collect();
            client.create(&task("through", &steps))?;
            let waits = waiting(cluster, &both, "through")?;
            wait_runs(cluster, 2 * CONCURRENCY)?;
            first.kill()?;
            wait_ended(&client, "through")?;
            let told = waits.end(PATIENCE)?;
            ensure!(told.status.success(), "{told:?}");

            let completed = client.log("through", PATIENCE)?.events("task_step_completed");
            ensure!(completed.len() == STEPS, "{} completions", completed.len());
            let mut ran: Vec<_> =
                cluster.traced().iter().filter_map(|line| step_of(line)).collect();
            ran.sort_unstable();
            let mut all = ids.clone();
            all.sort_unstable();
            ensure!(ran == all, "each step runs once: {ran:?}");
            worker.signal(Signal::SIGTERM)?;
            let status = worker.end(PATIENCE)?;
            ensure!(status.success(), "{status}");
            Ok(())
        })();
        if done.is_err() {
            println!("{}", worker.tail());
        }
        done
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
        let (first, one) = gateway(cluster, "g1")?;
        let (_second, other) = gateway(cluster, "g2")?;
        let worker = worker(cluster, &format!("{one},{other}"))?;
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
