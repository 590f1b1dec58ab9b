//! A Task that comes in parts, of which only some have come.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value as Json, json};
use tenure_tests::binary::{Ended, Running, tenure};
use tenure_tests::cluster::proxy::Proxy;

use tenure_tests::cluster::{Cluster, PATIENCE, POOL, Plan, until};

/// Steps of a Task, and bytes of the summary of each: it comes in five parts.
const STEPS: usize = 100;
const BYTES: usize = 22_000;

/// After so many bytes two parts have come, and not three.
const CUT_AFTER: u64 = 1_200_000;

/// IDEM-07 to IDEM-10: a `submit` that is killed leaves a creation that everybody calls unfinished and nobody
/// begins; the same command again goes on with it, and one of a changed file replaces it.
#[test]
fn a_submit_that_was_killed_goes_on_when_it_is_repeated() -> Result<()> {
    let mut cluster = Cluster::start(Plan { schedulers: 1, workers: 0, ..Plan::default() })?;
    let done = interrupted(&mut cluster);
    if done.is_err() {
        cluster.print_tails();
    }
    done
}

fn interrupted(cluster: &mut Cluster) -> Result<()> {
    for id in ["same", "changed"] {
        let file = write(cluster.dir(), id, "before", STEPS)?;
        break_off(cluster, &file, id)?;
        is_called_unfinished(cluster, id)?;
        is_not_begun(cluster, id)?;
    }
    let same = cluster.dir().join("same.json");
    let told = ok(cluster, &["submit", &same.display().to_string(), "-o", "json"])?;
    let first: Json = serde_json::from_str(&told.stdout)?;
    let again = ok(cluster, &["submit", &same.display().to_string(), "-o", "json"])?;
    ensure!(first["task_id"] == serde_json::from_str::<Json>(&again.stdout)?["task_id"]);

    let changed = write(cluster.dir(), "changed", "after", STEPS + 1)?;
    ok(cluster, &["submit", &changed.display().to_string()])?;

    cluster.add_worker(POOL, &cluster.url())?;
    for (id, title, steps, creations, parts) in
        [("same", "before", STEPS, 1, 4), ("changed", "after", STEPS + 1, 2, 5)]
    {
        ok(cluster, &["task", "wait", id])?;
        let task = get(cluster, id)?;
        ensure!(task["native_status"] == "completed" && task["title"] == title, "{task}");
        let log = cluster.client(&format!("c-{id}"))?.log(id, PATIENCE)?;
        ensure!(log.events("task_created").len() == creations, "{id} was created otherwise");
        let updates = log.events("task_updated").len();
        ensure!(updates == parts, "{id}: each part comes once, not {updates} of {parts}");
        ensure!(log.events("task_step_completed").len() == steps, "{id}");
    }
    Ok(())
}

/// A Task file that comes in parts.
fn write(dir: &Path, id: &str, title: &str, count: usize) -> Result<PathBuf> {
    let steps =
        (0..count).map(|n| (format!("s{n}"), json!({"noop": true, "summary": "x".repeat(BYTES)})));
    let steps: serde_json::Map<String, Json> = steps.collect();
    let path = dir.join(format!("{id}.json"));
    std::fs::write(&path, json!({"task_id": id, "title": title, "steps": steps}).to_string())?;
    Ok(path)
}

/// Begins to hand a Task in, and kills the command when some of its parts have come.
fn break_off(cluster: &Cluster, file: &Path, id: &str) -> Result<()> {
    let way = Proxy::before(cluster.nats.port)?;
    way.cut_after(CUT_AFTER);
    let mut submit = Command::new(tenure()?);
    submit.arg("submit").arg(file).args(["--nats", &format!("nats://127.0.0.1:{}", way.port)]);
    let mut submit = Running::start(&mut submit)?;
    until("two parts have come", PATIENCE, || {
        ensure!(!submit.has_ended()?, "it was not broken off");
        Ok(get(cluster, id).is_ok_and(|task| steps_here(&task) > STEPS as u64 / 4))
    })?;
    submit.kill()?;
    submit.end(PATIENCE)?;
    Ok(())
}

fn steps_here(task: &Json) -> u64 {
    task["status_reason"]["details"]["steps_here"].as_u64().unwrap_or_default()
}

fn is_called_unfinished(cluster: &Cluster, id: &str) -> Result<()> {
    let task = get(cluster, id)?;
    ensure!(task["native_status"] == "draft", "{task}");
    ensure!(task["status_reason"]["code"] == "unfinished_creation", "{task}");
    ensure!(task["status_reason"]["details"]["steps"] == STEPS, "{task}");
    let has_come = format!("{} of {STEPS} steps have come", steps_here(&task));
    for args in [["task", "get", id], ["task", "explain", id], ["inbox", "--session", "default"]] {
        let told = ok(cluster, &args)?.stdout;
        ensure!(told.contains(&has_come), "{args:?}: {told}");
        ensure!(!told.contains("task submit"), "{args:?} advises to begin it: {told}");
    }
    let inbox = ok(cluster, &["inbox", "--session", "default"])?.stdout;
    ensure!(inbox.contains("the same `tenure submit`"), "{inbox}");
    Ok(())
}

fn is_not_begun(cluster: &Cluster, id: &str) -> Result<()> {
    let version = get(cluster, id)?["version"].clone();
    let patch = cluster.dir().join("patch.json");
    let step = json!({"step_id": "more", "title": "", "summary": "", "depends_on_step_ids": []});
    std::fs::write(&patch, json!([{"op": "add_step", "step": step}]).to_string())?;
    let patch = patch.display().to_string();
    for (args, code) in [
        (vec!["task", "submit", id], "creation_unfinished"),
        (vec!["task", "patch", id, &patch], "creation_unfinished"),
        (vec!["dispatch", id], "task_not_dispatchable"),
    ] {
        let refused = run(cluster, &args)?;
        ensure!(refused.status.code() == Some(4), "{args:?}: {refused:?}");
        ensure!(refused.stderr.contains(code), "{args:?}: {}", refused.stderr);
    }
    ensure!(get(cluster, id)?["version"] == version, "a refusal has changed the task");
    Ok(())
}

fn get(cluster: &Cluster, id: &str) -> Result<Json> {
    let told: Json =
        serde_json::from_str(&ok(cluster, &["task", "get", id, "-o", "json"])?.stdout)?;
    Ok(told["task"].as_object().map_or(told.clone(), |task| Json::Object(task.clone())))
}

fn ok(cluster: &Cluster, args: &[&str]) -> Result<Ended> {
    let ended = run(cluster, args)?;
    ensure!(ended.status.success(), "{args:?}: {ended:?}");
    Ok(ended)
}

fn run(cluster: &Cluster, args: &[&str]) -> Result<Ended> {
    let mut command = Command::new(tenure()?);
    command.args(args).env("TENURE_NATS_URL", cluster.url());
    Running::start(&mut command)?.end(PATIENCE).context("it hangs")
}
