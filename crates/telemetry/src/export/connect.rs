//! Exporters and the resource, out of settings.

use opentelemetry::{Key, KeyValue};
use opentelemetry_otlp::{
    ExporterBuildError, LogExporter, MetricExporter, SpanExporter, WithExportConfig as _,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::logs::LogExporter as _;
use opentelemetry_sdk::trace::SpanExporter as _;

use crate::settings::{Protocol, Settings, Target};

/// What talks to the collector, by signal.
#[derive(Debug)]
pub(super) struct Exporters {
    pub(super) traces: Option<SpanExporter>,
    pub(super) metrics: Option<MetricExporter>,
    pub(super) logs: Option<LogExporter>,
}

impl Exporters {
    /// Makes them, within the runtime that they will use. Nothing is sent yet. Headers, time limits
    /// and certificates they read from the environment themselves.
    pub(super) fn connect(settings: &Settings, resource: &Resource) -> Result<Self, String> {
        let mut traces = one(settings.traces.as_ref(), |it| match it.protocol {
            Protocol::Grpc => {
                SpanExporter::builder().with_tonic().with_endpoint(&it.endpoint).build()
            }
            Protocol::Http => {
                SpanExporter::builder().with_http().with_endpoint(&it.endpoint).build()
            }
        })?;
        let metrics = one(settings.metrics.as_ref(), |it| match it.protocol {
            Protocol::Grpc => {
                MetricExporter::builder().with_tonic().with_endpoint(&it.endpoint).build()
            }
            Protocol::Http => {
                MetricExporter::builder().with_http().with_endpoint(&it.endpoint).build()
            }
        })?;
        let mut logs = one(settings.logs.as_ref(), |it| match it.protocol {
            Protocol::Grpc => {
                LogExporter::builder().with_tonic().with_endpoint(&it.endpoint).build()
            }
            Protocol::Http => {
                LogExporter::builder().with_http().with_endpoint(&it.endpoint).build()
            }
        })?;
        traces.iter_mut().for_each(|exporter| exporter.set_resource(resource));
        logs.iter_mut().for_each(|exporter| exporter.set_resource(resource));
        Ok(Self { traces, metrics, logs })
    }
}

fn one<T>(
    target: Option<&Target>,
    build: impl Fn(&Target) -> Result<T, ExporterBuildError>,
) -> Result<Option<T>, String> {
    target.map(build).transpose().map_err(|error| error.to_string())
}

/// Who this is. What the environment says (`OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`) goes
/// before what the process knows of itself.
pub(super) fn resource(settings: &Settings) -> Resource {
    let said = Resource::builder().build();
    let is_said = |key: &'static str| {
        said.get(&Key::from_static_str(key))
            .is_some_and(|it| !it.as_str().starts_with("unknown_service"))
    };
    let own = [
        ("service.name", settings.service.clone()),
        ("service.namespace", "tenure".to_owned()),
        ("service.instance.id", settings.instance.clone()),
        ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
    ];
    let own = own.into_iter().filter(|(key, _)| !is_said(key));
    let own = own.map(|(key, value)| KeyValue::new(key, value));
    Resource::builder().with_attributes(own).build()
}
