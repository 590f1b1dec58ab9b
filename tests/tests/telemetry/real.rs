//! A collector that others have written takes all three signals, by gRPC and by HTTP, and prints what
//! Tenure has said.

use std::fs::File;
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tenure_tests::cluster::servers::{find, free_port};
use tenure_tests::cluster::tasks::{exec, noop, task};
use tenure_tests::cluster::{PATIENCE, Plan, on_cluster, until};
use tenure_tests::otlp::{Protocol, environment};

use crate::history::History;

/// A process of rotel that prints what it gets.
struct Rotel {
    process: Child,
    printed: PathBuf,
}

impl Drop for Rotel {
    fn drop(&mut self) {
        let _ = self.process.kill(); // It may be gone.
        let _ = self.process.wait();
    }
}

impl Rotel {
    /// Starts one that listens at these ports, for gRPC and for HTTP.
    fn start(dir: &Path, grpc: u16, http: u16) -> Result<Self> {
        let printed = dir.join("rotel.log");
        let mut command = Command::new(find("TENURE_ROTEL", "rotel")?);
        command.args(["start", "--exporter", "blackhole", "--batch-timeout", "50ms"]);
        command.args(["--otlp-grpc-endpoint", &format!("127.0.0.1:{grpc}")]);
        command.args(["--otlp-http-endpoint", &format!("127.0.0.1:{http}")]);
        for signal in ["traces", "metrics", "logs"] {
            command.args(["--debug-log", signal]);
        }
        command.args(["--debug-log-verbosity", "detailed"]).stdin(Stdio::null());
        let process = command.stdout(File::create(&printed)?).spawn()?;
        let mut rotel = Self { process, printed };
        let begun = Instant::now();
        for port in [grpc, http] {
            while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
                let ended = rotel.process.try_wait()?;
                ensure!(ended.is_none(), "rotel has ended: {}", rotel.printed()?);
                ensure!(begun.elapsed() < PATIENCE, "rotel does not listen at {port}");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(rotel)
    }

    fn printed(&self) -> Result<String> {
        Ok(String::from_utf8_lossy(&std::fs::read(&self.printed)?).into_owned())
    }
}

/// Whether spans are printed for the Attempts of a log, one for each, with its times.
fn has_spans_of(history: &History, printed: &str) -> bool {
    let spans: Vec<&str> = printed.split("\nSpan #").skip(1).collect();
    history.attempts.iter().all(|attempt| {
        let id = format!("tenure.attempt.id: Str({})", attempt.id);
        let of_attempt = |span: &&&str| span.contains(": attempt ") && span.contains(&id);
        let found: Vec<_> = spans.iter().filter(of_attempt).collect();
        let times = [("Start", attempt.ready_ms), ("End", attempt.end_ms)];
        let has_times = |span: &str| {
            times.iter().all(|(name, ms)| span.contains(&format!("{name} time: {ms}000000")))
        };
        matches!(found[..], [span] if has_times(span))
    })
}

#[test]
fn a_collector_of_others_takes_all_three_signals_by_both_protocols() -> Result<()> {
    for protocol in [Protocol::Grpc, Protocol::Http] {
        let dir = tempfile::tempdir()?;
        let (grpc, http) = (free_port(), free_port());
        let rotel = Rotel::start(dir.path(), grpc, http)?;
        let port = if protocol == Protocol::Grpc { grpc } else { http };
        let environment = environment(protocol, (Ipv4Addr::LOCALHOST, port).into());
        let plan = Plan { schedulers: 1, workers: 1, environment, ..Plan::default() };
        on_cluster(plan, |cluster| {
            let client = cluster.client("c")?;
            let flaky = exec("flaky", &[], "test $TENURE_ATTEMPT -ge 2");
            client.create(&task("through", &[flaky, noop("after", &["flaky"])]))?;
            let ended = || Ok(client.log("through", PATIENCE)?.has_ended());
            until("it has ended", PATIENCE, ended)?;
            let history = History::of(&client.log("through", PATIENCE)?.events(""))?;
            ensure!(history.attempts.len() == 3, "{history:?}");
            let is_traced = || Ok(has_spans_of(&history, &rotel.printed()?));
            until("its trace is printed", PATIENCE, is_traced)?;
            for said in ["Name: tenure.tasks.ended", "partition served"] {
                until(said, PATIENCE, || Ok(rotel.printed()?.contains(said)))?;
            }
            Ok(())
        })?;
    }
    Ok(())
}
