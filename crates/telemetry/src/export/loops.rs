//! The loops on the thread of telemetry: one for each signal.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};
use std::time::Duration;

use opentelemetry::InstrumentationScope;
use opentelemetry_otlp::{LogExporter, MetricExporter, SpanExporter};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::logs::{LogBatch, LogExporter as _};
use opentelemetry_sdk::metrics::data::ResourceMetrics;
use opentelemetry_sdk::metrics::exporter::PushMetricExporter as _;
use opentelemetry_sdk::metrics::reader::MetricReader;
use opentelemetry_sdk::metrics::{InstrumentKind, ManualReader, Pipeline, Temporality};
use tokio::sync::mpsc::{Receiver, UnboundedReceiver};
use tokio::sync::watch;
use tokio::time::{Instant as Moment, sleep, sleep_until, timeout};

use super::batch::SpanBatch;
use super::page::MetricSource;
use super::reach::CollectorAddress;
use super::{Queued, SCOPE};
use crate::counts::Instruments;
use crate::exposition::ExpositionFormat;
use crate::health::{ExportError, Health, Signal};
use crate::logs::{Dropped, ScopedRecord};
use crate::trace::TaskTrace;

/// How many spans, or records, one export has at most; SDKs use the same number.
pub(super) const BATCH: usize = 512;

/// How long an export may take with all its retries.
const EXPORT_MAX: Duration = Duration::from_secs(30);

/// How long spans and records wait for a collector that is away, before they are dropped. Newer ones
/// wait behind them, within the bounds of the queues.
const KEPT_MAX: Duration = Duration::from_secs(300);

/// How long ended Tasks gather before the loop takes them out of the queue: to wake its thread for each costs more
/// than to make the spans.
const GATHERS: Duration = Duration::from_millis(50);

/// How long the loop waits before it tries again: at first, and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(15));

/// What all loops share.
#[derive(Debug, Clone)]
pub(super) struct LoopShared {
    pub(super) counts: Option<Arc<Instruments>>,
    pub(super) health: Arc<Health>,
    pub(super) stopping: watch::Receiver<bool>,
}

impl LoopShared {
    /// As [`attempt`](Self::attempt); what is not accepted is dropped, and counted.
    async fn note(
        &self,
        signal: Signal,
        items: usize,
        export: impl Future<Output = OTelSdkResult>,
    ) -> bool {
        let is_taken = self.attempt(signal, export).await;
        if let (false, Some(counts)) = (is_taken, &self.counts) {
            counts.note_dropped(signal, items as u64);
        }
        is_taken
    }

    /// Exports again and again while the collector is away, for [`KEPT_MAX`] or until telemetry is to
    /// end. Answers whether the collector accepted it.
    pub(super) async fn deliver<F: Future<Output = OTelSdkResult>>(
        &mut self,
        signal: Signal,
        items: usize,
        to: &CollectorAddress,
        mut export: impl FnMut() -> F,
    ) -> bool {
        let by = Moment::now() + KEPT_MAX;
        let (mut pause, longest) = PAUSES;
        loop {
            if self.attempt(signal, export()).await {
                return true;
            }
            let is_late = Moment::now() + pause >= by || *self.stopping.borrow();
            if is_late || !to.is_away().await {
                break;
            }
            tokio::select! {
                () = sleep(pause) => pause = (2 * pause).min(longest),
                () = self.stop(false) => {} // The export gets one more attempt.
            }
        }
        if let Some(counts) = &self.counts {
            counts.note_dropped(signal, items as u64);
        }
        false
    }

    /// Waits for an export, and notes the result. Answers whether the collector accepted it.
    async fn attempt(&self, signal: Signal, export: impl Future<Output = OTelSdkResult>) -> bool {
        let result = match timeout(EXPORT_MAX, export).await {
            Ok(exported) => exported.map_err(ExportError::from),
            Err(elapsed) => Err(elapsed.into()),
        };
        self.health.note(signal, &result);
        result.is_ok()
    }

    /// Waits until telemetry is to end; for ever, if that is known already.
    async fn stop(&mut self, heard: bool) {
        if heard {
            return std::future::pending().await;
        }
        // If the sender has gone, telemetry is to end as well.
        let _ = self.stopping.wait_for(|stops| *stops).await;
    }
}

/// An exporter, and where it exports to.
#[derive(Debug)]
pub(super) struct AddressedExporter<E> {
    pub(super) exporter: E,
    pub(super) address: CollectorAddress,
}

/// Waits until something is due; for ever, if nothing is.
async fn due(at: Option<Moment>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Makes traces of ended Tasks, and sends them.
#[derive(Debug)]
pub(super) struct TraceLoop {
    pub(super) tasks: UnboundedReceiver<Queued>,
    /// How often something was lost.
    pub(super) lost: Arc<AtomicU64>,
    pub(super) delay: Duration,
}

impl TraceLoop {
    pub(super) async fn run(
        mut self,
        to: Option<AddressedExporter<SpanExporter>>,
        mut line: LoopShared,
    ) {
        let Some(to) = to else { return };
        let scope = InstrumentationScope::builder(SCOPE).build();
        let mut batch = SpanBatch::new(to, line.clone(), self.lost);
        let (mut by, mut stops) = (None, false);
        let mut queued = Vec::new();
        loop {
            let some = tokio::select! {
                some = self.tasks.recv_many(&mut queued, BATCH) => some,
                () = due(by) => {
                    batch.send().await;
                    by = None;
                    continue;
                }
                () = line.stop(stops) => {
                    self.tasks.close(); // What is in the queue is still received.
                    stops = true;
                    continue;
                }
            };
            if some == 0 {
                break;
            }
            for one in queued.drain(..) {
                match one {
                    Queued::Ended(task, permit) => {
                        batch.put(TaskTrace::of(task, &scope), permit).await;
                    }
                    Queued::Ran(run, permit) => batch.put_run(run, &scope, permit).await,
                    Queued::Asked(asked) => batch.ask(asked),
                }
            }
            by = by.or(Some(Moment::now() + self.delay)).filter(|_| !batch.is_empty());
            if self.tasks.is_empty() && !stops {
                tokio::select! {
                    () = sleep(GATHERS) => {}
                    () = line.stop(false) => {} // It is still to be noted, above.
                }
            }
        }
        batch.send().await;
    }
}

/// Sends log records.
#[derive(Debug)]
pub(super) struct LogLoop {
    pub(super) records: Receiver<ScopedRecord>,
    /// Records that were dropped before they came here.
    pub(super) dropped: Arc<Dropped>,
    pub(super) delay: Duration,
}

impl LogLoop {
    pub(super) async fn run(
        mut self,
        to: Option<AddressedExporter<LogExporter>>,
        mut line: LoopShared,
    ) {
        let Some(AddressedExporter { exporter: to, address }) = to else { return };
        let mut batch: Vec<ScopedRecord> = Vec::new();
        let mut stops = false;
        loop {
            if batch.is_empty() {
                let some = tokio::select! {
                    some = self.records.recv_many(&mut batch, BATCH) => some,
                    () = line.stop(stops) => {
                        self.records.close();
                        stops = true;
                        continue;
                    }
                };
                if some == 0 {
                    return;
                }
            }
            let by = Moment::now() + self.delay;
            while batch.len() < BATCH && !stops {
                let capacity = BATCH - batch.len();
                let some = tokio::select! {
                    some = self.records.recv_many(&mut batch, capacity) => some,
                    () = sleep_until(by) => break,
                    () = line.stop(stops) => {
                        self.records.close();
                        stops = true;
                        0
                    }
                };
                if some == 0 {
                    break;
                }
            }
            let records: Vec<_> = batch.iter().map(|(record, scope)| (record, scope)).collect();
            let export = || to.export(LogBatch::new(&records));
            line.deliver(Signal::Logs, records.len(), &address, export).await;
            batch.clear();
            self.dropped.say();
        }
    }
}

/// Reads and sends metrics.
#[derive(Debug)]
pub(super) struct MetricLoop {
    pub(super) source: Arc<MetricSource>,
    pub(super) interval: Duration,
    /// Shows them as a page, if they are to be shown.
    pub(super) print: Option<fn(&str)>,
}

/// Sends metrics at every interval, and when telemetry ends.
pub(super) async fn metrics(
    from: Option<MetricLoop>,
    to: Option<AddressedExporter<MetricExporter>>,
    line: LoopShared,
) {
    let (Some(from), mut line) = (from, line) else { return };
    if to.is_none() && from.print.is_none() {
        return;
    }
    let mut all = ResourceMetrics::default();
    loop {
        let stops = tokio::select! {
            () = tokio::time::sleep(from.interval) => false,
            () = line.stop(false) => true,
        };
        if let Some(print) = from.print {
            print(&from.source.text(ExpositionFormat::Plain));
        }
        if let Some(AddressedExporter { exporter, .. }) = &to {
            match from.source.read(&mut all) {
                Ok(()) => {
                    line.note(Signal::Metrics, 1, exporter.export(&all)).await;
                }
                Err(error) => tracing::debug!(%error, "metrics could not be read"),
            }
        }
        if stops {
            return;
        }
    }
}

/// A reader of metrics that the loop shares with the provider.
#[derive(Debug, Clone, Default)]
pub(crate) struct SharedReader(Arc<ManualReader>);

impl MetricReader for SharedReader {
    fn register_pipeline(&self, pipeline: Weak<Pipeline>) {
        self.0.register_pipeline(pipeline);
    }

    fn collect(&self, all: &mut ResourceMetrics) -> OTelSdkResult {
        self.0.collect(all)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.0.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.0.shutdown_with_timeout(timeout)
    }

    fn temporality(&self, kind: InstrumentKind) -> Temporality {
        self.0.temporality(kind)
    }
}
