//! Workers are killed, held up, and told to leave.

use std::time::Duration;

use anyhow::{Result, ensure};
use nix::sys::signal::Signal;
use tenure_tests::cluster::tasks::{exec, noop, sleep, task};
use tenure_tests::cluster::{PATIENCE, POOL, Plan, on_cluster, until};

use crate::common::{
    check_claimed_once, now_ms, report_completed, wait_claimed_again, wait_ended, wait_runs,
};

#[test]
fn steps_of_a_killed_worker_go_to_another_within_a_lease_and_two_seconds() -> Result<()> {
    let plan = Plan { concurrency: 8, ..Plan::default() };
    on_cluster(plan.clone(), |cluster| {
        let client = cluster.client("c")?;
        let mut steps: Vec<_> = (0..12).map(|n| exec(&format!("s{n}"), &[], "sleep 2.5")).collect();
        steps.push(noop("end", &["s0", "s5", "s11"]));
        client.create(&task("killed", &steps))?;
        wait_runs(cluster, 12)?;
        let held = client.log("killed", PATIENCE)?.held_by("w0");
        ensure!(!held.is_empty(), "the other worker has everything");
        let killed = now_ms()?;
        cluster.workers[0].kill()?;
        let after = wait_claimed_again(&client, "killed", &held, killed)?;
        println!("{} steps of a killed worker claimed again after {after} ms", held.len());
        ensure!(after <= i64::try_from(plan.lease_ms)? + 2_000, "after {after} ms");
        wait_ended(&client, "killed").map(|_| ())
    })
}

#[test]
fn a_late_result_of_a_paused_worker_is_refused() -> Result<()> {
    let plan = Plan { workers: 1, ..Plan::default() };
    on_cluster(plan, |cluster| {
        let client = cluster.client("c")?;
        client.create(&task("paused", &[exec("a", &[], "sleep 1"), sleep("b", &["a"], 3_000)]))?;
        wait_runs(cluster, 1)?;
        let first = client.log("paused", PATIENCE)?.claims("a").remove(0);
        cluster.workers[0].pause()?;
        let paused = now_ms()?;
        cluster.add_worker(POOL, &cluster.url())?;
        let after = wait_claimed_again(&client, "paused", &["a".into()], paused)?;
        println!("the step of a paused worker claimed again after {after} ms");
        // While the other is at work, and once it has completed.
        let refused = report_completed(&client, "paused", &first)?;
        ensure!(refused.as_deref() == Some("stale_attempt"), "{refused:?}");
        cluster.workers[0].resume()?;
        until("the step completes", PATIENCE, || {
            Ok(!client.log("paused", PATIENCE)?.events("task_step_completed").is_empty())
        })?;
        let refused = report_completed(&client, "paused", &first)?;
        ensure!(refused.as_deref() == Some("stale_attempt"), "{refused:?}");
        wait_ended(&client, "paused")?;
        let log = client.log("paused", PATIENCE)?;
        let completed = log.events("task_step_completed");
        let by = &completed[0]["payload"]["attempt_id"];
        ensure!(completed.len() == 2, "{completed:#?}");
        ensure!(*by == log.claims("a")[1]["payload"]["attempt_id"], "{completed:#?}");
        // The worker that was held up is as good as any other.
        cluster.workers[1].kill()?;
        client.create(&task("after", &[exec("a", &[], "true")]))?;
        wait_ended(&client, "after").map(|_| ())
    })
}

#[test]
fn a_worker_that_is_told_to_stop_finishes_what_it_has() -> Result<()> {
    // With a lease that is longer than the test: nothing may wait for its end.
    on_cluster(Plan { lease_ms: 60_000, ..Plan::default() }, |cluster| {
        let client = cluster.client("c")?;
        let steps: Vec<_> = (0..24).map(|n| exec(&format!("s{n}"), &[], "sleep 0.5")).collect();
        client.create(&task("drained", &steps))?;
        wait_runs(cluster, 8)?;
        cluster.workers[0].signal(Signal::SIGTERM)?;
        let status = cluster.workers[0].end(Duration::from_secs(10))?;
        ensure!(status.success(), "{status}");
        let took = wait_ended(&client, "drained")?;
        println!("the other worker was done {took:?} after the first had left");
        let log = client.log("drained", PATIENCE)?;
        let lost = log.events("task_step_lease_expired");
        let is_lost = |event: &serde_json::Value| event["payload"]["reason"] != "released";
        ensure!(!lost.iter().any(is_lost), "{lost:#?}");
        if lost.is_empty() {
            check_claimed_once(&client, "drained")?;
        }
        Ok(())
    })
}
