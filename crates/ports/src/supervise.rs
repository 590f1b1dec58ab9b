//! Runs the loops without which a process is useless, at both ends of the bus. If one panics, the process
//! aborts, because otherwise it would stay alive and mute, or hold leases and do nothing (mechanisms 18).
//! Errors of one Task or one handler do not end such a loop: they stay with the Task or the Step.

use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};

use futures::FutureExt as _;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

/// Runs work on a runtime until the work ends. The loop of the runtime is compiled here, once for all kinds of work.
pub fn run<T>(runtime: &Runtime, work: impl Future<Output = T>) -> T {
    let mut ended = None;
    drive(runtime, pin!(async { ended = Some(work.await) }));
    ended.unwrap_or_else(|| unreachable!("the loop returns when the work has ended"))
}

fn drive(runtime: &Runtime, work: Pin<&mut dyn Future<Output = ()>>) {
    runtime.block_on(work);
}

/// Runs a loop as a task of its own; `what` names it in the log if it fails.
pub fn spawn(
    what: &'static str,
    work: impl Future<Output = ()> + Send + 'static,
) -> JoinHandle<()> {
    tokio::spawn(guard(what, work))
}

/// Wraps a loop that the caller runs; `what` names it in the log if it fails.
pub async fn guard(what: &'static str, work: impl Future<Output = ()>) {
    if AssertUnwindSafe(work).catch_unwind().await.is_err() {
        tracing::error!(what, "a loop failed; the process ends");
        std::process::abort();
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use super::spawn;

    /// Tells the test's child process that it is the one that fails.
    const FAILS: &str = "TENURE_TEST_LOOP_FAILS";

    /// Mechanisms 18. The test runs itself again as a child process.
    #[test]
    fn a_loop_that_panics_ends_the_process_and_says_why() {
        if std::env::var_os(FAILS).is_some() {
            return run_a_loop_that_panics();
        }
        let name = "supervise::tests::a_loop_that_panics_ends_the_process_and_says_why";
        let mut process = Command::new(std::env::current_exe().unwrap());
        process.args([name, "--exact", "--nocapture"]).env(FAILS, "1");
        let ended = process.output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(!ended.status.success(), "{ended:?}");
        assert!(said.lines().any(|line| line.contains("a defect of this loop")), "{said}");
    }

    /// Returns normally, but late, if nobody guards the loop.
    fn run_a_loop_that_panics() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            drop(spawn("a loop of a test", async { panic!("a defect of this loop") }));
            tokio::time::sleep(Duration::from_secs(30)).await;
        });
    }
}
