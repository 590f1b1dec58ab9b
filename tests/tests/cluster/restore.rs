//! A cluster is lost, and made again from its backup.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use nix::sys::signal::Signal;
use tenure_tests::binary::{Ended, Running, tenure};
use tenure_tests::cluster::client::Client;
use tenure_tests::cluster::tasks::{exec, noop, task};
use tenure_tests::cluster::{Cluster, PATIENCE, Plan, on_cluster, redis};

use crate::common::{wait_claims, wait_ended, wait_runs};

/// How long a node may take to stop.
const STOP: Duration = Duration::from_secs(15);

/// Tasks that have ended before the backup.
const ENDED: usize = 12;

/// `docs/operations.md`, Restore: the store is new, and Redis is the old one, which has seen owners that were
/// further on (mechanisms 15). In the order that is written there everything is as it was, and what was at
/// work goes on.
#[test]
fn a_cluster_is_restored_in_the_order_that_is_documented() -> Result<()> {
    on_cluster(Plan { schedulers: 1, ..Plan::default() }, |cluster| {
        let client = cluster.client("c")?;
        // What it reads is not held against what is read later: lines name the owner that has written them.
        let reader = Client::connect(&cluster.url(), "r", &Arc::default())?;
        for number in 0..ENDED {
            let id = format!("ended-{number}");
            client.create(&task(&id, &[noop("a", &[])]))?;
            wait_ended(&reader, &id)?;
        }
        // The next owners are known by places in the log that a new store does not reach for long.
        stop_schedulers(cluster)?;
        start_schedulers(cluster)?;
        let go = cluster.dir().join("go");
        let waits = format!("until [ -e {} ]; do sleep 0.05; done", go.display());
        client.create(&task("live", &[exec("a", &[], &waits), noop("b", &["a"])]))?;
        wait_claims(&reader, "live", 1)?;
        wait_runs(cluster, 1)?;
        tenure_wal(cluster, &["export", "--all", "--to", "backup"])?;

        stop_schedulers(cluster)?;
        empty_store(cluster)?;
        delete_keys(cluster.redis.port)?;
        start_schedulers(cluster)?;
        let told = tenure_wal(cluster, &["import", "backup", "--all", "-o", "json"])?;
        let told: serde_json::Value = serde_json::from_str(&told.stdout)?;
        let brought = told["tasks"].as_array().map_or(0, Vec::len);
        ensure!(brought == ENDED + 1 && told["failed"].is_null(), "{told}");

        std::fs::write(&go, "")?;
        goes_on(&client)
    })
}

/// The old Task and a new one come to their ends.
fn goes_on(client: &Client) -> Result<()> {
    wait_ended(client, "live")?;
    client.create(&task("new", &[noop("a", &[])]))?;
    wait_ended(client, "new").map(|_| ())
}

fn tenure_wal(cluster: &Cluster, args: &[&str]) -> Result<Ended> {
    let mut command = Command::new(tenure()?);
    command.arg("wal").args(args).args(["--nats", &cluster.url()]).current_dir(cluster.dir());
    let ended = Running::start(&mut command)?.end(PATIENCE)?;
    ensure!(ended.status.success(), "{args:?}: {ended:?}");
    Ok(ended)
}

fn stop_schedulers(cluster: &mut Cluster) -> Result<()> {
    for node in &mut cluster.schedulers {
        node.signal(Signal::SIGTERM)?;
        let status = node.end(STOP)?;
        ensure!(status.success(), "{status}");
    }
    Ok(())
}

fn start_schedulers(cluster: &mut Cluster) -> Result<()> {
    cluster.members.forget();
    cluster.schedulers.iter_mut().try_for_each(|node| node.restart())?;
    cluster.wait_owned()
}

/// The disk of NATS is lost.
fn empty_store(cluster: &mut Cluster) -> Result<()> {
    cluster.nats.process.kill()?;
    let store: &Path = &cluster.dir().join("js");
    ensure!(store.is_dir(), "the store is elsewhere");
    std::fs::remove_dir_all(store)?;
    cluster.nats.restart()
}

/// `redis-cli --scan --pattern 'tenure:*' | xargs redis-cli del`
fn delete_keys(port: u16) -> Result<()> {
    let answer = redis::command(port, &["KEYS", "tenure:*"])?;
    let keys: Vec<&str> = answer.split("\r\n").filter(|line| line.starts_with("tenure:")).collect();
    ensure!(keys.iter().any(|key| key.ends_with(":epoch")), "{answer:?}");
    redis::command(port, &[&["DEL"], &keys[..]].concat()).map(|_| ())
}
