//! Shows progress on a terminal: a bar, the running Steps, and above it failures as they happen.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tenure_core::status::StepStatus;
use tenure_core::view::View;

use super::news::{StepNews, news};
use super::optional::OptionalWait;
use super::seen::{SeenCommit, Show};
use super::words::{duration, steps};
use crate::answer::{Failure, Paint, Stream, Tone, human, output};

/// How often to draw: ten times a second looks alive and costs little.
const EVERY: Duration = Duration::from_millis(100);

/// A Task that ends before this gets no bar, which would only flicker.
const PATIENCE: Duration = Duration::from_millis(150);

/// How many running Steps to name.
const NAMED: usize = 5;

/// Columns of the bar, and of the id of a running Step.
const BAR_WIDTH: usize = 30;
const ID_WIDTH: usize = 40;

/// A bar on stderr. All of it is the message of one `ProgressBar`, which draws over its last
/// picture, so that each picture is drawn once.
#[derive(Debug)]
pub(super) struct Live {
    paint: Paint,
    bar: ProgressBar,
    born: Instant,
    optional: OptionalWait,
}

impl Live {
    pub(super) fn new() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        // The constant template is valid; the default would only look different.
        bar.set_style(
            ProgressStyle::with_template("{msg}")
                .unwrap_or_else(|_| ProgressStyle::default_spinner()),
        );
        output::draw_below(Some(bar.clone()));
        let (paint, optional) = (Paint::of(Stream::Stderr), OptionalWait::default());
        Self { paint, bar, born: Instant::now(), optional }
    }

    fn picture(&self, view: &View<'_>) -> String {
        let (done, all) = (view.tally().of(StepStatus::Completed), view.tally().steps());
        let time = duration(i64::try_from(self.born.elapsed().as_millis()).unwrap_or(i64::MAX));
        format!("{} {done} of {}, {time}{}", self.bar(done, all), steps(all), self.running(view))
    }

    fn bar(&self, done: u32, all: u32) -> String {
        let filled = BAR_WIDTH * done as usize / all.max(1) as usize;
        let rest = self.paint.text(Tone::Faint, "─".repeat(BAR_WIDTH - filled));
        self.paint.text(Tone::Good, "━".repeat(filled)) + &rest
    }

    fn running(&self, view: &View<'_>) -> String {
        let (now, held) = (human::now(), view.tally().held() as usize);
        let mut lines = String::new();
        for attempt in view.open_attempts().take(NAMED) {
            let time = self.paint.text(Tone::Faint, duration(now - attempt.started_at));
            let id = human::cut(attempt.step_id.as_str(), ID_WIDTH);
            lines.push_str(&format!("\n  {} {id} {time}", self.paint.text(Tone::Active, "·")));
        }
        if held > NAMED {
            let more = format!("\n  … and {} more", held - NAMED);
            lines.push_str(&self.paint.text(Tone::Faint, more));
        }
        lines
    }
}

impl Show for Live {
    fn commit(&mut self, seen: &SeenCommit<'_>) -> Result<(), Failure> {
        for item in news(seen).filter(StepNews::is_bad) {
            self.say(&item.line(self.paint));
        }
        if let Some(line) = self.optional.begins(&seen.view) {
            self.say(&line);
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
        self.bar.set_message(self.picture(view));
    }

    fn leave(&mut self) {
        output::draw_below(None);
        self.bar.finish_and_clear();
    }
}
