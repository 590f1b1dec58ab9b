//! Messages come twice, late, and behind those that were said after them.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use tenure_tests::cluster::client::{Client, wait};
use tenure_tests::cluster::load::Load;
use tenure_tests::cluster::mischief::Done;
use tenure_tests::cluster::tasks::{noop, sleep, task};
use tenure_tests::cluster::{PATIENCE, POOL, Plan, on_cluster};

/// What draws which messages come again, and when.
const SEED: u64 = 20_260_117;

/// Tasks that there are to be at least.
const TASKS: usize = 80;

/// After this long a Step is given out anew: whoever had it may have given it back, and a Run claims
/// once.
const GIVEN_AGAIN: Duration = Duration::from_secs(10);

/// REPORT-16, CLAIM-08, IDEM-01, IDEM-04: whatever is said again, late, or out of its order, a Step
/// has one Attempt at a time and completes once, and a command takes effect once.
#[test]
fn messages_that_come_twice_or_late_do_no_harm() -> Result<()> {
    // Of so many partitions no node has all, whatever the nodes are called.
    let plan = Plan { workers: 3, partitions: 16, mischief: Some(SEED), ..Plan::default() };
    on_cluster(plan, |cluster| {
        let client = cluster.client("c")?;
        let load = Load::start(&client, Duration::from_millis(100));
        let (begun, mut number, mut anew) = (Instant::now(), 0_usize, 0_usize);
        let done = loop {
            let done = cluster.mischief.as_ref().context("nobody makes mischief")?.done();
            let missing = missing(&done);
            if missing.is_empty() && cluster.records.acknowledged() >= TASKS {
                break done;
            }
            ensure!(begun.elapsed() < 3 * PATIENCE, "no mischief with {missing:?}: {done:#?}");
            anew += by_hand(&client, number)?;
            number += 1;
        };
        load.finish()?;
        println!("seed {SEED}: said again {:?}, held back {:?}", done.again, done.late);
        println!("{} of those were overtaken", done.overtaken);
        println!("{} tasks, {number} by hand", cluster.records.acknowledged());
        let dispatches = 2 * number + anew;
        println!("{anew} of {dispatches} dispatches were of a step that had been given out before");
        ensure!(anew <= (dispatches / 3).max(2), "{anew} of {dispatches} dispatches were anew");
        Ok(())
    })
}

/// What has not been said again, or not been late, so far.
fn missing(done: &Done) -> Vec<&'static str> {
    let again = [
        "report",
        "hb",
        "node",
        "query",
        "claim",
        "grant",
        "run",
        "answer",
        "answer to a client",
        "answer to a node",
        "question of a node",
        "hint",
        "task_create",
        "task_update",
        "append_task_progress",
        "submit_task",
        "task_cancel",
        "dispatch_worker",
    ];
    let mut missing = again.to_vec();
    missing.retain(|what| !done.again.contains_key(*what));
    let late = ["report", "hb", "grant", "task_create", "answer to a client", "hint"];
    missing.extend(late.into_iter().filter(|what| !done.late.contains_key(*what)));
    missing.extend((done.overtaken == 0).then_some("another order"));
    missing
}

/// Steers a Task of two Steps and with a child to its end, each Step given out in a scope of its own. Answers
/// how often one had to be given out anew.
fn by_hand(client: &Client, number: usize) -> Result<usize> {
    // Ids that begin with a number are of all partitions: every other child is of another node.
    let (id, child) = (&format!("{number}-hand"), format!("{number}-child"));
    let mut input = task(id, &[sleep("a", &[], 300), noop("b", &["a"])]);
    (input["dispatch"], input["completion"]) = (json!("manual"), json!("manual"));
    client.create(&input)?;
    // Nodes speak to each other of Tasks of one family.
    let mut child = task(&child, &[noop("a", &[])]);
    child["parent_task_id"] = json!(id);
    client.create(&child)?;
    let mut anew = 0;
    for step in ["a", "b"] {
        let dispatch = json!({"worker_pool_id": POOL, "allowed_step_ids": [step]});
        let (begun, mut given) = (Instant::now(), None::<Instant>);
        while !is_completed(client, id, step)? {
            ensure!(begun.elapsed() < 3 * PATIENCE, "{id}: nobody completes {step}");
            if given.is_none_or(|at| at.elapsed() > GIVEN_AGAIN) {
                wait(client.change(id, "dispatch_worker", &dispatch, PATIENCE))?;
                anew += usize::from(given.replace(Instant::now()).is_some());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    wait(client.change(id, "task_complete", &json!({}), PATIENCE))?;
    Ok(anew)
}

fn is_completed(client: &Client, task: &str, step: &str) -> Result<bool> {
    let completed = client.log(task, PATIENCE)?.events("task_step_completed");
    Ok(completed.iter().any(|event| event["step_id"] == step))
}
