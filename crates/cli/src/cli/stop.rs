//! Signals that ask this process to stop.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Listens for Ctrl-C and SIGTERM. Not for SIGHUP: who started us with `nohup` does not want it
/// heard, and whoever else closes the terminal can resume.
#[derive(Debug)]
pub(crate) struct Stop {
    signals: [Signal; 2],
    /// Catching SIGXFSZ turns a write beyond the file size limit from death into an error.
    _size: Signal,
}

impl Stop {
    /// Starts listening: from here on none of them ends the process by itself.
    pub(crate) fn listen() -> std::io::Result<Self> {
        const SIGXFSZ: i32 = 25;
        Ok(Self {
            signals: [signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?],
            _size: signal(SignalKind::from_raw(SIGXFSZ))?,
        })
    }

    /// Waits for the next signal. May be dropped at any time.
    pub(crate) async fn asked(&mut self) {
        let [interrupt, terminate] = &mut self.signals;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    }
}
