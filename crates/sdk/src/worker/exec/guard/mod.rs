//! The guard: the process between the runner and one command, which outlives neither.
//!
//! It runs in a session of its own, so that neither Ctrl-C nor a kill of the runner's group reaches
//! it, and has no terminal to offer to a command that would prompt and wait for ever. It ignores
//! every signal that can be ignored: only the socket tells it when to end. It has one thread, no
//! runtime and no timers; the runner measures the time limits.

#[cfg(target_os = "linux")]
mod process;
#[cfg(target_os = "linux")]
mod sweep;
pub(super) mod sys;
pub(super) mod wire;

use std::sync::atomic::{AtomicBool, Ordering};

/// The name of a guard in process lists, by which it also knows that it is one. It does not begin
/// with the name of the runner, so that a `pkill` of all runners leaves the guards alive to clean
/// up.
pub(super) const ARGV0: &str = "exec-guard";

/// Whether this executable acts as a guard when it is started as one.
static IS_READY: AtomicBool = AtomicBool::new(false);

/// Becomes a guard, and never returns, if this process was started as one.
///
/// Call it first thing in `main`: before threads, a runtime, arguments or output. Calling it is
/// also the promise that commands can be started under a guard; without it they run under the
/// weaker leash that the [parent module](super) describes.
pub fn run_if_requested() {
    #[cfg(target_os = "linux")]
    {
        if std::env::args_os().next().is_some_and(|name| name == ARGV0) {
            std::process::exit(process::serve());
        }
        IS_READY.store(true, Ordering::Relaxed);
    }
}

pub(super) fn is_ready() -> bool {
    IS_READY.load(Ordering::Relaxed)
}
