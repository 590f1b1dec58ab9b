//! The log is full, or the disk that it lies on.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value as Json, json};
use tenure_tests::cluster::client::{Client, command, wait};
use tenure_tests::cluster::message::Answer;
use tenure_tests::cluster::tasks::{exec, noop, task};
use tenure_tests::cluster::{Cluster, PATIENCE, Plan, on_cluster};

use crate::common::{wait_ended, wait_runs};

/// Bytes of each stream of the log: some dozens of Tasks.
const ROOM: u64 = 400_000;

#[test]
fn what_a_full_log_cannot_take_is_refused_and_nothing_is_lost() -> Result<()> {
    on_cluster(Plan { max_bytes: Some(ROOM), ..Plan::default() }, |cluster| {
        let client = cluster.client("c")?;
        let steps: Vec<_> = (0..6).map(|n| exec(&format!("s{n}"), &[], "sleep 3")).collect();
        client.create(&task("through", &steps))?;
        wait_runs(cluster, 6)?;
        let refused = fill(cluster, &client)?;
        println!("full after {} tasks; codes {refused:?}", cluster.records.acknowledged());
        // What is there can be read.
        let some = cluster.records.by_task();
        let (known, _) = some.iter().find(|(_, record)| record.is_created).context("no task")?;
        client.log(known, Duration::from_secs(5))?;
        std::thread::sleep(Duration::from_secs(4)); // Longer than a lease, and than the steps.
        make_room(cluster, &client)?;
        client.create(&task("after", &[noop("a", &[])]))?;
        wait_ended(&client, "after")?;
        wait_ended(&client, "through").map(|_| ())
    })
}

/// Blocks of 512 bytes of each file: as many Tasks.
const BLOCKS: u64 = 800;

/// WAL-07, WAL-09: NATS does not acknowledge what it cannot write, and goes on only once it was started
/// again. What was acknowledged before is there; results that waited meanwhile are recorded.
#[test]
fn with_a_full_disk_nothing_is_lost_and_it_goes_on_once_nats_is_started_again() -> Result<()> {
    let plan = Plan { partitions: 2, file_blocks: Some(BLOCKS), ..Plan::default() };
    on_cluster(plan, |cluster| {
        let client = cluster.client("c")?;
        let steps: Vec<_> = (0..4).map(|n| exec(&format!("s{n}"), &[], "sleep 5")).collect();
        client.create(&task("through", &steps))?;
        wait_runs(cluster, 4)?;
        let refused = fill(cluster, &client)?;
        println!("full after {} tasks; codes {refused:?}", cluster.records.acknowledged());
        std::fs::write(cluster.dir().join("blocks"), "unlimited")?; // There is room.
        cluster.nats.process.kill()?;
        cluster.nats.restart()?;
        client.create(&task("after", &[noop("a", &[])]))?;
        wait_ended(&client, "after")?;
        wait_ended(&client, "through").map(|_| ())
    })
}

/// Makes Tasks until every partition refuses them. Answers the codes of the refusals.
fn fill(cluster: &Cluster, client: &Client) -> Result<Vec<String>> {
    let (begun, mut codes) = (Instant::now(), Vec::new());
    let mut refused = vec![0; cluster.plan.partitions as usize];
    let padding = "x".repeat(20_000);
    for number in 0.. {
        ensure!(begun.elapsed() < PATIENCE, "it never gets full: {refused:?}");
        let id = format!("fill-{number}");
        let partition = client.partition_of(&id);
        let place = partition as usize;
        if refused.iter().all(|&count| count >= 3) {
            break;
        }
        if refused[place] >= 3 {
            continue;
        }
        let mut input = task(&id, &[noop("a", &[])]);
        input["metadata"] = json!({"padding": padding});
        cluster.records.attempted(&id);
        let body = command("task_create", None, &input);
        match wait(client.request(&client.subject(partition), &body))? {
            Answer::Done(_) => cluster.records.created(&id, &[]),
            Answer::Refused(refusal) => {
                let is_right = ["storage_error", "unavailable"].contains(&refusal.code.as_str());
                ensure!(is_right && refusal.retryable, "{refusal}");
                refused[place] += 1;
                if !codes.contains(&refusal.code) {
                    codes.push(refusal.code);
                }
            }
            Answer::Silence | Answer::NoResponders => {
                refused[place] += 1;
                codes.push("nothing".into());
            }
        }
    }
    Ok(codes)
}

/// Takes the limit off every stream, as an operator would.
fn make_room(cluster: &Cluster, client: &Client) -> Result<()> {
    let ask = |subject: String, body: Json| -> Result<Json> {
        let answer = wait(client.nats().request(subject, body.to_string().into()))?;
        let answer: Json = serde_json::from_slice(&answer.payload)?;
        ensure!(answer["error"].is_null(), "{answer}");
        Ok(answer)
    };
    let names = ask("$JS.API.STREAM.NAMES".into(), json!({}))?;
    let names = names["streams"].as_array().cloned().unwrap_or_default();
    ensure!(names.len() >= cluster.plan.partitions as usize, "{names:?}");
    for name in names.iter().filter_map(Json::as_str) {
        let mut config = ask(format!("$JS.API.STREAM.INFO.{name}"), json!({}))?["config"].take();
        config["max_bytes"] = json!(-1);
        ask(format!("$JS.API.STREAM.UPDATE.{name}"), config)?;
    }
    Ok(())
}
