//! A cluster in which workers and schedulers die.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::StreamExt as _;
use serde_json::Value as Json;
use tenure_tests::cluster::client::{Client, command, wait};
use tenure_tests::cluster::tasks::{exec, noop, task};
use tenure_tests::cluster::{Cluster, PATIENCE, Plan, on_cluster, until};
use tenure_tests::otlp::{Got, Point, Protocol, Receiver, Record, Span};
use tokio::time::timeout;

use crate::history::History;

pub(crate) fn of_trace(got: &Got, id: &str) -> Vec<Span> {
    let is_root = |span: &&Span| span.is_task() && span.get("tenure.task.id") == id;
    let Some(root) = got.spans.iter().find(is_root) else { return Vec::new() };
    let mut spans: Vec<_> = got.spans.iter().filter(|it| it.trace == root.trace).cloned().collect();
    spans.sort_by(|a, b| a.id.cmp(&b.id));
    spans
}

pub(crate) fn history(client: &Client, id: &str) -> Result<History> {
    History::of(&client.log(id, PATIENCE)?.events(""))
}

/// A trace of whoever makes a Task.
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// Makes a Task below a span of that trace.
fn create_below(cluster: &Cluster, client: &Client, input: &Json) -> Result<()> {
    let id = input["task_id"].as_str().context("a task without an id")?;
    let mut body = command("task_create", None, input);
    body["trace"] = format!("00-{TRACE}-00f067aa0ba902b7-01").into();
    wait(client.ask_of(id, &body, PATIENCE))?;
    cluster.records.created(id, &[]);
    Ok(())
}

fn wait_ended(client: &Client, id: &str) -> Result<()> {
    until(id, PATIENCE, || Ok(client.log(id, PATIENCE)?.has_ended())).map(|_| ())
}

#[test]
fn a_task_whose_worker_and_scheduler_were_killed_is_one_trace_with_the_times_of_its_log()
-> Result<()> {
    let receiver = Receiver::start(Protocol::Grpc)?;
    let environment = receiver.environment();
    let plan = Plan { schedulers: 2, lease_ms: 6_000, environment, ..Plan::default() };
    on_cluster(plan, |cluster| {
        let client = cluster.client("c")?;
        let steps: Vec<_> = (0..4).map(|n| exec(&format!("s{n}"), &[], "sleep 4")).collect();
        let all: Vec<_> = (0..4).map(|n| format!("s{n}")).collect();
        let parents: Vec<&str> = all.iter().map(String::as_str).collect();
        let last = noop("last", &parents);
        client.create(&task("through", &[steps, vec![last]].concat()))?;
        until("the steps run", PATIENCE, || Ok(cluster.traced().len() >= 4))?;
        let held = client.log("through", PATIENCE)?.held_by("w0");
        ensure!(!held.is_empty(), "the worker to be killed has nothing");
        cluster.workers[0].kill()?;
        let victim = cluster.owner_of(client.partition_of("through"))?;
        cluster.schedulers[victim].kill()?;
        cluster.schedulers.remove(victim);
        wait_ended(&client, "through")?;
        let history = history(&client, "through")?;
        let lost = history.attempts.iter().filter(|it| it.end == "task_step_lease_expired");
        ensure!(lost.count() >= held.len(), "{:?}", history.attempts);
        receiver.wait("the trace", PATIENCE, |got| !of_trace(got, "through").is_empty())?;
        std::thread::sleep(Duration::from_millis(500)); // What comes twice is the same.
        let spans = of_trace(&receiver.got(), "through");
        history.check(&spans)?;
        let got = receiver.wait("lost attempts", PATIENCE, |got| {
            let lost = got.total("tenure.attempts.ended", Some(("tenure.outcome", "lost")));
            lost >= held.len() as f64
                && got.total("tenure.partitions.takeover.duration", None) > 0.0
        })?;
        let late = got.total("tenure.leases.expiry.lateness", None);
        ensure!(late >= held.len() as f64, "{late} leases ended late");
        for metric in ["tenure.journal.frame.commits", "tenure.worker.heartbeat.duration"] {
            ensure!(got.total(metric, None) > 0.0, "{metric} did not come");
        }
        let has_run = |point: &Point| point.name == "tenure.pool.running" && point.value > 0.0;
        ensure!(got.points.iter().any(has_run), "no attempt was open");
        ensure!(!got.newest("tenure.pool.ready").is_empty(), "nobody says what is ready");
        let calls: BTreeSet<_> = got
            .newest("tenure.leases.call.duration")
            .iter()
            .filter_map(|point| point.attributes.get("tenure.lease.call").cloned())
            .collect();
        for call in ["acquire", "renew", "release", "scan", "own"] {
            ensure!(calls.contains(call), "{calls:?}");
        }
        receiver.wait("requests, and who has gone", PATIENCE, |got| {
            let asked =
                |what| got.total("tenure.requests.duration", Some(("tenure.operation", what)));
            let parted = |why| got.total("tenure.workers.parted", Some(("tenure.reason", why)));
            let is_gone = parted("gone") + parted("silent") > 0.0;
            is_gone && asked("read_log") > 0.0 && asked("report") > 0.0
        })?;
        let about = got.records.iter().find(|it| it.body == "leases ended without a word");
        ensure!(about.context("no record of it")?.trace == spans[0].trace, "{about:?}");
        let names: BTreeSet<_> = got.records.iter().map(|it| it.body.as_str()).collect();
        ensure!(names.contains("partition served"), "{names:?}");
        Ok(())
    })
}

/// RECOVER-08, EVENT-05: what its node could tell nobody any more is told by the next.
#[test]
fn a_task_that_ended_right_before_its_scheduler_was_killed_is_told_of_and_is_a_trace() -> Result<()>
{
    let receiver = Receiver::start(Protocol::Grpc)?;
    let mut environment = receiver.environment();
    // Traces are gathered for longer than it takes to kill who has them.
    environment.push(("OTEL_BSP_SCHEDULE_DELAY", "15000".into()));
    let plan = Plan { schedulers: 2, workers: 1, environment, ..Plan::default() };
    on_cluster(plan, |cluster| {
        let client = cluster.client("c")?;
        // Nobody asks for its events: who makes them does not publish them.
        let published = client.nats().subscribe("tenure.v1.event.default.last.public");
        let mut published = wait(published)?;
        client.create(&task("last", &[noop("a", &[]), noop("b", &["a"])]))?;
        wait_ended(&client, "last")?;
        let victim = cluster.owner_of(client.partition_of("last"))?;
        cluster.schedulers[victim].kill()?;
        cluster.schedulers.remove(victim);
        let told = wait(async { timeout(PATIENCE, published.next()).await });
        let told: Json = rmp_serde::from_slice(&told?.context("nothing is told")?.payload)?;
        let last = told["events"].as_array().and_then(|events| events.last()).context("none")?;
        ensure!(told["status"] == "completed" && last["terminal"] == true, "{told}");
        ensure!(told["through"] == told["version"], "{told}");
        receiver.wait("the trace", PATIENCE, |got| !of_trace(got, "last").is_empty())?;
        history(&client, "last")?.check(&of_trace(&receiver.got(), "last"))
    })
}

#[test]
fn who_makes_a_task_may_put_it_below_a_span_of_its_own() -> Result<()> {
    let receiver = Receiver::start(Protocol::Http)?;
    let environment = receiver.environment();
    on_cluster(Plan { schedulers: 1, workers: 1, environment, ..Plan::default() }, |cluster| {
        let client = cluster.client("c")?;
        let make = |id: &str, flags: &str| -> Result<()> {
            let input = task(id, &[exec("a", &[], "echo $TRACEPARENT >> $TRACE.parents")]);
            let mut body = command("task_create", None, &input);
            body["trace"] = format!("00-{TRACE}-00f067aa0ba902b7-{flags}").into();
            wait(client.ask_of(id, &body, PATIENCE))?;
            cluster.records.created(id, &[]);
            wait_ended(&client, id)
        };
        make("unsampled", "00")?;
        make("sampled", "01")?;
        let enough = |got: &Got| !of_trace(got, "sampled").is_empty();
        let got = receiver.wait("the trace", PATIENCE, enough)?;
        let spans = of_trace(&got, "sampled");
        history(&client, "sampled")?.check(&spans)?;
        let root = spans.iter().find(|span| span.is_task()).context("no span of the task")?;
        ensure!(root.trace == TRACE && root.parent == "00f067aa0ba902b7", "{root:?}");
        ensure!(!got.spans.iter().any(|span| span.get("tenure.task.id") == "unsampled"));
        let parents = std::fs::read_to_string(cluster.dir().join("trace.parents"))?;
        let parents: Vec<&str> = parents.lines().collect();
        let is_attempt = |span: &&Span| span.name.starts_with("attempt ");
        let attempt = spans.iter().find(is_attempt).context("no span of the attempt")?;
        ensure!(parents.len() == 2 && parents[0].ends_with("-00"), "{parents:?}");
        ensure!(parents[1] == format!("00-{TRACE}-{}-01", attempt.id), "{parents:?}");
        Ok(())
    })
}

#[test]
fn what_a_worker_logs_of_a_task_is_in_the_trace_of_whoever_made_the_task() -> Result<()> {
    let receiver = Receiver::start(Protocol::Http)?;
    let environment = receiver.environment();
    let plan = Plan { schedulers: 1, workers: 2, lease_ms: 2_000, environment, ..Plan::default() };
    on_cluster(plan, |cluster| {
        let client = cluster.client("c")?;
        create_below(cluster, &client, &task("held", &[exec("a", &[], "sleep 8")]))?;
        let claims = || Ok::<_, anyhow::Error>(client.log("held", PATIENCE)?.claims("a").len());
        until("it runs", PATIENCE, || Ok(claims()? == 1))?;
        let holder = usize::from(!client.log("held", PATIENCE)?.held_by("w1").is_empty());
        cluster.workers[holder].pause()?;
        until("another has it", PATIENCE, || Ok(claims()? == 2))?;
        cluster.workers[holder].resume()?;
        let got = receiver.wait("what the worker says of it", PATIENCE, |got| {
            let is_worker = |it: &Record| it.resource["service.name"] == "tenure-worker";
            got.records.iter().any(|it| is_worker(it) && it.attributes.contains_key("task"))
        })?;
        for record in got.records.iter().filter(|it| it.attributes.contains_key("task")) {
            ensure!(record.trace == TRACE, "{record:?}");
        }
        wait_ended(&client, "held")
    })
}

#[test]
fn what_a_next_owner_logs_of_a_task_is_in_the_trace_of_whoever_made_the_task() -> Result<()> {
    let receiver = Receiver::start(Protocol::Grpc)?;
    let environment = receiver.environment();
    on_cluster(Plan { schedulers: 1, workers: 1, environment, ..Plan::default() }, |cluster| {
        let client = cluster.client("c")?;
        create_below(cluster, &client, &task("left", &[exec("a", &[], "sleep 1")]))?;
        let is_held = || Ok(!client.log("left", PATIENCE)?.held_by("w0").is_empty());
        until("it runs", PATIENCE, is_held)?;
        cluster.workers[0].kill()?;
        cluster.schedulers[0].kill()?;
        // It does not know the worker, and says so before it has given or written anything.
        cluster.schedulers[0].restart()?;
        let body = "leases ended without a word";
        let got = receiver.wait(body, PATIENCE, |got| got.records.iter().any(|it| it.body == body));
        let got = got?;
        let about = got.records.iter().find(|it| it.body == body).context("no record")?;
        ensure!(about.trace == TRACE, "{about:?}");
        cluster.workers[0].restart()?;
        wait_ended(&client, "left")
    })
}

#[test]
fn a_node_finds_its_collector_in_its_file_and_logs_lines_of_json() -> Result<()> {
    let (dir, receiver) = (tempfile::tempdir()?, Receiver::start(Protocol::Http)?);
    let file = dir.path().join("tenure.toml");
    let variables: Vec<_> = receiver
        .environment()
        .into_iter()
        .map(|(name, value)| format!("{name} = {value:?}\n"))
        .collect();
    std::fs::write(&file, format!("[telemetry]\n{}", variables.concat()))?;
    let environment = vec![
        ("TENURE_CONFIG", file.display().to_string()),
        ("TENURE_LOG_FORMAT", "json".to_owned()),
    ];
    on_cluster(Plan { schedulers: 1, workers: 1, environment, ..Plan::default() }, |cluster| {
        receiver.wait("partitions", PATIENCE, |got| {
            got.total("tenure.partitions.served", None) == f64::from(cluster.plan.partitions)
        })?;
        let got = receiver.got().clone();
        ensure!(got.points.iter().all(|it| it.resource["service.name"] == "tenure-scheduler"));
        let client = cluster.client("c")?;
        client.ends("fails", &["task_failed"]);
        client.create(&task("fails", &[exec("a", &[], "exit 3")]))?;
        wait_ended(&client, "fails")?;
        let log = std::fs::read_to_string(cluster.dir().join("n0.log"))?;
        let lines: Vec<Json> =
            log.lines().map(serde_json::from_str).collect::<serde_json::Result<_>>()?;
        let served = lines.iter().find(|line| line["message"] == "partition served");
        let served = served.with_context(|| format!("not in the log: {log}"))?;
        ensure!(served["level"] == "INFO" && served["partition"].is_u64(), "{served}");
        let failed: Vec<_> =
            lines.iter().filter(|line| line["message"] == "a step failed").collect();
        ensure!(failed.len() == 3, "each of three tries failed: {log}");
        for (ordinal, line) in (1..).zip(failed) {
            let worker = line["worker"].as_str().context("no worker")?;
            ensure!(worker.starts_with("w0."), "{line}");
            ensure!(line["task"] == "default/fails" && line["step"] == "a", "{line}");
            ensure!(line["handler"] == "exec" && line["code"] == "exit_status", "{line}");
            ensure!(line["level"] == "INFO" && line["attempt"] == ordinal, "{line}");
        }
        let said = lines
            .iter()
            .any(|line| line["message"].as_str().is_some_and(|said| said.ends_with(" serves")));
        ensure!(said, "what it says itself is no line of its log: {log}");
        Ok(())
    })
}
