//! Scheduler nodes come and go as planned, under load.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use nix::sys::signal::Signal;
use tenure_tests::cluster::client::Client;
use tenure_tests::cluster::load::Load;
use tenure_tests::cluster::probe::Probe;
use tenure_tests::cluster::tasks::{exec, task};
use tenure_tests::cluster::{Cluster, Plan, on_cluster};

use crate::common::{check_bound, check_claimed_once, gaps, owned_by, wait_claims, wait_ended};

/// How long a partition that changes hands as planned may be without service.
const GAP_MAX: Duration = Duration::from_millis(200);

/// And how long at the worst, on a machine that does other things.
const GAP_CEILING: Duration = Duration::from_millis(1_500);

/// Nodes that are told to stop, one after the other.
const STOPS: usize = 3;

/// OWN-02, OWN-06
#[test]
fn a_node_that_is_told_to_stop_hands_its_partitions_over() -> Result<()> {
    let plan = Plan { schedulers: STOPS + 1, partitions: 8, ..Plan::default() };
    on_cluster(plan, |cluster| {
        let client = cluster.client("c")?;
        let load = Load::start(&client, Duration::from_millis(50));
        let mut measured = Vec::new();
        for round in 0..STOPS {
            measured.extend(stop_one(cluster, &client, &format!("through-{round}"))?);
        }
        load.finish()?;
        println!("planned stop: {} requests unanswered", cluster.records.silences());
        check_bound("planned stop", measured, GAP_MAX, GAP_CEILING)
    })
}

/// Stops the node that has a Task, whose Steps are at work. Answers for how long each of its partitions
/// was without service.
fn stop_one(cluster: &mut Cluster, client: &Client, id: &str) -> Result<Vec<Duration>> {
    let steps: Vec<_> = (0..4).map(|n| exec(&format!("s{n}"), &[], "sleep 4")).collect();
    client.create(&task(id, &steps))?;
    wait_claims(client, id, steps.len())?;
    let probe = Probe::start(client)?;
    std::thread::sleep(Duration::from_secs(1)); // What is normal shows first.
    let leaver = cluster.owner_of(client.partition_of(id))?;
    let owned = owned_by(cluster, leaver)?;
    let begun = Instant::now();
    cluster.schedulers[leaver].signal(Signal::SIGTERM)?;
    let status = cluster.schedulers[leaver].end(Duration::from_secs(15))?;
    println!("a node with partitions {owned:?} left within {:?}", begun.elapsed());
    ensure!(status.success(), "{status}");
    cluster.schedulers.remove(leaver);
    cluster.wait_owned()?;
    let measured = gaps("planned stop", &probe.finish()?, &owned, GAP_CEILING)?;
    wait_ended(client, id)?;
    check_claimed_once(client, id)?;
    Ok(measured)
}

/// OWN-02, OWN-06
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
        let stayed = owned_by(cluster, 0)?;
        let moved: Vec<u32> = all.into_iter().filter(|one| !stayed.contains(one)).collect();
        let measured = gaps("join", &probe.finish()?, &moved, GAP_CEILING)?;
        check_bound("join", measured, GAP_MAX, GAP_CEILING)
    })
}
