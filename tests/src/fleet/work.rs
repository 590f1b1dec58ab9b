//! What the fleet is given, and how that is judged.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value as Json, json};

use super::LEASE_MS;
use super::workers::Fault;
use crate::cluster::PATIENCE;
use crate::cluster::callers::Callers;
use crate::cluster::client::{Client, Log};
use crate::cluster::tasks::{exec, noop, sleep, task};
use crate::random::Random;

/// Publishers at a time.
const CALLERS: u64 = 3;

/// How the ids of Tasks begin whose Steps do no harm.
const INNOCENT: &str = "innocent";

/// The worker that leaves every second Step alone.
const LEAVES_ALONE: &str = "lies";

/// What kills the worker that runs it: above the shell stands its guard, and above that the worker.
const KILLS: &str = "kill -9 $(cut -d ' ' -f 4 /proc/$PPID/stat)";

/// Begins to hand it in.
pub fn start(client: &Client, seed: u64) -> Callers {
    Callers::start(CALLERS, |caller| {
        let (client, mut random) = (client.clone(), Random::new(seed.wrapping_add(1 + caller.at)));
        async move {
            while let Some(number) = caller.next() {
                publish(&client, number, &mut random).await?;
                tokio::time::sleep(Duration::from_millis(200 + random.below(800))).await;
            }
            Ok(())
        }
    })
}

async fn publish(client: &Client, number: u64, random: &mut Random) -> Result<()> {
    let named = |kind: &str| format!("{kind}-{number}");
    let (id, steps, ends) = match number % 48 {
        // Its worker is gone before it can say anything.
        3 | 27 => (named("kills"), vec![exec("a", &[], KILLS)], "task_failed"),
        // Its worker says nothing for longer than a lease; there is one for these, and each takes it three.
        6 if number % 144 == 6 => {
            let mut step = sleep("a", &[], LEASE_MS + 1_000);
            step["handler"] = json!("block");
            (named("blocks"), vec![step], "task_failed")
        }
        // No worker has this handler.
        9 | 21 | 33 | 45 => {
            let mut step = noop("a", &[]);
            step["handler"] = json!("paint");
            (named("nobody"), vec![step], "task_cancelled")
        }
        _ => (named(INNOCENT), innocent(random), "task_completed"),
    };
    let mut input = task(&id, &steps);
    input["retry_policy"]["max_attempts"] = json!(20); // One of the workers fails everything.
    if ends == "task_failed" {
        input["retry_policy"]["max_lost"] = json!(3);
        // Else the late result of the last Attempt would complete the Step (REPORT-14).
        input["retry_policy"]["accept_late"] = json!(false);
    }
    client.ends(&id, &[ends]);
    client.make(&input, PATIENCE).await?;
    if ends == "task_cancelled" {
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        client.drop_task(&id, PATIENCE).await?;
    }
    Ok(())
}

/// One Step, some behind it, and one behind them: short ones, for which workers keep more than they can
/// run at a time, and longer ones.
fn innocent(random: &mut Random) -> Vec<Json> {
    let many: Vec<String> = (0..=2 + random.below(8)).map(|n| format!("m{n}")).collect();
    let names: Vec<&str> = many.iter().map(String::as_str).collect();
    let middle = names.iter().map(|id| match random.below(4) {
        0 => noop(id, &["first"]),
        1 => exec(id, &["first"], "true"),
        2 => exec(id, &["first"], "sleep 0.6"),
        _ => sleep(id, &["first"], random.below(900)),
    });
    let middle: Vec<Json> = middle.collect();
    [vec![noop("first", &[])], middle, vec![noop("last", &names)]].concat()
}

/// The most that the worker may be given that fails everything: by each of two nodes ten Steps and what it has
/// room for beside the last, twice if its link ends, and one each time that it is tried, after 30 s, 90 s, and so
/// on, in the end each ten minutes.
fn fails_max(lasts: Duration) -> u64 {
    60 + lasts.as_secs() / 200
}

/// Hardly any Step of a Task that does no harm has lost more than one Attempt through its neighbours, that is
/// with a worker to which nothing else happened meanwhile, and which does not leave Steps alone by itself; and
/// who fails everything was given little. Answers the figures.
///
/// # Errors
/// More than one of two hundred have, or it was given more.
pub fn judge(client: &Client, faults: &[Fault], lasts: Duration) -> Result<String> {
    let (mut steps, mut by_neighbours, mut by_faults) = (0, 0, 0);
    let (mut worst, mut failed) = (Vec::new(), 0);
    for id in client.tasks(PATIENCE)?.into_iter().filter(|id| id.starts_with(INNOCENT)) {
        let log = client.log(&id, PATIENCE)?;
        steps += log.events("task_step_completed").len();
        let is_by_it = |claim: &&Json| name_of(&claim["payload"]["worker_id"]) == "fails";
        failed += log.events("task_step_claimed").iter().filter(is_by_it).count();
        for (step, (neighbours, broken)) in lost_attempts(&log, faults)? {
            by_neighbours += neighbours;
            by_faults += broken;
            if neighbours > 1 {
                worst.push(format!("{step} of {id} lost {neighbours}"));
            }
        }
    }
    ensure!(worst.len() * 200 <= steps, "of {steps} these lost more than one Attempt: {worst:?}");
    ensure!(
        failed as u64 <= fails_max(lasts),
        "the worker that fails everything was given {failed} Steps"
    );
    Ok(format!(
        "the worker that fails everything was given {failed} steps; {steps} innocent steps lost {by_neighbours} \
         attempts through their neighbours, and {by_faults} with workers that were broken; more than one \
         through neighbours {}: {worst:?}",
        worst.len()
    ))
}

/// The name of a worker, without which boot of it.
fn name_of(worker_id: &Json) -> &str {
    worker_id.as_str().and_then(|id| id.split('.').next()).unwrap_or_default()
}

/// How many Attempts of each Step were lost with a worker that nothing had happened to, and with others.
fn lost_attempts(log: &Log, faults: &[Fault]) -> Result<BTreeMap<String, (usize, usize)>> {
    let claims = log.events("task_step_claimed");
    let mut found = BTreeMap::<_, (usize, usize)>::new();
    for event in log.events("task_step_lease_expired") {
        let reason = event["payload"]["reason"].as_str().unwrap_or_default();
        if reason == "released" {
            continue;
        }
        let attempt = &event["payload"]["attempt_id"];
        let claim = claims.iter().find(|claim| claim["payload"]["attempt_id"] == *attempt);
        let claim = claim.context("lost without a claim")?;
        let name = name_of(&claim["payload"]["worker_id"]);
        let at = |event: &Json| event["created_at"].as_i64().unwrap_or_default();
        let is_broken = faults.iter().any(|fault| {
            fault.worker == name && fault.from_ms <= at(&event) && fault.until_ms >= at(claim)
        });
        let step = event["step_id"].as_str().unwrap_or_default().to_owned();
        let counts = found.entry(step).or_default();
        if is_broken || name == LEAVES_ALONE { counts.1 += 1 } else { counts.0 += 1 }
    }
    Ok(found)
}
