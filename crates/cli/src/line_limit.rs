//! Bounds how many lines one place in the code may write into the log. Messages of others cause some of these lines,
//! and a sender of many must not fill the disk (mechanisms 15). A line says how many were left out.
//!
//! Lines of the level DEBUG and below are not bounded: only somebody who looks for something asks for them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::callsite::Identifier;
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Level, Metadata};
use tracing_subscriber::layer::{Context, Filter};

/// How many lines a place may write at once. A node that starts writes one for each of its partitions.
const AT_ONCE: u64 = 200;

/// How many more each second.
const PER_SECOND: u64 = 2;

/// How often a line says how many lines were left out.
const SUMMARY: Duration = Duration::from_secs(10);

/// The target of the lines that say how many were left out.
const TARGET: &str = "tenure::log";

/// The bound, as a filter of a layer.
#[derive(Debug, Clone, Default)]
pub(crate) struct LineLimit(Arc<Mutex<HashMap<Identifier, PlaceLines>>>);

/// The lines of one place.
#[derive(Debug)]
struct PlaceLines {
    target: String,
    file: String,
    line: u32,
    rate: LineRate,
}

impl PlaceLines {
    fn of(place: &Metadata<'_>, now: Instant) -> Self {
        Self {
            target: place.target().to_owned(),
            file: place.file().unwrap_or_default().to_owned(),
            line: place.line().unwrap_or_default(),
            rate: LineRate { left: AT_ONCE, at: now, left_out: 0 },
        }
    }
}

/// How many lines may be written, as it stood at a moment.
#[derive(Debug)]
struct LineRate {
    left: u64,
    at: Instant,
    left_out: u64,
}

impl LineRate {
    /// Whether a line may be written now. If not, none is written until a line has said how many were left out.
    fn admit(&mut self, now: Instant) -> bool {
        let more = now.saturating_duration_since(self.at).as_secs() * PER_SECOND;
        if more > 0 {
            self.left = self.left.saturating_add(more).min(AT_ONCE);
            self.at = now;
        }
        let is_admitted = self.left > 0 && self.left_out == 0;
        match is_admitted {
            true => self.left -= 1,
            false => self.left_out += 1,
        }
        is_admitted
    }
}

impl LineLimit {
    fn admits(&self, place: &Metadata<'_>) -> bool {
        if !is_bounded(place) {
            return true;
        }
        let now = Instant::now();
        let mut all = self.0.lock();
        let lines = all.entry(place.callsite()).or_insert_with(|| PlaceLines::of(place, now));
        lines.rate.admit(now)
    }

    /// Writes how many lines were left out since this was last called.
    pub(crate) fn summarize(&self) {
        let taken = |lines: &mut PlaceLines| {
            let left_out = std::mem::take(&mut lines.rate.left_out);
            (left_out > 0).then(|| (lines.target.clone(), lines.file.clone(), lines.line, left_out))
        };
        // The numbers are collected first, as the lines written here go through this filter, too.
        let all: Vec<_> = self.0.lock().values_mut().filter_map(taken).collect();
        for (of, file, line, more) in all {
            tracing::warn!(target: TARGET, more, of, "and more lines as {file}:{line} writes them, left out");
        }
    }

    /// Writes every ten seconds how many lines were left out, as long as the process lives.
    pub(crate) fn summarize_forever(&self) {
        let limit = self.clone();
        let summaries = move || {
            loop {
                std::thread::sleep(SUMMARY);
                limit.summarize();
            }
        };
        // Without this thread the bound holds all the same, and no line says how many were left out.
        let _ = std::thread::Builder::new().name("log".into()).spawn(summaries);
    }
}

impl<S> Filter<S> for LineLimit {
    /// The library asks this once for each line. (It has `event_enabled`, too, but forgets to reset what it notes of a
    /// line that no layer writes.)
    fn enabled(&self, line: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        self.admits(line)
    }

    fn callsite_enabled(&self, place: &'static Metadata<'static>) -> Interest {
        match is_bounded(place) {
            true => Interest::sometimes(),
            false => Interest::always(),
        }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::TRACE)
    }
}

/// Whether the lines of a place are bounded.
fn is_bounded(place: &Metadata<'_>) -> bool {
    place.is_event() && *place.level() <= Level::INFO && place.target() != TARGET
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::filter::FilterExt as _;
    use tracing_subscriber::layer::SubscriberExt as _;
    use tracing_subscriber::{EnvFilter, Layer as _};

    use super::*;

    #[derive(Debug, Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// Runs something under a log, and answers the log's lines.
    fn logged(filter: &str, work: impl FnOnce(&LineLimit)) -> Vec<String> {
        let (lines, limit) = (Lines::default(), LineLimit::default());
        let to = lines.clone();
        let layer =
            tracing_subscriber::fmt::layer().with_ansi(false).with_writer(move || to.clone());
        let layer = layer.with_filter(EnvFilter::new(filter).and(limit.clone()));
        let log = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(log, || work(&limit));
        let text = String::from_utf8(lines.0.lock().clone()).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    /// Mechanisms 15: who can cause a line a message fills no log, and hides no other line.
    #[test]
    fn a_place_writes_so_many_lines_and_the_rest_is_counted() {
        let lines = logged("info", |limit| {
            for number in 0..1_000_u64 {
                tracing::info!(number, "a worker is not there");
            }
            tracing::warn!("something else");
            limit.summarize();
            limit.summarize();
        });
        let count = |what: &str| lines.iter().filter(|line| line.contains(what)).count() as u64;
        let written = count("a worker is not there");
        assert!((AT_ONCE..=AT_ONCE + 20).contains(&written), "{written}");
        assert_eq!((count("something else"), count("left out")), (1, 1));
        let said = lines.last().unwrap();
        assert!(said.contains(&format!("more={}", 1_000 - written)), "{said}");
        assert!(said.contains("line_limit.rs:"), "{said}");
    }

    #[test]
    fn who_looks_for_something_gets_every_line_of_it() {
        let lines = logged("debug", |_| (0..1_000).for_each(|_| tracing::debug!("each")));
        assert_eq!(lines.len(), 1_000);
        assert!(logged("info", |_| tracing::debug!("none")).is_empty());
    }

    /// A place that was quiet for a while has its lines again.
    #[test]
    fn lines_come_back_with_time() {
        let begun = Instant::now();
        let mut rate = LineRate { left: AT_ONCE, at: begun, left_out: 0 };
        let admitted = |rate: &mut LineRate, seconds| {
            let now = begun + Duration::from_secs(seconds);
            (0..500).filter(|_| rate.admit(now)).count() as u64
        };
        assert_eq!(admitted(&mut rate, 0), AT_ONCE);
        assert_eq!(admitted(&mut rate, 10), 0, "first it is said what was left out");
        assert_eq!(std::mem::take(&mut rate.left_out), 500 - AT_ONCE + 500);
        assert_eq!(admitted(&mut rate, 10), 10 * PER_SECOND);
        rate.left_out = 0;
        assert_eq!(admitted(&mut rate, 1_000), AT_ONCE);
    }
}
