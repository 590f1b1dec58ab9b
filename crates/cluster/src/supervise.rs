//! Loops that nothing works without: one that fails takes the process with it, which would be alive and
//! mute otherwise (mechanisms 18).

use std::panic::AssertUnwindSafe;

use futures::FutureExt as _;
use tokio::task::JoinHandle;

/// Runs a loop.
pub(crate) fn spawn(
    what: &'static str,
    work: impl Future<Output = ()> + Send + 'static,
) -> JoinHandle<()> {
    tokio::spawn(async move {
        if AssertUnwindSafe(work).catch_unwind().await.is_err() {
            tracing::error!(what, "a loop failed; the process ends");
            std::process::abort();
        }
    })
}
