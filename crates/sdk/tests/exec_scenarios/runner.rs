//! A runner to be killed: the test program started once more, with a command to run.

use std::path::PathBuf;
use std::process::{Child, Command};

use serde_json::{Value, json};
use tenure_sdk::worker::exec;
use tokio_util::sync::CancellationToken;

use super::bench::{Bench, paths_in, until};

const ORDER_ENV: &str = "TENURE_TEST_RUNNER";

/// Starts a runner with a command on `bench`; `args` lead the test program to [`run_if_asked`].
pub fn start(bench: &Bench, args: &[&str], line: &str) -> Child {
    command(bench, args, line).spawn().unwrap()
}

/// The same, not yet started.
pub fn command(bench: &Bench, args: &[&str], line: &str) -> Command {
    let order = json!({ "dir": bench.dir.path(), "extra": bench.extra(), "run": line });
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(args).env(ORDER_ENV, order.to_string());
    command
}

/// In a runner: runs the command and does not return. Elsewhere: nothing.
pub fn run_if_asked() {
    let Ok(order) = std::env::var(ORDER_ENV) else { return };
    let order: Value = serde_json::from_str(&order).unwrap();
    let dir = PathBuf::from(order["dir"].as_str().unwrap());
    let extra: Vec<(String, String)> = serde_json::from_value(order["extra"].clone()).unwrap();
    let spec = serde_json::from_value(json!({ "run": order["run"] })).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let cancel = CancellationToken::new();
    let outcome = runtime.block_on(exec::run(&spec, &paths_in(&dir), &extra, &cancel));
    panic!("the runner should have been killed before the command ended: {outcome:?}");
}

/// Kills a runner whose command has `processes` processes, and waits until none of them is left.
pub async fn kill_and_expect_nothing_left(bench: &Bench, mut runner: Child, processes: usize) {
    until("all processes run", || bench.alive().len() >= processes).await;
    runner.kill().unwrap(); // SIGKILL.
    runner.wait().unwrap();
    bench.until_none_left().await;
}
