//! Notes whether the collector accepts what it is sent. Logs once that it stops to do so, and once
//! that it does again.

use std::time::Duration;

use opentelemetry_sdk::error::OTelSdkError;
use parking_lot::Mutex;
use tokio::time::error::Elapsed;

/// A kind of telemetry.
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

/// Why an export failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExportError {
    /// The collector did not answer in time.
    #[error(transparent)]
    Late(#[from] Elapsed),
    /// The collector refused, or could not be reached.
    #[error(transparent)]
    Failed(#[from] OTelSdkError),
}

/// Which signals the collector accepts, and the first error.
#[derive(Debug, Default)]
pub(crate) struct Health(Mutex<SignalHealth>);

#[derive(Debug, Default)]
struct SignalHealth {
    /// Signals whose exports fail.
    failing: u8,
    /// Why the first export failed.
    lost: Option<String>,
}

impl Health {
    /// Notes the result of an export.
    pub(crate) fn note(&self, signal: Signal, result: &Result<(), ExportError>) {
        let mut state = self.0.lock();
        match result {
            Err(error) => state.fail(&[signal], &error.to_string()),
            // Other signals may have nothing to send for long; the collector itself is there again.
            Ok(()) if state.failing & signal.bit() != 0 => {
                state.failing = 0;
                tracing::info!("the collector of telemetry is back");
            }
            Ok(()) => {}
        }
    }

    /// Notes that what was left at the end was not accepted in this time, whatever the signal.
    pub(crate) fn note_unanswered(&self, within: Duration) {
        let error = format!("what was left at the end was not taken within {} s", within.as_secs());
        self.0.lock().fail(&Signal::ALL, &error);
    }

    /// Why an export failed, if any did.
    pub(crate) fn lost(&self) -> Option<String> {
        self.0.lock().lost.clone()
    }
}

impl SignalHealth {
    fn fail(&mut self, signals: &[Signal], error: &str) {
        let before = self.failing;
        self.failing = signals.iter().fold(before, |failing, signal| failing | signal.bit());
        self.lost.get_or_insert_with(|| error.to_owned());
        if before == 0 {
            let signals: Vec<_> = signals.iter().map(|signal| signal.as_str()).collect();
            tracing::warn!(
                signal = signals.join(", "),
                error,
                "the collector of telemetry does not take what it is sent; this is said once"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_is_back_when_something_gets_through_again_that_did_not() {
        let (health, failed) = (Health::default(), Err(OTelSdkError::AlreadyShutdown.into()));
        for signal in Signal::ALL {
            health.note(signal, &failed);
        }
        health.note(Signal::Metrics, &Ok(()));
        assert_eq!(health.0.lock().failing, 0);
        // If one signal alone is never accepted, success of the others says nothing of it.
        health.note(Signal::Logs, &failed);
        health.note(Signal::Metrics, &Ok(()));
        assert_eq!(health.0.lock().failing, Signal::Logs.bit());
    }

    #[test]
    fn what_was_not_taken_is_known_at_the_end_though_the_collector_is_back() {
        let health = Health::default();
        health.note(Signal::Traces, &Ok(()));
        assert_eq!(health.lost(), None);
        health.note(Signal::Traces, &Err(OTelSdkError::AlreadyShutdown.into()));
        health.note(Signal::Traces, &Ok(()));
        health.note_unanswered(Duration::from_secs(3));
        assert_eq!(
            health.lost().as_deref(),
            Some("Shutdown already invoked"),
            "the first is the cause"
        );
    }
}
