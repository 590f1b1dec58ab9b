//! Spans that are sent together.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use opentelemetry::InstrumentationScope;
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};
use tokio::sync::oneshot;

use super::loops::{AddressedExporter, BATCH, LoopShared};
use super::queue::QueuePermit;
use crate::health::Signal;
use crate::trace::{EndedRun, TaskTrace};

/// Spans that have not been sent yet.
#[derive(Debug)]
pub(super) struct SpanBatch {
    to: AddressedExporter<SpanExporter>,
    line: LoopShared,
    spans: Vec<SpanData>,
    /// What the spans are made of. An export consumes them: for each further attempt they are made again.
    sources: Vec<SpanSource>,
    /// Those who asked when everything before their question has been sent: at the latest with
    /// these spans.
    asked: Vec<oneshot::Sender<u64>>,
    lost: Arc<AtomicU64>,
}

/// What some spans of a batch are made of.
#[derive(Debug)]
enum SpanSource {
    /// Some parts of a Task, with its permit of the queue.
    Task(Arc<(TaskTrace, QueuePermit)>, Range<usize>),
    /// A handler that has run, with its permit.
    Run { run: Box<EndedRun>, scope: InstrumentationScope, _permit: QueuePermit },
}

impl SpanSource {
    fn put(&self, to: &mut Vec<SpanData>) {
        match self {
            Self::Task(task, parts) => parts.clone().for_each(|part| task.0.put(part, to)),
            Self::Run { run, scope, .. } => to.push(run.span(scope)),
        }
    }
}

impl SpanBatch {
    pub(super) fn new(
        to: AddressedExporter<SpanExporter>,
        line: LoopShared,
        lost: Arc<AtomicU64>,
    ) -> Self {
        Self { to, line, spans: Vec::new(), sources: Vec::new(), asked: Vec::new(), lost }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Takes in the spans of a Task, and sends those that are enough for an export.
    pub(super) async fn put(&mut self, trace: TaskTrace, permit: QueuePermit) {
        let (all, mut part) = (trace.parts(), 0);
        let task = Arc::new((trace, permit));
        while part < all {
            self.send_if_full().await;
            let free = (BATCH - self.spans.len()) / TaskTrace::SPANS_MAX;
            let parts = part..all.min(part + free);
            part = parts.end;
            self.take(SpanSource::Task(Arc::clone(&task), parts));
        }
    }

    /// As [`put`](Self::put), for a handler that has run.
    pub(super) async fn put_run(
        &mut self,
        run: Box<EndedRun>,
        scope: &InstrumentationScope,
        permit: QueuePermit,
    ) {
        self.send_if_full().await;
        self.take(SpanSource::Run { run, scope: scope.clone(), _permit: permit });
    }

    fn take(&mut self, source: SpanSource) {
        if self.spans.capacity() == 0 {
            self.spans.reserve_exact(BATCH); // To grow would take twice the memory.
        }
        source.put(&mut self.spans);
        self.sources.push(source);
    }

    /// Takes in a question: how often something was lost. It is answered once all that is here now has been sent.
    pub(super) fn ask(&mut self, asked: oneshot::Sender<u64>) {
        self.asked.push(asked);
        if self.is_empty() {
            self.answer();
        }
    }

    async fn send_if_full(&mut self) {
        if self.spans.len() + TaskTrace::SPANS_MAX > BATCH {
            self.send().await;
        }
    }

    /// Sends what there is.
    pub(super) async fn send(&mut self) {
        let mut spans = std::mem::take(&mut self.spans);
        if !spans.is_empty() {
            let AddressedExporter { exporter, address } = &self.to;
            let (count, sources) = (spans.len(), &self.sources);
            let export = || {
                if spans.is_empty() {
                    sources.iter().for_each(|source| source.put(&mut spans));
                }
                exporter.export(std::mem::take(&mut spans))
            };
            if !self.line.deliver(Signal::Traces, count, address, export).await {
                self.lost.fetch_add(1, Ordering::AcqRel);
            }
            self.sources.clear();
        }
        self.answer();
    }

    fn answer(&mut self) {
        for asked in self.asked.drain(..) {
            let _ = asked.send(self.lost.load(Ordering::Acquire)); // Nobody may be waiting.
        }
    }
}
