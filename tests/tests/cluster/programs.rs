//! The programs that users begin with: a worker and an orchestrator, written on the SDK.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;
use serde_json::{Value as Json, json};
use tenure_tests::binary::Running;
use tenure_tests::cluster::client::Client;
use tenure_tests::cluster::process::Process;
use tenure_tests::cluster::tasks::task;
use tenure_tests::cluster::{Cluster, PATIENCE, Plan, on_cluster, until};

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

/// What becomes of the Steps of the example's handlers: how each ends, and with which code.
const ENDS: [(&str, &str, &str); 11] = [
    ("measure", "completed", ""),
    ("compare", "completed", ""),
    ("greet", "completed", ""),
    ("flaky", "failed", "no_answer"),
    ("flaky", "completed", ""),
    ("read", "failed", "unhandled_exception"),
    ("stumble", "failed", "unhandled_exception"),
    ("forget", "failed", "worker_finished_without_terminal_step_status"),
    ("refuse", "failed", "rejected"),
    ("choose", "blocked", "input_required"),
    ("enter", "blocked", "auth_required"),
];

/// Gives each handler a Step. One works until the Task is cancelled, and keeps it from its end.
fn every_handler_ends_as_it_says(client: &Client) -> Result<()> {
    let mut names: Vec<&str> = ENDS.iter().map(|(name, ..)| *name).collect();
    names.dedup();
    let step = |name: &str, is_required: bool| {
        json!({"step_id": name, "title": name, "summary": "", "handler": name,
               "depends_on_step_ids": [], "required": is_required})
    };
    let mut steps: Vec<Json> = names.into_iter().map(|name| step(name, false)).collect();
    steps.push(step("watch", true));
    client.create(&task("endings", &steps))?;
    until("every step has ended as it should", PATIENCE, || {
        let log = client.log("endings", PATIENCE)?;
        let has_ended = |(step, end, code): &(&str, &str, &str)| {
            log.events(&format!("task_step_{end}")).iter().any(|event| {
                let said = event["payload"]["reason"]["code"].as_str().unwrap_or_default();
                event["step_id"] == *step && said == *code
            })
        };
        Ok(!log.claims("watch").is_empty() && ENDS.iter().all(has_ended))
    })?;
    client.cancel("endings")?;
    until("it ends", PATIENCE, || Ok(client.log("endings", PATIENCE)?.has_ended())).map(|_| ())
}

/// CTRL-01, CTX-01 to CTX-06, CTX-12: one program steers what another one works on.
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
        every_handler_ends_as_it_says(&cluster.client("c")?)?;
        worker.signal(Signal::SIGINT)?;
        let left = worker.end(PATIENCE)?;
        ensure!(left.success(), "{left}");
        Ok(())
    })
}
