//! What keeps an automatic Task from its end, or leads to it: standing failures (POL-05, POL-06), and
//! optional Steps that it waits for.

use alloc::string::ToString;

use super::derived::{Tally, after};
use super::{Head, Shift, StepState, Task};
use crate::id::Millis;
use crate::record::{Object, Reason, StepSpec};
use crate::rules::Rules;
use crate::status::{OnFailure, Policy, StepStatus};

/// How long an automatic Task waits for optional Steps, in milliseconds, if it does not say (POL-06).
const OPTIONAL_WAIT_MS: u64 = 3_600_000;

/// Why an automatic Task is failing because of a Step, if that is required: of those that one event
/// brought about, the first counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// The Step failed for good (POL-05).
    Failed,
    /// It is cancelled (POL-06).
    Cancelled,
    /// It can never be ready (POL-06).
    Dead,
}

impl StepState {
    /// Why it makes its Task failing, if it does as soon as it is required (POL-05). A blocked Step that
    /// can never be ready does so when it is reopened, not before (POL-06, POL-07).
    pub fn standing(&self) -> Option<Standing> {
        match self.status {
            StepStatus::Failed if self.fatal_failure => Some(Standing::Failed),
            StepStatus::Cancelled => Some(Standing::Cancelled),
            StepStatus::Pending if self.fatal > 0 => Some(Standing::Dead),
            _ => None,
        }
    }

    /// Why the Step with this content makes its Task failing, and since which `wal_seq` (POL-05).
    pub(crate) fn failing(&self, spec: &StepSpec) -> Option<(u64, Standing)> {
        let why = self.standing().filter(|_| spec.required)?;
        Some((self.standing_since, why))
    }

    /// Whether this Step completes only if the orchestrator acts first, here or on a dependency.
    pub(crate) fn is_stuck(&self) -> bool {
        match self.status {
            StepStatus::Cancelled | StepStatus::Failed | StepStatus::Blocked => true,
            StepStatus::Pending => self.stuck > 0,
            _ => false,
        }
    }
}

/// The reason of a Task that fails because of a Step (POL-05, POL-06).
pub(crate) fn standing_reason(step_id: &str, state: &StepState) -> Reason {
    let code = match state.standing() {
        Some(Standing::Cancelled) => "required_step_cancelled",
        Some(Standing::Dead) => "unreachable_step",
        Some(Standing::Failed) | None => {
            match state.facts().status_reason.as_ref().map(|reason| reason.code.as_str()) {
                Some(
                    "worker_timeout"
                    | "schedule_to_start_timeout"
                    | "schedule_to_close_timeout"
                    | "wait_timeout"
                    | "timed_out",
                ) => "timed_out",
                Some("rejected") => "rejected",
                Some("lost") => "lost",
                _ => "step_failed",
            }
        }
    };
    let details = Object::from_iter([("step_id".to_string(), step_id.into())]);
    Reason { details: Some(details), ..Reason::new(code, &alloc::format!("{code}: {step_id}")) }
}

impl Head {
    /// What the Task does when it is failing (POL-05).
    pub fn on_failure(&self) -> OnFailure {
        self.spec.on_failure.unwrap_or(match self.rules {
            Rules::First => OnFailure::Stop,
            Rules::Second => OnFailure::Drain,
        })
    }

    /// Whether the Task is pending or running, and not closing: it gives out Steps, unless it is draining.
    pub(crate) fn is_open(&self) -> bool {
        self.status.is_dispatchable() && self.cancel_requested.is_none()
    }

    /// Whether the Task is failing and gives out no more Steps (POL-05).
    pub fn is_draining(&self, tally: &Tally) -> bool {
        tally.failing > 0
            && self.spec.completion == Policy::Auto
            && self.is_open()
            && self.on_failure() == OnFailure::Drain
    }

    /// Whether the Task would be completed by now, if it did not wait for optional Steps (POL-06,
    /// TASK-21).
    pub fn waits_for_optional(&self, tally: &Tally) -> bool {
        if self.spec.completion != Policy::Auto || tally.required_open > 0 {
            return false;
        }
        if self.rules == Rules::First {
            return tally.required == 0 && tally.unfinished() > 0;
        }
        let gives_out = self.spec.dispatch == Policy::Auto;
        tally.held() + tally.backing_off > 0
            || (gives_out && tally.of(StepStatus::Ready) + tally.able > 0)
            || (tally.required == 0 && tally.of(StepStatus::Blocked) > 0)
    }

    /// When the Task ceases to wait for optional Steps that are not held, on the steady line (POL-06):
    /// the time counts from the last completion of a required Step, or from a later reopen or resume.
    pub(crate) fn optional_wait_ends(&self, tally: &Tally) -> Option<Millis> {
        let done_at = self.required_done_at.filter(|_| tally.required > 0)?;
        let done_at = done_at.saturating_add(self.required_done_shift);
        let resumed_at = self.resumed_at.map(|at| at.saturating_add(self.resumed_shift));
        let since = done_at.max(resumed_at.unwrap_or(Millis::MIN));
        Some(after(since, self.spec.optional_wait_ms.unwrap_or(OPTIONAL_WAIT_MS)))
    }
}

impl Head {
    /// What the timers of Steps and Runs that wait for a worker need of the Task (S15, DISP-02).
    pub(super) fn waits_since(&self) -> (Option<Millis>, Shift, Option<Millis>, Shift) {
        (self.resumed_at, self.resumed_shift, self.drained_at, self.drained_shift)
    }

    /// The deadline in force, at a time: the written one, and the time paused since (POL-08).
    pub fn deadline_at(&self, now: Millis) -> Option<Millis> {
        let written = self.spec.deadline_at()?;
        let moves = self.rules >= Rules::Second && !self.spec.is_deadline_hard();
        let paused = if moves { self.paused.total_ms(now) } else { 0 };
        Some(written.saturating_add(paused))
    }

    /// Whether no deadline counts now, because the Task is paused (POL-08).
    pub(crate) fn stops_the_clock(&self) -> bool {
        self.rules >= Rules::Second && self.paused.is_now() && !self.spec.is_deadline_hard()
    }
}

impl Task {
    /// Whether the Task is failing and gives out no more Steps (POL-05).
    pub(crate) fn is_draining(&self) -> bool {
        self.head.is_draining(&self.derived.tally)
    }

    /// Why an automatic Task is failing, if it is: its first standing failure (POL-05, POL-06).
    pub(crate) fn standing_failure(&self) -> Option<Reason> {
        let (.., pos) = self.derived.failing.first()?;
        let step = &self.steps[*pos];
        Some(standing_reason(step.spec.step_id.as_str(), &step.state))
    }

    /// Whether a failing Task fails now (POL-05).
    pub(crate) fn fails_now(&self) -> bool {
        let tally = &self.derived.tally;
        match self.head.on_failure() {
            OnFailure::Stop => true,
            OnFailure::Drain => tally.held() == 0,
            OnFailure::Finish => tally.held() + tally.of(StepStatus::Ready) + tally.able == 0,
        }
    }
}
