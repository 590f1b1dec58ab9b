//! Reads the settings from the environment variables that OpenTelemetry defines.

use std::path::PathBuf;
use std::time::Duration;

use crate::trace::Sampler;

/// The protocol to a collector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// gRPC.
    Grpc,
    /// Protocol buffers over HTTP.
    Http,
}

/// Where and how a signal is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportTarget {
    /// The protocol.
    pub protocol: Protocol,
    /// The URL: that of the server for gRPC, the complete one for HTTP.
    pub endpoint: String,
    /// The file with the trusted authorities, in PEM; none: those of the machine.
    pub certificate: Option<PathBuf>,
    /// How long an export may take.
    pub timeout: Duration,
}

impl ExportTarget {
    /// Whether the connection has TLS: with gRPC also if no scheme is named.
    pub(crate) fn is_tls(&self) -> bool {
        let scheme = self.endpoint.split_once("://").map(|(scheme, _)| scheme);
        scheme.map_or(self.protocol == Protocol::Grpc, |it| it.eq_ignore_ascii_case("https"))
    }
}

/// What is exported, and where to.
#[derive(Debug, Clone, PartialEq)]
pub struct ExportSettings {
    /// The name of the service if the environment does not say it.
    pub service: String,
    /// The name of this instance if the environment does not say it.
    pub instance: String,
    /// Where traces go.
    pub traces: Option<ExportTarget>,
    /// Where metrics go.
    pub metrics: Option<ExportTarget>,
    /// Where logs go.
    pub logs: Option<ExportTarget>,
    /// Which Tasks become traces.
    pub sampler: Sampler,
    /// For how long spans and log records are gathered at most. A process that is killed loses what
    /// it has gathered.
    pub delay: Duration,
    /// How often metrics are sent.
    pub interval: Duration,
}

/// For how long spans and logs are gathered by default: less than the usual 5 s, because a killed
/// process loses what it has gathered.
const DELAY: Duration = Duration::from_secs(1);

/// How often metrics are sent by default.
const INTERVAL: Duration = Duration::from_secs(60);

/// How long an export may take by default.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A setting that cannot be understood. It is ignored, as telemetry must not stop a process.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name}: {value:?} is not understood")]
pub struct BadSetting {
    name: String,
    value: String,
}

impl ExportSettings {
    /// Settings that export nothing.
    pub fn none(service: &str, instance: &str) -> Self {
        Self {
            service: service.to_owned(),
            instance: instance.to_owned(),
            traces: None,
            metrics: None,
            logs: None,
            sampler: Sampler::default(),
            delay: DELAY,
            interval: INTERVAL,
        }
    }

    /// Reads the variables, of the process or others. Also returns those that it does not
    /// understand.
    pub fn read(
        service: &str,
        instance: &str,
        variable: impl Fn(&str) -> Option<String>,
    ) -> (Self, Vec<BadSetting>) {
        // An empty variable counts as not set.
        let variable = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let mut reader = SettingsReader { variable: &variable, bad: Vec::new() };
        let mut settings = Self::none(service, instance);
        if variable("OTEL_SDK_DISABLED").is_some_and(|it| it.eq_ignore_ascii_case("true")) {
            return (settings, Vec::new());
        }
        settings.traces = reader.target("TRACES");
        settings.metrics = reader.target("METRICS");
        settings.logs = reader.target("LOGS");
        settings.delay = reader.millis("OTEL_BSP_SCHEDULE_DELAY").unwrap_or(DELAY);
        settings.interval = reader.millis("OTEL_METRIC_EXPORT_INTERVAL").unwrap_or(INTERVAL);
        settings.sampler = reader.sampler();
        (settings, reader.bad)
    }

    /// Whether traces or logs are exported, which name traces.
    pub(crate) fn has_trace_ids(&self) -> bool {
        self.traces.is_some() || self.logs.is_some()
    }

    /// Whether nothing is exported.
    pub fn is_off(&self) -> bool {
        self.traces.is_none() && self.metrics.is_none() && self.logs.is_none()
    }
}

struct SettingsReader<'a> {
    variable: &'a dyn Fn(&str) -> Option<String>,
    bad: Vec<BadSetting>,
}

impl SettingsReader<'_> {
    fn read<T>(&mut self, name: &str, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        let value = (self.variable)(name)?;
        let read = parse(value.trim());
        if read.is_none() {
            self.bad.push(BadSetting { name: name.to_owned(), value });
        }
        read
    }

    fn millis(&mut self, name: &str) -> Option<Duration> {
        self.read(name, millis)
    }

    fn sampler(&mut self) -> Sampler {
        let argument = (self.variable)("OTEL_TRACES_SAMPLER_ARG");
        let named = |name: &str| Sampler::named(name, argument.as_deref());
        self.read("OTEL_TRACES_SAMPLER", named).unwrap_or_default()
    }

    /// The target of a signal: its own variables go before those of all signals.
    fn target(&mut self, signal: &str) -> Option<ExportTarget> {
        if (self.variable)(&format!("OTEL_{signal}_EXPORTER")).as_deref() == Some("none") {
            return None;
        }
        let own = (self.variable)(&format!("OTEL_EXPORTER_OTLP_{signal}_ENDPOINT"));
        let of_all = || (self.variable)("OTEL_EXPORTER_OTLP_ENDPOINT");
        let (endpoint, is_own) = match own {
            Some(endpoint) => (endpoint, true),
            None => (of_all()?, false),
        };
        let protocol = self.of_signal(signal, "PROTOCOL", protocol).unwrap_or(Protocol::Http);
        let certificate = self.of_signal(signal, "CERTIFICATE", |file| Some(file.into()));
        let timeout = self.of_signal(signal, "TIMEOUT", millis).unwrap_or(TIMEOUT);
        let endpoint = match protocol {
            Protocol::Http if !is_own => {
                format!("{}/v1/{}", endpoint.trim_end_matches('/'), signal.to_lowercase())
            }
            _ => endpoint,
        };
        Some(ExportTarget { protocol, endpoint, certificate, timeout })
    }

    fn of_signal<T>(
        &mut self,
        signal: &str,
        what: &str,
        parse: fn(&str) -> Option<T>,
    ) -> Option<T> {
        let own = self.read(&format!("OTEL_EXPORTER_OTLP_{signal}_{what}"), parse);
        own.or_else(|| self.read(&format!("OTEL_EXPORTER_OTLP_{what}"), parse))
    }
}

fn millis(value: &str) -> Option<Duration> {
    value.parse().ok().filter(|ms| *ms > 0).map(Duration::from_millis)
}

fn protocol(name: &str) -> Option<Protocol> {
    match name {
        "grpc" => Some(Protocol::Grpc),
        "http/protobuf" => Some(Protocol::Http),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> (ExportSettings, Vec<BadSetting>) {
        let find = |name: &str| variables.iter().find(|(it, _)| *it == name);
        ExportSettings::read("tenure", "i", |name| find(name).map(|(_, value)| (*value).to_owned()))
    }

    fn target(protocol: Protocol, endpoint: &str) -> Option<ExportTarget> {
        let endpoint = endpoint.to_owned();
        Some(ExportTarget { protocol, endpoint, certificate: None, timeout: TIMEOUT })
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
}
