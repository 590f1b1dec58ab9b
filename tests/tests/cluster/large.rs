//! A Task as large as one may be.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rmpv::Value;
use serde_json::json;
use tenure_tests::binary::{Running, tenure};
use tenure_tests::cluster::client::{Client, wait};
use tenure_tests::cluster::message::{field, list, number, text};
use tenure_tests::cluster::{Cluster, PATIENCE, POOL, Plan, until};

/// How long so many Steps may take in a debug build, on two slow cores beside other tests.
const LONG: Duration = Duration::from_secs(300);

/// Steps that a Task may have.
const STEPS: u64 = 100_000;

/// Steps that are seen to run. All of them would take minutes.
const RUN: u64 = 2_000;

/// Mechanisms 10: a file of so many Steps goes to the cluster in parts, as a draft and its patches; whoever
/// hands it in does nothing else than with any other.
#[test]
fn a_file_of_100_000_steps_is_handed_in_as_any_other() -> Result<()> {
    let mut cluster = Cluster::start(Plan { workers: 0, concurrency: 64, ..Plan::default() })?;
    let done = hand_in(&mut cluster);
    if done.is_err() {
        cluster.print_tails();
    }
    done
}

fn hand_in(cluster: &mut Cluster) -> Result<()> {
    let file = cluster.dir().join("large.yaml");
    let steps = format!("steps: {{w: {{repeat: {STEPS}, noop: true}}}}");
    std::fs::write(&file, format!("task_id: large\ntitle: large\n{steps}\n"))?;
    let mut submit = Command::new(tenure()?);
    submit.arg("submit").arg(&file).args(["--nats", &cluster.url(), "-o", "json"]);
    let begun = Instant::now();
    let ended = Running::start(&mut submit)?.end(LONG)?;
    println!("{STEPS} steps handed in within {:?}", begun.elapsed());
    ensure!(ended.status.success(), "{ended:?}");

    let client = cluster.client("c")?;
    let (status, counts) = look(&client)?;
    ensure!(status != "draft" && sum(&counts) == STEPS, "{status}: {counts}");
    cluster.add_worker(POOL, &cluster.url())?;
    let begun = Instant::now();
    until("many of the steps have run", LONG, || {
        std::thread::sleep(Duration::from_millis(200)); // A look at so many Steps takes a while.
        let (_, counts) = look(&client)?;
        ensure!(sum(&counts) == STEPS, "{counts}");
        Ok(number(&counts, "completed").unwrap_or_default() >= RUN)
    })?;
    println!("{RUN} of them had run after {:?}", begun.elapsed());
    Ok(())
}

/// How the Task stands: its native status, and how many of its Steps are in which.
fn look(client: &Client) -> Result<(String, Value)> {
    let body = json!({"v": 1, "operation": "task_list", "input": {}});
    let page = wait(client.ask(&body, client.partition_of("large"), PATIENCE))?;
    let [task] = list(&page, "tasks") else { bail!("one task should be there: {page}") };
    let status = text(task, "native_status").context("no status")?.to_owned();
    Ok((status, field(task, "counts").context("no counts")?.clone()))
}

fn sum(counts: &Value) -> u64 {
    let all = counts.as_map().map(Vec::as_slice).unwrap_or_default();
    all.iter().filter_map(|(_, count)| count.as_u64()).sum()
}
