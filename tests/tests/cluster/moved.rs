//! A live Task is brought to another cluster, and goes on there.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value as Json;
use tenure_tests::binary::{Running, tenure};
use tenure_tests::cluster::client::Log;
use tenure_tests::cluster::records::Record;
use tenure_tests::cluster::tasks::{exec, noop, task};
use tenure_tests::cluster::{Cluster, PATIENCE, Plan, on_cluster, until};

use crate::common::{wait_ended, wait_runs};

/// A cluster that soon is no more: a Task has got half way there, and its log is written out. Answers
/// what is known of the Task.
fn leave(out: &str) -> Result<Record> {
    let cluster = Cluster::start(Plan { schedulers: 1, workers: 1, ..Plan::default() })?;
    let client = cluster.client("c")?;
    // Only the first Attempt takes long.
    let held = exec("b", &["a"], "[ $TENURE_ATTEMPT != 1 ] || sleep 120");
    client.create(&task("moved", &[exec("a", &[], "true"), held, noop("c", &["b"])]))?;
    wait_runs(&cluster, 2)?;
    until("the second step is held", PATIENCE, || {
        Ok(client.log("moved", PATIENCE)?.held_by("w0") == ["b"])
    })?;
    wal(&cluster, &["export", "moved", "--to", out])?;
    let file = Path::new(out).join("tasks/default/moved.wal.jsonl");
    cluster.records.read("moved", &std::fs::read(file)?)?;
    cluster.records.by_task().remove("moved").context("no record of it")
}

fn wal(cluster: &Cluster, args: &[&str]) -> Result<()> {
    let mut command = Command::new(tenure()?);
    command.arg("wal").args(args).args(["--nats", &cluster.url()]);
    let ended = Running::start(&mut command)?.end(PATIENCE)?;
    ensure!(ended.status.success(), "{args:?}: {ended:?}");
    Ok(())
}

/// Its events, without who has written them down and the checksum that follows from that.
fn events(lines: &[u8]) -> Vec<Json> {
    let mut events = Log { lines: lines.to_vec(), ..Log::default() }.events("");
    for event in events.iter_mut().filter_map(Json::as_object_mut) {
        event.remove("epoch");
        event.remove("crc");
    }
    events
}

#[test]
fn a_live_task_goes_on_in_the_cluster_that_it_is_brought_to() -> Result<()> {
    let out = tempfile::tempdir()?;
    let out = out.path().to_str().context("a path")?;
    let known = leave(out)?;
    // Another number of partitions: it lies elsewhere than it did.
    on_cluster(Plan { partitions: 4, ..Plan::default() }, |cluster| {
        wal(cluster, &["import", out, "moved"])?;
        cluster.records.created("moved", &known.events);
        let client = cluster.client("c")?;
        let took = wait_ended(&client, "moved")?;
        println!("a task ended {took:?} after it was brought here");
        let log = client.log("moved", PATIENCE)?;
        let (before, now) = (events(&known.copy), events(&log.lines));
        ensure!(now.len() > before.len() && now.starts_with(&before), "{now:#?}");
        ensure!(log.claims("a").len() == 1, "what was done is done again: {now:#?}");
        ensure!(log.claims("b").len() >= 2 && log.claims("c").len() == 1, "{now:#?}");
        Ok(())
    })
}
