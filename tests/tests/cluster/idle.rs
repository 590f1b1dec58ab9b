//! What costs nothing: Steps that wait, and nobody can take.

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value as Json, json};
use tenure_tests::cluster::tasks::task;
use tenure_tests::cluster::{Cluster, Plan, on_cluster};

use crate::common::wait_ended;

/// How long it is looked at, and how much of that a node may be at work. With nothing to do it is some 0.5 % in
/// a debug build, and one that thinks of the same workers again and again takes a third of a core and more.
const LOOKED_AT: Duration = Duration::from_secs(3);
const AT_WORK: Duration = Duration::from_millis(600);

fn a_task_for_nobody(name: &str, steps: usize) -> Json {
    let step = |n: usize| {
        json!({"step_id": format!("s{n}"), "title": "s", "summary": "", "depends_on_step_ids": [],
               "handler": "nobody-has-it"})
    };
    task(name, &(0..steps).map(step).collect::<Vec<_>>())
}

fn is_idle(cluster: &Cluster) -> Result<()> {
    let before = cluster.schedulers[0].on_processor()?;
    sleep(LOOKED_AT);
    let took = cluster.schedulers[0].on_processor()? - before;
    println!("a node with nothing to do was at work for {took:?} of {LOOKED_AT:?}");
    ensure!(took < AT_WORK, "{took:?} of {LOOKED_AT:?}");
    Ok(())
}

/// DISP-14, P16: one, fewer than there is room for, and many more.
#[test]
fn steps_that_nobody_can_take_cost_nothing() -> Result<()> {
    on_cluster(Plan { schedulers: 1, workers: 3, ..Plan::default() }, |cluster| {
        let client = cluster.client("c")?;
        let tasks = [("one", 1), ("few", 3), ("many", 1_000)];
        for (name, steps) in tasks {
            client.create(&a_task_for_nobody(name, steps))?;
            is_idle(cluster)?;
        }
        for (name, _) in tasks {
            client.cancel(name)?;
            wait_ended(&client, name)?;
        }
        Ok(())
    })
}
