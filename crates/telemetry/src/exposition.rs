//! The text in which Prometheus reads metrics, with the names that its own receiver of OTLP gives them.

use std::borrow::Cow;
use std::fmt::{Display, Write as _};

use opentelemetry::KeyValue;
use opentelemetry_sdk::metrics::data::{
    AggregatedMetrics, Histogram, HistogramDataPoint, Metric, MetricData, ResourceMetrics,
};

use crate::exemplars::{Exemplar, Exemplars};

/// In which of its two formats Prometheus reads the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExpositionFormat {
    /// The older one.
    Plain,
    /// OpenMetrics 1.0, which has exemplars.
    Open,
}

impl ExpositionFormat {
    /// The format for a reader who accepts these media types: whoever names OpenMetrics gets it, with any weight.
    pub(crate) fn accepted(types: Option<&str>) -> Self {
        let is_open = types.is_some_and(|it| it.contains("application/openmetrics-text"));
        if is_open { Self::Open } else { Self::Plain }
    }

    pub(crate) const fn media_type(self) -> &'static str {
        match self {
            Self::Plain => "text/plain; version=0.0.4; charset=utf-8",
            Self::Open => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// All metrics, and who sends them.
pub(crate) fn exposition(
    all: &ResourceMetrics,
    exemplars: &Exemplars,
    format: ExpositionFormat,
) -> String {
    let mut text = ExpositionText { out: String::new(), exemplars, format };
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
    if format == ExpositionFormat::Open {
        text.out.push_str("# EOF\n");
    }
    text.out
}

/// The name of a label, and its value.
type Label = (String, String);

#[derive(Debug)]
struct ExpositionText<'a> {
    out: String,
    exemplars: &'a Exemplars,
    format: ExpositionFormat,
}

impl ExpositionText<'_> {
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
                    true => self.values(&name, "counter", metric, points),
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
        let sample = if kind == "counter" { format!("{name}_total") } else { name.to_owned() };
        if points.peek().is_some() {
            let family = if self.format == ExpositionFormat::Open { name } else { &sample };
            self.family(family, kind, metric.description());
        }
        points.for_each(|(labels, value)| self.sample(&sample, &labels, value));
    }

    fn histogram<T: Display + Copy>(&mut self, name: &str, metric: &Metric, all: &Histogram<T>) {
        if all.data_points().next().is_some() {
            self.family(name, "histogram", metric.description());
        }
        all.data_points().for_each(|point| self.buckets(name, metric.name(), point));
    }

    fn buckets<T: Display + Copy>(
        &mut self,
        name: &str,
        metric: &str,
        point: &HistogramDataPoint<T>,
    ) {
        let own = labels(point.attributes());
        let is_open = self.format == ExpositionFormat::Open;
        let exemplars = is_open.then(|| self.exemplars.of(metric, point.attributes())).flatten();
        let (bucket, mut sum) = (format!("{name}_bucket"), 0);
        let bounds = point.bounds().map(|bound| bound.to_string()).chain(["+Inf".to_owned()]);
        for (at, (bound, count)) in bounds.zip(point.bucket_counts()).enumerate() {
            sum += count;
            let mut labels = own.clone();
            labels.push(("le".to_owned(), bound));
            self.bare_sample(&bucket, &labels, sum);
            if let Some(one) = exemplars.as_ref().and_then(|all| *all.get(at)?) {
                self.exemplar(one);
            }
            self.out.push('\n');
        }
        self.sample(&format!("{name}_sum"), &own, point.sum());
        self.sample(&format!("{name}_count"), &own, point.count());
    }

    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a text cannot fail.
        let help = escaped(help, self.format == ExpositionFormat::Open);
        let _ = writeln!(self.out, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[Label], value: impl Display) {
        self.bare_sample(name, labels, value);
        self.out.push('\n');
    }

    /// A sample whose line goes on.
    fn bare_sample(&mut self, name: &str, labels: &[Label], value: impl Display) {
        self.out.push_str(name);
        for (i, (label, value)) in labels.iter().enumerate() {
            let before = if i == 0 { '{' } else { ',' };
            let _ = write!(self.out, "{before}{label}=\"{}\"", escaped(value, true)); // As above.
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = write!(self.out, "{end} {value}"); // As above.
    }

    #[allow(clippy::cast_precision_loss)] // Seconds since 1970.
    fn exemplar(&mut self, it: Exemplar) {
        let Exemplar { trace, span, value, at } = it;
        let labels = format_args!("trace_id=\"{trace}\",span_id=\"{span}\"");
        let _ = write!(self.out, " # {{{labels}}} {value} {:.3}", at as f64 / 1e3); // As above.
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

fn escaped(text: &str, is_quoted: bool) -> Cow<'_, str> {
    if !text.contains(['\\', '"', '\n']) {
        return Cow::Borrowed(text);
    }
    let mut out = text.replace('\\', "\\\\").replace('\n', "\\n");
    if is_quoted {
        out = out.replace('"', "\\\"");
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use opentelemetry::metrics::MeterProvider as _;
    use opentelemetry::trace::{SpanId, TraceId};
    use opentelemetry_sdk::Resource;
    use opentelemetry_sdk::metrics::SdkMeterProvider;
    use opentelemetry_sdk::metrics::reader::MetricReader as _;

    use super::*;
    use crate::counts::SECONDS;
    use crate::export::SharedReader;
    use crate::names;

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
        let text = exposition(&all, &Exemplars::default(), ExpositionFormat::Plain);
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

    /// The exemplar's bucket has it, in the format that can, and the reader's `Accept` decides.
    #[test]
    fn a_reader_of_open_metrics_gets_traces_with_values() {
        let reader = SharedReader::default();
        let provider = SdkMeterProvider::builder().with_reader(reader.clone()).build();
        let meter = provider.meter("test");
        meter.u64_counter("tenure.claims").with_description("\"?").build().add(3, &[]);
        let pool = [KeyValue::new(names::POOL, "gpu")];
        let time = meter.f64_histogram(names::RUN_TIME.name).with_unit("s");
        let time = time.with_boundaries(SECONDS.to_vec()).build();
        [0.2, 0.9].iter().for_each(|took| time.record(*took, &pool));
        let exemplars = Exemplars::default();
        let (trace, span) = (TraceId::from(0xab), SpanId::from(0xcd));
        let exemplar = Exemplar { trace, span, value: 0.9, at: 1_700_000_000_250 };
        exemplars.note(names::RUN_TIME, &pool, exemplar);
        let mut all = ResourceMetrics::default();
        reader.collect(&mut all).unwrap();

        let text = exposition(&all, &exemplars, ExpositionFormat::Open);
        for part in [
            "# HELP tenure_claims \\\"?\n# TYPE tenure_claims counter\ntenure_claims_total 3\n",
            "_bucket{tenure_pool=\"gpu\",le=\"0.5\"} 1\n",
            "_bucket{tenure_pool=\"gpu\",le=\"1\"} 2 # \
             {trace_id=\"000000000000000000000000000000ab\",span_id=\"00000000000000cd\"} \
             0.9 1700000000.250\n",
            "_bucket{tenure_pool=\"gpu\",le=\"2.5\"} 2\n",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert!(text.ends_with("\n# EOF\n"), "{text}");
        let plain = exposition(&all, &exemplars, ExpositionFormat::Plain);
        assert!(!plain.contains("trace_id") && !plain.contains("EOF"), "{plain}");

        let prometheus = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5,*/*;q=0.1";
        for (accepts, format) in [
            (Some(prometheus), ExpositionFormat::Open),
            (Some("*/*"), ExpositionFormat::Plain),
            (None, ExpositionFormat::Plain),
        ] {
            assert_eq!(ExpositionFormat::accepted(accepts), format, "{accepts:?}");
        }
    }
}
