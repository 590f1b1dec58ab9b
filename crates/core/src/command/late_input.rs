//! Input that comes to a Task while its Steps are at work: how far each Attempt has seen it (CTRL-12).

use alloc::format;
use alloc::vec::Vec;

use super::{StepReport, Tx};
use crate::id::{AttemptId, Ref};
use crate::read::View;
use crate::reject::Rejection;
use crate::rules::Rules;
use crate::status::{Policy, Role};
use crate::task::{Attempt, Head, Task};

impl Head {
    /// How many entries the Task's `input_refs` have.
    pub(crate) fn input_count(&self) -> u32 {
        u32::try_from(self.input_refs.len()).unwrap_or(u32::MAX)
    }
}

impl Tx<'_, '_> {
    /// What the reporting Attempt has newly seen: by this report, or by a heartbeat before it.
    pub(super) fn newly_seen(&self, report: &StepReport) -> Option<u64> {
        let head = &self.task.head;
        if head.rules < Rules::Second || head.input_refs.is_empty() {
            return None;
        }
        if self.cx.caller.role != Role::Worker {
            return None;
        }
        let run = self.task.runs.by_key(&self.cx.caller.run_id?)?;
        let attempt = run.attempt?;
        let beaten = self.task.volatile.input_seen.get(&attempt).copied().map(u64::from);
        let seen = report.input_seen.max(beaten)?;
        (seen > u64::from(self.task.attempts[attempt].input_seen)).then_some(seen)
    }
}

impl Task {
    /// Nobody has seen more entries than there are.
    pub(super) fn check_input_seen(&self, seen: Option<u64>) -> Result<(), Rejection> {
        let count = u64::from(self.head.input_count());
        if seen.is_none_or(|seen| seen <= count) {
            return Ok(());
        }
        let message = format!("the task has {count} input_refs; count those that you have seen");
        Err(Rejection::invalid("input_seen", message).with("limit", count))
    }

    /// Notes how many entries of the Task's `input_refs` the holder of an open Attempt has seen, as its
    /// heartbeat says it. The log has it with the next report of the Attempt.
    pub fn note_input_seen(&mut self, attempt_id: AttemptId, seen: u64) {
        let Some(pos) = self.attempts.find(&attempt_id) else { return };
        let seen = u32::try_from(seen).unwrap_or(u32::MAX).min(self.head.input_count());
        let is_open = |attempt: &Attempt| attempt.ended_at.is_none();
        let attempts = &self.attempts;
        self.volatile.input_seen.retain(|&pos, _| is_open(&attempts[pos]));
        if is_open(&attempts[pos]) && seen > attempts[pos].input_seen {
            let known = self.volatile.input_seen.entry(pos).or_default();
            *known = seen.max(*known);
        }
    }

    /// The entries of the Task's `input_refs` that no completed Attempt has seen, as the Task completes.
    pub(super) fn unread_input_refs(&self) -> Vec<Ref> {
        let head = &self.head;
        if head.rules < Rules::Second || head.input_refs.is_empty() {
            return Vec::new();
        }
        let has_completed = |attempt: &&Attempt| attempt.completed_step();
        let seen = self.attempts.iter().filter(has_completed).map(|a| a.input_seen).max();
        let seen = seen.unwrap_or(0).min(head.input_count());
        head.input_refs[seen as usize..].to_vec()
    }
}

impl View<'_> {
    /// How many entries the Task's `input_refs` have, if they are pushed to open Attempts: under
    /// `dispatch=auto`.
    pub fn pushed_inputs(&self) -> u32 {
        let head = self.head();
        match head.rules >= Rules::Second && head.spec.dispatch == Policy::Auto {
            true => head.input_count(),
            false => 0,
        }
    }

    /// The entries of the Task's `input_refs` that an Attempt has not had in its claim, from this one on; and
    /// how many come before them.
    pub fn inputs_for(&self, attempt: &Attempt, from: u32) -> (u32, &[Ref]) {
        let refs = &self.head().input_refs;
        let from = from.max(attempt.input_seen);
        (from, refs.get(from as usize..).unwrap_or_default())
    }
}
