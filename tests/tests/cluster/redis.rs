//! Redis forgets everything, or is away: it only says who is alive, so nothing may be lost, and
//! nothing be taken from workers that live.

use std::time::Duration;

use anyhow::{Result, ensure};
use tenure_tests::cluster::redis::command;
use tenure_tests::cluster::tasks::{exec, noop, task};
use tenure_tests::cluster::{PATIENCE, Plan, on_cluster};

use crate::common::{
    attempts, check_claimed_once, now_ms, wait_claimed_again, wait_ended, wait_runs,
};

/// LEASE-14, STORE-03: with all that Redis knew no fact of a Task is lost.
#[test]
fn a_worker_that_dies_right_after_redis_forgot_everything_is_noticed() -> Result<()> {
    let plan = Plan { concurrency: 8, ..Plan::default() };
    on_cluster(plan.clone(), |cluster| {
        let client = cluster.client("c")?;
        let steps: Vec<_> = (0..12).map(|n| exec(&format!("s{n}"), &[], "sleep 4")).collect();
        client.create(&task("flushed", &steps))?;
        wait_runs(cluster, 12)?;
        // Until a worker has renewed a lease once, it counts on a third of it. Partitions change hands when Redis is
        // emptied, and so short a lease may end on the way.
        std::thread::sleep(Duration::from_secs(1));
        let held = client.log("flushed", PATIENCE)?.held_by("w0");
        ensure!(!held.is_empty(), "the other worker has everything");
        command(cluster.redis.port, &["FLUSHALL"])?;
        cluster.workers[0].kill()?;
        let killed = now_ms()?;
        let after = wait_claimed_again(&client, "flushed", &held, killed)?;
        println!("after FLUSHALL, steps of a killed worker claimed again after {after} ms");
        ensure!(after <= 2 * i64::try_from(plan.lease_ms)? + 3_000, "after {after} ms");
        wait_ended(&client, "flushed")?;
        // Each is lost once; a grant that still goes to the dead worker is given back, and counts for
        // nothing.
        let lost = client.log("flushed", PATIENCE)?.events("task_step_lease_expired");
        for (step, count) in attempts(&client, "flushed")? {
            let of = lost.iter().filter(|event| event["step_id"] == *step);
            let ends: Vec<_> = of.map(|event| event["payload"]["reason"].clone()).collect();
            // Its scheduler saw that Redis was away, so the loss need not be the worker's fault.
            let is_lost =
                |reason: &&serde_json::Value| **reason == "lease_expired" || **reason == "outage";
            let expired = ends.iter().filter(is_lost).count();
            println!("{step}: {count} claims, {ends:?}");
            ensure!(expired == usize::from(held.contains(&step)), "{step}: {ends:?}, {held:?}");
            ensure!(count == ends.len() + 1, "{step}: {count} claims, {ends:?}");
        }
        Ok(())
    })
}

/// LEASE-14: nothing expires while the store is away, and no lease ends before its holder was heard again.
#[test]
fn steps_of_living_workers_go_on_while_redis_is_away() -> Result<()> {
    on_cluster(Plan::default(), |cluster| {
        let client = cluster.client("c")?;
        let steps: Vec<_> = (0..6).map(|n| exec(&format!("s{n}"), &[], "sleep 27")).collect();
        client.create(&task("through", &steps))?;
        wait_runs(cluster, 6)?;
        // Less than a lease, and more than six.
        for (number, down) in [1_500, 20_000].into_iter().enumerate() {
            cluster.redis.process.kill()?;
            let id = format!("meanwhile-{number}");
            client.create(&task(&id, &[noop("a", &[])]))?;
            std::thread::sleep(Duration::from_millis(down)); // This long it is away.
            cluster.redis.restart()?; // It remembers nothing.
            let took = wait_ended(&client, &id)?;
            println!(
                "redis away for {down} ms: a task made meanwhile ended {took:?} after it was back"
            );
        }
        wait_ended(&client, "through")?;
        check_claimed_once(&client, "through")?;
        // And whoever dies now is noticed again.
        client.create(&task(
            "last",
            &(0..6).map(|n| exec(&format!("s{n}"), &[], "sleep 2")).collect::<Vec<_>>(),
        ))?;
        wait_runs(cluster, 12)?;
        let held = client.log("last", PATIENCE)?.held_by("w0");
        cluster.workers[0].kill()?;
        let killed = now_ms()?;
        let after = wait_claimed_again(&client, "last", &held, killed)?;
        println!("{} steps of a killed worker claimed again after {after} ms", held.len());
        Ok(())
    })
}
