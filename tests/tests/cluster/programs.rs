//! The programs that users begin with: a worker and an orchestrator, written on the SDK.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;
use tenure_tests::binary::Running;
use tenure_tests::cluster::process::Process;
use tenure_tests::cluster::{Cluster, PATIENCE, Plan, on_cluster};

/// An example of the SDK, which is built with the tests of the workspace.
fn program(name: &str, cluster: &Cluster) -> Result<Command> {
    let tests = std::env::current_exe()?;
    let target = tests.parent().and_then(|deps| deps.parent()).context("a target directory")?;
    let path = target.join("examples").join(name);
    ensure!(path.is_file(), "{} is needed: cargo build --workspace --examples", path.display());
    let mut command = Command::new(path);
    command.env("TENURE_NATS_URL", cluster.url());
    Ok(command)
}

/// CTRL-01, CTX-12: one program steers what another one works on.
#[test]
fn the_examples_of_the_sdk_work_together() -> Result<()> {
    on_cluster(Plan { workers: 0, ..Plan::default() }, |cluster| {
        let mut worker = Process::start("lab", cluster.dir(), program("worker", cluster)?)?;
        let steered = Running::start(&mut program("orchestrator", cluster)?)?.end(PATIENCE)?;
        ensure!(steered.status.success(), "{steered:#?}");
        for line in
            ["choose: blocked", "choose: completed", "publish: failed", "archive: completed"]
        {
            ensure!(steered.stdout.contains(line), "{line} is missing: {steered:#?}");
        }
        ensure!(steered.stdout.ends_with("the last event: task.completed\n"), "{steered:#?}");
        worker.signal(Signal::SIGINT)?;
        let left = worker.end(PATIENCE)?;
        ensure!(left.success(), "{left}");
        Ok(())
    })
}
