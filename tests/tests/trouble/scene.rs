//! A cluster in which one Step runs and another waits for the only worker; who watches it; and what asks about it.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use async_nats::jetstream;
use nix::sys::signal::Signal;
use serde_json::Value as Json;
use tenure_tests::binary::{Ended, Running, tenure};
use tenure_tests::cluster::client::wait;
use tenure_tests::cluster::process::Process;
use tenure_tests::cluster::{Cluster, PATIENCE, Plan, until};
use tenure_tests::otlp::{Protocol, environment};

use crate::alerts::{Prometheus, PrometheusApi};
use crate::bridge::Bridge;
use crate::report::Answers;
use crate::troubles::Trouble;

/// How long leases last: a takeover takes less, so that the worker goes on.
const LEASE_MS: u64 = 10_000;

/// For how long a question is asked again: every other one may reach a scheduler that hangs.
const PATIENCE_OF_CLI: &str = "10s";

/// How far a clock is ahead.
const AHEAD_MS: i64 = 60_000;

/// How long it takes until rates say something.
const SETTLES: Duration = Duration::from_secs(3);

/// The cluster and its watchers.
pub(crate) struct Scene {
    pub(crate) cluster: Cluster,
    collector: Option<Bridge>,
    prometheus: Option<Prometheus>,
    /// Commands that go on while something is broken.
    asking: Vec<Process>,
}

impl Scene {
    /// Starts everything, and waits until it is as it should be; none: what the trouble needs is not here.
    pub(crate) fn start(trouble: &Trouble, has_alerts: bool) -> Result<Option<Self>> {
        let faketime = std::env::var_os("TENURE_TROUBLE_FAKETIME").filter(|_| trouble.sets_clock);
        if trouble.sets_clock && faketime.is_none() {
            return Ok(None);
        }
        let collector = has_alerts.then(Bridge::start).transpose()?;
        let address = collector.as_ref().map(|bridge| bridge.address);
        let environment = address.map(|at| environment(Protocol::Http, at)).unwrap_or_default();
        let faketime = faketime.map(Into::into);
        let (workers, concurrency, lease_ms) = (1, 1, LEASE_MS);
        let plan =
            Plan { workers, concurrency, lease_ms, environment, faketime, ..Plan::default() };
        let cluster = Cluster::start(plan)?;
        let prometheus = address.map(|at| Prometheus::start(cluster.dir(), at)).transpose()?;
        let scene = Self { cluster, collector, prometheus, asking: Vec::new() };
        let sound = scene.prepare();
        sound.inspect_err(|_| scene.print_tails())?;
        Ok(Some(scene))
    }

    fn prepare(&self) -> Result<()> {
        self.submit("busy", "{a: {run: sleep 600}}")?;
        until("it runs", PATIENCE, || Ok(self.reason("busy")?.as_deref() == Some("held")))?;
        self.submit("wait", "{a: {run: 'true'}}")?;
        let waits = Some("1 pool_saturated");
        until("it waits", PATIENCE, || Ok(self.waits()?.as_deref() == waits))?;
        let Some(prometheus) = &self.prometheus else { return Ok(()) };
        let served = f64::from(self.cluster.plan.partitions);
        let is_served = || Ok(prometheus.api.value("sum(tenure_partition_served)") == Some(served));
        until("the Prometheus knows that all is served", PATIENCE, is_served)?;
        std::thread::sleep(SETTLES); // Rates are of some seconds.
        Ok(())
    }

    /// Where alerts are asked for.
    pub(crate) fn alerts(&self) -> Result<PrometheusApi> {
        Ok(self.prometheus.as_ref().context("there is no Prometheus")?.api)
    }

    /// Hands in a Task.
    pub(crate) fn submit(&self, name: &str, steps: &str) -> Result<()> {
        let path = self.cluster.dir().join(format!("{name}.yaml"));
        std::fs::write(&path, format!("task_id: {name}\ntitle: {name}\nsteps: {steps}\n"))?;
        self.cluster.submit(&path, &[]).map(drop)
    }

    /// No stream of the log takes anything any more. Somebody tries for a while to have something written.
    pub(crate) fn fill_log(&mut self) -> Result<()> {
        let (url, partitions) = (self.cluster.url(), self.cluster.plan.partitions);
        wait(async {
            let context = jetstream::new(async_nats::connect(url).await?);
            for partition in 0..partitions {
                let mut stream = context.get_stream(format!("TENURE_WAL_{partition}")).await?;
                let mut config = stream.info().await?.config.clone();
                config.max_bytes = 1;
                context.update_stream(config).await?;
            }
            Ok::<_, anyhow::Error>(())
        })?;
        let mut command = self.command(&["task", "cancel", "wait", "--patience", "10s"])?;
        command.current_dir(self.cluster.dir());
        self.asking.push(Process::start("asking", self.cluster.dir(), command)?);
        Ok(())
    }

    /// A scheduler ends, as it should, and begins again by another clock. One that runs does not follow its clock.
    pub(crate) fn begin_ahead(&mut self) -> Result<()> {
        self.cluster.set_clock("n1", AHEAD_MS)?;
        let node = &mut self.cluster.schedulers[1];
        node.signal(Signal::SIGTERM)?;
        node.end(PATIENCE)?;
        node.restart()
    }

    /// Ends whoever takes the metrics.
    pub(crate) fn end_collector(&mut self) -> Result<()> {
        drop(self.collector.take());
        Ok(())
    }

    /// Asks until everything is told as it must be, or so much time has passed.
    pub(crate) fn until_told(&self, trouble: &Trouble, within: Duration) -> Result<Answers> {
        let begun = Instant::now();
        loop {
            let answers = self.answers(trouble.task)?;
            if answers.wrong(trouble).is_empty() || begun.elapsed() > within {
                return Ok(answers);
            }
        }
    }

    fn answers(&self, task: &str) -> Result<Answers> {
        let top = self.ask(&["top", "--once", "-o", "json", "--patience", PATIENCE_OF_CLI])?;
        let top: Option<Json> = serde_json::from_str(&top.stdout).ok();
        let mut nodes = top.iter().flat_map(|top| top["nodes"].as_array().into_iter().flatten());
        let has_silent_node = nodes.any(|node| node["state"] == "silent");
        let of_top = top.as_ref().and_then(|top| waits(&top["waits"]));
        let (doctor, explain, waits) = (self.doctor()?, self.reason(task)?, self.waits()?);
        Ok(Answers { doctor, explain, waits, of_top, has_silent_node })
    }

    /// What `tenure doctor` finds bad, and its exit code.
    fn doctor(&self) -> Result<(Vec<String>, i32)> {
        let redis = format!("redis://127.0.0.1:{}", self.cluster.redis.port);
        let partitions = self.cluster.plan.partitions.to_string();
        let args = ["doctor", "-o", "json", "--redis", &redis, "--partitions", &partitions];
        let ended = self.ask(&args)?;
        let found: Json =
            serde_json::from_str(&ended.stdout).with_context(|| format!("{ended:?}"))?;
        let findings = found["findings"].as_array().context("no findings")?.iter();
        let bad = findings.filter(|finding| finding["verdict"] == "bad");
        let names: BTreeSet<&str> = bad.filter_map(|finding| finding["check"].as_str()).collect();
        let names = names.into_iter().map(str::to_owned).collect();
        Ok((names, ended.status.code().context("doctor was killed")?))
    }

    /// The first reason for which the Step of a Task does not run; none: there is no answer.
    fn reason(&self, task: &str) -> Result<Option<String>> {
        let ended =
            self.ask(&["task", "explain", task, "a", "-o", "json", "--patience", PATIENCE_OF_CLI])?;
        let told: Option<Json> = serde_json::from_str(&ended.stdout).ok();
        Ok(told.and_then(|told| told["headline"].as_str().map(str::to_owned)))
    }

    /// What Steps wait for, as `tenure pool list` says it; none: there is no answer.
    fn waits(&self) -> Result<Option<String>> {
        let ended = self.ask(&["pool", "list", "-o", "json", "--patience", PATIENCE_OF_CLI])?;
        let told: Option<Json> = serde_json::from_str(&ended.stdout).ok();
        Ok(told.and_then(|told| waits(&told["waits"])))
    }

    fn command(&self, args: &[&str]) -> Result<Command> {
        let mut command = Command::new(tenure()?);
        command
            .args(args)
            .current_dir(self.cluster.dir())
            .env("TENURE_NATS_URL", self.cluster.url());
        Ok(command)
    }

    fn ask(&self, args: &[&str]) -> Result<Ended> {
        Running::start(&mut self.command(args)?)?.end(PATIENCE)
    }

    /// What every process said last.
    pub(crate) fn print_tails(&self) {
        self.cluster.print_tails();
        for process in self.prometheus.iter().map(|one| &one.process).chain(&self.asking) {
            println!("{}", process.tail());
        }
    }
}

/// `1 leases_unavailable, 2 pool_saturated`, in the order of the names.
fn waits(told: &Json) -> Option<String> {
    let all = told.as_object()?.iter().map(|(why, count)| format!("{count} {why}"));
    let mut all: Vec<String> = all.collect();
    all.sort_by(|a, b| a.split(' ').next_back().cmp(&b.split(' ').next_back()));
    Some(all.join(", "))
}
