//! What must hold after every commit. Tests check it after each apply; with debug assertions on,
//! every decision and every undo on a small Task checks it too.

use alloc::collections::BTreeMap;
use alloc::format;

use super::apply::Contradiction;
use super::{Task, Waits};
use crate::eligibility::{Asker, Obstacle, obstacles};
use crate::status::{AttemptStatus, RunState, StepStatus};

/// How many records a small Task has at most: the check then takes about a hundredth of a millisecond.
const SMALL: usize = 128;

impl Task {
    /// As [`check_invariants`](Self::check_invariants), but only for a small Task: in a large one
    /// each decision would cost as much as the Task holds.
    pub(crate) fn check_if_small(&self) -> Result<(), Contradiction> {
        let records = self.steps.len() + self.attempts.len() + self.runs.len();
        if records <= SMALL { self.check_invariants() } else { Ok(()) }
    }

    /// Checks that the records agree with each other and with the indexes.
    ///
    /// # Errors
    /// The first disagreement, in words.
    pub fn check_invariants(&self) -> Result<(), Contradiction> {
        if self.derived != self.derive_again() {
            return Err(
                format!("indexes differ: {:?} is {:?}", self.derived, self.derive_again()).into()
            );
        }
        self.check_waits()?;
        if !self.volatile.agrees_with(&self.runs, &self.head) {
            return Err(format!("unused runs differ: {:?}", self.volatile).into());
        }
        for (pos, step) in (0..).zip(self.steps.iter()) {
            self.check_step(pos, step).map_err(|e| format!("step {}: {e}", step.spec.step_id))?;
        }
        for attempt in self.attempts.iter() {
            if (attempt.status == AttemptStatus::Ended) != attempt.outcome.is_some() {
                return Err(format!(
                    "attempt {}: ended without outcome, or the reverse",
                    attempt.attempt_id
                )
                .into());
            }
            let open =
                self.steps[attempt.step].state.current.map(|at| self.attempts[at].attempt_id);
            if attempt.outcome.is_none() && open != Some(attempt.attempt_id) {
                return Err(
                    format!("attempt {} is open but not current", attempt.attempt_id).into()
                );
            }
        }
        for run in self.runs.iter() {
            let active = run.attempt.is_some_and(|at| self.attempts[at].outcome.is_none());
            if (run.state == RunState::Active) != active {
                return Err(format!(
                    "run {} is {} but its attempt says otherwise",
                    run.run_id, run.state
                )
                .into());
            }
            if (run.state == RunState::Ended) != run.end_reason.is_some() {
                return Err(format!("run {} ended without a reason", run.run_id).into());
            }
        }
        if self.is_terminal() && !self.derived.live_runs.is_empty() {
            return Err("runs live on after the end".into());
        }
        Ok(())
    }

    /// Checks that [`waits`](Self::waits) counts what `explain` says of each Step.
    fn check_waits(&self) -> Result<(), Contradiction> {
        let waits = |step: &&super::Step| {
            let state = &step.state;
            !state.removed
                && !self.is_terminal()
                && state.status.is_unfinished()
                && !state.status.is_held()
        };
        let mut found: BTreeMap<Obstacle, u32> = BTreeMap::new();
        for step in self.steps.iter().filter(waits) {
            let task = (&self.head, self.tally());
            let why = obstacles(task, &step.spec, &step.state, Asker::default()).headline();
            *found.entry(why).or_default() += 1;
        }
        let said: BTreeMap<_, _> = self.waits().iter().filter(|(_, count)| *count > 0).collect();
        match said == found && said.keys().all(|why| Waits::REASONS.contains(why)) {
            true => Ok(()),
            false => {
                Err(format!("it says that they wait for {said:?}, and they do for {found:?}")
                    .into())
            }
        }
    }

    fn check_step(&self, pos: u32, step: &super::Step) -> Result<(), Contradiction> {
        let state = &step.state;
        if self.steps.find(&step.spec.step_id) != Some(pos) {
            return Err("its id does not lead to it".into());
        }
        self.check_dependents(pos, step)?;
        if state.removed {
            return Ok(());
        }
        if state.status.is_held() != state.current.is_some() {
            return Err(format!("{} with current attempt {:?}", state.status, state.current).into());
        }
        if (state.status == StepStatus::Ready) != state.ready_at.is_some() {
            return Err(format!("{} with ready_at {:?}", state.status, state.ready_at).into());
        }
        if (state.status == StepStatus::Blocked) != state.wait_kind.is_some() {
            return Err(format!("{} with wait_kind {:?}", state.status, state.wait_kind).into());
        }
        if state.status != StepStatus::Pending && state.not_before.is_some() {
            return Err("not_before outside pending".into());
        }
        if state.status == StepStatus::Ready && state.unmet > 0 {
            return Err("ready before its dependencies".into());
        }
        if (state.standing_since > 0) != state.standing().is_some() {
            let (why, since) = (state.standing(), state.standing_since);
            return Err(format!("it stands as {why:?} since {since}").into());
        }
        let (mut unmet, mut dead, mut fatal, mut stuck) = (0, 0, 0, 0);
        for id in &step.spec.depends_on_step_ids {
            let dep = self.find_step(id).ok_or_else(|| format!("dependency {id} is gone"))?;
            let on = &self.steps[dep];
            if on.dependents.binary_search(&pos).is_err() {
                return Err(format!("dependency {id} does not know it").into());
            }
            unmet += u32::from(on.state.status != StepStatus::Completed);
            dead += u32::from(on.state.is_dead());
            fatal += u32::from(on.state.is_fatal());
            stuck += u32::from(on.state.is_stuck());
        }
        let counted = (state.unmet, state.dead, state.fatal, state.stuck);
        if counted != (unmet, dead, fatal, stuck) {
            let all = (unmet, dead, fatal, stuck);
            return Err(format!("counts are {counted:?}, should be {all:?}").into());
        }
        Ok(())
    }

    /// Checks the list of dependents: it is ascending, and every Step in it waits for this Step.
    fn check_dependents(&self, pos: u32, step: &super::Step) -> Result<(), Contradiction> {
        if !step.dependents.is_sorted_by(|a, b| a < b) {
            return Err(format!("dependents {:?} are not in order", step.dependents).into());
        }
        for &dependent in &step.dependents {
            let on = &self.steps[dependent];
            if on.state.removed || !on.spec.depends_on_step_ids.contains(&step.spec.step_id) {
                return Err(
                    format!("{} at {dependent} does not wait for it", on.spec.step_id).into()
                );
            }
        }
        match step.state.removed && !step.dependents.is_empty() {
            true => Err(format!("deleted at {pos}, but others wait for it").into()),
            false => Ok(()),
        }
    }
}
