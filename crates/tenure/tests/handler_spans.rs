//! Spans that a handler makes of its own are below its Attempt.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::{Span as _, Tracer as _, TracerProvider as _};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
use parking_lot::Mutex;
use tenure::embedded::Embedded;
use tenure_sdk::worker::{Handlers, StepContext};
use tenure_telemetry::{ExportSettings, Telemetry};
use tenure_tests::otlp::{Protocol, Receiver};

/// Longest that the trace may take to come, on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(60);

/// Keeps the spans of a program, which would send them to its collector.
#[derive(Debug, Clone, Default)]
struct Kept(Arc<Mutex<Vec<SpanData>>>);

impl SpanExporter for Kept {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.0.lock().extend(batch);
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_span_that_a_handler_makes_is_below_its_attempt() {
    let receiver = Receiver::start(Protocol::Grpc).unwrap();
    let told: HashMap<_, _> = receiver.environment().into_iter().collect();
    let (settings, bad) = ExportSettings::read("test", "1", |name| told.get(name).cloned());
    assert!(bad.is_empty(), "{bad:?}");
    let telemetry = Telemetry::start(settings, |_| {}).unwrap().unwrap();
    let mut config = Embedded::config().unwrap();
    config.observer = Some(telemetry.observer());
    let dir = tempfile::tempdir().unwrap();
    let tenure = Embedded::open_with(dir.path(), config).await.unwrap();

    let kept = Kept::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(kept.clone()).build();
    let tracer = provider.tracer("mine");
    let fetch = move |ctx: StepContext| {
        let tracer = tracer.clone();
        async move {
            ctx.start().await?;
            let above = ctx.traceparent().unwrap_or_default().to_owned();
            let above = HashMap::from([("traceparent".to_owned(), above)]);
            let above = TraceContextPropagator::new().extract(&above);
            tracer.start_with_context("fetch", &above).end();
            Ok(ctx.complete_json(&"fetched")?)
        }
    };
    let _workers = tenure.work(Handlers::new().on("fetch", fetch).unwrap(), 1).unwrap();
    let file = b"steps: {a: {handler: fetch}}";
    let plan = tenure::taskfile::parse(file, "inline.yaml", &Default::default()).unwrap();
    tenure.submit("main", plan).await.unwrap();

    let got = tokio::task::spawn_blocking(move || {
        receiver.wait("the attempt", PATIENCE, |got| {
            got.spans.iter().any(|span| span.name == "handler")
        })
    });
    let got = got.await.unwrap().unwrap();
    let attempt = got.spans.iter().find(|span| span.name == "attempt a (fetch)").unwrap();
    let ran = got.spans.iter().find(|span| span.name == "handler").unwrap();
    assert_eq!(ran.parent, attempt.id, "its worker said that it had begun");
    let own = kept.0.lock();
    let [own] = own.as_slice() else { panic!("{own:?}") };
    assert_eq!(own.parent_span_id.to_string(), attempt.id);
    assert_eq!(own.span_context.trace_id().to_string(), attempt.trace);
}
