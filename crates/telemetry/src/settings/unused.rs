//! The variables of OpenTelemetry that have no effect here. Whoever sets one learns that.

use super::SettingsReader;

/// Each with the value that says what is done anyway, if there is one.
const UNUSED: &[(&str, &str)] = &[
    ("OTEL_ATTRIBUTE_COUNT_LIMIT", ""),
    ("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", ""),
    ("OTEL_BLRP_EXPORT_TIMEOUT", ""),
    ("OTEL_BLRP_MAX_EXPORT_BATCH_SIZE", ""),
    ("OTEL_BLRP_MAX_QUEUE_SIZE", ""),
    ("OTEL_BLRP_SCHEDULE_DELAY", ""),
    ("OTEL_BSP_EXPORT_TIMEOUT", ""),
    ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", ""),
    ("OTEL_BSP_MAX_QUEUE_SIZE", ""),
    ("OTEL_CONFIG_FILE", ""),
    ("OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT", ""),
    ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", ""),
    ("OTEL_EXPORTER_OTLP_CLIENT_KEY", ""),
    ("OTEL_EXPORTER_OTLP_LOGS_CLIENT_CERTIFICATE", ""),
    ("OTEL_EXPORTER_OTLP_LOGS_CLIENT_KEY", ""),
    ("OTEL_EXPORTER_OTLP_METRICS_CLIENT_CERTIFICATE", ""),
    ("OTEL_EXPORTER_OTLP_METRICS_CLIENT_KEY", ""),
    ("OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION", "explicit_bucket_histogram"),
    ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "cumulative"),
    ("OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE", ""),
    ("OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY", ""),
    ("OTEL_LINK_ATTRIBUTE_COUNT_LIMIT", ""),
    ("OTEL_LOGRECORD_ATTRIBUTE_COUNT_LIMIT", ""),
    ("OTEL_LOGRECORD_ATTRIBUTE_VALUE_LENGTH_LIMIT", ""),
    ("OTEL_LOG_LEVEL", ""),
    ("OTEL_METRICS_EXEMPLAR_FILTER", "trace_based"),
    ("OTEL_METRIC_EXPORT_TIMEOUT", ""),
    ("OTEL_PROPAGATORS", "tracecontext"),
    ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", ""),
    ("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", ""),
    ("OTEL_SPAN_EVENT_COUNT_LIMIT", ""),
    ("OTEL_SPAN_LINK_COUNT_LIMIT", ""),
];

impl SettingsReader<'_> {
    /// Names the variables that are set and have no effect.
    pub(super) fn check_unused(&mut self) {
        for (name, usual) in UNUSED {
            let Some(value) = (self.variable)(name) else { continue };
            if !value.split(',').any(|one| one.trim().eq_ignore_ascii_case(usual)) {
                self.note_bad(name, "this variable has no effect here".to_owned());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::read;

    #[test]
    fn a_variable_without_effect_is_named_where_anything_is_sent() {
        let set = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c"),
            ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "/secret/key.pem"),
            ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "cumulative"),
            ("OTEL_METRICS_EXEMPLAR_FILTER", "always_on"),
            ("OTEL_PROPAGATORS", "tracecontext, baggage"),
        ];
        let named = |set: &[(&str, &str)]| -> Vec<String> {
            read(set).1.iter().map(ToString::to_string).collect()
        };
        let expected = ["OTEL_EXPORTER_OTLP_CLIENT_KEY", "OTEL_METRICS_EXEMPLAR_FILTER"];
        let expected = expected.map(|name| format!("{name}: this variable has no effect here"));
        assert_eq!(named(&set), expected);
        assert_eq!(named(&set[1..]), [""; 0], "nothing has an effect where nothing is sent");
    }
}
