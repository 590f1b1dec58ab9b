//! What the scheduler adds to a command's events, in the order of READY-06: automatic retries, the
//! completion policy, readiness, and `task_running`.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::Tx;
use super::close::Closing;
use super::tx::By;
use crate::event::{Body, Ended, Moved, Nothing, StepReopened};
use crate::id::{Millis, StepId};
use crate::record::{Backoff, Reason, RetryPolicy};
use crate::reject::Rejection;
use crate::retry_policy::Limit;
use crate::rules::Rules;
use crate::status::{AcceptanceState, Policy, StepStatus, TaskStatus};
use crate::table::Pos;
use crate::task::Task;
use crate::task::derived::after;

impl Tx<'_, '_> {
    pub(super) fn follow_up(&mut self) -> Result<(), Rejection> {
        self.retry_failed()?;
        self.end_closing(false)?;
        self.judge_policy()?;
        if self.task.is_terminal() || self.task.is_closing() {
            return Ok(());
        }
        if self.task.head.status != TaskStatus::Draft {
            self.promote()?;
            self.run_task()?;
        }
        Ok(())
    }

    /// S19: reopens Steps that failed in this commit and may run again.
    fn retry_failed(&mut self) -> Result<(), Rejection> {
        if self.task.is_closing() {
            return Ok(());
        }
        let failed = core::mem::take(&mut self.failed);
        for (pos, floor_ms) in failed {
            if let Some(not_before) = self.retry_at(pos, floor_ms) {
                let event = StepReopened {
                    from: StepStatus::Failed,
                    reason: Reason::code("auto_retry"),
                    not_before: Some(not_before),
                    input_refs: Vec::new(),
                    counters_reset: false,
                };
                self.emit_on(By::system(), pos, Body::StepReopened(event.into()))?;
            }
        }
        Ok(())
    }

    /// When to run a failed Step again, at least so many milliseconds from now; `None`: not
    /// automatically (RETRY-04 to RETRY-06).
    fn retry_at(&self, pos: Pos, floor_ms: u64) -> Option<Millis> {
        let step = &self.task.steps[pos];
        let attempt = &self.task.attempts[step.state.last_attempt?];
        let policy = attempt.retry_policy.as_deref()?;
        let reason = step.state.facts().status_reason.as_ref()?;
        let failures = step.state.attempt_count;
        let max_attempts = policy.max_attempts.and_then(Limit::number);
        if max_attempts.is_some_and(|max| failures >= max) || !is_retryable(policy, reason) {
            return None;
        }
        let random = self.cx.stamp.random.wrapping_add(u64::from(pos));
        let least_ms = self.cx.limits.retry_ms_least(failures).max(floor_ms);
        Some(after(self.now(), backoff_ms(&policy.backoff(), failures, random).max(least_ms)))
    }

    /// POL-04 to POL-06: completes or fails an automatic Task, if it is time.
    pub(super) fn judge_policy(&mut self) -> Result<(), Rejection> {
        let task = &*self.task;
        if task.head.spec.completion != Policy::Auto || !task.head.is_open() {
            return Ok(());
        }
        if let Some(reason) = task.standing_failure() {
            return match task.fails_now() {
                true => self.begin_closing(&Closing::fail(reason)),
                false => Ok(()),
            };
        }
        if task.completes_by_policy(self.steady()) {
            let names_reasons = task.head.rules >= Rules::Second;
            self.drop_unfinished(|state| match state.dead > 0 {
                true => names_reasons.then(|| Reason::code("unreachable_step")),
                false => names_reasons.then(|| Reason::code("not_needed")),
            })?;
            let output_from = self.task.output_step();
            let unread_input_refs = self.task.unread_input_refs();
            let ended = Ended { output_from, unread_input_refs, ..Ended::default() };
            return self.emit(By::system(), Body::TaskCompleted(Box::new(ended)));
        }
        Ok(())
    }

    /// S02 for every Step that can become ready, including those whose backoff is over, in creation order.
    pub(super) fn promote(&mut self) -> Result<(), Rejection> {
        let derived = &self.task.derived;
        let mut steps: Vec<Pos> = derived.promotable.iter().copied().collect();
        let without_backoff = steps.len();
        if !self.task.is_draining() {
            let over = derived.timers.not_before.iter().take_while(|(at, _)| *at <= self.steady());
            steps.extend(over.map(|&(_, pos)| pos));
        }
        if steps.len() > without_backoff {
            steps.sort_unstable();
        }
        steps
            .into_iter()
            .try_for_each(|pos| self.emit_on(By::system(), pos, Body::StepReady(Nothing {})))
    }

    /// T04: a pending Task with a ready or held Step begins to run.
    fn run_task(&mut self) -> Result<(), Rejection> {
        let tally = &self.task.derived.tally;
        if self.task.head.status == TaskStatus::Pending
            && tally.of(StepStatus::Ready) + tally.held() > 0
        {
            let moved = Moved { from: TaskStatus::Pending, reason: None };
            self.emit(By::system(), Body::TaskRunning(moved))?;
        }
        Ok(())
    }
}

impl Task {
    /// Whether an automatic Task completes now, at a moment of the steady line (POL-04, POL-06).
    fn completes_by_policy(&self, steady: Millis) -> bool {
        let waits = self.head.waits_for_optional(&self.derived.tally)
            && self.head.optional_wait_ends(&self.derived.tally).is_none_or(|at| at > steady);
        !waits && self.may_complete()
    }

    /// Whether nothing but optional Steps that are not held keeps it from completing by itself.
    pub(super) fn may_complete(&self) -> bool {
        self.is_completeable() && self.facts_are_reconciled() && self.acceptance_is_met()
    }

    /// TASK-22: the Step whose output becomes the completed Task's: the one that its creator named, else
    /// the only one on which nothing depends. It has completed with an output.
    fn output_step(&self) -> Option<StepId> {
        if self.head.rules < Rules::Second {
            return None;
        }
        let only_end = || {
            let is_end = |pos: &Pos| {
                let step = &self.steps[*pos];
                !step.state.removed && step.dependents.is_empty()
            };
            let mut ends = self.positions().filter(is_end);
            ends.next().filter(|_| ends.next().is_none())
        };
        let named = self.head.spec.output_from.as_ref();
        let step = &self.steps[named.map_or_else(only_end, |id| self.find_step(id))?];
        let has_output = step.state.facts().output.is_some();
        (step.state.status == StepStatus::Completed && has_output)
            .then(|| step.spec.step_id.clone())
    }

    /// TASK-19: every required Step completed and no Step claimed or running.
    pub fn is_completeable(&self) -> bool {
        self.derived.tally.is_completeable()
    }

    /// TERM-10: the facts of peers are stored, and no artifact is only announced.
    pub(crate) fn facts_are_reconciled(&self) -> bool {
        self.derived.tally.unreconciled == 0 && self.derived.tally.artifacts_pending == 0
    }

    /// TERM-11: every acceptance criterion is met or waived.
    pub(crate) fn acceptance_is_met(&self) -> bool {
        let met = |s: AcceptanceState| matches!(s, AcceptanceState::Met | AcceptanceState::Waived);
        self.head.spec.acceptance.iter().all(|a| met(a.state))
    }
}

/// RETRY-05: whether an automatic retry is allowed after this failure; some codes never allow it. A
/// result that is too large, or an input that cannot be read, would only be so again (VALUE-01, VALUE-02).
fn is_retryable(policy: &RetryPolicy, reason: &Reason) -> bool {
    let never = matches!(
        reason.code.as_str(),
        "rejected"
            | "worker_cancelled"
            | "lost"
            | "schedule_to_start_timeout"
            | "schedule_to_close_timeout"
            | "wait_timeout"
            | "unknown_handler"
            | "blob_missing"
            | "value_too_large"
    );
    !never
        && reason.retryable != Some(false)
        && !policy.non_retryable.iter().flatten().any(|code| *code == reason.code)
}

/// RETRY-06: the wait before retry `n`, in milliseconds, with jitter from a random number.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub fn backoff_ms(backoff: &Backoff, n: u32, random: u64) -> u64 {
    let max = backoff.max_ms as f64;
    let mut wait = backoff.initial_ms as f64;
    for _ in 1..n {
        if wait >= max || backoff.factor == 1.0 {
            break;
        }
        wait *= backoff.factor;
    }
    // 53 bits of a mixed number, as a value from 0 to 1.
    let unit = (mix(random) >> 11) as f64 / (1_u64 << 53) as f64;
    let jittered = wait.min(max) * (1.0 - backoff.jitter * unit);
    if jittered > 0.0 { jittered as u64 } else { 0 }
}

/// A well-mixed 64-bit number (the finaliser of SplitMix64).
fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
