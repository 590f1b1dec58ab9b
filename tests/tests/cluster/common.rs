//! What several tests need.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value as Json, json};
use tenure_tests::cluster::client::{Client, SESSION, wait};
use tenure_tests::cluster::message::{Answer, field, list, text};
use tenure_tests::cluster::probe::Seen;
use tenure_tests::cluster::{Cluster, PATIENCE, until};

/// Waits until so many Steps have begun to run.
pub(crate) fn wait_runs(cluster: &Cluster, count: usize) -> Result<()> {
    until("the steps run", PATIENCE, || Ok(cluster.traced().len() >= count)).map(|_| ())
}

/// Waits until so many claims of a Task's Steps are in its log.
pub(crate) fn wait_claims(client: &Client, task: &str, count: usize) -> Result<()> {
    until("the steps are claimed", PATIENCE, || {
        Ok(client.log(task, PATIENCE)?.events("task_step_claimed").len() >= count)
    })
    .map(|_| ())
}

/// Waits until a Task has ended, and answers how long that took.
pub(crate) fn wait_ended(client: &Client, task: &str) -> Result<Duration> {
    until(task, PATIENCE, || Ok(client.log(task, PATIENCE)?.has_ended()))
}

/// The clock of the logs.
pub(crate) fn now_ms() -> Result<i64> {
    Ok(i64::try_from(std::time::UNIX_EPOCH.elapsed()?.as_millis())?)
}

/// Waits until each of these Steps is claimed once more than so often. Answers when the last of
/// those claims was made, in milliseconds after `since`.
pub(crate) fn wait_claimed_again(
    client: &Client,
    task: &str,
    steps: &[String],
    since: i64,
) -> Result<i64> {
    let mut last = 0;
    until("other workers have the steps", PATIENCE, || {
        let log = client.log(task, PATIENCE)?;
        let again: Vec<i64> = steps
            .iter()
            .filter_map(|step| log.claims(step).get(1)?["created_at"].as_i64())
            .collect();
        last = again.iter().copied().max().unwrap_or_default() - since;
        Ok(again.len() == steps.len())
    })?;
    Ok(last)
}

/// How often each Step was claimed.
pub(crate) fn attempts(client: &Client, task: &str) -> Result<Vec<(String, usize)>> {
    let log = client.log(task, PATIENCE)?;
    let mut all = Vec::new();
    for claim in log.events("task_step_claimed") {
        let step = claim["step_id"].as_str().unwrap_or_default().to_owned();
        if !all.iter().any(|(known, _)| *known == step) {
            let count = log.claims(&step).len();
            all.push((step, count));
        }
    }
    Ok(all)
}

/// Every Step of a Task was claimed once, but for those that a worker gave back before they began: it had
/// taken more than it could run.
pub(crate) fn check_claimed_once(client: &Client, task: &str) -> Result<()> {
    let why = client.log(task, PATIENCE)?.events("task_step_lease_expired");
    let given_back = |step: &str| {
        let of_it = why.iter().filter(|event| event["step_id"] == step);
        of_it.filter(|event| event["payload"]["reason"] == "released").count()
    };
    let all = attempts(client, task)?.into_iter();
    let again: Vec<_> = all.filter(|(step, n)| *n != 1 + given_back(step)).collect();
    ensure!(again.is_empty(), "claimed more than once: {again:?}\n{why:#?}");
    Ok(())
}

/// Says for a worker that it has completed the Attempt of this claim, and answers the code of the
/// refusal, or none if it is accepted.
pub(crate) fn report_completed(
    client: &Client,
    task: &str,
    claim: &Json,
) -> Result<Option<String>> {
    let payload = &claim["payload"];
    let worker = payload["worker_id"].as_str().context("no worker_id")?;
    let pool = payload["worker_pool_id"].as_str().context("no worker_pool_id")?;
    let partition = client.partition_of(task);
    let input = json!({
        "step_id": claim["step_id"], "attempt_id": payload["attempt_id"],
        "fencing_token": payload["fencing_token"], "status": "completed",
        "result_summary": "late",
    });
    let word = json!({"operation": "task_update_step", "input": input});
    let report = json!({
        "session_id": SESSION, "task_id": task, "run_id": payload["run_id"], "word": word,
    });
    let body = json!({"v": 1, "reports": [report]});
    let subject = format!("tenure.v1.worker.{pool}.{worker}.report.{partition}");
    let inbox = format!("_INBOX.worker.{worker}");
    match wait(client.ask_as(&inbox, subject, &body))? {
        Answer::Done(ok) => {
            let result = list(&ok, "results").first().context("no result")?;
            Ok(field(result, "error").and_then(|error| text(error, "code")).map(str::to_owned))
        }
        other => bail!("a report is answered by {other:?}"),
    }
}

/// For how long each of these partitions did not answer, while the others were left alone. Those have to
/// keep the ceiling, whatever was the matter: what all of them did not answer is taken off.
pub(crate) fn gaps(
    what: &str,
    seen: &[Seen],
    hit: &[u32],
    ceiling: Duration,
) -> Result<Vec<Duration>> {
    let is_hit = |seen: &&Seen| hit.contains(&seen.partition);
    let (hit, others): (Vec<&Seen>, Vec<&Seen>) = seen.iter().partition(is_hit);
    for seen in &others {
        let (partition, gap) = (seen.partition, seen.longest_gap(&[]));
        println!("{what}: partition {partition}, left alone: longest gap {gap:?}");
        ensure!(gap <= ceiling, "{what}: {partition} was left alone: {gap:?}, over {ceiling:?}");
    }
    let gap = |seen: &&Seen| {
        let (whole, own) = (seen.longest_gap(&[]), seen.longest_gap(&others));
        println!(
            "{what}: partition {}: longest gap {whole:?}, {own:?} of its own, of {} answers",
            seen.partition, seen.answered
        );
        own
    };
    Ok(hit.iter().map(gap).collect())
}

/// Holds what was measured several times against its bound. Half of it must keep the bound and all of
/// it the ceiling: on a machine with other work, or a slow one, a single measurement says as much of the
/// machine as of the nodes. The time in which nobody at all answered does not count here, and is held to
/// the ceiling where it is taken off ([`gaps`]).
pub(crate) fn check_bound(
    what: &str,
    mut measured: Vec<Duration>,
    bound: Duration,
    ceiling: Duration,
) -> Result<()> {
    measured.sort_unstable();
    println!("{what}: {measured:?}");
    let middle = measured.get(measured.len().saturating_sub(1) / 2);
    let (Some(middle), Some(worst)) = (middle, measured.last()) else {
        bail!("{what}: nothing was measured")
    };
    ensure!(*middle <= bound, "{what}: half of it must be within {bound:?}: {measured:?}");
    ensure!(*worst <= ceiling, "{what}: all of it must be within {ceiling:?}: {measured:?}");
    Ok(())
}

/// The partitions that a node owns.
pub(crate) fn owned_by(cluster: &Cluster, node: usize) -> Result<Vec<u32>> {
    let mut owned = Vec::new();
    for partition in 0..cluster.plan.partitions {
        if cluster.owner_of(partition)? == node {
            owned.push(partition);
        }
    }
    Ok(owned)
}
