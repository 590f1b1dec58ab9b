//! A collector that is away, goes away, or never answers.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use nix::sys::signal::Signal;
use tenure_tests::binary::Ended;
use tenure_tests::cluster::process::Process;
use tenure_tests::cluster::servers::free_port;
use tenure_tests::cluster::tasks::{noop, task};
use tenure_tests::cluster::{Cluster, PATIENCE, Plan, on_cluster, until};
use tenure_tests::otlp::{Got, Protocol, Receiver, Span, environment};

use crate::run;

/// An address where nobody listens.
fn nobody() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, free_port()).into()
}

/// An address where somebody takes every connection, and never says anything.
fn silent() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || listener.incoming().collect::<Vec<_>>()); // They stay open.
    Ok(address)
}

/// How often it is said that the collector did not take something.
pub(crate) fn warnings(ended: &Ended) -> usize {
    let said = "warning: the collector of telemetry did not take everything: ";
    ended.stderr.lines().filter(|line| line.starts_with(said)).count()
}

/// What telemetry may cost a run whose collector is dead: it is waited for once, at the end.
const DELAY_MAX: Duration = Duration::from_secs(8);

#[test]
fn a_dead_collector_fails_no_run_and_holds_it_up_for_a_moment_only() -> Result<()> {
    for protocol in [Protocol::Grpc, Protocol::Http] {
        let dir = tempfile::tempdir()?;
        let begun = Instant::now();
        run::run(dir.path(), &[])?;
        let without = begun.elapsed();
        for address in [nobody(), silent()?] {
            let dir = tempfile::tempdir()?;
            let begun = Instant::now();
            let ended = run::run(dir.path(), &environment(protocol, address))?;
            let with = begun.elapsed();
            println!("{protocol:?}: {with:?} instead of {without:?}; {}", ended.stderr);
            ensure!(with < without + DELAY_MAX, "{with:?} instead of {without:?}");
            ensure!(warnings(&ended) == 1, "it is to be said once: {}", ended.stderr);
        }
    }
    Ok(())
}

/// How long whoever is told to stop may take: less than an export may.
const END_MAX: Duration = Duration::from_secs(9);

fn stop(process: &mut Process) -> Result<()> {
    process.signal(Signal::SIGTERM)?;
    let status = process.end(END_MAX)?;
    ensure!(status.success(), "{}: {status}", process.name());
    Ok(())
}

#[test]
fn a_collector_that_never_answers_holds_up_no_work_no_end_and_no_takeover() -> Result<()> {
    for protocol in [Protocol::Grpc, Protocol::Http] {
        let environment = environment(protocol, silent()?);
        let plan = Plan { schedulers: 2, workers: 1, environment, ..Plan::default() };
        on_cluster(plan, |cluster| {
            let client = cluster.client("c")?;
            let make = |id: &str| client.create(&task(id, &[noop("a", &[]), noop("b", &["a"])]));
            let ended = |id: &str| {
                until(id, PATIENCE, || Ok(client.log(id, PATIENCE)?.has_ended())).map(drop)
            };
            let all: Vec<_> = (0..20).map(|n| format!("t{n}")).collect();
            all.iter().try_for_each(|id| make(id))?;
            all.iter().try_for_each(|id| ended(id))?;
            // Long enough that how far logs are out waits for traces that nobody takes.
            std::thread::sleep(Duration::from_secs(2));
            let victim = cluster.owner_of(client.partition_of("after"))?;
            stop(&mut cluster.schedulers[victim])?;
            cluster.schedulers.remove(victim);
            make("after")?;
            ended("after")?;
            stop(&mut cluster.workers[0])
        })?;
    }
    Ok(())
}

fn said(cluster: &Cluster, what: &str) -> usize {
    let log = std::fs::read_to_string(cluster.dir().join("n0.log")).unwrap_or_default();
    log.lines().filter(|line| line.contains(what)).count()
}

/// The spans in the trace of a Task.
fn spans_of<'a>(got: &'a Got, id: &str) -> Vec<&'a Span> {
    let of_task = got.spans.iter().find(|it| it.is_task() && it.get("tenure.task.id") == id);
    let Some(of_task) = of_task else { return Vec::new() };
    got.spans.iter().filter(|span| span.trace == of_task.trace).collect()
}

#[test]
fn a_collector_that_is_away_is_reported_once_and_once_when_it_is_back() -> Result<()> {
    let address = nobody();
    let environment = environment(Protocol::Http, address);
    let plan = Plan { schedulers: 1, workers: 1, environment, ..Plan::default() };
    on_cluster(plan, |cluster| {
        let client = cluster.client("c")?;
        until("it is said", PATIENCE, || Ok(said(cluster, "does not take what it is sent") > 0))?;
        for n in 0..20 {
            client.create(&task(&format!("t{n}"), &[noop("a", &[])]))?;
        }
        let steps: Vec<_> = (0..300).map(|n| format!("s{n}")).collect();
        let steps: Vec<_> = steps.iter().map(|id| noop(id, &[])).collect();
        client.create(&task("large", &steps))?; // Its spans are more than one export has.
        std::thread::sleep(Duration::from_secs(2)); // Several more exports fail.
        ensure!(said(cluster, "does not take what it is sent") == 1);
        ensure!(said(cluster, "is back") == 0);
        let receiver = Receiver::start_at(Protocol::Http, address)?;
        until("it is back", PATIENCE, || Ok(said(cluster, "is back") > 0))?;
        client.create(&task("after", &[noop("a", &[])]))?;
        let ids: Vec<_> = (0..20).map(|n| format!("t{n}")).chain(["after".into()]).collect();
        let got = receiver.wait("the traces of before and after", PATIENCE, |got| {
            ids.iter().all(|id| spans_of(got, id).len() >= 5)
                && spans_of(got, "large").len() >= 1_201
        })?;
        for id in ids.iter().map(String::as_str).chain(["large"]) {
            let all: BTreeSet<_> = spans_of(&got, id).iter().map(|span| &span.id).collect();
            ensure!(all.len() == spans_of(&got, id).len(), "a span of {id} came twice");
        }
        let dropped = got.total("tenure.telemetry.dropped", Some(("tenure.signal", "traces")));
        ensure!(dropped == 0.0, "{dropped} spans were dropped");
        ensure!(said(cluster, "does not take what it is sent") == 1);
        Ok(())
    })
}
