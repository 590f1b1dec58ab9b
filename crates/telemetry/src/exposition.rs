//! The text in which Prometheus reads metrics, with the names that its own receiver of OTLP gives them.

use std::borrow::Cow;
use std::fmt::{Display, Write as _};

use opentelemetry::KeyValue;
use opentelemetry_sdk::metrics::data::{
    AggregatedMetrics, Histogram, HistogramDataPoint, Metric, MetricData, ResourceMetrics,
};

/// All metrics, and who sends them.
pub(crate) fn exposition(all: &ResourceMetrics) -> String {
    let mut text = ExpositionText::default();
    let who: Vec<Label> = all.resource().iter().map(|(key, value)| label(key, value)).collect();
    text.family("target_info", "gauge", "Who sends these metrics.");
    text.sample("target_info", &who, 1);
    for metric in all.scope_metrics().flat_map(|scope| scope.metrics()) {
        match metric.data() {
            AggregatedMetrics::F64(data) => text.metric(metric, data),
            AggregatedMetrics::U64(data) => text.metric(metric, data),
            AggregatedMetrics::I64(data) => text.metric(metric, data),
        }
    }
    text.0
}

/// The name of a label, and its value.
type Label = (String, String);

#[derive(Debug, Default)]
struct ExpositionText(String);

impl ExpositionText {
    fn metric<T: Display + Copy>(&mut self, metric: &Metric, data: &MetricData<T>) {
        let name = name_of(metric.name(), metric.unit());
        match data {
            MetricData::Gauge(gauge) => {
                let points = gauge.data_points().map(|it| (labels(it.attributes()), it.value()));
                self.values(&name, "gauge", metric, points);
            }
            MetricData::Sum(sum) => {
                let points = sum.data_points().map(|it| (labels(it.attributes()), it.value()));
                match sum.is_monotonic() {
                    true => self.values(&format!("{name}_total"), "counter", metric, points),
                    false => self.values(&name, "gauge", metric, points),
                }
            }
            MetricData::Histogram(histogram) => self.histogram(&name, metric, histogram),
            MetricData::ExponentialHistogram(_) => {} // There is none.
        }
    }

    fn values<T: Display>(
        &mut self,
        name: &str,
        kind: &str,
        metric: &Metric,
        points: impl Iterator<Item = (Vec<Label>, T)>,
    ) {
        let mut points = points.peekable();
        if points.peek().is_some() {
            self.family(name, kind, metric.description());
        }
        points.for_each(|(labels, value)| self.sample(name, &labels, value));
    }

    fn histogram<T: Display + Copy>(&mut self, name: &str, metric: &Metric, all: &Histogram<T>) {
        if all.data_points().next().is_some() {
            self.family(name, "histogram", metric.description());
        }
        all.data_points().for_each(|point| self.buckets(name, point));
    }

    fn buckets<T: Display + Copy>(&mut self, name: &str, point: &HistogramDataPoint<T>) {
        let own = labels(point.attributes());
        let (bucket, mut sum) = (format!("{name}_bucket"), 0);
        let bounds = point.bounds().map(|bound| bound.to_string()).chain(["+Inf".to_owned()]);
        for (bound, count) in bounds.zip(point.bucket_counts()) {
            sum += count;
            let mut labels = own.clone();
            labels.push(("le".to_owned(), bound));
            self.sample(&bucket, &labels, sum);
        }
        self.sample(&format!("{name}_sum"), &own, point.sum());
        self.sample(&format!("{name}_count"), &own, point.count());
    }

    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a text cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {}\n# TYPE {name} {kind}", escaped(help, false));
    }

    fn sample(&mut self, name: &str, labels: &[Label], value: impl Display) {
        self.0.push_str(name);
        for (i, (label, value)) in labels.iter().enumerate() {
            let before = if i == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{before}{label}=\"{}\"", escaped(value, true)); // As above.
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{end} {value}"); // As above.
    }
}

/// The name of a metric with its unit; a unit in braces is left out.
fn name_of(name: &str, unit: &str) -> String {
    let unit = match unit {
        "s" => "_seconds",
        "By" => "_bytes",
        _ => "",
    };
    format!("{}{unit}", plain(name))
}

/// The letters that Prometheus takes in a name.
fn plain(name: &str) -> String {
    let letter = |it: char| if it.is_ascii_alphanumeric() { it } else { '_' };
    name.chars().map(letter).collect()
}

fn labels<'a>(attributes: impl Iterator<Item = &'a KeyValue>) -> Vec<Label> {
    let mut all: Vec<Label> = attributes.map(|it| label(&it.key, &it.value)).collect();
    all.sort_unstable();
    all
}

fn label(key: &opentelemetry::Key, value: &opentelemetry::Value) -> Label {
    (plain(key.as_str()), value.as_str().into_owned())
}

fn escaped(text: &str, is_value: bool) -> Cow<'_, str> {
    if !text.contains(['\\', '"', '\n']) {
        return Cow::Borrowed(text);
    }
    let mut out = text.replace('\\', "\\\\").replace('\n', "\\n");
    if is_value {
        out = out.replace('"', "\\\"");
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use opentelemetry::metrics::MeterProvider as _;
    use opentelemetry_sdk::Resource;
    use opentelemetry_sdk::metrics::SdkMeterProvider;
    use opentelemetry_sdk::metrics::reader::MetricReader as _;

    use super::*;
    use crate::export::SharedReader;

    #[test]
    fn metrics_have_the_names_that_prometheus_gives_them_itself() {
        let reader = SharedReader::default();
        let resource = Resource::builder_empty().with_attribute(KeyValue::new("service.name", "n"));
        let provider = SdkMeterProvider::builder().with_resource(resource.build());
        let provider = provider.with_reader(reader.clone()).build();
        let meter = provider.meter("test");
        let odd = [KeyValue::new("tenure.pool", "a\"b\\c\nd"), KeyValue::new("a.b", 7)];
        meter.u64_counter("tenure.claims").with_unit("{claim}").build().add(3, &odd);
        let levels = meter.i64_up_down_counter("tenure.log.size").with_unit("By");
        levels.with_description("How\nmuch?").build().add(-2, &[]);
        let time = meter.f64_histogram("tenure.task.duration").with_unit("s");
        let time = time.with_boundaries(vec![0.000_5, 2.0]).build();
        [0.25, 0.25, 9.0].iter().for_each(|took| time.record(*took, &[]));
        meter.u64_counter("tenure.never").build();
        let mut all = ResourceMetrics::default();
        reader.collect(&mut all).unwrap();
        let text = exposition(&all);
        for part in [
            "# TYPE target_info gauge\ntarget_info{service_name=\"n\"} 1\n",
            "# TYPE tenure_claims_total counter\n\
             tenure_claims_total{a_b=\"7\",tenure_pool=\"a\\\"b\\\\c\\nd\"} 3\n",
            "# HELP tenure_log_size_bytes How\\nmuch?\n# TYPE tenure_log_size_bytes gauge\n\
             tenure_log_size_bytes -2\n",
            "# TYPE tenure_task_duration_seconds histogram\n\
             tenure_task_duration_seconds_bucket{le=\"0.0005\"} 0\n\
             tenure_task_duration_seconds_bucket{le=\"2\"} 2\n\
             tenure_task_duration_seconds_bucket{le=\"+Inf\"} 3\n\
             tenure_task_duration_seconds_sum 9.5\n\
             tenure_task_duration_seconds_count 3\n",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert!(!text.contains("never"), "it has no values");
    }
}
