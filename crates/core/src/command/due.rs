//! What falls due without a request: backoffs, time limits, deadlines (RECOVER-09).
//!
//! The scheduler asks [`Task::next_due`], waits, and sends `Command::Due` until nothing is due any
//! more. Each thing that is due is judged once, in a commit of its own.
//!
//! Moments here are on the Task's steady line: a wait takes its full length from the event that
//! began it, even if somebody sets the clock. Only two moments are times of the clock: the deadline,
//! and the end of the day after which an unfinished creation is cancelled (mechanisms 17).

use super::close::{Closing, summary_only};
use super::tx::{By, Did};
use super::{Stamp, Tx};
use crate::event::{Body, RunEnded};
use crate::id::Millis;
use crate::record::Reason;
use crate::reject::Rejection;
use crate::rules::Rules;
use crate::status::{EndReason, Outcome, Policy, TaskStatus};
use crate::table::Pos;
use crate::task::Task;

/// What falls due, in the order in which it is judged (RECOVER-09).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Due {
    /// Backoffs end (READY-05).
    NotBefore,
    /// A ready Step was not claimed in time (S15).
    ScheduleToStart(Pos),
    /// A held Step took too long (S14).
    StartToClose(Pos),
    /// A Step was blocked for too long (S27).
    Blocked(Pos),
    /// All Attempts of a Step together took too long (S28).
    ScheduleToClose(Pos),
    /// The Task has waited long enough for optional Steps (POL-06).
    OptionalWait,
    /// The deadline of the Task (POL-08).
    Deadline,
    /// The life of an unused Run ended (R09).
    RunExpiry(Pos),
    /// A Run that was asked to stop has used up its time (5.4).
    Stopping(Pos),
    /// Closing has waited long enough (TERM-12).
    Closing,
    /// A creation in parts was abandoned (IDEM-09).
    Unfinished,
}

/// How many kinds of [`Due`] there are.
const DUES: usize = 11;

/// A creation in parts counts as abandoned if no part comes for this long, in milliseconds: a day.
const LEFT_MS: Millis = 24 * 60 * 60 * 1000;

impl Task {
    /// The earliest moment at which [`Command::Due`](super::Command::Due) has something to do, on the
    /// steady line.
    pub fn next_due(&self) -> Option<Millis> {
        let ahead = self.volatile.steady_ahead;
        self.dues(ahead).into_iter().flatten().map(|(at, _)| at).min()
    }

    /// How far the steady line is ahead of the clock now, for [`next_due`](Self::next_due).
    pub fn note_steady_ahead(&mut self, ahead: Millis) {
        self.volatile.steady_ahead = ahead;
    }

    /// Until `at`, a moment of the steady line, no Step fails by its own time limits: the node may not
    /// have received what its worker did in time, or may have had no worker to give it to (mechanisms 6).
    pub fn spare_steps_until(&mut self, at: Millis) {
        self.volatile.steps_spared_until = at;
    }

    /// The first thing that is due, in the order of RECOVER-09.
    fn first_due(&self, stamp: &Stamp) -> Option<Due> {
        let ahead = stamp.steady.saturating_sub(stamp.now);
        let passed = self.dues(ahead).into_iter().flatten().find(|(at, _)| *at <= stamp.steady);
        passed.map(|(_, due)| due)
    }

    /// The earliest moment of each kind, in the order in which kinds are judged. `ahead` is how far
    /// the steady line is ahead of the clock.
    fn dues(&self, ahead: Millis) -> [Option<(Millis, Due)>; DUES] {
        if self.is_terminal() {
            return [None; DUES];
        }
        let timers = &self.derived.timers;
        let closing = self.head.cancel_requested.as_deref();
        let is_draining = self.is_draining();
        let backoff = timers.not_before.first().filter(|_| closing.is_none() && !is_draining);
        let start = timers.schedule_to_start.first().filter(|_| self.gives_out());
        let spared_until = self.volatile.steps_spared_until;
        let spared = |(at, pos): (Millis, Pos)| (at.max(spared_until), pos);
        let start_to_close = self.start_to_close().map(spared);
        let start = start.copied().map(spared);
        let run_expiry = self.volatile.run_expiry.first().filter(|_| self.head.counts_run_time());
        let awake = |first: Option<&(Millis, Pos)>| {
            let (moment, pos) = first.copied().filter(|_| closing.is_none())?;
            Some(spared((self.head.resting.wakes(moment)?, pos)))
        };
        let stopping = self.volatile.stopping.iter().map(|(&run, s)| (s.deadline_at, run)).min();
        [
            backoff.map(|&(at, _)| (at, Due::NotBefore)),
            start.map(|(at, pos)| (at, Due::ScheduleToStart(pos))),
            start_to_close.map(|(at, pos)| (at, Due::StartToClose(pos))),
            awake(timers.blocked.first()).map(|(at, pos)| (at, Due::Blocked(pos))),
            awake(timers.schedule_to_close.first())
                .map(|(at, pos)| (at, Due::ScheduleToClose(pos))),
            self.optional_wait().map(|at| (at, Due::OptionalWait)),
            self.deadline().map(|at| (at.saturating_add(ahead), Due::Deadline)),
            run_expiry.map(|&(at, pos)| (at, Due::RunExpiry(pos))),
            stopping.map(|(at, run)| (at, Due::Stopping(run))),
            closing.map(|request| {
                (request.deadline_at.saturating_add(self.head.closing_shift), Due::Closing)
            }),
            self.unfinished().map(|_| {
                let left = self.mark.updated_at.saturating_add(LEFT_MS);
                (left.saturating_add(ahead), Due::Unfinished)
            }),
        ]
    }

    /// S14. While closing, a time limit counts only as the end of its Run, and only once (RUN-08).
    fn start_to_close(&self) -> Option<(Millis, Pos)> {
        let closing = self.is_closing();
        let counts = |&&(_, pos): &&(Millis, Pos)| {
            let run = self.steps[pos].state.current.map(|at| self.attempts[at].run);
            !closing || run.is_some_and(|run| !self.volatile.gone.contains(&run))
        };
        self.derived.timers.start_to_close.iter().find(counts).copied()
    }

    /// POL-06: when the Task completes although it waits for optional Steps.
    fn optional_wait(&self) -> Option<Millis> {
        let (head, tally) = (&self.head, &self.derived.tally);
        let waits = head.is_open() && head.waits_for_optional(tally) && self.may_complete();
        head.optional_wait_ends(tally).filter(|_| waits)
    }

    /// POL-08: the deadline, if it counts now.
    fn deadline(&self) -> Option<Millis> {
        let counts = self.head.spec.completion == Policy::Auto
            && self.head.status != TaskStatus::Draft
            && !self.is_closing();
        self.head
            .deadline_at(self.mark.updated_at)
            .filter(|_| counts && !self.head.stops_the_clock())
    }
}

impl Tx<'_, '_> {
    pub(super) fn judge_due(&mut self) -> Result<Did, Rejection> {
        match self.task.first_due(&self.cx.stamp) {
            None => {}
            Some(Due::NotBefore) => self.promote()?,
            Some(Due::ScheduleToStart(pos)) => {
                let reason = Reason::code("schedule_to_start_timeout");
                self.fail_step(pos, reason, Outcome::Failed, None, By::system(), None)?;
            }
            Some(Due::StartToClose(pos)) => self.took_too_long(pos)?,
            Some(Due::Blocked(pos)) => {
                let reason = Reason::code("wait_timeout");
                self.fail_step(pos, reason, Outcome::Failed, None, By::system(), None)?;
            }
            Some(Due::ScheduleToClose(pos)) => {
                let code = "schedule_to_close_timeout";
                let (reason, report) = (Reason::code(code), summary_only(code));
                self.fail_step(pos, reason, Outcome::TimedOut, report, By::system(), None)?;
            }
            Some(Due::OptionalWait) => self.judge_policy()?,
            Some(Due::Deadline) => {
                let names_failure = self.task.head.rules >= Rules::Second; // POL-08
                let standing = self.task.standing_failure().filter(|_| names_failure);
                let reason = standing.unwrap_or_else(|| Reason::code("timed_out"));
                self.begin_closing(&Closing::fail(reason))?;
            }
            Some(Due::RunExpiry(pos)) => {
                let run_id = self.task.runs[pos].run_id;
                let end_reason = EndReason::TimedOut;
                let event = RunEnded { run_id, end_reason, reason: None, worker_id: None };
                self.emit(By::system(), Body::RunEnded(event))?;
            }
            Some(Due::Stopping(run)) => self.end_stopped_run(run)?,
            Some(Due::Closing) => self.end_closing(true)?,
            Some(Due::Unfinished) => {
                self.begin_closing(&Closing::cancel(Reason::code("unfinished_creation")))?;
            }
        }
        Ok(Did::DONE)
    }

    /// S14: fails the Step; while closing, ends the Run instead (RUN-08).
    fn took_too_long(&mut self, pos: Pos) -> Result<(), Rejection> {
        if self.task.is_closing() {
            let held = self.task.steps[pos].state.current;
            return held.map_or(Ok(()), |at| self.run_is_gone(self.task.attempts[at].run));
        }
        let code = "worker_timeout";
        let report = summary_only(code);
        self.fail_step(pos, Reason::code(code), Outcome::TimedOut, report, By::system(), None)
    }
}
