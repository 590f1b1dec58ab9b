//! A Task that comes in parts, of which only some have come.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
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

/// IDEM-01 to IDEM-03: a `submit` that is repeated is the same Task: by its command id, by a key from which a file
/// without an id has one, or by its content alone; another content is none of these.
#[test]
fn a_submit_is_known_again() -> Result<()> {
    let mut cluster = Cluster::start(Plan { schedulers: 1, workers: 0, ..Plan::default() })?;
    let done = known_again(&mut cluster);
    if done.is_err() {
        cluster.print_tails();
    }
    done
}

fn known_again(cluster: &mut Cluster) -> Result<()> {
    let file = |name: &str, id: Option<&str>, title: &str| -> Result<String> {
        let path = cluster.dir().join(name);
        let mut task = json!({"title": title, "steps": {"a": {"noop": true}}});
        task.as_object_mut().context("a map")?.extend(id.map(|id| ("task_id".into(), json!(id))));
        std::fs::write(&path, task.to_string())?;
        Ok(path.display().to_string())
    };
    let submit = |file: &str, more: &[&str]| -> Result<std::result::Result<Json, Ended>> {
        let ended = run(cluster, &[&["submit", file, "-o", "json"], more].concat())?;
        Ok(match ended.status.success() {
            true => Ok(serde_json::from_str(&ended.stdout)?),
            false => Err(ended),
        })
    };
    let made = |file: &str, more: &[&str]| {
        submit(file, more)?.map_err(|no| anyhow::anyhow!("{more:?}: {no:?}"))
    };
    let refused = |file: &str, more: &[&str], exit: i32, why: &str| -> Result<()> {
        let Err(ended) = submit(file, more)? else { bail!("{more:?} is accepted") };
        ensure!(ended.status.code() == Some(exit), "{more:?}: {ended:?}");
        ensure!(ended.stderr.contains(why), "{more:?}: {}", ended.stderr);
        Ok(())
    };

    let (named, other) = (file("named", Some("t"), "one")?, file("other", Some("t"), "two")?);
    let first = made(&named, &["--command-id", "c1"])?;
    for again in [&["--command-id", "c1"][..], &["--command-id", "c2"], &[]] {
        ensure!(made(&named, again)? == first, "{again:?}");
    }
    refused(&other, &["--command-id", "c1"], 4, "idempotency_conflict")?;
    refused(&other, &["--command-id", "c3"], 4, "task_id_conflict")?;
    refused(&named, &["--idempotency-key", "k"], 2, "names no task")?;

    let (nameless, other) = (file("nameless", None, "one")?, file("different", None, "two")?);
    let first = made(&nameless, &["--idempotency-key", "nightly 7"])?;
    let id = first["task_id"].as_str().context("no task_id")?;
    ensure!(
        id == "886cf354-ba75-56bd-9624-00632ea6709d",
        "the UUIDv5 of session and key, not {id}"
    );
    for again in [
        &["--idempotency-key", "nightly 7"][..],
        &["--idempotency-key", "nightly 7", "--command-id", "c4"],
    ] {
        ensure!(made(&nameless, again)? == first, "{again:?}");
    }
    refused(&other, &["--idempotency-key", "nightly 7"], 4, "idempotency_conflict")?;
    refused(&nameless, &["--command-id", "c5"], 2, "--idempotency-key")?;
    ensure!(made(&nameless, &["--idempotency-key", "nightly 8"])?["task_id"] != first["task_id"]);
    ensure!(
        made(&nameless, &[])?["task_id"] != made(&nameless, &[])?["task_id"],
        "each is another"
    );
    for id in ["t", id] {
        let log = cluster.client(&format!("of-{id}"))?.log(id, PATIENCE)?;
        ensure!(log.events("task_created").len() == 1, "{id} was made once");
    }
    Ok(())
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
        (vec!["dispatch", id], "creation_unfinished"),
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
