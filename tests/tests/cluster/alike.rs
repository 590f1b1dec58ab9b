//! A cluster does to a Task what one process does to it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value as Json;
use tenure_tests::binary::{Running, tenure};
use tenure_tests::cluster::{Cluster, PATIENCE, Plan, on_cluster};
use tenure_tests::dag::{Mix, draw};
use tenure_tests::random::Random;

use crate::whole::{examples, workflows};

/// What no two runs share: ids, times, who did it, and where it lies.
const OWN: &[&str] = &[
    "commit_id",
    "event_id",
    "epoch",
    "crc",
    "command_id",
    "command_digest",
    "actor_agent_id",
    "commit_index",
    "commit_count",
    "wal_seq",
    "attempt_id",
    "attempt_ids",
    "run_id",
    "worker_id",
    "fencing_token",
    "artifact_id",
    "artifact_ids",
    "input_refs",
    "uri",
    "tenure.file",
    "created_by",
    "created_by_agent_id",
    "wal_path",
    "cwd",
    "worker_host",
    "worker_build",
    "session_id",
    "actor_run_id",
    "version",
    "dispatch_version",
    "not_before",
];

/// The same without that. A Task whose file names no id has one of its own in each run.
fn shared(value: &Json, task: &str) -> Json {
    let shared = |value| shared(value, task);
    match value {
        Json::Object(map) => {
            let kept =
                map.iter().filter(|(k, _)| !OWN.contains(&k.as_str()) && !k.ends_with("_at"));
            kept.map(|(k, v)| (k.clone(), shared(v))).collect()
        }
        Json::Array(all) => all.iter().map(shared).collect(),
        // Relations are named after what they relate.
        Json::String(text) => {
            let is_own = |part: &str| is_id(part) || part == task;
            let parts = text.split(':').map(|part| if is_own(part) { "id" } else { part });
            parts.collect::<Vec<_>>().join(":").into()
        }
        other => other.clone(),
    }
}

/// Whether it is a UUID.
fn is_id(part: &str) -> bool {
    let has_form = |(at, byte): (usize, u8)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    part.len() == 36 && part.bytes().enumerate().all(has_form)
}

/// The first place where two differ.
fn difference(one: &Json, other: &Json, at: String) -> Option<String> {
    match (one, other) {
        (Json::Object(a), Json::Object(b)) => {
            let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            names.into_iter().find_map(|name| {
                let of = |map: &serde_json::Map<String, Json>| map.get(name).cloned();
                let (x, y) = (of(a).unwrap_or_default(), of(b).unwrap_or_default());
                difference(&x, &y, format!("{at}/{name}"))
            })
        }
        (Json::Array(a), Json::Array(b)) if a.len() == b.len() => {
            let mut pairs = a.iter().zip(b).enumerate();
            pairs.find_map(|(n, (x, y))| difference(x, y, format!("{at}/{n}")))
        }
        (a, b) => (a != b).then(|| format!("{at}: {a} and {b}")),
    }
}

/// What happened to each Step in its order, and to the Task.
fn histories(lines: &[u8], task: &str) -> Result<BTreeMap<String, Vec<Json>>> {
    let mut of_each: BTreeMap<String, Vec<Json>> = BTreeMap::new();
    for line in lines.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
        let event: Json = serde_json::from_slice(line)?;
        if event["event_type"] == "task_step_started" {
            continue; // A built-in handler says so of what lasts: a machine may be slow here, and fast there.
        }
        let whose = event["step_id"].as_str().unwrap_or_default().to_owned();
        of_each.entry(whose).or_default().push(shared(&event, task));
    }
    Ok(of_each)
}

fn told(command: &mut Command) -> Result<Json> {
    let ended = Running::start(command)?.end(PATIENCE)?;
    serde_json::from_str(&ended.stdout).with_context(|| format!("{ended:?}"))
}

/// Runs a task file here and there, and holds the two against each other.
fn is_alike(cluster: &Cluster, file: &Path, more: &[&str]) -> Result<usize> {
    let task = cluster.submit(file, more)?;
    let data = tempfile::tempdir()?;
    let mut run = Command::new(tenure()?);
    run.arg("run").arg(file).arg("--data").arg(data.path()).args(["-o", "json"]).args(more);
    let here = told(run.env("TRACE", data.path().join("trace")))?;
    let id = here["task_id"].as_str().context("a task has an id")?;
    let client = cluster.client("reader")?;
    let begun = Instant::now();
    let there = loop {
        let log = client.log(&task, PATIENCE)?;
        if log.has_ended() {
            break log;
        }
        ensure!(begun.elapsed() < PATIENCE, "{task} has not ended");
        std::thread::sleep(Duration::from_millis(20));
    };

    let log = data.path().join(format!("tasks/default/{id}.wal.jsonl"));
    let (one, other) = (histories(&std::fs::read(log)?, id)?, histories(&there.lines, &task)?);
    for (step, events) in &one {
        let others = other.get(step).cloned().unwrap_or_default();
        let (events, others) = (Json::from(events.clone()), Json::from(others));
        if let Some(place) = difference(&events, &others, String::new()) {
            bail!("events of {task}/{step} differ at {place}");
        }
    }
    ensure!(one.len() == other.len(), "{task}: other steps");

    let get = |id: &str, at: [&str; 2]| {
        let mut get = Command::new(tenure()?);
        let state = told(get.args(["task", "get", id, "-o", "json"]).args(at))?;
        let mut state = shared(&state, id);
        // Steps that run side by side come to an end in any order.
        for several in ["artifacts", "attempts", "relationships", "runs"] {
            if let Some(all) = state[several].as_array_mut() {
                all.sort_by_key(Json::to_string);
            }
        }
        Ok::<_, anyhow::Error>(state)
    };
    let data = data.path().to_str().context("a path")?;
    let (one, other) = (get(id, ["--data", data])?, get(&task, ["--nats", &cluster.url()])?);
    if let Some(place) = difference(&one, &other, String::new()) {
        bail!("{task} differs at {place}");
    }
    Ok(other["steps"].as_array().map_or(0, Vec::len))
}

/// WAL-15: what happened to each Step, and what has become of the Task, is the same in a cluster of
/// several nodes as in one process, but for ids, times and epochs.
#[test]
fn a_cluster_does_what_one_process_does() -> Result<()> {
    let plan = Plan { schedulers: 3, workers: 8, partitions: 8, ..Plan::default() };
    on_cluster(plan, |cluster| {
        let mut steps = 0;
        for file in examples()? {
            steps += is_alike(cluster, &file, &[])?;
        }
        for file in workflows()? {
            steps += is_alike(cluster, &file, &["--time-scale", "0.001"])?;
        }
        for seed in 11..=16 {
            let file = cluster.dir().join(format!("alike-{seed}.json"));
            let mix = Mix { sleep: 20, exec: 0 };
            let drawn = draw(&mut Random::new(seed), &format!("alike-{seed}"), 120, mix);
            std::fs::write(&file, drawn.to_string())?;
            steps += is_alike(cluster, &file, &[])?;
        }
        println!("{steps} steps went through the same");
        ensure!(steps > 1_000, "{steps}");
        Ok(())
    })
}
