//! The way of log records to the collector: a layer, a bounded queue, and JSON lines that name
//! traces.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use opentelemetry::InstrumentationScope;
use opentelemetry::logs::{AnyValue, LogRecord as _};
use opentelemetry::trace::{SpanId, TraceId};
use opentelemetry_appender_tracing::layer::OpenTelemetryTracingBridge;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::logs::{LogProcessor, SdkLogRecord, SdkLoggerProvider};
use parking_lot::Mutex;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::{FmtContext, format};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{EnvFilter, Layer};

use crate::belonging::TraceOwners;
use crate::counts::Instruments;
use crate::health::Signal;

/// Records that are not exported, as exporting them would cause more of them.
const NOT_EXPORTED: &str = "hyper=off,hyper_util=off,h2=off,tonic=off,tower=off,opentelemetry=off,\
     opentelemetry_sdk=off,opentelemetry_otlp=off,opentelemetry_http=off,tenure_telemetry=off";

/// A record, and its instrumentation scope.
pub(crate) type ScopedRecord = (SdkLogRecord, InstrumentationScope);

/// The field in which a record names its Task.
const TASK: &str = "task";

/// How many records may wait.
const WAITING_MAX: usize = 2_048;

/// How many records are sent in a second at most: a defect that logs in a loop must not fill a
/// store of logs.
const RATE_MAX: u32 = 500;

/// The target of the warning about dropped records, which the rate limit does not hold back.
const OF_DROPPED: &str = "tenure::telemetry";

/// How many records were dropped since the last warning, as the queue was full or they were too
/// many.
#[derive(Debug, Default)]
pub(crate) struct Dropped(AtomicU64);

impl Dropped {
    /// Logs a warning if records were dropped.
    pub(crate) fn say(&self) {
        let records = self.0.swap(0, Ordering::Relaxed);
        if records > 0 {
            tracing::warn!(target: OF_DROPPED, records, "log records were not sent: too many at a time");
        }
    }
}

/// The layer that passes records on.
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

/// Puts records into the queue, unless it is full or too many come at a time.
pub(crate) struct Processor {
    sender: Sender<ScopedRecord>,
    counts: Option<Arc<Instruments>>,
    belonging: Arc<TraceOwners>,
    dropped: Arc<Dropped>,
    second: Mutex<(Instant, u32)>,
}

impl fmt::Debug for Processor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Processor").finish_non_exhaustive()
    }
}

impl Processor {
    pub(crate) fn new(
        counts: Option<Arc<Instruments>>,
        belonging: Arc<TraceOwners>,
    ) -> (Self, Receiver<ScopedRecord>) {
        let (sender, receiver) = channel(WAITING_MAX);
        let (dropped, second) = (Arc::default(), Mutex::new((Instant::now(), 0)));
        (Self { sender, counts, belonging, dropped, second }, receiver)
    }

    /// The counter of dropped records, which the loop that sends the others logs.
    pub(crate) fn dropped(&self) -> Arc<Dropped> {
        Arc::clone(&self.dropped)
    }

    /// The trace and the span of the Task that a record names.
    fn trace_of(&self, record: &SdkLogRecord) -> Option<(TraceId, SpanId)> {
        let mut attributes = record.attributes_iter();
        match attributes.find(|(key, _)| key.as_str() == TASK)? {
            (_, AnyValue::String(task)) => self.belonging.of(task.as_str()),
            _ => None,
        }
    }

    fn is_too_much(&self, record: &SdkLogRecord) -> bool {
        if record.target().is_some_and(|target| target == OF_DROPPED) {
            return false;
        }
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
        // The bridge gives it the name of the place in the code, with the path where that was built.
        record.set_event_name("");
        if let Some((trace, span)) = self.trace_of(record) {
            record.set_trace_context(trace, span, None);
        }
        let is_dropped = self.is_too_much(record)
            || self.sender.try_send((record.clone(), scope.clone())).is_err();
        if !is_dropped {
            return;
        }
        self.dropped.0.fetch_add(1, Ordering::Relaxed);
        if let Some(counts) = &self.counts {
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

/// The log on stderr as JSON lines. A line that names a Task also names its trace, if there is one.
#[derive(Debug, Default)]
pub struct JsonLines(pub(crate) Option<Arc<TraceOwners>>);

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        ctx: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = String::new();
        format().json().flatten_event(true).format_event(ctx, Writer::new(&mut line), event)?;
        let belongs = self.0.as_ref().and_then(|belonging| belonging.of(&task_of(event)?));
        let line = line.trim_end();
        match line.strip_suffix('}').zip(belongs) {
            Some((open, (trace, span))) => {
                writeln!(writer, r#"{open},"trace_id":"{trace}","span_id":"{span}"}}"#)
            }
            None => writeln!(writer, "{line}"),
        }
    }
}

/// The Task that an event names.
fn task_of(event: &Event<'_>) -> Option<String> {
    struct NamedValue(Option<String>);
    impl Visit for NamedValue {
        fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
            if field.name() == TASK {
                self.0 = Some(format!("{value:?}"));
            }
        }
    }
    let mut named = NamedValue(None);
    event.record(&mut named);
    named.0
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    /// What was logged on stderr, as lines.
    #[derive(Debug, Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_of_json_that_names_a_task_names_its_trace() {
        let belonging = Arc::new(TraceOwners::default());
        let (lines, known) = (Lines::default(), JsonLines(Some(Arc::clone(&belonging))));
        let to = lines.clone();
        let layer = tracing_subscriber::fmt::layer().json().event_format(known);
        let layer = layer.with_writer(move || to.clone());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            tracing::info!(task = %"main/t", n = 1, "with");
            tracing::info!(n = 2, "without");
        });
        let text = String::from_utf8(lines.0.lock().clone()).unwrap();
        let (with, without) = text.trim_end().split_once('\n').unwrap();
        let (trace, span) = belonging.of("main/t").unwrap();
        let end = format!(r#","trace_id":"{trace}","span_id":"{span}"}}"#);
        assert!(with.ends_with(&end) && with.contains(r#""message":"with""#), "{with}");
        assert!(without.ends_with('}') && !without.contains("trace_id"), "{without}");
    }

    #[test]
    fn a_loop_that_logs_is_cut_off() {
        let (processor, mut records) = Processor::new(None, Arc::default());
        let dropped = processor.dropped();
        let provider = SdkLoggerProvider::builder().with_log_processor(processor).build();
        let subscriber = tracing_subscriber::registry().with(layer(&provider, "info"));
        tracing::subscriber::with_default(subscriber, || {
            (0..RATE_MAX * 3).for_each(|n| tracing::warn!(target: "tenure_node", n, "again"));
        });
        let let_through = std::iter::from_fn(|| records.try_recv().ok()).count();
        let most = RATE_MAX as usize;
        assert!((most..=2 * most).contains(&let_through), "{let_through}");
        let subscriber = tracing_subscriber::registry().with(layer(&provider, "info"));
        tracing::subscriber::with_default(subscriber, || dropped.say());
        let (said, _) = records.try_recv().expect("it is said of those that were cut off");
        let count = said.attributes_iter().find(|(key, _)| key.as_str() == "records");
        let cut_off = i64::try_from(3 * most - let_through).unwrap();
        assert_eq!(count.map(|(_, count)| count), Some(&AnyValue::Int(cut_off)));
        assert!(records.try_recv().is_err(), "once");
        // The name of a place in the code would have the path where that was built.
        assert_eq!(said.event_name(), Some(""));
    }
}
