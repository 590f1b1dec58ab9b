//! The thread that exports, and the guard that owns it.
//!
//! Exporters run on a runtime of their own, so that their waiting delays nobody, and a shutdown
//! never waits on the runtime that it blocks. Each signal has a queue with a bound and a loop. A
//! collector that does not answer fills the queue; after that new entries are counted and dropped.

mod batch;
mod connect;
mod loops;
mod page;
pub(crate) mod queue;
mod reach;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use opentelemetry::metrics::{Meter, MeterProvider as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::logs::SdkLoggerProvider;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use parking_lot::Mutex;
use tenure_ports::Observer;
use tenure_ports::observer::{Sample, WorkerObserver, WorkerSample};
use tokio::sync::watch;

use self::connect::{ExporterError, Exporters, resource};
#[cfg(test)]
pub(crate) use self::loops::SharedReader;
use self::loops::{LogLoop, LoopShared, MetricLoop, TraceLoop};
use self::page::MetricSource;
pub use self::page::MetricsPage;
use self::queue::ExportQueue;
pub(crate) use self::queue::Queued;
use crate::counts::Instruments;
use crate::exemplars::Exemplars;
use crate::gauges::Gauges;
use crate::health::Health;
use crate::logs::{self, JsonLines, Processor};
use crate::settings::ExportSettings;
use crate::trace::TraceNotes;
use crate::watch::SchedulerWatch;

/// The instrumentation scope of this telemetry.
pub(crate) const SCOPE: &str = "tenure";

/// Why telemetry did not start.
#[derive(Debug, thiserror::Error)]
#[error("telemetry did not start: {0}")]
pub struct ExportError(ExporterError);

/// Running telemetry. When dropped it sends what it has, but waits only for a moment.
#[derive(Debug)]
pub struct Telemetry {
    watch: Arc<SchedulerWatch>,
    gauges: Arc<Gauges>,
    metrics: Option<Arc<MetricSource>>,
    logs: Option<SdkLoggerProvider>,
    served_at: Option<SocketAddr>,
    health: Arc<Health>,
    stop: watch::Sender<bool>,
    ended: Mutex<mpsc::Receiver<()>>,
}

/// How long sending what is left may take.
const LAST_WORDS: Duration = Duration::from_secs(3);

impl Telemetry {
    /// Starts to export as the settings say; none if they name no endpoint. `print` shows the page of metrics where
    /// the settings ask for that.
    ///
    /// # Errors
    /// An endpoint is not a valid URL, or no thread could be started.
    pub fn start(settings: ExportSettings, print: fn(&str)) -> Result<Option<Self>, ExportError> {
        if settings.is_off() {
            return Ok(None);
        }
        let resource = resource(&settings);
        let (gauges, reader) = (Arc::new(Gauges::default()), loops::SharedReader::default());
        let meters = settings.has_metrics().then(|| {
            let provider = SdkMeterProvider::builder().with_resource(resource.clone());
            provider.with_reader(reader.clone()).build()
        });
        let meter: Option<Meter> = meters.as_ref().map(|provider| provider.meter(SCOPE));
        let counts = meter.as_ref().map(|meter| {
            gauges.register(meter);
            Arc::new(Instruments::new(meter))
        });
        let (queue, tasks) = ExportQueue::new(counts.clone());
        let lost = queue.lost();
        let belonging = Arc::default();
        let (processor, records) = Processor::new(counts.clone(), Arc::clone(&belonging));
        let dropped = processor.dropped();
        let logs = settings.logs.as_ref().map(|_| {
            let provider = SdkLoggerProvider::builder().with_resource(resource.clone());
            provider.with_log_processor(processor).build()
        });
        let exemplars: Arc<Exemplars> = Arc::default();
        let has_exemplars = settings.served_at.is_some() && settings.traces.is_some();
        let watch = SchedulerWatch {
            counts: counts.clone(),
            exemplars: has_exemplars.then(|| Arc::clone(&exemplars)),
            traces: settings.traces.is_some().then_some(queue),
            belonging: settings.has_trace_ids().then_some(belonging),
            sampler: settings.sampler,
            notes: TraceNotes::default(),
        };
        let (stop, stopping) = watch::channel(false);
        let health = Arc::new(Health::default());
        let line = LoopShared { counts, health: Arc::clone(&health), stopping };
        let (begun, served_at) = (Instant::now(), settings.served_at);
        let metrics = meters.map(|provider| {
            let (gauges, reading) = (Arc::clone(&gauges), Mutex::default());
            let _provider = provider;
            Arc::new(MetricSource { _provider, reader, gauges, exemplars, begun, reading })
        });
        let sent = metrics.clone().map(|source| MetricLoop {
            source,
            interval: settings.interval,
            print: settings.is_printed.then_some(print),
        });
        let traces = TraceLoop { tasks, lost, delay: settings.delay };
        let records = LogLoop { records, dropped, delay: settings.delay };
        let ended = Work { settings, resource, traces, metrics: sent, records, line }.start();
        let ended = ended.map_err(ExportError)?;
        let (watch, ended) = (Arc::new(watch), Mutex::new(ended));
        Ok(Some(Self { watch, gauges, metrics, logs, served_at, health, stop, ended }))
    }

    /// The observer of a scheduler.
    pub fn observer(&self) -> Arc<dyn Observer> {
        if let Some(counts) = &self.watch.counts {
            counts.begin();
        }
        Arc::clone(&self.watch) as Arc<dyn Observer>
    }

    /// The observer of a worker.
    pub fn worker_observer(&self) -> Arc<dyn WorkerObserver> {
        Arc::clone(&self.watch) as Arc<dyn WorkerObserver>
    }

    /// Sets the source of the numbers that are read whenever metrics are sent. It runs on the
    /// thread of telemetry.
    pub fn sample_from(&self, source: impl Fn() -> Sample + Send + Sync + 'static) {
        self.gauges.set_source(Some(Box::new(source)));
    }

    /// Sets the source of a worker's numbers, in the same way; `None` once the worker has ended.
    pub fn sample_worker_from(
        &self,
        source: impl Fn() -> Option<WorkerSample> + Send + Sync + 'static,
    ) {
        self.gauges.set_worker(Box::new(source));
    }

    /// Where the page of metrics is to be served.
    pub fn served_at(&self) -> Option<SocketAddr> {
        self.served_at
    }

    /// A page with all metrics of this process; `None` if none are counted.
    pub fn metrics_page(&self) -> Option<MetricsPage> {
        self.metrics.clone().map(MetricsPage)
    }

    /// The layer that sends log records to the collector: those that `filter` (as in `TENURE_LOG`)
    /// lets through. It never sends what the exporters log themselves.
    pub fn log_layer<S>(
        &self,
        filter: &str,
    ) -> Option<Box<dyn tracing_subscriber::Layer<S> + Send + Sync>>
    where
        S: tracing::Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>,
    {
        self.logs.as_ref().map(|provider| logs::layer(provider, filter))
    }

    /// The format of JSON log lines that name the traces of Tasks.
    pub fn json_lines(&self) -> JsonLines {
        JsonLines(self.watch.belonging.clone())
    }

    /// Sends what is left, for a moment at most. Answers why an export failed, if any did since the
    /// start. Blocks its thread.
    pub fn end(self) -> Option<String> {
        self.finish();
        self.health.lost()
    }

    fn finish(&self) {
        self.gauges.set_source(None);
        let _ = self.stop.send(true); // The thread may have ended.
        if self.ended.lock().recv_timeout(LAST_WORDS).is_err() {
            self.health.note_unanswered(LAST_WORDS);
        }
    }
}

/// The work of the thread.
struct Work {
    settings: ExportSettings,
    resource: Resource,
    traces: TraceLoop,
    metrics: Option<MetricLoop>,
    records: LogLoop,
    line: LoopShared,
}

impl Work {
    /// Starts the thread, and waits until it can export. The answer receives a message when the
    /// thread has ended.
    fn start(self) -> Result<mpsc::Receiver<()>, ExporterError> {
        let (tell, started) = mpsc::channel();
        let (end, ended) = mpsc::channel();
        let work = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            match runtime {
                Ok(runtime) => runtime.block_on(self.export(&tell)),
                Err(error) => tell.send(Err(error.into())).unwrap_or_default(),
            }
            let _ = end.send(()); // Nobody may be waiting.
        };
        let thread = std::thread::Builder::new().name("telemetry".into());
        thread.spawn(work)?;
        // An error here means that the thread ended before it could start.
        started.recv().map_err(io::Error::other)??;
        Ok(ended)
    }

    /// Exports until telemetry ends.
    async fn export(self, tell: &mpsc::Sender<Result<(), ExporterError>>) {
        let exporters = match Exporters::connect(&self.settings, &self.resource) {
            Ok(exporters) => exporters,
            Err(error) => return tell.send(Err(error)).unwrap_or_default(),
        };
        let _ = tell.send(Ok(())); // The starter waits for this.
        tokio::join!(
            self.traces.run(exporters.traces, self.line.clone()),
            loops::metrics(self.metrics, exporters.metrics, self.line.clone()),
            self.records.run(exporters.logs, self.line),
        );
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        if !*self.stop.borrow() {
            self.finish();
        }
    }
}
