//! Scheduler nodes are killed, held up, and set against each other.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value as Json, json};
use tenure_tests::cluster::client::{Client, command, wait};
use tenure_tests::cluster::load::Load;
use tenure_tests::cluster::message::{Answer, list, number};
use tenure_tests::cluster::probe::{Probe, append};
use tenure_tests::cluster::tasks::{exec, id_in, noop, sleep, task};
use tenure_tests::cluster::{Cluster, PATIENCE, Plan, on_cluster, redis};

use crate::common::{
    check_bound, check_claimed_once, gaps, owned_by, wait_claims, wait_ended, wait_runs,
};

/// How long partitions of a node that dies, or stands still, may be without service.
const TAKEOVER_MAX: Duration = Duration::from_millis(3_500);

/// And how long at the worst, on a machine that does other things.
const TAKEOVER_CEILING: Duration = Duration::from_secs(5);

/// How long a node that stood still may go on to answer for what it no longer owns.
const STEPS_DOWN_MAX: Duration = Duration::from_secs(2);

/// And how long at the worst.
const STEPS_DOWN_CEILING: Duration = Duration::from_secs(3);

/// How often each is measured.
const ROUNDS: usize = 3;

/// OWN-06
#[test]
fn partitions_of_a_killed_node_answer_again_soon() -> Result<()> {
    let plan = Plan { schedulers: ROUNDS + 1, partitions: 8, lease_ms: 6_000, ..Plan::default() };
    on_cluster(plan, |cluster| {
        let client = cluster.client("c")?;
        let load = Load::start(&client, Duration::from_millis(50));
        let mut measured = Vec::new();
        for round in 0..ROUNDS {
            measured.push(kill_one(cluster, &client, &format!("through-{round}"))?);
        }
        load.finish()?;
        println!("kill: {} requests unanswered", cluster.records.silences());
        check_bound("kill", measured, TAKEOVER_MAX, TAKEOVER_CEILING)
    })
}

/// Kills the node that has a Task, whose Steps are at work. Answers for how long any of its partitions
/// was without service.
fn kill_one(cluster: &mut Cluster, client: &Client, id: &str) -> Result<Duration> {
    let steps: Vec<_> = (0..4).map(|n| exec(&format!("s{n}"), &[], "sleep 5")).collect();
    client.create(&task(id, &steps))?;
    wait_claims(client, id, steps.len())?;
    let probe = Probe::start(client)?;
    std::thread::sleep(Duration::from_secs(1)); // What is normal shows first.
    let victim = cluster.owner_of(client.partition_of(id))?;
    let owned = owned_by(cluster, victim)?;
    let (killed, acknowledged) = (Instant::now(), cluster.records.acknowledged());
    cluster.schedulers[victim].kill()?;
    cluster.schedulers.remove(victim);
    append(client, id, PATIENCE)?;
    println!("kill: the first append was durable after {:?}", killed.elapsed());
    cluster.wait_owned()?;
    let measured = gaps("kill", &probe.finish()?, &owned, TAKEOVER_CEILING)?;
    let longest = measured.into_iter().max().unwrap_or_default();
    println!("kill: {acknowledged} tasks before it, {} in all", cluster.records.acknowledged());
    wait_ended(client, id)?;
    check_claimed_once(client, id)?;
    Ok(longest)
}

/// What is asked while a node is held up, so that it hears it when it goes on.
struct Asked {
    what: &'static str,
    body: Json,
}

/// OWN-03: it appends nothing either, as a log in which it did would not be sound.
#[test]
fn a_node_that_was_held_up_says_nothing_wrong_and_steps_down() -> Result<()> {
    on_cluster(Plan { schedulers: 3, ..Plan::default() }, |cluster| {
        let client = cluster.client("c")?;
        let load = Load::start(&client, Duration::from_millis(50));
        let (mut taken, mut lasted) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            let (took, last) = hold_up_one(cluster, &client, round)?;
            taken.push(took);
            lasted.push(last);
        }
        load.finish()?;
        check_bound("held up: without service", taken, TAKEOVER_MAX, TAKEOVER_CEILING)?;
        check_bound("held up: steps down", lasted, STEPS_DOWN_MAX, STEPS_DOWN_CEILING)
    })
}

/// Holds the node up that has a Task. Answers for how long any of its partitions was without service,
/// and until when it still answered once it went on.
fn hold_up_one(
    cluster: &mut Cluster,
    client: &Client,
    round: usize,
) -> Result<(Duration, Duration)> {
    let id = format!("held-{round}");
    let steps = [exec("a", &[], "sleep 1"), sleep("b", &[], 9_000), noop("c", &["a"])];
    client.create(&task(&id, &steps))?;
    wait_claims(client, &id, 2)?;
    let partition = client.partition_of(&id);
    let probe = Probe::start(client)?;
    std::thread::sleep(Duration::from_millis(500)); // What is normal shows first.
    let victim = cluster.owner_of(partition)?;
    let owned = owned_by(cluster, victim)?;
    cluster.schedulers[victim].pause()?;
    let paused = Instant::now();
    append(client, &id, PATIENCE)?;
    println!("held up: the first append was durable after {:?}", paused.elapsed());
    let measured = gaps("held up", &probe.finish()?, &owned, TAKEOVER_CEILING)?;
    let taken = measured.into_iter().max().unwrap_or_default();
    let version = client.log(&id, PATIENCE)?.version;
    let new = id_in(partition, client.partitions(), &format!("new-{round}"));
    client.create(&task(&new, &[noop("a", &[])]))?;
    let newer = id_in(partition, client.partitions(), &format!("newer-{round}"));
    let asked = questions(&id, &new, &newer);
    let heard: Vec<_> = asked
        .iter()
        .map(|asked| {
            let (client, body) = (client.clone(), asked.body.clone());
            let all = async move { client.ask_all(body, partition, Duration::from_secs(6)).await };
            tenure_tests::cluster::client::runtime().spawn(all)
        })
        .collect();
    while paused.elapsed() < Duration::from_secs(4) {
        std::thread::sleep(Duration::from_millis(50));
    }
    cluster.schedulers[victim].resume()?;
    let lasted = wait_one_voice(client, &id, version)?;
    println!("held up: two nodes answered until {lasted:?} after it went on");
    for (asked, heard) in asked.iter().zip(heard) {
        let answers = wait(heard)??;
        let brief: Vec<_> = answers.iter().map(brief).collect();
        println!("held up: {}: {brief:?}", asked.what);
        check_answers(asked.what, &answers, version)?;
    }
    cluster.wait_owned()?;
    wait_ended(client, &id)?;
    Ok((taken, lasted))
}

fn questions(held: &str, new: &str, newer: &str) -> [Asked; 5] {
    let read = |what, operation, task: &str| {
        let body = json!({"v": 1, "operation": operation, "task_id": task});
        Asked { what, body }
    };
    let other = task(new, &[sleep("another", &[], 1)]);
    let create = |what, input: &Json| Asked { what, body: command("task_create", None, input) };
    [
        read("log of a task that went on", "read_log", held),
        read("a task made meanwhile", "task_get", new),
        read("log of a task made meanwhile", "read_log", new),
        create("a create of an id that was taken meanwhile", &other),
        create("a create", &task(newer, &[noop("a", &[])])),
    ]
}

fn brief(answer: &Answer) -> String {
    match answer {
        Answer::Done(_) => "ok".into(),
        Answer::Refused(refusal) => refusal.code.clone(),
        Answer::NoResponders => "nobody".into(),
        Answer::Silence => "silence".into(),
    }
}

/// Whoever is not the owner may only say that it does not know.
fn check_answers(what: &str, answers: &[Answer], version: u64) -> Result<()> {
    let mut events = None;
    ensure!(!answers.is_empty(), "{what}: nobody answers");
    for answer in answers {
        match (what, answer) {
            (_, Answer::Refused(refusal)) if refusal.retryable => {}
            ("a create of an id that was taken meanwhile", Answer::Refused(refusal)) => {
                ensure!(refusal.code == "task_id_conflict", "{what}: {refusal}");
            }
            ("log of a task that went on", Answer::Done(page)) => {
                let read = number(page, "version").unwrap_or_default();
                ensure!(read >= version, "{what}: version {read} after {version} was durable");
            }
            ("a create", Answer::Done(done)) => {
                let these = list(done, "event_ids").to_vec();
                let first = events.get_or_insert_with(|| these.clone());
                ensure!(*first == these, "{what}: accepted twice: {answers:?}");
            }
            (what, Answer::Done(_)) if !what.starts_with("a create") => {}
            _ => bail!("{what}: {answer:?}"),
        }
    }
    Ok(())
}

/// Asks until only one node has answered for two seconds. Answers when the last question was asked that
/// more of them answered.
fn wait_one_voice(client: &Client, task: &str, version: u64) -> Result<Duration> {
    let (begun, mut last) = (Instant::now(), Duration::ZERO);
    let (partition, window) = (client.partition_of(task), Duration::from_millis(200));
    let body = json!({"v": 1, "operation": "read_log", "task_id": task});
    while begun.elapsed() < last + Duration::from_secs(2) {
        let asked = begun.elapsed();
        let answers = wait(client.ask_all(body.clone(), partition, window))?;
        if answers.len() > 1 {
            last = asked;
        }
        if !answers.is_empty() {
            check_answers("log of a task that went on", &answers, version)?;
        }
        ensure!(last < Duration::from_secs(10), "two nodes answer for good: {answers:?}");
    }
    Ok(last)
}

#[test]
fn nodes_that_are_set_against_each_other_write_one_log() -> Result<()> {
    on_cluster(Plan { schedulers: 3, ..Plan::default() }, |cluster| {
        let client = cluster.client("c")?;
        let steps: Vec<_> = (0..4).map(|n| exec(&format!("s{n}"), &[], "sleep 3")).collect();
        client.create(&task("through", &steps))?;
        wait_runs(cluster, 4)?;
        let load = Load::start(&client, Duration::from_millis(30));
        let boots = boots(cluster)?;
        let soon = (Duration::from_secs(30).as_millis()
            + u128::try_from(crate::common::now_ms()?)?)
        .to_string();
        for round in 0..10 {
            for partition in 0..cluster.plan.partitions {
                // Every node in turn is told that the partition is its own; the one that has it goes
                // on until it sees that, or until its append is refused.
                let to = &boots[(round + partition as usize) % boots.len()];
                let partition = partition.to_string();
                let port = cluster.redis.port;
                redis::command(port, &["HSET", "tenure:{own}:owners", &partition, to])?;
                redis::command(port, &["HSET", "tenure:{own}:ends", &partition, &soon])?;
            }
            std::thread::sleep(Duration::from_millis(450)); // A little more than they take to see it.
        }
        redis::command(cluster.redis.port, &["DEL", "tenure:{own}:owners", "tenure:{own}:ends"])?;
        std::thread::sleep(Duration::from_millis(500));
        load.finish()?;
        cluster.wait_owned()?;
        let (acknowledged, silences) = (cluster.records.acknowledged(), cluster.records.silences());
        println!(
            "{acknowledged} tasks acknowledged while owners changed, {silences} requests unanswered"
        );
        wait_ended(&client, "through")?;
        Ok(())
    })
}

/// The boots of all nodes, as Redis knows them.
fn boots(cluster: &Cluster) -> Result<Vec<String>> {
    let answer = redis::command(cluster.redis.port, &["ZRANGE", "tenure:{own}:nodes", "0", "-1"])?;
    let names = answer.split("\r\n").filter(|word| word.contains('-')).map(str::to_owned);
    let names: Vec<String> = names.collect();
    ensure!(names.len() == cluster.schedulers.len(), "{answer:?}");
    names.first().context("no node")?;
    Ok(names)
}
