//! Writes to stdout and stderr, for all commands.
//!
//! stdout carries results only, so that `-o json` can be piped; messages to people while they wait
//! go to stderr. Colours appear on terminals, unless `NO_COLOR` is set. Even this module does not
//! use the printing macros, because they panic when the reader has closed the pipe.

use std::io::{self, IsTerminal as _, Write as _};

use indicatif::ProgressBar;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::Value as Json;

use super::exit::{Exit, Failure};
use super::harmless::{HarmlessWriter, harmless};
use super::log_line::{self, LogForm, Weight};

/// One of the two streams of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    /// Its name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }

    /// Whether it is a terminal.
    pub(crate) fn is_terminal(self) -> bool {
        match self {
            Self::Stdout => io::stdout().is_terminal(),
            Self::Stderr => io::stderr().is_terminal(),
        }
    }

    /// Whether to use colours: <https://no-color.org>.
    pub(crate) fn has_colour(self) -> bool {
        let is_refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        !is_refused && !is_dumb && self.is_terminal()
    }
}

/// A meaning that has a colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Good,
    Bad,
    Caution,
    Active,
    Faint,
    Strong,
}

impl Tone {
    fn sgr(self) -> &'static str {
        match self {
            Self::Good => "32",
            Self::Bad => "1;31",
            Self::Caution => "33",
            Self::Active => "36",
            Self::Faint => "2",
            Self::Strong => "1",
        }
    }
}

/// Paints text for a stream, or leaves it as it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paint {
    is_on: bool,
}

impl Paint {
    /// A painter for this stream.
    pub(crate) fn of(stream: Stream) -> Self {
        Self { is_on: stream.has_colour() }
    }

    /// The text in the colour of its meaning.
    pub(crate) fn text(self, tone: Tone, text: impl std::fmt::Display) -> String {
        match self.is_on {
            true => format!("\x1b[{}m{text}\x1b[0m", tone.sgr()),
            false => text.to_string(),
        }
    }
}

/// The bar that is drawn on stderr, if any: lines go above it.
static BAR: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Has lines go above this bar from now on, or, with none, to stderr as it is.
pub(crate) fn draw_below(bar: Option<ProgressBar>) {
    *BAR.lock() = bar;
}

/// One line on stderr, in the form of the log if this process serves.
pub(crate) fn say(line: impl std::fmt::Display) {
    match log_line::form() {
        Some(form) => say_as(form, Weight::Info, line, Json::Null),
        None => say_plain(&line.to_string()),
    }
}

/// A line of the log of this process.
pub(crate) fn say_as(form: LogForm, weight: Weight, line: impl std::fmt::Display, more: Json) {
    say_plain(&log_line::line(form, weight, &line.to_string(), more));
}

/// One line on stderr as it is.
pub(crate) fn say_plain(line: &str) {
    let write = || {
        let _ = writeln!(io::stderr(), "{}", harmless(line)); // If stderr is closed, nothing is left to do.
    };
    let bar = BAR.lock().clone();
    match bar.filter(|bar| !bar.is_hidden()) {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

/// One warning line on stderr.
pub(crate) fn warn(line: impl std::fmt::Display) {
    if let Some(form) = log_line::form() {
        return say_as(form, Weight::Warn, line, Json::Null);
    }
    say(format_args!("{} {line}", Paint::of(Stream::Stderr).text(Tone::Caution, "warning:")));
}

/// The failure of a write to stdout, such as that to a full disk.
pub(crate) fn unwritten(error: io::Error) -> Failure {
    Failure::cannot("write to stdout")(error)
}

/// Prints text on stdout. A reader that has closed the pipe (`| head`) is no failure.
pub(crate) fn print(text: impl std::fmt::Display) -> Result<(), Failure> {
    let text = text.to_string();
    let mut out = io::stdout().lock();
    unless_closed(out.write_all(harmless(&text).as_bytes()).and_then(|()| out.flush()))
        .map_err(unwritten)
}

/// Prints one JSON value on stdout, indented if stdout is a terminal.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = match Stream::Stdout.is_terminal() {
        true => serde_json::to_string_pretty(value),
        false => serde_json::to_string(value),
    };
    print(text.map_err(unwritable)? + "\n")
}

/// Prints one JSON value on a line of stdout, at once. Returns whether the pipe is still open.
pub(crate) fn print_line(value: &impl Serialize) -> Result<bool, Failure> {
    let line = serde_json::to_string(value).map_err(unwritable)? + "\n";
    write(Stream::Stdout, harmless(&line).as_bytes())
}

/// Writes bytes to a stream as they are, at once. Returns whether its reader is still there.
pub(crate) fn write(stream: Stream, bytes: &[u8]) -> Result<bool, Failure> {
    let written = match stream {
        Stream::Stdout => stdout(|out| out.write_all(bytes).and_then(|()| out.flush())),
        Stream::Stderr => io::stderr().write_all(bytes),
    };
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        written => {
            written.map(|()| true).map_err(Failure::cannot(format!("write to {}", stream.name())))
        }
    }
}

/// The failure of an answer that cannot be written as JSON.
fn unwritable(error: serde_json::Error) -> Failure {
    Failure::caused(Exit::Unavailable, &error)
}

/// Turns the error of a closed pipe into success: the reader has read enough.
pub(crate) fn unless_closed(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Gives stdout to a function that writes several texts.
pub(crate) fn stdout(write: impl FnOnce(&mut dyn io::Write) -> io::Result<()>) -> io::Result<()> {
    write(&mut io::stdout().lock())
}

/// Prints a long text on stdout, as it is made. A reader that closes the pipe ends it, and is no
/// failure. What `write` writes at a time has whole characters.
pub(crate) fn stream(
    write: impl FnOnce(&mut dyn io::Write) -> io::Result<()>,
) -> Result<(), Failure> {
    copy(|out| write(&mut HarmlessWriter(out)))
}

/// As [`stream`], but the bytes stay as they are.
pub(crate) fn copy(
    write: impl FnOnce(&mut dyn io::Write) -> io::Result<()>,
) -> Result<(), Failure> {
    let written = self::stdout(|stdout| {
        let mut out = io::BufWriter::new(stdout);
        let written = write(&mut out).and_then(|()| out.flush());
        let _ = out.into_parts(); // Dropping the buffer would try to write the rest once more.
        written
    });
    unless_closed(written).map_err(unwritten)
}
