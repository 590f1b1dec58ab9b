//! Whether the collector takes what it is sent: said once when it stops, and once when it does again.

use parking_lot::Mutex;

/// What is exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    Traces,
    Metrics,
    Logs,
}

impl Signal {
    pub(crate) const ALL: [Self; 3] = [Self::Traces, Self::Metrics, Self::Logs];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Traces => "traces",
            Self::Metrics => "metrics",
            Self::Logs => "logs",
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// Which signals do not get through.
#[derive(Debug, Default)]
pub(crate) struct Health {
    failing: Mutex<u8>,
}

impl Health {
    /// Notes what became of an export.
    pub(crate) fn note(&self, signal: Signal, result: &Result<(), String>) {
        let mut failing = self.failing.lock();
        let before = *failing;
        match result {
            // What else failed may have nothing to send for long: the collector itself is there again.
            Ok(()) if before & signal.bit() != 0 => *failing = 0,
            Ok(()) => {}
            Err(_) => *failing |= signal.bit(),
        }
        match (before, *failing, result) {
            (0, 1.., Err(error)) => tracing::warn!(
                signal = signal.as_str(),
                error,
                "the collector of telemetry does not take what it is sent; this is said once"
            ),
            (1.., 0, _) => tracing::info!("the collector of telemetry is back"),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_is_back_when_something_gets_through_again_that_did_not() {
        let (health, failed) = (Health::default(), Err(String::new()));
        for signal in Signal::ALL {
            health.note(signal, &failed);
        }
        health.note(Signal::Metrics, &Ok(()));
        assert_eq!(*health.failing.lock(), 0);
        // One signal alone that is never taken: others say nothing of it.
        health.note(Signal::Logs, &failed);
        health.note(Signal::Metrics, &Ok(()));
        assert_eq!(*health.failing.lock(), Signal::Logs.bit());
    }
}
