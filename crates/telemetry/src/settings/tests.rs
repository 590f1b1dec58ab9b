//! Tests of [`super`].

use super::*;

pub(super) fn read(variables: &[(&str, &str)]) -> (ExportSettings, Vec<BadSetting>) {
    let find = |name: &str| variables.iter().find(|(it, _)| *it == name);
    ExportSettings::read("tenure", "i", |name| find(name).map(|(_, value)| (*value).to_owned()))
}

fn target(protocol: Protocol, endpoint: &str) -> Option<ExportTarget> {
    let endpoint = endpoint.to_owned();
    let (certificate, timeout, is_compressed) = (None, TIMEOUT, false);
    Some(ExportTarget { protocol, endpoint, certificate, timeout, is_compressed })
}

#[test]
fn who_is_trusted_and_how_long_is_waited_is_read_for_one_signal_or_for_all() {
    let (settings, bad) = read(&[
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://c"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "all.pem"),
        ("OTEL_EXPORTER_OTLP_LOGS_CERTIFICATE", "logs.pem"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "200"),
    ]);
    let (traces, logs) = (settings.traces.unwrap(), settings.logs.unwrap());
    assert_eq!(traces.certificate, Some("all.pem".into()));
    assert_eq!(logs.certificate, Some("logs.pem".into()));
    assert_eq!(logs.timeout, Duration::from_millis(200));
    assert_eq!(bad, []);
}

#[test]
fn tls_is_spoken_where_the_endpoint_says_so() {
    let is_tls = |protocol, endpoint| target(protocol, endpoint).unwrap().is_tls();
    assert!(is_tls(Protocol::Http, "https://c/v1/traces"));
    assert!(is_tls(Protocol::Grpc, "HTTPS://c"));
    assert!(is_tls(Protocol::Grpc, "c:4317"), "as everywhere");
    assert!(!is_tls(Protocol::Grpc, "http://c:4317"));
    assert!(!is_tls(Protocol::Http, "http://c/v1/traces"));
}

/// The scheme of an endpoint goes before what this variable says.
#[test]
fn an_endpoint_of_grpc_without_a_scheme_may_be_one_without_tls() {
    let is_tls = |endpoint, insecure| {
        let (settings, bad) = read(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_INSECURE", insecure),
        ]);
        assert_eq!(bad, []);
        settings.metrics.unwrap().is_tls()
    };
    assert!(!is_tls("c:4317", "True") && is_tls("c:4317", "false"));
    assert!(is_tls("https://c:4317", "true"));
}

#[test]
fn nothing_is_exported_unless_an_endpoint_is_named() {
    assert!(read(&[]).0.is_off());
    assert!(read(&[("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]).0.is_off());
    assert!(read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "")]).0.is_off());
    let disabled = [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c"), ("OTEL_SDK_DISABLED", "TRUE")];
    assert!(read(&disabled).0.is_off());
}

#[test]
fn one_endpoint_is_for_all_signals() {
    let (settings, bad) = read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318/")]);
    assert_eq!(settings.traces, target(Protocol::Http, "http://c:4318/v1/traces"));
    assert_eq!(settings.metrics, target(Protocol::Http, "http://c:4318/v1/metrics"));
    assert_eq!(settings.logs, target(Protocol::Http, "http://c:4318/v1/logs"));
    assert_eq!(bad, []);
}

#[test]
fn what_is_said_of_one_signal_goes_before_what_is_said_of_all() {
    let (settings, bad) = read(&[
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4317"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://m/api/otlp"),
        ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "http/protobuf"),
        ("OTEL_LOGS_EXPORTER", "none"),
    ]);
    assert_eq!(settings.traces, target(Protocol::Grpc, "http://c:4317"));
    assert_eq!(settings.metrics, target(Protocol::Http, "http://m/api/otlp"));
    assert_eq!(settings.logs, None);
    assert_eq!(bad, []);
}

#[test]
fn what_is_not_understood_is_said_and_passed_over() {
    let (settings, bad) = read(&[
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://c/t"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json"),
        ("OTEL_TRACES_SAMPLER", "sometimes"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "0"),
        ("OTEL_BSP_SCHEDULE_DELAY", "200"),
    ]);
    assert_eq!(settings.traces, target(Protocol::Http, "http://c/t"));
    assert_eq!(settings.sampler, Sampler::default());
    assert_eq!((settings.delay, settings.interval), (Duration::from_millis(200), INTERVAL));
    let names: Vec<_> = bad.iter().map(|it| it.name.as_str()).collect();
    let expected = [
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
        "OTEL_METRIC_EXPORT_INTERVAL",
        "OTEL_TRACES_SAMPLER",
    ];
    assert_eq!(names, expected);
}

#[test]
fn a_share_is_read() {
    let (settings, _) = read(&[
        ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
        ("OTEL_TRACES_SAMPLER_ARG", "0.1"),
    ]);
    assert_eq!(settings.sampler, Sampler { follows_parent: true, share: 0.1 });
}

#[test]
fn metrics_go_where_the_exporter_says() {
    let endpoint = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://c/m");
    let at = |address: &str| Some(address.parse().unwrap());
    for (named, otlp, printed, served_at) in [
        ("otlp", true, false, None),
        ("none", false, false, None),
        ("console", false, true, None),
        ("prometheus", false, false, at("127.0.0.1:9464")),
        ("otlp, prometheus,console", true, true, at("127.0.0.1:9464")),
    ] {
        let (settings, bad) = read(&[endpoint, ("OTEL_METRICS_EXPORTER", named)]);
        let seen = (settings.metrics.is_some(), settings.is_printed, settings.served_at);
        assert_eq!((seen, bad), ((otlp, printed, served_at), Vec::new()), "{named}");
    }
    let (settings, bad) = read(&[
        ("OTEL_METRICS_EXPORTER", "prometheus"),
        ("OTEL_EXPORTER_PROMETHEUS_HOST", "0.0.0.0"),
        ("OTEL_EXPORTER_PROMETHEUS_PORT", "1234"),
    ]);
    assert_eq!((settings.served_at, bad), (at("0.0.0.0:1234"), Vec::new()));
    assert!(!settings.is_off());
}

#[test]
fn what_is_compressed_is_read_for_one_signal_or_for_all() {
    let (settings, bad) = read(&[
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
        ("OTEL_EXPORTER_OTLP_LOGS_COMPRESSION", "none"),
        ("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "zstd"),
    ]);
    let is_compressed = |target: Option<ExportTarget>| target.unwrap().is_compressed;
    assert!(is_compressed(settings.metrics) && !is_compressed(settings.logs));
    let bad: Vec<_> = bad.iter().map(ToString::to_string).collect();
    assert_eq!(bad, ["OTEL_EXPORTER_OTLP_TRACES_COMPRESSION: \"zstd\" is not understood"]);
}

/// The exporters would leave these out, and nobody would know why a collector refuses what comes.
#[test]
fn what_is_wrong_with_headers_and_attributes_is_said_and_no_secret_with_it() {
    let (settings, bad) = read(&[
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Basic%20s3cret,s3cret"),
        ("OTEL_EXPORTER_OTLP_LOGS_HEADERS", "x-scope=a"),
        ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=prod,team"),
        ("OTEL_TRACES_EXPORTER", "zipkin"),
    ]);
    assert!(settings.traces.is_some(), "what is not understood counts as not said");
    let mut bad: Vec<_> = bad.iter().map(ToString::to_string).collect();
    bad.sort_unstable();
    assert_eq!(
        bad,
        [
            "OTEL_EXPORTER_OTLP_HEADERS: entry 2 is no name=value, so it is not sent",
            "OTEL_RESOURCE_ATTRIBUTES: entry 2, \"team\", is no name=value, so it is left out",
            "OTEL_TRACES_EXPORTER: there is no exporter \"zipkin\" here, but otlp and none",
        ]
    );
}
