//! Says in the program's log which Steps fail: one line for each, at most [`LINES_MAX`] in a [`WINDOW`]. A later line
//! says how many failed beyond that.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tenure_core::event::Body;
use tenure_core::{Commit, Task};
use tenure_ports::journal::TaskKey;

/// How many lines there are at most in a [`WINDOW`]: a Task of thousands of Steps that all fail must not fill the log.
const LINES_MAX: u32 = 10;

/// How long a window lasts.
const WINDOW: Duration = Duration::from_secs(1);

/// Bounds the lines about failed Steps.
#[derive(Debug, Default)]
pub(crate) struct FailedSteps(Mutex<LineWindow>);

#[derive(Debug, Default)]
struct LineWindow {
    begun: Option<Instant>,
    lines: u32,
    left_out: u64,
}

impl LineWindow {
    /// Whether a line may be written now. If not, counts it as left out.
    fn admit(&mut self, now: Instant) -> bool {
        if self.begun.is_none_or(|begun| now.saturating_duration_since(begun) >= WINDOW) {
            (self.begun, self.lines) = (Some(now), 0);
        }
        let is_admitted = self.lines < LINES_MAX;
        match is_admitted {
            true => self.lines += 1,
            false => self.left_out += 1,
        }
        is_admitted
    }
}

impl FailedSteps {
    /// Says which Steps failed with these commits, which are durable.
    pub(crate) fn tell(&self, key: &TaskKey, task: &Task, commits: &[Arc<Commit>]) {
        for event in commits.iter().flat_map(|commit| &commit.events) {
            let Body::StepFailed(failed) = &event.body else { continue };
            if !self.0.lock().admit(Instant::now()) {
                continue;
            }
            let step = event.step_id.as_ref().map_or("", |id| id.as_str());
            let attempt = failed.attempt_id.and_then(|id| task.attempt(id));
            // A Step without an Attempt waited in vain, or somebody failed it.
            let handler = attempt.map(|attempt| task.step_at(attempt.step).spec.handler.as_str());
            let worker = attempt.map(|attempt| attempt.worker_id.as_str());
            let ordinal = attempt.map(|attempt| attempt.ordinal);
            let code = failed.reason.code.as_str();
            tracing::info!(task = %key, step, handler, worker, attempt = ordinal, code, "a step failed");
        }
    }

    /// Says how many Steps failed without a line since this was last called, if any did.
    pub(crate) fn tell_left_out(&self) {
        let more = std::mem::take(&mut self.0.lock().left_out);
        if more > 0 {
            tracing::info!(more, "more steps failed than there are lines for");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_lines_a_second_and_the_rest_is_counted() {
        let (mut window, begun) = (LineWindow::default(), Instant::now());
        let admitted = |window: &mut LineWindow, at| (0..100).filter(|_| window.admit(at)).count();
        assert_eq!(admitted(&mut window, begun), LINES_MAX as usize);
        assert_eq!(window.left_out, 90);
        assert_eq!(admitted(&mut window, begun + WINDOW / 2), 0);
        assert_eq!(admitted(&mut window, begun + WINDOW), LINES_MAX as usize);
        assert_eq!(window.left_out, 280);
    }
}
