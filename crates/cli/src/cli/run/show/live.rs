//! Progress on a terminal: a bar, what runs, and failures as they happen above it.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tenure_core::status::StepStatus;
use tenure_core::view::View;

use super::news::news;
use super::{Seen, Show};
use crate::cli::exit::Failure;
use crate::cli::output::{Paint, Stream, Tone};
use crate::cli::run::words::{clipped, duration, now};

/// Ten pictures a second look alive and cost nothing that matters.
const EVERY: Duration = Duration::from_millis(100);

/// A Task that is over before this gets no bar: it would only flicker.
const PATIENCE: Duration = Duration::from_millis(150);

/// Running Steps that are named.
const NAMED: usize = 5;

/// A bar on stderr.
#[derive(Debug)]
pub(super) struct Live {
    paint: Paint,
    bar: ProgressBar,
    born: std::time::Instant,
}

impl Live {
    pub(super) fn new() -> Self {
        let paint = Paint::of(Stream::Stderr);
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::hidden());
        bar.set_style(style());
        Self { paint, bar, born: std::time::Instant::now() }
    }

    fn running(&self, view: &View<'_>) -> String {
        let (now, held) = (now(), view.tally().held() as usize);
        let mut lines = String::new();
        for attempt in view.open_attempts().take(NAMED) {
            let time = duration((now - attempt.started_at).max(0));
            let id = clipped(attempt.step_id.as_str(), 40);
            let line = format!("\n  {} {id} {}", self.paint.text(Tone::Active, "·"), self.paint.text(Tone::Faint, time));
            lines.push_str(&line);
        }
        if held > NAMED {
            let more = format!("\n  … and {} more", held - NAMED);
            lines.push_str(&self.paint.text(Tone::Faint, more));
        }
        lines
    }
}

/// The bar has the colour of the terminal, so that it needs none of its own.
fn style() -> ProgressStyle {
    let style = ProgressStyle::with_template("{bar:30} {pos} of {len} steps, {elapsed}{msg}");
    style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("━╸─")
}

impl Show for Live {
    fn commit(&mut self, seen: &Seen<'_>) -> Result<(), Failure> {
        for item in news(seen).filter(super::news::News::is_bad) {
            self.say(&item.line(self.paint));
        }
        Ok(())
    }

    fn every(&self) -> Option<Duration> {
        Some(EVERY)
    }

    fn tick(&mut self, view: &View<'_>) {
        if self.born.elapsed() < PATIENCE {
            return;
        }
        if self.bar.is_hidden() {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        let tally = view.tally();
        self.bar.set_length(u64::from(tally.steps()));
        self.bar.set_position(u64::from(tally.of(StepStatus::Completed)));
        self.bar.set_message(self.running(view));
        self.bar.tick();
    }

    fn say(&mut self, line: &str) {
        if self.bar.is_hidden() {
            crate::cli::output::say(line);
        } else {
            self.bar.suspend(|| crate::cli::output::say(line));
        }
    }

    fn leave(&mut self) {
        self.bar.finish_and_clear();
    }
}
