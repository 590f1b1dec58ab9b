//! Reads the settings from the environment variables that OpenTelemetry defines.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::pairs;
use crate::trace::Sampler;

mod unused;

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
    /// Whether what is sent is compressed with gzip.
    pub is_compressed: bool,
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
    /// The name of this start of the process, if its instance has the same name after a restart.
    pub boot: Option<String>,
    /// Where traces go.
    pub traces: Option<ExportTarget>,
    /// Where metrics go.
    pub metrics: Option<ExportTarget>,
    /// Whether metrics are written to stderr.
    pub is_printed: bool,
    /// At which address metrics are to be served (`OTEL_METRICS_EXPORTER=prometheus`).
    pub served_at: Option<SocketAddr>,
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

/// Where metrics are served if only `OTEL_METRICS_EXPORTER` says that they are: as everywhere.
const PROMETHEUS: (IpAddr, u16) = (IpAddr::V4(Ipv4Addr::LOCALHOST), 9_464);

/// A setting that cannot be understood. It is ignored, as telemetry must not stop a process.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name}: {why}")]
pub struct BadSetting {
    name: String,
    /// Without what may be a secret.
    why: String,
}

/// The ways out for a signal that `OTEL_<SIGNAL>_EXPORTER` names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct NamedExporters {
    otlp: bool,
    prometheus: bool,
    console: bool,
}

impl ExportSettings {
    /// Settings that export nothing.
    pub fn none(service: &str, instance: &str) -> Self {
        Self {
            service: service.to_owned(),
            instance: instance.to_owned(),
            boot: None,
            traces: None,
            metrics: None,
            is_printed: false,
            served_at: None,
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
        let metrics = reader.exporters("METRICS").unwrap_or_default();
        settings.is_printed = metrics.console;
        settings.served_at = metrics.prometheus.then(|| reader.prometheus());
        reader.check_pairs();
        settings.delay = reader.millis("OTEL_BSP_SCHEDULE_DELAY").unwrap_or(DELAY);
        settings.interval = reader.millis("OTEL_METRIC_EXPORT_INTERVAL").unwrap_or(INTERVAL);
        settings.sampler = reader.sampler();
        if !settings.is_off() {
            reader.check_unused();
        }
        (settings, reader.bad)
    }

    /// Whether traces or logs are exported, which name traces.
    pub(crate) fn has_trace_ids(&self) -> bool {
        self.traces.is_some() || self.logs.is_some()
    }

    /// Whether metrics are counted.
    pub(crate) fn has_metrics(&self) -> bool {
        self.metrics.is_some() || self.is_printed || self.served_at.is_some()
    }

    /// Whether nothing is exported.
    pub fn is_off(&self) -> bool {
        self.traces.is_none() && !self.has_metrics() && self.logs.is_none()
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
            self.note_bad(name, format!("{value:?} is not understood"));
        }
        read
    }

    /// Notes once what is wrong with a variable.
    fn note_bad(&mut self, name: &str, why: String) {
        if self.bad.iter().all(|bad| bad.name != name) {
            self.bad.push(BadSetting { name: name.to_owned(), why });
        }
    }

    /// The exporters of a signal that a variable names: some of a list. `None`: it names none that there is.
    fn exporters(&mut self, signal: &str) -> Option<NamedExporters> {
        let name = format!("OTEL_{signal}_EXPORTER");
        let value = (self.variable)(&name)?;
        let (mut named, mut known) = (NamedExporters::default(), 0);
        for exporter in value.split(',').map(str::trim) {
            known += 1;
            match (exporter, signal) {
                ("none", _) => {}
                ("otlp", _) => named.otlp = true,
                ("prometheus", "METRICS") => named.prometheus = true,
                ("console", "METRICS") => named.console = true,
                (other, _) => {
                    known -= 1;
                    let there = match signal {
                        "METRICS" => "otlp, prometheus, console and none",
                        _ => "otlp and none",
                    };
                    self.note_bad(
                        &name,
                        format!("there is no exporter {other:?} here, but {there}"),
                    );
                }
            }
        }
        (known > 0).then_some(named)
    }

    /// Where metrics are served.
    fn prometheus(&mut self) -> SocketAddr {
        let named = |host: &str| match host {
            "localhost" => Some(PROMETHEUS.0),
            other => other.parse().ok(),
        };
        let host = self.read("OTEL_EXPORTER_PROMETHEUS_HOST", named).unwrap_or(PROMETHEUS.0);
        let port = self.read("OTEL_EXPORTER_PROMETHEUS_PORT", |port| port.parse().ok());
        SocketAddr::new(host, port.unwrap_or(PROMETHEUS.1))
    }

    /// Names what the exporters would leave out in silence: headers and attributes that are not written as they must
    /// be.
    fn check_pairs(&mut self) {
        let headers = ["", "TRACES_", "METRICS_", "LOGS_"];
        for name in headers.map(|of| format!("OTEL_EXPORTER_OTLP_{of}HEADERS")) {
            if let Some(why) = (self.variable)(&name).and_then(|all| pairs::bad_header(&all)) {
                self.note_bad(&name, why);
            }
        }
        let name = "OTEL_RESOURCE_ATTRIBUTES";
        if let Some(why) = (self.variable)(name).and_then(|all| pairs::bad_attribute(&all)) {
            self.note_bad(name, why);
        }
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
        if self.exporters(signal).is_some_and(|named| !named.otlp) {
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
        let is_compressed = self.of_signal(signal, "COMPRESSION", compression).unwrap_or(false);
        let is_insecure = self.of_signal(signal, "INSECURE", boolean).unwrap_or(false);
        let endpoint = match protocol {
            Protocol::Http if !is_own => {
                format!("{}/v1/{}", endpoint.trim_end_matches('/'), signal.to_lowercase())
            }
            Protocol::Grpc if is_insecure && !endpoint.contains("://") => {
                format!("http://{endpoint}")
            }
            _ => endpoint,
        };
        Some(ExportTarget { protocol, endpoint, certificate, timeout, is_compressed })
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

fn boolean(value: &str) -> Option<bool> {
    value.to_ascii_lowercase().parse().ok()
}

fn compression(name: &str) -> Option<bool> {
    match name {
        "gzip" => Some(true),
        "none" => Some(false),
        _ => None,
    }
}

fn protocol(name: &str) -> Option<Protocol> {
    match name {
        "grpc" => Some(Protocol::Grpc),
        "http/protobuf" => Some(Protocol::Http),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
