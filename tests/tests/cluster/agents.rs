//! Agents that speak A2A, at gateways, schedulers and workers that die.

use std::sync::Barrier;
use std::thread::{scope, sleep, spawn};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use serde_json::{Value as Json, json};
use tenure_tests::cluster::client::{Client, wait};
use tenure_tests::cluster::process::Process;
use tenure_tests::cluster::redis::command;
use tenure_tests::cluster::servers::free_port;
use tenure_tests::cluster::tasks::TRACE;
use tenure_tests::cluster::{Cluster, PATIENCE, POOL, Plan, on_cluster, until};

use crate::caller::{
    AgentCaller, CallbackReceiver, Callbacks, follow_up, id_of, in_short, message,
};
use crate::common::wait_ended;
use crate::gateways::gateway;

/// Their tasks are in the session of all tests, so that each log is checked at the end.
const AGENTS: &str = r#"
[push]
allow = ["127.0.0.1"]

[[agents]]
name = "waits"
description = "Completes as soon as there is a worker."
handler = "noop"
session = "default"

[[agents]]
name = "works"
description = "Works for a while, and has a result."
template = "works.yaml"
session = "default"
"#;

/// The state of a task that asks for something.
const ASKS: &str = "TASK_STATE_INPUT_REQUIRED";

/// The state of a task that was done.
const COMPLETED: &str = "TASK_STATE_COMPLETED";

/// What becomes of a message to `works`: a Step that takes so long.
fn works(seconds: u32) -> String {
    let run = format!("{TRACE}; sleep {seconds}; echo 42 > $TENURE_OUTPUT");
    let steps = format!("{{take: {{noop: true}}, work: {{needs: take, run: '{run}'}}}}");
    format!("title: works\noutput_from: work\nsteps: {steps}\n")
}

/// A gateway, and a caller there.
struct Gate {
    process: Process,
    caller: AgentCaller,
}

impl Gate {
    fn open(cluster: &Cluster, name: &str) -> Result<Self> {
        let (process, port) = gateway(cluster, name, &["--agents", "agents.toml"])?;
        Ok(Self { process, caller: AgentCaller { port } })
    }
}

/// Runs a test on a cluster of its own with two gateways, where a message to `works` takes so long.
fn on_agents(
    plan: Plan,
    seconds: u32,
    test: impl FnOnce(&mut Cluster, &mut [Gate; 2]) -> Result<()>,
) -> Result<()> {
    on_cluster(plan, |cluster| {
        std::fs::write(cluster.dir().join("agents.toml"), AGENTS)?;
        std::fs::write(cluster.dir().join("works.yaml"), works(seconds))?;
        let mut gates = [Gate::open(cluster, "g1")?, Gate::open(cluster, "g2")?];
        let done = test(cluster, &mut gates);
        if done.is_err() {
            gates.iter().for_each(|gate| println!("{}", gate.process.tail()));
        }
        done
    })
}

/// Says something of a task, which whoever follows it is told.
fn note(client: &Client, task: &str, text: &str) -> Result<()> {
    let said = json!({"progress": {"summary": text}});
    wait(client.change(task, "append_task_progress", &said, PATIENCE))
}

/// How many notes there are while a gateway dies.
const NOTES: usize = 40;

/// A2A-08: a reader whose gateway dies goes on at another one behind the last event that it got. It misses
/// nothing, and gets nothing twice.
#[test]
fn a_stream_goes_on_at_another_gateway() -> Result<()> {
    on_agents(Plan { workers: 0, ..Plan::default() }, 0, |cluster, [one, two]| {
        let client = cluster.client("c")?;
        let mut stream =
            one.caller.send_streaming("waits", &json!({"message": message("hello")}))?;
        let mut got = vec![stream.next()?.context("no task")?];
        let task = id_of(&got[0].1["task"])?;
        let notes: Vec<String> = (0..NOTES).map(|number| number.to_string()).collect();
        let (of, texts) = (task.clone(), notes.clone());
        let says = spawn(move || {
            texts.iter().try_for_each(|text| {
                sleep(Duration::from_millis(20));
                note(&client, &of, text)
            })
        });
        while got.len() < NOTES / 3 {
            got.push(stream.next()?.context("the stream ends too soon")?);
        }
        one.process.kill()?;
        got.extend(stream.rest()?);
        ensure!(got.len() < NOTES, "the gateway died too late: {}", got.len());
        says.join().map_err(|_| anyhow!("who makes notes has failed"))??;

        cluster.add_worker(POOL, &cluster.url())?;
        let last = got.last().map(|(place, _)| place.clone()).context("nothing came")?;
        got.extend(two.caller.resume("waits", &task, &last)?.rest()?);
        let summary = |update: &Json| {
            let said = &update["statusUpdate"]["metadata"]["tenure_progress"]["summary"];
            said.as_str().map(str::to_owned)
        };
        let said: Vec<String> = got.iter().filter_map(|(_, update)| summary(update)).collect();
        ensure!(said == notes, "{said:?}");
        let whole = two.caller.resume("waits", &task, &got[0].0)?.rest()?;
        ensure!(got[1..] == whole[..], "{got:#?}\nis not\n{whole:#?}");
        ensure!(in_short(&whole[whole.len() - 1].1) == "completed", "{whole:#?}");
        Ok(())
    })
}

/// Begins a task that asks for something. Nobody works, so the question is asked in place of a worker.
fn asking(client: &Client, caller: AgentCaller) -> Result<String> {
    let task = caller.begin("waits", "take me there")?;
    let asks = json!({
        "step_id": "answer", "status": "blocked", "wait_kind": "input",
        "reason": {"code": "question", "message": "where to?"},
    });
    wait(client.change(&task, "task_update_step", &asks, PATIENCE))?;
    until("the agent asks", PATIENCE, || {
        Ok(caller.get("waits", &task)?["status"]["state"] == ASKS)
    })?;
    Ok(task)
}

/// The messages that have reopened a Step of a task, as their references.
fn answers(client: &Client, task: &str) -> Result<Vec<String>> {
    let reopened = client.log(task, PATIENCE)?.events("task_step_reopened");
    Ok(reopened.iter().map(|event| event["payload"]["input_refs"].to_string()).collect())
}

/// Two callers answer at once, each at a gateway of its own. One goes on with the task. The other one is refused,
/// or comes late to a task that is at work again.
fn answer_at_once(client: &Client, task: &str, callers: [AgentCaller; 2]) -> Result<()> {
    let at_once = Barrier::new(callers.len());
    let answer = |caller: AgentCaller, text| {
        at_once.wait();
        caller.ask("waits", "SendMessage", &follow_up(task, text))
    };
    let (north, south) = scope(|scope| {
        let south = scope.spawn(|| answer(callers[1], "south"));
        (answer(callers[0], "north"), south.join())
    });
    let south = south.map_err(|_| anyhow!("a caller has failed"))?;
    let taken = answers(client, task)?;
    ensure!(taken.len() == 1, "{taken:#?}");
    let is_taken = ["north", "south"].map(|text| taken[0].contains(text));
    ensure!(is_taken[0] != is_taken[1], "{taken:#?}");
    for (answer, is_taken) in [north?, south?].iter().zip(is_taken) {
        let refused = answer.get("error").map(|error| &error["code"]);
        let is_late = refused.is_none_or(|code| *code == -32004);
        ensure!(refused.is_none() || (is_late && !is_taken), "{answer}, taken: {is_taken}");
    }
    Ok(())
}

/// A2A-10, A2A-11: an answer is taken once when two come at once to two gateways, and also when the scheduler
/// of the task has died meanwhile.
#[test]
fn a_question_gets_one_answer() -> Result<()> {
    on_agents(Plan { workers: 0, ..Plan::default() }, 0, |cluster, [one, two]| {
        let client = cluster.client("c")?;
        let twice = asking(&client, one.caller)?;
        let alone = asking(&client, one.caller)?;
        answer_at_once(&client, &twice, [one.caller, two.caller])?;

        let owner = cluster.owner_of(client.partition_of(&alone))?;
        cluster.schedulers[owner].kill()?;
        let after = two.caller.result("waits", "SendMessage", &follow_up(&alone, "north"))?;
        ensure!(after["task"]["status"]["state"] != ASKS, "{after}");
        cluster.add_worker(POOL, &cluster.url())?;
        for task in [twice, alone] {
            wait_ended(&client, &task)?;
            let shown = one.caller.get("waits", &task)?;
            ensure!(shown["status"]["state"] == COMPLETED, "{shown:#}");
            let taken = answers(&client, &task)?;
            ensure!(taken.len() == 1, "{taken:#?}");
        }
        Ok(())
    })
}

/// How often the Step of a message to `works` has begun to run.
fn runs(cluster: &Cluster, task: &str) -> usize {
    let of = format!("{task}.work.");
    cluster.traced().iter().filter(|line| line.starts_with(&of)).count()
}

fn wait_runs(cluster: &Cluster, task: &str) -> Result<()> {
    until("the step runs", PATIENCE, || Ok(runs(cluster, task) > 0)).map(drop)
}

/// A message to `works` was done once: one completion, and one artifact.
fn check_done_once(client: &Client, caller: AgentCaller, task: &str) -> Result<()> {
    let completed = client.log(task, PATIENCE)?.events("task_step_completed");
    let of_work = completed.iter().filter(|event| event["step_id"] == "work").count();
    ensure!(of_work == 1, "{completed:#?}");
    let shown = caller.get("works", task)?;
    ensure!(shown["status"]["state"] == COMPLETED, "{shown:#}");
    let artifacts = shown["artifacts"].as_array().context("no artifacts")?;
    ensure!(artifacts.len() == 1 && artifacts[0]["parts"][0]["data"] == 42, "{shown:#}");
    Ok(())
}

/// A2A-09, LEASE-14: a message is done once when Redis forgets everything meanwhile, and when its worker dies. Its
/// caller sees nothing of either.
#[test]
fn a_message_is_done_once_whatever_is_lost() -> Result<()> {
    on_agents(Plan::default(), 2, |cluster, [one, _]| {
        let client = cluster.client("c")?;
        let task = one.caller.begin("works", "do it")?;
        wait_runs(cluster, &task)?;
        // Until its worker has renewed it once, a lease may end on the way.
        sleep(Duration::from_secs(1));
        command(cluster.redis.port, &["FLUSHALL"])?;
        wait_ended(&client, &task)?;
        check_done_once(&client, one.caller, &task)?;
        ensure!(runs(cluster, &task) == 1, "{:?}", cluster.traced());
        lose_worker(cluster, &client, one.caller)
    })
}

fn lose_worker(cluster: &mut Cluster, client: &Client, caller: AgentCaller) -> Result<()> {
    let mut stream = caller.send_streaming("works", &json!({"message": message("do it")}))?;
    let task = id_of(&stream.next()?.context("no task")?.1["task"])?;
    wait_runs(cluster, &task)?;
    let log = client.log(&task, PATIENCE)?;
    let holds = |worker: &&mut Process| !log.held_by(worker.name()).is_empty();
    cluster.workers.iter_mut().find(holds).context("nobody has the step")?.kill()?;
    let mut said: Vec<String> = stream.rest()?.iter().map(|(_, update)| in_short(update)).collect();
    said.dedup();
    ensure!(said == ["working", "artifact output", "completed"], "{said:?}");
    ensure!(runs(cluster, &task) == 2, "{:?}", cluster.traced());
    check_done_once(client, caller, &task)
}

/// LEASE-03: a worker that is there keeps its Step, however often the time passes for which a lease is granted. A
/// lease here is long enough that a worker on a busy machine still renews it in time.
#[test]
fn a_message_that_outlasts_many_leases_is_done_once() -> Result<()> {
    on_agents(Plan { lease_ms: 4_000, ..Plan::default() }, 13, |cluster, [one, _]| {
        let client = cluster.client("c")?;
        let task = one.caller.begin("works", "take your time")?;
        wait_ended(&client, &task)?;
        check_done_once(&client, one.caller, &task)?;
        ensure!(runs(cluster, &task) == 1, "{:?}", cluster.traced());
        let claims = client.log(&task, PATIENCE)?.claims("work");
        ensure!(claims.len() == 1, "{claims:#?}");
        Ok(())
    })
}

/// FACT-01: callbacks to a receiver that is away wait for it. They come in order, and none is left out.
#[test]
fn callbacks_wait_for_their_receiver() -> Result<()> {
    on_agents(Plan { workers: 0, ..Plan::default() }, 0, |cluster, [one, two]| {
        let client = cluster.client("c")?;
        let (port, callbacks) = (free_port(), Callbacks::default());
        let receiver = CallbackReceiver::open(port, &callbacks)?;
        let options = json!({"taskPushNotificationConfig": receiver.config()});
        let asked = json!({"message": message("hello"), "configuration": options});
        let (first, shown) =
            one.caller.send_streaming("waits", &asked)?.next()?.context("no task")?;
        let task = id_of(&shown["task"])?;
        let notes = |of: [&str; 3]| of.iter().try_for_each(|text| note(&client, &task, text));
        notes(["a", "b", "c"])?;
        until("the receiver is called", PATIENCE, || Ok(callbacks.all().len() >= 3))?;
        drop(receiver);
        notes(["d", "e", "f"])?;
        cluster.add_worker(POOL, &cluster.url())?;
        wait_ended(&client, &task)?;
        sleep(Duration::from_secs(2)); // So long it is away.
        let _receiver = CallbackReceiver::open(port, &callbacks)?;
        // What carries the callbacks is a Task, too, and ends when all are there.
        until("all callbacks have come", PATIENCE, || Ok(client.live_tasks(PATIENCE)?.is_empty()))?;
        let mut came: Vec<Json> = Vec::new();
        for update in callbacks.all().drain(..) {
            if !came.contains(&update) {
                came.push(update);
            }
        }
        let all = two.caller.resume("waits", &task, &first)?.rest()?;
        let all: Vec<Json> = all.into_iter().map(|(_, update)| update).collect();
        ensure!(came == all, "{came:#?}\nis not\n{all:#?}");
        Ok(())
    })
}
