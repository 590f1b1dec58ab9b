//! The log and the telemetry of this process: a log on stderr, and traces, metrics and logs to the
//! collector that the environment names.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write as _};
use std::mem;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use parking_lot::Mutex;
use serde_json::json;
use smol_str::SmolStr;
use tenure_sdk::client::WAITS;
use tenure_sdk::worker::SHORTAGE;
use tenure_telemetry::trace::ParentSpan;
use tenure_telemetry::{ExportSettings, Telemetry};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::{FilterExt as _, Targets};
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer};
use uuid::Uuid;

use crate::answer::log_line::{self, LogForm, LogWriter, Weight};
use crate::answer::output;
use crate::instance::InstanceName;
use crate::line_limit::LineLimit;

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

/// How a command logs, and under which name it sends telemetry.
#[derive(Debug, Clone, Default)]
pub(crate) struct TelemetryArgs {
    /// The default of `TENURE_LOG`; none if nothing is logged. A command for which a user waits
    /// prints its messages itself.
    pub(crate) log: Option<&'static str>,
    /// How.
    pub(crate) format: LogFormat,
    /// The service name in telemetry; none if the command never sends any.
    pub(crate) service: Option<&'static str>,
    /// The instance in telemetry, by the name that it has elsewhere; none if it has no such name.
    pub(crate) instance: Option<String>,
    /// Whether the command serves until it is told to stop. Then all its lines have the form of its log.
    pub(crate) serves: bool,
    /// The name that its user gave the process, which is the instance in telemetry after every start.
    pub(crate) name: Option<String>,
    /// Whether the command serves a page of metrics, and at which address it was told to.
    pub(crate) serves_metrics: bool,
    /// That address.
    pub(crate) metrics: Option<SocketAddr>,
    /// Whether the command itself shows on its screen that nobody answers.
    pub(crate) shows_silences: bool,
    /// Values of OpenTelemetry's variables that the environment does not set.
    pub(crate) variables: BTreeMap<String, String>,
}

/// The running log and telemetry of a command.
#[derive(Debug)]
pub(crate) struct Telling {
    /// The telemetry to a collector.
    pub(crate) telemetry: Option<Telemetry>,
    /// Whether there is a log on stderr.
    is_logged: bool,
    lines: LineLimit,
    _instance: Option<InstanceName>,
}

impl Telling {
    /// Sends what is left, for a short time at most. Without a log, prints that the collector did
    /// not take everything.
    pub(crate) fn end(self) {
        self.lines.summarize();
        if let Some(error) = self.telemetry.and_then(Telemetry::end)
            && !self.is_logged
        {
            output::warn(format_args!(
                "the collector of telemetry did not take everything: {error}"
            ));
        }
    }
}

/// Starts the log and the telemetry of a command.
pub(crate) fn start(told: TelemetryArgs) -> Telling {
    let asked = std::env::var("TENURE_LOG").ok().or(told.log.map(str::to_owned));
    let asked = asked.map(with_quiet_libraries);
    let (is_logged, format) = (asked.is_some(), told.format);
    let (shows_silences, serves) = (told.shows_silences, told.serves);
    if serves && is_logged {
        log_line::begin(match format {
            LogFormat::Text => LogForm::Text,
            LogFormat::Json => LogForm::Json,
        });
    }
    let (telemetry, instance) = connect(told);
    let outside = telemetry.as_ref();
    let outside = outside.and_then(|it| {
        it.log_layer(asked.as_deref().unwrap_or(&with_quiet_libraries("info".into())))
    });
    let lines = LineLimit::default();
    let stderr = asked.map(|filter| {
        lines.summarize_forever();
        let log = tracing_subscriber::fmt::layer().with_writer(|| LogWriter(std::io::stderr()));
        let log = match format {
            LogFormat::Text => log.with_ansi(output::Stream::Stderr.has_colour()).boxed(),
            LogFormat::Json => {
                let lines = telemetry.as_ref().map(Telemetry::json_lines).unwrap_or_default();
                log.with_ansi(false).json().event_format(lines).boxed()
            }
        };
        log.with_filter(EnvFilter::new(filter).and(lines.clone()))
    });
    // A waiting user learns that no scheduler answers, even without a log (CTRL-11).
    let silences = (!is_logged && !shows_silences).then(|| silences(|said| output::say(said)));
    // And what a worker of this command lacks itself, which is the user's to mend.
    let shortages = (!is_logged).then(|| shortages(|said| output::say(said)));
    let told = tracing_subscriber::registry().with(stderr).with(outside);
    told.with(silences).with(shortages).init();
    if serves && is_logged {
        log_line::log_panics();
    }
    Telling { telemetry, is_logged, lines, _instance: instance }
}

/// Libraries of which less is logged than of everything else: that of MCP says of each request what a tool may have
/// answered, and that of NATS says five times a second that a server is away, which this program says once.
const QUIET: [(&str, &str); 2] = [("rmcp", "error"), ("async_nats", "warn")];

/// A filter of the log that hides what [`QUIET`] libraries say, but for those that the filter names, and where it shows
/// less of everything.
fn with_quiet_libraries(filter: String) -> String {
    let levels = filter.split(',').filter_map(|part| part.trim().parse::<LevelFilter>().ok());
    let shown = levels.max().unwrap_or(LevelFilter::OFF);
    let is_more = |level: &str| level.parse::<LevelFilter>().is_ok_and(|level| shown > level);
    let quiet = QUIET.iter().filter(|(library, level)| is_more(level) && !filter.contains(library));
    quiet.fold(filter.trim().to_owned(), |filter, (library, level)| {
        format!("{filter},{library}={level}")
    })
}

/// A wait that begins so soon after another was given up waits through the same silence.
const SAME_SILENCE: Duration = Duration::from_secs(5);

/// Prints the messages of waits about schedulers that do not answer, for users without a log. Waits may be inside of
/// other waits, and beside them: only the first silence is printed, and only the first answer after it.
fn silences<S>(say: impl Fn(&str) + Send + Sync + 'static) -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let waits = Mutex::default();
    Silences { say, waits }.with_filter(Targets::new().with_target(WAITS, LevelFilter::DEBUG))
}

/// Prints what workers of this process lack, for users without a log.
fn shortages<S>(say: impl Fn(&str) + Send + Sync + 'static) -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    Shortages(say).with_filter(Targets::new().with_target(SHORTAGE, LevelFilter::WARN))
}

struct Shortages<F>(F);

impl<S: Subscriber, F: Fn(&str) + 'static> Layer<S> for Shortages<F> {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        event.record(&mut Said(&self.0));
    }
}

struct Silences<F> {
    say: F,
    waits: Mutex<NotifiedWaits>,
}

/// The waits that were logged.
#[derive(Debug, Default)]
struct NotifiedWaits {
    /// How many are not over.
    open: usize,
    /// Whether a silence was printed, and no answer after it.
    is_silent: bool,
    /// When the last of them was given up during a silence.
    given_up: Option<Instant>,
}

impl NotifiedWaits {
    /// Takes the beginning of a wait (`WARN`), its answer (`INFO`) or that it was given up (`DEBUG`). Returns whether
    /// to print that.
    fn take(&mut self, level: Level, now: Instant) -> bool {
        if level == Level::WARN {
            self.open += 1;
            let given_up = self.given_up.take();
            let is_same = given_up.is_some_and(|at| now.duration_since(at) < SAME_SILENCE);
            return !mem::replace(&mut self.is_silent, true) && !is_same;
        }
        self.open = self.open.saturating_sub(1);
        if level == Level::INFO {
            return mem::take(&mut self.is_silent);
        }
        if self.open == 0 && mem::take(&mut self.is_silent) {
            self.given_up = Some(now);
        }
        false
    }
}

impl<S: Subscriber, F: Fn(&str) + 'static> Layer<S> for Silences<F> {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let is_printed = self.waits.lock().take(*event.metadata().level(), Instant::now());
        if is_printed {
            event.record(&mut Said(&self.say));
        }
    }
}

/// Prints the message of a log event.
struct Said<'a, F>(&'a F);

impl<F: Fn(&str)> Visit for Said<'_, F> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            (self.0)(&format!("{value:?}"));
        }
    }
}

/// The `TRACEPARENT` of this process's environment, if its caller set it: Tasks that this process
/// makes become a part of that trace.
pub(crate) fn trace_of_caller() -> Option<SmolStr> {
    let said = std::env::var("TRACEPARENT").ok()?;
    ParentSpan::parse(&said).map(|_| said.into())
}

/// Connects to the collector. Telemetry never stops a command: this prints what is wrong with it,
/// and the command goes on. Answers with the name of the instance, too, which counts as long as it is held.
fn connect(told: TelemetryArgs) -> (Option<Telemetry>, Option<InstanceName>) {
    let (Some(service), variables) = (told.service, told.variables) else { return (None, None) };
    let boot = told.instance.unwrap_or_else(|| Uuid::new_v4().to_string());
    let find = |name: &str| std::env::var(name).ok().or_else(|| variables.get(name).cloned());
    let (mut settings, bad) = ExportSettings::read(service, &boot, find);
    bad.iter().for_each(output::warn);
    settings.served_at = told.metrics.or(settings.served_at);
    if !told.serves_metrics && settings.served_at.take().is_some() {
        output::warn(format_args!(
            "OTEL_METRICS_EXPORTER: this command serves no page for Prometheus; `tenure serve` and `tenure worker` \
             do, and /metrics of a gateway is there anyway"
        ));
    }
    if settings.is_off() {
        return (None, None);
    }
    let instance = told.name.and_then(|name| InstanceName::take(service, &name));
    if let Some(named) = &instance {
        settings.instance.clone_from(&named.name);
        settings.boot = Some(boot.clone());
    }
    let page_alone = settings.served_at.map(|at| {
        let (served_at, boot) = (Some(at), settings.boot.clone());
        ExportSettings { served_at, boot, ..ExportSettings::none(service, &settings.instance) }
    });
    let start = |settings| Telemetry::start(settings, print_metrics);
    let started = start(settings).or_else(|error| {
        output::warn(error);
        page_alone.map_or(Ok(None), start)
    });
    let started = started.unwrap_or_else(|error| {
        output::warn(error);
        None
    });
    (started, instance)
}

/// Prints the page of metrics: where the log is JSON, in a line of it.
fn print_metrics(page: &str) {
    match log_line::form() {
        Some(form @ LogForm::Json) => {
            output::say_as(form, Weight::Info, "metrics", json!({"page": page}));
        }
        _ => {
            let _ = io::stderr().write_all(page.as_bytes()); // Nobody may read it.
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;

    use tenure_core::{Code, Rejection};
    use tenure_embedded::Embedded;
    use tenure_sdk::client::{NotifiedWait, patiently};

    use super::*;

    /// CTRL-11: a waiting user learns once that nobody answers and once that this is over, and sees
    /// nothing else of the log.
    #[test]
    fn whoever_waits_hears_of_a_silence() {
        let dir = tempfile::tempdir().unwrap();
        let heard: Arc<Mutex<Vec<String>>> = Arc::default();
        let into = Arc::clone(&heard);
        let layer = silences(move |said| into.lock().push(said.to_owned()));
        let _told = tracing_subscriber::registry().with(layer).set_default();
        let questions = Cell::new(0);
        let ask = || {
            questions.set(questions.get() + 1);
            let is_silent = questions.get() < 3;
            let silence = Rejection::new(Code::Unavailable, "nobody serves this now");
            async move { if is_silent { Err(silence) } else { Ok(()) } }
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let scheduler = Embedded::open(dir.path()).await.unwrap();
            let client = scheduler.client("default").unwrap();
            let outer = || async {
                let _told = NotifiedWait::begin("a wait inside of this one");
                ask().await
            };
            patiently(client.port(), ask).await.unwrap();
            questions.set(0);
            patiently(client.port(), outer).await.unwrap();
        });
        let again = "there is an answer again";
        let words = [
            "unavailable: nobody serves this now; it is waited for",
            again,
            "a wait inside of this one; it is waited for",
            again,
        ];
        assert_eq!(*heard.lock(), words);
    }

    #[test]
    fn libraries_are_quiet_unless_they_are_named() {
        for (asked, filter) in [
            ("info", "info,rmcp=error,async_nats=warn"),
            ("debug,tenure=trace", "debug,tenure=trace,rmcp=error,async_nats=warn"),
            ("warn", "warn,rmcp=error"),
            ("error", "error"),
            ("tenure=debug", "tenure=debug"),
            ("info,rmcp=debug", "info,rmcp=debug,async_nats=warn"),
            ("info,async_nats=debug", "info,async_nats=debug,rmcp=error"),
            ("off", "off"),
            ("", ""),
        ] {
            assert_eq!(with_quiet_libraries(asked.into()), filter);
        }
    }

    /// A silence is printed though an earlier wait got no answer, and once though waits follow each other.
    #[test]
    fn a_wait_that_was_given_up_hides_no_later_silence() {
        let (mut waits, begun) = (NotifiedWaits::default(), Instant::now());
        let mut take = |level, seconds| waits.take(level, begun + Duration::from_secs(seconds));
        assert!(take(Level::WARN, 0));
        assert!(!take(Level::DEBUG, 30));
        assert!(!take(Level::WARN, 31), "the same silence");
        assert!(!take(Level::WARN, 60), "another wait in it");
        assert!(!take(Level::DEBUG, 90));
        assert!(!take(Level::WARN, 120), "one of them goes on");
        assert!(take(Level::INFO, 121));
        assert!(!take(Level::DEBUG, 122));
        assert!(take(Level::WARN, 123), "a silence after an answer");
        assert!(!take(Level::DEBUG, 150));
        assert!(take(Level::WARN, 160), "long after the wait was given up");
    }
}
