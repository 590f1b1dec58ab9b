//! Workers in Python: the example, and programs that import it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

use super::Cluster;
use super::process::Process;
use super::servers::tools;

/// Where the example lies.
///
/// # Errors
/// It is not there.
pub fn example() -> Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    Ok(root.join("examples/python-worker").canonicalize()?)
}

/// Starts Python in the cluster's directory. It finds the example and its libraries.
///
/// # Errors
/// The libraries are not there, or it does not start.
pub fn python(cluster: &Cluster, name: &str, arguments: &[&OsStr]) -> Result<Process> {
    let library = tools()?.join("python");
    ensure!(library.is_dir(), "nats-py and msgpack are needed: run `./check servers`");
    let mut command = Command::new("python3");
    command.args(arguments).env("PYTHONDONTWRITEBYTECODE", "1");
    command.env("PYTHONPATH", std::env::join_paths([library, example()?])?);
    Process::start(name, cluster.dir(), command)
}
