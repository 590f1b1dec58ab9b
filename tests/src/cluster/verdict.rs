//! What must hold whatever was broken.
//!
//! Every Task ends; every log is sound by the checker of [`wal`], and begins as it did whenever it
//! was read before; what was acknowledged is in the logs; no worker has claimed in another pool than
//! its own; nothing ran more often than its log has Attempts, nor twice under one number.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::client::Client;
use super::records::Record;
use super::{Cluster, PATIENCE};
use crate::wal;

/// Waits until every Task has ended, and checks everything. Answers how many Tasks there are.
///
/// # Errors
/// What does not hold.
pub fn check(cluster: &Cluster) -> Result<usize> {
    let client = cluster.client("judge")?;
    let records = cluster.records.by_task();
    let listed: BTreeSet<String> = client.tasks(PATIENCE)?.into_iter().collect();
    let created = records.iter().filter(|(_, record)| record.is_created).map(|(id, _)| id);
    let all: BTreeSet<&String> = listed.iter().chain(created).collect();
    let mut attempts = BTreeMap::new();
    let deadline = Instant::now() + PATIENCE;
    for task in all {
        ensure!(listed.contains(task), "{task} was acknowledged and is in no list");
        let record = records.get(task).cloned().unwrap_or_default();
        let summary = check_one(cluster, &client, task, &record, deadline)
            .with_context(|| format!("task {task}"))?;
        attempts.insert(task.clone(), summary.attempts);
    }
    check_trace(cluster, &attempts)?;
    Ok(attempts.len())
}

fn check_one(
    cluster: &Cluster,
    client: &Client,
    task: &str,
    record: &Record,
    deadline: Instant,
) -> Result<wal::Summary> {
    let log = loop {
        let log = client.log(task, PATIENCE)?;
        if log.has_ended() {
            break log;
        }
        let text = || String::from_utf8_lossy(&log.lines).into_owned();
        ensure!(Instant::now() < deadline, "it is {} and does not end:\n{}", log.status, text());
        std::thread::sleep(Duration::from_millis(50));
    };
    std::fs::write(cluster.dir().join(format!("{task}.wal.jsonl")), &log.lines)?;
    let text = String::from_utf8_lossy(&log.lines);
    let summary = wal::check_bytes(&log.lines, false).with_context(|| text.clone().into_owned())?;
    ensure!(summary.events == log.version, "version {}, {} events", log.version, summary.events);
    ensure!(log.lines.starts_with(&record.copy), "it was longer before:\n{text}");
    for (worker, pools) in &summary.pools {
        let Some(own) = cluster.pool_of(worker) else { continue };
        ensure!(pools.iter().all(|pool| pool == own), "{worker} has claimed in {pools:?}");
    }
    for event in &record.events {
        let line = format!("\"event_id\":\"{event}\"");
        ensure!(text.contains(&line), "event {event} was acknowledged and is not there:\n{text}");
    }
    let ended = summary.ended.as_deref();
    let is_expected = match (record.is_cancelled, &record.ends[..]) {
        (true, _) => ended == Some("task_cancelled"),
        (false, []) => ended == Some("task_completed"),
        (false, ends) => ended.is_some_and(|ended| ends.contains(&ended)),
    };
    ensure!(is_expected, "{ended:?}\n{text}");
    Ok(summary)
}

fn check_trace(
    cluster: &Cluster,
    attempts: &BTreeMap<String, BTreeMap<String, u64>>,
) -> Result<()> {
    let mut seen = BTreeSet::new();
    for line in cluster.traced() {
        let parts: Vec<&str> = line.split('.').collect();
        let [task, step, attempt] = parts[..] else { continue };
        let claimed = attempts.get(task).and_then(|steps| steps.get(step)).copied();
        ensure!(attempt.parse::<u64>()? <= claimed.unwrap_or_default(), "{line}: no claim");
        ensure!(seen.insert(line.clone()), "{line} ran twice");
    }
    Ok(())
}
