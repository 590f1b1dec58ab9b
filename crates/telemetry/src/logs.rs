//! Log records on their way to the collector.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use opentelemetry::InstrumentationScope;
use opentelemetry::logs::{AnyValue, LogRecord as _};
use opentelemetry::trace::{SpanId, TraceId};
use opentelemetry_appender_tracing::layer::OpenTelemetryTracingBridge;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::logs::{LogProcessor, SdkLogRecord, SdkLoggerProvider};
use parking_lot::Mutex;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tracing::Subscriber;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{EnvFilter, Layer};

use crate::belonging::Belonging;
use crate::counts::Counts;
use crate::health::Signal;

/// What would feed itself: exporters log while they export.
pub const NOT_EXPORTED: &str = "hyper=off,hyper_util=off,h2=off,tonic=off,tower=off,opentelemetry=off,\
     opentelemetry_sdk=off,opentelemetry_otlp=off,opentelemetry_http=off,tenure_telemetry=off";

/// A record, and where it comes from.
pub(crate) type Record = (SdkLogRecord, InstrumentationScope);

/// The field with which a record names its Task.
const TASK: &str = "task";

/// Records that may wait.
const WAITING_MAX: usize = 2_048;

/// Records in a second, at most: a defect that logs in a loop must not fill a store of logs.
const RATE_MAX: u32 = 500;

/// The layer that hands records over.
pub(crate) fn layer<S>(
    provider: &SdkLoggerProvider,
    filter: &str,
) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let filter = EnvFilter::new(format!("{filter},{NOT_EXPORTED}"));
    OpenTelemetryTracingBridge::new(provider).with_filter(filter).boxed()
}

/// Takes records into the queue, as far as there is room and not too many come at a time.
pub(crate) struct Processor {
    sender: Sender<Record>,
    counts: Option<Arc<Counts>>,
    belonging: Arc<Belonging>,
    second: Mutex<(Instant, u32)>,
}

impl fmt::Debug for Processor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Processor").finish_non_exhaustive()
    }
}

impl Processor {
    pub(crate) fn new(
        counts: Option<Arc<Counts>>,
        belonging: Arc<Belonging>,
    ) -> (Self, Receiver<Record>) {
        let (sender, receiver) = channel(WAITING_MAX);
        let second = Mutex::new((Instant::now(), 0));
        (Self { sender, counts, belonging, second }, receiver)
    }

    /// Where the Task is that a record names.
    fn trace_of(&self, record: &SdkLogRecord) -> Option<(TraceId, SpanId)> {
        let mut attributes = record.attributes_iter();
        match attributes.find(|(key, _)| key.as_str() == TASK)? {
            (_, AnyValue::String(task)) => self.belonging.of(task.as_str()),
            _ => None,
        }
    }

    fn is_too_much(&self) -> bool {
        let mut second = self.second.lock();
        if second.0.elapsed() >= Duration::from_secs(1) {
            *second = (Instant::now(), 0);
        }
        second.1 = second.1.saturating_add(1);
        second.1 > RATE_MAX
    }
}

impl LogProcessor for Processor {
    fn emit(&self, record: &mut SdkLogRecord, scope: &InstrumentationScope) {
        if let Some((trace, span)) = self.trace_of(record) {
            record.set_trace_context(trace, span, None);
        }
        let is_dropped =
            self.is_too_much() || self.sender.try_send((record.clone(), scope.clone())).is_err();
        if let (true, Some(counts)) = (is_dropped, &self.counts) {
            counts.note_dropped(Signal::Logs, 1);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(()) // The loop sends what there is.
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(()) // As above.
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[test]
    fn a_loop_that_logs_is_cut_off() {
        let (processor, mut records) = Processor::new(None, Arc::default());
        let provider = SdkLoggerProvider::builder().with_log_processor(processor).build();
        let subscriber = tracing_subscriber::registry().with(layer(&provider, "info"));
        tracing::subscriber::with_default(subscriber, || {
            (0..RATE_MAX * 3).for_each(|n| tracing::warn!(target: "tenure_node", n, "again"));
        });
        let let_through = std::iter::from_fn(|| records.try_recv().ok()).count();
        let most = RATE_MAX as usize;
        assert!((most..=2 * most).contains(&let_through), "{let_through}");
    }
}
