//! Scheduler nodes come and go as planned, under load.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use nix::sys::signal::Signal;
use tenure_tests::cluster::load::Load;
use tenure_tests::cluster::probe::Probe;
use tenure_tests::cluster::tasks::{exec, task};
use tenure_tests::cluster::{Plan, on_cluster};

use crate::common::{check_claimed_once, owned_by, print_gaps, wait_ended, wait_runs};

/// Longest time without service that is tolerated here: other tests run on the same processors. The
/// aim is 200 ms.
const GAP_MAX: Duration = Duration::from_millis(1_500);

#[test]
fn a_node_that_is_told_to_stop_hands_its_partitions_over() -> Result<()> {
    on_cluster(Plan { schedulers: 3, ..Plan::default() }, |cluster| {
        let client = cluster.client("c")?;
        let steps: Vec<_> = (0..4).map(|n| exec(&format!("s{n}"), &[], "sleep 4")).collect();
        client.create(&task("through", &steps))?;
        wait_runs(cluster, 4)?;
        let probe = Probe::start(&client)?;
        let load = Load::start(&client, Duration::from_millis(50));
        std::thread::sleep(Duration::from_secs(1)); // What is normal shows first.
        let leaver = cluster.owner_of(client.partition_of("through"))?;
        let owned = owned_by(cluster, leaver)?;
        let begun = Instant::now();
        cluster.schedulers[leaver].signal(Signal::SIGTERM)?;
        let status = cluster.schedulers[leaver].end(Duration::from_secs(15))?;
        println!("a node with partitions {owned:?} left within {:?}", begun.elapsed());
        ensure!(status.success(), "{status}");
        cluster.schedulers.remove(leaver);
        cluster.wait_owned()?;
        load.finish()?;
        println!("planned stop: {} requests unanswered", cluster.records.silences());
        let longest = print_gaps("planned stop", &probe.finish()?, &owned);
        ensure!(longest < GAP_MAX, "{longest:?} without service");
        wait_ended(&client, "through")?;
        check_claimed_once(&client, "through")
    })
}

#[test]
fn a_node_that_joins_is_handed_its_share() -> Result<()> {
    // So many that the first node is hardly the best one for each of them.
    on_cluster(Plan { schedulers: 1, partitions: 8, ..Plan::default() }, |cluster| {
        let client = cluster.client("c")?;
        let probe = Probe::start(&client)?;
        let load = Load::start(&client, Duration::from_millis(50));
        for _ in 0..2 {
            cluster.add_scheduler()?;
        }
        let all: Vec<u32> = (0..cluster.plan.partitions).collect();
        let begun = Instant::now();
        while cluster.wait_owned().is_ok() && owned_by(cluster, 0).is_ok_and(|owned| owned == all) {
            ensure!(begun.elapsed() < Duration::from_secs(20), "nothing is handed over");
            std::thread::sleep(Duration::from_millis(50));
        }
        std::thread::sleep(Duration::from_secs(3)); // Until all are where they should be.
        cluster.wait_owned()?;
        load.finish()?;
        println!("join: {} requests unanswered", cluster.records.silences());
        let longest = print_gaps("join", &probe.finish()?, &all);
        ensure!(longest < GAP_MAX, "{longest:?} without service");
        Ok(())
    })
}
