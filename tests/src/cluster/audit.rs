//! What is left over, as `tenure doctor --audit` says.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value as Json;

use super::{Cluster, PATIENCE};
use crate::binary::{Running, tenure};

/// How long after the last end something may be left over: leases, and signals for workers that died, last
/// some seconds, and a node sees then that they are over.
const CLEAN_WITHIN: Duration = Duration::from_secs(30);

/// Asks until nothing is left over. Answers how long that took, and what was looked at.
///
/// # Errors
/// Something is left over, or cannot be asked for.
pub fn wait_clean(cluster: &Cluster) -> Result<(Duration, String)> {
    let begun = Instant::now();
    loop {
        let findings = findings(cluster)?;
        let judged: Vec<&Json> = findings.iter().filter(|finding| is_judged(finding)).collect();
        ensure!(judged.len() > 10, "little was looked at: {findings:#?}");
        let bad: Vec<&&Json> = judged.iter().filter(|one| one["verdict"] != "good").collect();
        if bad.is_empty() {
            let links = judged.iter().find(|one| one["check"] == "audit.links");
            let links = links.and_then(|one| one["found"].as_str()).unwrap_or_default();
            return Ok((begun.elapsed(), links.to_owned()));
        }
        ensure!(begun.elapsed() < CLEAN_WITHIN, "this is left over: {bad:#?}");
    }
}

/// What a machine that is busy makes worse, such as how long an answer takes, is no leftover.
fn is_judged(finding: &Json) -> bool {
    let check = finding["check"].as_str().unwrap_or_default();
    check.starts_with("audit.") || check == "leases" || check == "nodes"
}

/// What `tenure doctor --audit` finds.
///
/// # Errors
/// It does not end, or says something else.
pub fn findings(cluster: &Cluster) -> Result<Vec<Json>> {
    let mut command = Command::new(tenure()?);
    command.args(["doctor", "--audit", "-o", "json", "--nats", &cluster.url()]);
    command.args(["--redis", &format!("redis://127.0.0.1:{}", cluster.redis.port)]);
    command.args(["--partitions", &cluster.plan.partitions.to_string()]);
    let ended = Running::start(&mut command)?.end(PATIENCE)?;
    let report: Json = serde_json::from_str(&ended.stdout).with_context(|| format!("{ended:?}"))?;
    Ok(report["findings"].as_array().cloned().unwrap_or_default())
}
