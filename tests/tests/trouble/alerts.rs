//! A Prometheus with the alerts.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value as Json;
use tenure_tests::cluster::process::Process;
use tenure_tests::cluster::servers::{find, free_port};

use crate::rules::{names, shortened};

/// How often it reads metrics and judges rules.
const EVERY: Duration = Duration::from_millis(500);

/// A Prometheus that runs.
pub(crate) struct Prometheus {
    pub(crate) process: Process,
    pub(crate) api: PrometheusApi,
}

/// Where it answers.
#[derive(Clone, Copy)]
pub(crate) struct PrometheusApi {
    port: u16,
}

/// The alerts that have fired, each with how long that took.
pub(crate) type Fired = BTreeMap<String, Duration>;

impl Prometheus {
    /// Starts one that reads the metrics at an address.
    pub(crate) fn start(dir: &Path, metrics: SocketAddr) -> Result<Self> {
        let port = free_port();
        std::fs::write(dir.join("alerts.yaml"), shortened()?)?;
        let every = format!("{}ms", EVERY.as_millis());
        let config = format!(
            "global: {{scrape_interval: {every}, scrape_timeout: {every}, evaluation_interval: {every}}}\n\
             rule_files: [alerts.yaml]\n\
             scrape_configs: [{{job_name: tenure, honor_labels: true, static_configs: [{{targets: ['{metrics}']}}]}}]\n"
        );
        std::fs::write(dir.join("prometheus.yml"), config)?;
        let mut command = Command::new(
            find("TENURE_PROMETHEUS", "prometheus")
                .context("on Debian: apt-get install prometheus")?,
        );
        command.args(["--config.file=prometheus.yml", "--storage.tsdb.path=tsdb"]);
        command.arg(format!("--web.listen-address=127.0.0.1:{port}"));
        Ok(Self {
            process: Process::start("prometheus", dir, command)?,
            api: PrometheusApi { port },
        })
    }
}

impl PrometheusApi {
    fn ask(self, path: &str) -> Result<Json> {
        let mut way = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        way.set_read_timeout(Some(Duration::from_secs(5)))?;
        way.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes())?;
        let mut said = String::new();
        way.read_to_string(&mut said)?;
        let (_, body) = said.split_once("\r\n\r\n").context("no answer of HTTP")?;
        serde_json::from_str(body).with_context(|| format!("{path}: {said}"))
    }

    /// The value of a query that has one.
    pub(crate) fn value(self, query: &str) -> Option<f64> {
        let answer = self.ask(&format!("/api/v1/query?query={query}")).ok()?;
        answer["data"]["result"][0]["value"][1].as_str()?.parse().ok()
    }

    /// The alerts that fire now.
    pub(crate) fn firing(self) -> Result<Vec<String>> {
        let answer = self.ask("/api/v1/alerts")?;
        let all = answer["data"]["alerts"].as_array().context("no alerts")?;
        let firing = all.iter().filter(|alert| alert["state"] == "firing");
        let firing: Vec<String> = firing
            .filter_map(|alert| alert["labels"]["alertname"].as_str().map(str::to_owned))
            .collect();
        let known = names()?;
        ensure!(firing.iter().all(|name| known.contains(&name.as_str())), "{firing:?}");
        Ok(firing)
    }

    /// Notes from now on for so long which alerts fire, beside whatever else is done.
    pub(crate) fn watch(self, watched: Duration) -> JoinHandle<Result<Fired>> {
        let begun = Instant::now();
        std::thread::spawn(move || {
            let mut fired = Fired::new();
            while begun.elapsed() < watched {
                for name in self.firing()? {
                    fired.entry(name).or_insert_with(|| begun.elapsed());
                }
                std::thread::sleep(EVERY / 2);
            }
            Ok(fired)
        })
    }
}
