//! A cluster to speak to: real servers, a node and workers as processes.

#![allow(dead_code)] // Each test binary uses its part.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use serde_json::Value;

use crate::servers::{Server, nats, redis};
use crate::support::{Ended, PATIENCE, Place, Running, TENURE};

/// Servers, a node, and a place to speak to them from.
pub(crate) struct Cluster {
    pub(crate) place: Place,
    pub(crate) node: Option<Running>,
    pub(crate) redis: Server,
    nats: Server,
}

impl Cluster {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// As [`start`](Self::start), with more arguments for the node.
    pub(crate) fn start_with(args: &[&str]) -> Self {
        let (nats, redis) = (nats(), redis(&[]));
        let mut cluster = Self { place: Place::new(), node: None, nats, redis };
        cluster.serve_with(args);
        cluster
    }

    /// Starts a node, and waits until it serves.
    pub(crate) fn serve(&mut self) {
        self.serve_with(&[]);
    }

    fn serve_with(&mut self, args: &[&str]) {
        let url = format!("redis://127.0.0.1:{}", self.redis.port);
        let mut node = self.begin(&[&["serve", "--redis", &url, "--node", "n1"], args].concat());
        node.hears(" serves");
        self.node = Some(node);
    }

    /// Where NATS is.
    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.nats.port)
    }

    /// `tenure` in the place, which knows where the cluster is.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        self.told_where(self.place.command(args))
    }

    /// A script for the shell in the place, where `tenure` is on the path: it ends with the first command
    /// that fails.
    #[track_caller]
    pub(crate) fn shell(&self, script: &str) -> Ended {
        let mut shell = self.place.program("sh", &["-eu", "-c", script]);
        let beside = Path::new(TENURE).parent().unwrap().to_owned();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::iter::once(beside).chain(std::env::split_paths(&path));
        shell.env("PATH", std::env::join_paths(path).unwrap());
        Running::run_to_end(&mut self.told_where(shell))
    }

    fn told_where(&self, mut command: Command) -> Command {
        command.env("TENURE_NATS_URL", self.url());
        command
    }

    #[track_caller]
    pub(crate) fn tenure(&self, args: &[&str]) -> Ended {
        Running::run_to_end(&mut self.command(args))
    }

    pub(crate) fn begin(&self, args: &[&str]) -> Running {
        Running::of(&mut self.command(args))
    }

    pub(crate) fn worker(&self, name: &str) -> Running {
        let mut worker = self.begin(&["worker", "--name", name]);
        worker.hears("runs steps of pool default");
        worker
    }

    /// Asks until the answer is as it must come to be.
    #[track_caller]
    pub(crate) fn until(&self, args: &[&str], is_so: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let said = self.tenure(&[args, &["-o", "json"]].concat());
            if let Ok(value) = serde_json::from_str(&said.stdout)
                && is_so(&value)
            {
                return value;
            }
            assert!(begun.elapsed() < PATIENCE, "it does not come to pass: {said:#?}");
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }

    /// Submits a file of this text as a Task.
    #[track_caller]
    pub(crate) fn submit(&self, task: &str, text: &str, more: &[&str]) -> Ended {
        let name = format!("{task}.yaml");
        self.place.file(&name, format!("task_id: {task}\ntitle: {task}\n{text}\n"));
        self.tenure(&[&["submit", &name], more].concat())
    }

    pub(crate) fn is_at_work(&self, task: &str) {
        let at_work =
            |value: &Value| value["status"] == "running" || value["status"] == "preparing";
        self.until(&["task", "get", task], at_work);
    }
}
