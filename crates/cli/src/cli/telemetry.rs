//! What this process tells of itself: a log on stderr, and whatever the environment asks to be sent
//! to a collector.

use std::collections::BTreeMap;

use clap::{Args, ValueEnum};
use smol_str::SmolStr;
use tenure_telemetry::trace::Parent;
use tenure_telemetry::{Settings, Telemetry};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};
use uuid::Uuid;

use super::output;

/// How the log is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people
    #[default]
    Text,
    /// An object in JSON on each line
    Json,
}

/// What the log of a process that serves looks like.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct LogArgs {
    /// How the log on stderr is written
    #[arg(long, value_enum, value_name = "FORMAT", env = "TENURE_LOG_FORMAT", default_value_t)]
    pub(crate) log_format: LogFormat,
}

/// How a command tells what it does.
#[derive(Debug, Clone, Default)]
pub(crate) struct Told {
    /// What is logged where `TENURE_LOG` says nothing; none: nothing. A command that somebody waits
    /// for says itself what must be known.
    pub(crate) log: Option<&'static str>,
    /// How.
    pub(crate) format: LogFormat,
    /// What the process is called where it sends telemetry; none: it never does.
    pub(crate) service: Option<&'static str>,
    /// Which one it is there, as everything else names it; none: nothing else does.
    pub(crate) instance: Option<String>,
    /// Variables of OpenTelemetry for what the environment does not say.
    pub(crate) variables: BTreeMap<String, String>,
}

/// How a command is told of.
#[derive(Debug)]
pub(crate) struct Telling {
    /// What goes to a collector.
    pub(crate) telemetry: Option<Telemetry>,
    /// Whether there is a log on stderr.
    is_logged: bool,
}

impl Telling {
    /// Sends what is left, for a moment at most. What the collector did not take is said where no log
    /// has said it.
    pub(crate) fn end(self) {
        if let Some(error) = self.telemetry.and_then(Telemetry::end)
            && !self.is_logged
        {
            output::warn(format_args!(
                "the collector of telemetry did not take everything: {error}"
            ));
        }
    }
}

/// Starts what a command asks for.
pub(crate) fn start(told: Told) -> Telling {
    let asked = std::env::var("TENURE_LOG").ok().or(told.log.map(str::to_owned));
    let (is_logged, format) = (asked.is_some(), told.format);
    let telemetry = connect(told);
    let outside = telemetry.as_ref();
    let outside = outside.and_then(|it| it.log_layer(asked.as_deref().unwrap_or("info")));
    let stderr = asked.map(|filter| {
        let log = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
        let log = match format {
            LogFormat::Text => log.with_ansi(output::Stream::Stderr.has_colour()).boxed(),
            LogFormat::Json => {
                let lines = telemetry.as_ref().map(Telemetry::json_lines).unwrap_or_default();
                log.with_ansi(false).json().event_format(lines).boxed()
            }
        };
        log.with_filter(EnvFilter::new(filter))
    });
    if stderr.is_some() || outside.is_some() {
        tracing_subscriber::registry().with(stderr).with(outside).init();
    }
    Telling { telemetry, is_logged }
}

/// The span that this process was started below, if whoever did so says it as others do: what it makes
/// is a part of that trace.
pub(crate) fn trace_of_caller() -> Option<SmolStr> {
    let said = std::env::var("TRACEPARENT").ok()?;
    Parent::parse(&said).map(|_| said.into())
}

/// Telemetry stops nobody: what is wrong with it is said, and the command goes on.
fn connect(told: Told) -> Option<Telemetry> {
    let (service, variables) = (told.service?, told.variables);
    let instance = told.instance.unwrap_or_else(|| Uuid::new_v4().to_string());
    let find = |name: &str| std::env::var(name).ok().or_else(|| variables.get(name).cloned());
    let (settings, bad) = Settings::read(service, &instance, find);
    bad.iter().for_each(output::warn);
    Telemetry::start(settings).unwrap_or_else(|error| {
        output::warn(error);
        None
    })
}
