//! What is measured: a scheduler, its workers and the HTTP API before it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::agent::{AgentPlace, SpokenVersion};
use super::echo::{AGENTS, EchoWorker};
use super::embedded;
use super::line::{Line, get};
use super::processes::{Cluster, ClusterSize, Processes, answers, free_port, tenure};
use super::visitor::LINES;
use super::workload::{Load, Workload};

/// What is measured, and how a program in Rust reaches the same.
pub(crate) struct House {
    /// Where the HTTP API listens.
    pub(crate) port: u16,
    /// Where gRPC is spoken.
    pub(crate) grpc: Option<u16>,
    /// The kind of the process that serves it.
    pub(crate) door: &'static str,
    workers: usize,
    room: PathBuf,
    behind: Behind,
}

enum Behind {
    /// The scheduler is in the process of the gateway. A program in Rust has one in its own.
    Directory(Processes),
    /// A program in Rust speaks with the nodes over NATS.
    Cluster(Box<Cluster>, Box<Load>),
}

/// The options with which MACP is spoken, to whoever says a name.
fn spoken(grpc: Option<u16>) -> Vec<String> {
    let Some(port) = grpc else { return Vec::new() };
    let address = format!("127.0.0.1:{port}");
    ["--grpc", &address, "--macp", "bench-macp", "--macp-trust-tokens"].map(Into::into).to_vec()
}

impl House {
    pub(crate) async fn open(
        cluster: bool,
        workers: usize,
        room: &Path,
        speaks_macp: bool,
    ) -> Result<Self> {
        let port = free_port()?;
        let grpc = if speaks_macp { Some(free_port()?) } else { None };
        let address = format!("127.0.0.1:{port}");
        let agents = std::path::absolute(room.join("agents.toml"))?;
        std::fs::write(&agents, AGENTS)?;
        let (behind, door) = if cluster {
            let size = ClusterSize { nodes: 1, workers: 1, concurrency: workers, partitions: 8 };
            let cluster = Cluster::start(size, room)?;
            let load = Load::connect(&cluster.nats_url(), LINES).await?;
            load.warm_up().await?;
            let mut command = Command::new(tenure()?);
            command.args(["gateway", "--http", &address, "--nats", &cluster.nats_url()]);
            command.arg("--agents").arg(&agents).args(spoken(grpc));
            cluster.processes.launch("gateway", command.env("TENURE_LOG", "warn"))?;
            (Behind::Cluster(Box::new(cluster), Box::new(load)), "gateway")
        } else {
            let processes = Processes::none(room)?;
            let mut command = Command::new(tenure()?);
            command.args(["dev", "--http", &address, "--workers", &workers.to_string()]);
            command.arg("--agents").arg(&agents).args(spoken(grpc));
            processes.launch("dev", command.env("TENURE_LOG", "warn"))?;
            (Behind::Directory(processes), "dev")
        };
        answers(port)?;
        let ready = get("/readyz");
        while Line::open(port).await?.ask(&ready).await?.status != 200 {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        if let Some(grpc) = grpc {
            answers(grpc)?;
        }
        Ok(Self { port, grpc, door, workers, room: room.to_owned(), behind })
    }

    /// Leaves what was reached.
    pub(crate) async fn close(self) -> Result<()> {
        match self.behind {
            Behind::Directory(_) => Ok(()),
            Behind::Cluster(_, load) => load.leave().await,
        }
    }

    /// Tasks of one Step a second that a program in Rust makes and sees end.
    pub(crate) async fn rust_rate(&self) -> Result<f64> {
        match &self.behind {
            Behind::Directory(_) => {
                let dir = tempfile::Builder::new().disable_cleanup(true).tempdir_in(&self.room)?;
                let (data, workers) = (dir.path().to_owned(), self.workers);
                // On a thread of its own, as a program has it.
                let run = move || -> Result<f64> {
                    let mut runtime = tokio::runtime::Builder::new_current_thread();
                    let runtime = runtime.enable_all().build()?;
                    runtime.block_on(embedded::Workload::Tasks.run(&data, workers))
                };
                tokio::task::spawn_blocking(run).await?
            }
            Behind::Cluster(cluster, load) => Ok(load.run(Workload::Tasks, cluster).await?.value),
        }
    }

    /// The agent of the house.
    pub(crate) fn agent(&self) -> AgentPlace {
        AgentPlace { port: self.port, path: "/a2a/echo".into(), version: SpokenVersion::V1 }
    }

    /// The worker of that agent, of so many messages at a time as there are workers.
    pub(crate) async fn echo(&self) -> Result<EchoWorker> {
        match &self.behind {
            Behind::Directory(_) => EchoWorker::over_http(self.port, self.workers).await,
            Behind::Cluster(cluster, _) => {
                EchoWorker::over_nats(&cluster.nats_url(), self.workers).await
            }
        }
    }

    /// The processes that are measured.
    pub(crate) fn processes(&self) -> &Processes {
        match &self.behind {
            Behind::Directory(processes) => processes,
            Behind::Cluster(cluster, _) => &cluster.processes,
        }
    }
}
