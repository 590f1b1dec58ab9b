//! Nothing breaks.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use tenure_tests::cluster::{Cluster, PATIENCE, Plan, on_cluster};
use tenure_tests::dag::{Mix, draw};
use tenure_tests::random::Random;

/// The task files that users see first.
pub(crate) fn examples() -> Result<Vec<PathBuf>> {
    files_of(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples"))
}

/// Workflows in WfFormat: our own, and those of the folder that `TENURE_WORKFLOWS` names, if it names one.
pub(crate) fn workflows() -> Result<Vec<PathBuf>> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("workflows");
    workflows_of(&own, std::env::var_os("TENURE_WORKFLOWS").as_deref().map(Path::new))
}

fn workflows_of(own: &Path, recorded: Option<&Path>) -> Result<Vec<PathBuf>> {
    let mut all = files_of(own)?;
    ensure!(!all.is_empty(), "no workflow in {}", own.display());
    if let Some(folder) = recorded {
        let found = files_of(folder).with_context(|| folder.display().to_string())?;
        ensure!(!found.is_empty(), "TENURE_WORKFLOWS: no workflow in {}", folder.display());
        all.extend(found);
    }
    Ok(all)
}

/// A folder that is named is not passed over.
#[test]
fn a_folder_without_workflows_is_told() -> Result<()> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("workflows");
    ensure!(workflows_of(&own, None)? == [own.join("survey.json")]);
    ensure!(workflows_of(&own, Some(&own))?.len() == 2);
    let empty = tempfile::tempdir()?;
    ensure!(workflows_of(&own, Some(empty.path())).is_err());
    ensure!(workflows_of(&own, Some(&empty.path().join("nowhere"))).is_err());
    Ok(())
}

fn files_of(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| ["yaml", "json", "toml"].iter().any(|e| end == *e)) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Draws a graph and hands it in.
fn submit_drawn(cluster: &Cluster, seed: u64, steps: usize) -> Result<()> {
    let mut random = Random::new(seed);
    let mut drawn = draw(&mut random, &format!("drawn-{seed}"), steps, Mix { sleep: 20, exec: 10 });
    let line = "echo $TENURE_TASK_ID.$TENURE_STEP_ID.$TENURE_ATTEMPT >> $TRACE";
    for step in drawn["steps"].as_array_mut().into_iter().flatten() {
        if step["run"].is_string() {
            step["run"] = line.into();
        }
    }
    let file = cluster.dir().join(format!("drawn-{seed}.json"));
    std::fs::write(&file, drawn.to_string())?;
    cluster.submit(&file, &[]).map(|_| ())
}

#[test]
fn every_example_and_graphs_of_any_kind_complete() -> Result<()> {
    let plan = Plan { schedulers: 3, workers: 8, partitions: 8, ..Plan::default() };
    on_cluster(plan, |cluster| {
        let begun = Instant::now();
        for file in examples()? {
            cluster.submit(&file, &[])?;
        }
        for file in workflows()? {
            cluster.submit(&file, &["--time-scale", "0.001", "--new"])?;
        }
        for seed in 1..=6 {
            submit_drawn(cluster, seed, 150)?;
        }
        let client = cluster.client("waiter")?;
        for task in cluster.records.by_task().keys() {
            while !client.log(task, PATIENCE)?.has_ended() {
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        let tasks = cluster.records.acknowledged();
        println!("{tasks} tasks ended after {:?}", begun.elapsed());
        Ok(())
    })
}
