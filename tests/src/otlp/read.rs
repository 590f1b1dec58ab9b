//! What came, in the words of tests.

use hyper::HeaderMap;
use hyper::header::HeaderValue;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{Metric, NumberDataPoint, number_data_point};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::Link;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;

use super::{Attributes, Got, Point, Record, Span};

/// Nanoseconds in a millisecond.
const NANOS: u64 = 1_000_000;

impl Got {
    pub(super) fn note_headers(&mut self, signal: &'static str, headers: &HeaderMap) {
        let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let headers = headers.iter().map(|(name, value)| (name.to_string(), text(value)));
        self.headers.insert(signal, headers.collect());
    }

    pub(super) fn take_spans(&mut self, request: ExportTraceServiceRequest) {
        for of in request.resource_spans {
            let resource = resource(of.resource);
            for span in of.scope_spans.into_iter().flat_map(|scope| scope.spans) {
                let status = span.status.unwrap_or_default();
                let is_error = status.code() == StatusCode::Error;
                let span = Span {
                    resource: resource.clone(),
                    trace: hex(&span.trace_id),
                    id: hex(&span.span_id),
                    parent: hex(&span.parent_span_id),
                    name: span.name,
                    start_ms: (span.start_time_unix_nano / NANOS).cast_signed(),
                    end_ms: (span.end_time_unix_nano / NANOS).cast_signed(),
                    attributes: attributes(span.attributes),
                    links: span.links.into_iter().map(link).collect(),
                    error: is_error.then_some(status.message),
                };
                // Who takes a partition sends again what may not have come: whoever keeps spans knows
                // them again. One that is not the same is a second one.
                if !self.spans.iter().any(|known| known.is_said_by(&span)) {
                    self.spans.push(span);
                }
            }
        }
    }

    pub(super) fn take_metrics(&mut self, request: ExportMetricsServiceRequest) {
        for of in request.resource_metrics {
            let resource = resource(of.resource);
            for metric in of.scope_metrics.into_iter().flat_map(|scope| scope.metrics) {
                self.points.extend(points(metric, &resource));
            }
        }
    }

    pub(super) fn take_logs(&mut self, request: ExportLogsServiceRequest) {
        for of in request.resource_logs {
            let resource = resource(of.resource);
            for record in of.scope_logs.into_iter().flat_map(|scope| scope.log_records) {
                self.records.push(Record {
                    resource: resource.clone(),
                    severity: record.severity_text,
                    trace: hex(&record.trace_id),
                    body: text(record.body),
                    attributes: attributes(record.attributes),
                });
            }
        }
    }
}

fn points(metric: Metric, resource: &Attributes) -> Vec<Point> {
    let Metric { name, unit, data, .. } = metric;
    let point = |kind, of: Vec<KeyValue>, value: f64, sum: f64| Point {
        resource: resource.clone(),
        name: name.clone(),
        unit: unit.clone(),
        kind,
        attributes: attributes(of),
        value,
        sum,
    };
    let number = |kind, it: NumberDataPoint| {
        let value = match it.value {
            Some(number_data_point::Value::AsDouble(value)) => value,
            Some(number_data_point::Value::AsInt(value)) => value as f64,
            None => f64::NAN,
        };
        point(kind, it.attributes, value, value)
    };
    match data {
        Some(Data::Gauge(all)) => {
            all.data_points.into_iter().map(|it| number("gauge", it)).collect()
        }
        Some(Data::Sum(all)) => {
            let kind = if all.is_monotonic { "counter" } else { "updowncounter" };
            all.data_points.into_iter().map(|it| number(kind, it)).collect()
        }
        Some(Data::Histogram(all)) => {
            let all = all.data_points.into_iter();
            let read = |it: opentelemetry_proto::tonic::metrics::v1::HistogramDataPoint| {
                point("histogram", it.attributes, it.count as f64, it.sum.unwrap_or(f64::NAN))
            };
            all.map(read).collect()
        }
        _ => vec![point("unknown", Vec::new(), f64::NAN, f64::NAN)],
    }
}

fn link(link: Link) -> (String, Attributes) {
    (hex(&link.span_id), attributes(link.attributes))
}

fn resource(resource: Option<Resource>) -> Attributes {
    attributes(resource.unwrap_or_default().attributes)
}

fn attributes(all: Vec<KeyValue>) -> Attributes {
    all.into_iter().map(|it| (it.key, text(it.value))).collect()
}

fn text(value: Option<AnyValue>) -> String {
    match value.and_then(|value| value.value) {
        Some(Value::StringValue(value)) => value,
        Some(Value::BoolValue(value)) => value.to_string(),
        Some(Value::IntValue(value)) => value.to_string(),
        Some(Value::DoubleValue(value)) => value.to_string(),
        None => String::new(),
        other => format!("{other:?}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
