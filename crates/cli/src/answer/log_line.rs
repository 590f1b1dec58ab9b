//! The form of the lines that a process writes to stderr by itself. A process that serves writes them in the form of
//! its log, so that a collector of logs can read every line.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, Write as _};
use std::panic::PanicHookInfo;
use std::sync::OnceLock;

use serde_json::{Map, Value as Json, json};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};

use super::harmless;

/// The form of the log of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogForm {
    /// Lines for people.
    Text,
    /// An object in JSON on each line.
    Json,
}

/// The target of what the process says itself.
const TARGET: &str = "tenure";

/// Set once, when the log begins.
static FORM: OnceLock<LogForm> = OnceLock::new();

/// From now on this process writes all its lines in the form of its log.
pub(crate) fn begin(form: LogForm) {
    let _ = FORM.set(form); // A process has one log.
}

/// The form of the log, if this process has one that serves.
pub(crate) fn form() -> Option<LogForm> {
    FORM.get().copied()
}

/// A [harmless] text in one line.
fn one_line(text: &str) -> String {
    harmless(text).replace('\n', r"\u000a")
}

/// A writer of the log, which gets each line in one call. What others have written, such as a message of an error,
/// begins no line of its own there, and is [harmless].
pub(crate) struct LogWriter<W>(pub(crate) W);

impl<W: io::Write> io::Write for LogWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        let (line, end) = match text.strip_suffix('\n') {
            Some(line) => (line, "\n"),
            None => (&*text, ""),
        };
        self.0.write_all((one_line(line) + end).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// How much a line matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Weight {
    Info,
    Warn,
    Error,
}

impl Weight {
    const fn name(self) -> &'static str {
        match self {
            Self::Info => "INFO",
            Self::Warn => "WARN",
            Self::Error => "ERROR",
        }
    }
}

/// The line for a message with further fields.
pub(crate) fn line(form: LogForm, weight: Weight, message: &str, more: Json) -> String {
    let mut now = String::new();
    let _ = SystemTime.format_time(&mut Writer::new(&mut now)); // Writing to a string cannot fail.
    let more = match more {
        Json::Object(more) => more,
        _ => Map::new(),
    };
    match form {
        LogForm::Text => {
            let mut line = format!("{now} {:>5} {TARGET}: {}", weight.name(), one_line(message));
            for (name, value) in &more {
                line.push_str(&format!(" {name}={value}"));
            }
            line
        }
        LogForm::Json => {
            let mut line = json!({"timestamp": now, "level": weight.name(), "message": message});
            for (name, value) in more {
                line[name] = value;
            }
            line["target"] = TARGET.into();
            line.to_string()
        }
    }
}

/// Writes a panic of any thread into the log as one line, with its place in the code. If the filter of the log keeps
/// such lines out, the panic goes to stderr: a filter is not meant to hide panics.
pub(crate) fn log_panics() {
    std::panic::set_hook(Box::new(|info| {
        log_panic(info, |line| {
            let _ = writeln!(io::stderr(), "{}", harmless(line)); // If stderr is closed, nothing is left to do.
        });
    }));
}

fn log_panic(info: &PanicHookInfo<'_>, print: impl Fn(&str)) {
    let payload = info.payload();
    let what = payload.downcast_ref::<&str>().copied();
    let what = what.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let message = format!("a thread panicked: {}", what.unwrap_or("no message"));
    let at = info.location().map(ToString::to_string);
    let thread = std::thread::current().name().map(str::to_owned);
    let backtrace = Backtrace::capture();
    let is_asked = backtrace.status() == BacktraceStatus::Captured;
    let backtrace = is_asked.then(|| backtrace.to_string());
    if tracing::enabled!(target: TARGET, tracing::Level::ERROR) {
        tracing::error!(target: TARGET, at, thread, backtrace, "{message}");
        return;
    }
    let more = [("at", at), ("thread", thread), ("backtrace", backtrace)];
    let more = more.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.into())));
    let more = Json::Object(more.collect());
    print(&line(form().unwrap_or(LogForm::Text), Weight::Error, &message, more));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_its_time_in_both_forms() {
        let more = json!({"help": "see \"that\""});
        let text = line(LogForm::Text, Weight::Warn, "n\u{1b}ode", more.clone());
        let (time, rest) = text.split_once(' ').unwrap();
        assert!(time.starts_with("20") && time.ends_with('Z'), "{text}");
        assert_eq!(rest, " WARN tenure: n\\u001bode help=\"see \\\"that\\\"\"");
        let text = line(LogForm::Json, Weight::Info, "n\u{1b}ode", more);
        let read: Json = serde_json::from_str(&text).unwrap();
        assert_eq!((&read["level"], &read["message"]), (&"INFO".into(), &"n\u{1b}ode".into()));
        assert_eq!(read["help"], "see \"that\"");
        assert!(read["timestamp"].as_str().is_some_and(|time| time.ends_with('Z')));
        assert!(!text.contains('\u{1b}'), "{text}");
    }

    /// The message of a panic.
    #[derive(Debug, Clone, Default)]
    struct Lines(std::sync::Arc<parking_lot::Mutex<Vec<u8>>>);

    impl std::io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_others_wrote_begins_no_line_of_the_log() {
        for has_colour in [false, true] {
            let lines = Lines::default();
            let to = lines.clone();
            let log = tracing_subscriber::fmt().with_ansi(has_colour);
            let log = log.with_writer(move || LogWriter(to.clone())).finish();
            tracing::subscriber::with_default(log, || {
                let error = "no\r\n2026-01-01T00:00:00Z  INFO forged\u{202e}\u{9b}2J\x1b[2J";
                tracing::warn!(%error, title = error, "it failed: {error}");
                tracing::warn!("after\tit");
            });
            let text = String::from_utf8(lines.0.lock().clone()).unwrap();
            assert_eq!(text.lines().count(), 2, "{text:?}");
            assert!(text.ends_with("after\tit\n"), "{text:?}");
            assert_eq!(harmless(&text), text);
            assert_eq!(text.contains("\x1b[33m WARN\x1b[0m"), has_colour, "{text:?}");
            assert!(
                text.contains(r"no\u000d\u000a2026-01-01T00:00:00Z  INFO forged\u202e"),
                "{text:?}"
            );
        }
    }

    #[test]
    fn a_log_in_json_keeps_what_others_wrote_and_levels_keep_their_colours() {
        let lines = Lines::default();
        let to = lines.clone();
        let log = tracing_subscriber::fmt().json().flatten_event(true);
        let log = log.with_writer(move || LogWriter(to.clone())).finish();
        let error = "no\r\nforged\u{202e}\u{9b}2J\x1b[2J";
        tracing::subscriber::with_default(log, || tracing::warn!(error, "it failed"));
        let text = String::from_utf8(lines.0.lock().clone()).unwrap();
        assert_eq!((text.lines().count(), &*harmless(&text)), (1, &*text));
        assert_eq!(serde_json::from_str::<Json>(&text).unwrap()["error"], error);

        let lines = Lines::default();
        let to = lines.clone();
        let log = tracing_subscriber::fmt().with_ansi(true).with_max_level(tracing::Level::TRACE);
        let log = log.with_writer(move || LogWriter(to.clone())).finish();
        tracing::subscriber::with_default(log, || {
            tracing::error!(a = 1, "one");
            tracing::info!("two");
            tracing::debug!("three");
            tracing::trace!("four");
        });
        let text = String::from_utf8(lines.0.lock().clone()).unwrap();
        assert!(!text.contains("u001b") && text.contains("\x1b[3ma\x1b[0m"), "{text:?}");
    }

    #[test]
    fn what_a_process_says_itself_is_one_line_of_its_log() {
        let said = line(LogForm::Text, Weight::Warn, "no\nforged", Json::Null);
        assert!(said.ends_with(r"WARN tenure: no\u000aforged"), "{said}");
    }

    #[test]
    fn a_panic_is_a_line_of_the_log() {
        let lines = Lines::default();
        let to = lines.clone();
        let log = tracing_subscriber::fmt().json().flatten_event(true);
        let log = log.with_writer(move || to.clone()).finish();
        tracing::subscriber::with_default(log, || {
            log_panics();
            let _ = std::panic::catch_unwind(|| panic!("a defect of this test"));
            drop(std::panic::take_hook());
        });
        let text = String::from_utf8(lines.0.lock().clone()).unwrap();
        let line: Json = serde_json::from_str(text.trim_end()).unwrap();
        assert_eq!((&line["level"], &line["target"]), (&"ERROR".into(), &"tenure".into()));
        assert_eq!(line["message"], "a thread panicked: a defect of this test");
        assert!(line["at"].as_str().is_some_and(|at| at.contains("log_line.rs:")), "{line}");
    }
    #[test]
    fn a_panic_is_printed_where_the_filter_of_the_log_leaves_it_out() {
        for (filter, is_printed) in [("off", true), ("tenure_node=debug", true), ("error", false)] {
            let (lines, printed) = (Lines::default(), Lines::default());
            let (to, print_to) = (lines.clone(), printed.clone());
            let log = tracing_subscriber::fmt().with_env_filter(filter);
            let log = log.with_writer(move || to.clone()).finish();
            tracing::subscriber::with_default(log, || {
                std::panic::set_hook(Box::new(move |info| {
                    log_panic(info, |line| print_to.0.lock().extend_from_slice(line.as_bytes()));
                }));
                let _ = std::panic::catch_unwind(|| panic!("a defect of this test"));
                drop(std::panic::take_hook());
            });
            let text = |lines: &Lines| String::from_utf8(lines.0.lock().clone()).unwrap();
            let (logged, printed) = (text(&lines), text(&printed));
            assert_eq!((logged.is_empty(), printed.is_empty()), (is_printed, !is_printed));
            let said = logged + &printed;
            assert!(said.contains("a thread panicked: a defect of this test"), "{said}");
            assert!(said.contains("log_line.rs:"), "{said}");
        }
    }
}
