//! Shows progress in lines, if stderr is no terminal: logs of a build server, `2> file`.

use std::time::Duration;

use tenure_core::status::StepStatus;
use tenure_core::view::View;

use super::news::news;
use super::optional::OptionalWait;
use super::seen::{SeenCommit, Show};
use crate::answer::{Failure, Paint, Stream, output};

/// For a Task with more Steps than this, prints a line now and then instead of one for each Step.
const LINE_PER_STEP_MAX: u32 = 500;

/// How often to print the progress of a large Task.
const EVERY: Duration = Duration::from_secs(2);

/// Lines on stderr.
#[derive(Debug)]
pub(super) struct Plain {
    paint: Paint,
    lines: String,
    last_said: Option<u32>,
    optional: OptionalWait,
}

impl Plain {
    pub(super) fn new() -> Self {
        let (lines, last_said, optional) = Default::default();
        Self { paint: Paint::of(Stream::Stderr), lines, last_said, optional }
    }
}

impl Show for Plain {
    fn commit(&mut self, seen: &SeenCommit<'_>) -> Result<(), Failure> {
        let is_large = seen.view.tally().steps() > LINE_PER_STEP_MAX;
        for item in news(seen).filter(|item| !is_large || item.is_bad()) {
            self.lines.push_str(&item.line(self.paint));
            self.lines.push('\n');
        }
        if let Some(line) = self.optional.begins(&seen.view) {
            self.lines.push_str(&line);
            self.lines.push('\n');
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Failure> {
        if !self.lines.is_empty() {
            output::say(self.lines.trim_end());
            self.lines.clear();
        }
        Ok(())
    }

    fn every(&self) -> Option<Duration> {
        Some(EVERY)
    }

    fn tick(&mut self, view: &View<'_>) {
        let tally = view.tally();
        let (done, all) = (tally.of(StepStatus::Completed), tally.steps());
        if all > LINE_PER_STEP_MAX && self.last_said != Some(done) {
            self.last_said = Some(done);
            output::say(format_args!("{done} of {all} steps completed, {} running", tally.held()));
        }
    }
}
