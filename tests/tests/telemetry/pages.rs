//! The pages of a scheduler and of a worker for Prometheus and for probes, without any collector.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;
use tenure_tests::binary::tenure;
use tenure_tests::cluster::tasks::{exec, noop, sleep, task};
use tenure_tests::cluster::{Cluster, PATIENCE, Plan, on_cluster, until};
use tenure_tests::otlp::{Protocol, Receiver, Span};

use crate::cluster::of_trace;

/// Where a process says that it serves its metrics.
fn address_of(cluster: &Cluster, process: &str) -> Result<String> {
    let log = std::fs::read_to_string(cluster.dir().join(format!("{process}.log")))?;
    let after = log.split("metrics are served at http://").nth(1).context("it serves none")?;
    Ok(after.split('/').next().unwrap_or_default().to_owned())
}

/// The status and the body of a page.
fn page(address: &str, path: &str) -> Result<(u16, String)> {
    page_with("", address, path)
}

/// The same for who has a token.
fn page_for(token: &str, address: &str, path: &str) -> Result<(u16, String)> {
    page_with(&format!("authorization: Bearer {token}\r\n"), address, path)
}

/// The same for a reader who accepts a media type.
fn page_as(address: &str, path: &str, accepts: &str) -> Result<(u16, String)> {
    page_with(&format!("accept: {accepts}\r\n"), address, path)
}

/// The same with a further line of the head.
fn page_with(line: &str, address: &str, path: &str) -> Result<(u16, String)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {address}\r\n{line}connection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let status = answer.split(' ').nth(1).context("no status")?.parse()?;
    let (_, body) = answer.split_once("\r\n\r\n").context("no body")?;
    Ok((status, body.to_owned()))
}

/// The value of a sample that begins so.
fn value(text: &str, sample: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with(sample))?;
    line.rsplit_once(' ')?.1.parse().ok()
}

#[test]
fn schedulers_and_workers_serve_their_metrics_and_say_whether_they_work() -> Result<()> {
    let environment = vec![("TENURE_METRICS", "127.0.0.1:0".into())];
    let plan = Plan { schedulers: 1, workers: 1, environment, ..Plan::default() };
    on_cluster(plan, |cluster| {
        let client = cluster.client("c")?;
        client.create(&task("done", &[noop("a", &[]), exec("b", &[], "echo kept")]))?;
        until("done", PATIENCE, || Ok(client.log("done", PATIENCE)?.has_ended()))?;
        client.create(&task("runs", &[sleep("a", &[], 60_000)]))?;
        let (node, worker) = (address_of(cluster, "n0")?, address_of(cluster, "w0")?);
        for address in [&node, &worker] {
            ensure!(page(address, "/livez")?.0 == 200 && page(address, "/readyz")?.0 == 200);
            ensure!(page(address, "/v1/tasks")?.0 == 404, "it is no gateway");
        }
        until("the worker is busy", PATIENCE, || {
            let (_, text) = page(&worker, "/metrics")?;
            Ok(value(&text, "tenure_worker_running{tenure_pool=\"default\"}") == Some(1.0))
        })?;
        let (status, of_worker) = page(&worker, "/metrics")?;
        ensure!(status == 200);
        let slots = value(&of_worker, "tenure_worker_slots{tenure_pool=\"default\"}");
        ensure!(slots == Some(cluster.plan.concurrency as f64), "{slots:?}");
        until("the files of commands are counted", PATIENCE, || {
            let (_, text) = page(&worker, "/metrics")?;
            let files = value(&text, "tenure_worker_files{tenure_pool=\"default\"}");
            let bytes = value(&text, "tenure_worker_files_size_bytes{tenure_pool=\"default\"}");
            Ok(files >= Some(1.0) && bytes >= Some("kept\n".len() as f64))
        })?;
        let (_, of_node) = page(&node, "/metrics")?;
        for (sample, least) in [
            ("tenure_pool_running{tenure_pool=\"default\"}", 1.0),
            ("tenure_pool_desired{tenure_pool=\"default\"}", 1.0),
            ("tenure_tasks_created_total", 2.0),
            ("tenure_nats_connected", 1.0),
            ("tenure_scheduler_running", 1.0),
            ("tenure_journal_append_duration_seconds_count", 1.0),
            ("process_cpu_time_seconds_total{cpu_mode=\"user\"}", 0.0),
            ("tenure_build_info{service_version=", 1.0),
        ] {
            let value = value(&of_node, sample);
            ensure!(value.is_some_and(|value| value >= least), "{sample}: {value:?}\n{of_node}");
        }
        ensure!(of_node.contains("service_name=\"tenure-scheduler\""), "{of_node}");
        // Without NATS both live, and neither does its work.
        cluster.nats.process.kill()?;
        let is_unready = |address: &str| Ok::<_, anyhow::Error>(page(address, "/readyz")?.0 == 503);
        until("the scheduler is not ready", PATIENCE, || is_unready(&node))?;
        until("the worker is not ready", PATIENCE, || is_unready(&worker))?;
        ensure!(page(&node, "/livez")?.0 == 200 && page(&worker, "/livez")?.0 == 200);
        let (_, text) = page(&node, "/metrics")?;
        ensure!(value(&text, "tenure_nats_connected") == Some(0.0), "{text}");
        cluster.nats.restart()?;
        until("the scheduler is ready again", PATIENCE, || Ok(page(&node, "/readyz")?.0 == 200))?;
        until("the worker is ready again", PATIENCE, || Ok(page(&worker, "/readyz")?.0 == 200))?;
        client.cancel("runs")
    })
}

/// Tokens, and their digests.
const ONE: (&str, &str) =
    ("t0ken-one", "737731f3dd426ab315d58aff3992f115f4bd82733478cde1a0bae3ffa9067315");
const TWO: (&str, &str) =
    ("t0ken-two", "22a2d25f2d230749b3f7e00dc671115736779079bcae756d0f6abddd5d103f65");

/// Who may read metrics is read again on SIGHUP, as with any file of callers; without that signal processes go on.
#[test]
fn callers_of_metrics_are_read_again() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("callers.toml");
    let let_in = |(_, digest): (&str, &str)| {
        std::fs::write(
            &file,
            format!(
                "[[tokens]]\nsha256 = \"{digest}\"\nprincipal = \"prometheus\"\nrole = \"observer\"\n"
            ),
        )
    };
    let_in(ONE)?;
    let environment = vec![
        ("TENURE_METRICS", "127.0.0.1:0".into()),
        ("TENURE_METRICS_CALLERS", file.display().to_string()),
    ];
    let plan = Plan { schedulers: 1, workers: 1, environment, ..Plan::default() };
    on_cluster(plan, |cluster| {
        let pages = [address_of(cluster, "n0")?, address_of(cluster, "w0")?];
        let status = |(token, _): (&str, &str), page| {
            Ok::<_, anyhow::Error>(page_for(token, page, "/metrics")?.0)
        };
        for address in &pages {
            ensure!(page(address, "/livez")?.0 == 200 && page(address, "/metrics")?.0 == 401);
            ensure!(status(ONE, address)? == 200 && status(TWO, address)? == 401);
        }
        let_in(TWO)?;
        cluster.schedulers[0].signal(Signal::SIGHUP)?;
        cluster.workers[0].signal(Signal::SIGHUP)?;
        for address in &pages {
            until("the new one counts", PATIENCE, || Ok(status(TWO, address)? == 200))?;
            ensure!(status(ONE, address)? == 401, "{address}");
        }
        Ok(())
    })
}

/// From a slow bucket to the trace and the span that a collector has.
#[test]
fn histograms_name_traces_to_readers_of_open_metrics() -> Result<()> {
    let receiver = Receiver::start(Protocol::Http)?;
    let environment = [receiver.environment(), vec![("TENURE_METRICS", "127.0.0.1:0".into())]];
    let plan =
        Plan { schedulers: 1, workers: 1, environment: environment.concat(), ..Plan::default() };
    on_cluster(plan, |cluster| {
        let client = cluster.client("c")?;
        client.create(&task("slow", &[sleep("a", &[], 300)]))?;
        until("it ends", PATIENCE, || Ok(client.log("slow", PATIENCE)?.has_ended()))?;
        receiver.wait("the trace", PATIENCE, |got| !of_trace(got, "slow").is_empty())?;
        let spans = of_trace(&receiver.got(), "slow");
        let node = address_of(cluster, "n0")?;
        let (_, text) = page_as(&node, "/metrics", "application/openmetrics-text")?;
        ensure!(text.ends_with("# EOF\n"), "{text}");
        for histogram in
            ["tenure_step_queue_duration", "tenure_step_run_duration", "tenure_task_duration"]
        {
            let line =
                text.lines().find(|line| line.starts_with(histogram) && line.contains(" # "));
            let (_, exemplar) = line.and_then(|it| it.split_once(" # ")).context(histogram)?;
            let leads = |span: &Span| {
                exemplar.starts_with(&format!(
                    "{{trace_id=\"{}\",span_id=\"{}\"}} ",
                    span.trace, span.id
                ))
            };
            ensure!(spans.iter().any(leads), "{exemplar}: {spans:?}");
        }
        let (_, plain) = page(&node, "/metrics")?;
        ensure!(!plain.contains("trace_id"), "{plain}");
        Ok(())
    })
}

/// Whoever is not on this machine has to say who it is, as at any gateway.
#[test]
fn a_page_for_other_machines_needs_to_know_its_callers() -> Result<()> {
    let mut command = Command::new(tenure()?);
    command.args(["worker", "--nats", "nats://127.0.0.1:1", "--metrics", "0.0.0.0:0"]);
    let ended = command.output()?;
    let said = String::from_utf8_lossy(&ended.stderr);
    ensure!(ended.status.code() == Some(2), "{:?}: {said}", ended.status);
    ensure!(said.contains("--metrics-callers"), "{said}");
    Ok(())
}
