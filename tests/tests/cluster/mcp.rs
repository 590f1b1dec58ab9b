//! Hosts of models that speak MCP, at gateways, schedulers, workers and servers that die.

use std::sync::Barrier;
use std::thread::{scope, sleep};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use serde_json::{Value as Json, json};
use tenure_tests::cluster::client::{Client, wait};
use tenure_tests::cluster::process::Process;
use tenure_tests::cluster::tasks::{TRACE, exec};
use tenure_tests::cluster::{Cluster, PATIENCE, POOL, Plan, on_cluster, until};

use crate::common::wait_ended;
use crate::gateways::gateway;
use crate::model::ModelCaller;

/// The tools of all gateways.
const TOOLS: &str = r#"
[[tools]]
name = "waits"
description = "Completes as soon as there is a worker."
handler = "noop"

[[tools]]
name = "works"
description = "Works for a while, and has a result."
template = "work.yaml"
input_to = "take"
"#;

/// After so long a worker has renewed the lease of its Step once: before that it may end on the way, and the Step
/// begins again.
const RENEWED: Duration = Duration::from_secs(1);

/// What becomes of a call of `works`: a Step that takes so long.
fn works(seconds: u32) -> String {
    let run = format!("{TRACE}; sleep {seconds}; echo 42 > $TENURE_OUTPUT");
    let steps = format!("{{take: {{noop: true}}, work: {{needs: take, run: '{run}'}}}}");
    format!("title: works\noutput_from: work\nsteps: {steps}\n")
}

/// A gateway, and those who speak to it: one that knows the extension Tasks, and one that waits.
struct Door {
    process: Process,
    tasks: ModelCaller,
    waits: ModelCaller,
}

impl Door {
    fn open(cluster: &Cluster, name: &str) -> Result<Self> {
        let (process, port) = gateway(cluster, name, &["--agents", "agents.toml"])?;
        let of = |knows_tasks| ModelCaller { port, knows_tasks };
        Ok(Self { process, tasks: of(true), waits: of(false) })
    }
}

/// Runs a test on a cluster of its own with two gateways, where a call of `works` takes so long.
fn on_tools(
    plan: Plan,
    seconds: u32,
    test: impl FnOnce(&mut Cluster, &mut [Door; 2]) -> Result<()>,
) -> Result<()> {
    on_cluster(plan, |cluster| {
        std::fs::write(cluster.dir().join("agents.toml"), TOOLS)?;
        std::fs::write(cluster.dir().join("work.yaml"), works(seconds))?;
        let mut doors = [Door::open(cluster, "g1")?, Door::open(cluster, "g2")?];
        let done = test(cluster, &mut doors);
        if done.is_err() {
            doors.iter().for_each(|door| println!("{}", door.process.tail()));
        }
        done
    })
}

/// Begins a call as a task of the extension, and returns its id.
fn begin(caller: ModelCaller, tool: &str, id: Option<&str>) -> Result<String> {
    let begun = caller.call(tool, json!({}), id)?;
    let task = begun["taskId"].as_str().with_context(|| format!("no task: {begun}"))?;
    Ok(task.to_owned())
}

/// How often the Step of a call of `works` has begun to run.
fn runs(cluster: &Cluster, task: &str) -> usize {
    let of = format!("{task}.work.");
    cluster.traced().iter().filter(|line| line.starts_with(&of)).count()
}

fn wait_runs(cluster: &Cluster, task: &str, count: usize) -> Result<()> {
    until("the step runs", PATIENCE, || Ok(runs(cluster, task) >= count)).map(drop)
}

/// A call of `works` was done once: its log has one completion of the Step, and its result is there at this gateway.
fn check_done_once(client: &Client, caller: ModelCaller, task: &str) -> Result<()> {
    let shown = caller.wait_for(task, "completed")?;
    let text = shown["result"]["content"][0]["text"].as_str().unwrap_or_default().trim();
    ensure!(text == "42", "{shown:#}");
    let completed = client.log(task, PATIENCE)?.events("task_step_completed");
    let of_work = completed.iter().filter(|event| event["step_id"] == "work").count();
    ensure!(of_work == 1, "{completed:#?}");
    Ok(())
}

/// IDEM-01, MACP-15's like for MCP: what is begun at one gateway is read, changed and finished at the other, also when
/// the first has been killed. A call that is repeated there under its id is the same call.
#[test]
fn a_call_goes_on_at_another_gateway() -> Result<()> {
    on_tools(Plan::default(), 2, |cluster, [one, two]| {
        let client = cluster.client("c")?;
        let begun = begin(one.tasks, "works", Some("c-1"))?;
        let cancelled = begin(one.tasks, "works", None)?;
        let steps = json!([{"step_id": "a", "title": "A", "handler": "noop"}]);
        let made = json!({"task_id": "made", "title": "T", "steps": steps, "command_id": "make"});
        let first = one.waits.done("task_create", made.clone())?;
        ensure!(two.waits.done("task_get", json!({"task_id": "made"}))?["task_id"] == "made");
        wait_runs(cluster, &begun, 1)?;
        one.process.kill()?;

        ensure!(two.tasks.task(&begun)?["status"] == "working");
        ensure!(begin(two.tasks, "works", Some("c-1"))? == begun, "the same call");
        two.tasks.result("tasks/cancel", json!({"taskId": cancelled}))?;
        let again = two.waits.done("task_create", made)?;
        ensure!(again["event_ids"] == first["event_ids"], "{again} is not {first}");
        let dispatch = json!({
            "task_id": "made", "worker_pool_id": POOL, "wait": true, "command_id": "send",
        });
        two.waits.done("dispatch_worker", dispatch)?;
        let complete = json!({"task_id": "made", "command_id": "end"});
        two.waits.done("task_complete", complete)?;
        check_done_once(&client, two.tasks, &begun)?;
        ensure!(runs(cluster, &begun) == 1, "{:?}", cluster.traced());
        two.tasks.wait_for(&cancelled, "cancelled")?;
        client.ends(&cancelled, &["task_cancelled"]);
        Ok(())
    })
}

/// Kills the owner of a Task, and starts it again.
fn kill_owner(cluster: &mut Cluster, client: &Client, task: &str) -> Result<()> {
    let owner = cluster.owner_of(client.partition_of(task))?;
    cluster.schedulers[owner].kill()?;
    cluster.schedulers[owner].restart()
}

/// Kills the worker that holds the Step of a call.
fn kill_worker(cluster: &mut Cluster, client: &Client, task: &str) -> Result<()> {
    let log = client.log(task, PATIENCE)?;
    let holds = |worker: &&mut Process| !log.held_by(worker.name()).is_empty();
    let holder = cluster.workers.iter_mut().find(holds).context("nobody has the step")?;
    holder.kill()?;
    holder.restart()
}

/// REPORT-16, LEASE-14: whatever is killed in the middle of a call, the call is done once, and its result is read at
/// another gateway.
#[test]
fn a_call_is_done_once_whatever_is_killed() -> Result<()> {
    on_tools(Plan::default(), 3, |cluster, [one, two]| {
        let client = cluster.client("c")?;
        for victim in ["gateway", "scheduler", "worker", "redis", "nats"] {
            let task = begin(one.tasks, "works", Some(victim))?;
            wait_runs(cluster, &task, 1)?;
            sleep(RENEWED);
            match victim {
                "gateway" => {
                    one.process.kill()?;
                    one.process.restart()?;
                }
                "scheduler" => kill_owner(cluster, &client, &task)?,
                "worker" => kill_worker(cluster, &client, &task)?,
                "redis" => {
                    cluster.redis.process.kill()?;
                    cluster.redis.restart()?; // It remembers nothing.
                }
                _ => {
                    cluster.nats.process.kill()?;
                    cluster.nats.restart()?;
                }
            }
            wait_ended(&client, &task).with_context(|| victim.to_owned())?;
            check_done_once(&client, two.tasks, &task).with_context(|| victim.to_owned())?;
            let ran = runs(cluster, &task);
            let most = if victim == "gateway" { 1 } else { 2 };
            ensure!((1..=most).contains(&ran), "{victim}: {ran} runs");
            ensure!(begin(two.tasks, "works", Some(victim))? == task, "{victim}: the same call");
            until("the gateway listens again", PATIENCE, || {
                Ok(one.waits.ask("tools/list", json!({})).is_ok())
            })?;
        }
        Ok(())
    })
}

/// A client that waits for its result loses its gateway: the Task goes on, and the same call at another gateway waits
/// for that Task.
#[test]
fn a_call_that_waits_is_repeated_at_another_gateway() -> Result<()> {
    on_tools(Plan { lease_ms: 15_000, ..Plan::default() }, 3, |cluster, [one, two]| {
        let client = cluster.client("c")?;
        let call = json!({
            "name": "works", "arguments": {}, "_meta": {"dev.tenure/command_id": "w"},
        });
        let waiting = one.waits.send("tools/call", call.clone())?;
        let task = begin(two.tasks, "works", Some("w"))?;
        wait_runs(cluster, &task, 1)?;
        sleep(RENEWED);
        one.process.kill()?;
        drop(waiting);
        let owner = cluster.owner_of(client.partition_of(&task))?;
        cluster.schedulers[owner].kill()?;
        let result = two.waits.result("tools/call", call)?;
        ensure!(result["content"][0]["text"].as_str().map(str::trim) == Some("42"), "{result}");
        check_done_once(&client, two.tasks, &task)?;
        ensure!(runs(cluster, &task) == 1, "{:?}", cluster.traced());
        cluster.schedulers[owner].restart()
    })
}

/// IDEM-01, DISP-16: calls of an orchestrator that are repeated at another gateway, as gateway and scheduler die in the
/// middle of them, take effect once.
#[test]
fn the_calls_of_an_orchestrator_take_effect_once() -> Result<()> {
    on_tools(Plan { lease_ms: 15_000, ..Plan::default() }, 1, |cluster, [one, two]| {
        let client = cluster.client("c")?;
        let steps = json!([exec("a", &[], "sleep 4"), exec("b", &["a"], "true")]);
        let made = json!({"task_id": "steered", "title": "T", "steps": steps});
        one.waits.done("task_create", made)?;
        let send = json!({
            "task_id": "steered", "worker_pool_id": POOL, "allowed_step_ids": ["a"], "wait": true,
            "command_id": "send-a",
        });
        let params = json!({"name": "dispatch_worker", "arguments": send});
        let waiting = one.waits.send("tools/call", params)?;
        until("the step runs", PATIENCE, || Ok(!cluster.traced().is_empty()))?;
        sleep(RENEWED);
        one.process.kill()?;
        drop(waiting);
        kill_owner(cluster, &client, "steered")?;
        // The same dispatch waits for the Run that there is.
        two.waits.done("dispatch_worker", send)?;
        let late = json!({
            "task_id": "steered", "command_id": "more",
            "operations": [{"op": "add_step", "step": {"step_id": "c", "title": "C", "handler": "noop"}}],
        });
        let first = two.waits.done("task_update", late.clone())?;
        kill_owner(cluster, &client, "steered")?;
        let again = two.waits.done("task_update", late)?;
        ensure!(again["event_ids"] == first["event_ids"], "{again} is not {first}");
        for step in ["b", "c"] {
            let send = json!({
                "task_id": "steered", "worker_pool_id": POOL, "allowed_step_ids": [step],
                "wait": true, "command_id": format!("send-{step}"),
            });
            two.waits.done("dispatch_worker", send)?;
        }
        two.waits.done("task_complete", json!({"task_id": "steered", "command_id": "end"}))?;
        let log = client.log("steered", PATIENCE)?;
        let count = |kind: &str| log.events(kind).len();
        let counted =
            ["task_run_dispatched", "task_step_completed", "task_completed", "task_updated"];
        let counted = counted.map(count);
        ensure!(counted == [3, 3, 1, 1], "{counted:?}");
        Ok(())
    })
}

/// Two clients answer a question at once, each at a gateway of its own, and the scheduler dies: one answer counts.
#[test]
fn a_question_over_mcp_gets_one_answer() -> Result<()> {
    on_tools(Plan { workers: 0, ..Plan::default() }, 0, |cluster, [one, two]| {
        let client = cluster.client("c")?;
        let task = begin(one.tasks, "waits", None)?;
        let asks = json!({
            "step_id": "call", "status": "blocked", "wait_kind": "input",
            "reason": {"code": "input_required", "message": "where to?"},
        });
        wait(client.change(&task, "task_update_step", &asks, PATIENCE))?;
        let shown = two.tasks.wait_for(&task, "input_required")?;
        let asked = shown["inputRequests"].as_object().context("no questions")?;
        let key = asked.keys().next().context("no question")?.clone();
        let at_once = Barrier::new(2);
        let answer = |caller: ModelCaller, text: &str| {
            at_once.wait();
            let given = json!({"action": "accept", "content": {"answer": text}});
            let mut responses = json!({});
            responses[&key] = given;
            caller.ask("tasks/update", json!({"taskId": task, "inputResponses": responses}))
        };
        let (north, south) = scope(|scope| {
            let south = scope.spawn(|| answer(two.tasks, "south"));
            (answer(one.tasks, "north"), south.join())
        });
        let answers: [Json; 2] = [north?, south.map_err(|_| anyhow!("a caller has failed"))??];
        ensure!(answers.iter().any(|it| it.get("error").is_none()), "{answers:?}");
        kill_owner(cluster, &client, &task)?;
        cluster.add_worker(POOL, &cluster.url())?;
        wait_ended(&client, &task)?;
        two.tasks.wait_for(&task, "completed")?;
        let reopened = client.log(&task, PATIENCE)?.events("task_step_reopened");
        ensure!(reopened.len() == 1, "{reopened:#?}");
        Ok(())
    })
}
