//! A worker in another language, written from docs/protocol.md alone.

use std::ffi::OsStr;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;
use serde_json::{Value as Json, json};
use tenure_tests::binary::{Running, tenure};
use tenure_tests::cluster::client::{command, wait};
use tenure_tests::cluster::process::Process;
use tenure_tests::cluster::python::{example, python};
use tenure_tests::cluster::tasks::task;
use tenure_tests::cluster::{Cluster, PATIENCE, Plan, on_cluster, until};
use tenure_tests::otlp::{Protocol, Receiver, Span};

use crate::common::{now_ms, wait_claimed_again, wait_ended};

const POOL: &str = "python";

/// A worker with one handler more, which answers what its spans are to go below.
const WITH_ANOTHER_HANDLER: &str = "
import argparse, asyncio, sys
from worker import Worker, traceparent
async def above(given): return traceparent.get()
nats, user, pool = sys.argv[1:]
options = argparse.Namespace(nats=nats, cluster='TENURE', user=user, pool=pool, concurrency=2)
asyncio.run(Worker(options, {'above': above}).run())
";

fn worker(cluster: &Cluster, name: &str) -> Result<Process> {
    let (program, url) = (example()?.join("worker.py"), cluster.url());
    let told = ["--nats", &url, "--user", name, "--pool", POOL].map(OsStr::new);
    python(cluster, name, &[&[program.as_os_str()], &told[..]].concat())
}

fn step(id: &str, handler: &str, input: &Json, parents: &[&str]) -> Json {
    let input = json!({"content_type": "application/json", "data": input.to_string()});
    json!({"step_id": id, "title": id, "summary": "", "depends_on_step_ids": parents,
           "worker_pool_id": POOL, "handler": handler, "input": input})
}

/// CTRL-01
#[test]
fn a_worker_in_another_language_runs_steps_and_is_replaced_when_it_dies() -> Result<()> {
    on_cluster(Plan { workers: 0, ..Plan::default() }, |cluster| {
        let client = cluster.client("c")?;
        let mut one = worker(cluster, "py1")?;
        let done = (|| {
            let said = json!({"said": "hello"});
            let steps = [
                step("first", "echo", &said, &[]),
                step("second", "sleep", &json!({"ms": 50}), &["first"]),
            ];
            client.create(&task("spoken", &steps))?;
            wait_ended(&client, "spoken")?;
            let completed = client.log("spoken", PATIENCE)?.events("task_step_completed");
            let output = completed[0]["payload"]["output"]["data"].as_str().context("no output")?;
            ensure!(serde_json::from_str::<Json>(output)? == said, "{completed:#?}");

            client.create(&task("dies", &[step("long", "sleep", &json!({"ms": 4_000}), &[])]))?;
            until("it is claimed", PATIENCE, || {
                Ok(!client.log("dies", PATIENCE)?.claims("long").is_empty())
            })?;
            let two = worker(cluster, "py2")?;
            one.kill()?;
            let killed = now_ms()?;
            let after = wait_claimed_again(&client, "dies", &["long".into()], killed)?;
            ensure!(after <= i64::try_from(cluster.plan.lease_ms)? + 2_000, "after {after} ms");
            wait_ended(&client, "dies")?;
            two.signal(Signal::SIGTERM)?;
            let mut two = two;
            let status = two.end(PATIENCE)?;
            ensure!(status.success(), "{status}");
            Ok(())
        })();
        if done.is_err() {
            println!("{}", one.tail());
        }
        done
    })
}

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// What a handler finds that its spans go below, in a Task that its maker put below a span of its own.
fn above(cluster: &Cluster) -> Result<String> {
    let client = cluster.client("c")?;
    let url = cluster.url();
    let told = ["-c", WITH_ANOTHER_HANDLER, &url, "py1", POOL].map(OsStr::new);
    let worker = python(cluster, "py1", &told)?;
    let done = (|| {
        let input = task("traced", &[step("a", "above", &Json::Null, &[])]);
        let mut body = command("task_create", None, &input);
        body["trace"] = format!("00-{TRACE}-00f067aa0ba902b7-01").into();
        wait(client.ask_of("traced", &body, PATIENCE))?;
        cluster.records.created("traced", &[]);
        wait_ended(&client, "traced")?;
        let completed = client.log("traced", PATIENCE)?.events("task_step_completed");
        let output = completed[0]["payload"]["output"]["data"].as_str().context("no output")?;
        Ok(serde_json::from_str(output)?)
    })();
    if done.is_err() {
        println!("{}", worker.tail());
    }
    done
}

#[test]
fn a_handler_in_another_language_knows_the_span_of_its_attempt() -> Result<()> {
    let receiver = Receiver::start(Protocol::Http)?;
    let environment = receiver.environment();
    on_cluster(Plan { schedulers: 1, workers: 0, environment, ..Plan::default() }, |cluster| {
        let above = above(cluster)?;
        let is_attempt = |span: &&Span| span.name.starts_with("attempt ");
        let got = receiver
            .wait("the trace", PATIENCE, |got| got.spans.iter().any(|span| is_attempt(&span)))?;
        let attempt = got.spans.iter().find(is_attempt).context("no span")?;
        ensure!(above == format!("00-{TRACE}-{}-01", attempt.id), "{above}: {attempt:?}");
        ensure!(attempt.trace == TRACE, "{attempt:?}");
        Ok(())
    })
}

#[test]
fn where_no_traces_are_sent_a_handler_knows_the_span_of_whoever_made_the_task() -> Result<()> {
    on_cluster(Plan { schedulers: 1, workers: 0, ..Plan::default() }, |cluster| {
        let above = above(cluster)?;
        ensure!(above == format!("00-{TRACE}-00f067aa0ba902b7-01"), "{above}");
        Ok(())
    })
}

/// A worker whose handler has a name that is none.
const WITH_A_BAD_NAME: &str = "
import argparse, asyncio, sys
from worker import Worker
async def send(given): return given
nats, user, pool = sys.argv[1:]
options = argparse.Namespace(nats=nats, cluster='TENURE', user=user, pool=pool, concurrency=2)
asyncio.run(Worker(options, {'sendEmail': send}).run())
";

/// CTRL-09: it is told why it gets no work, ends with that, and whoever looks for workers sees it.
#[test]
fn a_worker_in_another_language_that_cannot_be_taken_says_why() -> Result<()> {
    on_cluster(Plan { schedulers: 1, workers: 0, ..Plan::default() }, |cluster| {
        let url = cluster.url();
        let told = ["-c", WITH_A_BAD_NAME, &url, "py1", POOL].map(OsStr::new);
        let mut worker = python(cluster, "py1", &told)?;
        let status = worker.end(PATIENCE)?;
        let says = worker.tail();
        ensure!(status.code() == Some(1), "{status}: {says}");
        ensure!(says.contains("handlers") && says.contains("sendEmail"), "{says}");
        let mut list = Command::new(tenure()?);
        list.args(["worker", "list", "--nats", &url, "--name", "c"]).current_dir(cluster.dir());
        let listed = Running::start(&mut list)?.end(PATIENCE)?;
        ensure!(listed.status.success() && listed.stdout.contains("refused"), "{listed:?}");
        ensure!(listed.stderr.contains("sendEmail"), "{listed:?}");
        Ok(())
    })
}
