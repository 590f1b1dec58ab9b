//! Notifies the observer of the handlers that have ended.

use std::time::SystemTime;

use tenure_ports::bus::WorkerPort as _;
use tenure_ports::observer::HandlerRun;
use tokio::time::Instant;

use super::context::StepContext;
use super::pool::PoolShared;

impl PoolShared {
    /// Notifies the observer that a handler has ended.
    pub(super) fn note_run(
        &self,
        ctx: &StepContext,
        (begun, started): (SystemTime, Instant),
        is_stopped: bool,
    ) {
        let Some(observer) = &self.options.observer else { return };
        let (end, code) = ctx.end(is_stopped);
        observer.ran(HandlerRun {
            worker: self.port.id(),
            claim: ctx.claim(),
            begun,
            took: started.elapsed(),
            end,
            code: code.as_deref(),
        });
    }
}
