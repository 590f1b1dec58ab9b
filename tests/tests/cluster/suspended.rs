//! A worker that fails everything does not eat the queue.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value as Json, json};
use tenure_tests::binary::{Running, tenure};
use tenure_tests::cluster::process::Process;
use tenure_tests::cluster::tasks::{exec, task};
use tenure_tests::cluster::{Cluster, PATIENCE, POOL, Plan, audit, on_cluster, until};

use crate::common::wait_ended;

/// The most that it is given: ten Steps, what it has room for beside the last, and what it fails before the other
/// has completed three. Without the rule it is given some 150.
const GIVEN_MAX: usize = 60;

/// DISP-19: one whose commands all fail is given little, whoever lists workers or examines the cluster sees why,
/// and another that is started in its place is given Steps at once.
#[test]
fn a_worker_that_fails_everything_is_given_little() -> Result<()> {
    let plan = Plan { schedulers: 1, workers: 1, concurrency: 2, ..Plan::default() };
    on_cluster(plan, |cluster| {
        let client = cluster.client("c")?;
        let (url, trace) = (cluster.url(), cluster.trace());
        let start = |name: &str, is_sick: &str| {
            let mut command = Command::new(tenure()?);
            command.args(["worker", "--name", name, "--pool", POOL, "--nats", &url]);
            command.args(["--concurrency", "2", "--files", &format!("files-{name}")]);
            command.env("TRACE", &trace).env("SICK", is_sick);
            Process::start(name, cluster.dir(), command)
        };
        let mut sick = start("sick", "yes")?;
        wait_workers(cluster, &["sick", "w0"])?;
        let of = |id: &str| {
            let run = "[ -z \"$SICK\" ] && sleep 0.1";
            let steps: Vec<_> = (0..60).map(|n| exec(&format!("s{n}"), &[], run)).collect();
            let mut input = task(id, &steps);
            input["retry_policy"]["max_attempts"] = json!(20);
            input
        };
        client.create(&of("first"))?;
        wait_ended(&client, "first")?;
        let given_to = |id: &str, name: &str| -> Result<usize> {
            let claims = client.log(id, PATIENCE)?.events("task_step_claimed");
            let worker = |claim: &Json| claim["payload"]["worker_id"].as_str().map(str::to_owned);
            let names = claims.iter().filter_map(worker);
            Ok(names.filter(|id| id.split('.').next() == Some(name)).count())
        };
        let given = given_to("first", "sick")?;
        println!("the worker that fails everything was given {given} steps");
        ensure!((10..=GIVEN_MAX).contains(&given), "{given}");

        let workers = listed(cluster)?;
        let suspended: Vec<_> = workers.iter().filter(|it| !it["suspended"].is_null()).collect();
        ensure!(suspended.len() == 1 && suspended[0]["principal"] == "sick", "{workers:?}");
        ensure!(suspended[0]["suspended"]["handler"] == "exec", "{suspended:?}");
        let findings = audit::findings(cluster)?;
        let finding = findings.iter().find(|it| it["check"] == "workers.suspended");
        let found = finding.and_then(|it| it["found"].as_str()).context("doctor is silent")?;
        ensure!(found.contains("sick.") && found.contains("fails exec"), "{found}");

        sick.kill()?;
        let mended = start("mended", "")?;
        wait_workers(cluster, &["mended", "w0"])?;
        client.create(&of("second"))?;
        wait_ended(&client, "second")?;
        ensure!(given_to("second", "mended")? > 0, "a new worker is given nothing");
        drop(mended);
        Ok(())
    })
}

/// The workers that the node knows of.
fn listed(cluster: &Cluster) -> Result<Vec<Json>> {
    let mut list = Command::new(tenure()?);
    list.args(["worker", "list", "-o", "json", "--nats", &cluster.url()]);
    let listed = Running::start(list.current_dir(cluster.dir()))?.end(PATIENCE)?;
    let shown: Json = serde_json::from_str(&listed.stdout)?;
    Ok(shown["workers"].as_array().context("no workers")?.clone())
}

/// Waits until these have a link.
fn wait_workers(cluster: &Cluster, names: &[&str]) -> Result<()> {
    let are_there = until("the workers are there", PATIENCE, || {
        let workers = listed(cluster)?;
        Ok(names.iter().all(|name| workers.iter().any(|worker| worker["principal"] == *name)))
    });
    are_there.map(drop)
}
