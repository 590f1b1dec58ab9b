//! What falls due by itself: backoffs, time limits, deadlines (RECOVER-09).
//!
//! The shell asks [`Task::next_due`], waits, and sends `Command::Due` until nothing is due any
//! more. Each thing is judged once, in a commit of its own.

use super::close::{Closing, summary_only};
use super::tx::{By, Did};
use super::Tx;
use crate::event::{Body, Nothing, RunEnded};
use crate::id::Millis;
use crate::record::Reason;
use crate::reject::Rejection;
use crate::status::{EndReason, Outcome, Policy, TaskStatus};
use crate::table::Pos;
use crate::task::Task;
use crate::task::derived::{Timer, after};

impl Task {
    /// The earliest moment at which [`Command::Due`](super::Command::Due) has something to do.
    pub fn next_due(&self) -> Option<Millis> {
        if self.is_terminal() {
            return None;
        }
        let stored = self.derived.timers.iter().find_map(|&(at, timer)| self.really_due(at, timer));
        let deadline = self.deadline_due();
        let closing = self.head.cancel_requested.as_ref().map(|c| c.deadline_at);
        let stopping = self.volatile.stopping.values().map(|s| s.deadline_at).min();
        [stored, deadline, closing, stopping].into_iter().flatten().min()
    }

    /// When a stored timer is to be judged now; none: it rests (S15, RUN-08).
    fn really_due(&self, at: Millis, timer: Timer) -> Option<Millis> {
        let closing = self.is_closing();
        match timer {
            Timer::ScheduleToStart(pos) if self.head.status.is_dispatchable() && !closing => {
                Some(self.schedule_to_start_due(pos).unwrap_or(at))
            }
            Timer::NotBefore(_) if closing || self.head.status == TaskStatus::Draft => None,
            Timer::ScheduleToStart(_) => None,
            Timer::StartToClose(_) if closing => None,
            _ => Some(at),
        }
    }

    /// S15: from the later of `ready_at` and the Task's last reopen or resume.
    fn schedule_to_start_due(&self, pos: Pos) -> Option<Millis> {
        let step = &self.steps[pos];
        let limit = self.policy_of(&step.spec)?.schedule_to_start_ms?;
        let from = step.state.ready_at?.max(self.head.resumed_at.unwrap_or(Millis::MIN));
        Some(after(from, limit))
    }

    fn deadline_due(&self) -> Option<Millis> {
        let counts = self.head.spec.completion == Policy::Auto
            && self.head.status != TaskStatus::Draft
            && !self.is_closing();
        self.head.spec.deadline_at().filter(|_| counts)
    }

    /// The first thing that is due at `now`, in the order of RECOVER-09.
    fn first_due(&self, now: Millis) -> Option<Timer> {
        let passed = self.derived.timers.iter().take_while(|(at, _)| *at <= now);
        let stored = passed
            .filter(|&&(at, timer)| self.really_due(at, timer).is_some_and(|due| due <= now))
            .map(|&(_, timer)| timer);
        let deadline = self.deadline_due().filter(|&at| at <= now).map(|_| Timer::Deadline);
        let closing = self.head.cancel_requested.as_ref().filter(|c| c.deadline_at <= now);
        let stopping = self.volatile.stopping.values().any(|s| s.deadline_at <= now);
        let closing = (closing.is_some() || stopping).then_some(Timer::Closing);
        stored.chain(deadline).chain(closing).min()
    }
}

impl Tx<'_, '_> {
    pub(super) fn judge_due(&mut self) -> Result<Did, Rejection> {
        let now = self.now();
        match self.task.first_due(now) {
            None => {}
            Some(Timer::NotBefore(pos)) => self.end_backoff(pos)?,
            Some(Timer::ScheduleToStart(pos)) => {
                let reason = Reason::code("schedule_to_start_timeout");
                self.fail_step(pos, reason, Outcome::Failed, None, By::system())?;
            }
            Some(Timer::StartToClose(pos)) => {
                let code = "worker_timeout";
                let report = summary_only(code);
                self.fail_step(pos, Reason::code(code), Outcome::TimedOut, report, By::system())?;
            }
            Some(Timer::Deadline) => {
                self.begin_closing(&Closing::fail(Reason::code("timed_out")))?;
            }
            Some(Timer::RunExpiry(pos)) => {
                let run_id = self.task.runs[pos].run_id;
                let end_reason = EndReason::TimedOut;
                let event = RunEnded { run_id, end_reason, reason: None, worker_id: None };
                self.emit(By::system(), Body::RunEnded(event))?;
            }
            Some(Timer::Closing) => self.time_is_up(now)?,
        }
        Ok(Did::DONE)
    }

    /// READY-05.
    fn end_backoff(&mut self, pos: Pos) -> Result<(), Rejection> {
        self.emit_on(By::system(), pos, Body::StepReady(Nothing {}))
    }

    fn time_is_up(&mut self, now: Millis) -> Result<(), Rejection> {
        let request = self.task.head.cancel_requested.clone();
        if request.is_some_and(|c| c.deadline_at <= now) {
            return self.end_closing(true);
        }
        let late = self.task.volatile.stopping.iter().find(|(_, s)| s.deadline_at <= now);
        match late.map(|(&run, _)| run) {
            Some(run) => self.end_stopped_run(run),
            None => Ok(()),
        }
    }
}
