//! Those who hand in work of every kind, and never stop.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value as Json, json};

use super::{SIDE, pool_of};
use crate::cluster::POOL;
use crate::cluster::callers::Callers;
use crate::cluster::client::Client;
use crate::cluster::tasks::{exec, noop, sleep, task};
use crate::random::Random;

/// Publishers at a time.
const CALLERS: u64 = 6;

/// How long a command is repeated before that counts as a fault: several faults may follow each other.
const PATIENCE: Duration = Duration::from_secs(120);

/// After this long a Step is given out anew: whoever had it may have died, and a Run claims once.
const GIVEN_AGAIN: Duration = Duration::from_secs(15);

/// Kinds of Tasks.
const KINDS: u64 = 13;

/// Begins.
pub fn start(client: &Client, seed: u64) -> Callers {
    Callers::start(CALLERS, |caller| {
        let (client, mut random) = (client.clone(), Random::new(seed.wrapping_add(caller.at)));
        async move {
            while let Some(number) = caller.next() {
                let made = publish(&client, number, &mut random).await;
                made.with_context(|| format!("task {}", id_of(number)))?;
                tokio::time::sleep(Duration::from_millis(100 + random.below(800))).await;
            }
            Ok(())
        }
    })
}

fn id_of(number: u64) -> String {
    format!("soak-{number}")
}

async fn publish(client: &Client, number: u64, random: &mut Random) -> Result<()> {
    let id = &id_of(number);
    let made = |steps: &[Json]| in_pools(task(id, steps), number);
    match number % KINDS {
        0 => client.make(&made(&[noop("a", &[])]), PATIENCE).await,
        1 => client.make(&made(&chain(random)), PATIENCE).await,
        2 => client.make(&made(&graph(random)), PATIENCE).await,
        3 => {
            let third = exec("a", &[], "[ $TENURE_ATTEMPT -ge 3 ]");
            client.make(&made(&[third, noop("b", &["a"])]), PATIENCE).await
        }
        4 => {
            client.ends(id, &["task_failed"]);
            client.make(&made(&[exec("a", &[], "exit 3"), noop("b", &["a"])]), PATIENCE).await
        }
        5 => {
            // The second may take too long as well, where its worker is held.
            client.ends(id, &["task_completed", "task_failed"]);
            let mut input = made(&[exec("a", &[], "[ $TENURE_ATTEMPT -ge 2 ] || sleep 60")]);
            input["retry_policy"]["start_to_close_ms"] = json!(700);
            client.make(&input, PATIENCE).await
        }
        6 | 7 => cancelled(client, id, &made, number % KINDS == 7).await,
        8 | 9 => by_hand(client, id, number % KINDS == 9).await,
        10 => drafted(client, id, &made).await,
        11 => family(client, id, &made).await,
        _ => {
            let long = |id| sleep(id, &[], 1_000 + random.below(6_000));
            client.make(&made(&["a", "b", "c"].map(long)), PATIENCE).await
        }
    }
}

/// Puts some of the Steps into the other pool.
fn in_pools(mut task: Json, number: u64) -> Json {
    for (step, at) in task["steps"].as_array_mut().into_iter().flatten().zip(number..) {
        step["worker_pool_id"] = json!(pool_of(at));
    }
    task
}

fn chain(random: &mut Random) -> Vec<Json> {
    let pause = format!("sleep 0.{}", random.below(10));
    vec![
        noop("a", &[]),
        sleep("b", &["a"], random.below(300)),
        exec("c", &["b"], &pause),
        noop("d", &["c"]),
    ]
}

/// One, many behind it, and one behind them.
fn graph(random: &mut Random) -> Vec<Json> {
    let many: Vec<String> = (0..=4 + random.below(12)).map(|n| format!("m{n}")).collect();
    let names: Vec<&str> = many.iter().map(String::as_str).collect();
    let middle = names.iter().map(|id| match random.below(3) {
        0 => exec(id, &["first"], "true"),
        1 => sleep(id, &["first"], random.below(1_000)),
        _ => noop(id, &["first"]),
    });
    let middle: Vec<Json> = middle.collect();
    [vec![noop("first", &[])], middle, vec![noop("last", &names)]].concat()
}

/// Changed, and cancelled while it runs or waits; who cancels may wait for the end.
async fn cancelled(
    client: &Client,
    id: &str,
    made: &impl Fn(&[Json]) -> Json,
    waits: bool,
) -> Result<()> {
    client.make(&made(&[sleep("a", &[], 600_000), noop("b", &["a"])]), PATIENCE).await?;
    let progress = json!({"progress": {"summary": "it waits"}});
    client.change(id, "append_task_progress", &progress, PATIENCE).await?;
    add(client, id, "c").await?;
    if !waits {
        return client.drop_task(id, PATIENCE).await;
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    client.ends(id, &["task_cancelled"]);
    client.change(id, "task_cancel", &json!({"wait": true}), PATIENCE).await
}

/// Gets its second Step by a patch before it is submitted.
async fn drafted(client: &Client, id: &str, made: &impl Fn(&[Json]) -> Json) -> Result<()> {
    let mut input = made(&[noop("a", &[])]);
    input["draft"] = json!(true);
    client.make(&input, PATIENCE).await?;
    add(client, id, "b").await?;
    client.change(id, "submit_task", &json!({}), PATIENCE).await?;
    client.read_log(id, PATIENCE).await.map(|_| ())
}

/// Makes a child, and is cancelled: the child ends with it.
async fn family(client: &Client, id: &str, made: &impl Fn(&[Json]) -> Json) -> Result<()> {
    client.make(&made(&[sleep("a", &[], 600_000)]), PATIENCE).await?;
    let child = format!("{id}-child");
    let mut input = task(&child, &[sleep("a", &[], 600_000)]);
    input["parent_task_id"] = json!(id);
    client.ends(&child, &["task_cancelled"]);
    client.make(&input, PATIENCE).await?;
    client.drop_task(id, PATIENCE).await
}

/// Adds a Step behind the first by a patch.
async fn add(client: &Client, task: &str, step: &str) -> Result<()> {
    let patch = json!({"operations": [{"op": "add_step", "step": noop(step, &["a"])}]});
    client.change(task, "task_update", &patch, PATIENCE).await
}

/// Steers a Task of two Steps to its end, each given out in a scope of its own. Who gives out may wait for
/// the end of the Run.
async fn by_hand(client: &Client, id: &str, waits: bool) -> Result<()> {
    let mut input = task(id, &[sleep("a", &[], 300), noop("b", &["a"])]);
    (input["dispatch"], input["completion"]) = (json!("manual"), json!("manual"));
    input["steps"][1]["worker_pool_id"] = json!(SIDE);
    client.make(&input, PATIENCE).await?;
    for (step, pool) in [("a", POOL), ("b", SIDE)] {
        let dispatch = json!({"worker_pool_id": pool, "allowed_step_ids": [step], "wait": waits});
        let (begun, mut given) = (Instant::now(), None::<Instant>);
        while !is_completed(client, id, step).await? {
            ensure!(begun.elapsed() < 2 * PATIENCE, "nobody completes {step}");
            if given.is_none_or(|at| at.elapsed() > GIVEN_AGAIN) {
                given = Some(Instant::now());
                client.change(id, "dispatch_worker", &dispatch, PATIENCE).await?;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    client.change(id, "task_complete", &json!({}), PATIENCE).await
}

async fn is_completed(client: &Client, task: &str, step: &str) -> Result<bool> {
    let completed = client.read_log(task, PATIENCE).await?.events("task_step_completed");
    Ok(completed.iter().any(|event| event["step_id"] == step))
}
